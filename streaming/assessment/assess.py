"""The assessment of committed offsets at one moment, with only the requested columns.

Each fact reads from an `AssessmentSource` only what it needs. Sources are the snapshots of the tables and the
snapshots in memory.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.assessment import uncommitted
from streaming.assessment.explained import may_be_markers, reasons_of_members, with_lag_seconds_reason
from streaming.assessment.owners import OWNER, owned_partitions, with_owners
from streaming.assessment.uncommitted import had_since, is_uncommitted, uncommitted_health
from streaming.common.arrays import Index, Mask, from_mask, to_mask
from streaming.common.keys import KEY_NAMES
from streaming.common.pieces import take
from streaming.expiry.rules import expiry
from streaming.lag.habits import Habits
from streaming.lag.health import PARTITION_HEALTH, given, status_numbers, with_columns
from streaming.lag.health_rules import HealthRules
from streaming.lag.lagging import lagging_since
from streaming.lag.positions import (
    SeriesReader,
    lag_along,
    lag_of_steps,
    offsets_with_lag,
    topics_in,
    with_currency,
    with_health,
)
from streaming.lag.recreated_topic import OF_RECREATED_TOPIC, of_recreated_topic
from streaming.lag.samples import MAX_SAMPLE_AGE_MS, NONE, Samples
from streaming.lag.series import LagSeries, Series
from streaming.model.completeness import STALLED, Completeness

IS_SAMPLED: Final = pa.field("is_sampled", pa.bool_())

_RECREATED_TOPIC: Final = pa.schema([OF_RECREATED_TOPIC])

Some = Mask | bool
"""The n offsets for which a fact is computed: those of a mask, all (True), or none (False)."""


class AssessmentSource(uncommitted.UncommittedSource, Protocol):
    """The tables as of one moment, with their completeness."""

    @property
    def completeness(self) -> Completeness: ...

    def groups(self, groups: Sequence[str] | None = None) -> pa.Table:
        """Read the named groups (None: all; schema `GROUPS`)."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The requested facts. Each adds columns to the offsets:

    - `lag`: the columns `LAG`, of which the two of the lag time are null;
    - `lag_time`: also lag_seconds and lag_is_at_least, which need older samples, and lag_seconds_reason: why
      lag_seconds is null although the lag is known;
    - `log_start`: log_start_offset, as of the sample of the log end;
    - `sampling`: is_sampled: the log end was sampled without a gap for a window of the rules of health, or
      the position is not behind;
    - `health`: the columns `PARTITION_HEALTH`;
    - `recreated_topic`: of_recreated_topic;
    - `owner`: the columns `OWNER`; needs the members of groups;
    - `expiry`: rule, clock_starts_at and expires_at, for this retention of the brokers (ms).

    A fact requested for some of the offsets is null for the others. All but the last three need `lag`.
    """

    lag: bool = False
    lag_time: bool = False
    log_start: bool = False
    sampling: bool = False
    health: Some = False
    recreated_topic: Some = False
    owner: Some = False
    expiry: int | None = None


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The parameters of an assessment: samples of log ends older than `max_age_ms` do not count, and
    `rules` decide the health."""

    max_age_ms: int = MAX_SAMPLE_AGE_MS
    rules: HealthRules = field(default_factory=HealthRules)


def assess(
    at: AssessmentSource,
    offsets: pa.Table,
    facts: Facts,
    *,
    moment: int,
    terms: Terms | None = None,
    groups: pa.Table | None = None,
    habits: Habits | None = None,
) -> pa.Table:
    """Append the requested facts at `moment` (ms) to n committed offsets (schema `OFFSETS`, or those of its
    columns that the facts need), in their order.

    Rows without a committed offset, as `with_assigned` appends them, have an unknown lag, but a health.
    `groups` (schema `GROUPS`) are the groups of the offsets; None: they are read if a fact needs them.
    Repeated callers pass `habits`, which cache the usual pauses of positions. Raises the errors of the
    source.
    """
    asked, rows = _Asked(at, moment, terms or Terms(), habits, groups), offsets
    if facts.lag:
        within = asked.terms.max_age_ms
        timed, starts = facts.lag_time, facts.log_start
        rows = offsets_with_lag(
            at, rows, moment=moment, max_age_ms=within, is_timed=timed, with_starts=starts
        )
        if facts.lag_time:
            rows = with_lag_seconds_reason(rows, may_be_markers(at, rows, moment, asked.groups_of))
    if facts.sampling:
        rows = rows.append_column(IS_SAMPLED, from_mask(asked.is_sampled(rows)))
    rows = _with(rows, PARTITION_HEALTH, facts.health, asked.health)
    rows = _with(rows, _RECREATED_TOPIC, facts.recreated_topic, asked.recreated_topic)
    rows = _with(rows, OWNER, facts.owner, asked.owner)
    if facts.expiry is not None:
        rows = expiry(rows, asked.groups_of(rows), facts.expiry, stalled=at.completeness.of_state(STALLED))
    return rows


def assess_lag_along(
    at: SeriesReader,
    parts: Iterable[Series],
    *,
    commits: pa.Table,
    terms: Terms | None = None,
    is_timed: bool = True,
) -> Iterator[LagSeries]:
    """Yield the lag of series; unless `is_timed`, without the lag time. `parts` and `commits` as in
    `lag_along`. Raises the errors of the source."""
    within = (terms or Terms()).max_age_ms
    return lag_along(at, parts, commits, max_age_ms=within, is_timed=is_timed)


def assess_lag_of_steps(
    at: AssessmentSource,
    steps: pa.Table,
    *,
    moments: Index,
    terms: Terms | None = None,
    is_timed: bool = True,
) -> pa.Table:
    """Add the columns `LAG` to n commits (`KEY` and committed_offset; n > 0), as of their own moments (n
    ms): the lag that each commit left; unless `is_timed`, the two columns of the lag time are null. Raises
    the errors of the source."""
    within, until = (terms or Terms()).max_age_ms, at.completeness.moment
    return lag_of_steps(at, steps, moments=moments, until=until, max_age_ms=within, is_timed=is_timed)


def assess_lagging(
    at: AssessmentSource, positions: pa.Table, *, moment: int, terms: Terms | None = None
) -> pa.Table:
    """Return since when n positions (`KEY`, committed_offset, topic_id, and lag at `moment`, ms) lag: n
    rows (schema `LAGGING`). Raises the errors of the source."""
    own = terms or Terms()
    min_lag = own.rules.min_lag
    return lagging_since(at, positions, moment=moment, max_age_ms=own.max_age_ms, min_lag=min_lag)


@dataclass(frozen=True)
class _Asked:
    """The facts of one source at one moment: each method takes rows of offsets and returns its columns of
    them."""

    at: AssessmentSource
    moment: int
    terms: Terms
    habits: Habits | None
    groups: pa.Table | None

    def groups_of(self, rows: pa.Table) -> pa.Table:
        """Return the groups of rows, and possibly others."""
        return self.at.groups(pc.unique(rows["group"]).to_pylist()) if self.groups is None else self.groups

    def health(self, rows: pa.Table) -> pa.Table:
        current = with_currency(rows, self.at.completeness.complete)
        lacks_commit = is_uncommitted(rows)
        if not lacks_commit.any():
            return self._of_committed(current)
        found = [
            self._of_committed(current.filter(from_mask(~lacks_commit))),
            self._of_uncommitted(current.filter(from_mask(lacks_commit))),
        ]
        order = np.argsort(np.argsort(lacks_commit, kind="stable"), kind="stable")
        return take(pa.concat_tables(found), order)

    def _of_committed(self, rows: pa.Table) -> pa.Table:
        found = with_health(
            self.at,
            rows,
            moment=self.moment,
            max_age_ms=self.terms.max_age_ms,
            rules=self.terms.rules,
            habits=self.habits,
        )
        health = found.select(PARTITION_HEALTH.names)
        statuses = status_numbers(health)
        return given(health, reasons_of_members(self.at, rows, statuses, self.moment, self.groups_of))

    def _of_uncommitted(self, rows: pa.Table) -> pa.Table:
        rules, within = self.terms.rules, self.terms.max_age_ms
        since = self.moment - rules.window_ms
        sampled = self.at.ends_between(topics_in(rows), since=since, until=self.moment, within_ms=within)
        had = had_since(self.at, self.groups_of(rows), self.moment)
        moments = np.full(len(rows), self.moment, np.int64)
        return uncommitted_health(self.at, rows, had, sampled, moments=moments, rules=rules)

    def recreated_topic(self, rows: pa.Table) -> pa.Table:
        seen = self.at.topics_over_time(topics_in(rows), as_of=self.moment)
        return pa.table([of_recreated_topic(rows, seen)], schema=_RECREATED_TOPIC)

    def owner(self, rows: pa.Table) -> pa.Table:
        owned = owned_partitions(self.groups_of(rows), self.at, self.moment)
        return with_owners(rows.select(KEY_NAMES), owned).select(OWNER.names)

    def is_sampled(self, rows: pa.Table) -> Mask:
        """Return for n rows whether the sampling had no gap, because a gap hides when records came."""
        is_behind = to_mask(pc.greater(rows["lag"], self.terms.rules.min_lag)) | is_uncommitted(rows)
        behind = rows.filter(from_mask(is_behind))
        since = self.moment - self.terms.rules.window_ms
        samples = Samples.of(
            self.at.ends_between(topics_in(behind), since=since, until=self.moment, within_ms=0)
        )
        is_sampled: Mask = ~is_behind
        is_sampled[np.flatnonzero(is_behind)] = samples.is_throughout(
            samples.places.codes_of(behind), since, self.moment, self.terms.max_age_ms
        )
        return is_sampled


def _with(
    rows: pa.Table, added: pa.Schema, some: Some, columns_of: Callable[[pa.Table], pa.Table]
) -> pa.Table:
    """Append to n rows the columns that `columns_of` computes for some of them, null for the others."""
    if isinstance(some, bool):
        return with_columns(rows, columns_of(rows)) if some else rows
    if not some.any():
        return with_columns(
            rows, pa.table([pa.nulls(len(rows), field.type) for field in added], schema=added)
        )
    places = np.where(some, np.cumsum(some) - 1, NONE)
    return with_columns(rows, take(columns_of(rows.filter(from_mask(some))), places))
