"""Results of librdkafka's admin client as values: states of topics, offsets, Kafka's error names."""

from base64 import urlsafe_b64encode
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from streaming.brokers.facts import TopicState
from streaming.model.schemas import TOPIC_GONE

DENIED: Final = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})
_ABSENT: Final = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_ID}
)
_UNANSWERED: Final = frozenset({KafkaError.REQUEST_TIMED_OUT, KafkaError.NETWORK_EXCEPTION})
_SILENT: Final = "REQUEST_TIMED_OUT"
MOVED: Final = frozenset({"NOT_LEADER_OR_FOLLOWER", "FENCED_LEADER_EPOCH", "LEADER_NOT_AVAILABLE"})
_KAFKAS_NAMES: Final = {
    "UNKNOWN_TOPIC_OR_PART": TOPIC_GONE,
    "_UNKNOWN_TOPIC": TOPIC_GONE,
    "_UNKNOWN_PARTITION": TOPIC_GONE,
    "UNKNOWN_TOPIC_ID": TOPIC_GONE,
    "NOT_LEADER_FOR_PARTITION": "NOT_LEADER_OR_FOLLOWER",
    "_TIMED_OUT": _SILENT,
    "_TRANSPORT": "NETWORK_EXCEPTION",
}
"""Kafka's names of errors that librdkafka names differently."""


def answer_of(future: "Future[Any]") -> Any:
    """Return the result of a request, or the `KafkaException` with which it failed."""
    try:
        return future.result()
    except KafkaException as error:
        return error


def tells_of_topic(answer: Any) -> bool:
    """Whether a result shows that the topic exists, or that it does not."""
    return not isinstance(answer, KafkaException) or answer.args[0].code() in _ABSENT


def is_silence(answer: Any) -> bool:
    """Whether a result only means that no broker has answered; codes below 0 are librdkafka's own."""
    if tells_of_topic(answer):
        return False
    code: int = answer.args[0].code()
    return code < 0 or code in _UNANSWERED


def topic_id_of(answer: Any) -> str | None:
    """Return the id in the format of the tables; `""`: the brokers have none. None: there is no such
    topic."""
    if isinstance(answer, KafkaException):
        return None
    number = answer.topic_id
    halves = (number.get_most_significant_bits(), number.get_least_significant_bits())
    data = b"".join(half.to_bytes(8, "big", signed=True) for half in halves)
    return urlsafe_b64encode(data).decode("ascii").rstrip("=") if any(halves) else ""


def state_of(answer: Any) -> TopicState | None:
    """Return the state of a topic; None: the result contains none."""
    if not isinstance(answer, KafkaException):
        numbers = frozenset(partition.id for partition in answer.partitions)
        return TopicState(topic_id=topic_id_of(answer) or None, partitions=numbers)
    code = answer.args[0].code()
    return TopicState(error=_error_name(answer)) if code in _ABSENT | DENIED else None


def offset_of(answer: Any) -> int | str:
    """Return the offset of a partition, or Kafka's name of the error."""
    if isinstance(answer, KafkaException):
        return _error_name(answer)
    return answer.offset if answer.offset >= 0 else _SILENT


def _error_name(error: KafkaException) -> str:
    name: str = error.args[0].name()
    return _KAFKAS_NAMES.get(name, name.lstrip("_"))
