"""Lag and health of groups, from the tables: for now and for past moments, without a broker."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from streaming.common.times import to_ms
from streaming.common.topics import TopicPartitions
from streaming.lag.health_rules import HealthRules
from streaming.lag.samples import MAX_SAMPLE_AGE_MS
from streaming.lag.summary import By
from streaming.queries.answers import Answer, History
from streaming.queries.bound.lag import SnapshotLagQueries
from streaming.queries.offsets import listed
from streaming.tables.tables import Tables

T = TypeVar("T")


@dataclass(frozen=True)
class LagQueries:
    """Lag and health of groups.

    Each method reads a snapshot of its own; `SnapshotLagQueries` answers several questions from one.

    `as_of` and errors are as in `OffsetQueries`. Lag is computed with the newest samples of log ends at that
    moment, whose time is in each row (`ends_as_of`); samples older than `max_age_ms` do not count. `rules`
    are those of health.

        >>> queries = LagQueries(Tables("warehouse"))
        >>> queries.list_lag(min_seconds=600).rows.to_pylist()  # doctest: +SKIP
    """

    tables: Tables
    max_age_ms: int = MAX_SAMPLE_AGE_MS
    rules: HealthRules = field(default_factory=HealthRules)

    # --- lag -------------------------------------------------------------------------------------------

    def list_offsets(
        self,
        groups: Collection[str] | None = None,
        topics: Sequence[TopicPartitions] = (),
        as_of: datetime | None = None,
        *,
        with_former: bool = False,
        with_owners: bool = False,
    ) -> Answer:
        """Return the committed offsets of groups (None: all), sorted by key, with the columns `LAG`.

        Assigned partitions without a commit are included: only the key, the log ends and source_partition are
        not null. `with_former` appends `of_recreated_topic`: the offset points into the log of a deleted
        topic; `with_owners` appends the member that owns the partition (columns `OWNER`).
        """
        asked, more = listed(groups), {"with_former": with_former, "with_owners": with_owners}
        return self._ask(as_of, lambda at: at.list_offsets(asked, topics, **more))

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
        """Return one row per group or topic (schema `LAG_BY`), the furthest behind first.

        `min_lag` and `min_seconds` keep only rows whose lag is known and at least so large.
        """
        asked = listed(groups)
        return self._ask(
            as_of,
            lambda at: at.list_lag(asked, topics, by=by, min_lag=min_lag, min_seconds=min_seconds),
        )

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
        """Return the steps of committed offsets (schema `HISTORY`, and the columns `LAG` of each step as of
        its batch), in order: one step of a key for each batch.

        Of one group, of several, or of all (None); all kept steps, or those between `since` and `until`
        (inclusive); of all `EVENTS` or of some (`MisuseError` for others). Named groups whose offsets
        partition is still loading get an error and the steps read so far. Where the lag would need more than
        `MOST_SAMPLES`, all lags are null and `as_of.why_no_lag` has the reason.
        """
        asked = [groups] if isinstance(groups, str) else listed(groups)
        start, end = to_ms(since), to_ms(until)
        return self._ask(as_of, lambda at: at.list_history(asked, topics, start, until=end, events=events))

    def lag_over_time(
        self,
        groups: Collection[str] | None,
        topics: Sequence[TopicPartitions] = (),
        *,
        since: datetime,
        until: datetime | None = None,
        every_ms: int,
    ) -> Answer:
        """Return committed offsets and their lag at regular moments (columns at, `KEY_NAMES`,
        committed_offset, `LAG` and commit_timestamp), ordered by time and key.

        An offset that did not exist at a moment has no row. Raises `MisuseError` if `until` is in the future,
        or if the answer would be too large; about too many samples see `list_history`.
        """
        asked, start, end = listed(groups), to_ms(since), to_ms(until)
        return self._ask(
            None, lambda at: at.lag_over_time(asked, topics, since=start, until=end, every_ms=every_ms)
        )

    # --- health ----------------------------------------------------------------------------------------

    def health(
        self,
        groups: Collection[str] | None = None,
        topics: Sequence[TopicPartitions] = (),
        as_of: datetime | None = None,
    ) -> Answer:
        """Return the status of groups (None: all; schema `GROUP_HEALTH`), the worst first."""
        asked = listed(groups)
        return self._ask(as_of, lambda at: at.health(asked, topics))

    def partition_health(
        self,
        groups: Collection[str] | None = None,
        topics: Sequence[TopicPartitions] = (),
        as_of: datetime | None = None,
    ) -> Answer:
        """Return the status of each position, sorted by key: offsets with the columns `LAG` and
        `PARTITION_HEALTH`."""
        asked = listed(groups)
        return self._ask(as_of, lambda at: at.partition_health(asked, topics))

    def health_changes(
        self,
        groups: Collection[str] | None,
        topics: Sequence[TopicPartitions] = (),
        *,
        since: datetime,
        until: datetime | None = None,
    ) -> Answer:
        """Return the changes of the status of groups (schema `STATUS_CHANGES`), in order: the first status in
        that time, and one row for each change. The status is evaluated ten times per window of the rules.
        Raises `MisuseError` if `until` is in the future."""
        asked, start, end = listed(groups), to_ms(since), to_ms(until)
        return self._ask(None, lambda at: at.health_changes(asked, topics, since=start, until=end))

    def rewinds(
        self,
        groups: Collection[str] | None,
        topics: Sequence[TopicPartitions] = (),
        *,
        since: datetime,
        until: datetime | None = None,
    ) -> Answer:
        """Return the commits of lower offsets (schema `REWINDS`, and `WHO` may have committed), in order; of
        commits in one batch only the last is known. A commit to a recreated topic is no rewind."""
        asked, start, end = listed(groups), to_ms(since), to_ms(until)
        return self._ask(None, lambda at: at.rewinds(asked, topics, since=start, until=end))

    # --- recreated topics and restored offsets ---------------------------------------------------------

    def topic_contradictions(
        self, groups: Collection[str] | None = None, as_of: datetime | None = None
    ) -> Answer:
        """Return the offsets whose topic id differs from the id that their topic was seen with when they were
        committed (`seen_topic_id`)."""
        asked = listed(groups)
        return self._ask(as_of, lambda at: at.topic_contradictions(asked))

    def restore(
        self,
        groups: Collection[str] | None,
        topics: Sequence[TopicPartitions] = (),
        *,
        as_of: datetime,
    ) -> Answer:
        """Return the committed offsets of groups at a past moment (schema `RESTORED`), sorted by key, for a
        reset, with a warning where the log has since changed or is unknown."""
        asked = listed(groups)
        return self._ask(as_of, lambda at: at.restore(asked, topics))

    # ---------------------------------------------------------------------------------------------------

    def _ask(self, as_of: datetime | None, question: Callable[[SnapshotLagQueries], T]) -> T:
        return self.tables.ask(
            lambda at: question(SnapshotLagQueries(at, self.max_age_ms, self.rules)), as_of=to_ms(as_of)
        )
