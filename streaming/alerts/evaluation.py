"""Evaluates the alert rules on the tables, and writes the episodes that open, change or close. Needs no
Spark."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import pyarrow as pa

from streaming.alerts.episodes import Episode, next_episodes
from streaming.alerts.log_starts import AskLogRanges, LogStarts
from streaming.alerts.positions import LastReading, Positions
from streaming.alerts.rewinds import Awaited, Rewinds
from streaming.alerts.rules import RULES, judge
from streaming.alerts.rules.subjects import GroupPolicies
from streaming.alerts.rules.view import LagRows, RuleContext
from streaming.alerts.table import AlertsConflictError, AlertState, AlertTable
from streaming.assessment.assess import Facts, assess
from streaming.common.times import now_ms
from streaming.expiry.cause_names import EXPIRED
from streaming.lag.health_rules import HealthRules
from streaming.model.completeness import STALLED, Completeness
from streaming.model.progress import Progress
from streaming.model.schemas import GROUPS, OFFSETS
from streaming.settings.model import AlertSettings, HealthSettings
from streaming.tables.feed import DROPS
from streaming.tables.snapshot import Snapshot
from streaming.tables.tables import Tables

_MOST_HELD: Final = 200_000
"""At most this many offsets are cached while nothing changes (40 MB)."""


class Evaluator:
    """Evaluates the rules on request. Its attributes are caches: all state is in the table of alerts."""

    def __init__(
        self,
        tables: Tables,
        alerts: AlertTable,
        settings: AlertSettings,
        *,
        receivers: Sequence[str],
        ask_log_ranges: AskLogRanges | None,
        health: HealthSettings | None = None,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        rules = HealthRules() if health is None else HealthRules.of(health)
        self._tables = tables
        self._alerts = alerts
        self._receivers = receivers
        self._log_starts = LogStarts(ask_log_ranges, settings.log_start_every_ms)
        self._clock = clock
        self._seen_up_to = 0  # sequence up to which changes were read
        self._policies = GroupPolicies(settings)
        self._positions = Positions(self._policies, rules)
        self._rewinds = Rewinds(tables, self._policies, rules)
        self._last_reading: LastReading | None = None
        self._awaited = Awaited()
        self._about: tuple[object, ...] = ()
        self.offsets = 0  # live ones, as of the last evaluation
        self._held: Rows | None = None

    def evaluate(self) -> list[Episode]:
        """Evaluate all rules now. Return the episodes that opened, changed or closed.

        Raises `AlertsConflictError` if another process evaluated at the same time.
        """
        before, now = self._alerts.read(), self._clock()
        self._drop_old_news(before, now)
        view, awaited, last_reading = self._context(now, before)

        def change(state: AlertState) -> list[Episode]:
            if state.mark != before.mark:
                raise AlertsConflictError("evaluating alerts: another evaluation has just been written.")
            return changed_episodes(state, view)

        sequence = view.progress.sequence
        changed = self._alerts.update(
            before, change, mark=sequence, rewinds_mark=awaited.mark, receivers=self._receivers
        )
        self._seen_up_to, self._awaited = sequence, awaited
        self._last_reading = last_reading
        return changed

    def _drop_old_news(self, state: AlertState, now: int) -> None:
        """Drop what has been pending for `close_after_ms` for receivers that are no longer configured."""
        before = now - self._policies.settings.close_after_ms
        if state.news_for_others(self._receivers, before=before):
            self._alerts.drop_news_for_others(self._receivers, before=before)

    def _context(self, now: int, before: AlertState) -> tuple[RuleContext, Awaited, LastReading | None]:
        """Read the tables, and the log starts from brokers if an offsets partition can be judged.

        Return also the undecided rewinds, and the version of `log_ends` that was read.
        """
        after = max(before.mark, self._seen_up_to)
        rewinds = partial(self._rewinds.read, after=before.rewinds_mark, awaited=self._awaited)
        progress = self._tables.progress()
        within_ms = self._tables.complete_within_ms
        completeness = Completeness(progress=progress, moment=now, within_ms=within_ms)
        about = _what_matters(completeness)
        if self._held is None or self._held.about != about or after < progress.sequence:
            self._held = None  # frees memory before the next rows are read
            progress, rows, dropped, new, (rewound, awaited) = self._tables.ask(
                lambda at: (*self._read(at, now, after=after), rewinds(at.completeness, at=at)), now=now
            )
            is_at_rest = rows.about == self._about
            self._held = rows if is_at_rest and len(rows.offsets) <= _MOST_HELD else None
            self._about = rows.about
        else:
            rows, dropped, new = self._held, DROPS.empty_table(), self._reread(self._held, now)
            rewound, awaited = rewinds(completeness)
        self.offsets = len(rows.offsets)
        view = RuleContext(
            policies=self._policies,
            now=now,
            progress=progress,
            offsets=rows.offsets,
            groups=rows.groups,
            is_predicted=progress.retention is not None,
            dropped=dropped,
            rewound=rewound,
            lag=None if new is None else new[0],
            within_ms=within_ms,
        )
        last_reading = self._last_reading if new is None else new[1]
        if not view.judged:
            return view, awaited, last_reading
        return replace(view, log_starts=self._log_starts.of(view.offsets, now)), awaited, last_reading

    def _read(
        self, at: Snapshot, now: int, *, after: int
    ) -> tuple[Progress, "Rows", pa.Table, tuple[LagRows, LastReading] | None]:
        rows = read_rows(at, at.completeness)
        is_new = after < at.progress.sequence
        dropped = at.drops(EXPIRED, after=after) if is_new else DROPS.empty_table()
        return (
            at.progress,
            rows,
            dropped,
            self._positions.read(at, rows.offsets, rows.groups, now, self._last_reading),
        )

    def _reread(self, rows: "Rows", now: int) -> tuple[LagRows, LastReading] | None:
        """Read new samples for the cached offsets and groups, if these are still current."""

        def read(at: Snapshot) -> tuple[LagRows, LastReading] | None:
            is_same = rows.about == _what_matters(at.completeness)
            return (
                self._positions.read(at, rows.offsets, rows.groups, now, self._last_reading)
                if is_same
                else None
            )

        return self._tables.ask(read, now=now) if self._positions.is_wanted else None


@dataclass(frozen=True)
class Rows:
    """Offsets and groups for the rules, and the key `about` that they depend on."""

    about: tuple[object, ...]
    offsets: pa.Table
    groups: pa.Table


def read_rows(moment: Snapshot, completeness: Completeness) -> Rows:
    """Read the offsets and groups for the rules: empty if no offsets partition can be judged.

    The offsets have the columns of expiry if the retention of the brokers is known.
    """
    progress, is_judged = moment.progress, bool(completeness.complete)
    offsets = moment.offsets() if is_judged else OFFSETS.empty_table()
    groups = moment.groups() if is_judged else GROUPS.empty_table()
    if progress.retention is not None:
        facts = Facts(expiry=progress.retention.retention_ms)
        offsets = assess(moment, offsets, facts, moment=completeness.moment, groups=groups)
    return Rows(_what_matters(completeness), offsets, groups)


def _what_matters(completeness: Completeness) -> tuple[object, ...]:
    """Return the key of `Rows`: with the same key, the rows are the same."""
    progress = completeness.progress
    retention = progress.retention
    return (
        (progress.query_id, progress.generation, progress.sequence),
        None if retention is None else retention.retention_ms,
        completeness.of_state(STALLED),
        bool(completeness.complete),
    )


def changed_episodes(state: AlertState, view: RuleContext) -> list[Episode]:
    going_on = [told.episode for told in state.open_episodes()]
    remembered = [
        episode for rule in RULES if rule.remembers_closed for episode in state.newest_of_rule(rule.id)
    ]
    known = {(episode.rule, episode.finding.subject): episode for episode in (*remembered, *going_on)}
    return next_episodes(
        going_on,
        judge(replace(view, known=known)),
        source=f"{view.progress.cluster_id} {view.progress.topic}",
        now=view.now,
        last_revision=state.last_revision,
    )


def is_written_by_a_job(progress: Progress, heartbeat_every_ms: int, now: int) -> bool:
    """Return whether the last heartbeat is so recent that a job is running, which evaluates the alerts
    itself."""
    return now - progress.heartbeat < 3 * heartbeat_every_ms
