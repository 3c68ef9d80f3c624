"""Alert episodes: findings of rules become alerts that open once, change, and close.

A rule (`rules.rule.AlertRule`) judges the tables at one moment: its findings, and the open episodes that it
cannot judge and leaves open. `next_episodes` compares these with the open episodes. The table of episodes is
the only state, so a restart at any time changes nothing.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, get_args

Severity = Literal["critical", "warning", "info"]
SEVERITIES: Final[tuple[Severity, ...]] = get_args(Severity)
"""The most severe first."""

CRITICAL: Final = "critical"
WARNING: Final = "warning"
INFO: Final = "info"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A problem that a rule finds now.

    `subject` identifies what the finding is about: a rule has at most one finding per subject. `group`, and
    the `pattern` of several groups, are None for findings about other things. `topic` and `partition` are the
    worst of those affected; `source_partition` is the offsets partition, None for several. `facts` are JSON
    values that change only with the problem (never the time left). `evidence` identifies the cause: the same
    cause has the same evidence at every evaluation.
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
    """One alert of a rule, from its opening to its closing. Times are in ms; `closed_at` is None while it is
    open.

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
        return self.closed_at is None


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The result of one rule: its findings, and whether an open episode without a finding stays open."""

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
    """Return the episodes that open, change or close at `now` (ms), given all open ones.

    `judgements` are the results by rule id. `source` identifies the watched topic. `last_revision` returns
    the revision of the closed episode with an id (0: none): when the same cause returns, its episode opens
    again.
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
    """Return the id of the episode that a finding opens: it depends on nothing else."""
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
