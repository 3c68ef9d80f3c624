"""All settings as values: one frozen class for each table of `conf/offsetlake.toml`, one field for each
setting.

The type of a field names the kind of the setting (`kinds`): its form in TOML, and how it is read and shown.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final

from streaming.settings.kinds import (
    MIB,
    Choice,
    ClientTable,
    Credential,
    Duration,
    Entries,
    File,
    Flag,
    FreeTable,
    HostPort,
    ListenerTable,
    Location,
    Name,
    Number,
    Patterns,
    Servers,
    Size,
    SparkTable,
    Text,
    Url,
)

Address = Annotated[str, Url()]
Headers = Annotated[Mapping[str, str], FreeTable(has_headers=True)]
Milliseconds = Annotated[int, Duration()]
MillisecondsOrOff = Annotated[int, Duration(may_be_off=True)]
MillisecondsOfBrokers = Annotated[int | None, Duration(may_be_auto=True)]
OnOff = Annotated[str, Choice(of=("on", "off"))]
Texts = Annotated[Mapping[str, str], FreeTable()]

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""How Kafka clients sign in to a listener, in Kafka's words: not at all, by certificate, or by SASL."""

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "SSL")
"""How a principal signs in: by a SASL mechanism, or by a certificate (SSL)."""

LEAST_MEMORY_BYTES: Final = 2_560 * MIB
"""The least memory of the job that was seen to do (docs/performance.md, "Memory")."""

OFFSETS_TOPIC: Final = "__consumer_offsets"
"""The name of Kafka's own offsets topic."""


@dataclass(frozen=True, kw_only=True)
class GroupAlerts:
    """Alerts for groups that match a pattern (`*`, `?`, `[...]` as in a shell); None = as in `[alerts]`."""

    pattern: Annotated[str, Text(may_be_empty=True)]  # empty: the empty group id
    treat: Annotated[str, Choice(of=("alert", "summarize", "exclude"))] = "alert"
    warning_ms: Annotated[int | None, Duration()] = None
    critical_ms: Annotated[int | None, Duration()] = None
    group_stopped: Annotated[str | None, Choice(of=("on", "off"))] = None
    group_stalled: Annotated[str | None, Choice(of=("on", "off"))] = None
    group_rewound: Annotated[str | None, Choice(of=("on", "off"))] = None
    offset_beyond_log_end: Annotated[str | None, Choice(of=("on", "off"))] = None
    offset_of_recreated_topic: Annotated[str | None, Choice(of=("on", "off"))] = None
    lag_seconds_ms: Annotated[int | None, Duration(may_be_off=True)] = None  # 0: off


@dataclass(frozen=True, kw_only=True)
class WebhookSettings:
    """The address to which alerts are posted as JSON; an empty `url`: none."""

    url: Address
    headers: Headers


@dataclass(frozen=True, kw_only=True)
class AlertmanagerSettings:
    """The Prometheus Alertmanager that receives alerts; an empty `url`: none."""

    url: Address
    repeat_every_ms: Milliseconds
    headers: Headers
    labels: Texts


@dataclass(frozen=True, kw_only=True)
class AlertSettings:
    """Thresholds, groups and receivers of alerts. The first of `groups` with a matching pattern applies."""

    evaluate_every_ms: Milliseconds
    warning_ms: Milliseconds
    critical_ms: Milliseconds
    behind_warning_ms: Milliseconds
    behind_critical_ms: Milliseconds
    log_start_every_ms: Milliseconds
    close_after_ms: Milliseconds
    group_stopped: OnOff
    group_stalled: OnOff
    group_rewound: OnOff
    offset_beyond_log_end: OnOff
    offset_of_recreated_topic: OnOff
    lag_seconds_ms: MillisecondsOrOff  # 0: off
    log: OnOff
    timeout_ms: Milliseconds
    groups: Annotated[tuple[GroupAlerts, ...], Entries(of=GroupAlerts)]
    webhook: WebhookSettings
    alertmanager: AlertmanagerSettings


@dataclass(frozen=True, kw_only=True)
class SourceSettings:
    """The topic to read, and the connection to its brokers.

    `client` has the names of Kafka's Java client.
    """

    bootstrap_servers: Annotated[str, Servers()]
    topic: Annotated[str, Name()]
    check_partition: Annotated[str, Choice(of=("auto", "on", "off"))]
    max_records_per_batch: Annotated[int | None, Number(may_be_auto=True)]  # None: by the memory
    connect_timeout_ms: Milliseconds
    topic_poll_every_ms: Milliseconds
    client: Annotated[Mapping[str, str], ClientTable()]


@dataclass(frozen=True, kw_only=True)
class TableSettings:
    """Location of the Delta tables, intervals of folds and maintenance, the age up to which tables count as
    complete, and retention.
    """

    root: Annotated[str, Location()]
    fold_every_ms: Milliseconds
    fold_rows: int
    complete_within_ms: Milliseconds
    maintain_every_ms: Milliseconds
    keep_unused_files_ms: Milliseconds
    history_ms: Milliseconds
    keep_removed_ms: Milliseconds
    keep_quarantine_ms: Milliseconds
    storage_options: Texts


@dataclass(frozen=True, kw_only=True)
class LogEndSettings:
    """The sampling interval of log ends, and the retention of samples (None: that of the history)."""

    every_ms: Milliseconds
    keep_ms: Annotated[int | None, Duration(may_be_auto=True)]


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    """The query of the job, and the memory of all its processes (`memory.divided`; None: as usual). Spark
    fixes `state_partitions` in the checkpoint.
    """

    checkpoint: Annotated[str, Location()]
    trigger_ms: Annotated[int, Duration(may_be_zero=True)]  # 0: as soon as the last batch has ended
    state_partitions: int
    memory_bytes: Annotated[int | None, Size(least_bytes=LEAST_MEMORY_BYTES)]
    heartbeat_every_ms: Milliseconds
    check_topic_every_ms: Milliseconds
    readable_by_group: OnOff


@dataclass(frozen=True, kw_only=True)
class ExpirySettings:
    """The brokers' retention of offsets and their check interval (None: as the brokers report), and the
    interval of asking them.
    """

    retention_ms: MillisecondsOfBrokers
    check_interval_ms: MillisecondsOfBrokers
    read_every_ms: Milliseconds


@dataclass(frozen=True, kw_only=True)
class HealthSettings:
    window_ms: Milliseconds
    min_commits: int
    min_lag: Annotated[int, Number(may_be_zero=True)]


@dataclass(frozen=True, kw_only=True)
class SparkSettings:
    """Settings that Spark gets unchanged."""

    master: str
    log_file: Annotated[str, File()]
    conf: Annotated[Mapping[str, str], SparkTable()]

    @property
    def is_local(self) -> bool:
        """Whether everything runs on this machine: `local[*]`, not `spark://...`, `k8s://...` or `yarn`."""
        return self.master.startswith("local")


@dataclass(frozen=True, kw_only=True)
class KafkaListenerSettings:
    """The address of a listener for Kafka clients, the advertised one (empty: the one they connected to), and
    the name of the cluster whose tables it answers from (empty: the only one).

    `certificate_file` and `key_file` are PEM files (empty: none, and the key is in the former); `broker` has
    the names of Kafka's brokers. `insecure`: other machines are allowed without TLS or without signing in.
    `as_of` is the past moment of its responses, in a notation of `--as-of` (empty: now).
    """

    listen: Annotated[str, HostPort()]
    advertise: Annotated[str, HostPort(may_be_empty=True)] = ""
    cluster: Annotated[str, Name()] = ""
    security_protocol: Annotated[str, Choice(of=SECURITY_PROTOCOLS)] = "PLAINTEXT"
    certificate_file: Annotated[str, File(may_be_empty=True)] = ""
    key_file: Annotated[str, File(may_be_empty=True)] = ""
    insecure: Annotated[bool, Flag()] = False
    as_of: Annotated[str, Text(may_be_empty=True)] = ""
    broker: Annotated[Mapping[str, str], ListenerTable()] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PrincipalSettings:
    """Who may sign in to the Kafka listeners, and the groups and topics that this principal may see.

    `credential` is the password (PLAIN), or its salted keys (SCRAM); empty for a token or a certificate.
    """

    name: str
    mechanism: Annotated[str, Choice(of=MECHANISMS)]
    credential: Annotated[str, Credential()] = ""
    groups: Annotated[tuple[str, ...], Patterns()]
    topics: Annotated[tuple[str, ...], Patterns()] = ("*",)


@dataclass(frozen=True, kw_only=True)
class HttpSettings:
    """The HTTP listener (empty: none), and the authentication of its clients: by the token in a file (empty:
    no token), or by a proxy in front. `certificate_file` and `key_file`: as in `KafkaListenerSettings`.
    """

    listen: Annotated[str, HostPort(may_be_empty=True)]
    token_file: Annotated[str, File(may_be_empty=True)]
    behind_proxy: OnOff
    certificate_file: Annotated[str, File(may_be_empty=True)]
    key_file: Annotated[str, File(may_be_empty=True)]


@dataclass(frozen=True, kw_only=True)
class GroupMetrics:
    """Granularity of the series of groups that match a pattern (`*`, `?`, `[...]` as in a shell)."""

    pattern: Annotated[str, Text(may_be_empty=True)]  # empty: the empty group id
    granularity: Annotated[str, Choice(of=("none", "group", "topic", "partition"))]


@dataclass(frozen=True, kw_only=True)
class MetricsSettings:
    """The series of groups, and their names. The first of `groups` with a matching pattern applies."""

    granularity: Annotated[str, Choice(of=("group", "topic", "partition"))]
    names: Annotated[str, Choice(of=("offsetlake", "kafka_exporter", "kafka-lag-exporter", "kminion"))]
    idle_after_ms: MillisecondsOrOff  # 0: off
    max_series: int
    groups: Annotated[tuple[GroupMetrics, ...], Entries(of=GroupMetrics)]
    labels: Texts


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """A cluster that `offsetlake serve` answers for: its name, and the location of its tables."""

    name: Annotated[str, Name()]
    table_root: Annotated[str, Location()]


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """The clusters of `offsetlake serve` (empty: one without a name, at `[tables] root`), its listeners, and
    who may sign in to those for Kafka clients. `as_of_clients`: these may ask about the past, by their
    `client.id`."""

    clusters: Annotated[tuple[ClusterSettings, ...], Entries(of=ClusterSettings)]
    as_of_clients: Annotated[bool, Flag()]
    http: HttpSettings
    kafka: Annotated[tuple[KafkaListenerSettings, ...], Entries(of=KafkaListenerSettings)]
    principals: Annotated[tuple[PrincipalSettings, ...], Entries(of=PrincipalSettings)]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings of one run, by section; created by `read_settings` and immutable. Names have the units
    (`_ms`).
    """

    source: SourceSettings
    tables: TableSettings
    log_ends: LogEndSettings
    job: JobSettings
    expiry: ExpirySettings
    health: HealthSettings
    spark: SparkSettings
    alerts: AlertSettings
    serve: ServeSettings
    metrics: MetricsSettings
