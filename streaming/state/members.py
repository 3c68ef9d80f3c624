"""Members of groups as far as the log shows them: identity, subscriptions and assignments.

An assignment has the name of a topic or its id, whichever the log has. If the records of a group are so large
that its rows would be too large (`IN_DETAIL_UP_TO`), only the identities of its members are kept.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import decoders
from streaming.state.group_records import GroupRecords, GroupValues, Value, single_value, values_of
from streaming.state.group_types import CONSUMER, STREAMS, AssignedGroupType

IN_DETAIL_UP_TO: Final = 8 * 1024 * 1024
"""Characters of the records of a group in the state: above this limit only the identities of members are
kept. A classic group is one record, of a megabyte at most with the brokers' defaults."""

_TASKS: Final = {"activeTasks": "active", "standbyTasks": "standby", "warmupTasks": "warmup"}
_UNNAMED: Final[Value] = {
    "clientId": "",
    "clientHost": "",
    "subscribedTopicNames": [],
    "subscribedTopicRegex": "",
    "classicMemberMetadata": None,
}


@dataclass(frozen=True, kw_only=True)
class TopicAssignment:
    """Assigned partitions of a topic, or tasks of a subtopology (schema `ASSIGNED`)."""

    topic: str | None = None
    topic_id: str | None = None
    subtopology: str | None = None
    task_type: str | None = None
    partitions: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Member:
    """A member as far as the log shows it (schema `MEMBER`)."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rack_id: str | None = None
    member_epoch: int | None = None
    is_classic: bool | None = None
    subscribed_topics: tuple[str, ...] | None = None
    subscribed_regex: str | None = None
    assignment: tuple[TopicAssignment, ...] | None = None
    target_assignment: tuple[TopicAssignment, ...] | None = None
    subscription_bytes: bytes | None = None
    assignment_bytes: bytes | None = None

    def as_row(self) -> dict[str, Any]:
        """Return a row of schema `MEMBER`."""
        return vars(self) | {
            "assignment": _rows(self.assignment),
            "target_assignment": _rows(self.target_assignment),
        }


def _rows(assigned: Iterable[TopicAssignment] | None) -> list[dict[str, Any]] | None:
    return None if assigned is None else [vars(one) for one in assigned]


def is_in_detail(records: GroupRecords) -> bool:
    """Return whether a group with these records is kept in detail."""
    return sum(len(event.value or "") for event in records.values()) <= IN_DETAIL_UP_TO


# --- classic groups --------------------------------------------------------------------------------------


def classic_members(group: Value, *, in_detail: bool) -> tuple[Member, ...]:
    """Return the members of a classic group, from its one record, ordered by id."""
    speaks_consumer = group["protocolType"] == "consumer" and group["protocol"] is not None
    return tuple(
        Member(
            member_id=member["memberId"],
            group_instance_id=member.get("groupInstanceId"),
            client_id=member["clientId"],
            client_host=member["clientHost"],
            **(_classic_details(member, speaks_consumer) if in_detail else {}),
        )
        for member in sorted(group["members"], key=lambda member: str(member["memberId"]))
    )


def classic_topics(group: Value) -> tuple[str, ...] | None:
    """Return the topics that the members of a classic group subscribe to; None if unknown.

    The coordinator reads only subscriptions of the `consumer` protocol, and an unreadable one hides all of
    them (`ClassicGroup.computeSubscribedTopics`).
    """
    if not group["members"]:
        return ()
    if group["protocolType"] != "consumer" or group["protocol"] is None:
        return None
    topics: set[str] = set()
    for subscription in {member["subscription"] for member in group["members"]}:  # often the same for all
        found, _ = _subscription_of(subscription)
        if found is None:
            return None
        topics.update(found)
    return tuple(sorted(topics))


def _classic_details(member: Value, speaks_consumer: bool) -> dict[str, Any]:
    """Return the fields that only the protocol of a member can interpret, and their bytes."""
    topics, rack = _subscription_of(member["subscription"]) if speaks_consumer else (None, None)
    return {
        "rack_id": rack,
        "subscribed_topics": topics,
        "assignment": _assignment_of(member["assignment"]) if speaks_consumer else None,
        "subscription_bytes": base64.b64decode(member["subscription"]),
        "assignment_bytes": base64.b64decode(member["assignment"]),
    }


_SHORT_TEXT: Final = 4_096
_LONG_TEXT: Final = 2 * 1024 * 1024  # a record has about a megabyte; base64 is a third longer

_Subscription = tuple[tuple[str, ...] | None, str | None]
"""Topics (None: unreadable) and rack."""


def _subscription_of(subscription: str) -> _Subscription:
    """Return the topics and the rack of a subscription in base64, as `decoders.subscribed_topics`.

    The same members are described before and after each record of their group, so results are cached: many
    short ones, and few long ones, of which one with a megabyte of names may take 20 MB.
    """
    if len(subscription) <= _SHORT_TEXT:
        return _short_subscription(subscription)
    is_long = len(subscription) <= _LONG_TEXT
    return _long_subscription(subscription) if is_long else _read_subscription(subscription)


def _read_subscription(subscription: str) -> _Subscription:
    data = base64.b64decode(subscription)
    topics = decoders.subscribed_topics(data)
    return None if topics is None else tuple(sorted(topics)), decoders.rack_of(data)


@lru_cache(maxsize=4_096)
def _short_subscription(subscription: str) -> _Subscription:
    return _read_subscription(subscription)


@lru_cache(maxsize=4)
def _long_subscription(subscription: str) -> _Subscription:
    return _read_subscription(subscription)


def _assignment_of(assignment: str) -> tuple[TopicAssignment, ...] | None:
    """Return the assignment in base64; None if clients cannot read it."""
    is_short = len(assignment) <= _SHORT_TEXT
    return _short_assignment(assignment) if is_short else _read_assignment(assignment)


def _read_assignment(assignment: str) -> tuple[TopicAssignment, ...] | None:
    topics = decoders.assigned_partitions(base64.b64decode(assignment))
    if topics is None:
        return None
    return tuple(TopicAssignment(topic=topic, partitions=tuple(topics[topic])) for topic in sorted(topics))


@lru_cache(maxsize=4_096)
def _short_assignment(assignment: str) -> tuple[TopicAssignment, ...] | None:
    return _read_assignment(assignment)


# --- groups whose coordinator assigns partitions ---------------------------------------------------------


def member_values(values: GroupValues, kind: AssignedGroupType) -> dict[str, Value]:
    """Return the members' values by id; a member may have nothing but a current assignment."""
    current = {part: _UNNAMED for of_type, part in values if of_type == kind.current}
    return dict(sorted({**current, **values_of(values, kind.member)}.items()))


def assigned_members(
    values: GroupValues,
    kind: AssignedGroupType,
    members: Mapping[str, Value],
    current: Mapping[str, Value],
    *,
    in_detail: bool,
) -> tuple[Member, ...]:
    """Return the members of a group from their metadata and current assignments, ordered as `members`."""
    target = values_of(values, kind.target_member) if in_detail else {}
    names = _topic_names(values, kind) if in_detail else {}
    return tuple(
        Member(
            member_id=member_id,
            group_instance_id=value.get("instanceId"),
            client_id=value["clientId"],
            client_host=value["clientHost"],
            member_epoch=current.get(member_id, {}).get("memberEpoch", 0),
            **(
                _details(kind, value, current.get(member_id, {}), target.get(member_id, {}), names)
                if in_detail
                else {}
            ),
        )
        for member_id, value in members.items()
    )


def _details(
    kind: AssignedGroupType, value: Value, current: Value, target: Value, names: Mapping[str, str]
) -> dict[str, Any]:
    if kind is STREAMS:  # only the group has subscriptions, in its topology
        return {
            "rack_id": value.get("rackId"),
            "assignment": _tasks(current),
            "target_assignment": _tasks(target),
        }
    return {
        "rack_id": value.get("rackId"),
        "is_classic": _is_classic(value) if kind is CONSUMER else None,
        "subscribed_topics": tuple(sorted(value["subscribedTopicNames"])),
        "subscribed_regex": value.get("subscribedTopicRegex"),
        "assignment": _partitions(current.get("assignedPartitions", ()), names),
        "target_assignment": _partitions(target.get("topicPartitions", ()), names),
    }


def _is_classic(value: Value) -> bool:
    """Return whether a member of a consumer group uses the classic protocol (KIP-848): in the JSON, null is
    explicit and an absent field is an empty struct.
    """
    return value.get("classicMemberMetadata", {}) is not None


def _topic_names(values: GroupValues, kind: AssignedGroupType) -> dict[str, str]:
    if kind.names is None:
        return {}
    value = single_value(values, kind.names)
    return {topic["topicId"]: topic["topicName"] for name in kind.name_lists for topic in value.get(name, ())}


def _partitions(topics: Sequence[Value], names: Mapping[str, str]) -> tuple[TopicAssignment, ...]:
    return tuple(
        TopicAssignment(
            topic=names.get(topic["topicId"]),
            topic_id=topic["topicId"],
            partitions=tuple(topic["partitions"]),
        )
        for topic in topics
    )


def _tasks(value: Value) -> tuple[TopicAssignment, ...]:
    return tuple(
        TopicAssignment(
            subtopology=tasks["subtopologyId"], task_type=kind, partitions=tuple(tasks["partitions"])
        )
        for name, kind in _TASKS.items()
        for tasks in value.get(name, ())
    )
