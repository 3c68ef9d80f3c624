"""The type of an alert rule, and functions that several rules use."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from streaming.alerts.episodes import Episode, Finding, Judgement
from streaming.alerts.rules.view import RuleContext
from streaming.common.times import iso, to_ms


@dataclass(frozen=True, kw_only=True)
class AlertRule:
    """One alert rule.

    `judge` returns the findings. `sentence` is the message about a finding, or a function that returns it,
    with the names of facts in braces, and `{subject}`, `{place}` (the worst topic partition), `{offsets}` and
    `{partitions}` (their number, and the number of groups). `labels` returns the labels by which Alertmanager
    distinguishes alerts of this rule, besides severity and group. With `remembers_closed` the rule also gets
    the newest closed episode of each subject, and maintenance never drops these
    (`schemas.UNKNOWN_RECORD_VERSION`).
    """

    id: str
    judge: Callable[[RuleContext], Judgement]
    sentence: str | Callable[[Finding], str]
    labels: Callable[[Finding], Mapping[str, object]] = lambda _: {}
    remembers_closed: bool = False


def is_recent(view: RuleContext) -> Callable[[Episode], bool]:
    """Return a predicate: whether an open episode changed within `close_after`."""
    return lambda episode: view.now - episode.updated_at < view.settings.close_after_ms


def text(moment: datetime | None) -> str | None:
    """Return a time as text for facts (ISO 8601, UTC)."""
    return None if moment is None else iso(to_ms(moment))
