"""The types of groups, and the record types that each consists of.

Which group type a record type belongs to is said where it is declared (`decoders.RecordType.group_type`).
Here stand those that the replay and the description of groups know by their meaning, with the numbers that
Kafka gave them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from decoders import RECORD_TYPES

_NUMBERS: Final = {kind.name: number for number, kind in RECORD_TYPES.items()}


@dataclass(frozen=True, kw_only=True)
class GroupType:
    """A type of groups, by the name that ListGroups gives it.

    `group` is the record type of the group itself: its tombstone removes the group object, of whatever type
    that is.
    """

    name: str
    group: int


@dataclass(frozen=True, kw_only=True)
class AssignedGroupType(GroupType):
    """A type of groups whose members the coordinator assigns, each with records of its own.

    `target` is the record type of the epoch of the target assignment, `target_member` that of what it gives a
    member, `member` that of what a member says of itself, `current` that of how far it has come: a part of
    the member, which goes when the member does. `names` is the one that has names of topics beside their
    ids, and `name_lists` are the fields of its value that list these; None: there is none.
    """

    target: int
    target_member: int
    member: int
    current: int
    names: int | None = None
    name_lists: tuple[str, ...] = ()


CLASSIC: Final = GroupType(name="classic", group=_NUMBERS["GroupMetadata"])
CONSUMER: Final = AssignedGroupType(
    name="consumer",
    group=_NUMBERS["ConsumerGroupMetadata"],
    target=_NUMBERS["ConsumerGroupTargetAssignmentMetadata"],
    target_member=_NUMBERS["ConsumerGroupTargetAssignmentMember"],
    member=_NUMBERS["ConsumerGroupMemberMetadata"],
    current=_NUMBERS["ConsumerGroupCurrentMemberAssignment"],
    names=_NUMBERS["ConsumerGroupPartitionMetadata"],  # 3.7 to 4.0
    name_lists=("topics",),
)
SHARE: Final = AssignedGroupType(
    name="share",
    group=_NUMBERS["ShareGroupMetadata"],
    target=_NUMBERS["ShareGroupTargetAssignmentMetadata"],
    target_member=_NUMBERS["ShareGroupTargetAssignmentMember"],
    member=_NUMBERS["ShareGroupMemberMetadata"],
    current=_NUMBERS["ShareGroupCurrentMemberAssignment"],
    names=_NUMBERS["ShareGroupStatePartitionMetadata"],
    name_lists=("initializingTopics", "initializedTopics", "deletingTopics"),
)
STREAMS: Final = AssignedGroupType(
    name="streams",
    group=_NUMBERS["StreamsGroupMetadata"],
    target=_NUMBERS["StreamsGroupTargetAssignmentMetadata"],
    target_member=_NUMBERS["StreamsGroupTargetAssignmentMember"],
    member=_NUMBERS["StreamsGroupMemberMetadata"],
    current=_NUMBERS["StreamsGroupCurrentMemberAssignment"],
)
CONSUMER_REGULAR_EXPRESSION: Final = _NUMBERS["ConsumerGroupRegularExpression"]
STREAMS_TOPOLOGY: Final = _NUMBERS["StreamsGroupTopology"]

_ASSIGNED: Final = (CONSUMER, SHARE, STREAMS)

TYPE_OF_RECORD: Final[Mapping[int, str]] = {
    number: kind.group_type for number, kind in RECORD_TYPES.items() if kind.group_type is not None
}
"""The name of the group type that a record type belongs to."""

ENDS_GROUP: Final = frozenset(kind.group for kind in (CLASSIC, *_ASSIGNED))
"""The record types whose tombstone removes the group object."""

CURRENT_OF_MEMBER: Final[Mapping[int, int]] = {kind.member: kind.current for kind in _ASSIGNED}
"""For the record types of members, the one that says how far a member has come."""
