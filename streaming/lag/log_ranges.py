"""Lag, and what a reset would cost: committed offsets against where the logs of partitions start and end."""

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
        ("offset_as_of_ends", pa.int64()),  # null: not known, or there was none when the end was sampled
        ("log_end_offset", pa.int64()),  # null: not known, or too long ago
        ("lag", pa.int64()),  # null: not known; negative: the position is beyond the end of the log
        ("lag_seconds", pa.float64()),  # null: not known
        ("lag_is_at_least", pa.bool_()),  # the true lag may be larger; null: lag and time are not known
        ("ends_as_of", TIMESTAMP),  # of the newest sample, however old; null: there is none
    ]
)
"""What is known of the lag of a committed offset: `log_end_offset` - `offset_as_of_ends`, both of one moment,
`ends_as_of`. The offset may have been committed anew since; what was first committed since has no lag yet."""

TIMED: Final = ("lag_seconds", "lag_is_at_least")
"""Those of the lag time, for which older samples are needed."""

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
_MOST: Final = 2**63 - 1


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


def lag(log_end: pa.Array, committed: pa.ChunkedArray) -> pa.Array:
    """Return log end offset - committed offset of n rows (int64), null where either is.

    As `kafka-consumer-groups` counts it (Kafka 4.3: `ConsumerGroupCommand.getLag`): with unread records that
    retention has deleted, and negative where a group has committed beyond the end of the log. Behind offsets
    so negative that it is no int64 it is the largest one.
    """
    is_known = to_mask(pc.and_(pc.is_valid(log_end), pc.is_valid(committed)))
    return from_numbers(lag_of(numbers_or(log_end, 0), numbers_or(committed, 0)), is_known)


def lag_of(log_ends: Index, committed: Index) -> Index:
    """Return the same of n int64 each, without nulls."""
    lags: Index = log_ends - np.maximum(committed, np.maximum(log_ends, -1) - _MOST)
    return lags


def with_log_ends(rows: pa.Table, log_ends: Mapping[Partition, int], asked_at: int | None = None) -> pa.Table:
    """Add the columns `LAG` behind `committed_offset`, of log ends that brokers were asked for.

    `log_ends` are the log end offsets of the partitions (topic, number) that could be read, as of `asked_at`
    (ms; None: nobody was asked). Of such an end no lag time is known: brokers do not say when it was passed.
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
