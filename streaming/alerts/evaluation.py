"""Evaluates the alert rules on the tables, and writes what opens, changes and closes. Needs no Spark."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from streaming.alerts.episodes import Episode, next_episodes
from streaming.alerts.rules import (
    OFFSET_BELOW_LOG_START,
    TopicPartition,
    View,
    is_stalled,
    judge,
    judged_partitions,
)
from streaming.alerts.table import AlertsConflictError, AlertState, AlertTable
from streaming.common.patience import Complaints
from streaming.expiry.causes import EXPIRED
from streaming.expiry.rules import expiry
from streaming.lag.log_ends import partitions_in
from streaming.model.errors import OffsetlakeError
from streaming.model.progress import Progress, now_ms
from streaming.model.schemas import GROUPS, OFFSETS, UNKNOWN_RECORD_VERSION
from streaming.settings.model import AlertSettings
from streaming.tables.snapshot import Snapshot
from streaming.tables.tables import Tables

Say = Callable[[str], None]


class LogRange(Protocol):
    """The offsets that a partition holds."""

    @property
    def earliest(self) -> int:
        """The first of them."""


AskLogRanges = Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, LogRange]]
"""Asks the brokers for the ranges of partitions; those without an answer are left out."""


class LogStarts:
    """Knows where the logs of committed topic partitions start, as the brokers said a few minutes ago."""

    def __init__(self, ask: AskLogRanges | None, every_ms: int) -> None:
        self._ask = ask
        self._every_ms = every_ms
        self._asked_at: int | None = None
        self._starts: Mapping[TopicPartition, int | None] | None = None

    def of(self, offsets: pa.Table, now: int) -> Mapping[TopicPartition, int | None] | None:
        """Return the first offset of each partition that has commits (None: no answer), asking anew if it is
        time to; None where there is no broker. Raises what the brokers' client raises."""
        if self._ask is not None and (self._asked_at is None or now - self._asked_at >= self._every_ms):
            self._starts, self._asked_at = None, now
            places = partitions_in(offsets)
            ranges = self._ask(places)
            self._starts = {place: ranges[place].earliest if place in ranges else None for place in places}
        return self._starts


class Evaluator:
    """Evaluates the rules each time it is asked to; what it must remember is in the table of alerts."""

    def __init__(
        self,
        tables: Tables,
        alerts: AlertTable,
        settings: AlertSettings,
        *,
        receivers: Sequence[str],
        ask_log_ranges: AskLogRanges | None,
        say: Say,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._tables = tables
        self._alerts = alerts
        self._settings = settings
        self._receivers = receivers
        self._log_starts = LogStarts(ask_log_ranges, settings.log_start_every_ms)
        self._complaints = Complaints(say)
        self._clock = clock
        self._seen_up_to = 0  # only saves reading again what no alert came of

    def evaluate(self) -> list[Episode]:
        """Evaluate all rules now; return the episodes that opened, changed or closed.

        Raises `AlertsConflictError` if another process evaluated at the same time.
        """
        before, now = self._alerts.read(), self._clock()
        mark = before.mark
        self._drop_old_news(before, now)
        seen = self._tables.ask(lambda moment: self._look(moment, now, max(mark, self._seen_up_to)))
        progress = seen.progress
        offsets, is_predicted = _with_expiry(seen)
        log_starts = self._ask_log_starts(seen.offsets, now) if seen.is_judged else None

        def change(state: AlertState) -> list[Episode]:
            if state.mark != mark:
                raise AlertsConflictError("evaluating alerts: another evaluation has just been written.")
            going_on = [told.episode for told in state.open_episodes()]
            known = [*state.newest_of_rule(UNKNOWN_RECORD_VERSION), *going_on]
            view = View(
                now=now,
                progress=progress,
                offsets=offsets,
                is_predicted=is_predicted,
                dropped=seen.dropped,
                log_starts=log_starts,
                known={(e.finding.rule, e.finding.subject): e for e in known},
            )
            return next_episodes(
                going_on,
                judge(view, self._settings),
                source=f"{progress.cluster_id} {progress.topic}",
                now=now,
                last_revision=state.last_revision,
            )

        changed = self._alerts.update(change, mark=progress.sequence, receivers=self._receivers)
        self._seen_up_to = progress.sequence
        return changed

    def _drop_old_news(self, state: AlertState, now: int) -> None:
        """Drop what those wait for who are no receivers any more, once everybody has had the time to set them
        up again."""
        before = now - self._settings.close_after_ms
        if state.news_for_others(self._receivers, before=before):
            self._alerts.drop_news_for_others(self._receivers, before=before)

    def _look(self, moment: Snapshot, now: int, after: int) -> "_Seen":
        """Read the tables, without the offsets if there is no offsets partition that can be judged."""
        is_judged = bool(judged_partitions(moment.progress, self._settings, now))
        return _Seen(
            progress=moment.progress,
            is_judged=is_judged,
            offsets=moment.offsets() if is_judged else OFFSETS.empty_table(),
            groups=moment.groups() if is_judged else GROUPS.empty_table(),
            dropped=moment.drops(EXPIRED, after=after),
        )

    def _ask_log_starts(self, offsets: pa.Table, now: int) -> Mapping[TopicPartition, int | None] | None:
        try:
            starts = self._log_starts.of(offsets, now)
        except OffsetlakeError as error:
            self._complaints.make(
                OFFSET_BELOW_LOG_START, f"alerts: {OFFSET_BELOW_LOG_START} is suspended: {error}"
            )
            return None
        if starts is not None:
            self._complaints.settle(
                OFFSET_BELOW_LOG_START, f"alerts: {OFFSET_BELOW_LOG_START} is evaluated again"
            )
        return starts


def is_written_by_a_job(progress: Progress, heartbeat_every_ms: int, now: int) -> bool:
    """Tell whether a job has given a sign of life so lately that it is running, and evaluates itself."""
    return now - progress.heartbeat < 3 * heartbeat_every_ms


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """What the tables say at one moment: offsets (schema `OFFSETS`), groups (`GROUPS`), and `DROPS`.

    Offsets and groups are there only if some offsets partition `is_judged`.
    """

    progress: Progress
    is_judged: bool
    offsets: pa.Table
    groups: pa.Table
    dropped: pa.Table


def _with_expiry(seen: _Seen) -> tuple[pa.Table, bool]:
    """Add what `expiry` tells to the offsets, if it is known how long the brokers keep them."""
    retention = seen.progress.retention
    if retention is None:
        return seen.offsets, False
    partitions = seen.progress.partitions.items()
    stalled = [number for number, partition in partitions if is_stalled(partition)]
    predicted = expiry(seen.offsets, seen.groups, retention.retention_ms, stalled=stalled)
    return predicted, True
