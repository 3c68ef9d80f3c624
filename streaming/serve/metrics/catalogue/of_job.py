"""The metrics of the job, of the tables, of this response, and totals of all groups."""

from typing import Final

from streaming.serve.metrics.catalogue.metric import SECONDS, Metric

MAX_SERIES: Final = "max_series"
WITHHELD: Final = (MAX_SERIES, "granularity", "idle", "incomplete")
"""Why series are withheld (the label `reason`): there would be too many, a pattern excludes them, their group
is idle, or their offsets partition is incomplete."""

_SOURCE: Final = ("source_partition",)

_NOTHING_READ: Final = "the job has read nothing yet"

_ONCE: Final = ". Records that a rebuild reads again are not counted."

OF_JOB: Final = (
    Metric(
        name="info",
        help="Always 1. The labels contain the release, and the cluster and topic that the job reads.",
        level="job",
        labels=("version", "cluster_id", "source_topic"),
        example="offsetlake_info",
    ),
    Metric(
        name="heartbeat_timestamp_seconds",
        help="Time of the job's last heartbeat. The series of groups disappear 3 min (`complete_within`) "
        "after it.",
        level="job",
        unit=SECONDS,
        absent="the job never ran",
        example="time() - offsetlake_heartbeat_timestamp_seconds > 60",
    ),
    Metric(
        name="batch_timestamp_seconds",
        help="Time at which the newest batch with changes was written.",
        level="job",
        unit=SECONDS,
        absent=_NOTHING_READ,
        example="time() - offsetlake_batch_timestamp_seconds",
    ),
    Metric(
        name="batch_duration_seconds",
        help="Duration of the newest batch, from its trigger until after its commit to the tables.",
        level="job",
        unit=SECONDS,
        absent="the job has not reported a batch yet",
        example="max_over_time(offsetlake_batch_duration_seconds[1h])",
    ),
    Metric(
        name="tables_readable",
        help="1 if the tables could be read at the last attempt, else 0.",
        level="job",
        example="offsetlake_tables_readable == 0",
    ),
    Metric(
        name="rebuild_in_progress",
        help="1 during a rebuild (the job reads the whole topic again), else 0. During a rebuild, groups "
        "have no metrics.",
        level="job",
        absent=_NOTHING_READ,
        example="offsetlake_rebuild_in_progress == 1",
    ),
    Metric(
        name="offset_retention_seconds",
        help="Retention of committed offsets on the brokers (offsets.retention.minutes).",
        level="job",
        unit=SECONDS,
        absent="[expiry] retention is not set, and the job could not read the retention from the brokers",
        example="offsetlake_offset_retention_seconds / 86400",
    ),
    Metric(
        name="log_ends_timestamp_seconds",
        help="Time of the newest sample of log ends. The lag is the lag at this time.",
        level="job",
        unit=SECONDS,
        absent="log ends were never sampled",
        example="time() - offsetlake_log_ends_timestamp_seconds > 300",
    ),
    Metric(
        name="assessment_timestamp_seconds",
        help="Time of the last computation of lag, status and expiry of groups.",
        level="job",
        unit=SECONDS,
        absent="lag, status and expiry were not computed yet, or the last computation is older than 5 "
        "minutes",
        example="time() - offsetlake_assessment_timestamp_seconds",
    ),
    Metric(
        name="groups",
        help="Number of known groups.",
        level="job",
        absent=_NOTHING_READ,
        example="offsetlake_groups",
    ),
    Metric(
        name="committed_offsets",
        help="Number of known committed offsets, over all groups.",
        level="job",
        absent=_NOTHING_READ,
        example="offsetlake_committed_offsets",
    ),
    Metric(
        name="source_loaded",
        help="1 if the job has read the offsets partition to its end once, else 0. At 0, the groups of the "
        "partition have no metrics.",
        level="job",
        labels=_SOURCE,
        example="count(offsetlake_source_loaded == 0)",
    ),
    Metric(
        name="source_lag",
        help="Readable records of the offsets partition that the job has not read yet.",
        level="job",
        labels=_SOURCE,
        absent="the leader of the partition does not answer",
        example="sum(offsetlake_source_lag)",
    ),
    Metric(
        name="source_complete_timestamp_seconds",
        help="Time up to which all readable commits of the offsets partition were read. It also "
        "advances while an open transaction hides newer commits (see "
        "source_open_transaction_timestamp_seconds), although the partition may then be incomplete.",
        level="job",
        labels=_SOURCE,
        unit=SECONDS,
        absent="the end of the partition was never reached",
        example="time() - min(offsetlake_source_complete_timestamp_seconds)",
    ),
    Metric(
        name="source_open_transaction_timestamp_seconds",
        help="Time since which an open transaction has hidden records of the offsets partition.",
        level="job",
        labels=_SOURCE,
        unit=SECONDS,
        absent="no open transaction hides records of the partition",
        example="time() - offsetlake_source_open_transaction_timestamp_seconds > 30",
    ),
    Metric(
        name="source_unanswered_timestamp_seconds",
        help="Time since which the leader of the offsets partition has not reported the end of "
        "the partition.",
        level="job",
        labels=_SOURCE,
        unit=SECONDS,
        absent="the leader reports the end of the partition",
        example="time() - offsetlake_source_unanswered_timestamp_seconds > 60",
    ),
    Metric(
        name="alerts_open",
        help="Open alerts of the job.",
        level="job",
        labels=("rule", "severity"),
        absent=_NOTHING_READ,
        example='sum by (rule) (offsetlake_alerts_open{severity="critical"}) > 0',
    ),
    Metric(
        name="alerts_evaluated_timestamp_seconds",
        help="Time at which the job last evaluated its own alert rules.",
        level="job",
        unit=SECONDS,
        absent="the job has never evaluated its alert rules",
        example="time() - offsetlake_alerts_evaluated_timestamp_seconds > 300",
    ),
    Metric(
        name="alerts_undelivered",
        help="Alerts of the job that a receiver has not accepted. Reason waiting: the job will send the "
        "alerts. Reason refused: the receiver has refused the open alerts again and again, and the job "
        "does not send them again until they change.",
        level="job",
        labels=("receiver", "reason"),
        absent="the job has not had an alert for a receiver yet",
        example='offsetlake_alerts_undelivered{reason="refused"} > 0',
    ),
    Metric(
        name="series_withheld",
        help=f"Series left out of this response, by reason: {', '.join(WITHHELD)}.",
        level="job",
        labels=("reason",),
        example='offsetlake_series_withheld{reason="max_series"} > 0',
    ),
    Metric(
        name="groups_withheld",
        help="Groups without series in this response, because of [metrics] max_series.",
        level="job",
        example="offsetlake_groups_withheld > 0",
    ),
    Metric(
        name="build_duration_seconds",
        help="Duration of a step. Step assessment: computation of lag, status and expiry. Step bytes: "
        "writing of the response.",
        level="job",
        labels=("step",),
        unit=SECONDS,
        example="offsetlake_build_duration_seconds",
    ),
    Metric(
        name="commits_total",
        help="Offset commits read, over all groups.",
        level="job",
        kind="counter",
        example="rate(offsetlake_commits_total[5m])",
    ),
    Metric(
        name="removed_offsets_total",
        help="Removed committed offsets, by cause.",
        level="job",
        labels=("cause",),
        kind="counter",
        example="increase(offsetlake_removed_offsets_total[1h])",
    ),
    Metric(
        name="records_decoded_total",
        help=f"Decoded records of the offsets topic, including tombstones{_ONCE}",
        level="job",
        kind="counter",
        example="rate(offsetlake_records_decoded_total[5m])",
    ),
    Metric(
        name="records_tombstones_total",
        help=f"Decoded tombstones{_ONCE}",
        level="job",
        kind="counter",
        example="rate(offsetlake_records_tombstones_total[5m])",
    ),
    Metric(
        name="records_malformed_total",
        help=f"Records that violate their format, kept in the table quarantine{_ONCE}",
        level="job",
        kind="counter",
        example="increase(offsetlake_records_malformed_total[1h]) > 0",
    ),
    Metric(
        name="records_wrong_partition_total",
        help=f"Ignored records in the wrong offsets partition for their group{_ONCE}",
        level="job",
        kind="counter",
        example="increase(offsetlake_records_wrong_partition_total[1h]) > 0",
    ),
    Metric(
        name="records_clamped_total",
        help=f"Records with a timestamp outside of the years 1 to 9999{_ONCE}",
        level="job",
        kind="counter",
        example="increase(offsetlake_records_clamped_total[1h]) > 0",
    ),
    Metric(
        name="records_unknown_total",
        help=f"Records of a type or version unknown to this release{_ONCE}",
        level="job",
        kind="counter",
        example="increase(offsetlake_records_unknown_total[1h]) > 0",
    ),
)
