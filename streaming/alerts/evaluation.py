"""Evaluates the alert rules on the tables, and writes what opens, changes and closes. Needs no Spark."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from streaming.alerts.episodes import Episode, next_episodes
from streaming.alerts.log_starts import AskLogRanges, LogStarts
from streaming.alerts.rules import RULES, judge
from streaming.alerts.table import AlertsConflictError, AlertState, AlertTable
from streaming.alerts.view import View, is_stalled, judged_partitions
from streaming.common.times import now_ms
from streaming.expiry.causes import EXPIRED
from streaming.expiry.rules import expiry
from streaming.model.progress import Progress
from streaming.model.schemas import GROUPS, OFFSETS
from streaming.settings.model import AlertSettings
from streaming.tables.snapshot import Snapshot
from streaming.tables.tables import Tables


class Evaluator:
    """Evaluates the rules on request; its only memory is the table of alerts."""

    def __init__(
        self,
        tables: Tables,
        alerts: AlertTable,
        settings: AlertSettings,
        *,
        receivers: Sequence[str],
        ask_log_ranges: AskLogRanges | None,
        say: Callable[[str], None],
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._tables = tables
        self._alerts = alerts
        self._settings = settings
        self._receivers = receivers
        self._log_starts = LogStarts(ask_log_ranges, settings.log_start_every_ms, say)
        self._clock = clock
        self._seen_up_to = 0  # only saves reading again what no alert came of

    def evaluate(self) -> list[Episode]:
        """Evaluate all rules now; return the episodes that opened, changed or closed.

        Raises `AlertsConflictError` if another process evaluated at the same time.
        """
        before, now = self._alerts.read(), self._clock()
        self._drop_old_news(before, now)
        view = self._look(now, after=max(before.mark, self._seen_up_to))

        def change(state: AlertState) -> list[Episode]:
            if state.mark != before.mark:
                raise AlertsConflictError("evaluating alerts: another evaluation has just been written.")
            return changed_episodes(state, view, self._settings)

        sequence = view.progress.sequence
        changed = self._alerts.update(change, mark=sequence, receivers=self._receivers)
        self._seen_up_to = sequence
        return changed

    def _drop_old_news(self, state: AlertState, now: int) -> None:
        """Drop what has long been pending for receivers that are no longer configured."""
        before = now - self._settings.close_after_ms
        if state.news_for_others(self._receivers, before=before):
            self._alerts.drop_news_for_others(self._receivers, before=before)

    def _look(self, now: int, *, after: int) -> View:
        """Read the tables, and ask the brokers if there is an offsets partition that can be judged."""
        view = self._tables.ask(lambda moment: seen(moment, self._settings, now, after=after))
        if not judged_partitions(view.progress, self._settings, now):
            return view
        return replace(view, log_starts=self._log_starts.of(view.offsets, now))


def seen(moment: Snapshot, settings: AlertSettings, now: int, *, after: int) -> View:
    """Read what the rules look at.

    Offsets and groups are left out if there is no offsets partition that can be judged. `after` is the
    sequence of `changes` up to which dropped offsets were looked at. When offsets expire is added if it is
    known how long the brokers keep them.
    """
    progress = moment.progress
    is_judged = bool(judged_partitions(progress, settings, now))
    offsets = moment.offsets() if is_judged else OFFSETS.empty_table()
    groups = moment.groups() if is_judged else GROUPS.empty_table()
    if progress.retention is not None:
        stalled = [number for number, partition in progress.partitions.items() if is_stalled(partition)]
        offsets = expiry(offsets, groups, progress.retention.retention_ms, stalled=stalled)
    return View(
        now=now,
        progress=progress,
        offsets=offsets,
        groups=groups,
        is_predicted=progress.retention is not None,
        dropped=moment.drops(EXPIRED, after=after),
    )


def changed_episodes(state: AlertState, view: View, settings: AlertSettings) -> list[Episode]:
    """Return the episodes that open, change or close, given the alerts and what the rules look at."""
    going_on = [told.episode for told in state.open_episodes()]
    remembered = [
        episode for rule in RULES if rule.remembers_closed for episode in state.newest_of_rule(rule.id)
    ]
    known = {(episode.rule, episode.finding.subject): episode for episode in (*remembered, *going_on)}
    return next_episodes(
        going_on,
        judge(replace(view, known=known), settings),
        source=f"{view.progress.cluster_id} {view.progress.topic}",
        now=view.now,
        last_revision=state.last_revision,
    )


def is_written_by_a_job(progress: Progress, heartbeat_every_ms: int, now: int) -> bool:
    """Tell whether the last heartbeat is so recent that a job is running, which evaluates by itself."""
    return now - progress.heartbeat < 3 * heartbeat_every_ms
