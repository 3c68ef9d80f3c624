"""Rules about committed offsets: those that the broker drops, and those with deleted records."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow.compute as pc

from streaming.alerts.episodes import CRITICAL, INFO, WARNING, Episode, Finding, Judgement, Severity
from streaming.alerts.rules.rule import AlertRule, is_recent, text
from streaming.alerts.rules.subjects import (
    Worst,
    below_start_of_each_subject,
    expiring_of_each_subject,
    log_starts_of,
    worst_of_each_subject,
)
from streaming.alerts.rules.view import RuleContext, are_of_partitions, cannot_be_judged, not_history
from streaming.common.arrays import Mask, to_mask
from streaming.common.timestamps import timestamp
from streaming.expiry.rules import EXPLICIT, SIMPLE, UNSUBSCRIBED_RULES
from streaming.lag.log_ranges import Partition

# --- offset_expiring ------------------------------------------------------------------------------------


def _expire_soon(view: RuleContext) -> Mask:
    offsets = view.offsets
    if not view.is_predicted:
        return np.zeros(len(offsets), np.bool_)
    latest = timestamp(view.now + view.policies.longest_warning_ms)
    is_soon = to_mask(pc.less_equal(offsets["expires_at"], latest))
    return is_soon & are_of_partitions(offsets, view.judged)


def _judge_offset_expiring(view: RuleContext) -> Judgement:
    if not view.is_predicted:
        return Judgement(findings=[], stays=lambda _: True)
    return Judgement(
        findings=[
            worst.finding(
                _severity_of_expiry(worst),
                {
                    **worst.counts(),
                    "committed_offset": worst.row["committed_offset"],
                    "expires_at": text(worst.row["expires_at"]),
                    "expiry_rule": worst.row["rule"],
                },
                evidence=f"{worst.source} {text(worst.row['expires_at'])}",
            )
            for worst in expiring_of_each_subject(view.offsets, view.policies, view.now)
        ],
        stays=cannot_be_judged(view),
    )


def _severity_of_expiry(worst: Worst) -> Severity:
    """A group with members does not miss the offsets of topics it no longer subscribes to: that is only
    info."""
    if worst.row["rule"] in UNSUBSCRIBED_RULES:
        return INFO
    return CRITICAL if worst.row["is_critical"] else WARNING


_UNLESS: Final[Mapping[str, str]] = {
    SIMPLE.name: "the group commits again",
    EXPLICIT.name: "the consumers commit again",
}
"""What prevents expiry, by rule. Under all other rules the group has no members: new members help, but in a
classic group no commit does."""


def _sentence_of_expiry(finding: Finding) -> str:
    rule = finding.facts["expiry_rule"]
    if rule in UNSUBSCRIBED_RULES:
        return (
            "{subject} runs and no longer subscribes to the topics of {offsets}, which the broker will drop; "
            "the first is {place} at offset {committed_offset}, which expires at {expires_at} ({expiry_rule})"
        )
    unless = _UNLESS.get(rule, "the consumers start again")
    return (
        f"{{subject}}: the broker will drop {{offsets}} unless {unless}; the first is {{place}} at offset "
        "{committed_offset}, which expires at {expires_at} ({expiry_rule})"
    )


OFFSET_EXPIRING: Final = AlertRule(
    id="offset_expiring",
    judge=_judge_offset_expiring,
    sentence=_sentence_of_expiry,
    of_offsets=_expire_soon,
)


# --- retention_unknown ----------------------------------------------------------------------------------


def _judge_retention_unknown(view: RuleContext) -> Judgement:
    """Find that the offset retention of the brokers is unknown, so that no rule can warn of expiry."""
    if not view.judged:
        return Judgement(findings=[], stays=lambda _: True)
    finding = Finding(severity=WARNING, subject="the retention of offsets")
    return Judgement(findings=[] if view.is_predicted else [finding], stays=lambda _: False)


RETENTION_UNKNOWN: Final = AlertRule(
    id="retention_unknown",
    judge=_judge_retention_unknown,
    sentence="the offset retention of the brokers is unknown, so nothing warns of expiring offsets: no "
    "broker has reported it (the job needs the permission DescribeConfigs), and [expiry] retention is not "
    "set",
)


# --- offset_expired -------------------------------------------------------------------------------------


def _judge_offset_expired(view: RuleContext) -> Judgement:
    """Find groups whose offsets the broker has dropped since the last evaluation.

    A later commit does not undo this, because the group has continued elsewhere; so offsets partitions need
    not be complete, and an episode closes by age. Drops from before the job first followed the topic are
    history.
    """
    return Judgement(
        findings=[
            worst.finding(
                CRITICAL,
                {
                    "offsets": worst.offsets + view.counted(OFFSET_EXPIRED.id, worst.subject, "offsets"),
                    "committed_offset": worst.row["committed_offset"],
                    "dropped_at": text(worst.row["source_timestamp"]),
                },
                evidence=f"{worst.source} {worst.row['sequence']}",
            )
            for worst in worst_of_each_subject(not_history(view.dropped, view.progress), view.policies)
        ],
        stays=is_recent(view),
    )


def _sentence_of_drop(finding: Finding) -> str:
    """The offset is unknown if no commit could be read, the time if a rebuild found the drop."""
    which = "" if finding.facts["offsets"] == 1 else ", one of them"
    offset = "" if finding.facts["committed_offset"] is None else " at offset {committed_offset}"
    time = "" if finding.facts["dropped_at"] is None else " at {dropped_at}"
    return (
        f"{{subject}}: the broker has dropped {{offsets}}{which} ({{place}}{offset}){time}; "
        "consumers continue at auto.offset.reset"
    )


OFFSET_EXPIRED: Final = AlertRule(
    id="offset_expired",
    judge=_judge_offset_expired,
    sentence=_sentence_of_drop,
)


# --- offset_below_log_start -----------------------------------------------------------------------------


def _are_below_start(view: RuleContext) -> Mask:
    offsets = view.offsets
    starts = log_starts_of(offsets, view.log_starts or {})
    is_below = to_mask(pc.less(offsets["committed_offset"], starts))
    return is_below & are_of_partitions(offsets, view.judged)


def _judge_offset_below_log_start(view: RuleContext) -> Judgement:
    """Find groups with unread records that the retention of their topic has deleted."""
    starts = view.log_starts
    if starts is None:
        return Judgement(findings=[], stays=lambda _: True)
    is_not_judged = cannot_be_judged(view)
    return Judgement(
        findings=[
            worst.finding(
                WARNING if worst.row["gone"] > 1 else INFO,
                {
                    **worst.counts(),
                    "committed_offset": worst.row["committed_offset"],
                    "log_start": worst.row["log_start"],
                    "offsets_gone": worst.row["gone"],
                },
                evidence=worst.source,
            )
            for worst in below_start_of_each_subject(view.offsets, view.policies, starts)
        ],
        stays=lambda episode: is_not_judged(episode) or _is_unanswered(episode, starts),
    )


def _is_unanswered(episode: Episode, log_starts: Mapping[Partition, int | None]) -> bool:
    partition = (episode.finding.topic or "", episode.finding.partition or 0)
    return log_starts.get(partition, 0) is None


def _sentence_below_log_start(finding: Finding) -> str:
    if finding.facts["offsets_gone"] == 1:
        return (
            "{subject}: the log starts one above {offsets}, such as {place} at offset {committed_offset}: "
            "the deleted record may be a transaction marker, which consumers skip, or one real record"
        )
    return (
        "{subject}: the log starts above {offsets}; the worst is {place} at offset {committed_offset}, "
        "where it now starts at {log_start}: up to {offsets_gone} unread records were deleted"
    )


OFFSET_BELOW_LOG_START: Final = AlertRule(
    id="offset_below_log_start",
    judge=_judge_offset_below_log_start,
    sentence=_sentence_below_log_start,
    of_offsets=_are_below_start,
)


# --- empty_group_id -------------------------------------------------------------------------------------


def _are_recent_without_id(view: RuleContext) -> Mask:
    offsets, newest_old = view.offsets, timestamp(view.now - view.settings.close_after_ms)
    is_recent = to_mask(pc.greater(offsets["source_timestamp"], newest_old))
    is_empty = to_mask(pc.equal(offsets["group"], ""))
    return is_empty & is_recent & are_of_partitions(offsets, view.judged)


def _judge_empty_group_id(view: RuleContext) -> Judgement:
    """Find recent commits of the empty group id, which clients now refuse (KIP-289)."""
    order = [("source_timestamp", "descending"), ("topic", "ascending"), ("partition", "ascending")]
    return Judgement(
        findings=[
            replace(worst.finding(INFO, worst.counts(), evidence=worst.source), topic=None, partition=None)
            for worst in worst_of_each_subject(view.offsets, view.policies, order=order)
        ],
        stays=cannot_be_judged(view),
    )


EMPTY_GROUP_ID: Final = AlertRule(
    id="empty_group_id",
    judge=_judge_empty_group_id,
    sentence='the group with the empty id ("") still receives commits, on {offsets}; '
    "newer clients refuse it (KIP-289)",
    of_offsets=_are_recent_without_id,
)
