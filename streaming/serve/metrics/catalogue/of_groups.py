"""The metrics of groups: of each, of each and a topic, of each and a topic partition."""

from typing import Final

from streaming.expiry.cause_names import DELETED, EXPIRED
from streaming.lag.rules import STATUSES
from streaming.serve.metrics.catalogue.metric import SECONDS, Metric

CAUSES_FROM_0: Final = (EXPIRED, DELETED)
"""Of these causes each group has a count from 0 on; of others once offsets went."""

_GROUP: Final = ("group",)
_TOPIC: Final = ("group", "topic")
_PARTITION: Final = ("group", "topic", "partition")

_NO_LAG: Final = "no lag is known: log ends are not sampled, or their newest sample is older than 5 minutes"

_NOT_SAMPLED: Final = "it is not sampled, or its newest sample is older than 5 minutes"

OF_GROUPS: Final = (
    Metric(
        name="group_info",
        help="Always 1. Says of which type a group is, in which state, and which protocol type it has.",
        level="group",
        labels=("group", "type", "state", "protocol_type"),
        example='count by (state) (offsetlake_group_info{type="consumer"})',
    ),
    Metric(
        name="group_members",
        help="Members of a group.",
        level="group",
        labels=_GROUP,
        example="offsetlake_group_members == 0",
    ),
    Metric(
        name="group_status",
        help="Whether a group is well: "
        + ", ".join(f"{number} {status}" for number, status in enumerate(STATUSES))
        + ". That of its worst partition, as `offsetlake health` has it.",
        level="group",
        labels=_GROUP,
        absent="the group has committed nothing, and its members have no partitions",
        example="offsetlake_group_status >= 3",
    ),
    Metric(
        name="group_lag",
        help="Records that a group has not read yet, over all its partitions whose lag is known.",
        level="group",
        labels=_GROUP,
        absent=_NO_LAG,
        example="topk(10, offsetlake_group_lag)",
    ),
    Metric(
        name="group_lag_max",
        help="The largest lag in records of one partition of a group.",
        level="group",
        labels=_GROUP,
        absent=_NO_LAG,
        example="offsetlake_group_lag_max > 10000",
    ),
    Metric(
        name="group_lag_seconds",
        help="How long ago the log of a partition went past what its group has committed; the longest.",
        level="group",
        labels=_GROUP,
        unit=SECONDS,
        absent=_NO_LAG,
        example="offsetlake_group_lag_seconds > 300",
    ),
    Metric(
        name="group_lag_at_least",
        help="1: the true lag may be longer than the series of lag say; no series where it is not.",
        level="group",
        labels=_GROUP,
        absent="no lag is known, or that of all its partitions is, to the record and the second",
        example="offsetlake_group_lag_seconds and on (group) offsetlake_group_lag_at_least",
    ),
    Metric(
        name="group_offsets_beyond_log_end",
        help="Committed offsets beyond the end of their log: what comes next would not be read.",
        level="group",
        labels=_GROUP,
        absent="there are none, or no lag is known",
        example="offsetlake_group_offsets_beyond_log_end",
    ),
    Metric(
        name="group_last_commit_timestamp_seconds",
        help="When a group last committed an offset.",
        level="group",
        labels=_GROUP,
        unit=SECONDS,
        absent="the group has committed nothing",
        example="time() - offsetlake_group_last_commit_timestamp_seconds > 3600",
    ),
    Metric(
        name="group_expiry_timestamp_seconds",
        help="When the first offset of a group will expire if the group stays as it is, by the rule.",
        level="group",
        labels=("group", "rule"),
        unit=SECONDS,
        absent="none will, as long as the group stays as it is, or it is not known",
        example="offsetlake_group_expiry_timestamp_seconds - time() < 86400",
    ),
    Metric(
        name="group_unreadable_offsets",
        help="Committed offsets of a group whose newest value could not be read.",
        level="group",
        labels=_GROUP,
        absent="it has none",
        example="offsetlake_group_unreadable_offsets",
    ),
    Metric(
        name="group_commits_total",
        help="Commits of offsets by a group.",
        level="group",
        labels=_GROUP,
        kind="counter",
        example="topk(10, rate(offsetlake_group_commits_total[5m]))",
    ),
    Metric(
        name="group_rewinds_total",
        help="Commits of a group that went back in the same log. Of a batch of the job only the last counts.",
        level="group",
        labels=_GROUP,
        kind="counter",
        example="increase(offsetlake_group_rewinds_total[1h]) > 0",
    ),
    Metric(
        name="group_retired_offsets_total",
        help="Committed offsets of a group that went, by the cause; for six hours more once it is gone.",
        level="group",
        labels=("group", "cause"),
        kind="counter",
        absent=f"none went since serve began; the causes {' and '.join(CAUSES_FROM_0)} are 0 then",
        example='increase(offsetlake_group_retired_offsets_total{cause="expired (probable)"}[1h]) > 0',
    ),
)

OF_TOPICS: Final = (
    Metric(
        name="group_topic_lag",
        help="Records of a topic that a group has not read yet, over its partitions whose lag is known.",
        level="topic",
        labels=_TOPIC,
        absent=_NO_LAG,
        example="sum by (topic) (offsetlake_group_topic_lag)",
    ),
    Metric(
        name="group_topic_lag_seconds",
        help="The same as group_lag_seconds of the partitions of one topic.",
        level="topic",
        labels=_TOPIC,
        unit=SECONDS,
        absent=_NO_LAG,
        example="max by (topic) (offsetlake_group_topic_lag_seconds)",
    ),
    Metric(
        name="group_topic_lag_at_least",
        help="The same as group_lag_at_least of the partitions of one topic.",
        level="topic",
        labels=_TOPIC,
        absent="no lag is known, or that of all its partitions is, to the record and the second",
        example="offsetlake_group_topic_lag_seconds unless offsetlake_group_topic_lag_at_least",
    ),
    Metric(
        name="group_topic_position",
        help="Sum of the offsets that a group has committed in a topic; it rises as fast as the group reads.",
        level="topic",
        labels=_TOPIC,
        absent="no offset of it could be read",
        example="clamp_min(deriv(offsetlake_group_topic_position[10m]), 0)",
    ),
    Metric(
        name="group_topic_oldest_commit_timestamp_seconds",
        help="When that partition of a topic was committed that was not committed for the longest time.",
        level="topic",
        labels=_TOPIC,
        unit=SECONDS,
        example="time() - offsetlake_group_topic_oldest_commit_timestamp_seconds > 3600",
    ),
    Metric(
        name="group_topic_subscribed",
        help="1 if a group subscribes to a topic of which it has committed offsets, 0 if it does not.",
        level="topic",
        labels=_TOPIC,
        absent="the group has no members, or it is not known to what they subscribe",
        example="offsetlake_group_topic_subscribed == 0",
    ),
    Metric(
        name="group_topic_offsets_below_log_start",
        help="Committed offsets below the start of their log: what is to be read next is not there any more.",
        level="topic",
        labels=_TOPIC,
        absent="there are none, or no log start is known",
        example="offsetlake_group_topic_offsets_below_log_start",
    ),
    Metric(
        name="group_topic_below_log_start_max",
        help="How far these offsets are below the start of their log at most; 1 may be a marker.",
        level="topic",
        labels=_TOPIC,
        absent="there are none, or no log start is known",
        example="offsetlake_group_topic_below_log_start_max > 1",
    ),
    Metric(
        name="group_topic_offsets_of_former_topic",
        help="Committed offsets of a deleted topic of the same name: they point into another log.",
        level="topic",
        labels=_TOPIC,
        absent="there are none",
        counts="of_former_topic",
        example="offsetlake_group_topic_offsets_of_former_topic",
    ),
)

OF_PARTITIONS: Final = (
    Metric(
        name="group_topic_partition_committed_offset",
        help="The offset that a group has committed.",
        level="partition",
        labels=_PARTITION,
        absent="none could be read",
        example='offsetlake_group_topic_partition_committed_offset{group="billing"}',
    ),
    Metric(
        name="group_topic_partition_lag",
        help="Log end offset - committed offset; negative: the group is beyond the end of the log.",
        level="partition",
        labels=_PARTITION,
        absent=_NO_LAG,
        example="offsetlake_group_topic_partition_lag < 0",
    ),
    Metric(
        name="group_topic_partition_lag_seconds",
        help="How long ago the end of the log went past what the group has committed.",
        level="partition",
        labels=_PARTITION,
        unit=SECONDS,
        absent=_NO_LAG,
        example="topk(10, offsetlake_group_topic_partition_lag_seconds)",
    ),
    Metric(
        name="group_topic_partition_lag_at_least",
        help="1: the true lag in seconds may be longer than the series says; no series where it is not.",
        level="partition",
        labels=_PARTITION,
        absent="no lag is known, or it is to the second",
        example="count by (group) (offsetlake_group_topic_partition_lag_at_least)",
    ),
    Metric(
        name="group_topic_partition_commit_timestamp_seconds",
        help="When a group has committed the offset.",
        level="partition",
        labels=_PARTITION,
        unit=SECONDS,
        example='time() - offsetlake_group_topic_partition_commit_timestamp_seconds{group="billing"}',
    ),
    Metric(
        name="topic_partition_log_start_offset",
        help="Where the log of a topic partition starts.",
        level="partition",
        labels=("topic", "partition"),
        absent=_NOT_SAMPLED,
        example="offsetlake_topic_partition_log_start_offset",
    ),
    Metric(
        name="topic_partition_log_end_offset",
        help="Where the log of a topic partition ends.",
        level="partition",
        labels=("topic", "partition"),
        absent=_NOT_SAMPLED,
        example="sum by (topic) (rate(offsetlake_topic_partition_log_end_offset[5m]))",
    ),
)
