"""Alert episodes: what the rules find becomes alerts that open once, change, and close.

A rule (`rules.Rule`) judges the tables at one moment: what is wrong now, and which open episodes it cannot
judge and so leaves as they are. `next_episodes` compares that with what is open. The episodes themselves,
kept in a table, are the only memory, so a restart at any moment changes nothing.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, get_args

Severity = Literal["critical", "warning", "info"]
SEVERITIES: Final[tuple[Severity, ...]] = get_args(Severity)
"""The gravest first."""

CRITICAL: Final = "critical"
WARNING: Final = "warning"
INFO: Final = "info"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something that a rule finds wrong now.

    `subject` names what it is about; a rule finds at most one thing about a subject. `group`, or the
    `pattern` of several groups, is None where it is not about groups; `topic` and `partition` are the worst
    of those concerned; `source_partition` the offsets partition, None where it is about several.
    `facts` are JSON values that do not change by themselves (never the time left). `evidence` is what
    caused it: the same cause has the same evidence, whenever it is evaluated.
    """

    severity: Severity
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
    """One alert of a rule, from its opening to its closing; times in ms, `closed_at` None while it is open.

    `revision` increases with every change that is delivered: opening, a new severity, and closing.
    """

    id: str
    rule: str
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
    """The result of one rule: its findings, and which open episodes stay open without one."""

    findings: Iterable[Finding]
    stays: Callable[[Episode], bool]


def next_episodes(
    known: Iterable[Episode],
    judgements: Mapping[str, Judgement],
    *,
    source: str,
    now: int,
    last_revision: Callable[[str], int] = lambda _: 0,
) -> list[Episode]:
    """Return the episodes that open, change or close at `now`, given all that are open.

    `judgements` has the result of each rule, by its id. `source` distinguishes the watched topic from others.
    `last_revision` is that of a closed episode of this id (0 = none): a cause that comes back, and is the
    same, opens its episode again.
    """
    going_on = {(episode.rule, episode.finding.subject): episode for episode in known if episode.is_open}
    changed: list[Episode] = []
    for rule, judgement in judgements.items():
        found = {finding.subject: finding for finding in judgement.findings}
        for subject, finding in found.items():
            episode = going_on.get((rule, subject))
            if episode is None:
                changed.append(_opened(rule, finding, source, now, last_revision))
            elif finding != episode.finding:
                changed.append(_updated(episode, finding, now))
        changed += [
            replace(episode, closed_at=now, updated_at=now, revision=episode.revision + 1)
            for (of_rule, subject), episode in going_on.items()
            if of_rule == rule and subject not in found and not judgement.stays(episode)
        ]
    return changed


def episode_id(rule: str, finding: Finding, source: str) -> str:
    """Return the id of the episode that a finding opens: the same whoever computes it, and when."""
    parts = (source, rule, finding.subject, finding.evidence)
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _opened(
    rule: str, finding: Finding, source: str, now: int, last_revision: Callable[[str], int]
) -> Episode:
    identity = episode_id(rule, finding, source)
    revision = last_revision(identity) + 1
    return Episode(id=identity, rule=rule, revision=revision, opened_at=now, updated_at=now, finding=finding)


def _updated(episode: Episode, finding: Finding, now: int) -> Episode:
    is_news = finding.severity != episode.finding.severity
    return replace(episode, finding=finding, updated_at=now, revision=episode.revision + is_news)
