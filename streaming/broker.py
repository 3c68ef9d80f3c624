"""What offsetlake asks the brokers beside reading the topic: its partitions and how far each one reaches.

Everything here only reads, and answers within a bounded time.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from streaming.client_settings import librdkafka_settings
from streaming.errors import MisuseError, OffsetlakeError
from streaming.progress import PartitionEnds
from streaming.settings import SourceSettings

REQUEST_TIMEOUT_S: Final = 10.0
_GIVE_UP_EVERY_S: Final = 0.2


class BrokerError(OffsetlakeError):
    """The brokers could not be reached, or refused what was asked."""


@dataclass(frozen=True)
class TopicFacts:
    """What identifies the topic: its cluster (None where brokers do not say) and its partition count."""

    cluster_id: str | None
    partition_count: int


class Broker:
    """A connection to the brokers that answers the few questions of this module."""

    def __init__(self, source: SourceSettings) -> None:
        self._source = source
        self._last_complaint = ""
        settings: dict[str, Any] = {
            "client.id": "offsetlake",
            **librdkafka_settings(source.client),
            "bootstrap.servers": source.bootstrap_servers,
            "error_cb": self._remember,
        }
        try:
            self._admin = AdminClient(settings, logger=_SILENT)
        except KafkaException as error:
            raise MisuseError(
                "setting up a Kafka client: expected settings that librdkafka takes, "
                f"found: {error.args[0].str()}. "
                "Check [source.client] in the settings and the --command-config file."
            ) from error

    def wait_for_topic(self, say: Callable[[str], None], give_up: Callable[[], bool]) -> TopicFacts | None:
        """Wait until the topic exists and return its facts; None when `give_up` says so before.

        The brokers must answer within `connect_timeout`, else `BrokerError`; the topic may take as long as
        it likes (Kafka creates it at the first commit), and `say` is told once that it is waited for.
        """
        facts = self._topic_facts(self._source.connect_timeout_ms / 1_000)
        if facts is None:
            say(
                f"topic {self._source.topic} does not exist yet on {self._source.bootstrap_servers}, "
                "or this user may not see it (Describe right): "
                "waiting for it (Kafka creates it when the first group commits)"
            )
        while facts is None and not _rest(self._source.topic_poll_every_ms / 1_000, give_up):
            facts = self._topic_facts(self._source.connect_timeout_ms / 1_000)
        return facts

    def ends(self, partition_count: int) -> dict[int, PartitionEnds]:
        """Return the present ends of all partitions (those that answered); raises `BrokerError` if none
        did."""
        stable = self._latest(partition_count, IsolationLevel.READ_COMMITTED)
        high = self._latest(partition_count, IsolationLevel.READ_UNCOMMITTED)
        return {
            partition: PartitionEnds(stable[partition], max(high[partition], stable[partition]))
            for partition in sorted(stable.keys() & high.keys())
        }

    def _topic_facts(self, timeout_s: float) -> TopicFacts | None:
        # asking for all topics: asking for one by name would make brokers with auto-creation create it
        try:
            metadata = self._admin.list_topics(timeout=timeout_s)
        except KafkaException as error:
            raise self._unreachable(error, timeout_s) from error
        topic = metadata.topics.get(self._source.topic)
        if topic is None or not topic.partitions:
            return None
        return TopicFacts(metadata.cluster_id, len(topic.partitions))

    def _latest(self, partition_count: int, isolation: IsolationLevel) -> dict[int, int]:
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {
            TopicPartition(self._source.topic, partition): latest for partition in range(partition_count)
        }
        answers = self._admin.list_offsets(
            asked, isolation_level=isolation, request_timeout=REQUEST_TIMEOUT_S
        )
        found: dict[int, int] = {}
        failure: KafkaException | None = None
        for topic_partition, future in answers.items():
            try:
                found[topic_partition.partition] = future.result().offset
            except KafkaException as error:
                failure = error
        if failure is not None and not found:
            raise self._unreachable(failure, REQUEST_TIMEOUT_S) from failure
        return found

    def _remember(self, error: KafkaError) -> None:
        self._last_complaint = error.str()

    def _unreachable(self, error: KafkaException, timeout_s: float) -> BrokerError:
        return BrokerError(
            f"asking {self._source.bootstrap_servers} about topic {self._source.topic}: "
            f"expected an answer within {timeout_s:g} s, found: {error.args[0].str()}"
            f"{f' ({self._last_complaint})' if self._last_complaint else ''}. "
            "Check --bootstrap-server, the network, and the security settings (--command-config)."
        )


def _rest(seconds: float, give_up: Callable[[], bool]) -> bool:
    """Sleep, but not on when `give_up` says so; returns whether it did."""
    end = time.monotonic() + seconds
    while not (given_up := give_up()) and (left := end - time.monotonic()) > 0:
        time.sleep(min(left, _GIVE_UP_EVERY_S))
    return given_up


def java_client_settings(source: SourceSettings) -> Mapping[str, str]:
    """Return the settings for Kafka's Java client inside Spark's connector, without Spark's `kafka.`
    prefix."""
    return {**source.client, "bootstrap.servers": source.bootstrap_servers}


class _Silent:
    """A logger that drops what librdkafka writes: its last complaint is part of our own error messages."""

    def log(self, *_args: Any, **_kwargs: Any) -> None:
        """Drop the line."""


_SILENT: Final = _Silent()
