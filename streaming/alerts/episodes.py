"""Alert episodes: what the rules find becomes messages that open once, change, and close.

A rule (`alert_rules`) judges the tables at one moment: what is wrong now, and which open episodes it cannot
judge and so leaves as they are. `next_episodes` compares that with what is open. There is no other memory
than the episodes themselves, which are kept in a table, so a restart at any moment changes nothing.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

CRITICAL: Final = "critical"
WARNING: Final = "warning"
INFO: Final = "info"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something that is wrong now, in the words of one rule.

    `subject` names what it is about; a rule finds at most one thing about a subject. `group`, or the
    `pattern` of several groups, is None where it is not about groups; `topic` and `partition` are the worst
    of those concerned; `source_partition` the offsets partition, None where it is about several.
    `facts` are values of JSON that do not change by themselves (no time that is left). `evidence` is what
    brought it about: the same cause has the same evidence, whenever it is looked at.
    """

    rule: str
    severity: str
    subject: str
    group: str | None = None
    pattern: str | None = None
    topic: str | None = None
    partition: int | None = None
    source_partition: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    evidence: str = field(default="", compare=False)


@dataclass(frozen=True, kw_only=True)
class Episode:
    """One alert from its opening to its closing; times in milliseconds, `closed_at` None while it is open.

    `revision` grows when people should be told: at the opening, a new severity and the closing.
    """

    id: str
    revision: int
    opened_at: int
    updated_at: int
    closed_at: int | None = None
    finding: Finding

    @property
    def is_open(self) -> bool:
        """Whether it is still going on."""
        return self.closed_at is None


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What one rule says: its findings, and which open episodes stay open without one."""

    rule: str
    findings: Iterable[Finding]
    stays: Callable[[Episode], bool]


def next_episodes(
    known: Iterable[Episode],
    judgements: Iterable[Judgement],
    *,
    source: str,
    now: int,
    last_revision: Callable[[str], int] = lambda _: 0,
) -> list[Episode]:
    """Return the episodes that open, change or close at `now`, given all that are open.

    `source` tells the topic that is watched from others. `last_revision` is that of a closed episode of
    this id (0 = none): a cause that comes back, and is the same, opens its episode again.
    """
    going_on = {(e.finding.rule, e.finding.subject): e for e in known if e.is_open}
    changed: list[Episode] = []
    for judgement in judgements:
        found = {finding.subject: finding for finding in judgement.findings}
        for subject, finding in found.items():
            episode = going_on.get((judgement.rule, subject))
            if episode is None:
                changed.append(_opened(finding, source, now, last_revision))
            elif finding != episode.finding:
                changed.append(_updated(episode, finding, now))
        changed += [
            replace(episode, closed_at=now, updated_at=now, revision=episode.revision + 1)
            for (rule, subject), episode in going_on.items()
            if rule == judgement.rule and subject not in found and not judgement.stays(episode)
        ]
    return changed


def episode_id(finding: Finding, source: str) -> str:
    """Return the id of the episode that a finding opens: the same whoever computes it, and when."""
    parts = (source, finding.rule, finding.subject, finding.evidence)
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _opened(finding: Finding, source: str, now: int, last_revision: Callable[[str], int]) -> Episode:
    identity = episode_id(finding, source)
    revision = last_revision(identity) + 1
    return Episode(id=identity, revision=revision, opened_at=now, updated_at=now, finding=finding)


def _updated(episode: Episode, finding: Finding, now: int) -> Episode:
    is_news = finding.severity != episode.finding.severity
    return replace(episode, finding=finding, updated_at=now, revision=episode.revision + is_news)
