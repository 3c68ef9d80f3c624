"""Reads what rules about lag look at: once for each round of samples of log ends, and only if one is on."""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from streaming.alerts.rules.subjects import (
    FORMER_TOPIC_RULE,
    HEALTH_RULES,
    LAG_RULE,
    LAG_RULES,
    GroupPolicies,
)
from streaming.alerts.rules.view import LagRows, of_partitions
from streaming.assessment.assess import Facts, Terms, assess
from streaming.lag.positions import MAX_AGE_MS, habits_by
from streaming.lag.rules import HealthRules
from streaming.model.schemas import OFFSETS
from streaming.settings.model import AlertSettings
from streaming.tables.snapshot import Snapshot


@dataclass(frozen=True)
class Looked:
    """Up to which version of `log_ends` was read, and when (ms)."""

    version: int
    at: int


class Positions:
    """Reads positions with their lag when there are new samples."""

    def __init__(self, settings: AlertSettings, health: HealthRules | None = None) -> None:
        self._policies = GroupPolicies(settings)
        self._health = health or HealthRules()
        self._habits = habits_by(self._health)
        self.is_wanted: Final = self._policies.has_on(*LAG_RULES)

    def look(
        self, at: Snapshot, offsets: pa.Table, now: int, last: Looked | None
    ) -> tuple[LagRows, Looked] | None:
        """Read what the rules look at; None: there is nothing new since they `last` did, or nothing that can
        be judged."""
        completeness = at.completeness
        judged = completeness.complete
        if not self.is_wanted or not judged or at.log_ends is None:
            return None
        version = at.log_ends.version()
        if last is not None and last.version == version and now - last.at < MAX_AGE_MS:
            return None
        moment = min(now, completeness.read_until(judged))  # all commits that are judged are known
        own = of_partitions(self._policies.with_on(offsets.select(OFFSETS.names), *LAG_RULES), judged)
        return self._rows(at, own, moment), Looked(version, now)

    def _rows(self, at: Snapshot, offsets: pa.Table, moment: int) -> LagRows:
        facts = Facts(
            lag=True,
            lag_time=self._policies.has_on(LAG_RULE),
            sampling=True,
            health=self._policies.are_on(offsets, *HEALTH_RULES),
            former_topic=self._policies.are_on(offsets, FORMER_TOPIC_RULE),
        )
        rows = assess(at, offsets, facts, moment=moment, terms=Terms(rules=self._health), habits=self._habits)
        return LagRows(moment=moment, health=self._health, offsets=rows)
