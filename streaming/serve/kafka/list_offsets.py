"""Responses to ListOffsets: log start and end offsets from samples.

A log end is the newest sample or, if larger, the largest commit to the partition since then. Other timestamps
are an error: nothing is known of them, and clients would take -1 for an empty log.
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
    """Return the results of partitions of a topic; one requested twice gets a single error."""
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
    if place is None or end is None:  # clients that can handle it were shown no leader
        return {"errorCode": Error.NONE if view.client.needs_leaders else Error.NOT_LEADER_OR_FOLLOWER}
    start = int(view.snapshot.topics.ends.log_start[place])
    if asked["timestamp"] == _LATEST:
        return {"offset": end}
    # there is a leader: clients that get NOT_LEADER_OR_FOLLOWER would retry forever
    return {"errorCode": Error.UNSUPPORTED_VERSION} if start == NONE else {"offset": start}


def log_ends_weight(request: Message, view: RequestContext) -> int:
    return sum(1 + len(topic["partitions"]) for topic in request["topics"])


def log_ends_content(request: Message, view: RequestContext) -> int:
    return sum(len(topic["name"]) for topic in request["topics"])
