"""The metrics of the job, of the tables, and of `serve` itself."""

from typing import Final

from streaming.serve.metrics.catalogue.metric import SECONDS, Metric

MAX_SERIES: Final = "max_series"
WITHHELD: Final = (MAX_SERIES, "granularity", "idle", "incomplete")
"""Why series are left out (the label `reason`): there would be too many, patterns leave them out, their group
is idle, or their offsets partition cannot be judged now."""

_SOURCE: Final = ("source_partition",)

_NOTHING_READ: Final = "nothing was read yet"

_ONCE: Final = "; what a rebuild reads again is not counted."

OF_JOB: Final = (
    Metric(
        name="info",
        help="Always 1. Says which release serves, and which topic of which cluster the tables are about.",
        level="job",
        labels=("version", "cluster_id", "source_topic"),
        example="offsetlake_info",
    ),
    Metric(
        name="heartbeat_timestamp_seconds",
        help="When the job last said that it lives. Metrics of groups end `complete_within` (3 min) later.",
        level="job",
        unit=SECONDS,
        absent="the job never ran",
        example="time() - offsetlake_heartbeat_timestamp_seconds > 60",
    ),
    Metric(
        name="batch_timestamp_seconds",
        help="When the newest batch that changed anything was written.",
        level="job",
        unit=SECONDS,
        absent=_NOTHING_READ,
        example="time() - offsetlake_batch_timestamp_seconds",
    ),
    Metric(
        name="batch_duration_seconds",
        help="How long the newest batch took, from its trigger to after its commit.",
        level="job",
        unit=SECONDS,
        absent="the job has told of none yet",
        example="max_over_time(offsetlake_batch_duration_seconds[1h])",
    ),
    Metric(
        name="tables_readable",
        help="1 if the tables could be read when they were last looked at, else 0.",
        level="job",
        example="offsetlake_tables_readable == 0",
    ),
    Metric(
        name="rebuild_in_progress",
        help="1 while the topic is read again from its beginning: until it has been, no metrics of groups.",
        level="job",
        absent=_NOTHING_READ,
        example="offsetlake_rebuild_in_progress == 1",
    ),
    Metric(
        name="offset_retention_seconds",
        help="How long brokers keep committed offsets (offsets.retention.minutes).",
        level="job",
        unit=SECONDS,
        absent="neither the brokers nor the settings say it",
        example="offsetlake_offset_retention_seconds / 86400",
    ),
    Metric(
        name="log_ends_timestamp_seconds",
        help="When the ends of logs were last sampled; lag is as of then.",
        level="job",
        unit=SECONDS,
        absent="they were never sampled",
        example="time() - offsetlake_log_ends_timestamp_seconds > 300",
    ),
    Metric(
        name="standing_timestamp_seconds",
        help="Of which moment lag, status and expiry of groups are.",
        level="job",
        unit=SECONDS,
        absent="they are not known yet",
        example="time() - offsetlake_standing_timestamp_seconds",
    ),
    Metric(
        name="groups",
        help="Groups that are known.",
        level="job",
        absent=_NOTHING_READ,
        example="offsetlake_groups",
    ),
    Metric(
        name="committed_offsets",
        help="Committed offsets that are known, of all groups.",
        level="job",
        absent=_NOTHING_READ,
        example="offsetlake_committed_offsets",
    ),
    Metric(
        name="source_loaded",
        help="1 once an offsets partition was read to its end. Groups of others have no metrics.",
        level="job",
        labels=_SOURCE,
        example="count(offsetlake_source_loaded == 0)",
    ),
    Metric(
        name="source_lag",
        help="Records of an offsets partition that could be read and were not read yet.",
        level="job",
        labels=_SOURCE,
        absent="its leader does not answer",
        example="sum(offsetlake_source_lag)",
    ),
    Metric(
        name="source_complete_timestamp_seconds",
        help="Up to when every commit in an offsets partition that could be read was read.",
        level="job",
        labels=_SOURCE,
        unit=SECONDS,
        absent="its end was never reached",
        example="time() - min(offsetlake_source_complete_timestamp_seconds)",
    ),
    Metric(
        name="source_held_back_timestamp_seconds",
        help="Since when an open transaction holds back what is in an offsets partition.",
        level="job",
        labels=_SOURCE,
        unit=SECONDS,
        absent="none does",
        example="time() - offsetlake_source_held_back_timestamp_seconds > 30",
    ),
    Metric(
        name="source_unanswered_timestamp_seconds",
        help="Since when the leader of an offsets partition has not said where it ends.",
        level="job",
        labels=_SOURCE,
        unit=SECONDS,
        absent="it does",
        example="time() - offsetlake_source_unanswered_timestamp_seconds > 60",
    ),
    Metric(
        name="alerts_open",
        help="Alerts of offsetlake that are open.",
        level="job",
        labels=("rule", "severity"),
        absent=_NOTHING_READ,
        example='sum by (rule) (offsetlake_alerts_open{severity="critical"}) > 0',
    ),
    Metric(
        name="alerts_evaluated_timestamp_seconds",
        help="When the job last evaluated the rules of its own alerts.",
        level="job",
        unit=SECONDS,
        absent="it never has",
        example="time() - offsetlake_alerts_evaluated_timestamp_seconds > 300",
    ),
    Metric(
        name="alerts_undelivered",
        help="Alerts of offsetlake that a receiver has not got: they wait, or it has refused them for good.",
        level="job",
        labels=("receiver", "reason"),
        absent="no alert was ever meant for a receiver",
        example='offsetlake_alerts_undelivered{reason="refused"} > 0',
    ),
    Metric(
        name="series_withheld",
        help=f"Series that are left out of this answer, by the reason: {', '.join(WITHHELD)}.",
        level="job",
        labels=("reason",),
        example='offsetlake_series_withheld{reason="max_series"} > 0',
    ),
    Metric(
        name="groups_withheld",
        help="Groups without series in this answer, for there would be more than [metrics] max_series.",
        level="job",
        example="offsetlake_groups_withheld > 0",
    ),
    Metric(
        name="build_duration_seconds",
        help="How long it took to make what this answer is of (standing), and the answer before it (bytes).",
        level="job",
        labels=("step",),
        unit=SECONDS,
        example="offsetlake_build_duration_seconds",
    ),
    Metric(
        name="commits_total",
        help="Commits of offsets that were read, of all groups.",
        level="job",
        kind="counter",
        example="rate(offsetlake_commits_total[5m])",
    ),
    Metric(
        name="retired_offsets_total",
        help="Committed offsets that went, by the cause.",
        level="job",
        labels=("cause",),
        kind="counter",
        example="increase(offsetlake_retired_offsets_total[1h])",
    ),
    Metric(
        name="records_decoded_total",
        help=f"Records of the offsets topic that were decoded, tombstones among them{_ONCE}",
        level="job",
        kind="counter",
        example="rate(offsetlake_records_decoded_total[5m])",
    ),
    Metric(
        name="records_tombstones_total",
        help=f"Tombstones among the records that were decoded{_ONCE}",
        level="job",
        kind="counter",
        example="rate(offsetlake_records_tombstones_total[5m])",
    ),
    Metric(
        name="records_malformed_total",
        help=f"Records whose bytes break their format, in the quarantine{_ONCE}",
        level="job",
        kind="counter",
        example="increase(offsetlake_records_malformed_total[1h]) > 0",
    ),
    Metric(
        name="records_misplaced_total",
        help=f"Records in another offsets partition than that of their group, which are ignored{_ONCE}",
        level="job",
        kind="counter",
        example="increase(offsetlake_records_misplaced_total[1h]) > 0",
    ),
    Metric(
        name="records_clamped_total",
        help=f"Records with a time outside of the years 1 to 9999{_ONCE}",
        level="job",
        kind="counter",
        example="increase(offsetlake_records_clamped_total[1h]) > 0",
    ),
    Metric(
        name="records_unknown_total",
        help=f"Records of a type or version that this release does not know{_ONCE}",
        level="job",
        kind="counter",
        example="increase(offsetlake_records_unknown_total[1h]) > 0",
    ),
    Metric(
        name="kafka_requests_total",
        help="Requests that the Kafka door has answered, by Kafka's name of the request.",
        level="job",
        labels=("api",),
        kind="counter",
        absent="that door is not open",
        example="sum by (api) (rate(offsetlake_kafka_requests_total[5m]))",
    ),
    Metric(
        name="kafka_connections",
        help="Connections that are open at the Kafka door.",
        level="job",
        absent="that door is not open",
        example="offsetlake_kafka_connections",
    ),
    Metric(
        name="kafka_connections_closed_total",
        help="Connections that the Kafka door has closed, by the reason: as many as are allowed "
        "(`connections`), a request or an answer that is too large (`size`), large requests that take too "
        "much together (`memory`), one that cannot be read or is not answered (`request`), no turn for a "
        "large answer (`busy`), a client that asked nothing (`idle`) or did not take its answer "
        "(`unread`), a fault of ours (`failed`).",
        level="job",
        labels=("reason",),
        kind="counter",
        absent="that door is not open",
        example='increase(offsetlake_kafka_connections_closed_total{reason!="idle"}[1h]) > 0',
    ),
)
