"""Usual pauses: how long records usually wait before a position is committed, for jobs that run now and then.

A pause is the time between two commits of a position in which records waited for longer than the window of
the rules of health; without records a group need not commit. The pauses of a position are usual if at least
three of them ended in the seven days before its last commit, and together they took at least a quarter of
that time. So a nightly job has usual pauses, and a consumer that was down three times in a week has none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, Self

import numpy as np
import pyarrow as pa

from streaming.common.arrays import Index, Mask, from_numbers, no_rows, numbers_or, spread, to_mask
from streaming.common.keys import KEY_NAMES, Numbering
from streaming.common.pieces import take
from streaming.common.times import DAY_MS
from streaming.common.timestamps import to_milliseconds
from streaming.lag.samples import NONE, passed_between
from streaming.model.schemas import KEY, TIMESTAMP

ASKED: Final = pa.schema([*KEY, ("committed_offset", pa.int64()), ("commit_timestamp", TIMESTAMP)])
"""The columns of positions that `Habits` reads."""

HISTORY_MS: Final = 7 * DAY_MS
"""Older pauses do not count."""

_LEAST: Final = 3
_SHARE: Final = 4  # usual pauses take at least 1/4 of the time
_LONGER_BY: Final = 4  # a pause may be 1/4 longer than the usual ones
_LONGEST_MS: Final = HISTORY_MS // 2 * (_LONGER_BY + 1) // _LONGER_BY
"""No longer wait is usual: of three pauses that ended in the history, two lie within it."""


class PauseReader(Protocol):
    """The tables as of one moment."""

    def offset_times(self, positions: pa.Table, *, as_of: int) -> pa.Table:
        """Read the samples between which the log ends passed n positions (topic, partition,
        committed_offset): n rows with below_at, below_end, above_at and above_end."""

    def pauses(self, groups: Sequence[str] | None = None, *, since: int, longer_than_ms: int) -> pa.Table:
        """Read the pauses (schema `PAUSES`) of groups that ended since a moment (ms), and first commits."""

    def whole_since(self) -> int | None:
        """Return the moment (ms) before which commits may be missing; None: none were deleted."""


@dataclass(frozen=True)
class Waits:
    """For n positions: since when records wait (ms; `NONE`: not known), and how long they usually wait at
    most (ms; 0: the position has no usual pauses)."""

    since: Index
    usual: Index

    @classmethod
    def unknown(cls, count: int) -> Self:
        return cls(np.full(count, NONE, np.int64), np.zeros(count, np.int64))

    def at(self, numbers: Index) -> Self:
        return type(self)(self.since[numbers], self.usual[numbers])


@dataclass
class Habits:
    """Looks up the waits of positions. The answers of the last call are cached."""

    max_age_ms: int
    min_lag: int
    window_ms: int

    def __post_init__(self) -> None:
        self._asked = no_rows(ASKED)
        self._found = Waits.unknown(0)

    def of(self, at: PauseReader, positions: pa.Table, *, moment: int) -> Waits:
        """Return the waits of n positions (columns `ASKED`) at a moment (ms).

        The history is read only for positions that were not in the last call, or have committed since.
        """
        known, codes = Numbering.of(self._asked, KEY_NAMES)
        held = np.full(int(codes.max(initial=NONE)) + 2, NONE, np.int64)  # the last value is for `NONE`
        held[codes] = np.arange(len(self._asked))
        place = held[known.codes_of(positions)]
        is_held = (place != NONE) & _is_same(take(self._asked, place), positions)
        found = Waits.unknown(len(positions))
        found.since[is_held] = self._found.since[place[is_held]]
        found.usual[is_held] = self._found.usual[place[is_held]]
        new = np.flatnonzero(~is_held)
        if len(new):
            read = self.read(at, take(positions, new), moment=moment)
            found.since[new], found.usual[new] = read.since, read.usual
        self._asked, self._found = positions.select(ASKED.names), found
        return found

    def read(self, at: PauseReader, positions: pa.Table, *, moment: int) -> Waits:
        """Return the waits of n positions from the tables, without the cache. A key may have several rows."""
        last_at = numbers_or(to_milliseconds(positions["commit_timestamp"]), 0)
        since = np.maximum(self._passed_at(at, positions, "committed_offset", moment), last_at)
        usual = np.zeros(len(positions), np.int64)
        asked = np.flatnonzero(moment - since <= _LONGEST_MS)
        if len(asked):
            usual[asked] = self._usual(at, take(positions, asked), last_at[asked], moment)
        return Waits(since, usual)

    def _usual(self, at: PauseReader, positions: pa.Table, last_at: Index, moment: int) -> Index:
        """Return the longest usual wait (ms) of n positions, each as of its last commit (ms)."""
        first = max(int(last_at.min()) - HISTORY_MS, at.whole_since() or 0)
        rows = at.pauses(groups_of(positions), since=first, longer_than_ms=self.window_ms)
        keys, codes = Numbering.of(positions, KEY_NAMES)
        own = keys.codes_of(rows)
        ended_at = numbers_or(to_milliseconds(rows["committed_at"]), 0)
        order = np.lexsort((ended_at, own))
        order = order[own[order] != NONE]
        rows, own, ended_at = take(rows, order), own[order], ended_at[order]
        low, span = first - 1, moment - first + 3
        ranked = own * span + np.clip(ended_at - low, 1, span - 1)
        starts = np.searchsorted(ranked, codes * span + np.clip(last_at - HISTORY_MS - low, 1, span - 1))
        stops = np.searchsorted(ranked, codes * span + np.clip(last_at - low, 0, span - 1), side="right")
        number, pause = spread(starts, stops - starts)
        began_at = numbers_or(to_milliseconds(rows["before_at"]), NONE)
        waited = self._waited(at, rows, own, began_at, ended_at, moment)
        # the time compared with starts with the history, the first commit, or a pause that spans the start
        since = np.maximum(last_at - HISTORY_MS, first)
        is_first = began_at[pause] == NONE
        since[number[is_first]] = ended_at[pause[is_first]]
        np.minimum.at(since, number[~is_first], began_at[pause[~is_first]])
        is_pause = waited[pause] > self.window_ms
        number, pause = number[is_pause], pause[is_pause]
        gaps = ended_at[pause] - began_at[pause]
        return _longer(_usual_of(number, waited[pause], gaps, last_at - since))

    def _waited(
        self, at: PauseReader, rows: pa.Table, own: Index, began_at: Index, ended_at: Index, moment: int
    ) -> Index:
        """Return how long (ms) records waited in each of n pauses, at most the length of the pause; 0 for
        first commits and for positions with too few pauses, which are not looked up."""
        waited = np.zeros(len(rows), np.int64)
        is_pause = began_at != NONE
        counts = np.bincount(own[is_pause], minlength=1)
        asked = np.flatnonzero(is_pause & (counts[np.minimum(own, len(counts) - 1)] >= _LEAST))
        if len(asked):
            passed_at = self._passed_at(at, take(rows, asked), "offset_before", moment)
            waited[asked] = ended_at[asked] - np.maximum(passed_at, began_at[asked])
        return waited

    def _passed_at(self, at: PauseReader, rows: pa.Table, offset: str, moment: int) -> Index:
        """Return when (ms) more than `min_lag` records after each of n offsets were in the log; `NONE`:
        not known."""
        offsets = numbers_or(rows[offset], 0)
        least = behind(offsets, self.min_lag)
        asked = rows.select(["topic", "partition"]).append_column(
            "committed_offset", from_numbers(least, to_mask(rows[offset].is_valid()))
        )
        crossed = at.offset_times(asked, as_of=moment)
        below, above = (numbers_or(to_milliseconds(crossed[name]), NONE) for name in ("below_at", "above_at"))
        ends = (numbers_or(crossed[name], 0) for name in ("below_end", "above_end"))
        passed = passed_between(below, next(ends), above, next(ends), least, self.max_age_ms)
        return np.where((below == NONE) | (above == NONE), NONE, passed)


def behind(offsets: Index, min_lag: int) -> Index:
    """Return the offsets that the log end must exceed for more than `min_lag` records to wait after n
    offsets."""
    least: Index = np.where(offsets < 2**62, offsets + min_lag, offsets)
    return least


def groups_of(positions: pa.Table) -> list[str] | None:
    """Return the distinct groups of positions; None for more than `_MOST_NAMED`: then the commits of all
    groups are read."""
    some = positions["group"].slice(0, _ROWS_FIRST)  # usually decides without all rows
    if len(some) < len(positions) and len(some.unique()) > _MOST_NAMED:
        return None
    groups: list[str] = positions["group"].unique().to_pylist()
    return groups if len(groups) <= _MOST_NAMED else None


_MOST_NAMED: Final = 500
_ROWS_FIRST: Final = 100_000


def _usual_of(numbers: Index, waited: Index, gaps: Index, times: Index) -> Index:
    """Return the longest usual wait (ms) of n positions, 0 without usual pauses. `numbers` are the
    positions of the pauses, `waited` and `gaps` (ms) how long records waited and how long the pauses took,
    `times` (n, ms) the times that pauses are compared with."""
    usual = np.zeros(len(times), np.int64)
    order = np.lexsort((-waited, numbers))
    numbers, waited, gaps = numbers[order], waited[order], gaps[order]
    starts = np.searchsorted(numbers, numbers)
    total = np.append(0, np.cumsum(gaps))
    took = total[1:] - total[starts]
    is_usual = (np.arange(len(numbers)) - starts >= _LEAST - 1) & (took * _SHARE >= times[numbers])
    places = np.flatnonzero(is_usual)[::-1]
    usual[numbers[places]] = waited[places]  # reversed: the first, which is the longest, is written last
    return usual


def _longer(times: Index) -> Index:
    longer: Index = times * (_LONGER_BY + 1) // _LONGER_BY
    return longer


def _is_same(one: pa.Table, other: pa.Table) -> Mask:
    """Return whether offset and time of the last commit of n positions are equal in both tables."""
    is_same = numbers_or(one["committed_offset"], NONE) == numbers_or(other["committed_offset"], NONE)
    times = [numbers_or(to_milliseconds(rows["commit_timestamp"]), NONE) for rows in (one, other)]
    same: Mask = is_same & (times[0] == times[1])
    return same
