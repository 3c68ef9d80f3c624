"""Responses about groups: lists, and descriptions with members."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from decoders.formats.java_values import MAX_TEXT_BYTES
from decoders.messages import Columns
from decoders.messages.reader import Message
from streaming.common.arrays import Mask, from_mask, from_texts, numbers_or, to_mask
from streaming.serve.kafka.errors import Error
from streaming.serve.kafka.limits import ELEMENTS_OF_GROUP
from streaming.serve.kafka.members import classic_member, consumer_member, share_member
from streaming.serve.kafka.view import Each, RequestContext, once, short, writable
from streaming.serve.memory.names import NONE

_CLASSIC: Final = "classic"
_CONSUMER: Final = "consumer"
_SHARE: Final = "share"
_STABLE: Final = "Stable"
_DEAD: Final = "Dead"

_MemberOf = Callable[[Mapping[str, Any], RequestContext], Message]

_TRIMMED: Final = "".join(map(chr, range(33)))
"""Brokers strip these characters from requested states (Java's `trim`), but not from types."""

_LISTED: Final = {"protocolType": "protocol_type", "groupState": "state", "groupType": "type"}


# --- lists -------------------------------------------------------------------------------------------------


def answer_groups(request: Message, view: RequestContext) -> Message:
    """Answer ListGroups: the known groups, with an error while there may be others."""
    error = view.error or (view.error_of_outdated if view.outdated else Error.NONE)
    if view.error:
        return {"errorCode": error, "groups": []}
    columns = _visible(view)
    is_listed = view.snapshot.listed()
    is_listed = is_listed if view.visible_groups is None else is_listed[view.visible_groups]
    is_listed = np.logical_and.reduce([is_listed, *map(_is_writable, columns.values())])
    if states := request.get("statesFilter"):
        is_listed &= _is_one_of(columns["groupState"], [state.strip(_TRIMMED) for state in states])
    if types := request.get("typesFilter"):
        is_listed &= _is_one_of(columns["groupType"], types)
    chosen = from_mask(is_listed)
    rows = {name: pc.fill_null(columns[name].filter(chosen).combine_chunks(), "") for name in _LISTED}
    return {"errorCode": error, "groups": Columns({"groupId": columns["groupId"].filter(chosen), **rows})}


def _visible(view: RequestContext) -> Mapping[str, Any]:
    """Return the columns of ListGroups of all visible groups."""
    held = view.snapshot.groups
    columns = {"groupId": held.names.texts, **{name: held.rows[one] for name, one in _LISTED.items()}}
    if view.visible_groups is None:
        return columns
    is_visible = from_mask(view.visible_groups)
    return {name: column.filter(is_visible) for name, column in columns.items()}


def groups_weight(request: Message, view: RequestContext) -> int:
    """Return the greatest number of visible groups."""
    ranges = view.group_ranges
    return len(view.snapshot.groups) if ranges is None else sum(map(len, ranges))


def groups_gaps(request: Message, view: RequestContext) -> int:
    """Return the difference of the number of visible groups from their greatest number."""
    weight = groups_weight(request, view)
    return 0 if view.visible_groups is None else int(view.visible_groups.sum()) - weight


def groups_content(request: Message, view: RequestContext) -> int:
    return int(sum(column.nbytes for column in _visible(view).values()))


def _is_writable(column: pa.Array | pa.ChunkedArray) -> Mask:
    """Return which texts are short enough for the protocol (see `writable`)."""
    is_writable: Mask = numbers_or(pc.binary_length(column), 0) <= MAX_TEXT_BYTES
    return is_writable


def _is_one_of(column: pa.ChunkedArray, wanted: Sequence[str]) -> Any:
    """Return which texts are wanted; case-insensitive, as in brokers."""
    texts = from_texts([text.lower() for text in wanted])
    return to_mask(pc.fill_null(pc.is_in(pc.utf8_lower(column), value_set=texts), False))


# --- descriptions ------------------------------------------------------------------------------------------

_ELEMENTS_OF_MEMBER: Final = 8  # it has so many times the fields of a partition


def descriptions_weight(names: Sequence[str], view: RequestContext) -> int:
    """Return the approximate number of elements in a response that describes groups."""
    places = _places(names, view)
    members = sum(map(view.snapshot.groups.member_counts.item, places))
    return ELEMENTS_OF_GROUP * len(places) + _ELEMENTS_OF_MEMBER * members + len(names)


def descriptions_content(names: Sequence[str], view: RequestContext) -> int:
    """Return the approximate content of a response that describes groups; partitions take half as many bytes
    there as in the snapshot."""
    return sum(map(view.snapshot.groups.sizes.item, _places(names, view))) // 2 + sum(map(len, names))


def _places(names: Sequence[str], view: RequestContext) -> list[int]:
    return [place for place in view.group_places(once(names)) if place != NONE]


def answer_descriptions(request: Message, view: RequestContext) -> Message:
    """Answer DescribeGroups, which is about classic groups: others have the state Dead, from version 6 on
    with an error."""
    operations = view.operations(request.get("includeAuthorizedOperations", False))
    names = once(request["groups"])
    rows = zip(names, view.rows_of(names), strict=True)
    return {"groups": Each(len(names), (_classic(*row, operations, view) for row in rows))}


def answer_old_descriptions(request: Message, view: RequestContext) -> Message:
    """Answer DescribeGroups before version 6: an unknown group is no error."""
    operations = view.operations(request.get("includeAuthorizedOperations", False))
    there = {"errorCode": Error.NONE, "authorizedOperations": operations}
    groups: Each = answer_descriptions(request, view)["groups"]
    is_there = Error.GROUP_ID_NOT_FOUND
    described = (one if one["errorCode"] != is_there else {**one, **there} for one in groups)
    return {"groups": Each(len(groups), described)}


def _classic(group: str, row: Mapping[str, Any] | None, operations: int, view: RequestContext) -> Message:
    answer: Message = {
        "errorCode": Error.NONE,
        "groupId": group,
        "groupState": "",
        "protocolType": "",
        "protocolData": "",
        "members": [],
    }
    if error := view.error_of(group):
        return {**answer, "errorCode": error, "errorMessage": view.reason}
    if row is None or row["type"] != _CLASSIC:
        why = _why(group, row, _CLASSIC)
        not_found = {"errorCode": Error.GROUP_ID_NOT_FOUND, "errorMessage": why, "groupState": _DEAD}
        return {**answer, **not_found}
    is_stable = row["state"] == _STABLE
    return {
        **answer,
        "groupState": writable(row["state"]),
        "protocolType": writable(row["protocol_type"]),
        "protocolData": writable(row["protocol"]) if is_stable else "",
        "members": [classic_member(member, is_stable=is_stable) for member in row["members"] or ()],
        "authorizedOperations": operations,
    }


def answer_consumer_groups(request: Message, view: RequestContext) -> Message:
    """Answer ConsumerGroupDescribe, which is about groups of the consumer protocol only."""
    retention = view.snapshot.progress.retention
    default_assignor = None if retention is None else retention.default_assignor
    return _answer_assigned(request, view, _CONSUMER, consumer_member, default_assignor)


def answer_share_groups(request: Message, view: RequestContext) -> Message:
    """Answer ShareGroupDescribe. The assignor is chosen by the brokers' configuration, which is unknown."""
    return _answer_assigned(request, view, _SHARE, share_member, None)


def _answer_assigned(
    request: Message, view: RequestContext, kind: str, member: _MemberOf, default_assignor: str | None
) -> Message:
    """Describe groups of a type whose coordinator assigns partitions; groups of other types are an error."""
    operations = view.operations(request["includeAuthorizedOperations"])
    names = once(request["groupIds"])

    def described(group: str, row: Mapping[str, Any] | None) -> Message:
        is_invalid = not group and view.may_see_group(group)
        error = Error.INVALID_GROUP_ID if is_invalid else view.error_of(group)
        if error:
            return _not_assigned(group, error, view.reason)
        if row is None or row["type"] != kind:
            return _not_assigned(group, Error.GROUP_ID_NOT_FOUND, _why(group, row, kind))
        members = [member(one, view) for one in row["members"] or ()]
        if not all(_may_see(*topic, view) for topic in _assigned_topics(members)):
            return _not_assigned(group, Error.TOPIC_AUTHORIZATION_FAILED, _HIDDEN_TOPICS)
        return {
            "groupId": group,
            "groupState": writable(row["state"]),
            "groupEpoch": _number(row, "generation_or_epoch"),
            "assignmentEpoch": _number(row, "assignment_epoch"),
            "assignorName": writable(row["protocol"] or default_assignor),
            "members": members,
            "authorizedOperations": operations,
        }

    rows = zip(names, view.rows_of(names), strict=True)
    return {"groups": Each(len(names), (described(*row) for row in rows))}


def _may_see(name: str, topic_id: str, view: RequestContext) -> bool:
    """Return whether an assigned topic may be seen; one whose name is not known has its id for a name."""
    return view.may_see_topic(name) if name != topic_id else view.may_see_all_topics


def _assigned_topics(members: Sequence[Message]) -> set[tuple[str, str]]:
    """Return the names and ids of topics in the present and target assignments of members."""
    assignments = (one.get(name) for one in members for name in ("assignment", "targetAssignment"))
    return {
        (topic["topicName"], topic["topicId"])
        for one in assignments
        if one
        for topic in one["topicPartitions"]
    }


def _not_assigned(group: str, error: Error, why: str | None) -> Message:
    return {**_NOT_ASSIGNED, "errorCode": error, "errorMessage": why, "groupId": group}


def _why(group: str, row: Mapping[str, Any] | None, expected: str) -> str:
    found = "not found" if row is None else f"is not a {expected} group"
    return f"Group {short(group)} {found}."


_HIDDEN_TOPICS: Final = "The group has described topic(s) that the client is not authorized to describe."

_NOT_ASSIGNED: Final = {
    "groupState": "",
    "groupEpoch": 0,
    "assignmentEpoch": 0,
    "assignorName": "",
    "members": [],
}


def _number(row: Mapping[str, Any], name: str) -> int:
    value = row.get(name)
    return 0 if value is None else int(value)
