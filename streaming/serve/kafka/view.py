"""The input of a response: one snapshot at one moment, the client, and the address under which it reaches
us."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import compress
from typing import Any, Final, NamedTuple

import numpy as np

from decoders.formats.java_values import MAX_TEXT_BYTES
from decoders.messages.reader import Message
from streaming.common.arrays import Index, Mask
from streaming.common.times import iso
from streaming.serve.kafka.errors import Error
from streaming.serve.kafka.principals import Patterns, Principal
from streaming.serve.memory.names import NONE
from streaming.serve.memory.snapshot import MemorySnapshot

NODE_ID: Final = 1
"""The id of the only node of the cluster that clients see, which is also its controller."""

AUTHORIZED: Final = 1 << 8
"""The operations that clients may perform on cluster, topics and groups: DESCRIBE, as bits (KIP-430)."""

NOT_ASKED: Final = -(2**31)
"""Marks authorized operations that were not requested."""

REFUSED: Final = Error.INVALID_REQUEST
"""The error of groups at a moment without a snapshot. Clients report it at once; Java's text refers to the
broker's log, which has the reason."""

REFUSED_TOPIC: Final = Error.TOPIC_AUTHORIZATION_FAILED
"""The error of topics at such a moment: after every other one, librdkafka or Java would ask again."""

_JAVA: Final = "apache-kafka-java"
_KNOWS_LEADERLESS: Final = (4, 2)
_DIGITS: Final = 10  # Python does not parse numbers of thousands of them
_CONFLUENTS: Final = re.compile(r"-(ccs|ce)\b")  # in versions of Confluent: its 7.9 is Kafka 3.9
_CONFLUENTS_AHEAD: Final = 4


_SHORT: Final = 200


def short(name: str) -> str:
    """Shorten a name to its first 200 characters, for messages."""
    return name[:_SHORT]


def once(names: Sequence[str]) -> Sequence[str]:
    """Drop repeated names, which get one result."""
    return names if len(names) == 1 else list(dict.fromkeys(names))


def writable(text: str | None) -> str:
    """Return a text of the tables; empty if it is None or too long for the protocol, which text decoded from
    invalid bytes can be."""
    if text is None or (len(text) > MAX_TEXT_BYTES // 4 and len(text.encode()) > MAX_TEXT_BYTES):
        return ""
    return text


@dataclass(frozen=True, eq=False)
class Each:
    """A list of `count` messages that are computed one by one while they are written: only once, and without
    holding all in memory."""

    count: int
    messages: Iterable[Message]

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)


class Address(NamedTuple):
    host: str
    port: int


class Client(NamedTuple):
    """The software of a client and its version, as reported by the client (KIP-511); empty: not reported.

    `id` is its `client.id`, where it matters (`ConnectionOwner.knows_past`).
    """

    software: str = ""
    version: str = ""
    id: bytes = b""

    @property
    def needs_leaders(self) -> bool:
        """Whether it repeats Metadata requests without a pause while a partition has no leader, as Java's
        Admin does before 4.2."""
        return self.software == _JAVA and _kafka_release(self.version) < _KNOWS_LEADERLESS


@lru_cache(maxsize=100)
def _kafka_release(version: str) -> tuple[int, int]:
    """Return the release of Kafka, (major, minor), of a version of its Java client; (0, 0): unknown."""
    numbers = version.split(".", 2)[:2]
    if len(numbers) < 2 or not all(one.isdecimal() and len(one) < _DIGITS for one in numbers):
        return 0, 0
    major, minor = map(int, numbers)
    return major - (_CONFLUENTS_AHEAD if _CONFLUENTS.search(version) else 0), minor


class PastEnd(NamedTuple):
    """A sampled log end: its moment (ms), and the id of the topic at that time (None: unknown)."""

    at: int
    log_end: int
    topic_id: str | None


PastEnds = Callable[[Collection[str], int], Mapping[tuple[str, int], PastEnd] | None]
"""Reads the newest samples up to a moment (ms) of topics, by topic and partition; None: that failed. Takes a
while."""


@dataclass(frozen=True, eq=False, kw_only=True)
class RequestContext:
    """The input of one response. Times are in ms; `address` is ours, as the client reaches it.

    The snapshot counts as complete up to `within_ms` before the moment `now`. A group with newer, unknown
    commits gets an error that makes clients retry; so does every group if `is_busy`, when there was no time
    for the response.

    `principal` is the signed-in client (None: no sign-in is configured, and every client sees all). A hidden
    group or topic is one that it may not see: whether it exists is never looked up. `has_sasl`: clients of
    this listener sign in by SASL.

    `as_of` is the moment of a past snapshot, equal to `now` (None: the snapshot is the newest). Until it was
    read, the snapshot is empty, as before the first reading. What a past snapshot lacks never comes, so the
    errors are `REFUSED` and `REFUSED_TOPIC`, which end clients. `refusal` is the reason why there is no
    snapshot (None: there is one, or will be), and `refused_with` the error of groups.
    """

    snapshot: MemorySnapshot
    now: int
    within_ms: int
    address: Address
    cluster_id: str
    client: Client
    past_ends: PastEnds = lambda topics, moment: {}
    is_busy: bool = False
    principal: Principal | None = None
    has_sasl: bool = False
    as_of: int | None = None
    refusal: str | None = None
    refused_with: Error = REFUSED

    # --- what the principal may see ------------------------------------------------------------------------

    def may_see_group(self, group: str) -> bool:
        return self.principal is None or self.principal.may_see_group(group)

    def may_see_topic(self, topic: str) -> bool:
        return self.principal is None or self.principal.may_see_topic(topic)

    @property
    def may_see_all_topics(self) -> bool:
        """Whether also topics whose name is not known may be seen: patterns are of names, not of ids."""
        return self._topic_patterns is None

    def group_place(self, group: str) -> int | None:
        """Return the place of a group; None: there is none, or it is hidden."""
        return self.snapshot.groups.place(group) if self.may_see_group(group) else None

    def group_places(self, groups: Sequence[str]) -> list[int]:
        """Return the places of n groups; `NONE`: as in `group_place`."""
        place_of, patterns = self.snapshot.groups.names.places.get, self._group_patterns
        if patterns is None:
            return [place_of(group, NONE) for group in groups]
        return [place_of(group, NONE) if patterns.match(group) else NONE for group in groups]

    def topic_place(self, topic: str) -> int | None:
        """Return the place of a topic; None: there is none, or it is hidden."""
        place = self.snapshot.topics.names.place(topic) if self.may_see_topic(topic) else None
        is_hidden = place in self.snapshot.unnamed_topics and not self.may_see_all_topics
        return None if is_hidden else place

    def rows_of(self, groups: Sequence[str]) -> Iterator[Mapping[str, Any] | None]:
        """Yield the descriptions of n groups in this order; None: there is none, or it is hidden."""
        is_visible = [self.may_see_group(group) for group in groups]
        found = self.snapshot.rows_of([*compress(groups, is_visible)])
        return (next(found) if one else None for one in is_visible)

    @cached_property
    def visible_groups(self) -> Mask | None:
        """Whether each group (n) may be seen; None: all may."""
        patterns = self._group_patterns
        return None if patterns is None else patterns.mask(self.snapshot.groups.names)

    @cached_property
    def visible_topics(self) -> Mask | None:
        """Whether each topic (n) may be seen; None: all may."""
        patterns, unnamed = self._topic_patterns, self.snapshot.unnamed_topics
        mask = None if patterns is None else patterns.mask(self.snapshot.topics.names)
        if mask is None or not unnamed:
            return mask
        are_visible = mask.copy()
        are_visible[[*unnamed]] = False
        return are_visible

    @property
    def group_ranges(self) -> Sequence[range] | None:
        """Ranges of places that contain all visible groups, and may contain others; None: all groups may be
        seen. Unlike `visible_groups`, this never takes long."""
        patterns = self._group_patterns
        return None if patterns is None else patterns.ranges(self.snapshot.groups.names)

    @property
    def topic_ranges(self) -> Sequence[range] | None:
        """Ranges of places of topics, as `group_ranges`."""
        patterns = self._topic_patterns
        return None if patterns is None else patterns.ranges(self.snapshot.topics.names)

    @property
    def _group_patterns(self) -> Patterns | None:
        patterns = None if self.principal is None else self.principal.visible_groups
        return None if patterns is None or patterns.are_all else patterns

    @property
    def _topic_patterns(self) -> Patterns | None:
        patterns = None if self.principal is None else self.principal.visible_topics
        return None if patterns is None or patterns.are_all else patterns

    # --- errors, log ends ----------------------------------------------------------------------------------

    @cached_property
    def error(self) -> Error:
        """The error of every group: there is no snapshot of the moment, nothing was read yet, the job is
        silent, or there was no time."""
        if self.refusal is not None:
            return self.refused_with
        if self.is_busy or not self.snapshot.progress.partitions:
            return Error.COORDINATOR_LOAD_IN_PROGRESS
        if self.snapshot.completeness(self.now, self.within_ms).is_silent:
            return Error.COORDINATOR_NOT_AVAILABLE
        return Error.NONE

    def error_of(self, group: str) -> Error:
        """Return the error of one group, existing or not; for a hidden one, always the same.

        On COORDINATOR_LOAD_IN_PROGRESS, a client retries at the same coordinator after a pause; on the other
        error it would look for another coordinator, of which there is none.
        """
        if not self.may_see_group(group):
            return Error.GROUP_AUTHORIZATION_FAILED
        if not self.error and self.outdated and self.snapshot.is_among(group, self.outdated):
            return self.error_of_outdated
        return self.error

    @property
    def error_of_outdated(self) -> Error:
        """The error of groups with newer commits at the brokers."""
        return REFUSED if self._is_final else Error.COORDINATOR_LOAD_IN_PROGRESS

    @property
    def reason(self) -> str | None:
        """The message of an error of a group, in responses with messages; None: there is none."""
        if self.refusal is not None or not self._is_final or self.as_of is None:
            return self.refusal
        return f"as of {iso(self.as_of)}: the offsets partition of the group was not read completely"

    @property
    def _is_final(self) -> bool:
        """Whether what the snapshot lacks never comes."""
        return self.snapshot.was_observed is not None

    @cached_property
    def outdated(self) -> frozenset[int]:
        """The offsets partitions with newer commits at the brokers, whose groups get an error. Brokers that
        do not respond do not make a partition outdated."""
        return self.snapshot.outdated(self.now, self.within_ms)

    @property
    def is_whole(self) -> bool:
        """Whether what is not in the snapshot does not exist."""
        return not self.error and not self.outdated

    @property
    def error_of_unknown_topic(self) -> Error:
        """The error of a topic that is not in the snapshot: it does not exist, or was not read yet."""
        if self.is_whole:
            return Error.UNKNOWN_TOPIC_OR_PARTITION
        return self.error_of_missing

    @property
    def error_of_missing(self) -> Error:
        """The error of a topic that was not read yet: clients retry, unless it never comes."""
        never_comes = self.refusal is not None or self._is_final
        return REFUSED_TOPIC if never_comes else Error.LEADER_NOT_AVAILABLE

    def log_end(self, place: int) -> int | None:
        """Return the log end offset of the topic partition at a place; None: unknown, or the sample is too
        old."""
        [end] = self.log_ends(place, place + 1).tolist()
        return None if end == NONE else end

    def log_ends(self, start: int, stop: int) -> Index:
        """Return the log end offsets of the places from `start` to `stop`; `NONE`: see `log_end`."""
        return np.full(stop - start, NONE) if self.error else self.snapshot.ends_at(start, stop, self.now)

    def operations(self, is_asked: bool) -> int:
        return AUTHORIZED if is_asked else NOT_ASKED


def can_be_named(topics: Index | int, view: RequestContext) -> Mask:
    """Return which topics (places) have names that are short enough for the protocol (see `writable`)."""
    is_short: Mask = view.snapshot.topics.names.lengths[topics] <= MAX_TEXT_BYTES
    return is_short


def can_be_shown(topics: Index, view: RequestContext) -> Mask:
    """Return which topics (places) can be named and may be seen."""
    can_be = can_be_named(topics, view)
    return can_be if view.visible_topics is None else can_be & view.visible_topics[topics]
