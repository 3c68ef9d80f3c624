"""Groups as their records describe them: which records a group consists of, and what they say about it.

A group is a bundle of records in the log, one per record key: a classic group is one `GroupMetadata`
record, a consumer group an epoch, members, assignments and so on. This module keeps the newest record of
every key, forgets them when the group ends, and describes the group from what is kept, as the coordinator
that has replayed them would list and describe it (Kafka 4.3: `GroupMetadataManager.replay`, `ClassicGroup`,
`ConsumerGroup`, `StreamsGroup`, `ShareGroup`).

Where Kafka's replay gives up, because records contradict each other (members of a group that is removed, a
group of another type), the later record wins here.
"""

import base64
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import pyarrow as pa

import decoders
from decoders.rows.key_cache import Memory

GROUP_RECORDS: Final = pa.schema(
    [
        ("group", pa.string()),
        ("record_type", pa.int16()),
        ("part", pa.string()),  # member id or regular expression; "" where the key is the group alone
        ("value", pa.string()),  # the value as Kafka's JSON
        ("source_offset", pa.int64()),
        ("source_timestamp", pa.int64()),
    ]
)
"""The records that groups consist of, as the state keeps them: one row per record key."""

CLASSIC: Final = 2
CONSUMER_EPOCH, CONSUMER_MEMBER, CONSUMER_TARGET, CONSUMER_CURRENT, CONSUMER_REGEX = 3, 5, 6, 8, 16
SHARE_MEMBER, SHARE_EPOCH, SHARE_CURRENT = 10, 11, 14
STREAMS_EPOCH, STREAMS_MEMBER, STREAMS_TARGET, STREAMS_CURRENT, STREAMS_TOPOLOGY = 17, 19, 20, 22, 23

ENDS_GROUP: Final = frozenset({CLASSIC, CONSUMER_EPOCH, SHARE_EPOCH, STREAMS_EPOCH})
"""Types whose tombstone removes the group object, of whatever kind it is."""

TYPE_OF_RECORD: Final[Mapping[int, str]] = {
    CLASSIC: "classic",
    **dict.fromkeys((3, 4, 5, 6, 7, 8, 16), "consumer"),
    **dict.fromkeys((10, 11, 12, 13, 14, 15), "share"),
    **dict.fromkeys((17, 19, 20, 21, 22, 23), "streams"),
}
"""The group type (as ListGroups names it) that a record type belongs to.

Type 9, of the early access to share groups, is left out: brokers pass over it since 4.1.
"""

CURRENT_OF_MEMBER: Final[Mapping[int, int]] = {
    CONSUMER_MEMBER: CONSUMER_CURRENT,
    SHARE_MEMBER: SHARE_CURRENT,
    STREAMS_MEMBER: STREAMS_CURRENT,
}
"""For the record types of members, the type that says how far a member has come: a part of the member."""


@dataclass(frozen=True)
class GroupEvent:
    """One record about a group; `value` is Kafka's JSON text, None for a tombstone."""

    group: str
    record_type: int
    part: str
    value: str | None
    source_offset: int
    source_timestamp: int

    @property
    def ends_group(self) -> bool:
        """Whether this record removes the group object."""
        return self.value is None and self.record_type in ENDS_GROUP


GroupRecords: TypeAlias = dict[tuple[int, str], GroupEvent]
"""The newest record of every key of one group, by record type and part; all of one group type."""

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


SIMPLE: Final = Group(type="classic", protocol_type="", state="Empty")
"""A group that is known by its committed offsets alone, as ListGroups shows it; it has no record of its
own."""


def read_events(records: pa.Table) -> list[GroupEvent]:
    """Read the decoded records that are not offset commits, in the order given."""
    columns = ["group", "record_type", "document", "source_offset", "source_timestamp"]
    rows = records.select(columns).to_pylist()
    return [_event(row) for row in rows]


def read_unreadable_events(records: pa.Table) -> list[GroupEvent]:
    """Read records whose value could not be decoded; what they say of their group is that it is there."""
    rows = records.select(["group", "record_type", "source_offset", "source_timestamp"]).to_pylist()
    return [GroupEvent(**row, part="", value="") for row in rows]


def fold_events(kept: GroupRecords, events: Iterable[GroupEvent]) -> GroupRecords:
    """Replay the events of one group, in log order, on the records kept of it (`GMM.replay`)."""
    records = dict(kept)
    for event in events:
        if event.ends_group:
            records.clear()
        elif event.value is None:
            records.pop((event.record_type, event.part), None)
            records.pop((CURRENT_OF_MEMBER.get(event.record_type, -1), event.part), None)
        else:
            if _starts_anew(event, records):
                records.clear()
            records[event.record_type, event.part] = event
    return records


def describe(records: GroupRecords) -> Group | None:
    """Describe the group that consists of these records; None when there are none."""
    if not records:
        return None
    newest = max(records.values(), key=lambda event: event.source_offset)
    described = _DESCRIBE[TYPE_OF_RECORD[newest.record_type]](records)
    return replace(described, source_offset=newest.source_offset, source_timestamp=newest.source_timestamp)


def _event(row: Mapping[str, Any]) -> GroupEvent:
    document = json.loads(row["document"])
    key, value = document["key"]["data"], document["value"]
    parts = [text for name, text in key.items() if name not in ("group", "groupId")]
    return GroupEvent(
        group=row["group"],
        record_type=row["record_type"],
        part=parts[0] if parts else "",
        value=None if value is None else json.dumps(value["data"], ensure_ascii=False, separators=(",", ":")),
        source_offset=row["source_offset"],
        source_timestamp=row["source_timestamp"],
    )


def _starts_anew(event: GroupEvent, records: GroupRecords) -> bool:
    """Whether a value replaces a group of another type that has its name."""
    held_type, _ = next(iter(records), (event.record_type, ""))
    return TYPE_OF_RECORD[held_type] != TYPE_OF_RECORD[event.record_type]


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
    value = _single(records, CLASSIC)
    timestamp = value.get("currentStateTimestamp", -1)
    return Group(
        type="classic",
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


def _topics_of(subscription: str) -> list[str] | None:
    """Return the topics of a subscription in base64, as `decoders.subscribed_topics`; do not change them."""
    memory = _SHORT_SUBSCRIPTIONS if len(subscription) <= _SHORT_TEXT else _LONG_SUBSCRIPTIONS
    return memory[subscription]


def _read_topics(subscription: str) -> list[str] | None:
    return decoders.subscribed_topics(base64.b64decode(subscription))


_SHORT_TEXT: Final = 4_096
_LONGEST_TEXT: Final = 2 * 1024 * 1024  # a record has about a megabyte, base64 makes four bytes of three

# The same members are described before and after each record of their group. Few long ones are remembered:
# a megabyte of names may take 20 MB.
_SHORT_SUBSCRIPTIONS: Final = Memory[str, list[str] | None](_read_topics, room=4_096, longest=_SHORT_TEXT)
_LONG_SUBSCRIPTIONS: Final = Memory[str, list[str] | None](_read_topics, room=4, longest=_LONGEST_TEXT)


# --- groups whose members the coordinator assigns --------------------------------------------------------


def _assigned_state(*, epoch: int, target: int, members: Iterable[Value], stable: int) -> str:
    """Return the state of a group with members (`ConsumerGroup.maybeUpdateGroupState`).

    `target` is the epoch of the target assignment; each of `members` says how far that member has come.
    """
    if epoch > target:
        return "Assigning"
    in_place = (member.get("state") == stable and member.get("memberEpoch") == target for member in members)
    return "Stable" if all(in_place) else "Reconciling"


def _members(records: GroupRecords, member_type: int) -> dict[str, Value]:
    """Return the members' values by id; one that only has a current assignment is a member too."""
    current = _by_part(records, CURRENT_OF_MEMBER[member_type])
    return dict.fromkeys(sorted(current), _UNNAMED_MEMBER) | _by_part(records, member_type)


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
    members = _members(records, CONSUMER_MEMBER)
    current = _by_part(records, CONSUMER_CURRENT)
    epoch = _single(records, CONSUMER_EPOCH).get("epoch", _FIRST_EPOCH)
    state = _assigned_state(
        epoch=epoch,
        target=_single(records, CONSUMER_TARGET).get("assignmentEpoch", _FIRST_EPOCH),
        members=[current.get(member, {}) for member in members],
        stable=0,
    )
    return Group(
        type="consumer",
        protocol_type="consumer",
        protocol=_preferred_assignor(members),
        state=state if members else "Empty",
        generation_or_epoch=epoch,
        members=_described(members),
        subscribed_topics=_consumer_topics(members, _by_part(records, CONSUMER_REGEX)),
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
    members = _members(records, SHARE_MEMBER)
    return Group(
        type="share",
        protocol_type="share",
        state="Stable" if members else "Empty",
        generation_or_epoch=_single(records, SHARE_EPOCH).get("epoch", _FIRST_EPOCH),
        members=_described(members),
        subscribed_topics=tuple(sorted(_subscribed_names(members))),
    )


def _streams(records: GroupRecords) -> Group:
    members, topology = _members(records, STREAMS_MEMBER), _single(records, STREAMS_TOPOLOGY)
    current = _by_part(records, STREAMS_CURRENT)
    group = _single(records, STREAMS_EPOCH)
    epoch = group.get("epoch", _FIRST_EPOCH)
    if not members:
        state = "Empty"
    elif topology.get("epoch") != _validated_topology_epoch(group):
        state = "NotReady"
    else:
        state = _assigned_state(
            epoch=epoch,
            target=_single(records, STREAMS_TARGET).get("assignmentEpoch", _FIRST_EPOCH),
            members=[current.get(member, {}) for member in members],
            stable=1,
        )
    return Group(
        type="streams",
        protocol_type="streams",
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
    "classic": _classic,
    "consumer": _consumer,
    "share": _share,
    "streams": _streams,
}
