"""Lag in records and in seconds: committed offsets compared with samples of the log ends of their partitions.

A log end is compared with the offset that was committed when the end was sampled. Compared with a newer
commit the lag would be too small, and 0 for groups that are less behind than the time between two samples.

The lag time of a position is the time from the moment at which the end of the log passed it to the newest
sample. That moment lies between two samples: it is taken to be where the straight line between them reaches
the offset after the committed one, because the record at the committed offset existed by then. Nothing is
extrapolated. The lag time is a lower bound ("at least") where the first sample was already beyond the
position, and where the two samples are further apart than the largest age at which samples count: the record
may have arrived at any time of that gap.
"""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streaming.common.arrays import Index, Mask, from_mask, from_numbers, numbers_or, to_mask, to_numbers
from streaming.common.keys import KEY_NAMES, Numbering
from streaming.common.pieces import take
from streaming.common.timestamps import to_milliseconds, to_timestamps
from streaming.lag.log_ranges import LAG, TIMED, lag
from streaming.lag.samples import NONE, Samples, id_numbers, may_be_same_id

EACH: Final = slice(None)
"""In place of numbers of rows: each row once."""


@dataclass(frozen=True)
class Ends:
    """Log ends of n rows. `at` is the moment of each end (ms; `NONE`: there is none): the time of the
    newest sample up to a moment (`of`), or the moment itself (`around`). `until` is the time of the newest
    sample used (ms). `is_known` is false where samples are too old or of another topic of that name.
    `topic_ids` are the topic ids in the samples (`id_numbers`)."""

    at: Index
    until: Index
    ends: Index
    is_known: Mask
    topic_ids: Index
    max_age_ms: int

    @classmethod
    def of(
        cls,
        rows: pa.Table,
        samples: pa.Table,
        moments: Index,
        *,
        max_age_ms: int,
        numbers: Index | slice = EACH,
        topic_ids: Index | None = None,
    ) -> Self:
        """Find the newest sample of each of n rows (topic, partition) up to its moment (ms); with `numbers`
        (n) there is a moment for each of n row numbers instead.

        `samples` (topic, topic_id, partition, sampled_at, log_end) come in any order. `topic_ids` are the
        topic ids of the rows (n `id_numbers`; None: of their column topic_id, if there is one). Samples with
        another id do not count.
        """
        held = Samples.of(samples)
        newest = held.newest_until(held.places.codes_of(rows)[numbers], moments)
        at = np.append(held.at, NONE)[newest]
        is_known = (newest != NONE) & (moments - at <= max_age_ms)
        if topic_ids is None and "topic_id" in rows.schema.names:
            topic_ids = id_numbers(rows["topic_id"])[numbers]
        sampled_ids = held.ids_of(newest)
        if topic_ids is not None:
            is_known &= may_be_same_id(sampled_ids, topic_ids)
        return cls(at, at, np.append(held.ends, 0)[newest], is_known, sampled_ids, max_age_ms)

    @classmethod
    def unknown(cls, count: int) -> Self:
        """Return ends of n rows of which none is known."""
        never = np.full(count, NONE, np.int64)
        return cls(never, never, never, np.zeros(count, np.bool_), never, 0)

    @classmethod
    def around(cls, rows: pa.Table, samples: pa.Table, moments: Index, *, max_age_ms: int) -> Self:
        """Find the log ends of n rows (topic, partition, committed_offset) at their moments (ms), on the
        straight line between the samples around each. A position above this line but not above the next
        sample counts as at the end, not beyond it."""
        held = Samples.of(samples)
        places = held.places.codes_of(rows)
        before, after = held.newest_until(places, moments), held.first_since(places, moments)
        ends, is_known = held.ends_between(before, after, moments, max_age_ms)
        committed = numbers_or(rows["committed_offset"], 0)
        ends = np.maximum(ends, np.minimum(committed, np.append(held.ends, 0)[after]))
        until = np.append(held.at, NONE)[after]
        at = np.where(is_known, moments, NONE)
        return cls(at, until, ends, is_known, held.ids_of(before), max_age_ms)


class OffsetsOverTime:
    """The committed offsets of n keys (`KEY`) at earlier moments.

    `changes` (`KEY`, offset_before, topic_id_before, written_at, sequence) are those written since these
    moments, in any order; older ones do no harm. The offset as of a moment is the offset_before of the first
    change written after it. Times of writing and of samples are read from the clock of the job, so the clocks
    of brokers do not matter. A commit made before a sample but written after it counts as made after it, so
    that an end is never compared with a newer commit.
    """

    def __init__(self, keys: pa.Table, changes: pa.Table) -> None:
        self._codes, of_change = _common_codes(keys, changes)
        own = np.flatnonzero(of_change != NONE)
        order = own[np.lexsort((to_numbers(changes["sequence"])[own], of_change[own]))]
        written_at = to_numbers(to_milliseconds(changes["written_at"]))[order]
        first, last = (int(written_at.min()), int(written_at.max())) if len(order) else (0, 0)
        self._low, self._span = first - 1, last - first + 3
        self._of_change = np.append(of_change[order], NONE)
        # the clock may have been set back: a change counts as written no earlier than those before it
        self._ranked = np.maximum.accumulate(self._of_change[:-1] * self._span + (written_at - self._low))
        before = changes["offset_before"]
        self._before = numbers_or(before, 0)[order], to_mask(before.is_valid())[order]
        self._ids_before = id_numbers(changes["topic_id_before"])[order]

    def at(
        self, numbers: Index | slice, moments: Index, offsets: Index, is_there: Mask, topic_ids: Index
    ) -> tuple[Index, Mask]:
        """Return the offsets of m keys, by number, each at a moment (ms), and whether there was one of the
        topic sampled then (`topic_ids`, m `id_numbers`); the same of a later moment, up to which the changes
        are known, are `offsets` and `is_there` (m)."""
        codes = self._codes[numbers]
        asked = codes * self._span + np.clip(moments - self._low, 0, self._span - 1)
        place = np.searchsorted(self._ranked, asked, side="right")
        moved = np.flatnonzero((codes != NONE) & (self._of_change[place] == codes))
        offsets, is_there = offsets.copy(), is_there.copy()
        offsets[moved], is_there[moved] = (values[place[moved]] for values in self._before)
        is_there[moved] &= may_be_same_id(self._ids_before[place[moved]], topic_ids[moved])
        return offsets, is_there


def _common_codes(rows: pa.Table, changes: pa.Table) -> tuple[Index, Index]:
    """Number the keys of n rows and m changes alike; `NONE`: the key is not on the other side.

    Only the keys of the shorter side are hashed together.
    """
    if len(rows) < len(changes):
        keys, of_row = Numbering.of(rows, KEY_NAMES)
        return of_row, keys.codes_of(changes)
    keys, of_change = Numbering.of(changes, KEY_NAMES)
    return keys.codes_of(rows), of_change


def as_of_ends(rows: pa.Table, ends: Ends, changes: pa.Table) -> pa.Table:
    """Return topic, partition and committed_offset of n rows (`KEY` and committed_offset) as of the moments
    of their log ends; committed_offset is null where there was none, or one of another topic of that name.
    `changes` as in `OffsetsOverTime`."""
    committed = rows["committed_offset"]
    if len(changes) and len(rows):
        newest = numbers_or(committed, 0), to_mask(committed.is_valid())
        over_time = OffsetsOverTime(rows, changes)
        committed = from_numbers(*over_time.at(EACH, ends.at, *newest, ends.topic_ids))
    return pa.table([rows["topic"], rows["partition"], committed], ["topic", "partition", "committed_offset"])


def positions_behind(held: pa.Table, ends: Ends) -> pa.Table:
    """Return n positions (topic, partition, committed_offset) with null offsets where they have no lag time:
    not behind their log end, or not known."""
    offsets = held["committed_offset"]
    committed = numbers_or(offsets, 0)
    is_behind = to_mask(offsets.is_valid()) & ends.is_known & (committed < ends.ends)
    place = held.column_names.index("committed_offset")
    return held.set_column(place, "committed_offset", from_numbers(committed, is_behind))


def with_lag(rows: pa.Table, ends: Ends, held: pa.Table, crossed: pa.Table | None) -> pa.Table:
    """Add the columns `LAG` after the column committed_offset of n rows.

    `held` are the positions from `as_of_ends`. `crossed` has n rows in the same order: below_at, below_end,
    above_at, above_end, the samples between which the log end passed these positions (None: leave the lag
    time null). The lag is negative where a position is beyond the end of its sample.
    """
    offsets = held["committed_offset"]
    end = from_numbers(ends.ends, ends.is_known)
    committed, is_committed = numbers_or(offsets, 0), to_mask(offsets.is_valid())
    has_lag = ends.is_known & is_committed
    times: list[pa.Array] = [pa.nulls(len(rows), LAG.field(name).type) for name in TIMED]
    if crossed is not None:
        seconds, is_timed, is_older = _lag_seconds(committed, ends, crossed)
        times = [from_numbers(seconds, has_lag & is_timed), from_mask(is_older, has_lag)]
    columns = [
        from_numbers(committed, has_lag),
        end,
        lag(end, offsets),
        *times,
        to_timestamps(from_numbers(ends.at, ends.at != NONE)),
    ]
    place = rows.column_names.index("committed_offset") + 1
    for field, column in zip(reversed(LAG), reversed(columns), strict=True):
        rows = rows.add_column(place, field, column)
    return rows


def _lag_seconds(
    committed: Index, ends: Ends, crossed: pa.Table
) -> tuple[npt.NDArray[np.float64], Mask, Mask]:
    """Return, for n positions, the lag time in seconds, whether it is known, and whether it is a lower
    bound."""
    behind = np.flatnonzero(committed < ends.ends)
    crossed, committed, now = take(crossed, behind), committed[behind], ends.at[behind]
    is_passed = _is_valid(crossed["above_at"])
    above_at, above_end = (numbers_or(column, 0) for column in _pair(crossed, "above"))
    below_at, below_end = (numbers_or(column, 0) for column in _pair(crossed, "below"))
    is_between = is_passed & _is_valid(crossed["below_at"]) & (above_at - below_at <= ends.max_age_ms)
    # a log that passed the position later than the newest sample is of another topic of that name
    is_timed = is_passed & (above_at <= ends.until[behind])
    rise = np.where(is_between, above_end - below_end, 1)
    beyond = np.where(is_between, above_end - committed - 1, 0)
    before_above = np.where(is_between, above_at - below_at, 0) * (beyond / rise)
    # an end between two samples may lie a little below the line on which the offset was passed
    seconds = np.where(is_timed, np.maximum(now - above_at + before_above, 0.0), 0.0) / 1_000
    columns = np.zeros(len(ends.ends)), np.ones(len(ends.ends), np.bool_), np.zeros(len(ends.ends), np.bool_)
    for column, values in zip(columns, (seconds, is_timed, is_timed & ~is_between), strict=True):
        column[behind] = values
    return columns


def _pair(crossed: pa.Table, side: str) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    return to_milliseconds(crossed[f"{side}_at"]), crossed[f"{side}_end"]


def _is_valid(column: pa.ChunkedArray) -> Mask:
    return to_mask(column.is_valid())
