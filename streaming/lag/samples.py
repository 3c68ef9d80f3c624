"""Samples of log ends: where the log of a topic partition ended (`log_end`) when the brokers were asked
(`sampled_at`)."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import (
    Index,
    Mask,
    begins_run,
    from_mask,
    from_numbers,
    numbers_or,
    to_mask,
    to_numbers,
)
from streaming.common.keys import numbered
from streaming.common.times import MINUTE_MS
from streaming.common.timestamps import to_milliseconds

MAX_SAMPLE_AGE_MS: Final = 5 * MINUTE_MS
"""Older samples do not count: the lag is unknown."""

NONE: Final = -1
"""The number of a missing sample, and the code of an unknown value."""

_NEVER: Final = 2**63 - 1
_GONE: Final = -2  # in place of a topic id: the topic did not exist


@dataclass(frozen=True)
class Places:
    """Topic partitions, numbered from 0 in the order of their first rows."""

    topics: pa.Array
    keys: pa.Array

    @classmethod
    def of(cls, rows: pa.Table) -> tuple[Self, Index]:
        """Number the distinct topic partitions of n rows (topic, partition; no nulls). Return the places
        and n codes."""
        return cls.of_topics(*numbered(rows["topic"]), _numbers_of(rows["partition"]))

    @classmethod
    def of_topics(cls, codes: Index, topics: pa.Array, partitions: Index) -> tuple[Self, Index]:
        """As `of`, of n rows whose topics are numbered: the names by code."""
        joined = _joined(codes, partitions)
        starts = np.flatnonzero(begins_run(joined))  # rows of files are in order: few values to be hashed
        own, keys = numbered(from_numbers(joined[starts]))
        return cls(topics, keys), np.repeat(own, np.diff(starts, append=len(joined)))

    def codes_of(self, rows: pa.Table) -> Index:
        """Return the codes of the topic partitions of n rows, `NONE` for other partitions."""
        topics = numbers_or(_index_in(rows["topic"], self.topics), NONE)
        joined = from_numbers(_joined(topics, _numbers_of(rows["partition"])))
        return numbers_or(_index_in(joined, self.keys), NONE)


@dataclass(frozen=True)
class Samples:
    """Samples of log ends (n int64 each), sorted by place and time: `at` is the time (ms), `ends` the log
    end, `ids` the number of the topic id (`id_numbers`; `NONE`: not known)."""

    places: Places
    codes: Index
    at: Index
    ends: Index
    ids: Index
    _over_at: Index
    """The moment (ms) from which the sample no longer counts: by then the topic was gone or recreated."""
    _order: Index
    """Sort keys of the samples (`_ranked`): by place, then by time."""

    @classmethod
    def of(cls, rows: pa.Table) -> Self:
        """Take samples from rows with topic, topic_id, partition, sampled_at and log_end, in any order.

        Rows without a partition or a log end are no samples. Rows without a partition record the id of the
        topic at a time, and without an id that the topic did not exist.
        """
        topics, names = numbered(rows["topic"])
        ids = id_numbers(rows["topic_id"])
        at = to_numbers(to_milliseconds(rows["sampled_at"]))
        is_of_topic = ~to_mask(rows["partition"].is_valid())
        over_at = _over_at(topics, ids, at, is_of_topic)
        is_end = to_mask(rows["log_end"].is_valid()) & ~is_of_topic
        ends, partitions = (numbers_or(rows[name], 0) for name in ("log_end", "partition"))
        columns = [topics, partitions, at, ends, ids, over_at]
        if not is_end.all():
            columns = [column[is_end] for column in columns]
        topics, partitions, at, *columns = columns
        places, codes = Places.of_topics(topics, names, partitions)
        ranked = _ranked(codes, at, at)
        columns = [codes, at, *columns, ranked]
        if np.any(ranked[1:] < ranked[:-1]):
            order = np.argsort(ranked, kind="stable")
            columns = [column[order] for column in columns]
        codes, at, ends, ids, over_at, ranked = columns
        return cls(places, codes, at, ends, ids, over_at, ranked)

    def newest_until(self, codes: Index, moments: Index) -> Index:
        """Return the number of the newest sample of n places up to each moment (ms). It is `NONE` also
        where the topic had been deleted by then, or recreated without this partition."""
        found = np.searchsorted(self._order, _ranked(codes, moments, self.at), side="right") - 1
        newest = self._if_of(codes, moments, found)
        newest[moments >= np.append(self._over_at, _NEVER)[newest]] = NONE
        return newest

    def first_since(self, codes: Index, moments: Index) -> Index:
        """Return the number of the first sample of n places since each moment (ms), or `NONE`."""
        found = np.searchsorted(self._order, _ranked(codes, moments, self.at), side="left")
        return self._if_of(codes, moments, found, is_since=True)

    def ends_between(
        self, before: Index, after: Index, moments: Index, max_age_ms: int
    ) -> tuple[Index, Mask]:
        """Return the log ends at n moments (ms), on the straight line between the samples before and after
        each (numbers, or `NONE`), and whether each is known: both samples are of one log, and no further from
        the moment than `max_age_ms`.

        Ends are rounded up, so that a group that is slightly behind does not seem caught up.
        """
        at, ends = np.append(self.at, 0), np.append(self.ends, 0)
        is_known = self.is_same_log(before, after) & (ends[after] >= ends[before])
        is_known &= (moments - at[before] <= max_age_ms) & (at[after] - moments <= max_age_ms)
        rise = np.where(is_known, ends[after] - ends[before], 0)
        span = np.where(is_known, np.maximum(at[after] - at[before], 1), 1)
        elapsed = np.where(is_known, moments - at[before], 0)
        # int64 is enough: no product exceeds the rise, or the square of a span
        risen = rise // span * elapsed - (-(rise % span) * elapsed) // span
        return ends[before] + risen, is_known

    def passed_at(self, codes: Index, moments: Index, offsets: Index, max_age_ms: int) -> Index:
        """Return the time (ms) at which the logs of n places passed each offset, as sampled up to each
        moment (ms); see `passed_between`. It is `NONE` where the log had not passed the offset, or its
        first sample already had."""
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
        """The number of the log of each sample, ascending. Another log begins where the topic id changes
        and where the log end falls."""
        is_other = (self.codes[1:] != self.codes[:-1]) | (self.ends[1:] < self.ends[:-1])
        known = np.maximum.accumulate(np.where(self.ids == NONE, -1, np.arange(len(self.ids))))
        ids = np.where(known == -1, NONE, self.ids[known])
        is_other |= (self.ids[1:] != NONE) & (ids[:-1] != NONE) & (self.ids[1:] != ids[:-1])
        return np.append(0, np.cumsum(is_other))

    @cached_property
    def _ends_ranked(self) -> tuple[Index, Index]:
        """The distinct log ends, ascending, and sort keys of the samples: by log, then by end."""
        ends, ranks = np.unique(self.ends, return_inverse=True)
        return ends, self._logs * (len(ends) + 1) + ranks

    def is_throughout(self, codes: Index, since: int, until: int, max_age_ms: int) -> Mask:
        """Return for n places whether sampling had no gap from one moment to another (ms): the newest
        sample was never older than `max_age_ms`."""
        starts = np.searchsorted(self.codes, np.arange(len(self.places.keys)))
        lasts = np.append(starts[1:], len(self.at))[: len(starts)] - 1
        own = self.codes[1:] == self.codes[:-1]
        has_gap = np.zeros(len(starts), np.bool_)
        has_gap[self.codes[1:][own & (np.diff(self.at) > max_age_ms)]] = True
        is_whole = ~has_gap & (self.at[starts] <= since) & (self.at[lasts] >= until - max_age_ms)
        is_whole &= self.at[starts] >= since - max_age_ms
        return np.append(is_whole, np.False_)[codes]  # the last value is for `NONE`

    def is_same_log(self, one: Index, other: Index) -> Mask:
        """Return for n pairs of samples of a place (numbers, or `NONE`) whether both exist and their topic
        ids do not differ."""
        same: Mask = may_be_same_id(self.ids_of(one), self.ids_of(other)) & (one != NONE) & (other != NONE)
        return same

    def are_of_two_logs(self, one: Index, other: Index) -> Mask:
        """Return for n pairs of samples of a place (numbers, or `NONE`) whether both exist and their topic
        ids differ."""
        are_two: Mask = (one != NONE) & (other != NONE) & ~self.is_same_log(one, other)
        return are_two

    def ids_of(self, numbers: Index) -> Index:
        """Return the topic ids of n samples (numbers, or `NONE`)."""
        ids: Index = np.append(self.ids, NONE)[numbers]
        return ids

    def _if_of(self, codes: Index, moments: Index, found: Index, *, is_since: bool = False) -> Index:
        """Return the numbers of `found` that exist, are of the place, and on the right side of the moment;
        else `NONE`."""
        if not len(self.at):
            return np.full(len(codes), NONE, np.int64)
        within = np.clip(found, 0, len(self.at) - 1)
        at = self.at[within]
        is_there = (within == found) & (self.codes[within] == codes)
        is_there &= (at >= moments) if is_since else (at <= moments)
        numbers: Index = np.where(is_there, found, NONE)
        return numbers


def id_numbers(ids: pa.ChunkedArray) -> Index:
    """Return the numbers of n topic ids (`NONE`: null). An id has the same number in every table."""
    is_known = to_mask(ids.is_valid())
    codes, names = numbered(ids if is_known.all() else ids.filter(from_mask(is_known)))
    own = np.full(len(ids), NONE, np.int64)
    own[is_known] = np.array([hash(name) for name in names.to_pylist()], np.int64)[codes]  # never -1
    return own


_Ids = npt.NDArray[np.signedinteger[Any]]


def may_be_same_id(one: _Ids, other: _Ids) -> Mask:
    """Return for n pairs of topic ids (as numbers; `NONE`: null) whether they do not differ."""
    may: Mask = (one == NONE) | (one == other) | (other == NONE)
    return may


def passed_between(
    below_at: Index, below_end: Index, above_at: Index, above_end: Index, offsets: Index, max_age_ms: int
) -> Index:
    """Return when (ms) logs passed n offsets, between a sample that is not above the offset and the next
    one, which is: where the straight line between the two exceeds the offset. If the samples are more than
    `max_age_ms` apart, it may have happened at any time between them, and the time of the first one is
    returned."""
    rise = np.maximum(above_end - below_end, 1)
    before_above = (above_at - below_at) * ((above_end - offsets - 1) / rise)
    passed = above_at - np.clip(before_above, 0, above_at - below_at).astype(np.int64)
    return np.where(above_at - below_at <= max_age_ms, passed, below_at)


def _numbers_of(column: pa.ChunkedArray) -> Index:
    """Return n int32 as int64; `ValueError` if any of them is null."""
    return to_numbers(column.cast(pa.int64()))


def _joined(codes: Index, partitions: Index) -> Index:
    keys: Index = codes << 32 | partitions & 0xFFFF_FFFF
    return keys


def _index_in(column: pa.ChunkedArray | pa.Array, values: pa.Array) -> pa.ChunkedArray | pa.Array:
    return pc.index_in(column, value_set=values)


def _over_at(codes: Index, ids: Index, at: Index, is_of_topic: Mask) -> Index:
    """Return for n rows (`codes` of their topics, `ids`, times in ms) the first later moment (ms) at which
    their topic was sampled as gone or with another id (`_NEVER`: there is none). A row with an unknown id
    ends only where the topic is gone.

    `is_of_topic`: the row is about a topic as a whole, which is gone if the row has no id."""
    state = np.where((ids == NONE) & is_of_topic, _GONE, ids)
    over_at = np.full(len(at), _NEVER, np.int64)
    last = np.full(codes.max(initial=NONE) + 1, NONE, np.int64)
    known = np.flatnonzero(state != NONE)
    of_known, states = (codes, state) if len(known) == len(at) else (codes[known], state[known])
    last[of_known] = states
    if _GONE not in last and (last[of_known] == states).all():
        return over_at
    events = known[np.lexsort((at[known], codes[known]))]
    of_topic, event_at = codes[events], at[events]
    is_first = begins_run(of_topic, state[events])
    stretches = np.cumsum(is_first) - 1
    first = np.flatnonzero(is_first)
    is_followed = np.append(of_topic[first[1:]] == of_topic[first[:-1]], np.False_)
    next_at = np.where(is_followed, np.append(event_at[first[1:]], 0), _NEVER)
    over_at[events] = next_at[stretches]
    gone = events[state[events] == _GONE]
    unknown = np.flatnonzero(state == NONE)
    place = np.searchsorted(
        _ranked(codes[gone], at[gone], at), _ranked(codes[unknown], at[unknown], at), "right"
    )
    is_gone = np.append(codes[gone], NONE)[place] == codes[unknown]
    over_at[unknown] = np.where(is_gone, np.append(at[gone], 0)[place], _NEVER)
    return over_at


def _ranked(codes: Index, moments: Index, at: Index) -> Index:
    """Return n sort keys (int64): by code, then by moment. Moments are clipped to the range of `at`, so
    that a sample dated to the year 1 cannot overflow."""
    if not len(at):
        return np.zeros(len(codes), np.int64)
    first, last = int(at.min()), int(at.max())
    ranked: Index = codes * (last - first + 3) + (np.clip(moments, first - 1, last + 1) - first + 1)
    return ranked
