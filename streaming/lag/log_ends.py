"""Lag, and what a reset would cost: committed offsets against where the logs of partitions start and end."""

from collections.abc import Mapping
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

STAKES: Final = pa.schema(
    [
        ("log_start_offset", pa.int64()),  # null, this and the rest: the partition could not be read
        ("log_end_offset", pa.int64()),
        ("lag", pa.int64()),
        ("earliest_replays", pa.int64()),  # records that `auto.offset.reset=earliest` would read again
        ("latest_skips", pa.int64()),  # records that `auto.offset.reset=latest` would never read
    ]
)

Partition = tuple[str, int]


class LogRange(Protocol):
    """The offsets that the log of a partition holds: from `earliest`, and before `latest`."""

    @property
    def earliest(self) -> int:
        """The log start offset."""

    @property
    def latest(self) -> int:
        """The log end offset."""


def partitions_in(rows: pa.Table) -> list[Partition]:
    """Return the partitions (topic, number) that rows speak of, each once, in no order."""
    distinct = rows.group_by(["topic", "partition"]).aggregate([])
    return list(zip(distinct["topic"].to_pylist(), distinct["partition"].to_pylist(), strict=True))


def lag(log_end: pa.Array, committed: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return log end offset - committed offset of n rows (int64), null where either is.

    As `kafka-consumer-groups` counts it (Kafka 4.3: `ConsumerGroupCommand.getLag`): with unread records that
    retention has deleted, and negative where a group has committed beyond the end of the log.
    """
    return pc.subtract(log_end, committed)


def with_log_ends(rows: pa.Table, log_ends: Mapping[Partition, int]) -> pa.Table:
    """Add `log_end_offset` and `lag` (int64, null: not known) behind `committed_offset`.

    `log_ends` are the log end offsets of the partitions (topic, number) that could be read.
    """
    if log_ends:
        end = pa.array([log_ends.get(partition) for partition in _partitions(rows)], pa.int64())
    else:
        end = pa.nulls(len(rows), pa.int64())  # `pa.array` would import pandas
    place = rows.column_names.index("committed_offset") + 1
    return rows.add_column(place, "log_end_offset", end).add_column(
        place + 1, "lag", lag(end, rows["committed_offset"])
    )


def with_stakes(rows: pa.Table, ranges: Mapping[Partition, LogRange]) -> pa.Table:
    """Append what would be at stake (schema `STAKES`) to rows with topic, partition and committed_offset.

    `ranges` are those of the partitions that could be read.
    """
    found = [ranges.get(partition) for partition in _partitions(rows)]
    start = pa.array([None if log is None else log.earliest for log in found], pa.int64())
    end = pa.array([None if log is None else log.latest for log in found], pa.int64())
    committed = rows["committed_offset"]
    next_read = pc.max_element_wise(
        start, pc.min_element_wise(committed, end, skip_nulls=False), skip_nulls=False
    )
    columns = [start, end, lag(end, committed), pc.subtract(next_read, start), pc.subtract(end, next_read)]
    for field, column in zip(STAKES, columns, strict=True):
        rows = rows.append_column(field, column)
    return rows


def _partitions(rows: pa.Table) -> list[Partition]:
    """Return the partition of each row."""
    return list(zip(rows["topic"].to_pylist(), rows["partition"].to_pylist(), strict=True))
