"""Questions about alerts: which are open, and which could not be delivered."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from streaming.alerts.episodes import SEVERITIES
from streaming.alerts.messages import summary
from streaming.alerts.table import AlertTable, Told
from streaming.common.arrays import no_rows
from streaming.common.times import from_ms, iso
from streaming.model.schemas import TIMESTAMP
from streaming.tables.tables import Tables

ALERT_LIST: Final = pa.schema(
    [
        ("id", pa.string()),
        ("severity", pa.string()),
        ("rule", pa.string()),
        ("group", pa.string()),  # null = not about one group
        ("pattern", pa.string()),  # null = not a summary of groups
        ("opened_at", TIMESTAMP),
        ("closed_at", TIMESTAMP),  # null = open
        ("undelivered", pa.list_(pa.string())),  # receivers that have not been told the newest yet
        ("summary", pa.string()),
    ]
)


def list_alerts(tables: Tables, *, closed_too: bool = False) -> pa.Table:
    """Return the open alerts (schema `ALERT_LIST`), or all; open and severe ones first, then the newest."""
    state = AlertTable(tables).read()
    return listed(state.episodes() if closed_too else state.open_episodes())


def listed(told: Sequence[Told]) -> pa.Table:
    """Return alerts as a list (schema `ALERT_LIST`), in its order."""
    if not told:
        return no_rows(ALERT_LIST)
    return pa.Table.from_pylist([_listed(one) for one in sorted(told, key=_urgency)], ALERT_LIST)


def describe_alerts(tables: Tables) -> list[str]:
    """Say in a few lines how many alerts are open, and what could not be delivered."""
    state = AlertTable(tables).read()
    severities = Counter(told.episode.finding.severity for told in state.open_episodes())
    counts = ", ".join(f"{severities[name]} {name}" for name in SEVERITIES if severities[name])
    return [f"open alerts: {counts or 'none'}", *_undelivered_lines(state.undelivered())]


def _undelivered_lines(undelivered: list[Told]) -> list[str]:
    waiting = [
        (told.to(receiver), told.episode.updated_at)
        for told in undelivered
        for receiver in told.deliveries
        if told.is_pending_for(receiver)
    ]
    lines = []
    for name in sorted({delivery.receiver for delivery, _ in waiting}):
        of_receiver = [(delivery, at) for delivery, at in waiting if delivery.receiver == name]
        errors = [delivery.error for delivery, _ in of_receiver if delivery.error is not None]
        since = min(delivery.failing_since or at for delivery, at in of_receiver)
        reason = f": {errors[-1]}" if errors else ""
        lines.append(f"alerts not delivered to {name}: {len(of_receiver)}, since {iso(since)}{reason}")
    return lines


def _urgency(told: Told) -> tuple[bool, int, int, str]:
    episode = told.episode
    return not episode.is_open, SEVERITIES.index(episode.finding.severity), -episode.opened_at, episode.id


def _listed(told: Told) -> dict[str, object]:
    episode, finding = told.episode, told.episode.finding
    return {
        "id": episode.id,
        "severity": finding.severity,
        "rule": episode.rule,
        "group": finding.group,
        "pattern": finding.pattern,
        "opened_at": from_ms(episode.opened_at),
        "closed_at": from_ms(episode.closed_at),
        "undelivered": sorted(name for name in told.deliveries if told.is_pending_for(name)),
        "summary": summary(episode),
    }
