"""Groups as their records describe them.

A group is described as the coordinator that has replayed its records would list and describe it (Kafka 4.3:
`ClassicGroup`, `ConsumerGroup`, `StreamsGroup`, `ShareGroup`).
"""

import base64
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, TypeAlias

import decoders
from streaming.state.group_records import GroupRecords
from streaming.state.group_types import (
    CLASSIC,
    CONSUMER,
    CONSUMER_REGULAR_EXPRESSION,
    SHARE,
    STREAMS,
    STREAMS_TOPOLOGY,
    TYPE_OF_RECORD,
    AssignedGroupType,
)

_FIRST_EPOCH: Final = 1  # of a group and of its assignment, before a record names one (4.1+; earlier 0)

Value: TypeAlias = Mapping[str, Any]
"""The value of a record: field names and omissions are those of Kafka's JSON."""


@dataclass(frozen=True, kw_only=True)
class Member:
    """A member as far as the log names it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str


@dataclass(frozen=True, kw_only=True)
class Group:
    """What the log shows of a live group.

    None means unknown, and for `protocol` and `generation_or_epoch` none. `state` never is
    PreparingRebalance, CompletingRebalance or Dead: brokers do not write those down. `source_offset` and
    `source_timestamp` are those of the newest record that the group consists of.
    """

    type: str
    protocol_type: str
    protocol: str | None = None
    state: str
    generation_or_epoch: int | None = None
    state_timestamp: int | None = None
    members: tuple[Member, ...] = ()
    subscribed_topics: tuple[str, ...] | None = ()
    source_offset: int | None = None
    source_timestamp: int | None = None


SIMPLE: Final = Group(type=CLASSIC.name, protocol_type="", state="Empty")
"""A group that has committed offsets but no record of its own, as ListGroups shows it."""


def describe(records: GroupRecords) -> Group | None:
    """Describe the group that consists of these records; None when there are none."""
    if not records:
        return None
    newest = max(records.values(), key=lambda event: event.source_offset)
    described = _DESCRIBE[TYPE_OF_RECORD[newest.record_type]](records)
    return replace(described, source_offset=newest.source_offset, source_timestamp=newest.source_timestamp)


def _by_part(records: GroupRecords, record_type: int) -> dict[str, Value]:
    """Return the values of a type by member id or regular expression."""
    return {
        part: json.loads(event.value)
        for (of_type, part), event in records.items()
        if of_type == record_type and event.value is not None
    }


def _single(records: GroupRecords, record_type: int) -> Value:
    """Return the value of the type whose key is the group alone; empty when absent."""
    return _by_part(records, record_type).get("", {})


# --- classic groups --------------------------------------------------------------------------------------


def _classic(records: GroupRecords) -> Group:
    value = _single(records, CLASSIC.group)
    timestamp = value.get("currentStateTimestamp", -1)
    return Group(
        type=CLASSIC.name,
        protocol_type=value["protocolType"],
        protocol=value["protocol"],
        state="Stable" if value["members"] else "Empty",
        generation_or_epoch=value["generation"],
        state_timestamp=None if timestamp == -1 else timestamp,
        members=tuple(
            Member(
                member_id=member["memberId"],
                group_instance_id=member.get("groupInstanceId"),
                client_id=member["clientId"],
                client_host=member["clientHost"],
            )
            for member in sorted(value["members"], key=lambda member: str(member["memberId"]))
        ),
        subscribed_topics=_classic_topics(value),
    )


def _classic_topics(value: Value) -> tuple[str, ...] | None:
    """Return what the members subscribe to; None where the log does not say.

    Only the `consumer` protocol has subscriptions that the coordinator reads, and one that it cannot read
    hides them all (`ClassicGroup.computeSubscribedTopics`).
    """
    if not value["members"]:
        return ()
    if value["protocolType"] != "consumer" or value["protocol"] is None:
        return None
    topics: set[str] = set()
    for subscription in {member["subscription"] for member in value["members"]}:  # often the same for all
        found = _topics_of(subscription)
        if found is None:
            return None
        topics.update(found)
    return tuple(sorted(topics))


_SHORT_TEXT: Final = 4_096
_LONG_TEXT: Final = 2 * 1024 * 1024  # a record has about a megabyte, base64 makes four bytes of three


def _topics_of(subscription: str) -> list[str] | None:
    """Return the topics of a subscription in base64, as `decoders.subscribed_topics`; do not change them.

    The same members are described before and after each record of their group, so these are cached: many
    short ones, and few long ones, of which one with a megabyte of names may take 20 MB.
    """
    if len(subscription) <= _SHORT_TEXT:
        return _topics_of_short(subscription)
    return _topics_of_long(subscription) if len(subscription) <= _LONG_TEXT else _read_topics(subscription)


def _read_topics(subscription: str) -> list[str] | None:
    return decoders.subscribed_topics(base64.b64decode(subscription))


@lru_cache(maxsize=4_096)
def _topics_of_short(subscription: str) -> list[str] | None:
    return _read_topics(subscription)


@lru_cache(maxsize=4)
def _topics_of_long(subscription: str) -> list[str] | None:
    return _read_topics(subscription)


# --- groups whose members the coordinator assigns --------------------------------------------------------


def _assigned_state(*, epoch: int, target: int, members: Iterable[Value], stable: int) -> str:
    """Return the state of a group with members (`ConsumerGroup.maybeUpdateGroupState`).

    `target` is the epoch of the target assignment; each of `members` says how far that member has come.
    """
    if epoch > target:
        return "Assigning"
    in_place = (member.get("state") == stable and member.get("memberEpoch") == target for member in members)
    return "Stable" if all(in_place) else "Reconciling"


def _members(records: GroupRecords, kind: AssignedGroupType) -> dict[str, Value]:
    """Return the members' values by id; one that only has a current assignment is a member too."""
    current = _by_part(records, kind.current)
    return dict.fromkeys(sorted(current), _UNNAMED_MEMBER) | _by_part(records, kind.member)


_UNNAMED_MEMBER: Final[Value] = {"clientId": "", "clientHost": "", "subscribedTopicNames": []}


def _described(members: Mapping[str, Value]) -> tuple[Member, ...]:
    return tuple(
        Member(
            member_id=member_id,
            group_instance_id=value.get("instanceId"),
            client_id=value["clientId"],
            client_host=value["clientHost"],
        )
        for member_id, value in sorted(members.items())
    )


def _subscribed_names(members: Mapping[str, Value]) -> set[str]:
    return {topic for member in members.values() for topic in member["subscribedTopicNames"]}


def _consumer(records: GroupRecords) -> Group:
    members = _members(records, CONSUMER)
    current = _by_part(records, CONSUMER.current)
    epoch = _single(records, CONSUMER.group).get("epoch", _FIRST_EPOCH)
    state = _assigned_state(
        epoch=epoch,
        target=_single(records, CONSUMER.target).get("assignmentEpoch", _FIRST_EPOCH),
        members=[current.get(member, {}) for member in members],
        stable=0,
    )
    return Group(
        type=CONSUMER.name,
        protocol_type=CONSUMER.name,
        protocol=_preferred_assignor(members),
        state=state if members else "Empty",
        generation_or_epoch=epoch,
        members=_described(members),
        subscribed_topics=_consumer_topics(members, _by_part(records, CONSUMER_REGULAR_EXPRESSION)),
    )


def _preferred_assignor(members: Mapping[str, Value]) -> str | None:
    """Return the server assignor that most members ask for.

    None where none is asked for, since the broker's own configuration decides then, and where two are asked
    for equally often (`ConsumerGroup.preferredServerAssignor`).
    """
    asked = (member.get("serverAssignor") for member in members.values())
    counts = Counter(assignor for assignor in asked if assignor is not None).most_common(2)
    is_tie = len(counts) == 2 and counts[0][1] == counts[1][1]
    return None if not counts or is_tie else counts[0][0]


def _consumer_topics(members: Mapping[str, Value], resolved: Mapping[str, Value]) -> tuple[str, ...]:
    """Return the subscribed names and what regular expressions were resolved to.

    As for the coordinator, an expression that it has not resolved yet subscribes to nothing
    (`ConsumerGroup.updateResolvedRegularExpression`).
    """
    topics = _subscribed_names(members)
    topics.update(*(expression["topics"] for expression in resolved.values()))
    return tuple(sorted(topics))


def _share(records: GroupRecords) -> Group:
    members = _members(records, SHARE)
    return Group(
        type=SHARE.name,
        protocol_type=SHARE.name,
        state="Stable" if members else "Empty",
        generation_or_epoch=_single(records, SHARE.group).get("epoch", _FIRST_EPOCH),
        members=_described(members),
        subscribed_topics=tuple(sorted(_subscribed_names(members))),
    )


def _streams(records: GroupRecords) -> Group:
    members, topology = _members(records, STREAMS), _single(records, STREAMS_TOPOLOGY)
    current = _by_part(records, STREAMS.current)
    group = _single(records, STREAMS.group)
    epoch = group.get("epoch", _FIRST_EPOCH)
    if not members:
        state = "Empty"
    elif topology.get("epoch") != _validated_topology_epoch(group):
        state = "NotReady"
    else:
        state = _assigned_state(
            epoch=epoch,
            target=_single(records, STREAMS.target).get("assignmentEpoch", _FIRST_EPOCH),
            members=[current.get(member, {}) for member in members],
            stable=1,
        )
    return Group(
        type=STREAMS.name,
        protocol_type=STREAMS.name,
        state=state,
        generation_or_epoch=epoch,
        members=_described(members),
        subscribed_topics=_streams_topics(topology) if members else (),
    )


def _validated_topology_epoch(group: Value) -> int:
    """Return for which topology the source topics were found; 0 before the group's first epoch record."""
    epoch: int = group.get("validatedTopologyEpoch", -1) if group else 0
    return epoch


def _streams_topics(topology: Value) -> tuple[str, ...]:
    """Return the topics that the topology reads (`StreamsGroup.isSubscribedToTopic`)."""
    topics: set[str] = set()
    for subtopology in topology.get("subtopologies", ()):
        topics.update(subtopology["sourceTopics"])
        topics.update(topic["name"] for topic in subtopology["repartitionSourceTopics"])
    return tuple(sorted(topics))


_DESCRIBE: Final[Mapping[str, Callable[[GroupRecords], Group]]] = {
    CLASSIC.name: _classic,
    CONSUMER.name: _consumer,
    SHARE.name: _share,
    STREAMS.name: _streams,
}
assert set(TYPE_OF_RECORD.values()) == set(_DESCRIBE), "every type of group needs its description"
