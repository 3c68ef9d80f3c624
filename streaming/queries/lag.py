"""Lag and health of groups, answered from the tables: for now and for past moments, without a broker."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from streaming.common.times import to_ms
from streaming.lag.positions import MAX_AGE_MS
from streaming.lag.rules import HealthRules
from streaming.lag.summary import By
from streaming.queries.answers import Answer, History
from streaming.queries.bound.lag import SnapshotLagQueries
from streaming.queries.names import TopicPartitions
from streaming.tables.tables import Tables

T = TypeVar("T")


@dataclass(frozen=True)
class LagQueries:
    """How far groups are behind, and whether they are well.

    Each is asked of a snapshot of its own; ask `SnapshotLagQueries` what belongs together.

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
        with_owners: bool = False,
    ) -> Answer:
        """Return the committed offsets of the named groups or of all, sorted by key, with the columns `LAG`.

        Partitions that members have and nothing is committed for are among them: all but the key, where the
        log ends and source_partition is null. `with_former` appends `of_recreated_topic`: the offset points
        into the log of a topic that was deleted; `with_owners` which member has the partition (columns
        `OWNER`).
        """
        asked, more = _listed(groups), {"with_former": with_former, "with_owners": with_owners}
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
        """Return who is behind (schema `LAG_BY`), one row per group or topic, the furthest behind first.

        With `min_lag` or `min_seconds` only those that are known to be so far behind.
        """
        asked = _listed(groups)
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
        """Return how positions moved (schema `HISTORY`, and the columns `LAG` of every step as of its batch),
        in order: one step of a key for each batch.

        Of one group, of several, or of all (None); all steps that are kept, or those since a moment and until
        another, these included; of all `EVENTS` or of some (`MisuseError` for others). Named groups whose
        offsets partition is still being read have an error, and the steps that were read so far. All lags are
        null, and `as_of.why_no_lag` says why, where they would need more than `MOST_SAMPLES`.
        """
        asked = [groups] if isinstance(groups, str) else _listed(groups)
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
        """Return positions and their lag at regular moments (columns at, `KEY_NAMES`, committed_offset, `LAG`
        and commit_timestamp), in the order of time and key. What was not there at a moment has no row.
        Raises `MisuseError` where the answer would be too large; of too many samples see `list_history`."""
        asked, start, end = _listed(groups), to_ms(since), to_ms(until)
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
        """Return the status of the named groups or of all (schema `GROUP_HEALTH`), the worst first."""
        asked = _listed(groups)
        return self._ask(as_of, lambda at: at.health(asked, topics))

    def partition_health(
        self,
        groups: Collection[str] | None = None,
        topics: Sequence[TopicPartitions] = (),
        as_of: datetime | None = None,
    ) -> Answer:
        """Return the status of each position: offsets with the columns `LAG` and `PARTITION_HEALTH`, sorted
        by key."""
        asked = _listed(groups)
        return self._ask(as_of, lambda at: at.partition_health(asked, topics))

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
        asked, start, end = _listed(groups), to_ms(since), to_ms(until)
        return self._ask(None, lambda at: at.health_changes(asked, topics, since=start, until=end))

    def rewinds(
        self,
        groups: Collection[str] | None,
        topics: Sequence[TopicPartitions] = (),
        *,
        since: datetime,
        until: datetime | None = None,
    ) -> Answer:
        """Return the commits that went back (schema `REWINDS`, and `WHO` can have done it), in order; of
        commits within one batch the last is known. One to a topic that was recreated is none."""
        asked, start, end = _listed(groups), to_ms(since), to_ms(until)
        return self._ask(None, lambda at: at.rewinds(asked, topics, since=start, until=end))

    # --- topics recreated, and positions put back ------------------------------------------------------

    def topic_contradictions(
        self, groups: Collection[str] | None = None, as_of: datetime | None = None
    ) -> Answer:
        """Return the offsets whose own topic id is not the one that their topic was seen with when they were
        committed (`seen_topic_id`)."""
        asked = _listed(groups)
        return self._ask(as_of, lambda at: at.topic_contradictions(asked))

    def restore(
        self,
        groups: Collection[str] | None,
        topics: Sequence[TopicPartitions] = (),
        *,
        as_of: datetime,
    ) -> Answer:
        """Return the positions of groups at a past moment (schema `RESTORED`), sorted by key, to be put back:
        with a warning where their logs, as they are now, are not what they were, or not known."""
        asked = _listed(groups)
        return self._ask(as_of, lambda at: at.restore(asked, topics))

    # ---------------------------------------------------------------------------------------------------

    def _ask(self, as_of: datetime | None, question: Callable[[SnapshotLagQueries], T]) -> T:
        return self.tables.ask(
            lambda at: question(SnapshotLagQueries(at, self.max_age_ms, self.rules)), as_of=to_ms(as_of)
        )


def _listed(groups: Collection[str] | None) -> list[str] | None:
    return None if groups is None else list(groups)
