"""Facts from brokers as values: the topic, a log, the retention of offsets, the default assignor. Needs no
client."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from streaming.common.times import DAY_MS, MINUTE_MS
from streaming.model.errors import OffsetlakeError

RETENTION: Final = "offsets.retention.minutes"
CHECK_INTERVAL: Final = "offsets.retention.check.interval.ms"
ASSIGNORS: Final = "group.consumer.assignors"
NO_RETENTION: Final = f"no {RETENTION} in the answer"
DELETE_RETENTION: Final = "delete.retention.ms"
DEFAULT_DELETE_RETENTION_MS: Final = DAY_MS

TopicIds = Callable[[Iterable[str]], Mapping[str, str | None] | None]
"""Requests the ids of topics, as `Broker.topic_ids` does."""


class BrokerError(OffsetlakeError):
    """The brokers could not be reached, or refused a request."""


class AccessRefusedError(BrokerError):
    """The brokers have refused this user or its certificates for `connect_timeout`: waiting does not help."""


class TokenRefusedError(BrokerError):
    """No token could be signed, because the credentials for it have expired or were refused."""


class TopicMissingError(BrokerError):
    """The topic does not exist, or this user may not see it, and the time to wait for it is over."""

    @classmethod
    def of(cls, topic: str, servers: str, limit_ms: int) -> "TopicMissingError":
        return cls(
            f"looking for topic {topic}: expected it on {servers} within {limit_ms / 1_000:g} s ([source] "
            "connect_timeout), found no such topic, or none that this user may see (Describe permission). "
            "Check --topic and --bootstrap-server; Kafka creates __consumer_offsets when the first group "
            "commits."
        )


@dataclass(frozen=True)
class TopicFacts:
    """The identity of the topic: cluster id and topic id (None where brokers have none), and its partition
    count."""

    cluster_id: str | None
    partition_count: int
    topic_id: str | None = None


@dataclass(frozen=True)
class LogRange:
    """The offsets in a partition: from `earliest` to before `latest`."""

    earliest: int
    latest: int


@dataclass(frozen=True, kw_only=True)
class TopicState:
    """The state of a topic: its id (None: the brokers have none) and partitions, or Kafka's name of the
    `error`."""

    topic_id: str | None = None
    partitions: frozenset[int] = frozenset()
    error: str | None = None


class NoAnswer(NamedTuple):
    """Why a request has no result: brokers were `silent`, `refused` the sign-in, `denied` a permission, or
    answered something else (`unknown`)."""

    kind: Literal["silent", "refused", "denied", "unknown"]
    reason: str


@dataclass(frozen=True)
class ClusterFacts:
    """A cluster as one user sees it.

    Its id (None: it has none), the address that each broker advertises, by broker id, and the leader of each
    partition of the topic (None: it has no leader). `has_offsets_topic`: `__consumer_offsets` is there.
    """

    cluster_id: str | None
    addresses: Mapping[int, str]
    leaders: Mapping[int, int | None] = field(default_factory=dict)
    has_offsets_topic: bool = False


_ASSIGNORS_BY_CLASS: Final = {
    f"org.apache.kafka.coordinator.group.assignor.{name.capitalize()}Assignor": name
    for name in ("uniform", "range")
}
"""Brokers before 4.0 name their own assignors by class; other assignors may have any name."""


def first_assignor(setting: str | None) -> str | None:
    """Return the name of the first assignor in `group.consumer.assignors`; None: unknown.

    >>> first_assignor("uniform,range")
    'uniform'
    """
    first = (setting or "").split(",", 1)[0].strip()
    return _ASSIGNORS_BY_CLASS.get(first, None if "." in first else first or None)


class BrokerSettings(NamedTuple):
    """The settings of one broker: retention and check interval (ms), and its first assignor (None:
    unknown)."""

    retention_ms: int
    check_interval_ms: int
    default_assignor: str | None = None


@dataclass(frozen=True, kw_only=True)
class BrokerRetention:
    """The brokers' retention of offsets, in milliseconds.

    If they disagree, `retention_ms` is the smallest and `check_interval_ms` the largest value, and
    `warning` reports it; it also names brokers that did not answer. `default_assignor` is the first of
    `group.consumer.assignors`; None: unknown, or they disagree.
    """

    retention_ms: int
    check_interval_ms: int
    warning: str | None = None
    default_assignor: str | None = None


def agreed_retention(answered: Mapping[int, BrokerSettings], silent: Mapping[int, str]) -> BrokerRetention:
    """Combine the answers of all brokers: by broker id its settings, or why there are none. Raises
    `BrokerError` if no broker answered."""
    if not answered:
        reason = next(iter(silent.values()), "no broker in the cluster's metadata")
        raise BrokerError(
            f"asking the brokers for {RETENTION}: expected their settings, found: {reason}. "
            "Grant DescribeConfigs on the cluster, or set [expiry] retention."
        )
    assignors = {one.default_assignor for one in answered.values()}
    return BrokerRetention(
        retention_ms=min(one.retention_ms for one in answered.values()),
        check_interval_ms=max(one.check_interval_ms for one in answered.values()),
        default_assignor=assignors.pop() if len(assignors) == 1 else None,
        warning="; ".join([*_disagreement(answered), *_silence(silent)]) or None,
    )


def _disagreement(answered: Mapping[int, BrokerSettings]) -> Iterator[str]:
    if len({(one.retention_ms, one.check_interval_ms) for one in answered.values()}) > 1:
        values = ", ".join(
            f"broker {broker}: {one.retention_ms // MINUTE_MS} min and {one.check_interval_ms} ms"
            for broker, one in sorted(answered.items())
        )
        yield (
            f"brokers disagree on {RETENTION} and {CHECK_INTERVAL} ({values}): "
            "using the shortest retention and the longest interval"
        )


def _silence(silent: Mapping[int, str]) -> Iterator[str]:
    if silent:
        names, reason = ", ".join(map(str, sorted(silent))), next(iter(silent.values()))
        yield f"not all brokers report how long they retain offsets (broker {names}: {reason})"
