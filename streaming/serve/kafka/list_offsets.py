"""Answers to ListOffsets: where logs begin and end, as far as they were sampled.

An end is the newest sample, or the largest commit of the partition since then if that is larger. At other
moments than these two nothing is known, and -1 would be taken for a log that is empty: that is an error.
"""

from collections import Counter
from typing import Final

from decoders.messages.reader import Message
from streaming.serve.kafka.cluster import gaps_of
from streaming.serve.kafka.errors import Error
from streaming.serve.kafka.view import RequestContext
from streaming.serve.memory.names import NONE

_LATEST: Final = -1
_EARLIEST: Final = -2


def answer_log_ends(request: Message, view: RequestContext) -> Message:
    """Answer ListOffsets."""
    asked: dict[str, list[Message]] = {}
    for topic in request["topics"]:
        asked.setdefault(topic["name"], []).extend(topic["partitions"])
    return {
        "topics": [
            {"name": name, "partitions": _partitions(name, partitions, view)}
            for name, partitions in asked.items()
            if partitions
        ]
    }


def _partitions(topic: str, asked: list[Message], view: RequestContext) -> list[Message]:
    """The answers about partitions of a topic; one that is asked for twice gets an error, once."""
    times = Counter(one["partitionIndex"] for one in asked)
    of_partitions = {one["partitionIndex"]: one for one in asked}
    twice = {"errorCode": Error.INVALID_REQUEST}
    places = {number: view.snapshot.topics.place(topic, number) for number in of_partitions}
    gaps = gaps_of(topic, view) if None in places.values() else range(0)
    return [
        {
            "partitionIndex": number,
            **(_answered(one, places[number], number in gaps, view) if times[number] == 1 else twice),
        }
        for number, one in of_partitions.items()
    ]


def _answered(asked: Message, place: int | None, is_gap: bool, view: RequestContext) -> Message:
    if place is None and not is_gap:
        return {"errorCode": view.error_of_unknown_topic}
    if asked["timestamp"] not in {_LATEST, _EARLIEST}:
        return {"errorCode": Error.UNSUPPORTED_VERSION}
    end = None if place is None else view.log_end(place)
    if place is None or end is None:  # those who can bear it were told that there is no leader
        return {"errorCode": Error.NONE if view.client.needs_leaders else Error.NOT_LEADER_OR_FOLLOWER}
    start = int(view.snapshot.topics.ends.log_start[place])
    if asked["timestamp"] == _LATEST:
        return {"offset": end}
    # there is a leader: who is told that it is another one asks again and again
    return {"errorCode": Error.UNSUPPORTED_VERSION} if start == NONE else {"offset": start}


def log_ends_weight(request: Message, view: RequestContext) -> int:
    """How many topics and partitions an answer to ListOffsets has."""
    return sum(1 + len(topic["partitions"]) for topic in request["topics"])


def log_ends_content(request: Message, view: RequestContext) -> int:
    """How many bytes the names in an answer to ListOffsets have."""
    return sum(len(topic["name"]) for topic in request["topics"])
