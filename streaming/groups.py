"""Groups as their records describe them: which records a group consists of, and what they say about it.

A group is a bundle of records in the log, one per record key: a classic group is one `GroupMetadata`
record, a consumer group an epoch, members, assignments and so on. This module keeps the newest record of
every key, forgets them when the group ends, and describes the group from what is kept (Kafka:
`GroupMetadataManager.replay`, `ClassicGroup`, `ConsumerGroup`, `StreamsGroup`, `ShareGroup`).
"""

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa

import decoders

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
SHARE_MEMBER, SHARE_EPOCH = 10, 11
STREAMS_EPOCH, STREAMS_MEMBER, STREAMS_TARGET, STREAMS_CURRENT, STREAMS_TOPOLOGY = 17, 19, 20, 22, 23

ENDS_GROUP: Final = frozenset({CLASSIC, CONSUMER_EPOCH, SHARE_EPOCH, STREAMS_EPOCH})
"""Types whose tombstone removes the group object, of whatever kind it is."""

TYPE_OF_RECORD: Final[Mapping[int, str]] = {
    CLASSIC: "classic",
    **dict.fromkeys((3, 4, 5, 6, 7, 8, 16), "consumer"),
    **dict.fromkeys((9, 10, 11, 12, 13, 14, 15), "share"),
    **dict.fromkeys((17, 19, 20, 21, 22, 23), "streams"),
}
"""The group type (as ListGroups names it) that a record type belongs to."""


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
"""The newest record of every key of one group, by record type and part."""


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

    None means unknown, and for `protocol` and `generation_or_epoch` none.     `state` never is
    PreparingRebalance, CompletingRebalance or Dead: brokers do not write those down.
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


def fold_events(kept: GroupRecords, events: Iterable[GroupEvent]) -> GroupRecords:
    """Replay the events of one group, in log order, on the records kept of it (`GMM.replay`)."""
    records = dict(kept)
    for event in events:
        key = (event.record_type, event.part)
        if event.ends_group:
            records.clear()
        elif event.value is None:
            records.pop(key, None)
        else:
            if event.record_type == CLASSIC:
                records.clear()  # a type 2 value replaces whatever group had this name
            records[key] = event
    return records


def describe(records: GroupRecords) -> Group | None:
    """Describe the group that consists of these records; None when there are none."""
    if not records:
        return None
    newest = max(records.values(), key=lambda event: event.source_offset)
    group_type = TYPE_OF_RECORD[newest.record_type]
    return _DESCRIBE[group_type](_Parts(records, group_type, newest))


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


class _Parts:
    """The records of one group, parsed: one of a kind by type, members by id."""

    def __init__(self, records: GroupRecords, group_type: str, newest: GroupEvent) -> None:
        self.source: dict[str, Any] = {
            "source_offset": newest.source_offset,
            "source_timestamp": newest.source_timestamp,
        }
        self._values: dict[int, dict[str, Any]] = {}
        for (record_type, part), event in records.items():
            if TYPE_OF_RECORD[record_type] == group_type and event.value is not None:
                self._values.setdefault(record_type, {})[part] = json.loads(event.value)

    def one(self, record_type: int) -> dict[str, Any]:
        """Return the value of the type whose key is the group alone; empty when absent."""
        return dict(self._values.get(record_type, {}).get("", {}))

    def by_part(self, record_type: int) -> dict[str, dict[str, Any]]:
        """Return the values of a type by member id or regular expression."""
        return self._values.get(record_type, {})


def _classic(parts: _Parts) -> Group:
    value = parts.one(CLASSIC)
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
            for member in value["members"]
        ),
        subscribed_topics=_classic_topics(value),
        **parts.source,
    )


def _classic_topics(value: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return what the members subscribe to; None where the log does not say.

    Only the `consumer` protocol has subscriptions that the coordinator reads, and one that it cannot read
    hides them all (`ClassicGroup.computeSubscribedTopics`).
    """
    if not value["members"]:
        return ()
    if value["protocolType"] != "consumer":
        return None
    topics: set[str] = set()
    for member in value["members"]:
        found = decoders.subscribed_topics(base64.b64decode(member["subscription"]))
        if found is None:
            return None
        topics.update(found)
    return tuple(sorted(topics))


def _modern_state(
    *, epoch: int, target: int, members: Iterable[str], current: Mapping[str, Any], stable: int
) -> str:
    """Return the state of a group whose members the coordinator assigns
    (`ConsumerGroup.maybeUpdateGroupState`)."""
    if epoch > target:
        return "Assigning"
    in_place = (
        (state := current.get(member)) is not None
        and state["state"] == stable
        and state["memberEpoch"] == target
        for member in members
    )
    return "Stable" if all(in_place) else "Reconciling"


def _consumer(parts: _Parts) -> Group:
    members = parts.by_part(CONSUMER_MEMBER)
    epoch = parts.one(CONSUMER_EPOCH).get("epoch", 0)
    target = parts.one(CONSUMER_TARGET).get("assignmentEpoch", 0)
    state = _modern_state(
        epoch=epoch, target=target, members=members, current=parts.by_part(CONSUMER_CURRENT), stable=0
    )
    return Group(
        type="consumer",
        protocol_type="consumer",
        state=state if members else "Empty",
        generation_or_epoch=epoch,
        members=_members(members),
        subscribed_topics=_consumer_topics(members, parts.by_part(CONSUMER_REGEX)),
        **parts.source,
    )


def _consumer_topics(members: Mapping[str, Any], resolved: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the subscribed names and what the members' regular expressions were resolved to."""
    topics: set[str] = set()
    for member in members.values():
        topics.update(member["subscribedTopicNames"] or ())
        topics.update(resolved.get(member["subscribedTopicRegex"] or "", {}).get("topics", ()))
    return tuple(sorted(topics))


def _share(parts: _Parts) -> Group:
    members = parts.by_part(SHARE_MEMBER)
    topics = {topic for member in members.values() for topic in member["subscribedTopicNames"] or ()}
    return Group(
        type="share",
        protocol_type="share",
        state="Stable" if members else "Empty",
        generation_or_epoch=parts.one(SHARE_EPOCH).get("epoch", 0),
        members=_members(members),
        subscribed_topics=tuple(sorted(topics)),
        **parts.source,
    )


def _streams(parts: _Parts) -> Group:
    members, topology = parts.by_part(STREAMS_MEMBER), parts.one(STREAMS_TOPOLOGY)
    group = parts.one(STREAMS_EPOCH)
    epoch = group.get("epoch", 0)
    if not members:
        state = "Empty"
    elif not topology or topology["epoch"] != group.get("validatedTopologyEpoch", -1):
        state = "NotReady"
    else:
        state = _modern_state(
            epoch=epoch,
            target=parts.one(STREAMS_TARGET).get("assignmentEpoch", 0),
            members=members,
            current=parts.by_part(STREAMS_CURRENT),
            stable=1,
        )
    return Group(
        type="streams",
        protocol_type="streams",
        state=state,
        generation_or_epoch=epoch,
        members=_members(members),
        subscribed_topics=_streams_topics(topology) if members else (),
        **parts.source,
    )


def _streams_topics(topology: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the topics that the topology reads (`StreamsGroup.isSubscribedToTopic`)."""
    topics: set[str] = set()
    for subtopology in topology.get("subtopologies", ()):
        topics.update(subtopology["sourceTopics"])
        topics.update(topic["name"] for topic in subtopology["repartitionSourceTopics"])
    return tuple(sorted(topics))


def _members(values: Mapping[str, Any]) -> tuple[Member, ...]:
    return tuple(
        Member(
            member_id=member_id,
            group_instance_id=value.get("instanceId"),
            client_id=value["clientId"],
            client_host=value["clientHost"],
        )
        for member_id, value in sorted(values.items())
    )


_DESCRIBE: Final[Mapping[str, Callable[[_Parts], Group]]] = {
    "classic": _classic,
    "consumer": _consumer,
    "share": _share,
    "streams": _streams,
}
