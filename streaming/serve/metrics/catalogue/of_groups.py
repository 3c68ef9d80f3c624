"""The metrics of groups, of groups and topics, and of groups and topic partitions. `of_job` has the totals of
all groups."""

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
_NO_LAG: Final = f"log ends are not sampled, or their newest sample is older than {_MINUTES}"

_NOT_SAMPLED: Final = f"the log is not sampled, or its newest sample is older than {_MINUTES}"

OF_GROUPS: Final = (
    Metric(
        name="group_info",
        help="Always 1; type, state and protocol type of the group as labels.",
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
        help="Time since the log end passed the committed offset; maximum over all partitions.",
        level="group",
        labels=_GROUP,
        unit=SECONDS,
        absent=_NO_LAG,
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
        help="Committed offsets beyond the log end: records written next would not be read.",
        level="group",
        labels=_GROUP,
        absent="there are none, or no lag is known",
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
        help="When the group's first offset to expire will expire if the group stays as it is.",
        level="group",
        labels=("group", "rule"),
        unit=SECONDS,
        absent="no offset will expire while the group stays as it is, or its expiry is unknown",
        example="offsetlake_group_expiry_timestamp_seconds - time() < 86400",
    ),
    Metric(
        name="group_unreadable_offsets",
        help="Committed offsets whose newest value could not be read.",
        level="group",
        labels=_GROUP,
        absent="there are none",
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
        help="Commits below the previous offset of the same log; only the last commit of each batch counts.",
        level="group",
        labels=_GROUP,
        kind="counter",
        example="increase(offsetlake_group_rewinds_total[1h]) > 0",
    ),
    Metric(
        name="group_removed_offsets_total",
        help="Removed committed offsets of the group, by cause; for six hours after the group is gone.",
        level="group",
        labels=("group", "cause"),
        kind="counter",
        absent=f"none removed for this cause since serve started; {' and '.join(CAUSES_FROM_0)} start at 0",
        example='increase(offsetlake_group_removed_offsets_total{cause="expired (probable)"}[1h]) > 0',
    ),
)

OF_TOPICS: Final = (
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
        help="As group_lag_seconds, for the partitions of one topic.",
        level="topic",
        labels=_TOPIC,
        unit=SECONDS,
        absent=_NO_LAG,
        example="max by (topic) (offsetlake_group_topic_lag_seconds)",
    ),
    Metric(
        name="group_topic_lag_at_least",
        help="As group_lag_at_least, for the partitions of one topic.",
        level="topic",
        labels=_TOPIC,
        absent="no lag is known, or the reported lag is exact",
        example="offsetlake_group_topic_lag_seconds unless offsetlake_group_topic_lag_at_least",
    ),
    Metric(
        name="group_topic_position",
        help="Sum of the group's committed offsets in the topic; rises as fast as the group reads.",
        level="topic",
        labels=_TOPIC,
        absent="none of these offsets could be read",
        example="clamp_min(deriv(offsetlake_group_topic_position[10m]), 0)",
    ),
    Metric(
        name="group_topic_oldest_commit_timestamp_seconds",
        help="The oldest of the last commits to the topic's partitions.",
        level="topic",
        labels=_TOPIC,
        unit=SECONDS,
        example="time() - offsetlake_group_topic_oldest_commit_timestamp_seconds > 3600",
    ),
    Metric(
        name="group_topic_subscribed",
        help="1 if the group subscribes to the topic, else 0; only for topics with committed offsets.",
        level="topic",
        labels=_TOPIC,
        absent="the group has no members, or their subscriptions are unknown",
        example="offsetlake_group_topic_subscribed == 0",
    ),
    Metric(
        name="group_topic_offsets_below_log_start",
        help="Committed offsets below the log start: the next records to read were deleted.",
        level="topic",
        labels=_TOPIC,
        absent="there are none, or no log start is known",
        example="offsetlake_group_topic_offsets_below_log_start",
    ),
    Metric(
        name="group_topic_below_log_start_max",
        help="Largest distance of a committed offset below its log start; 1 may be a transaction marker.",
        level="topic",
        labels=_TOPIC,
        absent="there are none, or no log start is known",
        example="offsetlake_group_topic_below_log_start_max > 1",
    ),
    Metric(
        name="group_topic_offsets_of_recreated_topic",
        help="Committed offsets of a deleted topic of the same name; they point into another log.",
        level="topic",
        labels=_TOPIC,
        absent="there are none",
        counts="of_recreated_topic",
        example="offsetlake_group_topic_offsets_of_recreated_topic",
    ),
)

OF_PARTITIONS: Final = (
    Metric(
        name="group_topic_partition_committed_offset",
        help="Committed offset.",
        level="partition",
        labels=_PARTITION,
        absent="it could not be read",
        example='offsetlake_group_topic_partition_committed_offset{group="billing"}',
    ),
    Metric(
        name="group_topic_partition_lag",
        help="Log end offset minus committed offset; negative if the latter is beyond the log end.",
        level="partition",
        labels=_PARTITION,
        absent=_NO_LAG,
        example="offsetlake_group_topic_partition_lag < 0",
    ),
    Metric(
        name="group_topic_partition_lag_seconds",
        help="Time since the log end passed the committed offset.",
        level="partition",
        labels=_PARTITION,
        unit=SECONDS,
        absent=_NO_LAG,
        example="topk(10, offsetlake_group_topic_partition_lag_seconds)",
    ),
    Metric(
        name="group_topic_partition_lag_at_least",
        help="1 if the actual lag in seconds may be larger than reported.",
        level="partition",
        labels=_PARTITION,
        absent="no lag is known, or the reported lag is exact",
        example="count by (group) (offsetlake_group_topic_partition_lag_at_least)",
    ),
    Metric(
        name="group_topic_partition_commit_timestamp_seconds",
        help="Time of the commit.",
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
