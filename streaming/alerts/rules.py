"""The alert rules: what each finds wrong in the tables at one moment. Pure functions of a `View`.

Predictions about groups are made only for offsets partitions of which the job has seen everything until a
moment ago (`judged_partitions`). About the groups of the others nothing is said: what is open stays open,
and `job_behind` or `partition_stalled` speaks instead.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from streaming.alerts.episodes import CRITICAL, INFO, WARNING, Episode, Finding, Judgement
from streaming.alerts.subjects import GroupPolicies, expiring_of_each_subject, worst_of_each_subject
from streaming.common.times import iso, to_ms
from streaming.common.timestamps import timestamp
from streaming.model.progress import PartitionProgress, Progress, Reached
from streaming.model.schemas import UNKNOWN_RECORD_VERSION
from streaming.settings.model import AlertSettings

OFFSET_EXPIRING: Final = "offset_expiring"
OFFSET_EXPIRED: Final = "offset_expired"
OFFSET_BELOW_LOG_START: Final = "offset_below_log_start"
JOB_BEHIND: Final = "job_behind"
PARTITION_STALLED: Final = "partition_stalled"
EMPTY_GROUP_ID: Final = "empty_group_id"

JOB: Final = "the job"
"""The subject of `job_behind`."""

TopicPartition = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class View:
    """What the rules look at; `now` in milliseconds.

    `offsets` are the live offsets (schema `OFFSETS`), where `is_predicted` with the columns that `expiry`
    adds. `dropped` are rows of `changes` that the broker has probably expired and no evaluation has seen.
    `log_starts` holds where the logs of the committed topic partitions start (None: no answer); it is None
    as a whole where no broker was asked. `known` is the newest episode by rule and subject: all that are
    open, of `unknown_record_version` closed ones too.
    """

    now: int
    progress: Progress
    offsets: pa.Table
    is_predicted: bool
    dropped: pa.Table
    log_starts: Mapping[TopicPartition, int | None] | None
    known: Mapping[tuple[str, str], Episode]


Rule = Callable[[View, AlertSettings], Judgement]


def judge(view: View, settings: AlertSettings) -> list[Judgement]:
    """Apply all rules."""
    return [rule(view, settings) for rule in RULES]


def is_stalled(partition: PartitionProgress) -> bool:
    """Tell whether an open transaction held the partition back when it was last read to its readable end."""
    return partition.stable.as_of is not None and partition.is_stalled(partition.stable.as_of)


def judged_partitions(progress: Progress, settings: AlertSettings, now: int) -> set[int]:
    """Return the offsets partitions of which everything is known until a moment ago.

    Behind an open transaction there may be commits that nobody can read, so it counts what was in the log.
    Tables that are being rebuilt are known to be wrong.
    """
    if progress.rebuild is not None:
        return set()
    return {
        number
        for number, partition in progress.partitions.items()
        if partition.loaded and _is_fresh(partition.whole, settings, now) and not is_stalled(partition)
    }


def offset_expiring(view: View, settings: AlertSettings) -> Judgement:
    """Find groups whose offsets the broker will drop soon."""
    judged = judged_partitions(view.progress, settings, view.now)
    if not view.is_predicted:
        return Judgement(rule=OFFSET_EXPIRING, findings=[], stays=lambda _: True)
    policies = GroupPolicies(settings)
    latest = timestamp(view.now + policies.longest_warning_ms)
    soon = _of_partitions(view.offsets.filter(pc.less_equal(view.offsets["expires_at"], latest)), judged)
    return Judgement(
        rule=OFFSET_EXPIRING,
        findings=[
            Finding(
                rule=OFFSET_EXPIRING,
                severity=INFO if worst.pattern else CRITICAL if worst.is_critical else WARNING,
                **worst.place(),
                facts={
                    **worst.counts(),
                    "committed_offset": worst.row["committed_offset"],
                    "expires_at": _text(worst.row["expires_at"]),
                    "expiry_rule": worst.row["rule"],
                },
                evidence=f"{worst.source} {_text(worst.row['expires_at'])}",
            )
            for worst in expiring_of_each_subject(soon, policies, view.now)
        ],
        stays=_is_not_judged(view, judged),
    )


def offset_expired(view: View, settings: AlertSettings) -> Judgement:
    """Find groups of which the broker has dropped offsets since the last evaluation.

    This has happened, so it needs no partition to be current, and a later commit does not undo it: the group
    has started somewhere else. What was dropped before the job first began to follow the topic is history.
    """
    return Judgement(
        rule=OFFSET_EXPIRED,
        findings=[
            Finding(
                rule=OFFSET_EXPIRED,
                severity=INFO if worst.pattern else CRITICAL,
                **worst.place(),
                facts={
                    "offsets": worst.offsets + _fact(view, OFFSET_EXPIRED, worst.subject, "offsets", 0),
                    "committed_offset": worst.row["committed_offset"],
                    "dropped_at": _text(worst.row["source_timestamp"]),
                },
                evidence=f"{worst.source} {worst.row['sequence']}",
            )
            for worst in worst_of_each_subject(_not_history(view), GroupPolicies(settings))
        ],
        stays=lambda episode: view.now - episode.updated_at < settings.close_after_ms,
    )


def offset_below_log_start(view: View, settings: AlertSettings) -> Judgement:
    """Find groups of whose unread records data retention has deleted some."""
    judged = judged_partitions(view.progress, settings, view.now)
    starts = view.log_starts
    if starts is None:
        return Judgement(rule=OFFSET_BELOW_LOG_START, findings=[], stays=lambda _: True)
    below = _with_gone_records(_of_partitions(view.offsets, judged), starts)
    is_not_judged = _is_not_judged(view, judged)
    return Judgement(
        rule=OFFSET_BELOW_LOG_START,
        findings=[
            Finding(
                rule=OFFSET_BELOW_LOG_START,
                severity=INFO if worst.pattern else WARNING,
                **worst.place(),
                facts={
                    **worst.counts(),
                    "committed_offset": worst.row["committed_offset"],
                    "log_start": worst.row["log_start"],
                    "offsets_gone": worst.row["gone"],
                },
                evidence=worst.source,
            )
            for worst in worst_of_each_subject(below, GroupPolicies(settings))
        ],
        stays=lambda episode: is_not_judged(episode) or _is_unanswered(episode, starts),
    )


def unknown_record_version(view: View, settings: AlertSettings) -> Judgement:
    """Find record types and versions that this release cannot read, and of which there are new records.

    Whenever the topic is read anew it is counted anew, so all that is found then counts as new.
    """
    generation = view.progress.generation

    def findings() -> Iterator[Finding]:
        for kind in view.progress.totals.unknown:
            version = "" if kind.value_version is None else f", value version {kind.value_version}"
            subject = f"records of type {kind.record_type}{version}"
            is_counted_on = _fact(view, UNKNOWN_RECORD_VERSION, subject, "generation", 0) == generation
            counted = _fact(view, UNKNOWN_RECORD_VERSION, subject, "count", 0) if is_counted_on else 0
            if kind.count <= counted:
                continue
            yield Finding(
                rule=UNKNOWN_RECORD_VERSION,
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

    return Judgement(
        rule=UNKNOWN_RECORD_VERSION,
        findings=findings(),
        stays=lambda episode: view.now - episode.updated_at < settings.close_after_ms,
    )


def job_behind(view: View, settings: AlertSettings) -> Judgement:
    """Find that what the job has read is complete only up to too long ago: it is behind, or not running."""
    since = {
        number: at
        for number, partition in view.progress.partitions.items()
        if (at := partition.stable.since) is not None and view.now - at > settings.behind_warning_ms
    }
    findings = []
    if since:
        worst = min(since, key=lambda number: (since[number], number))
        is_critical = view.now - since[worst] > settings.behind_critical_ms
        findings.append(
            Finding(
                rule=JOB_BEHIND,
                severity=CRITICAL if is_critical else WARNING,
                subject=JOB,
                topic=view.progress.topic,
                partition=worst,
                facts={"partitions": len(since), "complete_as_of": iso(since[worst])},
                evidence=iso(since[worst]),
            )
        )
    return Judgement(rule=JOB_BEHIND, findings=findings, stays=lambda _: False)


def partition_stalled(view: View, settings: AlertSettings) -> Judgement:
    """Find offsets partitions of which an open transaction hides everything that is newer."""
    return Judgement(
        rule=PARTITION_STALLED,
        findings=[
            Finding(
                rule=PARTITION_STALLED,
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
            if is_stalled(partition) and _is_fresh(partition.stable, settings, view.now)
        ],
        stays=lambda episode: _is_out_of_sight(episode, view, settings),
    )


def empty_group_id(view: View, settings: AlertSettings) -> Judgement:
    """Find that somebody still commits under the empty group id, which clients now refuse (KIP-289)."""
    judged = judged_partitions(view.progress, settings, view.now)
    newest_old = timestamp(view.now - settings.close_after_ms)
    rows = _of_partitions(view.offsets.filter(pc.equal(view.offsets["group"], "")), judged)
    rows = rows.filter(pc.greater(rows["source_timestamp"], newest_old))
    rows = rows.sort_by([("source_timestamp", "descending"), ("topic", "ascending")])
    return Judgement(
        rule=EMPTY_GROUP_ID,
        findings=[
            Finding(
                rule=EMPTY_GROUP_ID,
                severity=INFO,
                **(worst.place() | {"topic": None, "partition": None}),
                facts=worst.counts(),
                evidence=worst.source,
            )
            for worst in worst_of_each_subject(rows, GroupPolicies(settings))
        ],
        stays=_is_not_judged(view, judged),
    )


RULES: Final[tuple[Rule, ...]] = (
    offset_expiring,
    offset_expired,
    offset_below_log_start,
    unknown_record_version,
    job_behind,
    partition_stalled,
    empty_group_id,
)


# --- what is judged --------------------------------------------------------------------------------------


def _is_fresh(reached: Reached, settings: AlertSettings, now: int) -> bool:
    return reached.as_of is not None and now - reached.as_of <= settings.behind_warning_ms


def _is_not_judged(view: View, judged: set[int]) -> Callable[[Episode], bool]:
    """Tell which episodes about groups nothing can be said of now.

    A summary needs all partitions; so does a group of a partition that the topic no longer has.
    """
    known = view.progress.partitions
    is_all = judged >= known.keys() and bool(judged)

    def stays(episode: Episode) -> bool:
        partition = episode.finding.source_partition
        return partition not in judged if partition in known else not is_all

    return stays


def _is_out_of_sight(episode: Episode, view: View, settings: AlertSettings) -> bool:
    """Tell whether the offsets partition of an episode is there, but was not read to its end of late."""
    partition = view.progress.partitions.get(episode.finding.partition or 0)
    return partition is not None and not _is_fresh(partition.stable, settings, view.now)


def _is_unanswered(episode: Episode, log_starts: Mapping[TopicPartition, int | None]) -> bool:
    place = (episode.finding.topic or "", episode.finding.partition or 0)
    return log_starts.get(place, 0) is None


def _of_partitions(rows: pa.Table, partitions: set[int]) -> pa.Table:
    wanted = pa.array(sorted(partitions), pa.int32())
    return rows.filter(pc.is_in(rows["source_partition"], value_set=wanted))


def _not_history(view: View) -> pa.Table:
    """Return the dropped offsets whose tombstones came after what the job found when it first started.

    What a rebuild did not find any more has none, but was held.
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


def _with_gone_records(rows: pa.Table, log_starts: Mapping[TopicPartition, int | None]) -> pa.Table:
    """Return the rows below the start of their log, most records gone first, with `log_start` and `gone`."""
    known = [(topic, number, start) for (topic, number), start in log_starts.items() if start]
    topics, numbers, starts = zip(*known, strict=True) if known else ((), (), ())
    by_place = pa.table(
        {
            "topic": pa.array(topics, pa.string()),
            "partition": pa.array(numbers, pa.int32()),
            "log_start": pa.array(starts, pa.int64()),
        }
    )
    columns = ["group", "topic", "partition", "committed_offset", "source_partition", "source_offset"]
    joined = rows.select(columns).join(by_place, ["topic", "partition"], join_type="inner")
    below = joined.filter(pc.less(joined["committed_offset"], joined["log_start"]))
    below = below.append_column("gone", pc.subtract(below["log_start"], below["committed_offset"]))
    return below.sort_by([("gone", "descending"), ("topic", "ascending"), ("partition", "ascending")])


def _fact(view: View, rule: str, subject: str, name: str, default: Any) -> Any:
    """Return a fact of the newest known episode about a subject."""
    episode = view.known.get((rule, subject))
    return default if episode is None else episode.finding.facts.get(name, default)


def _text(moment: Any) -> str | None:
    return None if moment is None else iso(to_ms(moment))
