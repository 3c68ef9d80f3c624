"""Positions for the rules about lag: read once for each new version of `log_ends`, and only if such a rule
is on."""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from streaming.alerts.rules.subjects import (
    HEALTH_RULES,
    LAG_RULE,
    LAG_RULES,
    RECREATED_TOPIC_RULE,
    STOPPED_RULE,
    GroupPolicies,
)
from streaming.alerts.rules.view import LagRows, of_partitions
from streaming.assessment.assess import Facts, Terms, assess
from streaming.assessment.owners import with_assigned
from streaming.assessment.uncommitted import is_uncommitted
from streaming.common.arrays import where
from streaming.lag.habits import Habits
from streaming.lag.health_rules import HealthRules
from streaming.lag.positions import habits_by
from streaming.lag.samples import MAX_SAMPLE_AGE_MS
from streaming.model.schemas import OFFSETS
from streaming.tables.snapshot import Snapshot


@dataclass(frozen=True)
class LastReading:
    """The version of `log_ends` that was read, and the time of reading (ms)."""

    version: int
    at: int


class Positions:
    """Reads positions with lag and health when there are new samples."""

    def __init__(self, policies: GroupPolicies, health: HealthRules | None = None) -> None:
        self._policies = policies
        self._health = health or HealthRules()
        self._habits = dict[int, Habits]()  # by part
        self.is_wanted: Final = self._policies.has_on(*LAG_RULES)
        self._needs_uncommitted: Final = self._policies.has_on(STOPPED_RULE)

    def new_reading(self, at: Snapshot, now: int, last: LastReading | None) -> LastReading | None:
        """Return the reading that is due; None if there are no new samples since `last`, or no offsets
        partition can be judged."""
        if not self.is_wanted or not at.completeness.complete or at.log_ends is None:
            return None
        version = at.log_ends.version()
        if last is not None and last.version == version and now - last.at < MAX_SAMPLE_AGE_MS:
            return None
        return LastReading(version, now)

    def read(self, at: Snapshot, offsets: pa.Table, groups: pa.Table, now: int, *, part: int = 0) -> LagRows:
        """Read the positions for the rules, given the offsets and groups of a part of the tables. Usual
        pauses are cached for each part."""
        completeness, judged = at.completeness, at.completeness.complete
        moment = min(now, completeness.read_until(judged))  # all commits up to then are known
        own = of_partitions(self._policies.with_on(offsets.select(OFFSETS.names), *LAG_RULES), judged)
        if self._needs_uncommitted:
            theirs = of_partitions(self._policies.with_on(groups, STOPPED_RULE), judged)
            own = with_assigned(own, theirs, at, moment)
        habits = self._habits.setdefault(part, habits_by(self._health))
        return self._rows(at, own, groups, moment, habits)

    def _rows(
        self, at: Snapshot, offsets: pa.Table, groups: pa.Table, moment: int, habits: Habits
    ) -> LagRows:
        lacks_commit = is_uncommitted(offsets)
        facts = Facts(
            lag=True,
            lag_time=self._policies.has_on(LAG_RULE),
            sampling=True,
            health=self._policies.are_on(offsets, *HEALTH_RULES),
            recreated_topic=self._policies.are_on(offsets, RECREATED_TOPIC_RULE),
            log_start=self._needs_uncommitted,
            owner=lacks_commit if self._needs_uncommitted else False,
        )
        terms = Terms(rules=self._health)
        rows = assess(at, offsets, facts, moment=moment, terms=terms, groups=groups, habits=habits)
        return LagRows(
            moment=moment,
            health=self._health,
            offsets=where(rows, ~lacks_commit),
            uncommitted=where(rows, lacks_commit),
        )
