"""What an alert rule is, and what several of them need."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from streaming.alerts.episodes import Episode, Finding, Judgement
from streaming.alerts.rules.view import RuleContext
from streaming.common.times import iso, to_ms
from streaming.settings.model import AlertSettings


@dataclass(frozen=True, kw_only=True)
class AlertRule:
    """One alert rule.

    `judge` finds what is wrong. `sentence` is the message about a finding (or gives it, where findings are of
    several kinds), with the names of its facts in braces, and `{subject}`, `{place}` (the worst topic
    partition), `{offsets}` and `{partitions}` (how many of how many groups). `labels` are those by which
    Alertmanager distinguishes alerts of this rule, besides severity and group. With `remembers_closed` the
    rule knows the newest episode of each subject after its closing too; maintenance never drops those
    (`schemas.UNKNOWN_RECORD_VERSION`).
    """

    id: str
    judge: Callable[[RuleContext, AlertSettings], Judgement]
    sentence: str | Callable[[Finding], str]
    labels: Callable[[Finding], Mapping[str, object]] = lambda _: {}
    remembers_closed: bool = False


def is_recent(view: RuleContext, settings: AlertSettings) -> Callable[[Episode], bool]:
    """Return a predicate: whether an open episode changed within `close_after`."""
    return lambda episode: view.now - episode.updated_at < settings.close_after_ms


def text(moment: datetime | None) -> str | None:
    """Write a time of a row as facts have it."""
    return None if moment is None else iso(to_ms(moment))
