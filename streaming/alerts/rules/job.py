"""Rules about reading the offsets topic: records that cannot be read, and partitions that are not read far
enough."""

from collections.abc import Iterator
from typing import Final

from streaming.alerts.episodes import CRITICAL, WARNING, Episode, Finding, Judgement
from streaming.alerts.rules.rule import AlertRule, is_recent
from streaming.alerts.rules.view import RuleContext
from streaming.common.times import iso
from streaming.model import schemas
from streaming.model.completeness import CURRENT, STALLED

# --- unknown_record_version -----------------------------------------------------------------------------


def _judge_unknown_record_version(view: RuleContext) -> Judgement:
    """Find record types and versions that this release cannot read and that have new records.

    When the topic is read again from the beginning, counts start again, so all records count as new.
    """
    return Judgement(findings=_new_unknown_records(view), stays=is_recent(view))


def _new_unknown_records(view: RuleContext) -> Iterator[Finding]:
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


UNKNOWN_RECORD_VERSION: Final = AlertRule(
    id=schemas.UNKNOWN_RECORD_VERSION,
    judge=_judge_unknown_record_version,
    sentence="{count} {subject} cannot be read by this release (first at {first}, last at {last}, as offsets "
    "partition:offset); their content is missing from offsets, groups and changes",
    labels=lambda finding: {name: finding.facts[name] for name in ("record_type", "value_version")},
    remembers_closed=True,
)


# --- job_behind -----------------------------------------------------------------------------------------


def _judge_job_behind(view: RuleContext) -> Judgement:
    """Find offsets partitions that the job has not read for too long: it is behind, or not running."""
    since = {
        number: at
        for number, partition in view.progress.partitions.items()
        if (at := partition.stable.since) is not None and view.now - at > view.settings.behind_warning_ms
    }
    if not since:
        return Judgement(findings=[], stays=lambda _: False)
    worst = min(since, key=lambda number: (since[number], number))
    finding = Finding(
        severity=CRITICAL if view.now - since[worst] > view.settings.behind_critical_ms else WARNING,
        subject="the job",
        topic=view.progress.topic,
        partition=worst,
        facts={"partitions": len(since), "complete_as_of": iso(since[worst])},
        evidence=iso(since[worst]),
    )
    return Judgement(findings=[finding], stays=lambda _: False)


JOB_BEHIND: Final = AlertRule(
    id="job_behind",
    judge=_judge_job_behind,
    sentence="the job has read {partitions} offsets partition(s) only up to {complete_as_of} or earlier; "
    "later commits of their groups are unknown",
)


# --- partition_stalled ----------------------------------------------------------------------------------


def _judge_partition_stalled(view: RuleContext) -> Judgement:
    """Find offsets partitions in which an open transaction hides all newer records."""
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
                    "since": iso(partition.open_transaction_since or 0),
                },
                evidence=str(partition.last_stable_offset),
            )
            for number, partition in sorted(view.progress.partitions.items())
            if _is_stalled(number, view)
        ],
        stays=lambda episode: _is_not_read(episode, view),
    )


def _is_stalled(number: int, view: RuleContext) -> bool:
    """Return whether an offsets partition has been stalled for longer than a transaction should be open."""
    since = view.progress.partitions[number].open_transaction_since or view.now
    is_long = view.now - since >= view.within_ms  # (a transaction open at the start counts at once)
    return is_long and not view.completeness.is_silent and view.completeness.state(number) == STALLED


def _is_not_read(episode: Episode, view: RuleContext) -> bool:
    """Return whether the offsets partition of an episode exists, and is incomplete for another reason."""
    number = episode.finding.partition or 0
    completeness = view.completeness
    is_there = number in completeness.states
    return is_there and (completeness.is_silent or completeness.state(number) not in (CURRENT, STALLED))


PARTITION_STALLED: Final = AlertRule(
    id="partition_stalled",
    judge=_judge_partition_stalled,
    sentence="{subject}: an open transaction has held readers back at offset {last_stable_offset} since "
    "{since}; commits of its groups are not visible and predictions about them are suspended",
    labels=lambda finding: {"offsets_partition": finding.partition},
)
