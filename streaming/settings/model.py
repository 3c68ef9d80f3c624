"""All settings as values: one frozen class for each table of `conf/offsetlake.toml`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"
"""The name of Kafka's own offsets topic."""


@dataclass(frozen=True, kw_only=True)
class GroupAlerts:
    """How groups that match a pattern (`*`, `?`, `[...]` as in a shell) are treated; None = as all are."""

    pattern: str
    treat: str
    warning_ms: int | None
    critical_ms: int | None


@dataclass(frozen=True, kw_only=True)
class WebhookSettings:
    """Where alerts are posted as JSON; an empty `url` is nowhere."""

    url: str
    headers: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class AlertmanagerSettings:
    """Which Prometheus Alertmanager is told of alerts; an empty `url` is none."""

    url: str
    repeat_every_ms: int
    headers: Mapping[str, str]
    labels: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class AlertSettings:
    """When people are warned, about which groups, and where.

    Of `groups` the first whose pattern matches counts.
    """

    evaluate_every_ms: int
    warning_ms: int
    critical_ms: int
    behind_warning_ms: int
    behind_critical_ms: int
    log_start_every_ms: int
    close_after_ms: int
    log: str
    timeout_ms: int
    groups: tuple[GroupAlerts, ...]
    webhook: WebhookSettings
    alertmanager: AlertmanagerSettings


@dataclass(frozen=True, kw_only=True)
class SourceSettings:
    """Which topic is read, and how its brokers are reached.

    `client` holds Kafka's own (Java) names.
    """

    bootstrap_servers: str
    topic: str
    check_partition: str
    max_records_per_batch: int
    connect_timeout_ms: int
    topic_poll_every_ms: int
    client: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class TableSettings:
    """Where the Delta tables are, how often they are folded and maintained, and how long they keep what."""

    root: str
    fold_every_ms: int
    fold_rows: int
    maintain_every_ms: int
    keep_unused_files_ms: int
    history_ms: int
    keep_removed_ms: int
    keep_quarantine_ms: int
    storage_options: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    """How the query runs.

    `state_partitions` is pinned to the checkpoint by Spark.
    """

    checkpoint: str
    trigger_ms: int
    state_partitions: int
    heartbeat_every_ms: int
    check_topic_every_ms: int


@dataclass(frozen=True, kw_only=True)
class ExpirySettings:
    """How long brokers keep offsets and how often they look (None: the brokers are asked), and how often
    they are asked."""

    retention_ms: int | None
    check_interval_ms: int | None
    read_every_ms: int


@dataclass(frozen=True, kw_only=True)
class SparkSettings:
    """What is handed to Spark as it is."""

    master: str
    driver_memory: str
    log_file: str
    conf: Mapping[str, str]

    @property
    def is_local(self) -> bool:
        """Whether everything runs on this machine: `local[*]`, not `spark://...`, `k8s://...` or `yarn`."""
        return self.master.startswith("local")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings of one run; made by `read_settings` and never changed."""

    source: SourceSettings
    tables: TableSettings
    job: JobSettings
    expiry: ExpirySettings
    spark: SparkSettings
    alerts: AlertSettings
