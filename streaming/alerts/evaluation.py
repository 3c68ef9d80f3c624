"""Evaluates the alert rules on the tables, and writes the episodes that open, change or close. Needs no
Spark."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from streaming.alerts.episodes import Episode, next_episodes
from streaming.alerts.log_starts import AskLogRanges, LogStarts
from streaming.alerts.positions import LastReading, Positions
from streaming.alerts.rewinds import REWOUND, Awaited, Rewinds
from streaming.alerts.rules import RULES, judge
from streaming.alerts.rules.rule import selected_by
from streaming.alerts.rules.subjects import GroupPolicies
from streaming.alerts.rules.view import LagRows, RuleContext
from streaming.alerts.table import AlertsConflictError, AlertState, AlertTable
from streaming.assessment.assess import Facts, assess
from streaming.common.times import now_ms
from streaming.expiry.cause_names import EXPIRED
from streaming.lag.health_rules import HealthRules
from streaming.lag.log_ranges import partitions_in
from streaming.model.completeness import STALLED, Completeness
from streaming.model.progress import Progress
from streaming.model.schemas import GROUPS, OFFSETS
from streaming.settings.model import AlertSettings, HealthSettings
from streaming.tables.feed import DROPS
from streaming.tables.snapshot import LiveRows, Snapshot
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
        self._held: Rows | None = None  # all of them

    def evaluate(self) -> list[Episode]:
        """Evaluate all rules now. Return the episodes that opened, changed or closed.

        Raises `AlertsConflictError` if another process evaluated at the same time.
        """
        before, now = self._alerts.read(), self._clock()
        self._drop_old_news(before, now)
        view, awaited, last_reading = self._context(now, before)

        def change(state: AlertState) -> list[Episode]:
            if state.mark != before.mark or not _known(state).keys() <= view.known.keys():
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
        view = self._view(self._tables.progress(), now, _known(before))
        completeness = view.completeness
        about = _what_matters(completeness)
        if self._held is None or self._held.about != about or after < view.progress.sequence:
            self._held = None  # frees memory before the next rows are read
            rows, dropped, (rewound, awaited) = self._tables.ask(
                lambda at: (
                    self._read(at, now, view.known),
                    self._dropped(at, after),
                    rewinds(at.completeness, at=at),
                ),
                now=now,
            )
            is_at_rest = rows.about == self._about
            can_be_held = is_at_rest and rows.are_all and rows.count <= _MOST_HELD
            self._held = replace(rows, view=replace(rows.view, lag=None)) if can_be_held else None
            self._about = rows.about
            view = replace(rows.view, dropped=dropped)
        else:
            rows = self._reread(self._held, view)
            view = rows.view
            rewound, awaited = rewinds(completeness)
        self.offsets = rows.count
        return replace(view, rewound=rewound), awaited, rows.reading or self._last_reading

    def _view(self, progress: Progress, now: int, known: Mapping[tuple[str, str], Episode]) -> RuleContext:
        """Return the input of rules without rows."""
        return RuleContext(
            policies=self._policies,
            now=now,
            progress=progress,
            offsets=OFFSETS.empty_table(),
            groups=GROUPS.empty_table(),
            is_predicted=progress.retention is not None,
            dropped=DROPS.empty_table(),
            rewound=REWOUND.empty_table(),
            known=known,
            within_ms=self._tables.complete_within_ms,
        )

    def _dropped(self, at: Snapshot, after: int) -> pa.Table:
        is_new = after < at.progress.sequence
        return at.drops(EXPIRED, after=after) if is_new else DROPS.empty_table()

    def _read(self, at: Snapshot, now: int, known: Mapping[tuple[str, str], Episode]) -> "Rows":
        """Read the offsets and groups for the rules: none if no offsets partition can be judged.

        Of several parts of the tables, only the rows that rules select are in memory together.
        """
        view = self._view(at.progress, now, known)
        parts = at.parts() if view.judged else [lambda: LiveRows(view.offsets, view.groups, view.progress)]
        reading = self._positions.new_reading(at, now, self._last_reading)
        if view.judged:
            starts = self._log_starts.of(lambda: partitions_in(at.live_partitions()), now)
            view = replace(view, log_starts=starts)

        def found(part: int, live: LiveRows) -> tuple[int, RuleContext]:
            offsets, groups = _with_expiry(at, live), live.groups
            lag = None if reading is None else self._positions.read(at, offsets, groups, now, part=part)
            whole = replace(view, offsets=offsets, groups=groups, lag=lag)
            return len(offsets), whole if len(parts) == 1 else _selected(whole)

        counts, views = zip(*(found(part, read()) for part, read in enumerate(parts)), strict=True)
        return Rows(
            about=_what_matters(at.completeness),
            view=_joined(views),
            count=sum(counts),
            are_all=len(parts) == 1,
            reading=reading,
        )

    def _reread(self, held: "Rows", view: RuleContext) -> "Rows":
        """Return the cached rows in a view of now, with new samples if the rows are still current."""
        offsets, groups = held.view.offsets, held.view.groups

        def read(at: Snapshot) -> tuple[LagRows, LastReading] | None:
            reading = self._positions.new_reading(at, view.now, self._last_reading)
            if reading is None or held.about != _what_matters(at.completeness):
                return None
            return self._positions.read(at, offsets, groups, view.now), reading

        new = self._tables.ask(read, now=view.now) if self._positions.is_wanted else None
        lag, reading = (None, None) if new is None else new
        if view.judged:
            view = replace(view, log_starts=self._log_starts.of(lambda: partitions_in(offsets), view.now))
        return replace(held, view=replace(view, offsets=offsets, groups=groups, lag=lag), reading=reading)


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The rows for the rules in a view, and the key `about` that all but the positions depend on.

    `count` is the number of live offsets; unless `are_all`, the view has only those that rules selected.
    `reading` is None if no samples were read.
    """

    about: tuple[object, ...]
    view: RuleContext
    count: int
    are_all: bool
    reading: LastReading | None


def _with_expiry(at: Snapshot, live: LiveRows) -> pa.Table:
    """Return offsets with the columns of expiry if the retention of the brokers is known."""
    if at.progress.retention is None:
        return live.offsets
    facts = Facts(expiry=at.progress.retention.retention_ms)
    return assess(at, live.offsets, facts, moment=at.completeness.moment, groups=live.groups)


def _selected(view: RuleContext) -> RuleContext:
    """Return the view with only the offsets and positions that any rule selects, and their groups."""
    own = selected_by(RULES, view)
    tables = [own.offsets] if own.lag is None else [own.offsets, own.lag.offsets, own.lag.uncommitted]
    names = pa.chunked_array([chunk for rows in tables for chunk in rows["group"].chunks], pa.string())
    return replace(own, groups=view.groups.filter(pc.is_in(view.groups["group"], value_set=names.unique())))


def _joined(views: Sequence[RuleContext]) -> RuleContext:
    """Return the first view with the rows of all: they are of the same moment."""
    lags = [view.lag for view in views if view.lag is not None]
    lag = lags and replace(
        lags[0],
        offsets=pa.concat_tables(lag.offsets for lag in lags),
        uncommitted=pa.concat_tables(lag.uncommitted for lag in lags),
    )
    return replace(
        views[0],
        offsets=pa.concat_tables(view.offsets for view in views),
        groups=pa.concat_tables(view.groups for view in views),
        lag=lag or None,
    )


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
    known = _known(state)
    return next_episodes(
        known.values(),
        judge(replace(view, known=known)),
        source=f"{view.progress.cluster_id} {view.progress.topic}",
        now=view.now,
        last_revision=state.last_revision,
    )


def _known(state: AlertState) -> dict[tuple[str, str], Episode]:
    """Return the newest episodes by rule and subject, as the rules get them."""
    going_on = [told.episode for told in state.open_episodes()]
    remembered = [
        episode for rule in RULES if rule.remembers_closed for episode in state.newest_of_rule(rule.id)
    ]
    return {(episode.rule, episode.finding.subject): episode for episode in (*remembered, *going_on)}


def is_written_by_a_job(progress: Progress, heartbeat_every_ms: int, now: int) -> bool:
    """Return whether the last heartbeat is so recent that a job is running, which evaluates the alerts
    itself."""
    return now - progress.heartbeat < 3 * heartbeat_every_ms
