"""Groups, derived from their records.

A group is described as by a coordinator that has replayed its records (Kafka 4.3: `ClassicGroup`,
`ConsumerGroup`, `StreamsGroup`, `ShareGroup`).
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from streaming.state.group_records import GroupRecords, GroupValues, Value, single_value, values_of
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
from streaming.state.members import (
    Member,
    assigned_members,
    classic_members,
    classic_topics,
    is_in_detail,
    member_values,
)

_FIRST_EPOCH: Final = 1  # of a group and of its assignment, until a record has one (4.1+; earlier 0)


@dataclass(frozen=True, kw_only=True)
class Group:
    """An existing group as far as the log shows it.

    None means unknown, and for `protocol` and `generation_or_epoch` none. `state` is never
    PreparingRebalance, CompletingRebalance or Dead: brokers do not write these to the log. `source_offset`
    and `source_timestamp` are those of the newest record of the group.
    """

    type: str
    protocol_type: str
    protocol: str | None = None
    state: str
    generation_or_epoch: int | None = None
    state_timestamp: int | None = None
    members: tuple[Member, ...] = ()
    subscribed_topics: tuple[str, ...] | None = ()
    assignment_epoch: int | None = None
    source_offset: int | None = None
    source_timestamp: int | None = None

    def as_row(self) -> dict[str, Any]:
        """Return a row of type `GROUP`."""
        return vars(self) | {"members": [member.as_row() for member in self.members]}


SIMPLE: Final = Group(type=CLASSIC.name, protocol_type="", state="Empty")
"""A group with committed offsets but without records of its own, as in ListGroups."""


def describe(records: GroupRecords, loads: Callable[[str], Value] = json.loads) -> Group | None:
    """Return the group of these records; None without records. `loads` reads the JSON of a value."""
    if not records:
        return None
    newest = max(records.values(), key=lambda event: event.source_offset)
    values = {key: loads(event.value) for key, event in records.items() if event.value is not None}
    described = _DESCRIBE[TYPE_OF_RECORD[newest.record_type]](values, is_in_detail(records))
    return replace(described, source_offset=newest.source_offset, source_timestamp=newest.source_timestamp)


# --- classic groups --------------------------------------------------------------------------------------


def _classic(values: GroupValues, in_detail: bool) -> Group:
    value = single_value(values, CLASSIC.group)
    timestamp = value.get("currentStateTimestamp", -1)
    return Group(
        type=CLASSIC.name,
        protocol_type=value["protocolType"],
        protocol=value["protocol"],
        state="Stable" if value["members"] else "Empty",
        generation_or_epoch=value["generation"],
        state_timestamp=None if timestamp == -1 else timestamp,
        members=classic_members(value, in_detail=in_detail),
        subscribed_topics=classic_topics(value),
    )


# --- groups whose coordinator assigns partitions ---------------------------------------------------------


@dataclass(frozen=True)
class _Assignments:
    """The members of a group whose coordinator assigns partitions, and the epochs of the group."""

    members: Mapping[str, Value]
    current: Mapping[str, Value]
    epoch: int
    target: int
    described: tuple[Member, ...]

    @classmethod
    def read(cls, values: GroupValues, kind: AssignedGroupType, in_detail: bool) -> "_Assignments":
        members, current = member_values(values, kind), values_of(values, kind.current)
        return cls(
            members,
            current,
            epoch=single_value(values, kind.group).get("epoch", _FIRST_EPOCH),
            target=single_value(values, kind.target).get("assignmentEpoch", _FIRST_EPOCH),
            described=assigned_members(values, kind, members, current, in_detail=in_detail),
        )

    def state(self, *, stable: int) -> str:
        """Return the state of a group with members (`ConsumerGroup.maybeUpdateGroupState`).

        `stable` is the state of a member that has its target assignment.
        """
        if self.epoch > self.target:
            return "Assigning"
        here = (self.current.get(member, {}) for member in self.members)
        in_place = (one.get("state") == stable and one.get("memberEpoch") == self.target for one in here)
        return "Stable" if all(in_place) else "Reconciling"


def _subscribed_names(members: Mapping[str, Value]) -> set[str]:
    return {topic for member in members.values() for topic in member["subscribedTopicNames"]}


def _consumer(values: GroupValues, in_detail: bool) -> Group:
    held = _Assignments.read(values, CONSUMER, in_detail)
    return Group(
        type=CONSUMER.name,
        protocol_type=CONSUMER.name,
        protocol=_preferred_assignor(held.members),
        state=held.state(stable=0) if held.members else "Empty",
        generation_or_epoch=held.epoch,
        members=held.described,
        subscribed_topics=_consumer_topics(held.members, values_of(values, CONSUMER_REGULAR_EXPRESSION)),
        assignment_epoch=held.target,
    )


def _preferred_assignor(members: Mapping[str, Value]) -> str | None:
    """Return the server assignor that most members request.

    None if none is requested, since the broker's own configuration decides then, and if two are requested
    equally often (`ConsumerGroup.preferredServerAssignor`).
    """
    asked = (member.get("serverAssignor") for member in members.values())
    counts = Counter(assignor for assignor in asked if assignor is not None).most_common(2)
    is_tie = len(counts) == 2 and counts[0][1] == counts[1][1]
    return None if not counts or is_tie else counts[0][0]


def _consumer_topics(members: Mapping[str, Value], resolved: Mapping[str, Value]) -> tuple[str, ...]:
    """Return the subscribed names and the topics that match subscribed regular expressions.

    As in the coordinator, an expression that is not resolved yet matches nothing
    (`ConsumerGroup.updateResolvedRegularExpression`).
    """
    topics = _subscribed_names(members)
    topics.update(*(expression["topics"] for expression in resolved.values()))
    return tuple(sorted(topics))


def _share(values: GroupValues, in_detail: bool) -> Group:
    held = _Assignments.read(values, SHARE, in_detail)
    return Group(
        type=SHARE.name,
        protocol_type=SHARE.name,
        state="Stable" if held.members else "Empty",
        generation_or_epoch=held.epoch,
        members=held.described,
        subscribed_topics=tuple(sorted(_subscribed_names(held.members))),
        assignment_epoch=held.target,
    )


def _streams(values: GroupValues, in_detail: bool) -> Group:
    held, topology = _Assignments.read(values, STREAMS, in_detail), single_value(values, STREAMS_TOPOLOGY)
    if not held.members:
        state = "Empty"
    elif topology.get("epoch") != _validated_topology_epoch(single_value(values, STREAMS.group)):
        state = "NotReady"
    else:
        state = held.state(stable=1)
    return Group(
        type=STREAMS.name,
        protocol_type=STREAMS.name,
        state=state,
        generation_or_epoch=held.epoch,
        members=held.described,
        subscribed_topics=_streams_topics(topology) if held.members else (),
        assignment_epoch=held.target,
    )


def _validated_topology_epoch(group: Value) -> int:
    """Return the epoch of the topology whose source topics exist; 0 before the group's first epoch record."""
    epoch: int = group.get("validatedTopologyEpoch", -1) if group else 0
    return epoch


def _streams_topics(topology: Value) -> tuple[str, ...]:
    """Return the topics that the topology reads (`StreamsGroup.isSubscribedToTopic`)."""
    topics: set[str] = set()
    for subtopology in topology.get("subtopologies", ()):
        topics.update(subtopology["sourceTopics"])
        topics.update(topic["name"] for topic in subtopology["repartitionSourceTopics"])
    return tuple(sorted(topics))


_DESCRIBE: Final[Mapping[str, Callable[[GroupValues, bool], Group]]] = {
    CLASSIC.name: _classic,
    CONSUMER.name: _consumer,
    SHARE.name: _share,
    STREAMS.name: _streams,
}
assert set(TYPE_OF_RECORD.values()) == set(_DESCRIBE), "every type of group needs its description"
