"""Queries of alerts: open ones, and undelivered ones."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from streaming.alerts.episodes import SEVERITIES
from streaming.alerts.messages import summary
from streaming.alerts.table import AlertState, AlertTable, TrackedEpisode
from streaming.common.arrays import no_rows
from streaming.common.times import from_ms, in_words, iso
from streaming.model.progress import Progress
from streaming.model.schemas import TIMESTAMP
from streaming.tables.tables import Tables

ALERT_LIST: Final = pa.schema(
    [
        ("id", pa.string()),
        ("severity", pa.string()),
        ("rule", pa.string()),
        ("group", pa.string()),  # null: not about one group
        ("pattern", pa.string()),  # null: not about several groups
        ("opened_at", TIMESTAMP),
        ("closed_at", TIMESTAMP),  # null: open
        ("undelivered", pa.list_(pa.string())),  # receivers for which the newest revision is pending
        ("summary", pa.string()),
    ]
)

WAITING: Final = "waiting"
REFUSED: Final = "refused"
"""The reasons why an alert is undelivered."""


def list_alerts(tables: Tables, *, closed_too: bool = False) -> pa.Table:
    """Return the open alerts, or all (schema `ALERT_LIST`): open ones first, then by severity, then the
    newest first. Raises `TablesMissingError`, `TablesUnreachableError` or `OtherFormatError`."""
    state = AlertTable(tables).read()
    return listed(state.episodes() if closed_too else state.open_episodes())


def listed(tracked: Sequence[TrackedEpisode]) -> pa.Table:
    """Return alerts as rows (schema `ALERT_LIST`), in the order of `list_alerts`."""
    if not tracked:
        return no_rows(ALERT_LIST)
    return pa.Table.from_pylist([_listed(one) for one in sorted(tracked, key=_urgency)], ALERT_LIST)


def describe_alerts(tables: Tables) -> list[str]:
    """Return lines of text: the number of open alerts, and the undelivered ones."""
    state = AlertTable(tables).read()
    still_open = state.open_episodes()
    severities = Counter(tracked.episode.finding.severity for tracked in still_open)
    counts = ", ".join(f"{severities[name]} {name}" for name in SEVERITIES if severities[name])
    return [
        f"open alerts: {counts or 'none'}",
        *_undelivered_lines(state.undelivered()),
        *_refused_lines(still_open),
    ]


def describe_evaluation(progress: Progress, now: int) -> str:
    """Return a line of text: the time since the last evaluation of the job."""
    at = progress.alerts_evaluated_at
    return (
        "the job has not evaluated alerts yet" if at is None else f"alerts evaluated {in_words(now - at)} ago"
    )


def undelivered_counts(state: AlertState) -> dict[tuple[str, str], int]:
    """Return the number of undelivered alerts by receiver (each one named in the table) and reason:
    `WAITING` (will be sent), or `REFUSED` (open, and will not be sent)."""
    receivers = {name: None for tracked in state.episodes() for name in tracked.deliveries}
    waiting, still_open = state.undelivered(), state.open_episodes()
    return {
        (name, reason): count
        for name in sorted(receivers)
        for reason, count in (
            (WAITING, sum(tracked.is_pending_for(name) for tracked in waiting)),
            (REFUSED, sum(tracked.is_refused_by(name) for tracked in still_open)),
        )
    }


def waiting_in_all(tables: Tables) -> int:
    """Return the number of alerts that are pending for some receiver."""
    return len(AlertTable(tables).read().undelivered())


def _refused_lines(still_open: list[TrackedEpisode]) -> list[str]:
    lines = []
    for name in sorted({name for tracked in still_open for name in tracked.deliveries}):
        errors = [tracked.to(name).error for tracked in still_open if tracked.is_refused_by(name)]
        if errors:
            lines.append(f"alerts that {name} has refused, not sent again: {len(errors)}: {errors[-1]}")
    return lines


def _undelivered_lines(undelivered: list[TrackedEpisode]) -> list[str]:
    waiting = [
        (tracked.to(receiver), tracked.episode.updated_at)
        for tracked in undelivered
        for receiver in tracked.deliveries
        if tracked.is_pending_for(receiver)
    ]
    lines = []
    for name in sorted({delivery.receiver for delivery, _ in waiting}):
        of_receiver = [(delivery, at) for delivery, at in waiting if delivery.receiver == name]
        errors = [delivery.error for delivery, _ in of_receiver if delivery.error is not None]
        since = min(delivery.failing_since or at for delivery, at in of_receiver)
        reason = f": {errors[-1]}" if errors else ""
        lines.append(f"alerts not delivered to {name}: {len(of_receiver)}, since {iso(since)}{reason}")
    return lines


def _urgency(tracked: TrackedEpisode) -> tuple[bool, int, int, str]:
    episode = tracked.episode
    return not episode.is_open, SEVERITIES.index(episode.finding.severity), -episode.opened_at, episode.id


def _listed(tracked: TrackedEpisode) -> dict[str, object]:
    episode, finding = tracked.episode, tracked.episode.finding
    return {
        "id": episode.id,
        "severity": finding.severity,
        "rule": episode.rule,
        "group": finding.group,
        "pattern": finding.pattern,
        "opened_at": from_ms(episode.opened_at),
        "closed_at": from_ms(episode.closed_at),
        "undelivered": sorted(name for name in tracked.deliveries if tracked.is_pending_for(name)),
        "summary": summary(episode),
    }
