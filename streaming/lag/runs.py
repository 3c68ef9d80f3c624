"""The commits of many keys as arrays: the commits of each key form a run, in the order of the log.

The rules of health ask about stretches of a run, for example whether the lag was ever low. Such conditions
are counted once up to every commit (`counted`), so that the answer for any stretch is one subtraction.
"""

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Final, Self

import numpy as np
import pyarrow as pa

from streaming.common.arrays import Index, Mask, begins_run, numbers_or, to_mask
from streaming.common.keys import KEY_NAMES, firsts, key_codes
from streaming.common.pieces import take
from streaming.common.times import DAY_MS
from streaming.common.timestamps import to_milliseconds
from streaming.lag.log_ranges import lag_of
from streaming.lag.samples import NONE, Samples, id_numbers
from streaming.model.schemas import KEY, TIMESTAMP

COMMITS: Final = pa.schema(
    [
        *KEY,
        ("committed_offset", pa.int64()),  # null: the offset was removed, or could not be read
        ("committed_at", TIMESTAMP),  # by the clock of the coordinator
        ("written_at", TIMESTAMP),  # by the clock of the job; null: not known, but long ago
        ("is_removed", pa.bool_()),
        ("topic_id", pa.string()),  # null: not known
    ]
)
"""Commits and removals. The rows of a key are in the order of the log, which may differ from the order of
committed_at."""

_UNKNOWN_AT: Final = -(2**62)  # ms; before all known times
_LONGEST_MS: Final = 3_660 * DAY_MS
"""Older commits count as ten years old, which bounds the range of times."""


@dataclass(frozen=True)
class Commits:
    """Commits of numbered keys (n int64 and n booleans), in any order.

    `keys` are the numbers of the keys, `at` are times of commits (ms), `written_at` the times at which the
    job wrote them, `order` sorts the commits of a key. Unreadable offsets are 0. `topic_ids` are numbers of
    `id_numbers`.
    """

    keys: Index
    at: Index
    written_at: Index
    order: Index
    offsets: Index
    is_readable: Mask
    is_removed: Mask
    topic_ids: Index

    @classmethod
    def of(cls, keys: Index, rows: pa.Table) -> Self:
        """Take commits from n rows (schema `COMMITS`) with the numbers of their keys (`NONE`: leave the row
        out).

        The commits of a key are ordered by the column sequence if there is one, and then by row.
        """
        has_sequence = "sequence" in rows.schema.names
        return cls(
            keys=keys,
            at=numbers_or(to_milliseconds(rows["committed_at"]), _UNKNOWN_AT),
            written_at=numbers_or(to_milliseconds(rows["written_at"]), _UNKNOWN_AT),
            order=numbers_or(rows["sequence"], 0) if has_sequence else np.arange(len(rows)),
            offsets=numbers_or(rows["committed_offset"], 0),
            is_readable=to_mask(rows["committed_offset"].is_valid()),
            is_removed=to_mask(rows["is_removed"]),
            topic_ids=id_numbers(rows["topic_id"]),
        ).where(keys != NONE)

    @classmethod
    def none(cls) -> Self:
        nothing, never = np.empty(0, np.int64), np.empty(0, np.bool_)
        return cls(nothing, nothing, nothing, nothing, nothing, never, never, nothing)

    @classmethod
    def joined(cls, *several: "Commits") -> Self:
        """Concatenate commits whose keys share one numbering."""
        return cls(
            *(np.concatenate([getattr(one, field.name) for one in several]) for field in fields(Commits))
        )

    def where(self, chosen: Mask | Index) -> Self:
        if chosen.dtype == np.bool_ and chosen.all():
            return self
        return type(self)(*(getattr(self, field.name)[chosen] for field in fields(Commits)))

    def by_key(self) -> Self:
        """Return the commits sorted by key, as `between` expects them."""
        return self.where(np.argsort(self.keys, kind="stable"))

    def distinct_keys(self) -> Index:
        """Return the keys of commits sorted by key, each once."""
        distinct: Index = self.keys[begins_run(self.keys)]
        return distinct

    def between(self, first: int, last: int) -> Self:
        """Return the commits of the keys from `first` to `last`, both included, of commits sorted by key."""
        start, stop = np.searchsorted(self.keys, [first, last + 1])
        return type(self)(*(getattr(self, field.name)[start:stop] for field in fields(Commits)))

    def renumbered(self, numbers: Index) -> Self:
        """Return the commits with the key k replaced by `numbers[k]` (`NONE`: leave them out)."""
        keys = numbers[self.keys]
        return replace(self, keys=keys).where(keys != NONE)


@dataclass(frozen=True)
class CommitRuns:
    """The n commits of k keys (n int64 each), sorted by key, and for each key in the order of the log.

    `codes` are the key numbers of the commits, `starts` (k + 1) the starts of the runs. `at` is the time of
    the commit (ms), raised where it would fall within a run; `written_at` is the time at which the job wrote
    it, by its own clock. `chains` is the first commit of the uninterrupted stretch up to each: a stretch ends
    where the key was removed, could not be read, or its topic was recreated.

    `is_sampled` is true where a sample came shortly before the commit. `lags` is the lag at the time of the
    commit, on the straight line between the samples before and after it (`NONE`: not known, for example as
    long as no sample came after it). `lags_before` is the lag of the commit before, by the sample before this
    commit. `lags_after` is the lag by the first sample after the commit, if no other commit came first: the
    lag that Kafka's tools would have shown at `after_at` (`NONE`: there is no such sample).
    """

    codes: Index
    starts: Index
    at: Index
    written_at: Index
    offsets: Index
    is_readable: Mask
    is_removed: Mask
    topic_ids: Index
    chains: Index
    is_sampled: Mask
    lags: Index
    lags_before: Index
    lags_after: Index
    after_at: Index
    _followed_at: Index
    _ranked: Index
    _low: int
    _span: int

    @classmethod
    def of(cls, commits: pa.Table, samples: Samples, *, until: int, max_age_ms: int) -> tuple[Self, pa.Table]:
        """Take commits from rows (schema `COMMITS`); return also the keys. Times after `until` (ms) count
        as `until`. Samples more than `max_age_ms` away from a commit do not count for it."""
        codes = key_codes(commits[name] for name in KEY_NAMES)
        keys = take(commits.select(KEY_NAMES), firsts(codes)).cast(pa.schema(KEY))
        own, places = Commits.of(codes, commits), samples.places.codes_of(keys)
        return cls.of_keys(own, places, samples, until=until, max_age_ms=max_age_ms), keys

    @classmethod
    def of_keys(
        cls, commits: Commits, places: Index, samples: Samples, *, until: int, max_age_ms: int
    ) -> Self:
        """Same as `of`, from the commits of k keys, each with at least one, and the place codes of the
        keys among the samples (k int64)."""
        if np.any(np.diff(commits.keys) <= 0):
            commits = commits.where(np.lexsort((commits.order, commits.keys)))
        codes, offsets, is_readable = commits.keys, commits.offsets, commits.is_readable
        low, span = until - _LONGEST_MS, _LONGEST_MS + 1
        times = within_reach(commits.at, until)
        ranked = np.maximum.accumulate(codes * span + (times - low))
        at = ranked - codes * span + low
        starts = np.searchsorted(codes, np.arange(len(places) + 1))
        places = places[codes]
        # samples have times of the job's clock, by which a commit came no later than it was written
        then = np.where(commits.written_at == _UNKNOWN_AT, at, np.minimum(at, commits.written_at))
        before, after = samples.newest_until(places, then), samples.first_since(places, then)
        ends, sampled_at = np.append(samples.ends, 0), np.append(samples.at, 0)
        is_near = (before != NONE) & (then - sampled_at[before] <= max_age_ms)
        until_next = np.append(then[1:], 0)
        is_last = np.append(codes[1:] != codes[:-1], np.ones(min(1, len(codes)), np.bool_))
        is_seen = (after != NONE) & (is_last | (sampled_at[after] < until_next))
        is_seen &= sampled_at[after] - then <= max_age_ms
        offsets_before = _one_before(offsets, 0)
        ends_then, is_between = samples.ends_between(before, after, then, max_age_ms)
        is_between &= is_readable & (sampled_at[after] <= until)
        # a commit is of another log where the topic ids of commits differ; where one is not known, where the
        # offset fell and samples have two ids
        sample_of = np.where(before == NONE, after, before)
        is_other_log = samples.are_of_two_logs(_one_before(sample_of, NONE), after)
        is_other_log &= np.diff(offsets, prepend=offsets[:1]) < 0
        ids, ids_before = commits.topic_ids, _one_before(commits.topic_ids, NONE)
        is_other_log = np.where((ids == NONE) | (ids_before == NONE), is_other_log, ids != ids_before)
        return cls(
            codes=codes,
            starts=starts,
            at=at,
            written_at=commits.written_at,
            offsets=offsets,
            is_readable=is_readable,
            is_removed=commits.is_removed,
            topic_ids=commits.topic_ids,
            chains=_chains(starts, is_readable, is_other_log),
            is_sampled=is_near & is_readable,
            lags=np.where(is_between, np.maximum(lag_of(ends_then, offsets), 0), NONE),
            lags_before=np.where(is_near, lag_of(ends[before], offsets_before), NONE),
            lags_after=np.where(is_seen & is_readable, np.maximum(lag_of(ends[after], offsets), 0), NONE),
            after_at=np.where(is_seen, sampled_at[after], 0),
            _followed_at=np.where(after != NONE, sampled_at[after], until),
            _ranked=ranked,
            _low=low,
            _span=span,
        )

    def last_until(self, keys: Index, moments: Index) -> Index:
        """Return the number of the last commit of m keys (codes) up to each moment (ms), or `NONE`."""
        found = np.searchsorted(self._ranked, self._place(keys, moments), side="right") - 1
        last: Index = np.where(found >= self.starts[keys], found, NONE)
        return last

    def first_since(self, keys: Index, moments: Index) -> Index:
        """Return the number of the first commit of m keys (codes) since each moment (ms), or the number
        after the last commit of the run."""
        found: Index = np.searchsorted(self._ranked, self._place(keys, moments), side="left")
        return found

    def written_until(self, keys: Index, moments: Index) -> Index:
        """Return the number of the last commit of m keys (codes) that the job had written by each moment
        (ms), or `NONE`. Commits without a known time of writing count as written before."""
        found = np.searchsorted(self._written, self._place(keys, moments), side="right") - 1
        last: Index = np.where(found >= self.starts[keys], found, NONE)
        return last

    def followed_until(self, keys: Index, moments: Index) -> Index:
        """Return for m keys (codes) the number after the last commit that a sample had followed by each
        moment (ms)."""
        found: Index = np.searchsorted(self._followed, self._place(keys, moments), side="right")
        return found

    @cached_property
    def _followed(self) -> Index:
        ranked: Index = np.maximum.accumulate(self._place(self.codes, self._followed_at))
        return ranked

    @cached_property
    def _written(self) -> Index:
        ranked: Index = np.maximum.accumulate(self._place(self.codes, self.written_at))
        return ranked

    @cached_property
    def is_follower(self) -> Mask:
        """Whether the commit before is of the same stretch."""
        is_one: Mask = self.chains < np.arange(len(self.at))
        return is_one

    @cached_property
    def steps(self) -> Index:
        """Differences from the offset of the commit before in the same stretch; 0 for the first commit."""
        steps = np.diff(self.offsets, prepend=self.offsets[:1])
        own: Index = np.where(self.is_follower, steps, 0)
        return own

    @cached_property
    def unmoved_since(self) -> Index:
        """The number of the first of the consecutive commits up to each with the same offset."""
        numbers = np.arange(len(self.at))
        is_first = ~self.is_follower | (self.steps != 0)
        first: Index = np.maximum.accumulate(np.where(is_first, numbers, 0))
        return first

    def _place(self, keys: Index, moments: Index) -> Index:
        place: Index = keys * self._span + np.clip(moments - self._low, 0, self._span - 1)
        return place


def within_reach(times: Index, until: int) -> Index:
    """Return n times of commits (ms) clipped to the ten years up to `until`."""
    clipped: Index = np.clip(times, until - _LONGEST_MS, until)
    return clipped


def counted(mask: Mask) -> Index:
    """Count the true values before each index (n + 1 int64), so that the count of a stretch is one
    subtraction.

    >>> counted(np.array([True, False, True])).tolist()
    [0, 1, 1, 2]
    """
    return np.append(0, np.cumsum(mask, dtype=np.int64))


def _one_before(values: Index, first: int) -> Index:
    """Return for n values the one before each; `first` before the first."""
    return np.append(first, values[:-1])[: len(values)]


def _chains(starts: Index, is_readable: Mask, is_first: Mask) -> Index:
    numbers = np.arange(len(is_readable))
    first = np.where(is_readable, np.where(is_first, numbers, 0), numbers + 1)
    first[starts[:-1]] = np.maximum(first[starts[:-1]], starts[:-1])
    chains: Index = np.maximum.accumulate(first)
    return chains
