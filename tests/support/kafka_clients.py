"""What tests do to a real broker, in one call each: topics, commits of every kind, deletions, raw records.

Offsets are given as `{("orders", 0): CommittedOffset(5, metadata="note")}`; a plain int is an offset alone.
Every helper waits for its answer, and asks again while the group coordinator is still loading. What goes
through librdkafka (`commit_offsets`, `OffsetTransaction`) arrives with a NUL at the end of its metadata.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, Final, NamedTuple, TypeVar

import raw_requests
from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from raw_requests import TopicPartitionKey

from streaming.demo.broker_offsets import CommittedOffset, OffsetKey, is_transient

OFFSETS_TOPIC: Final = "__consumer_offsets"
Offsets = Mapping[TopicPartitionKey, CommittedOffset | int]

_TIMEOUT_S: Final = 15.0
Result = TypeVar("Result")


class RawRecord(NamedTuple):
    """A record as it stands in a topic; a null value is a tombstone."""

    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None


# --- topics ---


def create_topics(bootstrap: str, topics: Mapping[str, int], **config: str) -> None:
    """Create topics: name -> number of partitions. Returns when they can be used."""
    new = [NewTopic(name, partitions, 1, config=config) for name, partitions in topics.items()]
    admin = _admin(bootstrap)
    for future in admin.create_topics(new, operation_timeout=_TIMEOUT_S).values():
        future.result(_TIMEOUT_S)
    # the controller knows them now; the broker that is asked about them learns of them a little later
    wait_until(lambda: topics.keys() <= admin.list_topics(timeout=_TIMEOUT_S).topics.keys(), "the topics")


def delete_topics(bootstrap: str, *names: str) -> None:
    """Delete topics; the coordinators then write tombstones for the offsets committed for them."""
    admin = _admin(bootstrap)
    for future in admin.delete_topics(list(names), operation_timeout=_TIMEOUT_S).values():
        future.result(_TIMEOUT_S)


def deny(bootstrap: str, kind: ResourceType, name: str, operation: AclOperation) -> None:
    """Take a right away from everybody."""
    rule = AclBinding(
        kind, name, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", operation, AclPermissionType.DENY
    )
    admin = _admin(bootstrap)
    for future in admin.create_acls([rule]).values():
        future.result(10)


def ensure_offsets_topic(bootstrap: str) -> None:
    """Make the broker create `__consumer_offsets`, which it does at the first request about a group."""
    raw_requests.find_coordinator(bootstrap, "nobody")


# --- commits ---


def commit_offsets(bootstrap: str, group: str, offsets: Offsets) -> None:
    """Commit with a consumer that takes its partitions by `assign`: a simple group, whose id is not empty."""
    partitions = _topic_partitions(offsets)
    with consumer(bootstrap, group) as committing:
        committing.assign(partitions)
        retrying(lambda: committing.commit(offsets=partitions, asynchronous=False))


def alter_offsets(bootstrap: str, group: str, offsets: Offsets) -> None:
    """Commit by the request of Admin `alterConsumerGroupOffsets`: any group id, any metadata."""
    raw_requests.offset_commit(bootstrap, group, _all_committed(offsets))


def commit_with_retention(bootstrap: str, group: str, offsets: Offsets, *, retention_ms: int) -> None:
    """Commit as old clients could: the broker writes an offset value v1 with an expireTimestamp."""
    raw_requests.offset_commit(bootstrap, group, _all_committed(offsets), retention_ms=retention_ms)


def delete_offsets(bootstrap: str, group: str, partitions: Iterable[TopicPartitionKey]) -> None:
    """Delete single committed offsets (OffsetDelete): a tombstone each."""
    raw_requests.offset_delete(bootstrap, group, partitions)


def delete_group(bootstrap: str, group: str) -> None:
    """Delete a group without members (DeleteGroups): tombstones for its offsets and for itself."""
    raw_requests.delete_groups(bootstrap, group)


class OffsetTransaction:
    """A transaction that holds nothing but offsets: `send`, then `commit`, `abort`, or leave it open.

    Left open it stays so until `timeout_ms` has passed; then the broker aborts it.
    """

    def __init__(self, bootstrap: str, transactional_id: str, *, timeout_ms: int = 600_000) -> None:
        self._bootstrap = bootstrap
        self._producer = Producer(
            _settings(bootstrap)
            | {"transactional.id": transactional_id, "transaction.timeout.ms": timeout_ms}
        )
        self._producer.init_transactions(_TIMEOUT_S)
        self._producer.begin_transaction()

    def send(self, group: str, offsets: Offsets) -> None:
        """Add a group's offsets; they are pending until the transaction ends."""
        with consumer(self._bootstrap, group) as member:
            metadata = member.consumer_group_metadata()
        retrying(
            lambda: self._producer.send_offsets_to_transaction(
                _topic_partitions(offsets), metadata, _TIMEOUT_S
            )
        )

    def commit(self) -> None:
        """Commit it. The coordinators learn of it a moment later: use `wait_until` or `stable_offsets`."""
        self._producer.commit_transaction(_TIMEOUT_S)

    def abort(self) -> None:
        """Abort it."""
        self._producer.abort_transaction(_TIMEOUT_S)


# --- members ---


@contextmanager
def consumer(bootstrap: str, group: str, **settings: Any) -> Iterator[Consumer]:
    """A consumer that commits only when told to; settings have `_` for `.` (`group_protocol=...`)."""
    extra = {name.replace("_", "."): value for name, value in settings.items()}
    defaults = {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    with closing(Consumer(_settings(bootstrap) | defaults | extra)) as client:
        yield client


@contextmanager
def member(bootstrap: str, group: str, *topics: str, protocol: str = "classic") -> Iterator[Consumer]:
    """A member that holds partitions, and leaves at the end; `protocol` is `classic` or `consumer`."""
    with consumer(bootstrap, group, group_protocol=protocol) as client:
        client.subscribe(list(topics))

        def joined() -> bool:
            client.poll(0.05)
            return bool(client.assignment())

        wait_until(joined, f"{group} to hold partitions of {topics}")
        yield client


# --- raw records ---


def produce_raw(
    bootstrap: str,
    topic: str,
    records: Iterable[tuple[bytes | None, bytes | None]],
    *,
    partition: int = 0,
    timestamp_ms: int | None = None,
) -> list[int]:
    """Write keys and values as they are, also into internal topics; return their offsets.

    The running coordinator does not see what is written into `__consumer_offsets` behind its back: restart
    the broker before asking it. That topic is compacted: a key of None is refused there (INVALID_RECORD).
    """
    # The client id of Kafka's own tools is the only one that may write into internal topics.
    settings = {"client.id": "__admin_client", "enable.idempotence": False, "linger.ms": 5}
    settings |= {"max.in.flight.requests.per.connection": 1}
    producer = Producer(_settings(bootstrap) | settings)
    delivered: list[tuple[KafkaError | None, int | None]] = []
    for key, value in records:
        producer.produce(
            topic,
            key=key,
            value=value,
            partition=partition,
            timestamp=timestamp_ms or 0,  # librdkafka takes 0 as "now"
            on_delivery=lambda error, message: delivered.append((error, message.offset())),
        )
        producer.poll(0)
    assert producer.flush(_TIMEOUT_S) == 0, f"records for {topic} were not delivered in {_TIMEOUT_S:g} s"
    for error, _ in delivered:
        if error is not None:
            raise KafkaException(error)
    return [offset for _, offset in delivered if offset is not None]


def read_raw(bootstrap: str, topic: str = OFFSETS_TOPIC, *, committed: bool = True) -> list[RawRecord]:
    """Return the records of all partitions, from the beginning to the present end, in log order."""
    settings = {
        "group.id": "reader",  # never joined: assign, and no commit
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,  # else the end of each partition takes half a second
        "isolation.level": "read_committed" if committed else "read_uncommitted",
    }
    with closing(Consumer(_settings(bootstrap) | settings)) as reader:
        partitions = reader.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions
        reader.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        records: list[RawRecord] = []
        unfinished = set(partitions)
        while unfinished:
            for message in reader.consume(1000, 0.1):
                error = message.error()
                if error is None:
                    records.append(_raw_record(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(message.partition())
                else:
                    raise KafkaException(error)
    return sorted(records, key=lambda record: (record.partition, record.offset))


def partition_of(group: str, partition_count: int) -> int:
    """Return the offsets partition of a group: the absolute value of Java's hash of its id."""
    units = group.encode("utf-16-be")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFF_FFFF
    signed = value - (1 << 32) if value >= 1 << 31 else value
    return 0 if signed == -(1 << 31) else abs(signed) % partition_count


# --- what the broker says ---


def broker_offsets(bootstrap: str) -> dict[OffsetKey, CommittedOffset]:
    """Return all groups' offsets as the broker answers, the empty group id and every metadata byte included.

    `streaming.demo.broker_offsets` asks through librdkafka, which can do neither.
    """
    admin = _admin(bootstrap)
    groups = {group.group_id for group in admin.list_consumer_groups().result(_TIMEOUT_S).valid} | {""}
    return {
        OffsetKey(group, topic, partition): committed
        for group in sorted(groups)
        for (topic, partition), committed in raw_requests.offset_fetch(bootstrap, group).items()
    }


def stable_offsets(
    bootstrap: str, group: str, partitions: Iterable[TopicPartitionKey]
) -> dict[TopicPartitionKey, CommittedOffset]:
    """Return a group's offsets once no transaction holds those of the partitions back; fails if one stays
    open.

    They are asked for by name: where all are asked for, a first offset that is held back is left out.
    """
    admin = _admin(bootstrap)
    request = ConsumerGroupTopicPartitions(group, [TopicPartition(*key) for key in partitions])

    def ask_for_stable() -> None:
        answer = admin.list_consumer_group_offsets([request], require_stable=True)[group].result(_TIMEOUT_S)
        for partition in answer.topic_partitions:
            if partition.error is not None:
                raise KafkaException(partition.error)

    retrying(ask_for_stable)
    return raw_requests.offset_fetch(bootstrap, group)


def wait_until(condition: Callable[[], bool], what: str, *, timeout_s: float = _TIMEOUT_S) -> None:
    """Wait until the condition holds; fail with `what` was waited for.

    It is looked at less and less often, so that those who are waited for have the processor.
    """
    started = time.monotonic()
    while not condition():
        waited = time.monotonic() - started
        assert waited < timeout_s, f"waited {timeout_s:g} s in vain for {what}"
        time.sleep(max(0.05, waited / 20))


def retrying(request: Callable[[], Result]) -> Result:
    """Return what the request returns; ask again while its error is a passing one."""
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            return request()
        except KafkaException as error:
            if not is_transient(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _raw_record(message: Any) -> RawRecord:
    kind, timestamp_ms = message.timestamp()
    return RawRecord(
        message.partition(),
        message.offset(),
        None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
        message.key(),
        message.value(),
    )


def _committed(value: CommittedOffset | int) -> CommittedOffset:
    return CommittedOffset(value) if isinstance(value, int) else value


def _all_committed(offsets: Offsets) -> dict[TopicPartitionKey, CommittedOffset]:
    return {key: _committed(value) for key, value in offsets.items()}


def _topic_partitions(offsets: Offsets) -> list[TopicPartition]:
    return [
        _topic_partition(topic, partition, _committed(value)) for (topic, partition), value in offsets.items()
    ]


def _topic_partition(topic: str, partition: int, at: CommittedOffset) -> TopicPartition:
    epoch = -1 if at.leader_epoch is None else at.leader_epoch
    metadata = {"metadata": at.metadata} if at.metadata else {}  # empty metadata would arrive as a NUL
    return TopicPartition(topic, partition, at.offset, leader_epoch=epoch, **metadata)


def _admin(bootstrap: str) -> AdminClient:
    return AdminClient(_settings(bootstrap))


def _settings(bootstrap: str) -> dict[str, Any]:
    return {"bootstrap.servers": bootstrap, "log_level": 0}
