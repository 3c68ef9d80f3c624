"""Our series under the metric and label names of other exporters, for existing dashboards.

A label whose value we do not know is empty, which Prometheus treats as absent. One scheme at most is in use;
metrics of the job keep our names. docs/metrics.md lists the metrics of these exporters that we cannot
provide.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow.compute as pc

from streaming.common.arrays import from_texts, to_mask
from streaming.serve.metrics.labels import TEXTS
from streaming.serve.metrics.series import Constant, Series, Values

NOT_KNOWN: Final = Constant("")

OWN: Final = "offsetlake"

CLUSTER: Final = "cluster_id"
"""A placeholder in `labels` for the id of the cluster."""

CLUSTER_NAME: Final = "cluster_name"
"""The cluster label of kafka-lag-exporter: its value is set in `[metrics.labels]`, by default the cluster
id."""

Shown = str | Constant


@dataclass(frozen=True)
class Foreign:
    """A metric of another exporter: our metric (`of`), its name, the source of its labels, and its values if
    they differ."""

    of: str
    name: str
    labels: Mapping[str, Shown]
    values: Callable[[Series], Values] | None = None


def _never_negative(series: Series) -> Values:
    numbers: Values = np.maximum(series.values, 0)
    return numbers


def _is_stable(series: Series) -> Values:
    stable = from_texts(["Stable"]).cast(TEXTS)
    return to_mask(pc.is_in(series.labels["state"].column(), value_set=stable)).astype(np.int64)


_KE: Final = {"consumergroup": "group"}
_KE_TOPIC: Final = {**_KE, "topic": "topic"}
_KE_PARTITION: Final = {**_KE, "partition": "partition", "topic": "topic"}
_PARTITION: Final = {"partition": "partition", "topic": "topic"}

_KLE: Final[Mapping[str, Shown]] = {CLUSTER_NAME: CLUSTER, "group": "group"}
_KLE_PARTITION: Final[Mapping[str, Shown]] = {
    **_KLE,
    "topic": "topic",
    "partition": "partition",
    "member_host": NOT_KNOWN,
    "consumer_id": NOT_KNOWN,
    "client_id": NOT_KNOWN,
}
_KLE_LOG: Final = {CLUSTER_NAME: CLUSTER, "topic": "topic", "partition": "partition"}

_KM: Final = {"group_id": "group"}
_KM_TOPIC: Final = {**_KM, "topic_name": "topic"}
_KM_LOG: Final = {"topic_name": "topic", "partition_id": "partition"}

SCHEMES: Final[Mapping[str, Sequence[Foreign]]] = {
    "kafka_exporter": (
        Foreign("group_members", "kafka_consumergroup_members", _KE),
        Foreign("group_topic_position", "kafka_consumergroup_current_offset_sum", _KE_TOPIC),
        Foreign("group_topic_lag", "kafka_consumergroup_lag_sum", _KE_TOPIC),
        Foreign(
            "group_topic_partition_committed_offset", "kafka_consumergroup_current_offset", _KE_PARTITION
        ),
        Foreign("group_topic_partition_lag", "kafka_consumergroup_lag", _KE_PARTITION, _never_negative),
        Foreign("topic_partition_log_start_offset", "kafka_topic_partition_oldest_offset", _PARTITION),
        Foreign("topic_partition_log_end_offset", "kafka_topic_partition_current_offset", _PARTITION),
    ),
    "kafka-lag-exporter": (
        Foreign("group_lag", "kafka_consumergroup_group_sum_lag", _KLE),
        Foreign("group_lag_max", "kafka_consumergroup_group_max_lag", _KLE),
        Foreign("group_lag_seconds", "kafka_consumergroup_group_max_lag_seconds", _KLE),
        Foreign("group_topic_lag", "kafka_consumergroup_group_topic_sum_lag", {**_KLE, "topic": "topic"}),
        Foreign("group_topic_partition_committed_offset", "kafka_consumergroup_group_offset", _KLE_PARTITION),
        Foreign(
            "group_topic_partition_lag", "kafka_consumergroup_group_lag", _KLE_PARTITION, _never_negative
        ),
        Foreign("group_topic_partition_lag_seconds", "kafka_consumergroup_group_lag_seconds", _KLE_PARTITION),
        Foreign("topic_partition_log_start_offset", "kafka_partition_earliest_offset", _KLE_LOG),
        Foreign("topic_partition_log_end_offset", "kafka_partition_latest_offset", _KLE_LOG),
    ),
    "kminion": (
        Foreign(
            "group_info",
            "kminion_kafka_consumer_group_info",
            {
                **_KM,
                "member_count": "member_count",
                "protocol": "protocol",
                "protocol_type": "protocol_type",
                "state": "state",
                "coordinator_id": NOT_KNOWN,
            },
            _is_stable,
        ),
        Foreign("group_members", "kminion_kafka_consumer_group_members", _KM),
        Foreign("group_commits_total", "kminion_kafka_consumer_group_offset_commits_total", _KM),
        Foreign("group_topic_lag", "kminion_kafka_consumer_group_topic_lag", _KM_TOPIC),
        Foreign("group_topic_position", "kminion_kafka_consumer_group_topic_offset_sum", _KM_TOPIC),
        Foreign(
            "group_topic_partition_lag",
            "kminion_kafka_consumer_group_topic_partition_lag",
            {**_KM_TOPIC, "partition_id": "partition"},
            _never_negative,
        ),
        Foreign("topic_partition_log_start_offset", "kminion_kafka_topic_partition_low_water_mark", _KM_LOG),
        Foreign("topic_partition_log_end_offset", "kminion_kafka_topic_partition_high_water_mark", _KM_LOG),
    ),
}
"""The metrics of each exporter that we provide."""

NOT_HAD: Final[Mapping[str, Sequence[str]]] = {
    "kafka_exporter": (
        "kafka_brokers",
        "kafka_broker_info",
        "kafka_topic_partitions",
        "kafka_topic_partition_in_sync_replica",
        "kafka_topic_partition_leader",
        "kafka_topic_partition_leader_is_preferred",
        "kafka_topic_partition_replicas",
        "kafka_topic_partition_under_replicated_partition",
        "kafka_consumergroupzookeeper_lag_zookeeper",
    ),
    "kafka-lag-exporter": ("kafka_consumergroup_poll_time_ms",),
    "kminion": (
        "kminion_kafka_broker_info",
        "kminion_kafka_broker_log_dir_size_total_bytes",
        "kminion_kafka_cluster_info",
        "kminion_kafka_topic_info",
        "kminion_kafka_topic_log_dir_size_total_bytes",
        "kminion_kafka_topic_low_water_mark_sum",
        "kminion_kafka_topic_high_water_mark_sum",
        "kminion_kafka_consumer_group_empty_members",
        "kminion_kafka_consumer_group_topic_members",
        "kminion_kafka_consumer_group_topic_assigned_partitions",
        "kminion_end_to_end_*",
        "kminion_exporter_*",
    ),
}
"""The metrics of each exporter that the tables cannot provide."""
