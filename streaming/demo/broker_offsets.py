"""The committed offsets of all groups from the broker's Admin API, for the demo and the tests."""

import time
from typing import Any, Final, NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

_REQUEST_S: Final = 10.0

# Transient errors: a coordinator that loads or moves, a rebalance, a broker that restarts, a group that
# another client has just joined or deleted.
_TRANSIENT: Final = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.GROUP_ID_NOT_FOUND,
        KafkaError.NON_EMPTY_GROUP,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._WAIT_COORD,
    }
)


class OffsetKey(NamedTuple):
    """The key of a committed offset."""

    group: str
    topic: str
    partition: int


class CommittedOffset(NamedTuple):
    """A committed offset as clients see it; leader epoch None: none."""

    offset: int
    leader_epoch: int | None = None
    metadata: str = ""


def broker_offsets(
    bootstrap_servers: str, *, timeout_s: float = _REQUEST_S
) -> dict[OffsetKey, CommittedOffset]:
    """Return every group's committed offsets from the broker's Admin API.

    The group with the empty id is left out: librdkafka rejects it. Metadata is as in `shown_metadata` if it
    is empty or contains a NUL, as that of Python clients always does; of other metadata the client reads
    beyond the end, and returns the excess too or fails with `UnicodeDecodeError`. While a coordinator is
    loading, the request is repeated for `timeout_s`, then the broker's error is raised (`KafkaException`).
    """
    admin = AdminClient(client_settings(bootstrap_servers))
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return _ask_for_offsets(admin, timeout_s)
        except KafkaException as error:
            if not is_transient(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def shown_metadata(metadata: str) -> str:
    """Return committed metadata as librdkafka shows it: up to the first NUL.

    The Python client commits metadata with a NUL at the end, and every librdkafka client removes it; the
    topic and Kafka's Java tools contain it.
    """
    return metadata.partition("\0")[0]


def _ask_for_offsets(admin: AdminClient, timeout_s: float) -> dict[OffsetKey, CommittedOffset]:
    listing = admin.list_consumer_groups(request_timeout=timeout_s).result()
    for error in listing.errors:
        raise KafkaException(error)
    requests = [ConsumerGroupTopicPartitions(group.group_id) for group in listing.valid if group.group_id]
    # librdkafka accepts one group per call, but calls may run in parallel.
    futures = [
        admin.list_consumer_group_offsets([request], request_timeout=timeout_s)[request.group_id]
        for request in requests
    ]
    return {
        OffsetKey(answer.group_id, partition.topic, partition.partition): _committed(partition)
        for answer in (future.result() for future in futures)
        for partition in answer.topic_partitions
    }


def _committed(partition: TopicPartition) -> CommittedOffset:
    if partition.error is not None:
        raise KafkaException(partition.error)
    return CommittedOffset(partition.offset, partition.leader_epoch, partition.metadata or "")


def is_transient(error: KafkaException) -> bool:
    """Whether the same request may succeed a moment later."""
    return kafka_error(error).retriable() or kafka_error(error).code() in _TRANSIENT


def client_settings(bootstrap_servers: str) -> dict[str, Any]:
    """Return the settings of every client of the demo."""
    # librdkafka logs to standard error, into the live table: only emergencies.
    return {"bootstrap.servers": bootstrap_servers, "log_level": 0}


def kafka_error(error: KafkaException) -> KafkaError:
    found = error.args[0]
    assert isinstance(found, KafkaError)
    return found
