"""When the tables no longer follow from the topic, and what changes once it has been read anew.

A compacted topic keeps a tombstone for a limited time. Who was away for longer may miss it for ever, and with
it the end of an offset; who finds other partitions, or another topic under the same name, holds positions
that mean nothing. Going on from there would leave ghosts in the tables. So the topic is read anew from its
start, beside the tables, and what is different in the end becomes one step of their history.

Pure functions; `streaming.job.topic_watch` asks, `streaming.job.follow` reads.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from streaming.brokers.facts import LogRange, TopicFacts
from streaming.common.arrays import Index, Mask
from streaming.common.keys import key_codes
from streaming.common.pieces import take
from streaming.common.times import from_ms, iso
from streaming.expiry.causes import GONE_WHILE_AWAY
from streaming.model.errors import OffsetlakeError
from streaming.model.progress import PartitionEnds, PartitionProgress, Progress
from streaming.model.schemas import CHANGES, KEY, TIMESTAMP
from streaming.state.changes import as_values

_ABSENT: Final = -1  # stands in an index for "no such row", also for `take`
_COMPARED_ROWS: Final = 100_000  # at a time: what is compared is held twice
_VALUE: Final = CHANGES.field("after").type


class RebuildNeededError(OffsetlakeError):
    """What was read shows that reading on is not enough; the message says why."""


@dataclass(frozen=True, kw_only=True)
class TopicNow(TopicFacts):
    """What the brokers say about the topic; they were asked at `now` (ms), and answered after it.

    `ends` and `ranges` lack partitions whose leader did not answer; `delete_retention_ms` is how long a
    tombstone stays at least.
    """

    ranges: Mapping[int, LogRange]
    delete_retention_ms: int
    now: int
    ends: Mapping[int, PartitionEnds] = field(default_factory=dict)


def reason_to_rebuild(progress: Progress, topic: TopicNow) -> str | None:
    """Say why tables with this progress cannot be brought up to date by reading on; None if they can.

    Where the time for which tombstones are kept was changed meanwhile, the shorter one counts.
    """
    if not progress.partitions:
        return None
    if len(progress.partitions) != topic.partition_count:
        return (
            f"topic {progress.topic} has {topic.partition_count} partitions, and had "
            f"{len(progress.partitions)} when the tables were filled: groups belong to other partitions now"
        )
    if None not in (progress.topic_id, topic.topic_id) and progress.topic_id != topic.topic_id:
        return f"topic {progress.topic} was deleted and created anew"
    kept = min(topic.delete_retention_ms, progress.tombstones_kept_ms or topic.delete_retention_ms)
    for number, partition in sorted(progress.with_ends(topic.ends, topic.now).partitions.items()):
        reason = _out_of_range(partition, topic.ranges.get(number)) or (
            None if partition.behind == 0 else _away_too_long(partition, kept, topic.now)
        )
        if reason:
            return f"partition {number} of topic {progress.topic} {reason}"
    return None


def missed_tombstones(
    progress: Progress, positions: Mapping[int, int], *, delete_retention_ms: int, now: int
) -> str | None:
    """Say why reading from a progress to these positions, up to `now` (ms), may have missed tombstones; None
    if it cannot have."""
    for number, position in sorted(positions.items()):
        partition = progress.partitions.get(number, PartitionProgress())
        reason = _away_too_long(partition, delete_retention_ms, now)
        if reason and position > partition.position:
            return f"partition {number} of topic {progress.topic} {reason}"
    return None


def _out_of_range(partition: PartitionProgress, held: LogRange | None) -> str | None:
    if held is None:
        return None
    if partition.position > held.latest:
        return f"ends at offset {held.latest}, and was read up to {partition.position}"
    if 0 < partition.position < held.earliest:
        return f"begins at offset {held.earliest}, and was read up to {partition.position} only"
    return None


def _away_too_long(partition: PartitionProgress, delete_retention_ms: int, now: int) -> str | None:
    complete_as_of = partition.stable.since
    if complete_as_of is None or now - complete_as_of <= delete_retention_ms:
        return None
    return (
        f"was last read to its end at {iso(complete_as_of, 'seconds')}, longer ago than tombstones are kept "
        f"(delete.retention.ms = {delete_retention_ms}): some may be missed for ever"
    )


def fingerprint(changes: pa.Table) -> str:
    """Return what tells the changes of one batch (schema `CHANGES_IN_BATCH`, and `source_partition`) from
    others: how many they are, and which records brought them about, in any order.

    Read again after compaction, a batch may lack records that it had: then the shards do not hold what the
    tables say.
    """
    is_set = pc.equal(changes["op"], "set").to_numpy()
    places = changes["source_offset"].to_numpy().astype(np.uint64) * 2 + is_set
    partitions = changes["source_partition"].to_numpy().astype(np.uint64)
    hashes = pd.util.hash_array(places) ^ pd.util.hash_array(partitions)
    return f"{len(changes)}-{int(pd.util.hash_array(hashes).sum(dtype=np.uint64)):016x}"


def not_in(failed: pa.Table, others: pa.Table) -> pa.Table:
    """Return the quarantined records whose place in the log is not among those of the others, in their
    order."""
    place = ["source_partition", "source_offset"]
    numbered = failed.select(place).append_column("row", pa.array(np.arange(len(failed))))
    is_left = numbered.join(others.select(place), keys=place, join_type="left anti")["row"]
    return failed.take(pa.array(np.sort(is_left.to_numpy())))


def differences(name: str, before: pa.Table, after: pa.Table, *, sequence: int, batch_time: int) -> pa.Table:
    """Return what changes (schema `CHANGES`) when a table becomes another: rows of `offsets` or `groups`.

    `name` says which of the two tables `before` and `after` are.
    """
    keys = [field.name for field in KEY] if name == "offsets" else ["group"]
    old_codes, new_codes = _codes(before, after, keys)
    new_row_of_old = pd.Index(new_codes).get_indexer(pd.Index(old_codes)).astype(np.int64)
    is_removed = new_row_of_old == _ABSENT
    is_other = ~is_removed
    kept = np.flatnonzero(is_other)
    is_other[kept] = _differ(before, kept, after, new_row_of_old[kept], keys)
    is_new = pd.Index(old_codes).get_indexer(pd.Index(new_codes)) == _ABSENT
    old_rows = np.concatenate(
        [np.flatnonzero(is_removed), np.flatnonzero(is_other), np.full(is_new.sum(), _ABSENT)]
    )
    new_rows = np.concatenate(
        [np.full(is_removed.sum(), _ABSENT), new_row_of_old[is_other], np.flatnonzero(is_new)]
    )
    return _rows(name, keys, before, after, old_rows, new_rows, sequence, batch_time)


def _codes(before: pa.Table, after: pa.Table, keys: list[str]) -> tuple[Index, Index]:
    """Number the keys of both tables: equal numbers, equal keys."""
    codes = key_codes(pa.concat_tables([before.select(keys), after.select(keys)]).columns)
    return codes[: len(before)], codes[len(before) :]


def _differ(before: pa.Table, old_rows: Index, after: pa.Table, new_rows: Index, keys: list[str]) -> Mask:
    """Tell which of m rows of one table hold other values than m rows of another, with the same keys."""
    names = [name for name in before.column_names if name not in keys]
    differ = np.zeros(len(old_rows), dtype=bool)
    for start in range(0, len(old_rows), _COMPARED_ROWS):
        some = slice(start, start + _COMPARED_ROWS)
        differ[some] = _hold_others(
            take(before.select(names), old_rows[some]), take(after.select(names), new_rows[some])
        )
    return differ


def _hold_others(before: pa.Table, after: pa.Table) -> Mask:
    """Tell which rows of two tables of n rows hold other values."""
    differ = np.zeros(len(before), dtype=bool)
    for name in before.column_names:
        one, other = before[name], after[name]
        if pa.types.is_nested(one.type):
            differ |= np.array(
                [a != b for a, b in zip(one.to_pylist(), other.to_pylist(), strict=True)], bool
            )
            continue
        is_same = pc.or_(pc.equal(one, other).fill_null(False), pc.and_(one.is_null(), other.is_null()))
        differ |= ~is_same.to_numpy(zero_copy_only=False)
    return differ


def _rows(
    name: str,
    keys: list[str],
    before: pa.Table,
    after: pa.Table,
    old_rows: Index,
    new_rows: Index,
    sequence: int,
    batch_time: int,
) -> pa.Table:
    count, is_set = len(new_rows), new_rows != _ABSENT
    old, new = take(before, old_rows), take(after, new_rows)
    is_lost_offset = ~is_set & (name == "offsets")
    now = from_ms(batch_time)
    columns = {
        "sequence": pa.repeat(pa.scalar(sequence, pa.int64()), count),
        "batch_time": pa.repeat(pa.scalar(now, TIMESTAMP), count),
        "day": pa.repeat(pa.scalar(now.date(), pa.date32()), count),
        "kind": pa.repeat(pa.scalar(name.removesuffix("s")), count),
        "op": pc.if_else(pa.array(is_set), "set", "remove"),
        "cause": pc.if_else(pa.array(is_lost_offset), GONE_WHILE_AWAY, pa.scalar(None, pa.string())),
        "before": as_values(old, old_rows == _ABSENT, _VALUE),
        "after": as_values(new, new_rows == _ABSENT, _VALUE),
        **{key: pc.coalesce(new[key], old[key]) for key in [*keys, "source_partition"]},
        # nothing in the log tells of what is gone: it has no offset there, and the time when that was noticed
        "source_offset": new["source_offset"],
        "source_timestamp": pc.coalesce(new["source_timestamp"], pa.scalar(now, TIMESTAMP)),
    }
    return pa.table(
        [columns.get(field.name, pa.nulls(count, field.type)) for field in CHANGES], schema=CHANGES
    )
