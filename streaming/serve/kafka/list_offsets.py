"""Responses to ListOffsets: log start and end offsets from samples.

A log end is the newest sample or, if larger, the largest commit to the partition since then.

At a timestamp it is the log end of the last sample up to it: a reader that begins there skips no record that
was appended since. The response has the moment of that sample. What is not known is an error: clients would
take -1 for an empty log.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from decoders.messages.reader import Message
from streaming.serve.kafka.cluster import gaps_of, present_partition, present_topic
from streaming.serve.kafka.errors import Error
from streaming.serve.kafka.view import PastEnd, RequestContext
from streaming.serve.memory.names import NONE

_LATEST: Final = -1
_EARLIEST: Final = -2

MOST_MOMENTS: Final = 10
"""The most timestamps in a request: each is a question to the tables."""


def reads_tables(request: Message) -> bool:
    """Return whether a request has timestamps, whose log ends are not in the snapshot."""
    return any(one["timestamp"] >= 0 for topic in request["topics"] for one in topic["partitions"])


def answer_log_ends(request: Message, view: RequestContext) -> Message:
    """Answer ListOffsets: a visible topic that is requested twice gets one result, as with brokers."""
    asked: dict[str, list[Message]] = {}
    hidden = []
    for topic in request["topics"]:
        if view.may_see_topic(topic["name"]):
            asked.setdefault(topic["name"], []).extend(topic["partitions"])
        else:
            hidden.append(_hidden(topic))
    past = _past_ends(asked, view)
    visible = [
        {"name": name, "partitions": _partitions(name, partitions, past, view)}
        for name, partitions in asked.items()
        if partitions
    ]
    return {"topics": visible + hidden}


def _hidden(topic: Message) -> Message:
    error = {"errorCode": Error.TOPIC_AUTHORIZATION_FAILED}
    partitions = [{"partitionIndex": one["partitionIndex"], **error} for one in topic["partitions"]]
    return {"name": topic["name"], "partitions": partitions}


def _past_ends(
    asked: Mapping[str, list[Message]], view: RequestContext
) -> Mapping[tuple[str, int], PastEnd | Error]:
    """Read the log ends at the requested timestamps, by topic and partition; an error where there is none."""
    wanted = [
        (name, one) for name, partitions in asked.items() for one in partitions if one["timestamp"] >= 0
    ]
    topics: dict[int, set[str]] = {}
    for name, one in wanted:
        if present_topic(name, view) is not None:
            topics.setdefault(_moment(one, view), set()).add(name)
    if len(topics) > MOST_MOMENTS:
        return {(name, one["partitionIndex"]): Error.INVALID_REQUEST for name, one in wanted}
    read = {moment: view.past_ends(names, moment) for moment, names in topics.items()}
    found: dict[tuple[str, int], PastEnd | Error] = {}
    for name, one in wanted:
        ends, key = read.get(_moment(one, view), {}), (name, one["partitionIndex"])
        found[key] = Error.UNKNOWN_SERVER_ERROR if ends is None else ends.get(key, Error.UNSUPPORTED_VERSION)
    return found


def _moment(asked: Message, view: RequestContext) -> int:
    """Return the requested timestamp, or the present moment if that is earlier."""
    return min(int(asked["timestamp"]), view.now)


def _partitions(
    topic: str,
    asked: list[Message],
    past: Mapping[tuple[str, int], PastEnd | Error],
    view: RequestContext,
) -> list[Message]:
    """Return the results of partitions of a topic; one requested twice gets a single error."""
    times = Counter(one["partitionIndex"] for one in asked)
    of_partitions = {one["partitionIndex"]: one for one in asked}
    twice = {"errorCode": Error.INVALID_REQUEST}
    places = {number: present_partition(topic, number, view) for number in of_partitions}
    gaps = gaps_of(topic, view) if None in places.values() else range(0)
    return [
        {
            "partitionIndex": number,
            **(
                _answered(one, places[number], number in gaps, past.get((topic, number)), view)
                if times[number] == 1
                else twice
            ),
        }
        for number, one in of_partitions.items()
    ]


def _answered(
    asked: Message, place: int | None, is_gap: bool, past: PastEnd | Error | None, view: RequestContext
) -> Message:
    if place is None and not is_gap:
        return {"errorCode": view.error_of_unknown_topic}
    if asked["timestamp"] < _EARLIEST:
        return {"errorCode": Error.UNSUPPORTED_VERSION}
    end = None if place is None else view.log_end(place)
    if past is not None:
        return _at_timestamp(past, place, end, view)
    if place is None or end is None:  # clients that can handle it were shown no leader
        return {"errorCode": Error.NONE if view.client.needs_leaders else Error.NOT_LEADER_OR_FOLLOWER}
    start = int(view.snapshot.topics.ends.log_start[place])
    if asked["timestamp"] == _LATEST:
        return {"offset": end}
    # there is a leader: clients that get NOT_LEADER_OR_FOLLOWER would retry forever
    return {"errorCode": Error.UNSUPPORTED_VERSION} if start == NONE else {"offset": start}


def _at_timestamp(past: PastEnd | Error, place: int | None, end: int | None, view: RequestContext) -> Message:
    if isinstance(past, Error):
        return {"errorCode": past}
    topics = view.snapshot.topics
    if place is None or end is None or past.log_end > end:
        return {"errorCode": Error.UNSUPPORTED_VERSION}
    topic = int(topics.topic[place])
    topic_id, gone_at = topics.id_of(topic), int(topics.ends.newest_ids.gone_at[topic])
    if _differ(past.topic_id, topic_id) or (None in (past.topic_id, topic_id) and gone_at > past.at):
        return {"errorCode": Error.UNSUPPORTED_VERSION}
    return {"offset": max(past.log_end, int(topics.ends.log_start[place])), "timestamp": past.at}


def _differ(topic_id: str | None, other: str | None) -> bool:
    return bool(topic_id and other) and topic_id != other


def log_ends_weight(request: Message, view: RequestContext) -> int:
    return sum(1 + len(topic["partitions"]) for topic in request["topics"])


def log_ends_content(request: Message, view: RequestContext) -> int:
    return sum(len(topic["name"]) for topic in request["topics"])
