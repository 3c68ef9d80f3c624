"""What committed offsets are held against: where the logs of their partitions begin and end."""

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

STAKES: Final = pa.schema(
    [
        ("log_start", pa.int64()),  # null, this and the rest: the partition could not be read
        ("log_end", pa.int64()),
        ("lag", pa.int64()),  # as Kafka's tools count it: with unread records that retention has deleted
        ("earliest_replays", pa.int64()),  # records that `auto.offset.reset=earliest` would read again
        ("latest_skips", pa.int64()),  # records that `auto.offset.reset=latest` would never read
    ]
)

Partition = tuple[str, int]


def partitions_in(rows: pa.Table) -> list[Partition]:
    """Return the partitions (topic, number) that rows speak of, each once, in no order."""
    distinct = rows.group_by(["topic", "partition"]).aggregate([])
    return list(zip(distinct["topic"].to_pylist(), distinct["partition"].to_pylist(), strict=True))


def with_stakes(rows: pa.Table, ranges: Mapping[Partition, Any]) -> pa.Table:
    """Append what would be at stake (schema `STAKES`) to rows with topic, partition and committed_offset.

    `ranges` are those of the partitions that could be read (`broker.LogRange`).
    """
    found = [
        ranges.get(partition)
        for partition in zip(rows["topic"].to_pylist(), rows["partition"].to_pylist(), strict=True)
    ]
    start = pa.array([None if log is None else log.earliest for log in found], pa.int64())
    end = pa.array([None if log is None else log.latest for log in found], pa.int64())
    committed = rows["committed_offset"].combine_chunks()
    here = pc.max_element_wise(start, pc.min_element_wise(committed, end, skip_nulls=False), skip_nulls=False)
    lag = pc.max_element_wise(pc.subtract(end, committed), 0, skip_nulls=False)
    columns = [start, end, lag, pc.subtract(here, start), pc.subtract(end, here)]
    for field, column in zip(STAKES, columns, strict=True):
        rows = rows.append_column(field, column)
    return rows
