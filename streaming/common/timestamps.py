"""Times in Arrow: columns of timestamps (microseconds, UTC), and their milliseconds."""

from typing import Final

import numpy as np
import pyarrow as pa

from streaming.common.arrays import from_numbers
from streaming.model.schemas import TIMESTAMP

_MILLISECONDS: Final = pa.timestamp("ms", tz="UTC")


def to_timestamps(milliseconds: pa.Array) -> pa.Array:
    """Convert n int64 milliseconds since 1970 to n timestamps; null stays null.

    >>> to_timestamps(pa.array([1_500])).cast(pa.string()).to_pylist()
    ['1970-01-01 00:00:01.500000Z']
    """
    return milliseconds.cast(_MILLISECONDS).cast(TIMESTAMP)


def to_milliseconds(timestamps: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert n timestamps of any unit, or int64 ms, to n int64 ms since 1970; null stays null."""
    return timestamps.cast(_MILLISECONDS, safe=False).cast(pa.int64())


def timestamp(milliseconds: int) -> pa.Scalar:
    """Return milliseconds since 1970 as one timestamp, for comparisons with a column."""
    held = from_numbers(np.array([milliseconds], np.int64))  # `pa.scalar` would import pandas
    return held.cast(_MILLISECONDS).cast(TIMESTAMP)[0]
