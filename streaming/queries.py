"""Questions about the tables, answered without a JVM and while the job runs."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from streaming.errors import MisuseError
from streaming.partitioner import offsets_partitions
from streaming.progress import COUNTERS, Progress
from streaming.schemas import TIMESTAMP
from streaming.settings import OFFSETS_TOPIC
from streaming.tables import Tables

STATUS: Final = pa.schema(
    [
        ("partition", pa.int32()),
        ("state", pa.string()),  # loading, current, behind or stalled
        ("position", pa.int64()),  # the next source offset to read
        ("last_stable_offset", pa.int64()),
        ("high_watermark", pa.int64()),
        ("behind", pa.int64()),  # source offsets between position and last stable offset
        ("loaded", pa.bool_()),
        ("held_back_since", TIMESTAMP),  # null = no open transaction holds the partition back
    ]
)

TOTALS: Final = pa.schema(
    [
        ("counter", pa.string()),  # one of progress.COUNTERS, or unknown
        ("count", pa.int64()),
        ("record_type", pa.int16()),  # this and the rest: of unknown records only
        ("value_version", pa.int16()),
        ("first_partition", pa.int32()),
        ("first_offset", pa.int64()),
        ("last_partition", pa.int32()),
        ("last_offset", pa.int64()),
    ]
)


@dataclass(frozen=True)
class TopicPartitions:
    """A topic, and the partitions of it that are asked for (None = all)."""

    topic: str
    partitions: frozenset[int] | None = None

    @classmethod
    def parse(cls, text: str) -> "TopicPartitions":
        """Read `T` or `T:0,1`, as Kafka's own tools take it.

        >>> TopicPartitions.parse("orders:0,1").topic
        'orders'
        """
        found = re.fullmatch(r"([^:]+)(?::([0-9]{1,9}(?:,[0-9]{1,9})*))?", text)
        if found is None:
            raise MisuseError(
                f"--topic: expected a topic, or topic:partition,partition such as orders:0,1; found {text!r}."
            )
        topic, numbers = found.groups()
        return cls(topic, None if numbers is None else frozenset(map(int, numbers.split(","))))


@dataclass(frozen=True)
class Answer:
    """Rows, the progress that they reflect, and the groups that were asked for (none: all)."""

    rows: pa.Table
    progress: Progress
    groups: Sequence[str] = ()

    @property
    def is_loading(self) -> bool:
        """Whether groups may be missing because the topic was not read to its end yet."""
        return not self.progress.partitions or bool(self.loading_partitions)

    @property
    def loading_partitions(self) -> list[int]:
        """Offsets partitions of the groups asked for that were not read to their end yet."""
        partitions = self.progress.partitions
        asked = _partitions_of(self.groups, self.progress)
        return [number for number in sorted(asked & partitions.keys()) if not partitions[number].loaded]


def list_offsets(
    tables: Tables, groups: Sequence[str] = (), topics: Sequence[TopicPartitions] = ()
) -> Answer:
    """Return the committed offsets (schema `OFFSETS`) of the named groups or of all, sorted by key."""
    snapshot = tables.read(groups or None)
    rows = snapshot.offsets
    if topics:
        rows = rows.filter(_of_topics(rows, topics))
    by_key = [("group", "ascending"), ("topic", "ascending"), ("partition", "ascending")]
    return Answer(rows.sort_by(by_key), snapshot.progress, groups)


def list_groups(tables: Tables, groups: Sequence[str] = ()) -> Answer:
    """Return the live groups (schema `GROUPS`), the named ones or all, sorted by name."""
    snapshot = tables.read(groups or None)
    return Answer(_sorted(snapshot.groups, "group"), snapshot.progress, groups)


def status(progress: Progress, now: int) -> pa.Table:
    """Return how far each offsets partition has been read (schema `STATUS`); `now` in milliseconds."""
    rows = [
        {
            "partition": number,
            "state": partition.state(now),
            "position": partition.position,
            "last_stable_offset": partition.last_stable_offset,
            "high_watermark": partition.high_watermark,
            "behind": partition.behind,
            "loaded": partition.loaded,
            "held_back_since": None
            if partition.held_back_since is None
            else partition.held_back_since * 1_000,  # microseconds
        }
        for number, partition in sorted(progress.partitions.items())
    ]
    return pa.Table.from_pylist(rows, STATUS)


def totals(progress: Progress) -> pa.Table:
    """Return the counters over all that was read (schema `TOTALS`)."""
    counted = progress.totals
    rows: list[dict[str, Any]] = [{"counter": name, "count": getattr(counted, name)} for name in COUNTERS]
    rows += [
        {
            "counter": "unknown",
            "count": kind.count,
            "record_type": kind.record_type,
            "value_version": kind.value_version,
            "first_partition": kind.first.partition,
            "first_offset": kind.first.offset,
            "last_partition": kind.last.partition,
            "last_offset": kind.last.offset,
        }
        for kind in counted.unknown
    ]
    return pa.Table.from_pylist(rows, TOTALS)


def _partitions_of(groups: Sequence[str], progress: Progress) -> set[int]:
    """Return the offsets partitions that can hold the groups; only of Kafka's own topic are these known."""
    partitions = set(progress.partitions)
    count = len(partitions)
    if not groups or progress.topic != OFFSETS_TOPIC or partitions != set(range(max(count, 1))):
        return partitions  # the last: some did not answer yet, so how many there are is not known
    return set(offsets_partitions(pa.array(groups, pa.string()), count).tolist())


def _of_topics(rows: pa.Table, topics: Sequence[TopicPartitions]) -> pa.ChunkedArray:
    return reduce(pc.or_, (_of_topic(rows, topic) for topic in topics))


def _of_topic(rows: pa.Table, asked: TopicPartitions) -> pa.ChunkedArray:
    of_topic = pc.equal(rows["topic"], asked.topic)
    if asked.partitions is None:
        return of_topic
    numbers = pa.array(sorted(asked.partitions), pa.int32())
    return pc.and_(of_topic, pc.is_in(rows["partition"], value_set=numbers))


def _sorted(rows: pa.Table, column: str) -> pa.Table:
    """Sort by a column (`Table.sort_by` cannot carry every nested column)."""
    return rows.take(pc.sort_indices(rows[column]))
