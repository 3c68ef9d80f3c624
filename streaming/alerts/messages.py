"""The messages about an alert: a sentence, a JSON document, an alert of Alertmanager."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, get_args

from streaming.alerts.episodes import Episode
from streaming.alerts.rules import rule_of
from streaming.alerts.table import Delivery, TrackedEpisode
from streaming.common.escapes import calling_nobody, shown
from streaming.common.times import iso

Event = Literal["opened", "updated", "closed"]

_NAMED: Final = 3
"""Number of subjects named in a summary."""


def summary(episode: Episode) -> str:
    """Return one sentence that describes the problem, from the sentence of its rule."""
    finding = episode.finding
    count = finding.facts.get("offsets", 0)
    of_groups = f" of {_counted(finding.facts['groups'], 'group')}" if "groups" in finding.facts else ""
    sentence = rule_of(episode).sentence
    text = sentence if isinstance(sentence, str) else sentence(finding)
    return text.format_map(
        {
            **{name: shown(fact) if isinstance(fact, str) else fact for name, fact in finding.facts.items()},
            "subject": shown(finding.subject),
            "place": shown(f"{finding.topic}-{finding.partition}"),
            "offsets": _counted(count, "committed offset") + of_groups,
            "partitions": _counted(count, "partition") + of_groups,
        }
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def document(tracked: TrackedEpisode, delivered: Delivery) -> dict[str, Any]:
    """Return the JSON document for logs and webhooks: `id` and `revision` together identify the message.
    Mentions in the summary are escaped, so that chat programs notify no one."""
    episode, finding = tracked.episode, tracked.episode.finding
    return {
        "event": _event(tracked, delivered),
        "id": episode.id,
        "revision": episode.revision,
        "rule": episode.rule,
        "severity": finding.severity,
        "summary": calling_nobody(summary(episode)),
        "group": finding.group,
        "pattern": finding.pattern,
        "topic": finding.topic,
        "partition": finding.partition,
        "facts": dict(finding.facts),
        "opened_at": iso(episode.opened_at),
        "updated_at": iso(episode.updated_at),
        "closed_at": None if episode.closed_at is None else iso(episode.closed_at),
    }


def summary_document(news: Sequence[tuple[TrackedEpisode, Delivery]]) -> dict[str, Any]:
    """Return the JSON document about many episodes of one rule and severity, with the keys of `document`.
    The same revisions of the same episodes have the same `id`."""
    episodes = sorted((tracked.episode for tracked, _ in news), key=lambda episode: episode.finding.subject)
    first, events = episodes[0], Counter(_event(tracked, delivered) for tracked, delivered in news)
    parts = "\0".join(f"{episode.id}-{episode.revision}" for episode in episodes)
    counted = ", ".join(f"{count} {event}" for event, count in sorted(events.items()))
    named = calling_nobody(", ".join(shown(episode.finding.subject) for episode in episodes[:_NAMED]))
    return {
        "event": "summary",
        "id": hashlib.sha256(parts.encode()).hexdigest()[:24],
        "revision": 1,
        "rule": first.rule,
        "severity": first.finding.severity,
        "summary": f"{first.rule}: {len(episodes)} alerts ({counted}), such as {named}; "
        "offsetlake alerts lists what is open",
        "group": None,
        "pattern": None,
        "topic": None,
        "partition": None,
        "facts": {"alerts": len(episodes), **{event: events[event] for event in get_args(Event)}},
        "opened_at": iso(min(episode.opened_at for episode in episodes)),
        "updated_at": iso(max(episode.updated_at for episode in episodes)),
        "closed_at": None,
    }


def _event(tracked: TrackedEpisode, delivered: Delivery) -> Event:
    if not tracked.episode.is_open:
        return "closed"
    was_delivered = delivered.delivered_at is not None and delivered.delivered_at >= tracked.episode.opened_at
    return "updated" if was_delivered else "opened"


def alertmanager_alerts(
    tracked: TrackedEpisode, delivered: Delivery, labels: Mapping[str, str], *, until: int
) -> Iterator[dict[str, Any]]:
    """Yield the alerts for Alertmanager: the episode, open until `until` (ms) or resolved.

    The severity is a label, and labels identify an alert: if the last delivery had another severity, that
    alert is resolved as well.
    """
    episode = tracked.episode
    end = until if episode.closed_at is None else episode.closed_at
    yield _alert(tracked, labels, episode.finding.severity, end)
    if delivered.severity not in (None, episode.finding.severity):
        yield _alert(tracked, labels, str(delivered.severity), episode.updated_at)


def _alert(tracked: TrackedEpisode, labels: Mapping[str, str], severity: str, end: int) -> dict[str, Any]:
    episode, finding = tracked.episode, tracked.episode.finding
    identity = {
        **labels,
        "alertname": episode.rule,
        "severity": severity,
        "group": finding.group if finding.pattern is None else finding.pattern,
        **rule_of(episode).labels(finding),
    }
    return {
        "labels": {name: str(value) for name, value in identity.items() if value not in (None, "")},
        "annotations": {
            "summary": calling_nobody(summary(episode)),
            "id": episode.id,
            "topic": calling_nobody(finding.topic or ""),
        },
        "startsAt": iso(min(episode.opened_at, end)),
        "endsAt": iso(end),
    }
