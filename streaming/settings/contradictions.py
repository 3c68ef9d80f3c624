"""Conflicting settings: each is valid, but together they would produce wrong answers."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from streaming.common.times import MINUTE_MS
from streaming.model.errors import MisuseError
from streaming.settings.clusters import CLUSTER_LABEL, settings_of_cluster
from streaming.settings.model import AlertSettings, GroupAlerts, Settings
from streaming.settings.storage import unreferred_secrets

LONGEST_HEARTBEAT_MS: Final = 120_000
"""With longer intervals every past moment would count as not observed (`tables.progress_rows.GAP_MS`)."""

LONGEST_SAMPLING_MS: Final = 150_000
"""With longer intervals one failed round would leave lag unknown: samples older than twice this are ignored
(`lag.samples.MAX_SAMPLE_AGE_MS`)."""

SHORTEST_SAMPLING_MS: Final = 100
"""A day of one partition is joined and sorted in memory: this limits it to 864,000 samples."""

_OWN: Final[dict[str, str]] = {
    "spark.master": "spark.master (beside conf)",
    "spark.driver.memory": "job.memory",
    "spark.sql.shuffle.partitions": "job.state_partitions",
}
"""Spark settings that have a setting of ours, which would then show a wrong value."""

_OWN_LOCALLY: Final[dict[str, str]] = {"spark.memory.offHeap.size": "job.memory"}
"""The same if everything runs on this machine; on a cluster they are settings of the executors."""


def refuse_contradictions(settings: Settings) -> None:
    """Raise `MisuseError` for the first conflict: the settings, the problem, and the change to make."""
    for contradiction in (*_of_times(settings), *_of_clusters(settings)):
        raise MisuseError(f"conflicting settings: {contradiction}")
    _refuse_critical_before_warning(settings.alerts)


def refuse_contradictions_of_job(settings: Settings) -> None:
    """The same for settings that only the job uses."""
    for contradiction in (*_of_places(settings), *_of_spark(settings)):
        raise MisuseError(f"conflicting settings: {contradiction}")


def _of_times(settings: Settings) -> Iterator[str]:
    job, alerts, sampled_every_ms = settings.job, settings.alerts, settings.log_ends.every_ms
    if job.heartbeat_every_ms > LONGEST_HEARTBEAT_MS:
        yield (
            f"job.heartbeat_every is {_seconds(job.heartbeat_every_ms)}, and the time between two "
            "heartbeats counts as not observed when they are further apart than "
            f"{_seconds(LONGEST_HEARTBEAT_MS)}. Set a shorter job.heartbeat_every."
        )
    if alerts.behind_warning_ms <= job.heartbeat_every_ms + job.trigger_ms:
        yield (
            f"alerts.behind_warning is {_seconds(alerts.behind_warning_ms)}, but the job reports its "
            f"progress only every {_seconds(job.heartbeat_every_ms + job.trigger_ms)} (job.heartbeat_every "
            "and job.trigger): it would always be behind. Set a longer alerts.behind_warning."
        )
    if settings.tables.complete_within_ms <= job.heartbeat_every_ms + job.trigger_ms:
        yield (
            f"tables.complete_within is {_seconds(settings.tables.complete_within_ms)}, but the job reports "
            f"its progress only every {_seconds(job.heartbeat_every_ms + job.trigger_ms)} "
            "(job.heartbeat_every and job.trigger): nothing would ever be complete. Set a longer "
            "tables.complete_within."
        )
    if alerts.behind_critical_ms < alerts.behind_warning_ms:
        yield (
            f"alerts.behind_critical ({_seconds(alerts.behind_critical_ms)}) is shorter than "
            f"alerts.behind_warning ({_seconds(alerts.behind_warning_ms)}). Set both."
        )
    shortest = min(alerts.critical_ms, *(g.critical_ms or alerts.critical_ms for g in alerts.groups))
    if alerts.evaluate_every_ms > shortest:
        yield (
            f"alerts.evaluate_every is {_seconds(alerts.evaluate_every_ms)}, longer than a threshold "
            f"alerts.critical of {_seconds(shortest)}: offsets would expire between two evaluations. "
            "Set a shorter alerts.evaluate_every."
        )
    if sampled_every_ms < SHORTEST_SAMPLING_MS:
        yield (
            f"log_ends.every is {_seconds(sampled_every_ms)}, expected at least "
            f"{_seconds(SHORTEST_SAMPLING_MS)}: brokers would be asked all the time. Set a longer "
            "log_ends.every."
        )
    if sampled_every_ms > LONGEST_SAMPLING_MS:
        yield (
            f"log_ends.every is {_seconds(sampled_every_ms)}, and lag is not known where log ends were not "
            f"sampled for {_seconds(2 * LONGEST_SAMPLING_MS)}: it would come and go. Set a log_ends.every of "
            f"at most {_seconds(LONGEST_SAMPLING_MS)}."
        )
    if settings.health.window_ms < max(MINUTE_MS, sampled_every_ms):
        yield (
            f"health.window is {_seconds(settings.health.window_ms)}, but log ends are sampled every "
            f"{_seconds(max(MINUTE_MS, sampled_every_ms))} (log_ends.every): nothing could be judged. "
            "Set a longer health.window."
        )
    for entry in alerts.groups:
        if entry.treat == "exclude" and (wanted := _rules_switched_on(entry)):
            yield (
                f"alerts.groups with pattern {entry.pattern!r} excludes its groups from alerts, and yet sets "
                f"{' and '.join(wanted)}. Remove one of the two."
            )


def _rules_switched_on(entry: GroupAlerts) -> list[str]:
    switches = {
        "group_stopped": entry.group_stopped == "on",
        "group_stalled": entry.group_stalled == "on",
        "group_rewound": entry.group_rewound == "on",
        "offset_beyond_log_end": entry.offset_beyond_log_end == "on",
        "offset_of_recreated_topic": entry.offset_of_recreated_topic == "on",
        "lag_seconds": bool(entry.lag_seconds_ms),
    }
    return [name for name, is_on in switches.items() if is_on]


def _of_clusters(settings: Settings) -> Iterator[str]:
    clusters, by_root = settings.serve.clusters, dict[str, str]()
    names = [one.name for one in clusters]
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        yield f"two of [[serve.clusters]] have the name {name!r}. Give each another name."
    for one in clusters:
        other = by_root.setdefault(_place(one.table_root), one.name)
        if other != one.name:
            yield (
                f"the clusters {other!r} and {one.name!r} of [[serve.clusters]] have the same table_root "
                f"({one.table_root}). Set the table_root of the job of each."
            )
    for listener in settings.serve.kafka:
        where = f"serve.kafka at {listener.listen}"
        if listener.cluster:
            settings_of_cluster(settings, listener.cluster, where=f"{where}: cluster")
        elif len(clusters) > 1:
            yield (
                f"{where} has no cluster, but there are several: a listener answers "
                f"for one of them. Set its cluster ({', '.join(names)})."
            )
    if clusters and CLUSTER_LABEL in settings.metrics.labels:
        yield (
            f"metrics.labels has {CLUSTER_LABEL!r}, but with [[serve.clusters]] every series has this label "
            "already, with the name of its cluster. Remove it from metrics.labels."
        )


def _of_places(settings: Settings) -> Iterator[str]:
    root, checkpoint = (_place(path) for path in (settings.tables.root, settings.job.checkpoint))
    if (f"{root}/").startswith(f"{checkpoint}/") or f"{checkpoint}/".startswith(f"{root}/"):
        yield (
            f"tables.root ({settings.tables.root}) and job.checkpoint ({settings.job.checkpoint}) overlap, "
            "and each is cleaned up on its own. Set two separate folders."
        )
    if settings.job.checkpoint.startswith("s3://") and "spark.hadoop.fs.s3.impl" not in settings.spark.conf:
        yield (
            f"job.checkpoint is {settings.job.checkpoint}, but Spark writes the checkpoint, and names S3 "
            f"s3a. Set s3a{settings.job.checkpoint.removeprefix('s3')} (tables have s3://)."
        )
    if settings.spark.is_local:
        return
    for location, use, examples in (
        (settings.tables.root, "write files of the tables under tables.root", "s3://..."),
        (settings.job.checkpoint, "store their state under job.checkpoint", "s3a://... or hdfs://..."),
    ):
        if "://" not in location:
            yield (
                f"spark.master is {settings.spark.master}, whose executors {use}, but {location} is a folder "
                f"of this machine. Set a URL that all machines can reach (such as {examples}), or "
                "file:///... for a folder that is mounted at the same place on all of them."
            )
    if secrets := unreferred_secrets(settings.tables.storage_options):
        yield (
            f"spark.master is {settings.spark.master}, whose executors need tables.storage_options, but "
            f"{secrets[0]} has a value that may be secret and is not sent to them. Set a reference that each "
            "machine resolves itself (${env:NAME} or ${file:PATH:KEY}), or the variable of the environment "
            "on all machines."
        )


def _of_spark(settings: Settings) -> Iterator[str]:
    for name, own in (_OWN | _OWN_LOCALLY if settings.spark.is_local else _OWN).items():
        if name in settings.spark.conf:
            yield f"{name} in [spark.conf] has a setting of its own. Remove it and set {own}."


def _place(location: str) -> str:
    """Return one name for all the names of a location: delta-rs and Hadoop read `//` in a path as `/`."""
    scheme, rest = location.split("://", 1) if "://" in location else ("", location)
    rest = re.sub("/+", "/", rest)
    if scheme in ("", "file"):
        return str(Path(rest).resolve())
    return f"{'s3' if scheme == 's3a' else scheme}://{rest.strip('/')}"


def _refuse_critical_before_warning(alerts: AlertSettings) -> None:
    for entry in (None, *alerts.groups):
        warning = (entry and entry.warning_ms) or alerts.warning_ms
        critical = (entry and entry.critical_ms) or alerts.critical_ms
        if critical > warning:
            where = "alerts" if entry is None else f"alerts.groups with pattern {entry.pattern!r}"
            raise MisuseError(
                f"setting {where}: expected critical to be at most as long as warning, "
                f"found critical {critical // 1_000} s and warning {warning // 1_000} s. Set both."
            )


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1_000:g} s"
