"""Lag and health of groups, answered from one snapshot."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.assessment.assess import (
    Facts,
    Terms,
    assess,
    assess_lag_along,
    assess_lag_of_steps,
    assess_lagging,
)
from streaming.assessment.over_time import assess_health_changes, first_needed
from streaming.assessment.owners import with_assigned
from streaming.common.arrays import Index, Mask, from_mask, no_rows, to_mask, to_numbers, where
from streaming.common.keys import KEY_NAMES
from streaming.common.pieces import take
from streaming.common.times import MINUTE_MS, iso
from streaming.common.timestamps import timestamp, to_milliseconds
from streaming.common.topics import TopicPartitions, of_topics
from streaming.lag.health import group_health, with_columns
from streaming.lag.health_rules import HealthRules
from streaming.lag.log_ranges import with_log_ends
from streaming.lag.positions import topics_in
from streaming.lag.recreated_topic import are_ids_known, contradictions, is_of_other_log
from streaming.lag.restoring import restored
from streaming.lag.rewinds import with_who
from streaming.lag.runs import COMMITS, CommitRuns
from streaming.lag.samples import MAX_SAMPLE_AGE_MS, Samples
from streaming.lag.series import LagSeries, Series, lag_sums, series_rows
from streaming.lag.summary import By, lag_by, worst_positions
from streaming.model.errors import MisuseError
from streaming.queries import lag_rows
from streaming.queries.answers import Answer, History, JudgedGroups
from streaming.queries.as_of import AsOf
from streaming.queries.bound.offsets import sorted_by
from streaming.queries.names import KnownNames
from streaming.tables.feed import EVENTS
from streaming.tables.log_ends import NEWEST_ENDS, TOPICS_OVER_TIME
from streaming.tables.snapshot import Among, Snapshot

_MOST_MOMENTS: Final = 100_000
_MOST_ROWS: Final = 10_000_000
"""Positions times moments in one answer, all of which is in memory."""

MOST_SAMPLES: Final = 10_000_000
"""Samples that one answer about lag over time reads at most: those of 1,000 partitions over a week."""

_NO_SAMPLES: Final = no_rows(NEWEST_ENDS)


@dataclass(frozen=True)
class SnapshotLagQueries:
    """Lag and health of groups, answered from one snapshot.

    All parts of one output come from one of these. `LagQueries` documents the answers.
    """

    at: Snapshot
    max_age_ms: int = MAX_SAMPLE_AGE_MS
    rules: HealthRules = field(default_factory=HealthRules)

    @property
    def _terms(self) -> Terms:
        return Terms(max_age_ms=self.max_age_ms, rules=self.rules)

    # --- lag -------------------------------------------------------------------------------------------

    def list_offsets(
        self,
        groups: Sequence[str] | None = None,
        topics: Sequence[TopicPartitions] = (),
        *,
        with_former: bool = False,
        with_owners: bool = False,
    ) -> Answer:
        facts = Facts(lag=True, lag_time=True, recreated_topic=with_former, owner=with_owners)
        return _in_order(self.assessed(facts, groups, topics))

    def list_lag(
        self,
        groups: Sequence[str] | None = None,
        topics: Sequence[TopicPartitions] = (),
        *,
        by: By = "group",
        min_lag: int | None = None,
        min_seconds: float | None = None,
    ) -> Answer:
        if by not in ("group", "topic"):
            raise MisuseError(f"by: expected group or topic, found {by!r}.")
        answer = self.assessed(Facts(lag=True, lag_time=True), groups, topics)
        summed = lag_by(answer.rows, by)
        are_behind, _ = lag_rows.far_behind(summed, min_lag=min_lag, min_seconds=min_seconds)
        rows = where(summed, are_behind)
        return replace(answer, rows=self.with_since(rows, by, answer.rows, answer.as_of))

    def with_since(self, summed: pa.Table, by: By, offsets: pa.Table, about: AsOf) -> pa.Table:
        """Append to rows of `lag_by` over these offsets since when each lags: the columns `LAGGING` of its
        position that is furthest behind."""
        worst = worst_positions(summed, by, offsets)
        return with_columns(summed, assess_lagging(self.at, worst, moment=about.moment, terms=self._terms))

    def list_history(
        self,
        groups: Sequence[str] | None = None,
        topics: Sequence[TopicPartitions] = (),
        since: int | None = None,
        *,
        until: int | None = None,
        events: Sequence[str] = (),
        is_timed: bool = True,
    ) -> History:
        """As `LagQueries.list_history`; unless `is_timed`, the two columns of the lag time are null."""
        if unknown := set(events).difference(EVENTS):
            raise MisuseError(f"events: expected some of {', '.join(EVENTS)}; found {min(unknown)!r}.")
        at = self.at
        # a step backwards may be a commit to a recreated topic
        read = {*events, "rewind"} if "commit" in events else events
        steps = at.history(groups, topics, since=since, until=until, events=sorted(read))
        steps = self._with_commits_to_new_topics(steps, groups, topics, until)
        if events:
            steps = steps.filter(pc.is_in(steps["event"], value_set=pa.array(sorted(events), pa.string())))
        about = AsOf.at(groups, at)
        errors = about.loading_of(groups)
        rows, about = self._with_lag(steps, about, is_timed=is_timed)
        return History(
            rows,
            about,
            errors,
            whole_since=at.whole_after(since),
            starts_at=at.starts_after(until if since is None else since),
        )

    def lag_over_time(
        self,
        groups: Sequence[str] | None,
        topics: Sequence[TopicPartitions] = (),
        *,
        since: int,
        until: int | None = None,
        every_ms: int,
        is_timed: bool = True,
    ) -> Answer:
        """As `LagQueries.lag_over_time`; unless `is_timed`, the two columns of the lag time are null."""
        moments = self._moments(since, until, every_ms)
        lags, about = self._lag_series(groups, topics, moments, is_timed=is_timed)
        return Answer(series_rows(lags), about, about.loading_of(groups))

    def lag_sums_over_time(
        self,
        groups: Sequence[str] | None,
        topics: Sequence[TopicPartitions] = (),
        *,
        since: int,
        until: int | None = None,
        every_ms: int,
    ) -> Answer:
        """Return the sums of the rows of `lag_over_time` at each moment, also at moments without rows (schema
        `LAG_SUMS`)."""
        moments = self._moments(since, until, every_ms)
        lags, about = self._lag_series(groups, topics, moments, is_timed=False)
        return Answer(lag_sums(lags, moments), about, about.loading_of(groups))

    def _lag_series(
        self,
        groups: Sequence[str] | None,
        topics: Sequence[TopicPartitions],
        moments: Index,
        *,
        is_timed: bool,
    ) -> tuple[Iterable[LagSeries], AsOf]:
        """Return the lag of groups at moments (ms), one part of the topics at a time."""
        start, end = int(moments[0]), int(moments[-1])
        about = AsOf.at(groups, self.at)
        read = self.at.commits(groups, topics, since=start - self.max_age_ms + 1, in_order=False)
        commits = self._commits(read, about, groups, topics, since=start, until=end)
        runs, keys = CommitRuns.of(commits, Samples.of(_NO_SAMPLES), until=end, max_age_ms=self.max_age_ms)
        if len(keys) * len(moments) > _MOST_ROWS:
            raise MisuseError(
                f"expected at most {_MOST_ROWS} rows, found {len(keys)} positions at {len(moments)} "
                "moments. Name fewer groups or topics, or choose longer steps."
            )
        series = Series.of(runs, keys, moments)
        if not len(present := series.present):
            return [LagSeries.unknown(series)], about
        parts, why_no_lag = _parts(take(keys, present), series.at)
        if why_no_lag:
            return [LagSeries.unknown(series)], replace(about, why_no_lag=why_no_lag)
        some = (series.of_positions(present[part]) for part in parts)
        return assess_lag_along(self.at, some, commits=read, terms=self._terms, is_timed=is_timed), about

    def names(self, groups: Sequence[str] | None = None, *, among: Among = "live") -> KnownNames:
        """Return the names that answers may contain: those `among` these, and assigned topics and partitions
        without a commit."""
        keys = self.at.keys(groups, among=among)
        assigned = with_assigned(keys.slice(0, 0), self.at.groups(groups), self.at, self.at.moment)
        return KnownNames.of(pa.concat_tables([keys, assigned]))

    # --- health ----------------------------------------------------------------------------------------

    def health(
        self, groups: Sequence[str] | None = None, topics: Sequence[TopicPartitions] = ()
    ) -> JudgedGroups:
        answer = self.assessed(lag_rows.HEALTH, groups, topics)
        judged = answer.rows.select(KEY_NAMES)
        return JudgedGroups(group_health(answer.rows), answer.as_of, answer.errors, positions=judged)

    def partition_health(
        self, groups: Sequence[str] | None = None, topics: Sequence[TopicPartitions] = ()
    ) -> Answer:
        return _in_order(self.assessed(lag_rows.HEALTH, groups, topics))

    def health_changes(
        self,
        groups: Sequence[str] | None,
        topics: Sequence[TopicPartitions] = (),
        *,
        since: int,
        until: int | None = None,
    ) -> JudgedGroups:
        moments = self._moments(since, until, max(1, self.rules.window_ms // 10))
        start, end = int(moments[0]), int(moments[-1])
        about, first = AsOf.at(groups, self.at), first_needed(start, self.rules)
        read = self.at.commits(groups, topics, since=first + 1, in_order=False)
        commits = self._commits(read, about, groups, topics, since=first, until=end)
        rows, judged = assess_health_changes(
            self.at,
            commits,
            groups,
            moments=moments,
            terms=self._terms,
            chosen=lambda keys: of_topics(about.of_loaded(keys), topics),
        )
        return JudgedGroups(rows, about, about.loading_of(groups), positions=judged)

    def rewinds(
        self,
        groups: Sequence[str] | None,
        topics: Sequence[TopicPartitions] = (),
        *,
        since: int,
        until: int | None = None,
    ) -> Answer:
        return self.rewinds_among(self.at.rewinds(groups, topics, since=since, until=until), groups)

    def rewinds_among(self, rows: pa.Table, groups: Sequence[str] | None = None) -> Answer:
        """Return the rewinds among commits of lower offsets (schema `REWINDS`) of groups (None: all): those
        after which the topic was the same."""
        back = rows.filter(from_mask(~self._of_other_log(rows)))
        who = self.at.group_steps(pc.unique(back["group"]).to_pylist())
        about = AsOf.at(groups, self.at)
        return Answer(with_who(back, who), about, about.loading_of(groups))

    def _with_commits_to_new_topics(
        self,
        steps: pa.Table,
        groups: Sequence[str] | None,
        topics: Sequence[TopicPartitions],
        until: int | None,
    ) -> pa.Table:
        """Change the event of a `rewind` to `commit` if its topic was recreated since the commit before."""
        is_back = to_mask(pc.equal(steps["event"], "rewind"))
        if not is_back.any():
            return steps
        first = int(to_numbers(to_milliseconds(steps["batch_time"]))[is_back].min())
        back = self.at.rewinds(groups, topics, since=first, until=until)
        back = back.filter(from_mask(self._of_other_log(back)))
        named = ["sequence", *KEY_NAMES]
        recreated = set(zip(*(back[name].to_pylist() for name in named), strict=True))
        if not recreated:
            return steps
        keys = zip(*(steps[name].to_pylist() for name in named), strict=True)
        is_recreated = np.array([key in recreated for key in keys], np.bool_)
        event = pc.if_else(from_mask(is_recreated & is_back), "commit", steps["event"])
        return steps.set_column(steps.schema.get_field_index("event"), "event", event)

    def _of_other_log(self, rewinds: pa.Table) -> Mask:
        if not len(rewinds):
            return np.zeros(0, np.bool_)
        untold = topics_in(rewinds.filter(from_mask(~are_ids_known(rewinds))))
        seen = self.at.topics_over_time(untold, as_of=self.at.moment) if untold else no_rows(TOPICS_OVER_TIME)
        return is_of_other_log(rewinds, seen)

    # --- recreated topics and restored offsets ---------------------------------------------------------

    def topic_contradictions(self, groups: Sequence[str] | None = None) -> Answer:
        def more(about: AsOf, offsets: pa.Table) -> pa.Table:
            seen = self.at.topics_over_time(topics_in(offsets), as_of=about.moment)
            return contradictions(offsets, seen)

        return _in_order(self._answer(more, groups, ()))

    def restore(self, groups: Sequence[str] | None, topics: Sequence[TopicPartitions] = ()) -> Answer:
        answer = _in_order(self._answer(lambda _, offsets: offsets, groups, topics))
        return replace(answer, rows=self.to_restore(answer.rows))

    def to_restore(self, offsets: pa.Table) -> pa.Table:
        """Return committed offsets of the past as positions to restore (schema `RESTORED`), in the same
        order, with warnings where their logs have changed since."""
        now, asked = self.at.newest(), topics_in(offsets)
        ends = now.newest_ends(asked, as_of=now.moment, within_ms=self.max_age_ms)
        topics_seen = now.topics_over_time(asked, as_of=now.moment)
        return restored(offsets, ends, topics_seen, max_age_ms=self.max_age_ms, now=now.moment)

    # ---------------------------------------------------------------------------------------------------

    def end(self, now: int) -> int:
        """Return the end (ms) of a time until now: the last heartbeat if the job's clock is ahead, so that
        the time includes the newest batches.

        A heartbeat after `now` alone does not show that: the tables may have been opened later.
        """
        heartbeat = self.at.progress.heartbeat
        return heartbeat if heartbeat > self.at.moment and not self.at.is_past else now

    def assessed(
        self, facts: Facts, groups: Sequence[str] | None, topics: Sequence[TopicPartitions]
    ) -> Answer:
        about = AsOf.at(groups, self.at)
        positions, own = lag_rows.positions(self.at, about, groups, topics)
        rows = assess(self.at, positions, facts, moment=about.moment, terms=self._terms, groups=own)
        return Answer(rows, about, about.loading_of(groups))

    def _answer(
        self,
        more: Callable[[AsOf, pa.Table], pa.Table],
        groups: Sequence[str] | None,
        topics: Sequence[TopicPartitions],
    ) -> Answer:
        """Return `more` of the offsets of groups whose offsets partition is loaded, in no order."""
        about = AsOf.at(groups, self.at)
        offsets = about.of_loaded(self.at.offsets(groups, topics))
        return Answer(more(about, offsets), about, about.loading_of(groups))

    def _commits(
        self,
        read: pa.Table,
        about: AsOf,
        groups: Sequence[str] | None,
        topics: Sequence[TopicPartitions],
        *,
        since: int,
        until: int,
    ) -> pa.Table:
        """Return the commits of groups between two moments (ms) among those that were `read`, and their
        committed offsets before: the columns `COMMITS`, and sequence."""
        base = lag_rows.base_commits(self.at, about, groups, topics, since)
        is_late = pc.greater(read["written_at"], timestamp(since))
        is_then = pc.and_(is_late, pc.less_equal(to_milliseconds(read["committed_at"]), until))
        rows = about.of_loaded(read.filter(is_then)).select([*COMMITS.names, "sequence"])
        return pa.concat_tables([base.cast(rows.schema), rows])

    def _with_lag(self, steps: pa.Table, about: AsOf, *, is_timed: bool) -> tuple[pa.Table, AsOf]:
        """Add the columns `LAG` to steps, one part of the topics at a time."""
        if not len(steps):
            return with_log_ends(steps, {}), about
        moments = to_numbers(to_milliseconds(steps["batch_time"]))
        parts, why_no_lag = _parts(steps, moments)
        if why_no_lag:
            return with_log_ends(steps, {}), replace(about, why_no_lag=why_no_lag)
        found = [
            assess_lag_of_steps(
                self.at, take(steps, part), moments=moments[part], terms=self._terms, is_timed=is_timed
            )
            for part in parts
        ]
        return take(pa.concat_tables(found), np.argsort(np.concatenate(parts))), about

    def _moments(self, since: int, until: int | None, every_ms: int) -> Index:
        """Return regular moments (ms) from `since` to `until` (None: `end`), inclusive. Raises `MisuseError`
        if they are in the future, for which there are no offsets yet."""
        end = self.end(self.at.moment) if until is None else until
        if end > (latest := max(self.at.moment, self.at.progress.heartbeat)):
            raise MisuseError(f"until: expected a time up to {iso(latest)}, found {iso(end)}.")
        if end < since:
            raise MisuseError(
                f"until: expected a time after {iso(since)}, found {iso(end)}, which is before it."
            )
        if every_ms < 1 or (end - since) // every_ms > _MOST_MOMENTS:
            raise MisuseError(
                f"expected at most {_MOST_MOMENTS} moments between {iso(since)} and {iso(end)}, found one "
                f"every {every_ms} ms. Choose a shorter time, or longer steps."
            )
        return np.append(np.arange(since, end, every_ms, dtype=np.int64), end)


def _in_order(answer: Answer) -> Answer:
    return replace(answer, rows=sorted_by(answer.rows, *KEY_NAMES))


def _parts(rows: pa.Table, moments: Index) -> tuple[list[Index], str | None]:
    """Split n rows (with topic and partition; n > 0) into parts as `parts_by_topic` does, for the samples of
    the time of some moments (ms). The second value is the reason if these are too many to be read."""
    minutes = int(moments.max() - moments.min()) // MINUTE_MS + 1
    parts, samples = lag_rows.parts_by_topic(rows, minutes=minutes)
    if samples <= MOST_SAMPLES:
        return parts, None
    needed = f"about {samples / 1e6:.0f} million samples of log ends"
    return [], f"{needed} would be read for it; name groups or topics, or a shorter time"
