"""Workloads of the job benchmark: many offset commits as real bytes, made as columns and produced fast.

A record is built once by its declaration; the fields that vary are then written over copies of it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from decoders import RECORD_TYPES
from decoders.formats.wire import INT16
from streaming.common.partitions import offsets_partitions

Numbers = npt.NDArray[np.int64]
Rows = npt.NDArray[np.uint8]

COMMIT_TYPE: Final = 1
OLD_SHARE: Final = 0.1
PARTITIONS_PER_TOPIC: Final = 10
FIRST_TIMESTAMP: Final = 1_700_000_000_000
CHUNK: Final = 50_000  # records that are made and produced at a time

GROUP, GROUP_DIGITS = "consumer-group-", 6
TOPIC, TOPIC_DIGITS = "orders-events-", 4
NUMBER_MARK: Final = bytes.fromhex("7123456789abcdef")  # eight bytes that stand nowhere else in a record
OTHER_MARK: Final = bytes.fromhex("71fedcba98765432")
TOPIC_ID: Final = b"topic id"  # in front of the number


@dataclass(frozen=True, kw_only=True)
class Workload:
    """`records` commits of `keys` keys in `groups` groups, each key equally often, in random order.

    The first `old_share` of them are as a broker before 4.1 writes them: in version 3.
    """

    name: str
    records: int
    keys: int
    groups: int
    seed: int = 1
    first_timestamp_ms: int = FIRST_TIMESTAMP
    old_share: float = OLD_SHARE

    def drawn_keys(self) -> Numbers:
        """The key of every record, in the order in which they are committed."""
        drawn = np.arange(self.records) % self.keys
        np.random.default_rng(self.seed).shuffle(drawn)
        return drawn

    def names_of(self, keys: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """The numbers of the group, the topic and the partition that make up a key."""
        groups, within = keys % self.groups, keys // self.groups
        return groups, groups % 50 + within // PARTITIONS_PER_TOPIC, within % PARTITIONS_PER_TOPIC

    def newest(self) -> pa.Table:
        """What the offsets table must hold at the end: each key that was drawn, and its last offset."""
        last = np.full(self.keys, -1)
        last[self.drawn_keys()] = np.arange(self.records)  # of repeated indices numpy keeps the last
        keys = np.flatnonzero(last >= 0)
        groups, topics, partitions = self.names_of(keys)
        return pa.table(
            {
                "group": [f"{GROUP}{number:0{GROUP_DIGITS}}" for number in groups],
                "topic": [f"{TOPIC}{number:0{TOPIC_DIGITS}}" for number in topics],
                "partition": pa.array(partitions, pa.int32()),
                "committed_offset": last[keys],
            }
        )


@dataclass(frozen=True)
class Chunk:
    """n records that follow each other: partition, key and value."""

    partitions: Numbers
    keys: list[bytes]
    values: list[bytes]


def chunks(
    workload: Workload, partition_count: int, *, start: int = 0, stop: int | None = None, size: int = CHUNK
) -> Iterator[Chunk]:
    """The records of a workload from `start` up to `stop` (default: all), in the order in which they are
    committed; the n-th commits offset n."""
    drawn = workload.drawn_keys()
    names = pa.array([f"{GROUP}{number:0{GROUP_DIGITS}}" for number in range(workload.groups)])
    partition_of_group = offsets_partitions(names, partition_count)
    old = int(workload.records * workload.old_share)
    stop = workload.records if stop is None else stop
    starts = [*range(start, min(old, stop), size), *range(max(start, old), stop, size)]
    for first, after in zip(starts, [*starts[1:], stop], strict=True):
        groups, topics, partitions = workload.names_of(drawn[first:after])
        offsets = np.arange(first, after)
        timestamps = workload.first_timestamp_ms + offsets // 10
        values = commit_values(3 if first < old else 4, offsets, topics, timestamps)
        yield Chunk(partition_of_group[groups], commit_keys(groups, topics, partitions), values)


def commit_keys(groups: Numbers, topics: Numbers, partitions: Numbers) -> list[bytes]:
    """The keys of n offset commits."""
    group_mark, topic_mark = "g" * GROUP_DIGITS, "t" * TOPIC_DIGITS
    partition_mark = int.from_bytes(NUMBER_MARK[:4])
    fields = {"group": GROUP + group_mark, "topic": TOPIC + topic_mark, "partition": partition_mark}
    built = INT16.build(COMMIT_TYPE) + RECORD_TYPES[COMMIT_TYPE].key.build(fields)
    return write_over(
        built,
        {
            group_mark.encode(): digits(groups, GROUP_DIGITS),
            topic_mark.encode(): digits(topics, TOPIC_DIGITS),
            NUMBER_MARK[:4]: big_endian(partitions, ">i4"),
        },
    )


def commit_values(version: int, offsets: Numbers, topics: Numbers, timestamps: Numbers) -> list[bytes]:
    """The values of n offset commits without metadata; from version 4 on with the id of their topic."""
    fields: dict[str, Any] = {
        "offset": int.from_bytes(NUMBER_MARK),
        "leaderEpoch": 7,
        "metadata": "",
        "commitTimestamp": int.from_bytes(OTHER_MARK),
    }
    varying = {
        NUMBER_MARK: big_endian(offsets, ">i8"),
        OTHER_MARK: big_endian(timestamps, ">i8"),
    }
    declaration = RECORD_TYPES[COMMIT_TYPE].values[version]
    if version >= 4:
        fields["topicId"] = "dG9waWMgaWQAAAAAAAAAAA"  # TOPIC_ID and eight bytes, in base64url
        varying[TOPIC_ID + bytes(8)] = np.hstack(
            [np.tile(np.frombuffer(TOPIC_ID, np.uint8), (len(topics), 1)), big_endian(topics, ">i8")]
        )
    return write_over(INT16.build(version) + declaration.build(fields), varying)


def write_over(built: bytes, varying: dict[bytes, Rows]) -> list[bytes]:
    """Copies of a record, each with its own bytes in place of the marks."""
    rows = np.tile(np.frombuffer(built, np.uint8), (len(next(iter(varying.values()))), 1))
    for mark, own in varying.items():
        assert built.count(mark) == 1, f"{mark!r} stands {built.count(mark)} times in {built!r}"
        start = built.index(mark)
        rows[:, start : start + len(mark)] = own
    copies: list[bytes] = rows.view(f"V{len(built)}").ravel().tolist()
    return copies


def digits(numbers: Numbers, count: int) -> Rows:
    """Decimal digits, `count` for each number."""
    return (numbers[:, np.newaxis] // 10 ** np.arange(count)[::-1] % 10 + ord("0")).astype(np.uint8)


def big_endian(numbers: Numbers, dtype: str) -> Rows:
    """The bytes of each number as Kafka writes it."""
    return numbers.astype(dtype).view(np.uint8).reshape(len(numbers), -1)


def fill_topic(bootstrap: str, topic: str, workload: Workload, partition_count: int) -> None:
    """Create a topic and produce a workload into it; returns when the broker has it all."""
    filler = TopicFiller(bootstrap, topic, partition_count)
    for chunk in chunks(workload, partition_count):
        filler.produce(chunk)
    filler.flush()


class TopicFiller:
    """Creates a topic and produces chunks into it; `in_transactions`: between `begin` and `commit`.

    An internal topic is there already, and only the client of Kafka's own tools may write into it.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partition_count: int,
        *,
        in_transactions: bool = False,
        is_internal: bool = False,
    ) -> None:
        if not is_internal:
            admin = AdminClient({"bootstrap.servers": bootstrap})
            admin.create_topics([NewTopic(topic, partition_count, 1)])[topic].result(30)
        self._topic = topic
        self._partition_count = partition_count
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 50,
                "batch.size": 1_000_000,
                "queue.buffering.max.messages": 10 * CHUNK,
                "queue.buffering.max.kbytes": 1_000_000,
                "log_level": 3,  # nothing of coordinators that are loading
                **({"transactional.id": topic} if in_transactions else {}),
                **({"client.id": "__admin_client", "enable.idempotence": False} if is_internal else {}),
            }
        )
        if in_transactions:
            self._producer.init_transactions(30)
        self.produced = 0

    def begin(self) -> None:
        """Begin a transaction: what is produced from now on is seen at its commit, all at once."""
        self._producer.begin_transaction()

    def commit(self) -> None:
        """Commit the transaction."""
        self._producer.commit_transaction(30)

    def produce(self, chunk: Chunk) -> None:
        """Produce a chunk; it may be under way still on return."""
        while len(self._producer) > 5 * CHUNK:
            self._producer.poll(0.01)
        for partition in range(self._partition_count):  # one given with each message would be ignored
            own = np.flatnonzero(chunk.partitions == partition)
            messages = [{"key": chunk.keys[row], "value": chunk.values[row]} for row in own]
            queued = self._producer.produce_batch(self._topic, messages, partition)
            assert queued == len(messages), (
                f"producing into {self._topic}: {queued} of {len(messages)} queued"
            )
        self.produced += len(chunk.keys)

    def flush(self) -> None:
        """Wait until the broker has it all."""
        left = self._producer.flush(60)
        assert left == 0, f"producing into {self._topic}: {left} records not delivered in time"
