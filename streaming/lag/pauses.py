"""How long records usually wait before a position is committed: of jobs that run now and then.

A pause is the time between two commits of a position, if records waited in it for longer than the window of
the rules of health: where nothing comes, nobody has to commit. Pauses are usual if there were three of them
in the seven days before, and if they took a quarter of that time. So a nightly job pauses as usual, and a
consumer that was down three times in a week does not.
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
"""The columns of positions that are asked about."""

HISTORY_MS: Final = 7 * DAY_MS
"""Pauses that are older are no habit."""

_LEAST: Final = 3
_SHARE: Final = 4  # of the time they take a quarter
_LONGER_BY: Final = 4  # by a quarter they may be longer than they were
_LONGEST_MS: Final = HISTORY_MS // 2 * (_LONGER_BY + 1) // _LONGER_BY
"""No pause is usual that is longer than this: the second and the third have to be in the history."""


class PauseReader(Protocol):
    """The tables at one moment: a snapshot of them."""

    def offset_times(self, positions: pa.Table, *, as_of: int) -> pa.Table:
        """Read between which samples the ends of logs passed n positions (n rows)."""

    def pauses(self, groups: Sequence[str] | None = None, *, since: int, longer_than_ms: int) -> pa.Table:
        """Read the pauses (schema `PAUSES`) of groups that ended since a moment (ms), and first commits."""

    def whole_since(self) -> int | None:
        """Return the moment (ms) before which commits are no longer known; None: none were dropped."""


@dataclass(frozen=True)
class Waits:
    """Since when (ms) records wait for n positions (`NONE`: not known), and for how long they may wait as is
    usual (ms; 0: nothing is)."""

    since: Index
    usual: Index

    @classmethod
    def unknown(cls, count: int) -> Self:
        """Return that nothing is known of so many."""
        return cls(np.full(count, NONE, np.int64), np.zeros(count, np.int64))

    def at(self, numbers: Index) -> Self:
        """Return those of some."""
        return type(self)(self.since[numbers], self.usual[numbers])


@dataclass
class Habits:
    """What is known of the waits of positions; those that were asked about last are remembered."""

    max_age_ms: int
    min_lag: int
    window_ms: int

    def __post_init__(self) -> None:
        self._asked = no_rows(ASKED)
        self._found = Waits.unknown(0)

    def of(self, at: PauseReader, positions: pa.Table, *, moment: int) -> Waits:
        """Return the waits of n positions (schema `ASKED`, the time of their last commit) at a moment (ms).

        The history is read for those that were not asked about the last time.
        """
        known, codes = Numbering.of(self._asked, KEY_NAMES)
        held = np.full(int(codes.max(initial=NONE)) + 2, NONE, np.int64)  # the last is that of `NONE`
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
        """Return the waits of n positions as `of` does, from the tables; a key may come more than once."""
        last_at = numbers_or(to_milliseconds(positions["commit_timestamp"]), 0)
        since = np.maximum(self._passed_at(at, positions, "committed_offset", moment), last_at)
        usual = np.zeros(len(positions), np.int64)
        asked = np.flatnonzero(moment - since <= _LONGEST_MS)
        if len(asked):
            usual[asked] = self._usual(at, take(positions, asked), last_at[asked], moment)
        return Waits(since, usual)

    def _usual(self, at: PauseReader, positions: pa.Table, last_at: Index, moment: int) -> Index:
        """Return how long records may wait for n positions (ms), each as of its last commit (ms)."""
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
        # over which time: from the first commit of the history on, or from its begin
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
        """Return for how long (ms) records waited in n pauses, at most as long as these took; 0 where that is
        not asked: of a first commit, and where there are too few."""
        waited = np.zeros(len(rows), np.int64)
        is_pause = began_at != NONE
        counts = np.bincount(own[is_pause], minlength=1)
        asked = np.flatnonzero(is_pause & (counts[np.minimum(own, len(counts) - 1)] >= _LEAST))
        if len(asked):
            passed_at = self._passed_at(at, take(rows, asked), "offset_before", moment)
            waited[asked] = ended_at[asked] - np.maximum(passed_at, began_at[asked])
        return waited

    def _passed_at(self, at: PauseReader, rows: pa.Table, offset: str, moment: int) -> Index:
        """Return when (ms) more than `min_lag` records were there behind n offsets, `NONE`: not known."""
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
    """Return what the end has to pass for more than `min_lag` records to wait behind n offsets."""
    least: Index = np.where(offsets < 2**62, offsets + min_lag, offsets)
    return least


def groups_of(positions: pa.Table) -> list[str] | None:
    """Return the groups of positions; None: they are so many that all are read, and chosen from."""
    some = positions["group"].slice(0, _ROWS_FIRST)  # of very many positions the first ones mostly tell
    if len(some) < len(positions) and len(some.unique()) > _MOST_NAMED:
        return None
    groups: list[str] = positions["group"].unique().to_pylist()
    return groups if len(groups) <= _MOST_NAMED else None


_MOST_NAMED: Final = 500
_ROWS_FIRST: Final = 100_000


def _usual_of(numbers: Index, waited: Index, gaps: Index, times: Index) -> Index:
    """Return the longest wait (ms) that is usual of n positions, 0 where none is. Pauses have the `numbers`
    of their positions; they took `gaps` of the `times` of these (ms)."""
    usual = np.zeros(len(times), np.int64)
    order = np.lexsort((-waited, numbers))
    numbers, waited, gaps = numbers[order], waited[order], gaps[order]
    starts = np.searchsorted(numbers, numbers)
    total = np.append(0, np.cumsum(gaps))
    took = total[1:] - total[starts]
    is_usual = (np.arange(len(numbers)) - starts >= _LEAST - 1) & (took * _SHARE >= times[numbers])
    places = np.flatnonzero(is_usual)[::-1]
    usual[numbers[places]] = waited[places]  # the longest is the first one, and stays
    return usual


def _longer(times: Index) -> Index:
    longer: Index = times * (_LONGER_BY + 1) // _LONGER_BY
    return longer


def _is_same(one: pa.Table, other: pa.Table) -> Mask:
    """Tell of n positions whether offset and time of their last commit are the same."""
    is_same = numbers_or(one["committed_offset"], NONE) == numbers_or(other["committed_offset"], NONE)
    times = [numbers_or(to_milliseconds(rows["commit_timestamp"]), NONE) for rows in (one, other)]
    same: Mask = is_same & (times[0] == times[1])
    return same
