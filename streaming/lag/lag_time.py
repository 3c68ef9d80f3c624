"""Lag in records and in seconds: committed offsets against samples of the log ends of their partitions.

The lag time of a position is the time from the moment at which the end of the log passed it to the newest
sample. That moment lies between two samples, and is taken to be where the straight line between them reaches
the offset after the committed one: the record at the committed offset was there then. Nothing is
extrapolated: where the first sample was beyond the position already, it is "at least" the time since then.
So it is where nothing was sampled for longer than samples count: the record may have come at any time of
that gap.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import Index, Mask, from_mask, from_numbers, numbers_or, to_mask
from streaming.common.timestamps import to_milliseconds, to_timestamps
from streaming.lag.log_ends import LAG, lag
from streaming.lag.samples import NONE, Samples

_LAST: Final = 2**63 - 1
_ZERO: Final = from_numbers(np.zeros(1, np.int64))[0]


def with_lag(rows: pa.Table, newest: pa.Table, crossed: pa.Table, *, max_age_ms: int, as_of: int) -> pa.Table:
    """Add the columns `LAG` behind `committed_offset` of n rows, as they were `as_of` a moment (ms).

    `rows` have topic, partition and committed_offset (null: none). `newest` is the newest sample of each
    topic partition (topic, topic_id, partition, sampled_at, log_end), `crossed` has n rows in the same order:
    below_at, below_end, above_at, above_end, the samples between which the end passed the position. Samples
    older than `max_age_ms` say nothing. The lag of positions beyond the end of their sample is negative: see
    `at_least_at_end`.
    """
    samples = Samples.of(newest)
    moments = np.full(len(rows), as_of, np.int64)
    return _with_lag(rows, samples, moments, crossed, max_age_ms)


def with_lag_along(
    rows: pa.Table, samples: pa.Table, crossed: pa.Table, *, at: str, written_at: Index, max_age_ms: int
) -> pa.Table:
    """Add the columns `LAG` as `with_lag` does, to each row as of its own moment, in the column `at`.

    `samples` are those of the whole time (in any order), `crossed` is as of its end. `written_at` are for
    `at_least_at_end`.
    """
    moments = numbers_or(to_milliseconds(rows[at]), -_LAST)
    return at_least_at_end(_with_lag(rows, Samples.of(samples), moments, crossed, max_age_ms), written_at)


def at_least_at_end(rows: pa.Table, written_at: Index) -> pa.Table:
    """Show positions (n rows with `LAG`) that are beyond the end of their sample, but were written after it
    (n ms), as being at the end: it was there by then, and is behind by no more than what came since, as any
    position is.

    What was written to `changes` before the sample was taken is beyond the end indeed. Both times are of the
    job's clock, so that those of the brokers do not matter.
    """
    is_beyond = to_mask(pc.less(rows["lag"], _ZERO))
    is_later = is_beyond & (written_at > numbers_or(to_milliseconds(rows["ends_as_of"]), _LAST))
    if not is_later.any():
        return rows
    chosen, committed = from_mask(is_later), rows["committed_offset"]
    shown = {
        "log_end_offset": pc.if_else(chosen, committed, rows["log_end_offset"]),
        "lag": pc.if_else(chosen, _ZERO, rows["lag"]),
    }
    for name, column in shown.items():
        rows = rows.set_column(rows.column_names.index(name), LAG.field(name), column)
    return rows


def _with_lag(
    rows: pa.Table, samples: Samples, moments: Index, crossed: pa.Table, max_age_ms: int
) -> pa.Table:
    newest = samples.newest_until(samples.places.codes_of(rows), moments)
    is_sampled = newest != NONE
    sampled_at, sampled_end = _chosen(samples.at, newest), _chosen(samples.ends, newest)
    committed, is_committed = numbers_or(rows["committed_offset"], 0), _is_valid(rows["committed_offset"])

    is_known = is_sampled & (moments - sampled_at <= max_age_ms)
    end = from_numbers(sampled_end, is_known)
    seconds, is_timed, is_older = _lag_seconds(committed, sampled_at, sampled_end, crossed, max_age_ms)
    has_lag = is_known & is_committed
    columns = [
        end,
        lag(end, rows["committed_offset"]),
        from_numbers(seconds, has_lag & is_timed),
        from_mask(is_older, has_lag),
        to_timestamps(from_numbers(sampled_at, is_sampled)),
    ]
    place = rows.column_names.index("committed_offset") + 1
    for field, column in zip(reversed(LAG), reversed(columns), strict=True):
        rows = rows.add_column(place, field, column)
    return rows


def _lag_seconds(
    committed: Index, sampled_at: Index, sampled_end: Index, crossed: pa.Table, max_gap_ms: int
) -> tuple[npt.NDArray[np.float64], Mask, Mask]:
    """Return the lag time of n positions in seconds, whether it is known, and whether it may be longer: the
    position is older than the samples, or the end passed it while none came for longer than `max_gap_ms`.

    The end passed a position at `above_at`, or before: by as much as it was beyond the next offset then.
    """
    is_passed = _is_valid(crossed["above_at"])
    above_at, above_end = (numbers_or(column, 0) for column in _pair(crossed, "above"))
    below_at, below_end = (numbers_or(column, 0) for column in _pair(crossed, "below"))
    is_between = is_passed & _is_valid(crossed["below_at"]) & (above_at - below_at <= max_gap_ms)
    is_behind = committed < sampled_end
    is_timed = ~is_behind | (is_passed & (above_at <= sampled_at))  # else it is of another log of that name
    rise = np.where(is_between, above_end - below_end, 1)
    beyond = np.where(is_between, above_end - committed - 1, 0)
    before_above = np.where(is_between, above_at - below_at, 0) * (beyond / rise)
    seconds = np.where(is_behind & is_timed, sampled_at - above_at + before_above, 0.0) / 1_000
    return seconds, is_timed, is_behind & is_timed & ~is_between


def _pair(crossed: pa.Table, side: str) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    return to_milliseconds(crossed[f"{side}_at"]), crossed[f"{side}_end"]


def _chosen(values: Index, numbers: Index) -> Index:
    """Return values by their numbers; 0 for `NONE`."""
    return np.append(values, 0)[numbers]


def _is_valid(column: pa.ChunkedArray) -> Mask:
    return to_mask(column.is_valid())
