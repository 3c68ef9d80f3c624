"""The alert rules: what each detects in the tables at one moment, and the message about it.

A rule is one value (`Rule`), which stands below the function that judges for it. To add one, write both and
name it in `RULES`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from streaming.alerts.episodes import CRITICAL, INFO, WARNING, Episode, Finding, Judgement
from streaming.alerts.subjects import (
    BELOW_START_COLUMNS,
    EXPIRING_COLUMNS,
    GroupPolicies,
    below_start_of_each_subject,
    expiring_of_each_subject,
    worst_of_each_subject,
)
from streaming.alerts.view import (
    View,
    cannot_be_judged,
    is_fresh,
    is_stalled,
    judged_partitions,
    of_partitions,
)
from streaming.common.times import iso, to_ms
from streaming.common.timestamps import timestamp
from streaming.lag.log_ends import Partition
from streaming.model import schemas
from streaming.settings.model import AlertSettings


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One alert rule.

    `judge` finds what is wrong. `sentence` is the message about a finding, with the names of its facts in
    braces, and `{subject}`, `{place}` (the worst topic partition) and `{offsets}` (how many offsets of how
    many groups). `labels` are those by which Alertmanager distinguishes alerts of this rule, besides severity
    and group. With `remembers_closed` the rule knows the newest episode of each subject after its closing
    too; maintenance never drops those (`schemas.UNKNOWN_RECORD_VERSION`).
    """

    id: str
    judge: Callable[[View, AlertSettings], Judgement]
    sentence: str
    labels: Callable[[Finding], Mapping[str, object]] = lambda _: {}
    remembers_closed: bool = False


# --- offset_expiring -------------------------------------------------------------------------------------


def _judge_offset_expiring(view: View, settings: AlertSettings) -> Judgement:
    """Find groups whose offsets the broker will drop soon."""
    if not view.is_predicted:
        return Judgement(findings=[], stays=lambda _: True)
    judged = judged_partitions(view.progress, settings, view.now)
    policies = GroupPolicies(settings)
    latest = timestamp(view.now + policies.longest_warning_ms)
    offsets = view.offsets.select(EXPIRING_COLUMNS)  # of a million rows, each further one is copied
    soon = of_partitions(offsets.filter(pc.less_equal(offsets["expires_at"], latest)), judged)
    return Judgement(
        findings=[
            worst.finding(
                CRITICAL if worst.is_critical else WARNING,
                {
                    **worst.counts(),
                    "committed_offset": worst.row["committed_offset"],
                    "expires_at": _text(worst.row["expires_at"]),
                    "expiry_rule": worst.row["rule"],
                },
                evidence=f"{worst.source} {_text(worst.row['expires_at'])}",
            )
            for worst in expiring_of_each_subject(soon, policies, view.now)
        ],
        stays=cannot_be_judged(view, judged),
    )


OFFSET_EXPIRING: Final = Rule(
    id="offset_expiring",
    judge=_judge_offset_expiring,
    sentence="{subject}: the broker will drop {offsets} unless the group commits again; the first is "
    "{place}, {committed_offset}, at {expires_at} ({expiry_rule})",
)


# --- offset_expired --------------------------------------------------------------------------------------


def _judge_offset_expired(view: View, settings: AlertSettings) -> Judgement:
    """Find groups of which the broker has dropped offsets since the last evaluation.

    This has happened, so it needs no partition to be current, and a later commit does not undo it: the group
    has started somewhere else. What was dropped before the job first followed the topic is history.
    """
    return Judgement(
        findings=[
            worst.finding(
                CRITICAL,
                {
                    "offsets": worst.offsets + view.counted(OFFSET_EXPIRED.id, worst.subject, "offsets"),
                    "committed_offset": worst.row["committed_offset"],
                    "dropped_at": _text(worst.row["source_timestamp"]),
                },
                evidence=f"{worst.source} {worst.row['sequence']}",
            )
            for worst in worst_of_each_subject(_not_history(view), GroupPolicies(settings))
        ],
        stays=_is_recent(view, settings),
    )


def _not_history(view: View) -> pa.Table:
    """Return the dropped offsets whose tombstones came after what the job found when it first started.

    An offset that a rebuild no longer found has no tombstone, but was held.
    """
    partitions = view.progress.partitions
    targets = {number: partition.load_target or 0 for number, partition in partitions.items()}
    is_new = [
        offset is None or offset >= targets.get(partition, 0)
        for partition, offset in zip(
            view.dropped["source_partition"].to_pylist(),
            view.dropped["source_offset"].to_pylist(),
            strict=True,
        )
    ]
    return view.dropped.filter(pa.array(is_new, pa.bool_()))


OFFSET_EXPIRED: Final = Rule(
    id="offset_expired",
    judge=_judge_offset_expired,
    sentence="{subject}: the broker has dropped {offsets}, the last at {dropped_at}, such as {place}, "
    "{committed_offset}; consumers continue at auto.offset.reset",
)


# --- offset_below_log_start ------------------------------------------------------------------------------


def _judge_offset_below_log_start(view: View, settings: AlertSettings) -> Judgement:
    """Find groups with unread records that data retention has deleted."""
    starts = view.log_starts
    if starts is None:
        return Judgement(findings=[], stays=lambda _: True)
    judged = judged_partitions(view.progress, settings, view.now)
    offsets = of_partitions(view.offsets.select(BELOW_START_COLUMNS), judged)
    is_not_judged = cannot_be_judged(view, judged)
    return Judgement(
        findings=[
            worst.finding(
                WARNING,
                {
                    **worst.counts(),
                    "committed_offset": worst.row["committed_offset"],
                    "log_start": worst.row["log_start"],
                    "offsets_gone": worst.row["gone"],
                },
                evidence=worst.source,
            )
            for worst in below_start_of_each_subject(offsets, GroupPolicies(settings), starts)
        ],
        stays=lambda episode: is_not_judged(episode) or _is_unanswered(episode, starts),
    )


def _is_unanswered(episode: Episode, log_starts: Mapping[Partition, int | None]) -> bool:
    partition = (episode.finding.topic or "", episode.finding.partition or 0)
    return log_starts.get(partition, 0) is None


OFFSET_BELOW_LOG_START: Final = Rule(
    id="offset_below_log_start",
    judge=_judge_offset_below_log_start,
    sentence="{subject}: data retention has deleted unread records of {offsets}; the worst is {place}, "
    "committed {committed_offset}, where the log now starts at {log_start}",
)


# --- unknown_record_version ------------------------------------------------------------------------------


def _judge_unknown_record_version(view: View, settings: AlertSettings) -> Judgement:
    """Find record types and versions that this release cannot read, and of which there are new records.

    When the topic is re-read from the beginning, counting starts over, so everything found then is new.
    """
    return Judgement(findings=_new_unknown_records(view), stays=_is_recent(view, settings))


def _new_unknown_records(view: View) -> Iterator[Finding]:
    generation = view.progress.generation
    for kind in view.progress.totals.unknown:
        version = "" if kind.value_version is None else f", value version {kind.value_version}"
        subject = f"records of type {kind.record_type}{version}"
        is_same_count = view.counted(UNKNOWN_RECORD_VERSION.id, subject, "generation") == generation
        counted = view.counted(UNKNOWN_RECORD_VERSION.id, subject, "count") if is_same_count else 0
        if kind.count > counted:
            yield Finding(
                severity=WARNING,
                subject=subject,
                facts={
                    "record_type": kind.record_type,
                    "value_version": kind.value_version,
                    "count": kind.count,
                    "first": f"{kind.first.partition}:{kind.first.offset}",
                    "last": f"{kind.last.partition}:{kind.last.offset}",
                    "generation": generation,
                },
                evidence=f"{generation} after {counted}",
            )


UNKNOWN_RECORD_VERSION: Final = Rule(
    id=schemas.UNKNOWN_RECORD_VERSION,
    judge=_judge_unknown_record_version,
    sentence="{count} {subject} cannot be read by this release (first at {first}, last at {last}, as offsets "
    "partition:offset); what they say is missing from the tables",
    labels=lambda finding: {name: finding.facts[name] for name in ("record_type", "value_version")},
    remembers_closed=True,
)


# --- job_behind ------------------------------------------------------------------------------------------


def _judge_job_behind(view: View, settings: AlertSettings) -> Judgement:
    """Find offsets partitions that the job has read only up to too long ago: it is behind, or not running."""
    since = {
        number: at
        for number, partition in view.progress.partitions.items()
        if (at := partition.stable.since) is not None and view.now - at > settings.behind_warning_ms
    }
    if not since:
        return Judgement(findings=[], stays=lambda _: False)
    worst = min(since, key=lambda number: (since[number], number))
    finding = Finding(
        severity=CRITICAL if view.now - since[worst] > settings.behind_critical_ms else WARNING,
        subject="the job",
        topic=view.progress.topic,
        partition=worst,
        facts={"partitions": len(since), "complete_as_of": iso(since[worst])},
        evidence=iso(since[worst]),
    )
    return Judgement(findings=[finding], stays=lambda _: False)


JOB_BEHIND: Final = Rule(
    id="job_behind",
    judge=_judge_job_behind,
    sentence="the job has read {partitions} offsets partition(s) only up to {complete_as_of} or earlier; "
    "predictions about groups in them are suspended",
)


# --- partition_stalled -----------------------------------------------------------------------------------


def _judge_partition_stalled(view: View, settings: AlertSettings) -> Judgement:
    """Find offsets partitions in which an open transaction holds back everything newer."""
    return Judgement(
        findings=[
            Finding(
                severity=WARNING,
                subject=f"offsets partition {number}",
                topic=view.progress.topic,
                partition=number,
                source_partition=number,
                facts={
                    "last_stable_offset": partition.last_stable_offset,
                    "since": iso(partition.held_back_since or 0),
                },
                evidence=str(partition.last_stable_offset),
            )
            for number, partition in sorted(view.progress.partitions.items())
            if is_stalled(partition) and is_fresh(partition.stable, settings, view.now)
        ],
        stays=lambda episode: _is_not_read(episode, view, settings),
    )


def _is_not_read(episode: Episode, view: View, settings: AlertSettings) -> bool:
    """Tell whether the offsets partition of an episode exists, but was not read to its end recently."""
    partition = view.progress.partitions.get(episode.finding.partition or 0)
    return partition is not None and not is_fresh(partition.stable, settings, view.now)


PARTITION_STALLED: Final = Rule(
    id="partition_stalled",
    judge=_judge_partition_stalled,
    sentence="{subject}: an open transaction has held readers back at offset {last_stable_offset} since "
    "{since}; commits of its groups are not visible and predictions about them are suspended",
    labels=lambda finding: {"offsets_partition": finding.partition},
)


# --- empty_group_id --------------------------------------------------------------------------------------


def _judge_empty_group_id(view: View, settings: AlertSettings) -> Judgement:
    """Find recent commits of the empty group id, which clients now refuse (KIP-289)."""
    judged = judged_partitions(view.progress, settings, view.now)
    newest_old = timestamp(view.now - settings.close_after_ms)
    rows = of_partitions(view.offsets.filter(pc.equal(view.offsets["group"], "")), judged)
    rows = rows.filter(pc.greater(rows["source_timestamp"], newest_old))
    order = [("source_timestamp", "descending"), ("topic", "ascending")]
    return Judgement(
        findings=[
            replace(worst.finding(INFO, worst.counts(), evidence=worst.source), topic=None, partition=None)
            for worst in worst_of_each_subject(rows, GroupPolicies(settings), order=order)
        ],
        stays=cannot_be_judged(view, judged),
    )


EMPTY_GROUP_ID: Final = Rule(
    id="empty_group_id",
    judge=_judge_empty_group_id,
    sentence='the group with the empty id ("") still receives commits, on {offsets}; '
    "newer clients refuse it (KIP-289)",
)


# --- all of them -----------------------------------------------------------------------------------------

RULES: Final = (
    OFFSET_EXPIRING,
    OFFSET_EXPIRED,
    OFFSET_BELOW_LOG_START,
    UNKNOWN_RECORD_VERSION,
    JOB_BEHIND,
    PARTITION_STALLED,
    EMPTY_GROUP_ID,
)

_BY_ID: Final = {rule.id: rule for rule in RULES}


def rule_of(episode: Episode) -> Rule:
    """Return the rule whose episode it is."""
    return _BY_ID[episode.rule]


def judge(view: View, settings: AlertSettings) -> dict[str, Judgement]:
    """Apply all rules; return what each says, by its id."""
    return {rule.id: rule.judge(view, settings) for rule in RULES}


def _is_recent(view: View, settings: AlertSettings) -> Callable[[Episode], bool]:
    """Return a predicate: whether an open episode changed within `close_after`."""
    return lambda episode: view.now - episode.updated_at < settings.close_after_ms


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else iso(to_ms(moment))
