"""Applies the result of a rebuild to the live tables: one step of their history, in one commit."""

from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from streaming.brokers.facts import TopicIds
from streaming.common.arrays import Index, Mask
from streaming.common.keys import key_codes
from streaming.common.pieces import take
from streaming.common.times import from_ms, now_ms
from streaming.expiry.causes import GONE_WHILE_AWAY, Evidence, with_causes_of_absence
from streaming.model.progress import Progress
from streaming.model.schemas import CHANGES, KEY, QUARANTINE_IN_BATCH, TIMESTAMP
from streaming.state.changes import as_values
from streaming.tables.folding import Value, value_column
from streaming.tables.rows import quarantine_rows
from streaming.tables.snapshot import LiveRows
from streaming.tables.tables import Tables

_ABSENT: Final = -1  # in an index: no such row, also for `take`
_COMPARED_ROWS: Final = 100_000  # at a time: compared rows are in memory twice


def change_over(live: Tables, aside: Tables, topic_ids: TopicIds) -> Progress:
    """Append the differences of the rebuilt tables to the live tables; return their new progress."""
    old, new = live.read(), aside.read()
    now, sequence = now_ms(), old.progress.sequence + 1
    rows = pa.concat_tables(
        differences(name, getattr(old, name), getattr(new, name), sequence=sequence, batch_time=now)
        for name in ("offsets", "groups")
    )
    rows = _with_causes(rows, old, new.progress, topic_ids, now)
    progress = replace(
        new.progress,
        retention=old.progress.with_retention(new.progress.retention).retention,
        sequence=sequence if len(rows) else old.progress.sequence,
        batch_time=now if len(rows) else old.progress.batch_time,
        heartbeat=now,
        alerts_evaluated_at=old.progress.alerts_evaluated_at,
    )
    failed = not_in(aside.read_quarantine(), live.read_quarantine())
    live.append_quarantine(_in_batch(failed, progress), progress)
    progress = replace(progress, heartbeat=now_ms())  # of the commit: no reader sees the rows before
    live.append_changes(rows, progress, is_batch=True, after=[old.progress])
    return progress


def _with_causes(rows: pa.Table, old: LiveRows, found: Progress, topic_ids: TopicIds, now: int) -> pa.Table:
    """Determine which of the missing offsets had expired meanwhile."""
    gone = rows.filter(pc.equal(rows["cause"], GONE_WHILE_AWAY).fill_null(False))
    retention, before = found.retention, old.progress.retention
    evidence = Evidence(
        offsets=old.offsets,
        groups=old.groups,
        topic_ids=topic_ids(pc.unique(gone["topic"]).to_pylist()),
        retention=None if retention is None else retention.after(before),
        stalled=frozenset(),
        now=now,
    )
    seen_at = {number: partition.stable.since for number, partition in old.progress.partitions.items()}
    return with_causes_of_absence(rows, evidence, seen_at)


def _in_batch(failed: pa.Table, progress: Progress) -> pa.Table:
    """Return quarantined records with the batch of a progress."""
    return quarantine_rows(
        failed.select(QUARANTINE_IN_BATCH.names),
        sequence=progress.sequence,
        batch_time=progress.heartbeat,
    )[0]


def not_in(failed: pa.Table, others: pa.Table) -> pa.Table:
    """Return the quarantined records whose source position is not among those of the others, in their
    order."""
    place = ["source_partition", "source_offset"]
    numbered = failed.select(place).append_column("row", pa.array(np.arange(len(failed))))
    is_left = numbered.join(others.select(place), keys=place, join_type="left anti")["row"]
    return failed.take(pa.array(np.sort(is_left.to_numpy())))


def differences(name: str, before: pa.Table, after: pa.Table, *, sequence: int, batch_time: int) -> pa.Table:
    """Return the changes (schema `CHANGES`) from one version of a table to another.

    `name` is the table of `before` and `after`: `offsets` or `groups`.
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
    """Number the keys of both tables: equal keys have equal numbers."""
    codes = key_codes(pa.concat_tables([before.select(keys), after.select(keys)]).columns)
    return codes[: len(before)], codes[len(before) :]


def _differ(before: pa.Table, old_rows: Index, after: pa.Table, new_rows: Index, keys: list[str]) -> Mask:
    """Return which of m rows of one table have other values than m rows of another, with the same keys."""
    names = [name for name in before.column_names if name not in keys]
    differ = np.zeros(len(old_rows), dtype=bool)
    for start in range(0, len(old_rows), _COMPARED_ROWS):
        some = slice(start, start + _COMPARED_ROWS)
        differ[some] = _hold_others(
            take(before.select(names), old_rows[some]), take(after.select(names), new_rows[some])
        )
    return differ


def _hold_others(before: pa.Table, after: pa.Table) -> Mask:
    """Return which rows of two tables of n rows differ."""
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
        **_values(name, "before", old, old_rows == _ABSENT),
        **_values(name, "after", new, new_rows == _ABSENT),
        **{key: pc.coalesce(new[key], old[key]) for key in [*keys, "source_partition"]},
        # missing rows have no record in the log: no source offset, and the time at which this was noticed
        "source_offset": new["source_offset"],
        "source_timestamp": pc.coalesce(new["source_timestamp"], pa.scalar(now, TIMESTAMP)),
    }
    return pa.table(
        [columns.get(field.name, pa.nulls(count, field.type)) for field in CHANGES], schema=CHANGES
    )


def _values(name: str, value: Value, rows: pa.Table, is_absent: Mask) -> dict[str, pa.ChunkedArray]:
    column = value_column(name, value)
    return {column: as_values(rows, is_absent, CHANGES.field(column).type)}
