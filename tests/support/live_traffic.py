"""What groups do all day, on a real broker, until told to stop: commits and rewinds, deletions, transactions
that commit, abort or stay open, members that come and go; and records that nobody can read."""

import random
import threading
from collections.abc import Callable
from typing import Final, Self

import kafka_clients as kafka
from group_actors import GroupActors
from kafka_clients import OffsetTransaction
from kafka_versions import Feature, KafkaVersion
from raw_requests import RequestError, TopicPartitionKey

from streaming.brokers.broker import Broker
from streaming.brokers.facts import BrokerError
from streaming.demo.broker_offsets import CommittedOffset
from streaming.settings.reading import read_settings

TOPICS: Final = {"orders": 3, "payments": 2}
GROUPS: Final = ("", "billing", "audit", "ünï-😀", "it's", "etl", "retry", "nightly")
TRANSACTIONAL: Final = ("billing", "retry", "simple", "etl")  # librdkafka takes not every name
MEMBERS: Final = {
    "classic": None,
    "consumer": Feature.CONSUMER_PROTOCOL,
    "share": Feature.SHARE_GROUPS,
}
OFFSETS_PARTITIONS: Final = 5
GARBAGE_PARTITION: Final = 3
"""No group above belongs there: a coordinator that finds records in its log that it has not written loads it
anew, and gives up on those that cannot be read."""

_PAUSE_S: Final = 0.03
_MOST_OPEN: Final = 2


class LiveTraffic(threading.Thread):
    """Goes on until the end of its `with` block; then all transactions are ended, some members stay."""

    def __init__(self, bootstrap: str, actors: GroupActors, version: KafkaVersion, *, seed: int) -> None:
        super().__init__(name="live-traffic", daemon=True)
        self._servers = bootstrap
        self._actors = actors
        self._kinds = [kind for kind, needs in MEMBERS.items() if needs is None or version.has(needs)]
        self._random = random.Random(seed)
        self._done = threading.Event()
        self._open: list[OffsetTransaction] = []
        self._joined: set[str] = set()
        self._steps = 0
        self.unreadable: set[tuple[int, int]] = set()
        self.failure: BaseException | None = None

    def __enter__(self) -> Self:
        kafka.create_topics(self._servers, TOPICS)
        for group in GROUPS:
            kafka.commit_offsets(self._servers, group or "simple", {("orders", 0): 1})
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self) -> None:
        """Stop, and end what is open."""
        self._done.set()
        self.join(60)
        if self.failure is not None:
            raise AssertionError("the traffic failed") from self.failure
        while self._open:
            self._end_transaction()

    def run(self) -> None:
        """Do one thing after the other."""
        try:
            while not self._done.wait(_PAUSE_S):
                self._step()
        except BaseException as error:
            self.failure = error

    def _step(self) -> None:
        self._steps += 1
        actions: dict[Callable[[], None], int] = {
            self._commit: 60,
            self._commit_with_retention: 5,
            self._delete_offset: 8,
            self._delete_group: 4,
            self._begin_transaction: 4,
            self._end_transaction: 6,
            self._write_garbage: 4,
            self._join_or_leave: 1,
        }
        [action] = self._random.choices(list(actions), list(actions.values()))
        try:
            action()
        except RequestError:  # no such group, or no such offset: that is life
            return

    def _group(self) -> str:
        return self._random.choice(GROUPS)

    def _partition(self) -> TopicPartitionKey:
        topic = self._random.choice(list(TOPICS))
        return topic, self._random.randrange(TOPICS[topic])

    def _offsets(self) -> dict[TopicPartitionKey, CommittedOffset]:
        note = self._random.choice(["", "", "é" * 100, '{"a": 1}'])
        return {
            self._partition(): CommittedOffset(self._random.randrange(1_000_000), metadata=note)
            for _ in range(self._random.randint(1, 4))
        }

    def _commit(self) -> None:
        kafka.alter_offsets(self._servers, self._group(), self._offsets())

    def _commit_with_retention(self) -> None:
        kafka.commit_with_retention(self._servers, self._group(), self._offsets(), retention_ms=86_400_000)

    def _delete_offset(self) -> None:
        kafka.delete_offsets(self._servers, self._group(), [self._partition()])

    def _delete_group(self) -> None:
        kafka.delete_group(self._servers, self._group())

    def _begin_transaction(self) -> None:
        if len(self._open) == _MOST_OPEN:
            return
        transaction = OffsetTransaction(self._servers, f"transaction-{self._steps}")
        transaction.send(self._random.choice(TRANSACTIONAL), self._offsets())
        self._open.append(transaction)

    def _end_transaction(self) -> None:
        if self._open:
            transaction = self._open.pop(self._random.randrange(len(self._open)))
            self._random.choice([OffsetTransaction.commit, OffsetTransaction.abort])(transaction)

    def _write_garbage(self) -> None:
        """A key of type 1 that ends too early, so it is nobody's."""
        key = b"\x00\x01\x00\xff" + self._random.randbytes(8)
        [offset] = kafka.produce_raw(
            self._servers, kafka.OFFSETS_TOPIC, [(key, b"value")], partition=GARBAGE_PARTITION
        )
        self.unreadable.add((GARBAGE_PARTITION, offset))

    def _join_or_leave(self) -> None:
        kind = self._random.choice(self._kinds)
        if kind in self._joined:
            self._actors.leave(kind)
            self._joined.remove(kind)
        else:
            self._actors.join(kind, kind, f"{kind}-members", "orders")
            self._joined.add(kind)


def wait_for_markers(bootstrap: str) -> None:
    """Wait until no transaction holds an offsets partition back."""
    broker = Broker(read_settings(options={"source.bootstrap_servers": bootstrap}).source)

    def have_ended() -> bool:
        try:
            ends = broker.ends(OFFSETS_PARTITIONS).values()
        except BrokerError:  # on a busy machine its answer may take longer than the job would wait for it
            return False
        return all(end.last_stable_offset == end.high_watermark for end in ends)

    kafka.wait_until(have_ended, "the transactions to end")
