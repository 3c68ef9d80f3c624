"""Requests of `offsetlake check`: each is answered, refused or given up within a time, and says which.

They write nothing, and no broker creates a topic because of them.
"""

import time
from collections.abc import Iterable
from concurrent.futures import Future, wait
from math import inf
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

from streaming.brokers.answers import DENIED, answer_of, state_of
from streaming.brokers.broker import Broker, settings_of_broker
from streaming.brokers.client_log import REFUSALS
from streaming.brokers.facts import (
    DELETE_RETENTION,
    NO_RETENTION,
    BrokerSettings,
    ClusterFacts,
    NoAnswer,
)
from streaming.common.interruptible import started
from streaming.settings.model import OFFSETS_TOPIC

_LOOK_EVERY_S: Final = 0.1
_REFUSED_S: Final = 1.0
"""Bootstrap brokers that have refused this user for so long will not answer."""

_INVALID: Final = KafkaException(KafkaError(KafkaError.TOPIC_EXCEPTION))


class Inquiry(Broker):
    """A client for the requests of this module; `timeout_s` is that of each request."""

    def cluster(self, timeout_s: float) -> ClusterFacts | NoAnswer:
        """Return the cluster, as any bootstrap broker describes it; the first request, which signs in."""
        asked = started(lambda: self._admin.list_topics(timeout=timeout_s))
        answer = self._result(asked, timeout_s, refused_s=_REFUSED_S)
        if isinstance(answer, KafkaException):
            return self._no_answer(answer)
        self._log.answered()
        topic = answer.topics.get(self._source.topic)
        partitions = {} if topic is None else topic.partitions
        return ClusterFacts(
            answer.cluster_id,
            {broker.id: f"{broker.host}:{broker.port}" for broker in answer.brokers.values()},
            {number: part.leader if part.leader >= 0 else None for number, part in partitions.items()},
            OFFSETS_TOPIC in answer.topics,
        )

    def topic_error(self, timeout_s: float) -> str | NoAnswer:
        """Return Kafka's name of the error of a topic that the cluster does not show."""
        answers = self._describe([self._source.topic], timeout_s)
        [answer] = answers.values() or [_INVALID]
        if not isinstance(answer, KafkaException):
            return NoAnswer("unknown", "it is there since a moment ago")
        if answer.args[0].code() == KafkaError.TOPIC_EXCEPTION:
            return "INVALID_TOPIC_EXCEPTION"
        state = state_of(answer)
        return self._no_answer(answer) if state is None or state.error is None else state.error

    def broker_settings(
        self, broker_ids: Iterable[int], timeout_s: float
    ) -> dict[int, BrokerSettings | NoAnswer]:
        """Return the settings that each broker reports about itself, at the address that it advertises.

        Requires DescribeConfigs on the cluster; a broker that denies it has been reached.
        """
        asked = {
            broker: self._ask_configs(ResourceType.BROKER, str(broker), timeout_s) for broker in broker_ids
        }
        answers = {broker: self._result(future, timeout_s) for broker, future in asked.items()}
        return {broker: self._settings(broker, answer) for broker, answer in answers.items()}

    def tombstones_kept_ms(self, timeout_s: float) -> int | NoAnswer:
        """Return the topic's `delete.retention.ms`. Requires DescribeConfigs on the topic."""
        asked = self._ask_configs(ResourceType.TOPIC, self._source.topic, timeout_s)
        answer = self._result(asked, timeout_s)
        if isinstance(answer, KafkaException):
            return self._no_answer(answer)
        known = answer.get(DELETE_RETENTION)
        if known is None:
            return NoAnswer("unknown", f"no {DELETE_RETENTION} in the answer")
        return int(known.value)

    def _settings(self, broker: int, answer: Any) -> BrokerSettings | NoAnswer:
        if isinstance(answer, KafkaException):
            return self._no_answer(answer, broker)
        return settings_of_broker(answer) or NoAnswer("unknown", NO_RETENTION)

    def _ask_configs(self, kind: ResourceType, name: str, timeout_s: float) -> "Future[Any]":
        asked = self._admin.describe_configs([ConfigResource(kind, name)], request_timeout=timeout_s)
        [future] = asked.values()
        return future

    def _result(self, future: "Future[Any]", timeout_s: float, refused_s: float = inf) -> Any:
        """Return the result of a request, or its `KafkaException`; that of a timeout also once brokers have
        refused this user for `refused_s`, without any answer."""
        end = time.monotonic() + timeout_s
        while not future.done() and time.monotonic() < end and not self._log.is_refused_for(refused_s):
            self._admin.poll(0)  # delivers refusals
            wait([future], _LOOK_EVERY_S)
        return answer_of(future) if future.done() else KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def _no_answer(self, error: KafkaException, broker: int | None = None) -> NoAnswer:
        """Describe an error, with the newest failure of connections to the broker."""
        kafka_error = error.args[0]
        if kafka_error.code() in DENIED:
            return NoAnswer("denied", kafka_error.str().rstrip("."))
        failure = self._newest_failure()
        if broker is not None:
            failure = self._log.last_of.get(broker, "")
        is_refused = kafka_error.code() in REFUSALS or self._log.is_refused_for(0)
        return NoAnswer("refused" if is_refused else "silent", failure or kafka_error.str().rstrip("."))
