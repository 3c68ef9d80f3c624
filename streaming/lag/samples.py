"""Samples of log ends: the newest one at a moment, and the first one since.

A sample says where the log of a topic partition ended (`log_end`) when the brokers were asked (`sampled_at`).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import Index, Mask, from_numbers, from_texts, numbers_or, to_mask, to_numbers
from streaming.common.keys import numbered
from streaming.common.timestamps import to_milliseconds

NONE: Final = -1
"""The row number of a sample that is not there, and the code of what is not known."""

_NEVER: Final = 2**63 - 1
_GONE: Final = -2  # instead of the number of a topic id


@dataclass(frozen=True)
class Places:
    """The topic partitions of a table, numbered from 0 in the order of coming."""

    topics: pa.Array
    keys: pa.Array

    @classmethod
    def of(cls, rows: pa.Table) -> tuple[Self, Index]:
        """Number the places of n rows (topic, partition; none null); return them and n codes."""
        codes, topics = numbered(rows["topic"])
        own, keys = numbered(from_numbers(_joined(codes, rows["partition"])))
        return cls(topics, keys), own

    def codes_of(self, rows: pa.Table) -> Index:
        """Return the codes of the topic partitions of n other rows, `NONE` where there is no such place."""
        topics = numbers_or(_index_in(rows["topic"], self.topics), NONE)
        return numbers_or(_index_in(from_numbers(_joined(topics, rows["partition"])), self.keys), NONE)


@dataclass(frozen=True)
class Samples:
    """Samples of log ends (n int64 each), sorted by place and time.

    `at` is when (ms), `ends` where the log ended, `ids` the number of the topic id (`NONE`: not known).
    """

    places: Places
    codes: Index
    at: Index
    ends: Index
    ids: Index
    id_names: pa.Array
    """The topic ids by their numbers."""
    _over_at: Index
    """From when on (ms) it says nothing of its partition: the topic was gone then, or another one."""
    _order: Index
    """Numbers in the order of the samples: those of a place lie in a range of their own."""

    @classmethod
    def of(cls, rows: pa.Table) -> Self:
        """Take them from rows with topic, topic_id, partition, sampled_at and log_end, in any order.

        Rows without a partition or a log end say nothing of ends, and are left out; those without a partition
        say which id the topic had, or with none that it was gone.
        """
        is_end = pc.and_(pc.is_valid(rows["log_end"]), pc.is_valid(rows["partition"]))
        over_at = _over_at(rows)[to_mask(is_end)]
        rows = rows.filter(is_end)
        places, codes = Places.of(rows)
        at = to_numbers(to_milliseconds(rows["sampled_at"]))
        order = np.lexsort((at, codes))
        codes, at, ends = codes[order], at[order], to_numbers(rows["log_end"])[order]
        ids, id_names = _id_codes(rows["topic_id"])
        return cls(places, codes, at, ends, ids[order], id_names, over_at[order], _ranked(codes, at, at))

    def newest_until(self, codes: Index, moments: Index) -> Index:
        """Return for n places and moments (ms) the number of the newest sample up to each, or `NONE`: also
        where the topic was gone by then, or recreated without this partition."""
        found = np.searchsorted(self._order, _ranked(codes, moments, self.at), side="right") - 1
        newest = self._if_of(codes, moments, found)
        newest[moments >= np.append(self._over_at, _NEVER)[newest]] = NONE
        return newest

    def first_since(self, codes: Index, moments: Index) -> Index:
        """Return for n places and moments (ms) the number of the first sample since each, or `NONE`."""
        found = np.searchsorted(self._order, _ranked(codes, moments, self.at), side="left")
        return self._if_of(codes, moments, found, is_since=True)

    def ends_between(
        self, before: Index, after: Index, moments: Index, max_age_ms: int
    ) -> tuple[Index, Mask]:
        """Return where logs ended at n moments (ms), on the straight lines between samples before and after
        each (numbers, or `NONE`); and which of these are known: both are of one log, and near enough.

        They are rounded up, so that who is behind by little does not seem to be caught up.
        """
        at, ends = np.append(self.at, 0), np.append(self.ends, 0)
        is_known = self.is_same_log(before, after) & (ends[after] >= ends[before])
        is_known &= (moments - at[before] <= max_age_ms) & (at[after] - moments <= max_age_ms)
        rise = np.where(is_known, ends[after] - ends[before], 0)
        span = np.where(is_known, np.maximum(at[after] - at[before], 1), 1)
        elapsed = np.where(is_known, moments - at[before], 0)
        # no product is larger than the rise, or than the squares of times
        risen = rise // span * elapsed - (-(rise % span) * elapsed) // span
        return ends[before] + risen, is_known

    def passed_at(self, codes: Index, moments: Index, offsets: Index, max_age_ms: int) -> Index:
        """Return for n places and moments (ms) when the log was first seen to end above an offset, as was
        sampled up to then (ms); `NONE`: it was not, or by the first of its samples already.

        See `passed_between`.
        """
        newest = self.newest_until(codes, moments)
        if not len(self.at):
            return np.full(len(codes), NONE, np.int64)
        logs, (ends, ranked) = self._logs, self._ends_ranked
        asked = logs[newest] * (len(ends) + 1) + np.searchsorted(ends, offsets, side="right")
        above = np.searchsorted(ranked, asked)
        is_seen = (newest != NONE) & (above <= newest) & (above > 0)
        above = np.where(is_seen, above, 0)
        is_seen &= logs[above - 1] == logs[above]
        below_at, above_at = self.at[above - 1], self.at[above]
        below_end, above_end = self.ends[above - 1], self.ends[above]
        passed = passed_between(below_at, below_end, above_at, above_end, offsets, max_age_ms)
        return np.where(is_seen, passed, NONE)

    @cached_property
    def _logs(self) -> Index:
        """The number of the log of each sample (they rise). A log begins with another topic id, and where the
        end fell."""
        is_other = (self.codes[1:] != self.codes[:-1]) | (self.ends[1:] < self.ends[:-1])
        known = np.maximum.accumulate(np.where(self.ids == NONE, -1, np.arange(len(self.ids))))
        ids = np.where(known == -1, NONE, self.ids[known])
        is_other |= (self.ids[1:] != NONE) & (ids[:-1] != NONE) & (self.ids[1:] != ids[:-1])
        return np.append(0, np.cumsum(is_other))

    @cached_property
    def _ends_ranked(self) -> tuple[Index, Index]:
        """The different ends, and numbers of the samples that are ordered by log and then by end."""
        ends, ranks = np.unique(self.ends, return_inverse=True)
        return ends, self._logs * (len(ends) + 1) + ranks

    def is_throughout(self, codes: Index, since: int, until: int, max_age_ms: int) -> Mask:
        """Tell of n places whether each was sampled all along from a moment to another (ms): at any time the
        newest sample was no older than `max_age_ms`."""
        starts = np.searchsorted(self.codes, np.arange(len(self.places.keys)))
        lasts = np.append(starts[1:], len(self.at))[: len(starts)] - 1
        own = self.codes[1:] == self.codes[:-1]
        has_gap = np.zeros(len(starts), np.bool_)
        has_gap[self.codes[1:][own & (np.diff(self.at) > max_age_ms)]] = True
        is_whole = ~has_gap & (self.at[starts] <= since) & (self.at[lasts] >= until - max_age_ms)
        is_whole &= self.at[starts] >= since - max_age_ms
        return np.append(is_whole, np.False_)[codes]  # that of `NONE` is the last

    def is_same_log(self, one: Index, other: Index) -> Mask:
        """Tell of n pairs of samples of a place (numbers, or `NONE`) whether both are there, and not known to
        be of two topics of one name."""
        ids = np.append(self.ids, NONE)
        first, second = ids[one], ids[other]
        same: Mask = (first == second) | (first == NONE) | (second == NONE)
        both: Mask = same & (one != NONE) & (other != NONE)
        return both

    def are_of_two_logs(self, one: Index, other: Index) -> Mask:
        """Tell of n pairs of samples of a place (numbers, or `NONE`) whether both are there, and known to be
        of two topics of one name."""
        are_two: Mask = (one != NONE) & (other != NONE) & ~self.is_same_log(one, other)
        return are_two

    def may_have_id(self, numbers: Index, ids: pa.ChunkedArray) -> Mask:
        """Tell of n samples (numbers, or `NONE`) whether each is not known to be of a topic with another id
        than n ids (null: not known)."""
        own = np.append(self.ids, NONE)[numbers]
        others = numbers_or(_index_in(ids, self.id_names), _GONE)
        may: Mask = (own == NONE) | (own == others) | to_mask(ids.is_null())
        return may

    def _if_of(self, codes: Index, moments: Index, found: Index, *, is_since: bool = False) -> Index:
        """Return the numbers that are there, of samples of their place and on their side of the moment."""
        if not len(self.at):
            return np.full(len(codes), NONE, np.int64)
        within = np.clip(found, 0, len(self.at) - 1)
        at = self.at[within]
        is_there = (within == found) & (self.codes[within] == codes)
        is_there &= (at >= moments) if is_since else (at <= moments)
        numbers: Index = np.where(is_there, found, NONE)
        return numbers


def passed_between(
    below_at: Index, below_end: Index, above_at: Index, above_end: Index, offsets: Index, max_age_ms: int
) -> Index:
    """Return when (ms) logs passed n offsets, between a sample that was not above each and the next one:
    where the line between them is above it. Where none came for longer than `max_age_ms`, that may have been
    at any time of the gap: it counts from its begin."""
    rise = np.maximum(above_end - below_end, 1)
    before_above = (above_at - below_at) * ((above_end - offsets - 1) / rise)
    passed = above_at - np.clip(before_above, 0, above_at - below_at).astype(np.int64)
    return np.where(above_at - below_at <= max_age_ms, passed, below_at)


def _joined(codes: Index, partitions: pa.ChunkedArray) -> Index:
    keys: Index = codes << 32 | to_numbers(partitions.cast(pa.int64())) & 0xFFFF_FFFF
    return keys


def _index_in(column: pa.ChunkedArray | pa.Array, values: pa.Array) -> pa.ChunkedArray | pa.Array:
    return pc.index_in(column, value_set=values)


def _id_codes(ids: pa.ChunkedArray) -> tuple[Index, pa.Array]:
    """Number topic ids, `NONE` where there is none; return also the ids by their numbers."""
    codes, names = numbered(pc.if_else(ids.is_valid(), ids, from_texts([""])[0]))
    own: Index = np.where(to_mask(pc.is_valid(ids)), codes, NONE)
    return own, names


def _over_at(rows: pa.Table) -> Index:
    """Return for n rows when (ms) their topic was first seen gone after them, or with another id (`_NEVER`:
    it was not). An id that is not known is like any."""
    codes, names = numbered(rows["topic"])
    (ids, _), at = _id_codes(rows["topic_id"]), to_numbers(to_milliseconds(rows["sampled_at"]))
    told = np.where((ids == NONE) & to_mask(pc.is_null(rows["partition"])), _GONE, ids)
    over_at = np.full(len(rows), _NEVER, np.int64)
    last = np.full(len(names), NONE, np.int64)
    tells = np.flatnonzero(told != NONE)
    last[codes[tells]] = told[tells]
    if (last[codes[tells]] == told[tells]).all() and _GONE not in last:
        return over_at
    events = tells[np.lexsort((at[tells], codes[tells]))]
    of_topic, event_at = codes[events], at[events]
    is_first = np.append(True, (np.diff(of_topic) != 0) | (np.diff(told[events]) != 0))
    stretches = np.cumsum(is_first) - 1
    first = np.flatnonzero(is_first)
    is_followed = np.append(of_topic[first[1:]] == of_topic[first[:-1]], np.False_)
    next_at = np.where(is_followed, np.append(event_at[first[1:]], 0), _NEVER)
    over_at[events] = next_at[stretches]
    gone = events[told[events] == _GONE]
    unknown = np.flatnonzero(told == NONE)
    place = np.searchsorted(
        _ranked(codes[gone], at[gone], at), _ranked(codes[unknown], at[unknown], at), "right"
    )
    is_gone = np.append(codes[gone], NONE)[place] == codes[unknown]
    over_at[unknown] = np.where(is_gone, np.append(at[gone], 0)[place], _NEVER)
    return over_at


def _ranked(codes: Index, moments: Index, at: Index) -> Index:
    """Return numbers (n int64) that are ordered by code and then by moment, as far as samples at `at` tell
    moments apart: a record of the year 1 must not leave its range."""
    if not len(at):
        return np.zeros(len(codes), np.int64)
    first, last = int(at.min()), int(at.max())
    ranked: Index = codes * (last - first + 3) + (np.clip(moments, first - 1, last + 1) - first + 1)
    return ranked
