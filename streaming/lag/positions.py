"""Lag and health of positions, with the commits and samples they need, read from the tables.

The tables are passed in as a `LagReader`, so queries, alerts and the server use the same code.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import Index, from_mask, from_numbers, from_texts, numbers_or, to_mask
from streaming.common.keys import KEY_NAMES, Numbering, firsts
from streaming.common.pieces import take
from streaming.common.timestamps import to_milliseconds
from streaming.lag.habits import ASKED, Habits, PauseReader, Waits, groups_of
from streaming.lag.health import Judging, has_stopped, with_columns
from streaming.lag.health_rules import TOO_FEW_COMMITS, HealthRules
from streaming.lag.lag_time import Ends, OffsetsOverTime, as_of_ends, positions_behind, with_lag
from streaming.lag.runs import Commits
from streaming.lag.samples import MAX_SAMPLE_AGE_MS, NONE
from streaming.lag.series import LagSeries, Series

_LAST: Final = 2**63 - 1


class LagReader(PauseReader, Protocol):
    """The tables as of one moment."""

    def newest_ends(self, topics: Sequence[str] | None, *, as_of: int, within_ms: int) -> pa.Table:
        """Read the newest sample up to `as_of` (ms) of each partition that has one within `within_ms`
        before it."""

    def ends_between(
        self, topics: Collection[str] | None, *, since: int, until: int, within_ms: int
    ) -> pa.Table:
        """Read the samples between two moments (ms), and those that `newest_ends` returns for the first
        moment."""

    def commits(
        self,
        groups: Sequence[str] | None = None,
        *,
        since: int,
        until: int | None = None,
        in_order: bool = True,
    ) -> pa.Table:
        """Read the commits of groups (None: all) that the job wrote between two moments (ms), both
        included: the columns `COMMITS`, sequence, offset_before and topic_id_before. `in_order`: sorted in
        the order of the log."""

    def commit_pieces(
        self, groups: Sequence[str] | None = None, *, since: int, until: int | None = None
    ) -> Iterable[pa.Table]:
        """Read the same commits in no order, piece by piece: all of them may be too many for memory."""


class SeriesReader(Protocol):
    """The tables as of one moment, for `lag_along`."""

    def ends_at(self, topics: Collection[str], moments: Index, *, within_ms: int) -> pa.Table:
        """Read the samples that `LagReader.newest_ends` would find at each of m moments (ms, rising), and
        the rows about whole topics; other samples may be among them."""

    def offset_times(self, positions: pa.Table, *, as_of: int) -> pa.Table:
        """Read when the log ends passed positions; as for `LagReader`."""


def topics_in(rows: pa.Table) -> list[str]:
    topics: list[str] = pc.unique(rows["topic"]).to_pylist()
    return topics


def offsets_with_lag(
    at: LagReader,
    offsets: pa.Table,
    *,
    moment: int,
    max_age_ms: int,
    is_timed: bool = True,
    with_starts: bool = False,
) -> pa.Table:
    """Add the columns `LAG` as of `moment` (ms) to offsets (schema `OFFSETS`).

    Unless `is_timed`, the two columns of the lag time are null and no older samples are read. `with_starts`
    appends log_start_offset as of the same samples, null where the log end is not known.
    """
    newest = at.newest_ends(topics_in(offsets), as_of=moment, within_ms=max_age_ms)
    moments = np.full(len(offsets), moment, np.int64)
    ends = Ends.of(offsets, newest, moments, max_age_ms=max_age_ms)
    held = as_of_ends(offsets, ends, _written_after(at, offsets, ends))
    crossed = at.offset_times(positions_behind(held, ends), as_of=moment) if is_timed else None
    rows = with_lag(offsets, ends, held, crossed)
    return rows.append_column("log_start_offset", _starts(rows, newest)) if with_starts else rows


def _starts(rows: pa.Table, newest: pa.Table) -> pa.ChunkedArray:
    """Return log_start_offset of n rows with the columns `LAG`, null where the log end is not known."""
    newest = newest.filter(newest["partition"].is_valid())
    places, codes = Numbering.of(newest, ["topic", "partition"])
    found = np.append(firsts(codes), NONE)[places.codes_of(rows)]
    is_known = to_mask(rows["log_end_offset"].is_valid())
    return take(newest.select(["log_start"]), np.where(is_known, found, NONE))["log_start"]


def lag_of_steps(
    at: LagReader, rows: pa.Table, *, moments: Index, until: int, max_age_ms: int, is_timed: bool = True
) -> pa.Table:
    """Add the columns `LAG` to n commits (`KEY`, committed_offset; n > 0) as of their own moments (n ms):
    the lag that each commit left. It is known once a sample follows the commit; samples up to `until` (ms)
    count. Unless `is_timed`, the two columns of the lag time are null."""
    first, last = int(moments.min()), min(int(moments.max()) + max_age_ms, until)
    samples = at.ends_between(topics_in(rows), since=first, until=last, within_ms=max_age_ms)
    ends = Ends.around(rows, samples, moments, max_age_ms=max_age_ms)
    held = rows.select(["topic", "partition", "committed_offset"])
    return with_lag(rows, ends, held, _crossed(at, positions_behind(held, ends), ends) if is_timed else None)


def lag_along(
    at: SeriesReader, parts: Iterable[Series], commits: pa.Table, *, max_age_ms: int, is_timed: bool = True
) -> Iterator[LagSeries]:
    """Yield the lag of series with the same keys, each with at least one value; unless `is_timed`, without
    the lag time. Samples are read for one series at a time.

    `commits` are the commits of the keys (columns as read by `LagReader.commits`), in any order, with all
    that were written after `max_age_ms` before the first moment."""
    over_time: OffsetsOverTime | None = None
    for series in parts:
        keys, moments, places = series.keys, series.at, series.places
        over_time = over_time or OffsetsOverTime(keys, commits)
        topics = topics_in(take(keys.select(["topic"]), series.present))
        asked = series.moments[places.min() : places.max() + 1]
        samples = at.ends_at(topics, asked, within_ms=max_age_ms)
        values = {"numbers": series.numbers, "topic_ids": series.topic_ids}
        ends = Ends.of(keys, samples, moments, max_age_ms=max_age_ms, **values)
        held = over_time.at(series.numbers, ends.at, series.offsets, series.is_readable, ends.topic_ids)
        found = LagSeries(series, ends, *held)
        if is_timed:
            found = replace(found, crossed=_crossed(at, positions_behind(found.positions(), ends), ends))
        yield found


def _crossed(at: LagReader | SeriesReader, positions: pa.Table, ends: Ends) -> pa.Table:
    """Read when the log ends passed n positions, each as of the newest sample used.

    As of a later moment `offset_times` finds the same, unless the log end fell or the topic was recreated
    since: then the log seems to have passed the position later, or not at all.
    """
    until = int(ends.until.max(initial=NONE))
    found = at.offset_times(positions, as_of=until)
    pending = np.flatnonzero(to_mask(positions["committed_offset"].is_valid()))
    while True:
        is_later = numbers_or(to_milliseconds(found["above_at"]), _LAST) > ends.until
        pending = pending[is_later[pending] & (ends.until[pending] < until)]
        if not len(pending):
            return found
        until = int(ends.until[pending].max())
        again = at.offset_times(take(positions, pending), as_of=until)
        places = np.arange(len(found))
        places[pending] = len(found) + np.arange(len(again))
        found = take(pa.concat_tables([found, again]), places)


def _written_after(at: LagReader, rows: pa.Table, ends: Ends) -> pa.Table:
    """Read the commits, of the groups of n rows, that were written since the oldest sample used: input of
    `as_of_ends`."""
    if not ends.is_known.any():
        return rows.slice(0, 0)
    oldest = int(np.min(ends.at, where=ends.is_known, initial=_LAST))
    return at.commits(groups_of(rows), since=oldest + 1, in_order=False)


def with_currency(positions: pa.Table, complete: Collection[int]) -> pa.Table:
    """Append the column is_current to positions (with source_partition): whether their offsets partition
    is in `complete`. In others, newer commits may be unread, so that silence proves nothing."""
    partitions = from_numbers(np.array(sorted(complete), np.int32))
    found = pc.is_in(positions["source_partition"], value_set=partitions)
    return positions.append_column("is_current", found)


def with_health(
    at: LagReader,
    positions: pa.Table,
    *,
    moment: int,
    max_age_ms: int,
    rules: HealthRules,
    habits: Habits | None = None,
) -> pa.Table:
    """Append the columns `PARTITION_HEALTH` to positions (columns as for `partition_health`).

    Commits are read for positions that are behind only, in steps: further back for those with too few commits
    in the step before, up to `long_silence_ms`. Usual pauses are looked up only for positions that would be
    STOPPED. Repeated callers pass `habits` (see `habits_by`), which cache the usual pauses.
    """
    window = rules.window_ms
    reaches = sorted({2 * window, 12 * window, rules.long_silence_ms + window})
    judging = Judging(positions, now=moment, max_age_ms=max_age_ms, rules=rules)
    is_behind = to_mask(positions["lag"].is_valid()) & (numbers_or(positions["lag"], 0) > rules.min_lag)
    pending = np.flatnonzero(is_behind)
    behind = positions.select(KEY_NAMES).filter(from_mask(is_behind))
    commits = _CommitsBack(at, behind, pending)
    no_samples = at.ends_between([], since=moment, until=moment, within_ms=0)
    numbers = [np.flatnonzero(~is_behind)]
    found = [judging.facts_at_rest(numbers[0])]
    sampled = [no_samples]
    is_pace_known, too_few = np.full(len(positions), rules.min_commits <= 1), from_texts(TOO_FEW_COMMITS)
    for reach in reaches:
        since, is_last = moment - reach, reach == reaches[-1]
        if len(behind) > len(pending):
            behind = take(positions.select(KEY_NAMES), pending)
        is_news = is_pace_known | is_last  # without more commits the judgement of the step before holds
        if len(pending):
            is_news[commits.read(behind, pending, since)] = True
        judged = pending[is_news[pending]]
        if not len(judged):
            continue
        topics = topics_in(behind.select(["topic"]).filter(from_mask(is_news[pending])))
        samples = at.ends_between(topics, since=since, until=moment, within_ms=max_age_ms)
        facts = judging.facts(judged, commits.held, samples)
        is_pace_known[judged] = to_mask(facts["pace_is_known"])
        is_open = ~is_pace_known[judged] | to_mask(pc.is_in(facts["reason"], value_set=too_few))
        is_done = ~is_open | is_last
        found.append(facts if is_done.all() else facts.filter(from_mask(is_done)))
        numbers.append(judged[is_done])
        sampled.append(samples if has_stopped(found[-1]).any() else no_samples)
        pending = np.setdiff1d(pending, judged[is_done], assume_unique=True)
    order = np.argsort(np.concatenate(numbers))
    facts = take(pa.concat_tables(found), order)
    stopped = np.flatnonzero(has_stopped(facts))
    if len(stopped):
        habits = habits or habits_by(rules, max_age_ms)
        waits = habits.of(at, take(positions.select(ASKED.names), stopped), moment=moment)
        step_of = np.repeat(np.arange(len(numbers)), [len(some) for some in numbers])[order]
        facts = _judged_again(judging, facts, stopped, waits, commits.held, step_of, sampled)
    return with_columns(positions, facts)


def habits_by(rules: HealthRules, max_age_ms: int = MAX_SAMPLE_AGE_MS) -> Habits:
    return Habits(max_age_ms=max_age_ms, min_lag=rules.min_lag, window_ms=rules.window_ms)


def _judged_again(
    judging: Judging,
    facts: pa.Table,
    stopped: Index,
    waits: Waits,
    commits: Sequence[Commits],
    step_of: Index,
    sampled: Sequence[pa.Table],
) -> pa.Table:
    """Judge the positions `stopped` again, with their usual pauses. `step_of` (n) is the step that each of
    the n facts is from, and `sampled` are the samples of each step."""
    order, found = np.arange(len(facts)), [facts]
    for step in np.unique(step_of[stopped]):
        some = np.flatnonzero(step_of[stopped] == step)
        own = stopped[some]
        order[own] = sum(map(len, found)) + np.arange(len(own))
        found.append(judging.facts(own, commits, sampled[step], waits.at(some)))
    return take(pa.concat_tables(found), order)


class _CommitsBack:
    """Commits of positions, read step by step, each step further back."""

    def __init__(self, at: LagReader, positions: pa.Table, numbers: Index) -> None:
        """`numbers` are the numbers of the n positions (`KEY`)."""
        self._at = at
        self._keys, codes = Numbering.of(positions, KEY_NAMES)
        self._numbers = np.append(numbers[firsts(codes)], NONE)  # the last value is for `NONE`
        self._until: int | None = None
        self.held = list[Commits]()  # each sorted by key

    def read(self, pending: pa.Table, numbers: Index, since: int) -> Index:
        """Add the commits of m positions (`KEY`) with these numbers, written since a moment (ms) and before
        those read so far. Return the numbers that have such commits, perhaps several times."""
        is_asked = np.zeros(int(self._numbers.max()) + 2, np.bool_)  # the last value is for `NONE`
        is_asked[numbers] = True
        numbers_of = np.where(is_asked[self._numbers], self._numbers, NONE)
        more = [
            Commits.of(numbers_of[self._keys.codes_of(rows)], rows).by_key()
            for rows in self._at.commit_pieces(groups_of(pending), since=since, until=self._until)
        ]
        self.held, self._until = [*self.held, *more], since - 1
        return np.concatenate([np.empty(0, np.int64), *(some.distinct_keys() for some in more)])
