"""Requests of every API and version that the listener answers, and what may differ from a broker."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from decoders.formats.java_values import ZERO_UUID
from decoders.messages import APIS

LISTS_OF: Final = {
    "topics": ("name", "topicId", "groupId"),
    "groups": ("groupId",),
    "members": ("memberId",),
    "partitions": ("partitionIndex",),
    "topicPartitions": ("topicName",),
    "coordinators": ("key",),
    "results": ("groupId", "resourceName", "resourceType"),
    "subscribedTopicNames": (),
}
"""Arrays whose order means nothing, and the fields that their elements are told apart by."""

DIFFERENT: Final[Mapping[str, Mapping[str, str]]] = {
    "": {
        "clusterId": "another cluster, of one node",
        "host": "the listener's own address",
        "port": "the listener's own address",
        "throttleTimeMs": "nobody is throttled",
        "topicAuthorizedOperations": "DESCRIBE alone",
        "clusterAuthorizedOperations": "DESCRIBE alone",
        "authorizedOperations": "DESCRIBE alone",
        "leaderEpoch": "the log of group offsets does not tell it",
    },
    "ApiVersions": {
        "apiKeys": "the table of what is answered",
        "supportedFeatures": "none",
        "finalizedFeatures": "none",
        "finalizedFeaturesEpoch": "none",
    },
    "ShareGroupDescribe": {"assignorName": "the configuration of brokers is not known"},
    "DescribeCluster": {"errorMessage": "words"},
    "FindCoordinator": {"errorMessage": "words"},
    "DescribeConfigs": {
        "configs": "how brokers are set up is not known",
        "errorMessage": "words",
    },
}
"""Fields that may differ, by API ("": all), and why."""


def comparable(api: str, answer: Any, field: str = "") -> Any:
    """Return an answer without what may differ, in an order of its own."""
    different = {**DIFFERENT[""], **DIFFERENT.get(api, {})}
    if isinstance(answer, dict):
        return {name: comparable(api, value, name) for name, value in answer.items() if name not in different}
    if isinstance(answer, list):
        made = [comparable(api, value) for value in answer]
        if field in LISTS_OF:
            made.sort(key=lambda one: _place(one, LISTS_OF[field]))
        return made
    return answer


def differences(expected: Any, found: Any, path: str = "") -> Iterator[str]:
    """Name the fields in which two answers differ, and what is in them."""
    if isinstance(expected, dict) and isinstance(found, dict) and expected.keys() == found.keys():
        for name, value in expected.items():
            yield from differences(value, found[name], f"{path}.{name}")
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for number, value in enumerate(expected):
            yield from differences(value, found[number], f"{path}[{number}]")
    elif expected != found:
        yield f"{path}: expected {expected!r}, found {found!r}"


def _place(element: Any, keys: tuple[str, ...]) -> str:
    return str([element.get(key) for key in keys] if isinstance(element, dict) else element)


def requests(groups: list[str], topics: Mapping[str, str]) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Name API, version and body of requests about groups and topics (by name, their ids)."""
    asked = [*groups, "nope"]
    names = [*topics, "nope"]
    for version in APIS[3].versions:
        yield 3, version, {"topics": [{"name": name} for name in [*names, "no/topic"]], **_NO_CREATION}
        if version:
            yield 3, version, {"topics": [], **_NO_CREATION}
        if version >= 12:
            ids = [*topics.values(), "AAAAAAAAAAAAAAAAAAAAAQ"]
            yield 3, version, {"topics": [{"name": None, "topicId": one} for one in ids], **_NO_CREATION}
    for version in APIS[60].versions:
        for kind in (1, 2, 3)[: 3 if version else 1]:
            yield 60, version, {"endpointType": kind, "includeClusterAuthorizedOperations": kind == 1}
    for limit, cursor in ((2_000, None), (1, None), (3, {"topicName": names[0], "partitionIndex": 1})):
        body = {"topics": [{"name": name} for name in names], "responsePartitionLimit": limit}
        yield 75, 0, {**body, "cursor": cursor}
    for version in APIS[10].versions:
        for group in ("classic", "nope", ""):
            yield 10, version, {"key": group, "coordinatorKeys": [group, "other"]}
    for version in APIS[16].versions:
        yield 16, version, {}
        for states in ([], ["stable", " EMPTY "], ["Dead"], ["nonsense"]):
            for types in ([], ["CONSUMER"], ["classic", "share"]):
                if version >= (5 if types else 4):
                    yield 16, version, {"statesFilter": states, "typesFilter": types}
    for version in APIS[15].versions:
        yield 15, version, {"groups": asked, "includeAuthorizedOperations": version > 3}
    for version in APIS[69].versions:
        yield 69, version, {"groupIds": asked}
        yield 69, version, {"groupIds": ["consumer"], "includeAuthorizedOperations": True}
    for version in APIS[77].versions:
        yield 77, version, {"groupIds": asked}
        yield 77, version, {"groupIds": ["share"], "includeAuthorizedOperations": True}
    yield from _fetches(asked, names)
    yield from _fetches_by_ids(asked, list(topics.values()))
    for version in APIS[2].versions:
        partitions = [
            {"partitionIndex": number, "timestamp": timestamp}
            for number, timestamp in ((0, -1), (1, -2), (9, -1))
        ]
        body = {"topics": [{"name": name, "partitions": partitions} for name in names]}
        yield 2, version, body
        again = [{"partitionIndex": 0, "timestamp": timestamp} for timestamp in (-1, -2)]
        yield 2, version, {"topics": [{"name": names[0], "partitions": again}]}


OURS: Final = "the cluster that is asked"
MEANT: Final = [
    (None, -1, 0),
    (OURS, 1, 0),
    (OURS, 2, 129),
    (OURS, -2, 129),
    ("another", 1, 129),
    ("", 1, 129),
    (OURS, -1, 42),
    ("", -1, 42),
    (None, 1, 42),
    (None, -2, 42),
]
"""Cluster id and node id that a client may state in ApiVersions 5, and the error then; we are node 1."""


def meaning(cluster_id: str | None, node_id: int) -> dict[str, Any]:
    """Make the request ApiVersions 5 of a client that means to reach a node of a cluster."""
    software = {"clientSoftwareName": "tests", "clientSoftwareVersion": "1"}
    return {**software, "clusterId": cluster_id, "nodeId": node_id}


_NO_CREATION: Final = {"allowAutoTopicCreation": False}


def _fetches(groups: list[str], names: list[str]) -> Iterator[tuple[int, int, dict[str, Any]]]:
    some = [{"name": name, "partitionIndexes": [1, 0, 7]} for name in names]
    for version in range(1, 10):
        for topics in [some] if version == 1 else [some, None, []]:
            if version < 8:
                for group in groups:
                    yield 9, version, {"groupId": group, "topics": topics}
            else:
                yield 9, version, {"groups": [{"groupId": one, "topics": topics} for one in groups]}
    for member_id, epoch in (("nobody", 3), ("", -1), (None, -1)):
        asked = [
            {"groupId": group, "topics": None, "memberId": member_id, "memberEpoch": epoch}
            for group in groups
        ]
        yield 9, 9, {"groups": asked}


def _fetches_by_ids(groups: list[str], ids: list[str]) -> Iterator[tuple[int, int, dict[str, Any]]]:
    asked = [*ids, "AAAAAAAAAAAAAAAAAAAAAQ", ZERO_UUID]
    some = [{"topicId": topic_id, "partitionIndexes": [1, 0, 7]} for topic_id in asked]
    for topics in (some, some * 2, None, []):
        yield 9, 10, {"groups": [{"groupId": group, "topics": topics} for group in groups]}
    member = {"memberId": "nobody", "memberEpoch": 3}
    yield 9, 10, {"groups": [{"groupId": group, "topics": None, **member} for group in groups]}
