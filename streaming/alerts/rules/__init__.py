"""The alert rules: each finds problems in the tables at one moment, and has the message about them.

A rule is one value (`rule.AlertRule`), below the function that judges for it. To add one, write both and
append the rule to `RULES`.
"""

from typing import Final

from streaming.alerts.episodes import Episode, Judgement
from streaming.alerts.rules.job import JOB_BEHIND, PARTITION_STALLED, UNKNOWN_RECORD_VERSION
from streaming.alerts.rules.lag import (
    GROUP_REWOUND,
    GROUP_STALLED,
    GROUP_STOPPED,
    LAG_SECONDS,
    OFFSET_BEYOND_LOG_END,
    OFFSET_OF_RECREATED_TOPIC,
)
from streaming.alerts.rules.offsets import (
    EMPTY_GROUP_ID,
    OFFSET_BELOW_LOG_START,
    OFFSET_EXPIRED,
    OFFSET_EXPIRING,
    RETENTION_UNKNOWN,
)
from streaming.alerts.rules.rule import AlertRule, selected_by
from streaming.alerts.rules.view import RuleContext

__all__ = [
    "EMPTY_GROUP_ID",
    "GROUP_REWOUND",
    "GROUP_STALLED",
    "GROUP_STOPPED",
    "JOB_BEHIND",
    "LAG_SECONDS",
    "OFFSET_BELOW_LOG_START",
    "OFFSET_BEYOND_LOG_END",
    "OFFSET_EXPIRED",
    "OFFSET_EXPIRING",
    "OFFSET_OF_RECREATED_TOPIC",
    "PARTITION_STALLED",
    "RETENTION_UNKNOWN",
    "RULES",
    "UNKNOWN_RECORD_VERSION",
    "judge",
    "rule_of",
]

RULES: Final[tuple[AlertRule, ...]] = (
    OFFSET_EXPIRING,
    RETENTION_UNKNOWN,
    OFFSET_EXPIRED,
    OFFSET_BELOW_LOG_START,
    UNKNOWN_RECORD_VERSION,
    JOB_BEHIND,
    PARTITION_STALLED,
    EMPTY_GROUP_ID,
    GROUP_REWOUND,
    GROUP_STOPPED,
    GROUP_STALLED,
    LAG_SECONDS,
    OFFSET_BEYOND_LOG_END,
    OFFSET_OF_RECREATED_TOPIC,
)

_BY_ID: Final = {rule.id: rule for rule in RULES}


def rule_of(episode: Episode) -> AlertRule:
    """Return the rule of an episode. Raises `KeyError` for the id of a rule that does not exist."""
    return _BY_ID[episode.rule]


def judge(view: RuleContext) -> dict[str, Judgement]:
    """Apply all rules; return their results by rule id."""
    return {rule.id: rule.judge(selected_by([rule], view)) for rule in RULES}
