"""Real producers and consumer groups, each with its own way to commit, for the demo and the tests.

Each is one function that runs until stopped; `ACTORS` lists them.
"""

import itertools
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from streaming.demo.broker_offsets import client_settings, is_transient, kafka_error
from streaming.model.errors import OffsetlakeError

TOPICS: Final[Mapping[str, int]] = {"orders": 3, "payments": 2, "clicks": 4}  # name -> partitions

PURPOSES: Final[Mapping[str, str]] = {
    "audit": "is assigned partitions, writes metadata",
    "billing": "two members; clients commit automatically",
    "recommendations": "a member of the consumer protocol, KIP-848",
    "replay": "reads ahead, then rewinds to the beginning",
    "settlement": "transactions; every second one is aborted",
    "short-lived": "is deleted after a while, and comes back",
}
"""What each group demonstrates, in a few words; its function has the details."""

_POLL_S: Final = 0.2  # the longest time between checks of the stop signal
_REQUEST_S: Final = 10.0
_SHUTDOWN_S: Final = 15.0


class TrafficError(OffsetlakeError):
    """A client of the demo failed permanently."""


@dataclass(frozen=True)
class Stage:
    """The environment of every actor: the broker, the stop signal, and the intervals in seconds."""

    bootstrap_servers: str
    stop: threading.Event = field(default_factory=threading.Event)
    life_s: float = 20.0  # until the short-lived group is deleted
    rewind_s: float = 10.0  # between two rewinds

    @property
    def is_open(self) -> bool:
        return not self.stop.is_set()

    def rest(self, seconds: float) -> None:
        """Wait this long, or until stopped."""
        self.stop.wait(seconds)


Actor = Callable[[Stage], None]


class DemoTraffic:
    """All actors, each in a thread, from `start` to `stop`; a context manager does both."""

    def __init__(self, bootstrap_servers: str, *, life_s: float = 20.0, rewind_s: float = 10.0) -> None:
        self._stage = Stage(bootstrap_servers, life_s=life_s, rewind_s=rewind_s)
        self._failures: list[str] = []
        self._threads = [
            threading.Thread(target=self._perform, args=(actor,), name=actor.__name__, daemon=True)
            for actor in ACTORS
        ]

    def start(self) -> None:
        """Create the topics and start all actors."""
        create_demo_topics(self._stage.bootstrap_servers)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop all actors and wait for them: at most 15 s in all."""
        self._stage.stop.set()
        deadline = time.monotonic() + _SHUTDOWN_S
        for thread in self._threads:
            if thread.ident is not None:  # it was started
                thread.join(max(0.0, deadline - time.monotonic()))

    def check(self) -> None:
        """Raise `TrafficError` if a client has failed."""
        if self._failures:
            raise TrafficError(f"running the demo's clients: {'; '.join(self._failures)}")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _perform(self, actor: Actor) -> None:
        try:
            actor(self._stage)
        except KafkaException as error:
            self._failures.append(f"{actor.__name__}: {kafka_error(error).str()}")


# --- actors ---


def produce_events(stage: Stage) -> None:
    """Write a few records a second into every topic."""
    producer = Producer(client_settings(stage.bootstrap_servers))
    for number in itertools.count():
        if not stage.is_open:
            break
        for topic, partitions in TOPICS.items():
            producer.produce(topic, value=f"{topic} {number}", partition=number % partitions)
        producer.poll(0)
        stage.rest(0.05)
    producer.flush(_POLL_S)


def commit_automatically(stage: Stage) -> None:
    """Group `billing`: a classic group whose clients commit automatically; two members run."""
    settings = {"group.id": "billing", "enable.auto.commit": True, "auto.commit.interval.ms": 1000}
    with _consumer(stage, settings) as consumer:
        consumer.subscribe(["orders"])
        while stage.is_open:
            consumer.consume(100, _POLL_S)


def commit_in_transactions(stage: Stage) -> None:
    """Group `settlement`: offsets in transactions; every second one is aborted and sent again."""
    with _consumer(stage, {"group.id": "settlement"}) as consumer:
        consumer.subscribe(["payments"])
        producer = _transactional_producer(stage)
        for commits in itertools.cycle((True, False)):
            if not stage.is_open:
                return
            consumer.consume(100, 1.0)
            with _passing_over_transient_errors():
                _send_offsets(producer, consumer, commits=commits)


def commit_what_was_assigned(stage: Stage) -> None:
    """Group `audit`: assigns partitions itself, and writes a note into the commit's metadata."""
    with _consumer(stage, {"group.id": "audit"}) as consumer:
        consumer.assign(_partitions_of("orders"))
        for round_number in itertools.count(1):
            if not stage.is_open:
                return
            consumer.consume(100, 1.0)
            note = f"round {round_number} \N{CHECK MARK}"
            _commit(consumer, [_with_metadata(position, note) for position in _positions(consumer)])


def commit_with_the_consumer_protocol(stage: Stage) -> None:
    """Group `recommendations`: a member of the consumer protocol (KIP-848)."""
    settings = {"group.id": "recommendations", "group.protocol": "consumer", "enable.auto.commit": True}
    with _consumer(stage, settings | {"auto.commit.interval.ms": 1000}) as consumer:
        consumer.subscribe(["clicks"])
        while stage.is_open:
            consumer.consume(100, _POLL_S)


def be_deleted_and_come_back(stage: Stage) -> None:
    """Group `short-lived`: commits for a while, is deleted through the Admin API, and starts again."""
    while stage.is_open:
        with _consumer(stage, {"group.id": "short-lived"}) as consumer:
            consumer.subscribe(["payments"])
            end = time.monotonic() + stage.life_s
            while stage.is_open and time.monotonic() < end:
                consumer.consume(100, min(1.0, stage.life_s / 4))
                _commit(consumer, _positions(consumer))
        if stage.is_open:
            with _passing_over_transient_errors():
                delete_group(stage.bootstrap_servers, "short-lived")
            stage.rest(stage.life_s / 4)


def rewind_now_and_then(stage: Stage) -> None:
    """Group `replay`: reads ahead, and sometimes commits the beginning again."""
    with _consumer(stage, {"group.id": "replay"}) as consumer:
        while stage.is_open:
            consumer.assign([TopicPartition(p.topic, p.partition, 0) for p in _partitions_of("clicks")])
            _commit(consumer, [TopicPartition(p.topic, p.partition, 0) for p in _partitions_of("clicks")])
            end = time.monotonic() + stage.rewind_s
            while stage.is_open and time.monotonic() < end:
                consumer.consume(20, 0.5)
                _commit(consumer, _positions(consumer))
                stage.rest(0.5)


ACTORS: Final[tuple[Actor, ...]] = (
    produce_events,
    commit_automatically,
    commit_automatically,
    commit_in_transactions,
    commit_what_was_assigned,
    commit_with_the_consumer_protocol,
    be_deleted_and_come_back,
    rewind_now_and_then,
)


# --- topics and groups ---


def create_demo_topics(bootstrap_servers: str) -> None:
    """Create the topics of the demo; existing ones stay unchanged."""
    topics = [NewTopic(name, partitions, 1) for name, partitions in TOPICS.items()]
    # kept in a variable: its requests end with its last reference
    admin = AdminClient(client_settings(bootstrap_servers))
    for future in admin.create_topics(topics).values():
        try:
            future.result(_REQUEST_S)
        except KafkaException as error:
            if kafka_error(error).code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def delete_group(bootstrap_servers: str, group: str) -> None:
    """Delete a group without members, and its committed offsets."""
    admin = AdminClient(client_settings(bootstrap_servers))
    admin.delete_consumer_groups([group])[group].result(_REQUEST_S)


# --- clients ---


@contextmanager
def _consumer(stage: Stage, settings: Mapping[str, Any]) -> Iterator[Consumer]:
    defaults = {
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        # On a new broker a topic or coordinator may not exist at the first request; a consumer that only
        # assigns and commits would retry after 5 and 10 minutes.
        "topic.metadata.refresh.interval.ms": 1_000,
        "coordinator.query.interval.ms": 1_000,
    }
    consumer = Consumer({**client_settings(stage.bootstrap_servers), **defaults, **settings})
    with closing(consumer):
        yield consumer


def _transactional_producer(stage: Stage) -> Producer:
    own_id = f"settlement-{uuid.uuid4()}"  # two producers with the same id would fence each other
    producer = Producer({**client_settings(stage.bootstrap_servers), "transactional.id": own_id})
    producer.init_transactions(_REQUEST_S)
    return producer


def _send_offsets(producer: Producer, consumer: Consumer, *, commits: bool) -> None:
    positions = _positions(consumer)
    if not positions:
        return
    producer.begin_transaction()
    try:
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), _REQUEST_S)
        if commits:
            producer.commit_transaction(_REQUEST_S)
            return
    except KafkaException as error:
        if not is_transient(error):
            raise
    producer.abort_transaction(_REQUEST_S)


def _commit(consumer: Consumer, positions: list[TopicPartition]) -> None:
    if positions:
        with _passing_over_transient_errors():
            consumer.commit(offsets=positions, asynchronous=False)


def _positions(consumer: Consumer) -> list[TopicPartition]:
    """Return the positions of the consumer in partitions that it has read."""
    return [position for position in consumer.position(consumer.assignment()) if position.offset >= 0]


def _partitions_of(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for partition in range(TOPICS[topic])]


def _with_metadata(position: TopicPartition, metadata: str) -> TopicPartition:
    return TopicPartition(position.topic, position.partition, position.offset, metadata=metadata)


@contextmanager
def _passing_over_transient_errors() -> Iterator[None]:
    """Ignore transient errors: the next round retries."""
    try:
        yield
    except KafkaException as error:
        if not is_transient(error):
            raise
