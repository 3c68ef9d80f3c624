"""What people and programs are told of an alert: a sentence, a JSON document, an alert of Alertmanager."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from streaming.alerts.episodes import Finding
from streaming.alerts.rules import (
    EMPTY_GROUP_ID,
    JOB_BEHIND,
    OFFSET_BELOW_LOG_START,
    OFFSET_EXPIRED,
    OFFSET_EXPIRING,
    PARTITION_STALLED,
)
from streaming.alerts.table import Delivery, Told
from streaming.common.escapes import shown
from streaming.common.times import iso
from streaming.model.schemas import UNKNOWN_RECORD_VERSION

SUMMARIES: Final[Mapping[str, str]] = {
    OFFSET_EXPIRING: "{subject}: the broker will drop {offsets} unless the group commits again; the first is "
    "{place}, {committed_offset}, at {expires_at} ({expiry_rule})",
    OFFSET_EXPIRED: "{subject}: the broker has dropped {offsets}, the last at {dropped_at}, "
    "such as {place}, {committed_offset}; consumers go on at auto.offset.reset",
    OFFSET_BELOW_LOG_START: "{subject}: of {offsets} data retention has deleted unread records; the worst is "
    "{place}, committed {committed_offset}, where the log now starts at {log_start}",
    UNKNOWN_RECORD_VERSION: "{count} {subject} cannot be read by this release (first at {first}, "
    "last at {last}, as offsets partition:offset); what they say is missing from the tables",
    JOB_BEHIND: "the job has read {partitions} offsets partition(s) only up to {complete_as_of} or earlier; "
    "predictions about groups in them are suspended",
    PARTITION_STALLED: "{subject}: an open transaction has held readers back at offset {last_stable_offset} "
    "since {since}; commits of its groups are not seen and predictions about them are suspended",
    EMPTY_GROUP_ID: 'the group with the empty id ("") still receives commits, on {offsets}; '
    "newer clients refuse it (KIP-289)",
}
"""A sentence for each rule, with the names of its facts."""


def summary(finding: Finding) -> str:
    """Say in one sentence what is wrong."""
    count = finding.facts.get("offsets", 0)
    offsets = f"{count} committed offset{'' if count == 1 else 's'}"
    groups = finding.facts.get("groups")
    return SUMMARIES[finding.rule].format_map(
        {
            **finding.facts,
            "subject": shown(finding.subject),
            "place": shown(f"{finding.topic}-{finding.partition}"),
            "offsets": offsets
            if groups is None
            else f"{offsets} of {groups} group{'' if groups == 1 else 's'}",
        }
    )


def document(told: Told, delivered: Delivery) -> dict[str, Any]:
    """Return what is logged and posted: `id` and `revision` together name the message."""
    episode, finding = told.episode, told.episode.finding
    return {
        "event": _event(told, delivered),
        "id": episode.id,
        "revision": episode.revision,
        "rule": finding.rule,
        "severity": finding.severity,
        "summary": summary(finding),
        "group": finding.group,
        "pattern": finding.pattern,
        "topic": finding.topic,
        "partition": finding.partition,
        "facts": dict(finding.facts),
        "opened_at": iso(episode.opened_at),
        "updated_at": iso(episode.updated_at),
        "closed_at": None if episode.closed_at is None else iso(episode.closed_at),
    }


def _event(told: Told, delivered: Delivery) -> str:
    if not told.episode.is_open:
        return "closed"
    was_told = delivered.delivered_at is not None and delivered.delivered_at >= told.episode.opened_at
    return "updated" if was_told else "opened"


def alertmanager_alerts(
    told: Told, delivered: Delivery, labels: Mapping[str, str], *, until: int
) -> Iterator[dict[str, Any]]:
    """Yield what Alertmanager is sent: the alert, open until further notice (`until`, ms) or resolved.

    The severity is a label, and labels identify an alert: under another severity that it was told of before
    it is resolved as well.
    """
    episode = told.episode
    end = until if episode.closed_at is None else episode.closed_at
    yield _alert(told, labels, episode.finding.severity, end)
    if delivered.severity not in (None, episode.finding.severity):
        yield _alert(told, labels, str(delivered.severity), episode.updated_at)


def _alert(told: Told, labels: Mapping[str, str], severity: str, end: int) -> dict[str, Any]:
    episode, finding = told.episode, told.episode.finding
    identity = {
        **labels,
        "alertname": finding.rule,
        "severity": severity,
        "group": finding.group if finding.pattern is None else finding.pattern,
        "offsets_partition": finding.partition if finding.rule == PARTITION_STALLED else None,
        "record_type": finding.facts.get("record_type"),
        "value_version": finding.facts.get("value_version"),
    }
    return {
        "labels": {name: str(value) for name, value in identity.items() if value not in (None, "")},
        "annotations": {"summary": summary(finding), "id": episode.id, "topic": finding.topic or ""},
        "startsAt": iso(min(episode.opened_at, end)),
        "endsAt": iso(end),
    }
