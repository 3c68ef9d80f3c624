"""Lag, and the records that a reset would replay or skip: committed offsets compared with where logs start
and end."""

from collections.abc import Mapping
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import Index, from_mask, from_numbers, numbers_or, to_mask
from streaming.common.timestamps import to_timestamps
from streaming.model.schemas import TIMESTAMP

LAG: Final = pa.schema(
    [
        ("offset_as_of_ends", pa.int64()),  # null: not known, or none of this log by the time of the sample
        ("log_end_offset", pa.int64()),  # null: never sampled, or too long ago
        ("lag", pa.int64()),  # null: not known; negative: the position is beyond the end of the log
        ("lag_seconds", pa.float64()),  # null: not known
        ("lag_is_at_least", pa.bool_()),  # lag or time may be larger; null: not known
        ("ends_as_of", TIMESTAMP),  # of the newest sample, however old; null: there is none
    ]
)
"""The lag of a committed offset: `log_end_offset` - `offset_as_of_ends`, both as of the moment
`ends_as_of`. The committed offset itself may be newer. A group that first committed after that moment has
no lag yet."""

TIMED: Final = ("lag_seconds", "lag_is_at_least")
"""The columns of the lag time. They need older samples."""

STAKES: Final = pa.schema(
    [
        ("log_start_offset", pa.int64()),  # null, like the others: the partition could not be read
        ("log_end_offset", pa.int64()),
        ("lag", pa.int64()),
        ("earliest_replays", pa.int64()),  # records that `auto.offset.reset=earliest` would replay
        ("latest_skips", pa.int64()),  # records that `auto.offset.reset=latest` would skip
    ]
)

Partition = tuple[str, int]
_MOST: Final = 2**63 - 1


class LogRange(Protocol):
    """The log start offset (`earliest`) and the log end offset (`latest`) of a partition."""

    @property
    def earliest(self) -> int: ...

    @property
    def latest(self) -> int: ...


def partitions_in(rows: pa.Table) -> list[Partition]:
    """Return the distinct partitions (topic, number) of rows, in no order."""
    distinct = rows.group_by(["topic", "partition"]).aggregate([])
    return list(zip(distinct["topic"].to_pylist(), distinct["partition"].to_pylist(), strict=True))


def lag(log_end: pa.Array, committed: pa.ChunkedArray) -> pa.Array:
    """Return log end offset - committed offset of n rows (int64), null where either is null.

    Like `kafka-consumer-groups` (Kafka 4.3: `ConsumerGroupCommand.getLag`), this counts unread records that
    retention has deleted, and is negative where a group has committed beyond the end of the log. A difference
    larger than the largest int64 becomes the largest int64.
    """
    is_known = to_mask(pc.and_(pc.is_valid(log_end), pc.is_valid(committed)))
    return from_numbers(lag_of(numbers_or(log_end, 0), numbers_or(committed, 0)), is_known)


def lag_of(log_ends: Index, committed: Index) -> Index:
    """Return the lag as `lag` does, for n int64 each, without nulls."""
    lags: Index = log_ends - np.maximum(committed, np.maximum(log_ends, -1) - _MOST)
    return lags


def with_log_ends(rows: pa.Table, log_ends: Mapping[Partition, int], asked_at: int | None = None) -> pa.Table:
    """Add the columns `LAG` after the column committed_offset, from log ends that brokers answered.

    `log_ends` are the log end offsets of the partitions (topic, number) that could be read, as of `asked_at`
    (ms; None: no broker was asked). The lag time is null: brokers do not report when the log passed an
    offset.
    """
    if log_ends:
        end = pa.array([log_ends.get(partition) for partition in _partitions(rows)], pa.int64())
    else:
        end = pa.nulls(len(rows), pa.int64())  # `pa.array` would import pandas
    lags = lag(end, rows["committed_offset"])
    moments = np.full(len(rows), asked_at or 0, np.int64)
    columns = [
        pc.if_else(end.is_valid(), rows["committed_offset"], pa.scalar(None, pa.int64())),
        end,
        lags,
        pa.nulls(len(rows), pa.float64()),
        from_mask(np.zeros(len(rows), np.bool_), to_mask(lags.is_valid())),
        to_timestamps(from_numbers(moments, to_mask(end.is_valid()))),
    ]
    place = rows.column_names.index("committed_offset") + 1
    for field, column in zip(reversed(LAG), reversed(columns), strict=True):
        rows = rows.add_column(place, field, column)
    return rows


def with_stakes(rows: pa.Table, ranges: Mapping[Partition, LogRange]) -> pa.Table:
    """Append the columns `STAKES` to rows with topic, partition and committed_offset.

    `ranges` are the log ranges of the partitions that could be read.
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
    return list(zip(rows["topic"].to_pylist(), rows["partition"].to_pylist(), strict=True))
