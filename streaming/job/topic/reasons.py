"""Reasons why the tables cannot be updated by reading on, so that the topic must be re-read from the
beginning.

A compacted topic keeps a tombstone for a limited time. A job that was down for longer may miss it, and so the
removal of an offset. If the topic has another number of partitions, or was recreated, the positions in the
tables mean nothing. Reading on would leave offsets in the tables that no longer exist.

Pure functions of the tables' progress (`Progress`) and the brokers' answers (`TopicNow`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from streaming.brokers.facts import LogRange, TopicFacts
from streaming.common.times import iso
from streaming.model.errors import OffsetlakeError
from streaming.model.progress import PartitionEnds, PartitionProgress, Progress


class RebuildNeededError(OffsetlakeError):
    """Reading on is not enough; the message is the reason."""


@dataclass(frozen=True, kw_only=True)
class TopicNow(TopicFacts):
    """The brokers' answers about the topic; they were asked at `now` (ms), and answered after it.

    `ends` and `ranges` lack partitions whose leader did not answer; `delete_retention_ms` is the minimum
    retention of tombstones.
    """

    ranges: Mapping[int, LogRange]
    delete_retention_ms: int
    now: int
    ends: Mapping[int, PartitionEnds] = field(default_factory=dict)


def reason_to_rebuild(progress: Progress, topic: TopicNow) -> str | None:
    """Return why tables with this progress cannot be updated by reading on; None if they can, as far as the
    leaders that answered show.

    A reason that the tables contain is returned first: a jump of the clock cannot be detected again.
    If the retention of tombstones was changed meanwhile, the shorter one counts.
    """
    if progress.rebuild is not None:
        return progress.rebuild.reason
    if not progress.partitions:
        return None
    if len(progress.partitions) != topic.partition_count:
        return (
            f"topic {progress.topic} has {topic.partition_count} partitions, and had "
            f"{len(progress.partitions)} when the tables were filled: groups now belong to other partitions"
        )
    if None not in (progress.topic_id, topic.topic_id) and progress.topic_id != topic.topic_id:
        return f"topic {progress.topic} was deleted and recreated"
    kept = min(topic.delete_retention_ms, progress.tombstones_kept_ms or topic.delete_retention_ms)
    partitions = progress.with_ends(topic.ends, topic.now).partitions
    for number, held in sorted(topic.ranges.items()):
        partition = partitions.get(number, PartitionProgress())
        reason = _out_of_range(partition, held) or (
            None if partition.behind == 0 else _away_too_long(partition, kept, topic.now)
        )
        if reason:
            return f"partition {number} of topic {progress.topic} {reason}"
    return None


def missed_tombstones(
    progress: Progress, positions: Mapping[int, int], *, delete_retention_ms: int, now: int
) -> str | None:
    """Return why reading from a progress to these positions, up to `now` (ms), may have missed tombstones;
    None if not."""
    for number, position in sorted(positions.items()):
        partition = progress.partitions.get(number, PartitionProgress())
        reason = _away_too_long(partition, delete_retention_ms, now)
        if reason and position > partition.position:
            return f"partition {number} of topic {progress.topic} {reason}"
    return None


def _out_of_range(partition: PartitionProgress, held: LogRange) -> str | None:
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
        f"was last read to its end at {iso(complete_as_of, 'seconds')}, longer ago than tombstones are "
        f"retained (delete.retention.ms = {delete_retention_ms}): some may have been missed"
    )
