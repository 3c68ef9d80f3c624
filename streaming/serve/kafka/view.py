"""What an answer is made from: one snapshot at one moment, who asks, and under which name we are reached."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from decoders.formats.java_values import MAX_TEXT_BYTES
from decoders.messages.reader import Message
from streaming.common.arrays import Index, Mask
from streaming.serve.kafka.errors import Error
from streaming.serve.memory.names import NONE
from streaming.serve.memory.snapshot import MemorySnapshot

NODE_ID: Final = 1
"""The id of the one node of the cluster that we show, which also is its controller."""

AUTHORIZED: Final = 1 << 8
"""All that clients may do here, of clusters, topics and groups: DESCRIBE, as a set of bits (KIP-430)."""

NOT_ASKED: Final = -(2**31)
"""Stands for authorized operations that were not asked for."""

_JAVA: Final = "apache-kafka-java"
_KNOWS_LEADERLESS: Final = (4, 2)
_DIGITS: Final = 10  # Python makes no numbers of thousands of them
_CONFLUENTS: Final = re.compile(
    r"-(ccs|ce)\b"
)  # in versions of Confluent's builds, of which 7.9 is Kafka's 3.9
_CONFLUENTS_AHEAD: Final = 4


_SHORT: Final = 200


def short(name: str) -> str:
    """Return a name as messages about it have it: at most its first 200 characters."""
    return name[:_SHORT]


def once(names: Sequence[str]) -> Sequence[str]:
    """Return names in their order, each once: whoever asks twice about one is answered once."""
    return names if len(names) == 1 else list(dict.fromkeys(names))


def writable(text: str | None) -> str:
    """Return a text from the tables; empty where there is none, or where it is longer than the protocol
    allows, as bytes that were no text may have become."""
    if text is None or (len(text) > MAX_TEXT_BYTES // 4 and len(text.encode()) > MAX_TEXT_BYTES):
        return ""
    return text


@dataclass(frozen=True, eq=False)
class Each:
    """A list of so many messages that are made one after the other when they are written: once, and not held
    all at the same time."""

    count: int
    messages: Iterable[Message]

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)


class Address(NamedTuple):
    """A host and a port."""

    host: str
    port: int


@dataclass(frozen=True)
class Client:
    """The software of a client and its version, as it says (KIP-511); empty: it did not."""

    software: str = ""
    version: str = ""

    @cached_property
    def needs_leaders(self) -> bool:
        """Tell whether it asks for metadata again and again, without a pause, as long as a partition has no
        leader: Java's Admin does so before 4.2."""
        return self.software == _JAVA and _kafka_release(self.version) < _KNOWS_LEADERLESS


def _kafka_release(version: str) -> tuple[int, int]:
    """Return the release of Kafka, (major, minor), that a version of its Java client is, or is built from;
    (0, 0): not known."""
    numbers = version.split(".", 2)[:2]
    if len(numbers) < 2 or not all(one.isdecimal() and len(one) < _DIGITS for one in numbers):
        return 0, 0
    major, minor = map(int, numbers)
    return major - (_CONFLUENTS_AHEAD if _CONFLUENTS.search(version) else 0), minor


@dataclass(frozen=True, eq=False, kw_only=True)
class RequestContext:
    """What one answer is made from. Times are ms; `address` is ours, as the client reaches it.

    What the snapshot says counts as complete up to `within_ms` before the moment `now`. Of groups of which
    newer commits are not known nothing is answered: clients are to ask again. `is_busy`: there was no time
    for the answer, likewise.
    """

    snapshot: MemorySnapshot
    now: int
    within_ms: int
    address: Address
    cluster_id: str
    client: Client
    is_busy: bool = False

    @cached_property
    def error(self) -> Error:
        """What is wrong with every group: nothing was read yet, the job is silent, or there was no time."""
        if self.is_busy or not self.snapshot.progress.partitions:
            return Error.COORDINATOR_LOAD_IN_PROGRESS
        if self.snapshot.completeness(self.now, self.within_ms).is_silent:
            return Error.COORDINATOR_NOT_AVAILABLE
        return Error.NONE

    def error_of(self, group: str) -> Error:
        """What is wrong with one group, whether there is one of this name or not.

        A client that hears of loading asks the same coordinator again after a pause; of the other error it
        would look for another one, of which there is none.
        """
        if not self.error and self.outdated and self.snapshot.is_among(group, self.outdated):
            return Error.COORDINATOR_LOAD_IN_PROGRESS
        return self.error

    @cached_property
    def outdated(self) -> frozenset[int]:
        """The offsets partitions whose groups are not answered: brokers have newer commits. Brokers that do
        not answer are no reason."""
        return self.snapshot.outdated(self.now, self.within_ms)

    @property
    def is_whole(self) -> bool:
        """Whether what is not in the snapshot is not there."""
        return bool(self.snapshot.progress.partitions) and not self.outdated

    @property
    def error_of_unknown_topic(self) -> Error:
        """What is wrong with a topic that is not in the snapshot: there is none, or it was not read yet."""
        return Error.UNKNOWN_TOPIC_OR_PARTITION if self.is_whole else Error.LEADER_NOT_AVAILABLE

    def log_end(self, place: int) -> int | None:
        """Where the log of the topic partition at a place ends; None: not known, or too old."""
        [end] = self.log_ends(place, place + 1).tolist()
        return None if end == NONE else end

    def log_ends(self, start: int, stop: int) -> Index:
        """Where the logs of the topic partitions from one place up to another end; `NONE`: see `log_end`."""
        return np.full(stop - start, NONE) if self.error else self.snapshot.ends_at(start, stop, self.now)

    def operations(self, is_asked: bool) -> int:
        """The authorized operations, as answers have them."""
        return AUTHORIZED if is_asked else NOT_ASKED


def can_be_named(topics: Index | int, view: RequestContext) -> Mask:
    """Tell of topics, by their places, which have names as short as the protocol wants them (see
    `writable`)."""
    is_short: Mask = view.snapshot.topics.names.lengths[topics] <= MAX_TEXT_BYTES
    return is_short
