"""Requests that no client in order sends, of which a broker and the listener say the same.

Left out is what a broker stumbles over (its error is then UNKNOWN_SERVER_ERROR, or a number overflows): the
listener need not say that it did. Left out, too, are descriptions of a group that is named twice: the
listener gives them once (`test_connections.py`).
"""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from decoders.messages import APIS

Asked = Iterator[tuple[int, int, dict[str, Any]]]
"""API, version and body of each request."""

NO_TOPICS = ["", ".", "..", "no/topic", "a" * 250, "\0", "消費者", " "]
NO_NUMBERS = [-(2**31), -3, -1]
NO_KINDS = [-128, -1, 0, 1, 3, 5, 64, 127]


def odd_requests(groups: list[str], topics: Mapping[str, str]) -> Asked:
    """Name odd requests about groups and two topics (by name, their ids)."""
    names = list(topics)
    yield from _log_ends(names)
    yield from _pages(names)
    yield from _settings(names)
    yield from _filters()
    yield from _topics(names, list(topics.values()))
    yield from _groups(groups)


def _log_ends(names: list[str]) -> Asked:
    end = [{"partitionIndex": 0, "timestamp": -1}]
    for version in APIS[2].versions:
        for number in [*NO_NUMBERS, 2**31 - 1]:
            asked = [{"partitionIndex": number, "timestamp": -1}]
            yield 2, version, {"topics": [{"name": name, "partitions": asked} for name in (*names, "nope")]}
        yield 2, version, {"topics": [{"name": name, "partitions": end} for name in NO_TOPICS]}
        yield 2, version, {"topics": [{"name": names[0], "partitions": end}] * 2}
        yield 2, version, {"topics": [{"name": names[0], "partitions": []}]}
        yield 2, version, {"topics": []}


def _pages(names: list[str]) -> Asked:
    cursors = product(["", "a", *names, "nope", "no/topic", "zzz"], [*NO_NUMBERS, 0, 1, 2, 9])
    for topic, number in cursors:
        cursor = {"topicName": topic, "partitionIndex": number}
        for asked in (names[:1], names, ["nope"], [*NO_TOPICS, names[0], names[0]]):
            yield 75, 0, {"topics": [{"name": one} for one in asked], "cursor": cursor}
    for limit in [*NO_NUMBERS, 0, 2**31 - 1]:
        yield 75, 0, {"topics": [{"name": one} for one in names], "responsePartitionLimit": limit}
    for number in NO_NUMBERS:
        yield 75, 0, {"topics": [], "cursor": {"topicName": "", "partitionIndex": number}}


def _settings(names: list[str]) -> Asked:
    resources = [
        *product(NO_KINDS, ["x", "", names[0]]),
        *product([2], [*NO_TOPICS, "nope", names[0]]),
        *product([4, 8], ["x", "", "9", "-1", "99999999999", "+1", "01", "-01", "1 ", "+"]),
        *product([16, 32], ["x", ""]),
    ]
    for version in APIS[32].versions:
        asked = [
            {"resourceType": kind, "resourceName": name, "configurationKeys": []} for kind, name in resources
        ]
        for one in asked:
            yield 32, version, {"resources": [one]}
        yield 32, version, {"resources": asked}
        yield 32, version, {"resources": [one for one in asked if one["resourceType"] not in NO_KINDS]}


def _filters() -> Asked:
    for kind in (" classic ", "CLASSIC", "classic\0", "", "unknown", "nonsense", "cla\u017f\u017fic"):
        for others in ([], ["consumer"]):
            yield 16, 5, {"typesFilter": [kind, *others]}
    around = ["\0stable\t", "\x1fstable\r\n", "\xa0stable", "\u3000stable", "stable\x85", "\u017ftable"]
    for state in [*around, "", " ", "Unknown", "dead"]:
        for version in (4, 5):
            yield 16, version, {"statesFilter": [state]}


def _topics(names: list[str], ids: list[str]) -> Asked:
    for version in APIS[3].versions:
        for asked in (NO_TOPICS, names * 2):
            yield 3, version, {"topics": [{"name": one} for one in asked], "allowAutoTopicCreation": False}
        if version < 10:
            continue
        both = [{"name": names[0], "topicId": ids[1]}]
        one_of_each = [{"name": names[0]}, {"name": None, "topicId": ids[1]}]
        for asked_by_id in (both, one_of_each):
            yield 3, version, {"topics": asked_by_id, "allowAutoTopicCreation": False}


def _groups(groups: list[str]) -> Asked:
    names = ["", "\0", " ", *groups[:1]]
    for version in APIS[15].versions:
        yield 15, version, {"groups": []}
        yield 15, version, {"groups": names}
    for version in APIS[69].versions:
        yield 69, version, {"groupIds": []}
        yield 69, version, {"groupIds": ["", "\0", " ", "consumer"]}
    for version in APIS[60].versions[1:]:
        for kind in NO_KINDS[:3] + NO_KINDS[4:]:
            yield 60, version, {"endpointType": kind}
    partitions = [{"name": "nope", "partitionIndexes": [-3, 0, -3, 2**31 - 1]}]
    asked = [*partitions * 2, {"name": "", "partitionIndexes": []}]
    for version in range(1, 10):
        for group in names[:3]:
            body: dict[str, Any] = {"groupId": group, "topics": asked}
            yield 9, version, body if version < 8 else {"groups": [body]}
    yield 9, 8, {"groups": []}
    for member_id, epoch in (("nobody", -1), ("", 0), ("", -2), (None, -2), ("nobody", -2)):
        member = {"topics": None, "memberId": member_id, "memberEpoch": epoch}
        yield 9, 9, {"groups": [{"groupId": group, **member} for group in groups]}
