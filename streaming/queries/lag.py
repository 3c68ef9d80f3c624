"""Lag and health of groups, answered from the tables: for now and for past moments, without a broker."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import Index, from_mask, from_numbers, no_rows, to_mask, to_numbers
from streaming.common.keys import KEY_NAMES
from streaming.common.pieces import take
from streaming.common.times import MINUTE_MS, now_ms, to_ms
from streaming.common.timestamps import to_milliseconds, to_timestamps
from streaming.lag.former_topic import contradictions
from streaming.lag.health import group_health
from streaming.lag.health_over_time import status_changes
from streaming.lag.lag_time import with_lag_along
from streaming.lag.log_ends import with_log_ends
from streaming.lag.positions import MAX_AGE_MS, offsets_with_lag, topics_in
from streaming.lag.restoring import restored
from streaming.lag.rewinds import with_who
from streaming.lag.rules import HealthRules
from streaming.lag.runs import COMMITS, Runs
from streaming.lag.samples import NONE, Samples
from streaming.lag.summary import By, lag_by
from streaming.model.errors import MisuseError
from streaming.model.progress import Progress
from streaming.queries import lag_rows
from streaming.queries.answers import Answer, History
from streaming.queries.completeness import AsOf
from streaming.queries.names import TopicPartitions, of_topics
from streaming.queries.queries import sorted_by
from streaming.tables.feed import EVENTS
from streaming.tables.log_ends import NEWEST_ENDS
from streaming.tables.progress_rows import Gap
from streaming.tables.snapshot import Snapshot
from streaming.tables.tables import Tables

_MOST_MOMENTS: Final = 100_000
_MOST_ROWS: Final = 10_000_000
"""Positions at moments in one answer, all of which is in memory."""

MOST_SAMPLES: Final = 10_000_000
"""Samples for the lag along the way of positions, in one answer: of 1,000 partitions over a week."""

_NO_SAMPLES: Final = no_rows(NEWEST_ENDS)

T = TypeVar("T")


@dataclass(frozen=True)
class LagQueries:
    """How far groups are behind, and whether they are well.

    Questions take `as_of` as those of `OffsetQueries` do, and raise what these raise. Lags are as of the
    newest samples of log ends then, which every row says (`ends_as_of`); samples older than `max_age_ms` say
    nothing. `rules` are those of health.

        >>> queries = LagQueries(Tables("warehouse"))
        >>> queries.list_lag(min_seconds=600).rows.to_pylist()  # doctest: +SKIP
    """

    tables: Tables
    max_age_ms: int = MAX_AGE_MS
    rules: HealthRules = field(default_factory=HealthRules)

    # --- lag -------------------------------------------------------------------------------------------

    def list_offsets(
        self,
        groups: Collection[str] | None = None,
        topics: Sequence[TopicPartitions] = (),
        as_of: datetime | None = None,
        *,
        with_former: bool = False,
    ) -> Answer:
        """Return the committed offsets of the named groups or of all, sorted by key, with the columns `LAG`.

        `with_former` appends `of_former_topic`: the offset points into the log of a topic that was deleted.
        """

        def question(at: Snapshot, about: AsOf, offsets: pa.Table) -> pa.Table:
            rows = self._with_lag(at, about, offsets)
            return lag_rows.with_former(at, rows, moment=about.moment) if with_former else rows

        return _in_order(self._answer(question, groups, topics, as_of))

    def list_lag(
        self,
        groups: Collection[str] | None = None,
        topics: Sequence[TopicPartitions] = (),
        as_of: datetime | None = None,
        *,
        by: By = "group",
        min_lag: int | None = None,
        min_seconds: float | None = None,
    ) -> Answer:
        """Return who is behind (schema `LAG_BY`), one row per group or topic, the furthest behind first.

        With `min_lag` or `min_seconds` only those that are known to be so far behind.
        """
        if by not in ("group", "topic"):
            raise MisuseError(f"by: expected group or topic, found {by!r}.")
        answer = self._answer(self._with_lag, groups, topics, as_of)
        rows = lag_rows.far_behind(lag_by(answer.rows, by), min_lag=min_lag, min_seconds=min_seconds)
        return replace(answer, rows=rows)

    def list_history(
        self,
        groups: str | Collection[str] | None = None,
        topics: Sequence[TopicPartitions] = (),
        since: datetime | None = None,
        as_of: datetime | None = None,
        *,
        until: datetime | None = None,
        events: Sequence[str] = (),
    ) -> History:
        """Return how positions moved (schema `HISTORY`, and the columns `LAG` of every step as of its batch),
        in order: one step of a key for each batch.

        Of one group, of several, or of all (None); all steps that are kept, or those since a moment and until
        another, these included; of all `EVENTS` or of some (`MisuseError` for others). Named groups whose
        offsets partition is still being read have an error, and the steps that were read so far. All lags are
        null, and `as_of.why_no_lag` says why, where they would need more than `MOST_SAMPLES`.
        """
        if unknown := set(events).difference(EVENTS):
            raise MisuseError(f"events: expected some of {', '.join(EVENTS)}; found {min(unknown)!r}.")
        names = [groups] if isinstance(groups, str) else None if groups is None else list(groups)
        start, end, moment = to_ms(since), to_ms(until), to_ms(as_of)
        steps, whole_since, starts_at, progress, gap = self.tables.ask(
            lambda at: (
                of_topics(at.history(names, since=start, until=end, events=events), topics),
                at.whole_since(),
                at.starts_after(end if start is None else start),
                at.progress,
                at.gap,
            ),
            as_of=moment,
            bases=[],
        )
        about = AsOf.of(names, progress, gap, moment)
        errors = about.loading_of(names)
        written_at = to_numbers(to_milliseconds(steps["batch_time"]))
        rows, about = self._along(steps, "batch_time", written_at, about)
        is_whole = start is not None and whole_since is not None and whole_since <= start
        return History(
            rows, about, errors, whole_since=None if is_whole else whole_since, starts_at=starts_at
        )

    def lag_over_time(
        self,
        groups: Collection[str] | None,
        topics: Sequence[TopicPartitions] = (),
        *,
        since: datetime,
        until: datetime | None = None,
        every_ms: int,
    ) -> Answer:
        """Return positions and their lag at regular moments (columns at, `KEY_NAMES`, committed_offset, `LAG`
        and commit_timestamp), in the order of time and key. What was not there at a moment has no row.
        Raises `MisuseError` where the answer would be too large; of too many samples see `list_history`."""
        moments = self._moments(since, until, every_ms)
        start, end = int(moments[0]), int(moments[-1])
        commits, about = self._commits(groups, topics, since=start, until=end)
        runs, own = Runs.of(commits, Samples.of(_NO_SAMPLES), until=end, max_age_ms=self.max_age_ms)
        order = to_numbers(sorted_by(lag_rows.numbered_rows(own), *KEY_NAMES)["number"])
        if len(order) * len(moments) > _MOST_ROWS:
            raise MisuseError(
                f"expected at most {_MOST_ROWS} rows, found {len(order)} positions at {len(moments)} "
                "moments. Name fewer groups or topics, or choose longer steps."
            )
        keys, at = np.tile(order, len(moments)), np.repeat(moments, len(order))
        lasts = runs.last_until(keys, at)
        is_there = np.flatnonzero((lasts != NONE) & ~runs.is_removed[lasts])
        lasts = lasts[is_there]
        rows = take(own, keys[is_there])
        columns = [
            to_timestamps(from_numbers(at[is_there])),
            *rows.columns,
            from_numbers(runs.offsets[lasts], runs.is_readable[lasts]),
            to_timestamps(from_numbers(runs.at[lasts])),
        ]
        table = pa.table(columns, ["at", *KEY_NAMES, "committed_offset", "commit_timestamp"])
        written_at = runs.written_at[runs.stands_since[lasts]]
        table, about = self._along(table, "at", written_at, about)
        return Answer(table, about, about.loading_of(groups))

    # --- health ----------------------------------------------------------------------------------------

    def health(
        self,
        groups: Collection[str] | None = None,
        topics: Sequence[TopicPartitions] = (),
        as_of: datetime | None = None,
    ) -> Answer:
        """Return the status of the named groups or of all (schema `GROUP_HEALTH`), the worst first."""
        answer = self._answer(self._with_health, groups, topics, as_of)
        return replace(answer, rows=group_health(answer.rows))

    def partition_health(
        self,
        groups: Collection[str] | None = None,
        topics: Sequence[TopicPartitions] = (),
        as_of: datetime | None = None,
    ) -> Answer:
        """Return the status of each position: offsets with the columns `LAG` and `PARTITION_HEALTH`, sorted
        by key."""
        return _in_order(self._answer(self._with_health, groups, topics, as_of))

    def health_changes(
        self,
        groups: Collection[str] | None,
        topics: Sequence[TopicPartitions] = (),
        *,
        since: datetime,
        until: datetime | None = None,
    ) -> Answer:
        """Return how the status of groups changed (schema `STATUS_CHANGES`), in order: one row for each
        change, and the first status in that time. It is looked at ten times in a window of the rules."""
        moments = self._moments(since, until, max(1, self.rules.window_ms // 10))
        start, end = int(moments[0]), int(moments[-1])
        first = start - self.rules.long_silence_ms - self.rules.window_ms
        commits, about = self._commits(groups, topics, since=first, until=end)
        samples = self._samples(commits, since=first, until=end)
        rows = status_changes(
            commits,
            samples,
            moments=moments,
            max_age_ms=self.max_age_ms,
            rules=self.rules,
            habits=lag_rows.habits_in(self.tables, self.rules, self.max_age_ms, until=end),
        )
        return Answer(rows, about, about.loading_of(groups))

    def rewinds(
        self,
        groups: Collection[str] | None,
        topics: Sequence[TopicPartitions] = (),
        *,
        since: datetime,
        until: datetime | None = None,
    ) -> Answer:
        """Return the commits that went back (schema `COMMITTED`, and `WHO` can have done it), in order; of
        commits within one batch the last is known."""
        start, end = to_ms(since), now_ms() if until is None else to_ms(until)
        names = None if groups is None else list(groups)

        def question(at: Snapshot) -> tuple[pa.Table, Progress, Gap | None]:
            rows = of_topics(at.commits(names, since=start, until=end), topics)
            back = rows.filter(from_mask(to_mask(pc.less(rows["committed_offset"], rows["offset_before"]))))
            who = pc.unique(back["group"]).to_pylist()
            return with_who(back, at.group_steps(who)), at.progress, at.gap

        rows, progress, gap = self.tables.ask(question, bases=[])
        about = AsOf.of(names, progress, gap, None)
        return Answer(rows, about, about.loading_of(groups))

    # --- topics made anew, and positions put back ------------------------------------------------------

    def topic_contradictions(
        self, groups: Collection[str] | None = None, as_of: datetime | None = None
    ) -> Answer:
        """Return the offsets whose own topic id is not the one that their topic was seen with when they were
        committed (`seen_topic_id`)."""

        def question(at: Snapshot, about: AsOf, offsets: pa.Table) -> pa.Table:
            return contradictions(offsets, at.topics_over_time(topics_in(offsets), as_of=about.moment))

        return _in_order(self._answer(question, groups, (), as_of))

    def restore(
        self,
        groups: Collection[str] | None,
        topics: Sequence[TopicPartitions] = (),
        *,
        as_of: datetime,
    ) -> Answer:
        """Return the positions of groups at a past moment (schema `RESTORED`), sorted by key, to be put back:
        with a warning where their logs, as they are now, are not what they were, or not known."""
        rows, about = self._ask(lambda _, __, offsets: offsets, groups, topics, as_of)
        asked, now = topics_in(rows), now_ms()
        newest, over_time = self.tables.ask(
            lambda at: (
                at.newest_ends(asked, as_of=now, within_ms=self.max_age_ms),
                at.topics_over_time(asked, as_of=now),
            ),
            bases=[],
        )
        found = restored(sorted_by(rows, *KEY_NAMES), newest, over_time, max_age_ms=self.max_age_ms, now=now)
        return Answer(found, about, about.loading_of(groups))

    # ---------------------------------------------------------------------------------------------------

    def _with_lag(self, at: Snapshot, about: AsOf, offsets: pa.Table) -> pa.Table:
        return offsets_with_lag(at, offsets, moment=about.moment, max_age_ms=self.max_age_ms)

    def _with_health(self, at: Snapshot, about: AsOf, offsets: pa.Table) -> pa.Table:
        return lag_rows.offsets_with_health(
            at, offsets, moment=about.moment, max_age_ms=self.max_age_ms, rules=self.rules
        )

    def _answer(
        self,
        question: Callable[[Snapshot, AsOf, pa.Table], pa.Table],
        groups: Collection[str] | None,
        topics: Sequence[TopicPartitions],
        as_of: datetime | None,
    ) -> Answer:
        """Answer about the offsets of groups, in no order."""
        rows, about = self._ask(question, groups, topics, as_of)
        return Answer(rows, about, about.loading_of(groups))

    def _ask(
        self,
        question: Callable[[Snapshot, AsOf, pa.Table], pa.Table],
        groups: Collection[str] | None,
        topics: Sequence[TopicPartitions],
        as_of: datetime | None,
    ) -> tuple[pa.Table, AsOf]:
        """Ask about the offsets of groups whose offsets partition has been read, on one snapshot."""
        moment = to_ms(as_of)
        names = None if groups is None else list(groups)

        def answer(at: Snapshot) -> tuple[pa.Table, AsOf]:
            about = AsOf.of(names, at.progress, at.gap, moment)
            return question(at, about, of_topics(about.of_loaded(at.offsets(names)), topics)), about

        return self.tables.ask(answer, as_of=moment, bases=["offsets"])

    def _commits(
        self,
        groups: Collection[str] | None,
        topics: Sequence[TopicPartitions],
        *,
        since: int,
        until: int,
    ) -> tuple[pa.Table, AsOf]:
        """Read what groups committed between two moments (ms), and their positions before."""
        names = None if groups is None else list(groups)
        base = lag_rows.base_commits(self.tables, names, since, within_ms=self.max_age_ms)
        rows, progress, gap = self.tables.ask(
            lambda at: (at.commits(names, since=since + 1), at.progress, at.gap), bases=[]
        )
        about = AsOf.of(names, progress, gap, None)
        is_then = pc.less_equal(to_milliseconds(rows["committed_at"]), until)
        rows = about.of_loaded(rows.filter(is_then)).select(COMMITS.names)
        return of_topics(pa.concat_tables([base, rows]), topics), about

    def _samples(self, rows: pa.Table, *, since: int, until: int) -> pa.Table:
        asked = topics_in(rows)
        within = self.max_age_ms
        return self.tables.ask(
            lambda at: at.ends_between(asked, since=since, until=until, within_ms=within), bases=[]
        )

    def _along(self, rows: pa.Table, at: str, written_at: Index, about: AsOf) -> tuple[pa.Table, AsOf]:
        """Add the columns `LAG` to rows, each as of its own moment; some topics after the others."""
        if not len(rows):
            return with_log_ends(rows, {}), about
        bounds = pc.min_max(to_milliseconds(rows[at]))
        first, last = bounds["min"].as_py(), bounds["max"].as_py()
        parts, samples = lag_rows.parts_by_topic(rows, minutes=(last - first) // MINUTE_MS + 1)
        if samples > MOST_SAMPLES:
            needed = f"about {samples / 1e6:.0f} million samples of log ends"
            why = f"{needed} would be read for it; name groups or topics, or a shorter time"
            return with_log_ends(rows, {}), replace(about, why_no_lag=why)
        found = [self._part_along(take(rows, part), at, written_at[part], first, last) for part in parts]
        return take(pa.concat_tables(found), np.argsort(np.concatenate(parts))), about

    def _part_along(self, rows: pa.Table, at: str, written_at: Index, first: int, last: int) -> pa.Table:
        asked, positions = topics_in(rows), rows.select(["topic", "partition", "committed_offset"])
        samples, crossed = self.tables.ask(
            lambda snapshot: (
                snapshot.ends_between(asked, since=first, until=last, within_ms=self.max_age_ms),
                snapshot.crossings(positions, as_of=last),
            ),
            bases=[],
        )
        return with_lag_along(
            rows, samples, crossed, at=at, written_at=written_at, max_age_ms=self.max_age_ms
        )

    def _moments(self, since: datetime, until: datetime | None, every_ms: int) -> Index:
        """Return regular moments (ms) between two, these included."""
        start, end = to_ms(since), now_ms() if until is None else to_ms(until)
        if end < start:
            raise MisuseError(f"until: expected a time after {since}, found {until}, which is before it.")
        if every_ms < 1 or (end - start) // every_ms > _MOST_MOMENTS:
            raise MisuseError(
                f"expected at most {_MOST_MOMENTS} moments between {since} and {until or 'now'}, found one "
                f"every {every_ms} ms. Choose a shorter time, or longer steps."
            )
        return np.append(np.arange(start, end, every_ms, dtype=np.int64), end)


def _in_order(answer: Answer) -> Answer:
    return replace(answer, rows=sorted_by(answer.rows, *KEY_NAMES))
