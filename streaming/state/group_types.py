"""The types of groups, and the record types of each.

The group type of a record type is part of its declaration (`decoders.RecordType.group_type`). This module
lists the record types with a meaning for the replay and the description of groups, by Kafka's numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from decoders import RECORD_TYPES

_NUMBERS: Final = {kind.name: number for number, kind in RECORD_TYPES.items()}


@dataclass(frozen=True, kw_only=True)
class GroupType:
    """A type of groups; `name` is as in ListGroups.

    `group` is the record type of the group itself: its tombstone removes the group object, whatever its type.
    """

    name: str
    group: int


@dataclass(frozen=True, kw_only=True)
class AssignedGroupType(GroupType):
    """A type of groups whose coordinator assigns partitions, with records for each member.

    `target` is the record type of the epoch of the target assignment, `target_member` of a member's target
    assignment, `member` of a member's own metadata, `current` of its current assignment, which is removed
    together with the member. `names` is the record type with names of topics beside their ids, and
    `name_lists` are the fields of its value with these; None: there is none.
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
"""The name of the group type of a record type."""

ENDS_GROUP: Final = frozenset(kind.group for kind in (CLASSIC, *_ASSIGNED))
"""The record types whose tombstone removes the group object."""

CURRENT_OF_MEMBER: Final[Mapping[int, int]] = {kind.member: kind.current for kind in _ASSIGNED}
"""For the record types of members, the one of their current assignment."""
