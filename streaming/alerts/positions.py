"""Reads what rules about lag look at: once for each round of samples of log ends, and only if one is on."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.alerts.rules.subjects import FORMER_TOPIC_RULE, HEALTH_RULES, LAG_RULES, GroupPolicies
from streaming.alerts.rules.view import LagRows, judged_partitions, of_partitions
from streaming.common.arrays import Mask, from_mask, to_mask
from streaming.lag.former_topic import with_former_topic
from streaming.lag.positions import MAX_AGE_MS, habits_by, offsets_with_lag, topics_in, with_health
from streaming.lag.rules import HealthRules
from streaming.lag.samples import Samples
from streaming.model.progress import Progress
from streaming.model.schemas import OFFSETS
from streaming.settings.model import AlertSettings
from streaming.tables.snapshot import Snapshot

IS_SAMPLED: Final = pa.field("is_sampled", pa.bool_())


@dataclass(frozen=True)
class Looked:
    """Up to which version of `log_ends` was read, and when (ms)."""

    version: int
    at: int


class Positions:
    """Reads positions with their lag when there are new samples."""

    def __init__(self, settings: AlertSettings, health: HealthRules | None = None) -> None:
        self._settings = settings
        self._policies = GroupPolicies(settings)
        self._health = health or HealthRules()
        self._habits = habits_by(self._health)
        self.is_wanted: Final = self._policies.has_on(*LAG_RULES)

    def look(
        self, at: Snapshot, offsets: pa.Table, now: int, last: Looked | None
    ) -> tuple[LagRows, Looked] | None:
        """Read what the rules look at; None: there is nothing new since they `last` did, or nothing that can
        be judged."""
        moment = self._moment(at.progress, now)
        if not self.is_wanted or moment is None or at.log_ends is None:
            return None
        version = at.log_ends.version()
        if last is not None and last.version == version and now - last.at < MAX_AGE_MS:
            return None
        judged = judged_partitions(at.progress, self._settings, now)
        own = of_partitions(self._policies.with_on(offsets.select(OFFSETS.names), *LAG_RULES), judged)
        return self._rows(at, own, moment, now), Looked(version, now)

    def _rows(self, at: Snapshot, offsets: pa.Table, moment: int, now: int) -> LagRows:
        rows = offsets_with_lag(at, offsets, moment=moment, max_age_ms=MAX_AGE_MS)
        rows = rows.append_column(IS_SAMPLED, from_mask(self._is_sampled(at, rows, moment)))
        in_health = self._policies.with_on(rows, *HEALTH_RULES)
        dated = self._policies.with_on(rows, FORMER_TOPIC_RULE)
        return LagRows(
            moment=moment,
            health=self._health,
            offsets=rows,
            judged=with_health(
                at,
                in_health,
                moment=moment,
                max_age_ms=MAX_AGE_MS,
                rules=self._health,
                habits=self._habits,
            ),
            dated=with_former_topic(dated, at.topics_over_time(topics_in(dated), as_of=now)),
        )

    def _moment(self, progress: Progress, now: int) -> int | None:
        """Return up to when all commits of the partitions that can be judged are known (ms)."""
        judged = judged_partitions(progress, self._settings, now)
        known = [progress.partitions[number].whole.as_of for number in judged]
        return min((now, *(at for at in known if at is not None))) if judged else None

    def _is_sampled(self, at: Snapshot, rows: pa.Table, moment: int) -> Mask:
        """Tell whether logs were sampled all along in a window before a moment, or need not be: what was
        missed while the brokers or the job were away is neither silence nor lag of a group."""
        is_behind = to_mask(pc.greater(rows["lag"], self._health.min_lag))
        behind = rows.filter(from_mask(is_behind))
        since = moment - self._health.window_ms
        samples = Samples.of(at.ends_between(topics_in(behind), since=since, until=moment))
        is_sampled: Mask = ~is_behind
        is_sampled[np.flatnonzero(is_behind)] = samples.is_throughout(
            samples.places.codes_of(behind), since, moment, MAX_AGE_MS
        )
        return is_sampled
