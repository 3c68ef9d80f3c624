"""Responses about the cluster: one node, the listener, and the topics with committed offsets or assigned
partitions.

A partition whose log end is unknown has no leader, and clients leave its log end out. Clients that cannot
handle this get a leader and the log end -1 (`list_offsets`).
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final

import numpy as np

from decoders.formats.java_values import ZERO_UUID
from decoders.messages.reader import Message
from streaming.common.arrays import Index, Mask
from streaming.serve.kafka.errors import Error
from streaming.serve.kafka.view import NODE_ID, Each, RequestContext, can_be_named, once
from streaming.serve.memory.names import NONE

_BROKERS, _CONTROLLERS = 1, 2  # endpoint types of DescribeCluster
_OTHER_ENDPOINT: Final = (
    "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
)

_INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
_MOST_UNSURE: Final = 1_000_000  # elements, for which a response may still be written
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")

_GAPS: Final = 1_000
"""The most unnamed partitions to show of a topic; with more, only named ones are shown, because the log may
contain any partition number."""

MOST_PARTITIONS: Final = 2_000
"""The most partitions in a response to DescribeTopicPartitions, as of brokers."""

_FIRST_PARTITION: Final = -(2**31)  # the log may hold any int32

_GROUP, _TRANSACTION = 0, 1  # key types of FindCoordinator
_HIDDEN_GROUP: Final = {
    "errorCode": Error.GROUP_AUTHORIZATION_FAILED,
    "errorMessage": "Group authorization failed.",
    "nodeId": -1,
    "host": "",
    "port": -1,
}
_ONLY_GROUPS: Final = "Only groups have a coordinator here: this listener answers from tables."


# --- brokers -----------------------------------------------------------------------------------------------


def answer_cluster(request: Message, view: RequestContext) -> Message:
    """Answer DescribeCluster."""
    kind = request.get("endpointType", _BROKERS)
    if kind != _BROKERS:
        is_known = kind == _CONTROLLERS
        return {
            "errorCode": Error.MISMATCHED_ENDPOINT_TYPE if is_known else Error.UNSUPPORTED_ENDPOINT_TYPE,
            "errorMessage": _OTHER_ENDPOINT if is_known else f"Unsupported endpoint type {kind}",
            "endpointType": _BROKERS,
            "clusterId": "",
            "controllerId": -1,
            "brokers": [],
        }
    return {
        "endpointType": _BROKERS,
        "clusterId": view.cluster_id,
        "controllerId": NODE_ID,
        "brokers": [{"brokerId": NODE_ID, **_address(view)}],
        "clusterAuthorizedOperations": view.operations(request["includeClusterAuthorizedOperations"]),
    }


def answer_coordinators(request: Message, view: RequestContext) -> Message:
    """Answer FindCoordinator: the listener coordinates every visible group, and nothing else."""
    kind = request.get("keyType", _GROUP)
    coordinator = _coordinator(kind, view)

    def of(key: str) -> Message:
        return coordinator if kind != _GROUP or view.may_see_group(key) else _HIDDEN_GROUP

    if "coordinatorKeys" not in request:
        return of(request["key"])
    return {"coordinators": [{"key": key, **of(key)} for key in once(request["coordinatorKeys"])]}


def coordinators_content(request: Message, view: RequestContext) -> int:
    keys = request.get("coordinatorKeys", ())
    return sum(map(len, keys)) + (len(_ONLY_GROUPS) + len(view.address.host)) * len(keys)


def _coordinator(kind: int, view: RequestContext) -> Message:
    if kind == _GROUP:
        return {"errorMessage": "", "nodeId": NODE_ID, **_address(view)}
    is_transaction = kind == _TRANSACTION
    error = Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if is_transaction else Error.INVALID_REQUEST
    return {"errorCode": error, "errorMessage": _ONLY_GROUPS, "nodeId": -1, "host": "", "port": -1}


def _address(view: RequestContext) -> Message:
    return {"host": view.address.host, "port": view.address.port}


# --- topics ------------------------------------------------------------------------------------------------


def answer_metadata(request: Message, view: RequestContext) -> Message:
    # until something was read, a request for all topics gets none that could carry the error
    is_unread = request["topics"] is None and not view.snapshot.progress.partitions
    wants_operations = request.get("includeClusterAuthorizedOperations", False)
    return {
        "brokers": [{"nodeId": NODE_ID, **_address(view)}],
        "clusterId": view.cluster_id,
        "controllerId": NODE_ID,
        "topics": _topics(request, view),
        "clusterAuthorizedOperations": view.operations(wants_operations),
        "errorCode": view.error_of_unknown_topic if is_unread else Error.NONE,
    }


def _topics(request: Message, view: RequestContext) -> Each:
    wants_operations = request.get("includeTopicAuthorizedOperations", False)
    if request["topics"] is None:
        places = [place for place in _visible_places(view) if _has_partitions(place, view)]
        count, topics = len(places), (_topic(place, view) for place in places)
    else:
        asked = _distinct(request["topics"])
        count, topics = len(asked), (_asked_topic(one, view) for one in asked)
    shown = (
        {**topic, "topicAuthorizedOperations": view.operations(wants_operations and not topic["errorCode"])}
        for topic in topics
    )
    return Each(count, shown)


def _visible_places(view: RequestContext) -> Sequence[int]:
    """Return the places of all visible topics."""
    if view.visible_topics is None:
        return range(len(view.snapshot.topics))
    places: list[int] = np.flatnonzero(view.visible_topics).tolist()
    return places


def _distinct(asked: list[Message]) -> list[Message]:
    """Return the distinct topics of a request, as brokers do: if any has an id, only those with ids."""
    by_id = [{**one, "name": None} for one in asked if one.get("topicId", ZERO_UUID) != ZERO_UUID]
    return list({(one["name"], one.get("topicId", "")): one for one in by_id or asked}.values())


def answer_oldest_metadata(request: Message, view: RequestContext) -> Message:
    """Answer Metadata version 0, where an empty list requests all topics."""
    return answer_metadata({"topics": request["topics"] or None}, view)


def answer_metadata_by_names(request: Message, view: RequestContext) -> Message:
    """Answer Metadata versions 10 and 11: requests may contain ids, but topics are looked up by name only."""
    asked = request["topics"] or ()
    if all(one["name"] is not None and one["topicId"] == ZERO_UUID for one in asked):
        return answer_metadata(request, view)
    refused = {"errorCode": Error.INVALID_REQUEST, "partitions": []}
    topics = [{**refused, "name": one["name"] or "", "topicId": one["topicId"]} for one in asked]
    return {"brokers": [], "topics": topics}


def metadata_weight(request: Message, view: RequestContext) -> int:
    """Return the greatest number of topics and named partitions in a response to Metadata. For all visible
    topics it may be less than a bound that is far too high: `metadata_gaps` then adds the difference."""
    topics = view.snapshot.topics
    if request["topics"] is None:
        ranges = view.topic_ranges
        if ranges is None:
            return len(topics.topic)
        count = sum(int(topics.starts[one.stop] - topics.starts[one.start]) for one in ranges)
        return min(count, _MOST_UNSURE)
    if not request["topics"]:
        return 0
    places = np.array(_places(request["topics"], view), np.int64)
    return len(request["topics"]) + int((topics.starts[places + 1] - topics.starts[places]).sum())


def metadata_gaps(request: Message, view: RequestContext) -> int:
    """Return the greatest number of unnamed partitions in a response to Metadata; for all visible topics,
    plus the number of named ones that the weight lacks, or minus those that it has too many."""
    topics = view.snapshot.topics
    asked = _visible_places(view) if request["topics"] is None else _places(request["topics"], view)
    places = np.array(asked, np.int64)
    starts, stops = topics.starts[places], topics.starts[places + 1]
    highest = np.append(topics.partition, NONE)[np.where(starts < stops, stops - 1, -1)]
    gaps = sum(len(_gaps(_named(place, view))) for place in places[highest >= stops - starts].tolist())
    if request["topics"] is not None:
        return gaps
    return gaps + int((stops - starts).sum()) - metadata_weight(request, view)


def metadata_content(request: Message, view: RequestContext) -> int:
    names = view.snapshot.topics.names
    if request["topics"] is None:
        return int(names.lengths[_visible_places(view)].sum())
    asked = sum(len(one["name"] or "") for one in request["topics"])
    return asked + int(names.lengths[_places(request["topics"], view)].sum())


def _places(asked: list[Message], view: RequestContext) -> list[int]:
    """Return the places of the requested topics that are known."""
    topics = view.snapshot.topics
    names = (
        topics.name_of(one.get("topicId", "")) if one["name"] is None else one["name"]
        for one in _distinct(asked)
    )
    places = (None if name is None else view.topic_place(name) for name in names)
    return [place for place in places if place is not None]


def oldest_metadata_weight(request: Message, view: RequestContext) -> int:
    return metadata_weight({"topics": request["topics"] or None}, view)


def oldest_metadata_gaps(request: Message, view: RequestContext) -> int:
    return metadata_gaps({"topics": request["topics"] or None}, view)


def oldest_metadata_content(request: Message, view: RequestContext) -> int:
    return metadata_content({"topics": request["topics"] or None}, view)


def answer_topic_partitions(request: Message, view: RequestContext) -> Message:
    """Answer DescribeTopicPartitions: topics ordered by name, in pages; each page ends with the errors of
    hidden topics, as those of brokers do."""
    asked, cursor = {topic["name"] for topic in request["topics"]}, request["cursor"]
    first_topic, first_partition = (
        ("", 0) if cursor is None else (cursor["topicName"], cursor["partitionIndex"])
    )
    if first_partition < 0 or (cursor is not None and asked and first_topic not in asked):
        refused = {"errorCode": Error.INVALID_REQUEST, "partitions": []}
        return {"topics": [{**refused, "name": topic["name"]} for topic in request["topics"]]}
    names = sorted(name for name in asked if name >= first_topic)
    visible = filter(view.may_see_topic, names) if asked else _names(first_topic, view)
    most = max(min(request["responsePartitionLimit"], MOST_PARTITIONS), 1)
    topics, next_cursor = _page(visible, first_topic, first_partition, most, view)
    hidden = [_hidden_topic(name) for name in names if not view.may_see_topic(name)]
    return {"topics": topics + hidden, "nextCursor": next_cursor}


def _page(
    names: Iterable[str], first_topic: str, first_partition: int, left: int, view: RequestContext
) -> tuple[list[Message], Message | None]:
    """Return topics with `left` partitions, and where the next page begins (None: nowhere)."""
    topics: list[Message] = []
    for name in names:
        if left <= 0:
            return topics, {"topicName": name, "partitionIndex": 0}
        topic = _topic_of(name, view, begin=first_partition if name == first_topic else 0, most=left + 1)
        partitions = topic["partitions"]
        topic["partitions"] = partitions[:left]
        topic["topicAuthorizedOperations"] = view.operations(not topic["errorCode"])
        topics.append(topic)
        if len(partitions) > left:
            return topics, {"topicName": name, "partitionIndex": partitions[left]["partitionIndex"]}
        left -= len(partitions)
    return topics, None


def topic_partitions_weight(request: Message, view: RequestContext) -> int:
    """Return the greatest number of topics and partitions in a response to DescribeTopicPartitions, plus all
    partitions of the requested topics, which must be searched."""
    topics = view.snapshot.topics
    places = {view.topic_place(topic["name"]) for topic in request["topics"]} - {None}
    held = sum(int(topics.starts[place + 1] - topics.starts[place]) for place in places if place is not None)
    return MOST_PARTITIONS + len(request["topics"]) + held


def topic_partitions_content(request: Message, view: RequestContext) -> int:
    if request["topics"]:
        return sum(len(topic["name"]) for topic in request["topics"])
    lengths = view.snapshot.topics.names.lengths[_visible_places(view)]
    return int(lengths.sum() * min(MOST_PARTITIONS / max(len(lengths), 1), 1))


def _names(first: str, view: RequestContext) -> Iterator[str]:
    """Yield the names of visible topics with partitions from `first` on, in order."""
    names, places = view.snapshot.topics.names, _visible_places(view)
    start = bisect_left(places, first, key=names.name)
    return (names.name(place) for place in places[start:] if _has_partitions(place, view))


def _asked_topic(asked: Message, view: RequestContext) -> Message:
    """Return a topic requested by name or, without one, by id."""
    name, topic_id = asked["name"], asked.get("topicId", ZERO_UUID)
    if name is not None:
        return _topic_of(name, view)
    place = view.snapshot.topics.place_of_id(topic_id)
    if place is None or not _has_partitions(place, view):
        error = Error.UNKNOWN_TOPIC_ID if view.is_whole else view.error_of_missing
        return {"errorCode": error, "name": None, "topicId": topic_id, "partitions": []}
    if not view.may_see_topic(view.snapshot.topics.names.name(place)):
        return {**_hidden_topic(None), "topicId": topic_id}
    return _topic(place, view)


def _hidden_topic(name: str | None) -> Message:
    return {"errorCode": Error.TOPIC_AUTHORIZATION_FAILED, "name": name, "partitions": []}


def _topic_of(
    name: str, view: RequestContext, *, begin: int = _FIRST_PARTITION, most: int | None = None
) -> Message:
    """Return a topic requested by name, with at most `most` partitions from number `begin` on."""
    if not view.may_see_topic(name):
        return _hidden_topic(name)
    place = present_topic(name, view)
    if place is not None:
        return _topic(place, view, begin, most)
    error = view.error_of_unknown_topic if is_topic_name(name) else Error.INVALID_TOPIC_EXCEPTION
    return {"errorCode": error, "name": name, "isInternal": name in _INTERNAL, "partitions": []}


def is_topic_name(name: str) -> bool:
    """Return whether Kafka accepts a topic name."""
    return _NAME.fullmatch(name) is not None and name not in {".", ".."}


def _has_partitions(topic: int, view: RequestContext) -> bool:
    return bool(view.snapshot.present_topics[topic] and can_be_named(topic, view))


def _topic(
    place: int, view: RequestContext, begin: int = _FIRST_PARTITION, most: int | None = None
) -> Message:
    topics = view.snapshot.topics
    name = topics.names.name(place)
    return {
        "errorCode": Error.NONE,
        "name": name,
        "topicId": topics.id_of(place) or ZERO_UUID,
        "isInternal": name in _INTERNAL,
        "partitions": _partitions(place, view, begin, most),
    }


_NODES: Final = [NODE_ID]


def _partitions(topic: int, view: RequestContext, begin: int, most: int | None) -> list[dict[str, Any]]:
    """Return the partitions of the topic at a place: the named ones, and the gaps before them."""
    snapshot = view.snapshot
    places = _places_of(topic, view)
    named = snapshot.topics.partition[places]
    is_there = _is_there(topic, view)
    numbers = list(islice((one for one in _with_gaps(named[is_there]) if one >= begin), most))
    is_there &= (named >= numbers[0]) & (named <= numbers[-1]) if numbers else False
    has_leader = view.log_ends(places.start, places.stop) != NONE
    if view.client.needs_leaders:
        has_leader[:] = True
    known = dict(zip(named[is_there].tolist(), has_leader[is_there].tolist(), strict=True))
    return [
        {
            "partitionIndex": partition,
            "leaderId": NODE_ID if known.get(partition, view.client.needs_leaders) else -1,
            "replicaNodes": _NODES,
            "isrNodes": _NODES,
            "eligibleLeaderReplicas": [],
            "lastKnownElr": [],
        }
        for partition in numbers
    ]


def _is_there(topic: int, view: RequestContext) -> Mask:
    """Return which named partitions of the topic at a place still exist and fit into a response."""
    is_there: Mask = view.snapshot.are_present[_places_of(topic, view)] & can_be_named(topic, view)
    return is_there


def present_topic(name: str, view: RequestContext) -> int | None:
    """Return the place of a topic that still exists; None: there is none, or it is hidden."""
    place = view.topic_place(name)
    return place if place is not None and _has_partitions(place, view) else None


def present_partition(topic: str, partition: int, view: RequestContext) -> int | None:
    """Return the place of a named topic partition that still exists; None: there is none, or it is hidden."""
    is_there = present_topic(topic, view) is not None
    place = view.snapshot.topics.place(topic, partition) if is_there else None
    return place if place is not None and view.snapshot.are_present[place] else None


def gaps_of(topic: str, view: RequestContext) -> range:
    """Return the partitions of a topic that are shown even if unnamed, because a higher one is named."""
    place = present_topic(topic, view)
    return range(0) if place is None else _gaps(_named(place, view))


def _with_gaps(named: Index) -> Iterable[int]:
    """Return sorted partitions with the gaps between them from 0 on, unless there are many."""
    gaps = _gaps(named)
    return chain(named[named < 0].tolist(), gaps) if gaps else named.tolist()


def _gaps(named: Index) -> range:
    """Return the range from 0 to the highest of sorted partitions; empty if there are many gaps."""
    highest = int(named[-1]) if len(named) else -1
    return range(highest + 1) if highest < len(named) + _GAPS else range(0)


def _named(topic: int, view: RequestContext) -> Index:
    """Return the named partitions of the topic at a place that still exist."""
    return view.snapshot.topics.partition[_places_of(topic, view)][_is_there(topic, view)]


def _places_of(topic: int, view: RequestContext) -> slice:
    """Return the places of the named partitions of the topic at a place."""
    return slice(*view.snapshot.topics.starts[topic : topic + 2].tolist())
