"""Responses to OffsetFetch: committed offsets.

A commit that could not be read is unknown, and an older one would be wrong: a request for that partition gets
an error, a request for all partitions leaves it out. Pending offsets of open transactions are unknown as
well: a request for stable offsets gets the last committed ones.

With topic ids (version 10), an offset belongs to the present id of its topic, unless it was committed under
another id. As with brokers, a request for all partitions leaves out deleted topics.
"""

from base64 import urlsafe_b64decode
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from decoders.formats.java_values import MAX_TEXT_BYTES
from decoders.messages import Columns
from decoders.messages.reader import Message
from streaming.common.arrays import Index, Mask, begins_run, from_numbers, from_texts, numbers_or
from streaming.serve.kafka.errors import Error
from streaming.serve.kafka.limits import ELEMENTS_OF_GROUP
from streaming.serve.kafka.view import Each, RequestContext, can_be_shown, writable
from streaming.serve.memory.names import NONE, Int32
from streaming.serve.memory.offsets import OffsetColumns

_AT_A_TIME: Final = 65_536  # offsets to process at a time, before other threads may run
_FEW_BYTES: Final = 16 * 1024
_NOTHING: Final = {"committedOffset": NONE, "committedLeaderEpoch": NONE, "metadata": ""}


def answer_offsets(request: Message, view: RequestContext) -> Message:
    """Answer OffsetFetch: of one group (to version 7), or of many."""
    if "groups" in request:
        asked = _asked(request)
        return {"groups": Each(len(asked), (_of_group(group, view) for group in asked))}
    return _of_group(request, view)


def answer_offsets_by_ids(request: Message, view: RequestContext) -> Message:
    """Answer OffsetFetch version 10, which names topics by id."""
    asked = _asked(_with_names(request, view))
    return {"groups": Each(len(asked), (_of_group(group, view, by_ids=True) for group in asked))}


def _with_names(request: Message, view: RequestContext) -> Message:
    """Add the names of the requested topics to a request with ids; None: there is no topic with the id."""
    names = view.snapshot.topics.names

    def with_name(topic: Message) -> Message:
        place = view.snapshot.topics.place_of_id(topic["topicId"])
        return {**topic, "name": None if place is None else names.name(place)}

    def with_names(group: Message) -> Message:
        return group if group["topics"] is None else {**group, "topics": [*map(with_name, group["topics"])]}

    return {**request, "groups": [*map(with_names, request["groups"])]}


def _asked(request: Message) -> list[Message]:
    """Return the requested groups; a repeated request for all offsets of a group counts once."""
    groups: list[Message] = request.get("groups", [request])
    if len(groups) == 1:
        return groups
    if len({group["groupId"] for group in groups}) == len(groups):
        return groups
    seen = {_who(group) if group["topics"] is None else number: group for number, group in enumerate(groups)}
    return list(seen.values())


def _who(asked: Message) -> tuple[str, str | None, int]:
    return asked["groupId"], asked.get("memberId"), asked.get("memberEpoch", NONE)


def answer_oldest_offsets(request: Message, view: RequestContext) -> Message:
    """Answer OffsetFetch version 1, which has no errors except those of partitions."""
    answer = _of_group(request, view)
    if not answer["errorCode"]:
        return answer
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": [
                    _partition(number, answer["errorCode"]) for number in topic["partitionIndexes"]
                ],
            }
            for topic in request["topics"]
        ]
    }


def _of_group(asked: Message, view: RequestContext, *, by_ids: bool = False) -> Message:
    """Return the result of one group; an unknown group has committed nothing."""
    group = asked["groupId"]
    error = view.error_of(group) or _error_of_member(asked, view)
    if error:
        return {"groupId": group, "topics": [], "errorCode": error}
    columns = view.snapshot.offsets_of(group)
    is_all = asked["topics"] is None
    topics = _all(columns, view, by_ids) if is_all else _some(asked["topics"], columns, view, by_ids)
    return {"groupId": group, "topics": topics, "errorCode": Error.NONE}


def _of_present_ids(columns: OffsetColumns, view: RequestContext) -> OffsetColumns:
    return columns.part_of(np.flatnonzero(_is_of_present_id(columns, slice(None), view)))


def _is_of_present_id(columns: OffsetColumns, rows: Index | slice, view: RequestContext) -> Mask:
    """Return which offsets belong to the present id of their topic. An unreadable commit may have any id."""
    topics = view.snapshot.topics
    present, own = topics.ends.topic_id[topics.topic[columns.place[rows]]], columns.topic_id[rows]
    is_unreadable = columns.unreadable_source_offset[rows] != NONE
    is_present: Mask = (present != NONE) & ((own == present) | (own == NONE) | is_unreadable)
    return is_present


def _all(columns: OffsetColumns, view: RequestContext, by_ids: bool) -> list[Message]:
    columns = _of_present_ids(columns, view) if by_ids else columns
    topics = view.snapshot.topics
    of_topics = topics.topic[columns.place]
    names = topics.names
    answered: list[Message] = []
    last = NONE
    is_shown_of = can_be_shown(of_topics, view).tolist()
    rows = zip(of_topics.tolist(), is_shown_of, _partitions(columns, view), strict=True)
    for topic, is_shown, partition in rows:
        if partition["errorCode"] or not is_shown:
            continue
        if topic != last:
            of_topic = {"topicId": topics.id_of(topic)} if by_ids else {"name": names.name(topic)}
            answered.append({**of_topic, "partitions": []})
            last = topic
        answered[-1]["partitions"].append(partition)
    return answered


def _some(
    asked: Sequence[Message], columns: OffsetColumns, view: RequestContext, by_ids: bool
) -> list[Message]:
    """Return the requested partitions, in this order; a topic without a name and a hidden one are errors."""
    requested = _numbers_by_topic(asked)
    errors = {name: _error_of_topic(name, view) for name in requested}
    held = {name: _held(name, numbers, columns, view, by_ids) for name, numbers in requested.items()}
    return [
        {
            **topic,
            "partitions": [
                held[name].get(one) or _partition(one, errors[name]) for one in topic["partitionIndexes"]
            ],
        }
        for topic in asked
        for name in [topic["name"]]
    ]


def _numbers_by_topic(asked: Sequence[Message]) -> Mapping[str | None, list[int]]:
    """Return the requested partitions by topic, with repetitions: a topic may come many times."""
    requested = defaultdict[str | None, list[int]](list)
    for topic in asked:
        requested[topic["name"]] += topic["partitionIndexes"]
    return requested


def _error_of_topic(name: str | None, view: RequestContext) -> Error:
    if name is None:
        return Error.UNKNOWN_TOPIC_ID
    return Error.NONE if view.may_see_topic(name) else Error.TOPIC_AUTHORIZATION_FAILED


def _held(
    topic: str | None, numbers: Sequence[int], columns: OffsetColumns, view: RequestContext, by_ids: bool
) -> Mapping[int, Message]:
    """Return the results of those partitions of a topic that the group has committed, by number."""
    rows = _rows_in_topic(topic, numbers, columns, view)
    if not len(rows):
        return {}
    held = columns.part_of(rows)
    held = _of_present_ids(held, view) if by_ids else held
    return {one["partitionIndex"]: one for one in _partitions(held, view)}


def _rows_in_topic(
    topic: str | None, numbers: Sequence[int], columns: OffsetColumns, view: RequestContext
) -> Index:
    """Return the rows of partitions of a topic in the offsets of a group, as far as there are any, with
    repetitions; None: an unknown topic. However many offsets the group has, this takes little time."""
    place = None if topic is None else view.topic_place(topic)
    if place is None:
        return np.empty(0, np.int64)
    topics = view.snapshot.topics
    start, stop = topics.starts[place : place + 2].tolist()
    places = start + _found(topics.partition[start:stop], np.array(numbers, np.int64))
    return _found(columns.place, places)


def _found(ascending: Index | Int32, numbers: Index) -> Index:
    """Return the places of n numbers in an ascending column, without the numbers that it lacks."""
    if not len(ascending):
        return np.empty(0, np.int64)
    wanted = numbers.astype(ascending.dtype)  # else all of the column would be cast
    places = np.minimum(np.searchsorted(ascending, wanted), len(ascending) - 1)
    found: Index = places[ascending[places] == wanted]
    return found


def _partitions(columns: OffsetColumns, view: RequestContext) -> Iterable[Message]:
    """Return the results of committed offsets; unreadable ones are errors."""
    has_texts = columns.metadata_slot.any()  # false in the common case
    rows = zip(
        view.snapshot.topics.partition[columns.place].tolist(),
        columns.committed_offset.tolist(),
        columns.leader_epoch.tolist(),
        [writable(one.decode()) for one in columns.metadata.to_pylist()] if has_texts else repeat(""),
        (columns.unreadable_source_offset == NONE).tolist(),
        strict=False,
    )
    return [
        {
            "partitionIndex": number,
            "committedOffset": offset,
            "committedLeaderEpoch": epoch,
            "metadata": metadata,
            "errorCode": 0,
        }
        if is_known
        else _partition(number, Error.UNKNOWN_SERVER_ERROR)
        for number, offset, epoch, metadata, is_known in rows
    ]


def _partition(number: int, error: int = Error.NONE) -> Message:
    return {"partitionIndex": number, "errorCode": error, **_NOTHING}


# --- requests of members -----------------------------------------------------------------------------------


def _error_of_member(asked: Message, view: RequestContext) -> Error:
    """Check the member in a request: a group with member epochs answers no unknown member."""
    if not _is_member(asked):
        return Error.NONE
    row = view.snapshot.row_of(asked["groupId"])
    if row is None or row["type"] not in {"consumer", "streams"}:
        return Error.NONE
    members = {member["member_id"]: member for member in row["members"] or ()}
    return _error_of_epoch(members.get(asked.get("memberId")), asked.get("memberEpoch", NONE))


def _is_member(asked: Message) -> bool:
    return asked.get("memberId") is not None or int(asked.get("memberEpoch", NONE)) >= 0


def _error_of_epoch(member: Mapping[str, Any] | None, epoch: int) -> Error:
    if member is None:
        return Error.UNKNOWN_MEMBER_ID
    if member.get("member_epoch") in {None, epoch}:
        return Error.NONE
    return Error.ILLEGAL_GENERATION if member.get("is_classic") else Error.STALE_MEMBER_EPOCH


# --- many at once ------------------------------------------------------------------------------------------


def offsets_weight(request: Message, view: RequestContext) -> int:
    asked, starts = _asked(request), view.snapshot.offsets.starts
    groups = view.group_places([group["groupId"] for group in asked])
    about = zip(asked, groups, strict=True)
    places = [place for group, place in about if place != NONE and group["topics"] is None]
    if len(places) <= 1:  # the common case, much faster
        held = sum(int(starts[place + 1] - starts[place]) for place in places)
    else:
        held = int((starts[np.add(places, 1)] - starts[places]).sum())
    special = zip(asked, groups, strict=True)
    return len(asked) + held + sum(_more(*one, view) for one in special if not _is_plain(one[0]))


def _is_plain(asked: Message) -> bool:
    """Return whether all offsets of a group are requested, and not by a member."""
    return asked["topics"] is None and not _is_member(asked)


def _more(asked: Message, place: int, view: RequestContext) -> int:
    """Return the number of requested topics and partitions, and of elements that checking a member takes."""
    topics = (
        0 if asked["topics"] is None else sum(1 + len(one["partitionIndexes"]) for one in asked["topics"])
    )
    if place == NONE or not _is_member(asked):
        return topics
    return topics + ELEMENTS_OF_GROUP + int(view.snapshot.groups.member_counts[place])


def offsets_content(request: Message, view: RequestContext) -> int:
    asked = _asked(request)
    if len(asked) == 1:  # the common case, much faster
        longest = view.snapshot.offsets.columns.texts.longest + view.snapshot.topics.names.longest
        if (most := longest * offsets_weight(request, view)) <= _FEW_BYTES:
            return most
    whole = [group["groupId"] for group in asked if group["topics"] is None]
    places = np.array(view.group_places(whole), np.int64)
    parts = (_content_of_some(group, view) for group in asked if group["topics"] is not None)
    return sum(map(len, whole)) + _content_of_groups(places, view) + sum(parts)


def content_by_ids(request: Message, view: RequestContext) -> int:
    return offsets_content(_with_names(request, view), view)


def _content_of_groups(groups: Index, view: RequestContext) -> int:
    """Return the bytes of metadata and topic names of the groups at n places (`NONE`: no group)."""
    columns, topics = view.snapshot.offsets.columns, view.snapshot.topics
    rows, of_groups = _rows_of(groups, view)
    if view.visible_topics is not None:
        is_visible = view.visible_topics[topics.topic[columns.place[rows]]]
        rows, of_groups = rows[is_visible], of_groups[is_visible]
    size = 0
    for start in range(0, len(rows), _AT_A_TIME):
        part = slice(start, start + _AT_A_TIME)
        slots, of_topics = columns.metadata_slot[rows[part]], topics.topic[columns.place[rows[part]]]
        is_first = begins_run(of_topics, of_groups[part])
        size += int(topics.names.lengths[of_topics[is_first]].sum())
        size += int(columns.texts.lengths[slots].sum()) if slots.any() else 0
    return size


def _content_of_some(asked: Message, view: RequestContext) -> int:
    """Return the bytes of names and metadata in the result of some partitions of a group."""
    place = view.group_place(asked["groupId"])
    held = 0 if place is None else _content_of_topics(asked["topics"], place, view)
    return len(asked["groupId"]) + sum(len(topic["name"] or "") for topic in asked["topics"]) + held


def _content_of_topics(asked: Sequence[Message], group: int, view: RequestContext) -> int:
    """Return the bytes of metadata of the requested partitions, with repetitions."""
    columns = view.snapshot.offsets.of(group)
    if not columns.texts.longest:  # the common case
        return 0
    rows = (_rows_in_topic(*one, columns, view) for one in _numbers_by_topic(asked).items())
    return sum(int(columns.texts.lengths[columns.metadata_slot[one]].sum()) for one in rows)


def wants_all(request: Message) -> bool:
    """Return whether a request is for all offsets of groups and not from a member."""
    groups = request.get("groups", [request])
    return all(map(_is_plain, groups))


def answer_many_offsets_by_ids(request: Message, view: RequestContext) -> Message:
    """Answer OffsetFetch version 10 as `answer_many_offsets` does."""
    return answer_many_offsets(request, view, by_ids=True)


def answer_many_offsets(request: Message, view: RequestContext, *, by_ids: bool = False) -> Message:
    """Answer OffsetFetch as columns, for a request for all offsets (`wants_all`)."""
    names = [group["groupId"] for group in _asked(request)]
    errors = np.array([view.error_of(name) for name in names], np.int16)
    places = np.where(errors == Error.NONE, np.array(view.group_places(names), np.int64), NONE)
    topics, of_groups = _topics_of(places, view, by_ids)
    if "groups" not in request:
        return {"topics": Columns(topics.fields), "errorCode": int(errors[0])}
    counts = np.bincount(of_groups, minlength=len(names))
    topics = Columns(topics.fields, counts)
    return {"groups": Columns({"groupId": from_texts(names), "topics": topics, "errorCode": errors})}


def _topics_of(groups: Index, view: RequestContext, by_ids: bool) -> tuple[Columns, Index]:
    """Return the topics of the groups at n places (`NONE`: no group), group by group, and the index of the
    group of each."""
    offsets, topics = view.snapshot.offsets, view.snapshot.topics
    rows, of_groups = _rows_of(groups, view)
    is_known = offsets.columns.unreadable_source_offset[rows] == NONE
    is_known &= can_be_shown(topics.topic[offsets.columns.place[rows]], view)
    if by_ids:
        is_known &= _is_of_present_id(offsets.columns, rows, view)
    rows, of_groups = rows[is_known], of_groups[is_known]
    places = offsets.columns.place[rows]
    of_topics = topics.topic[places]
    first = np.flatnonzero(begins_run(of_topics, of_groups))
    columns = offsets.columns
    partitions = {
        "partitionIndex": topics.partition[places],
        "committedOffset": columns.committed_offset[rows],
        "committedLeaderEpoch": columns.leader_epoch[rows],
        "metadata": _metadata(columns, rows),
        "errorCode": np.zeros(len(rows), np.int16),
    }
    held = Columns(partitions, np.diff(np.append(first, len(rows))))
    of_first = _ids_of if by_ids else _names_of
    return Columns({**of_first(of_topics[first], view), "partitions": held}), of_groups[first]


def _names_of(topics: Index, view: RequestContext) -> dict[str, pa.Array]:
    return {"name": view.snapshot.topics.names.texts.take(from_numbers(topics))}


def _ids_of(topics: Index, view: RequestContext) -> dict[str, NDArray[np.void]]:
    """Return the ids of n topics (places), which have one."""
    distinct, number = np.unique(topics, return_inverse=True)
    ids = [urlsafe_b64decode(f"{view.snapshot.topics.id_of(topic)}==") for topic in distinct.tolist()]
    return {"topicId": np.array(ids, "V16")[number]}


def _rows_of(groups: Index, view: RequestContext) -> tuple[Index, Index]:
    """Return the rows of the offsets of the groups at n places (`NONE`: no group), and the index of the group
    of each."""
    starts = view.snapshot.offsets.starts
    begins = np.where(groups == NONE, 0, starts[groups])
    counts = np.where(groups == NONE, 0, starts[groups + 1] - begins)
    of_groups = np.repeat(np.arange(len(groups)), counts)
    return np.arange(len(of_groups)) + np.repeat(begins - (np.cumsum(counts) - counts), counts), of_groups


def _metadata(columns: OffsetColumns, rows: Index) -> pa.LargeBinaryArray:
    """Return the metadata of rows; empty where it is too long for the protocol (see `writable`)."""
    slots = columns.metadata_slot[rows]
    texts = columns.texts.at(slots)
    is_long = numbers_or(pc.binary_length(texts), 0) > MAX_TEXT_BYTES
    return columns.texts.at(np.where(is_long, 0, slots)) if is_long.any() else texts
