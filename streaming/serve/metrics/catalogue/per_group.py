"""The metrics with a label for the group: per group, per group and topic, per group and topic partition; and
the metrics of logs, per topic partition. `of_job` has the totals of all groups."""

from typing import Final

from streaming.common.times import MINUTE_MS
from streaming.expiry.cause_names import DELETED, EXPIRED
from streaming.lag.health_rules import STATUSES
from streaming.lag.samples import MAX_SAMPLE_AGE_MS
from streaming.serve.metrics.catalogue.metric import SECONDS, Metric

CAUSES_FROM_0: Final = (EXPIRED, DELETED)
"""Each group has a series of these causes from the start, with the value 0; of other causes after the first
removal."""

_GROUP: Final = ("group",)
_TOPIC: Final = ("group", "topic")
_PARTITION: Final = ("group", "topic", "partition")

_MINUTES: Final = f"{MAX_SAMPLE_AGE_MS // MINUTE_MS} minutes"
_NO_ENDS: Final = f"log ends are not sampled, their newest sample is older than {_MINUTES}"
_TOO_NEW: Final = "the group first committed after this sample"
_NO_LAG: Final = f"no lag is known, because {_NO_ENDS}, or {_TOO_NEW}"
_NO_LAG_TIME: Final = (
    f"no lag in time is known, because {_NO_ENDS}, {_TOO_NEW}, or all unread records may be transaction "
    "markers"
)

_NOT_SAMPLED: Final = f"the log is not sampled, or its newest sample is older than {_MINUTES}"

PER_GROUP: Final = (
    Metric(
        name="group_info",
        help="Always 1. The labels contain type, state and protocol type of the group.",
        level="group",
        labels=("group", "type", "state", "protocol_type"),
        example='count by (state) (offsetlake_group_info{type="consumer"})',
    ),
    Metric(
        name="group_members",
        help="Number of members.",
        level="group",
        labels=_GROUP,
        example="offsetlake_group_members == 0",
    ),
    Metric(
        name="group_status",
        help="Status of the group's worst partition, as in `offsetlake health`: "
        + ", ".join(f"{number} {status}" for number, status in enumerate(STATUSES))
        + ".",
        level="group",
        labels=_GROUP,
        absent="the group has no committed offsets and no assigned partitions",
        example="offsetlake_group_status >= 3",
    ),
    Metric(
        name="group_lag",
        help="Sum of the lag of all partitions whose lag is known, in records.",
        level="group",
        labels=_GROUP,
        absent=_NO_LAG,
        example="topk(10, offsetlake_group_lag)",
    ),
    Metric(
        name="group_lag_max",
        help="Largest lag of a single partition, in records.",
        level="group",
        labels=_GROUP,
        absent=_NO_LAG,
        example="offsetlake_group_lag_max > 10000",
    ),
    Metric(
        name="group_lag_seconds",
        help="Lag in time (LAG-TIME of the commands): time since the log end passed the committed offset. "
        "Maximum over all partitions of the group.",
        level="group",
        labels=_GROUP,
        unit=SECONDS,
        absent=_NO_LAG_TIME,
        example="offsetlake_group_lag_seconds > 300",
    ),
    Metric(
        name="group_lag_at_least",
        help="1 if the actual lag in time may be larger than group_lag_seconds.",
        level="group",
        labels=_GROUP,
        absent="no lag is known, or the reported lag is exact",
        example="offsetlake_group_lag_seconds and on (group) offsetlake_group_lag_at_least",
    ),
    Metric(
        name="group_offsets_beyond_log_end",
        help="Number of committed offsets beyond the log end of their partition.",
        level="group",
        labels=_GROUP,
        absent="no committed offset is beyond the log end, or no lag is known",
        example="offsetlake_group_offsets_beyond_log_end",
    ),
    Metric(
        name="group_last_commit_timestamp_seconds",
        help="Time of the group's last commit.",
        level="group",
        labels=_GROUP,
        unit=SECONDS,
        absent="the group has committed nothing",
        example="time() - offsetlake_group_last_commit_timestamp_seconds > 3600",
    ),
    Metric(
        name="group_expiry_timestamp_seconds",
        help="The label `rule` is a rule of expiry (expiry.md). The value is the time at which the first of "
        "the group's offsets under this rule expires, if members and state of the group do not change.",
        level="group",
        labels=("group", "rule"),
        unit=SECONDS,
        absent="with the present members and state no offset of the group expires under this rule, or the "
        "time is unknown",
        example="offsetlake_group_expiry_timestamp_seconds - time() < 86400",
    ),
    Metric(
        name="group_unreadable_offsets",
        help="Number of committed offsets whose newest value could not be read.",
        level="group",
        labels=_GROUP,
        absent="the newest values of all offsets could be read",
        example="offsetlake_group_unreadable_offsets",
    ),
    Metric(
        name="group_commits_total",
        help="Offset commits of the group.",
        level="group",
        labels=_GROUP,
        kind="counter",
        example="topk(10, rate(offsetlake_group_commits_total[5m]))",
    ),
    Metric(
        name="group_rewinds_total",
        help="Rewinds: commits of a lower offset than the previous offset of the same log, unless the group "
        "reaches the previous offset again within a minute. Of several commits for a partition in one "
        "batch, only the last is considered.",
        level="group",
        labels=_GROUP,
        kind="counter",
        example="increase(offsetlake_group_rewinds_total[1h]) > 0",
    ),
    Metric(
        name="group_removed_offsets_total",
        help="Removed committed offsets of the group, by cause. The series ends six hours after the group "
        f"was removed. Series of the causes `{'` and `'.join(CAUSES_FROM_0)}` start at 0.",
        level="group",
        labels=("group", "cause"),
        kind="counter",
        absent="no offset was removed for this cause since serve started (causes other than these two)",
        example='increase(offsetlake_group_removed_offsets_total{cause="expired (probable)"}[1h]) > 0',
    ),
)

PER_TOPIC: Final = (
    Metric(
        name="group_topic_lag",
        help="Sum of the lag of the topic's partitions whose lag is known, in records.",
        level="topic",
        labels=_TOPIC,
        absent=_NO_LAG,
        example="sum by (topic) (offsetlake_group_topic_lag)",
    ),
    Metric(
        name="group_topic_lag_seconds",
        help="Lag in time (LAG-TIME of the commands): time since the log end passed the committed offset. "
        "Maximum over the partitions of the topic.",
        level="topic",
        labels=_TOPIC,
        unit=SECONDS,
        absent=_NO_LAG_TIME,
        example="max by (topic) (offsetlake_group_topic_lag_seconds)",
    ),
    Metric(
        name="group_topic_lag_at_least",
        help="1 if the actual lag in time may be larger than group_topic_lag_seconds.",
        level="topic",
        labels=_TOPIC,
        absent="no lag is known, or the reported lag is exact",
        example="offsetlake_group_topic_lag_seconds unless offsetlake_group_topic_lag_at_least",
    ),
    Metric(
        name="group_topic_position",
        help="Sum of the group's committed offsets in the topic. The sum rises as fast as the group reads.",
        level="topic",
        labels=_TOPIC,
        absent="no committed offset of the topic could be read",
        example="clamp_min(deriv(offsetlake_group_topic_position[10m]), 0)",
    ),
    Metric(
        name="group_topic_oldest_commit_timestamp_seconds",
        help="The oldest of the times of the last commits for the partitions of the topic.",
        level="topic",
        labels=_TOPIC,
        unit=SECONDS,
        example="time() - offsetlake_group_topic_oldest_commit_timestamp_seconds > 3600",
    ),
    Metric(
        name="group_topic_subscribed",
        help="1 if the group subscribes to the topic, else 0. Only for topics with committed offsets.",
        level="topic",
        labels=_TOPIC,
        absent="the group has no members, or their subscriptions are unknown",
        example="offsetlake_group_topic_subscribed == 0",
    ),
    Metric(
        name="group_topic_offsets_below_log_start",
        help="Number of committed offsets below the log start. The next records to read were deleted.",
        level="topic",
        labels=_TOPIC,
        absent="no committed offset is below the log start, or no log start is known",
        example="offsetlake_group_topic_offsets_below_log_start",
    ),
    Metric(
        name="group_topic_below_log_start_max",
        help="Largest distance of a committed offset below the log start. At a distance of 1, the deleted "
        "record may be a transaction marker.",
        level="topic",
        labels=_TOPIC,
        absent="no committed offset is below the log start, or no log start is known",
        example="offsetlake_group_topic_below_log_start_max > 1",
    ),
    Metric(
        name="group_topic_offsets_of_recreated_topic",
        help="Number of offsets that were committed before the topic was deleted and recreated. These "
        "offsets belong to the log of the deleted topic.",
        level="topic",
        labels=_TOPIC,
        absent="no such offsets are known",
        counts="of_recreated_topic",
        example="offsetlake_group_topic_offsets_of_recreated_topic",
    ),
)

PER_PARTITION: Final = (
    Metric(
        name="group_topic_partition_committed_offset",
        help="Committed offset.",
        level="partition",
        labels=_PARTITION,
        absent="the committed offset could not be read",
        example='offsetlake_group_topic_partition_committed_offset{group="billing"}',
    ),
    Metric(
        name="group_topic_partition_lag",
        help="Log end offset minus committed offset. Negative if the committed offset is beyond the log end.",
        level="partition",
        labels=_PARTITION,
        absent=_NO_LAG,
        example="offsetlake_group_topic_partition_lag < 0",
    ),
    Metric(
        name="group_topic_partition_lag_seconds",
        help="Lag in time (LAG-TIME of the commands): time since the log end passed the committed offset.",
        level="partition",
        labels=_PARTITION,
        unit=SECONDS,
        absent=_NO_LAG_TIME,
        example="topk(10, offsetlake_group_topic_partition_lag_seconds)",
    ),
    Metric(
        name="group_topic_partition_lag_at_least",
        help="1 if the actual lag in time may be larger than group_topic_partition_lag_seconds.",
        level="partition",
        labels=_PARTITION,
        absent="no lag is known, or the reported lag is exact",
        example="count by (group) (offsetlake_group_topic_partition_lag_at_least)",
    ),
    Metric(
        name="group_topic_partition_commit_timestamp_seconds",
        help="Time of the last commit.",
        level="partition",
        labels=_PARTITION,
        unit=SECONDS,
        example='time() - offsetlake_group_topic_partition_commit_timestamp_seconds{group="billing"}',
    ),
    Metric(
        name="topic_partition_log_start_offset",
        help="Log start offset of the topic partition.",
        level="partition",
        labels=("topic", "partition"),
        absent=_NOT_SAMPLED,
        example="offsetlake_topic_partition_log_start_offset",
    ),
    Metric(
        name="topic_partition_log_end_offset",
        help="Log end offset of the topic partition.",
        level="partition",
        labels=("topic", "partition"),
        absent=_NOT_SAMPLED,
        example="sum by (topic) (rate(offsetlake_topic_partition_log_end_offset[5m]))",
    ),
)
