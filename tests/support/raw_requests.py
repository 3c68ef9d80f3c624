"""The few Kafka requests that no Python client offers, sent over a plain socket.

librdkafka refuses the empty group id, has no OffsetDelete, and no retention time for a single commit. Each
request is declared once, in a version without tagged fields, and sent to the one node of a local broker.
"""

import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError
from construct import (
    Const,
    Construct,
    Int8sb,
    Int16sb,
    Int16ub,
    Int32sb,
    Int64sb,
    PascalString,
    PrefixedArray,
    Struct,
)

from streaming.demo.broker_offsets import CommittedOffset

TopicPartitionKey = tuple[str, int]

_TIMEOUT_S: Final = 10.0
_PASSING: Final = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)

_String: Final = PascalString(Int16ub, "utf-8")


def _topics(**partition: Construct) -> Construct:
    """An array of topics, each with an array of partitions that have these fields."""
    partitions = PrefixedArray(Int32sb, Struct(**partition))
    return PrefixedArray(Int32sb, Struct(name=_String, partitions=partitions))


_CORRELATION_ID: Final = Const(1, Int32sb)
_Header: Final = Struct(
    api_key=Int16sb, api_version=Int16sb, correlation_id=_CORRELATION_ID, client_id=Const("tests", _String)
)

# OffsetCommit (api 8): version 2, the first that 4.x takes, has a retention time; 6 has the leader epoch.
_OffsetCommitV2: Final = Struct(
    group=_String,
    generation=Const(-1, Int32sb),
    member=Const("", _String),
    retention_ms=Int64sb,
    topics=_topics(index=Int32sb, offset=Int64sb, metadata=_String),
)
_OffsetCommitV6: Final = Struct(
    group=_String,
    generation=Const(-1, Int32sb),
    member=Const("", _String),
    topics=_topics(index=Int32sb, offset=Int64sb, leader_epoch=Int32sb, metadata=_String),
)
_OffsetCommitAnswerV2: Final = Struct(topics=_topics(index=Int32sb, error=Int16sb))
_OffsetCommitAnswerV6: Final = Struct(throttle_ms=Int32sb, topics=_topics(index=Int32sb, error=Int16sb))

# OffsetFetch (api 9), version 5: a null array of topics asks for all.
_OffsetFetchV5: Final = Struct(group=_String, topics=Const(-1, Int32sb))
_OffsetFetchAnswerV5: Final = Struct(
    throttle_ms=Int32sb,
    topics=_topics(index=Int32sb, offset=Int64sb, leader_epoch=Int32sb, metadata=_String, error=Int16sb),
    error=Int16sb,
)

# OffsetDelete (api 47), version 0.
_OffsetDeleteV0: Final = Struct(group=_String, topics=_topics(index=Int32sb))
_OffsetDeleteAnswerV0: Final = Struct(
    error=Int16sb, throttle_ms=Int32sb, topics=_topics(index=Int32sb, error=Int16sb)
)

# FindCoordinator (api 10), version 1, for a group (type 0); of the answer only the error is of interest.
_FindCoordinatorV1: Final = Struct(group=_String, key_type=Const(0, Int8sb))
_FindCoordinatorAnswerV1: Final = Struct(throttle_ms=Int32sb, error=Int16sb)

# DeleteGroups (api 42), version 1.
_DeleteGroupsV1: Final = Struct(groups=PrefixedArray(Int32sb, _String))
_DeleteGroupsAnswerV1: Final = Struct(
    throttle_ms=Int32sb, groups=PrefixedArray(Int32sb, Struct(group=_String, error=Int16sb))
)


class RequestError(Exception):
    """The broker answered a raw request with an error."""

    def __init__(self, request: str, code: int) -> None:
        self.code = code
        super().__init__(f"{request}: expected no error, found {KafkaError(code).name()} ({code})")


def offset_commit(
    bootstrap: str,
    group: str,
    offsets: Mapping[TopicPartitionKey, CommittedOffset],
    *,
    retention_ms: int | None = None,
) -> None:
    """Commit as a simple group; with a retention time the broker writes a value with expireTimestamp (v1)."""
    version = 6 if retention_ms is None else 2
    answer = _OffsetCommitAnswerV6 if retention_ms is None else _OffsetCommitAnswerV2
    find_coordinator(bootstrap, group)
    _ask("OffsetCommit", bootstrap, 8, version, _offset_commit_body(group, offsets, retention_ms), answer)


def offset_commit_request(group: str, offsets: Mapping[TopicPartitionKey, CommittedOffset]) -> bytes:
    """The bytes of an OffsetCommit request (version 6) of a simple group, as they are sent."""
    header = _Header.build({"api_key": 8, "api_version": 6})
    return _framed(header + _offset_commit_body(group, offsets, None))


def _offset_commit_body(
    group: str, offsets: Mapping[TopicPartitionKey, CommittedOffset], retention_ms: int | None
) -> bytes:
    request = _OffsetCommitV6 if retention_ms is None else _OffsetCommitV2
    partitions = {
        key: {
            "offset": committed.offset,
            "leader_epoch": -1 if committed.leader_epoch is None else committed.leader_epoch,
            "metadata": committed.metadata,
        }
        for key, committed in offsets.items()
    }
    fields = {"group": group, "retention_ms": retention_ms, "topics": _by_topic(partitions)}
    body: bytes = request.build(fields)
    return body


def commit_error(answer: bytes) -> int:
    """Return the first error code in an answer to OffsetCommit of version 6, after its length; 0: none."""
    return next(_errors(_OffsetCommitAnswerV6.parse(answer[_CORRELATION_ID.sizeof() :])), 0)


def answered_partitions(answer: bytes) -> list[TopicPartitionKey]:
    """Return what an answer to OffsetCommit of version 6 is about, sorted."""
    topics = _OffsetCommitAnswerV6.parse(answer[_CORRELATION_ID.sizeof() :]).topics
    return sorted((topic.name, partition.index) for topic in topics for partition in topic.partitions)


def offset_fetch(bootstrap: str, group: str) -> dict[TopicPartitionKey, CommittedOffset]:
    """Return everything that the group has committed."""
    find_coordinator(bootstrap, group)
    request = _OffsetFetchV5.build({"group": group})
    answer = _ask("OffsetFetch", bootstrap, 9, 5, request, _OffsetFetchAnswerV5)
    return {
        (topic.name, partition.index): CommittedOffset(
            partition.offset,
            None if partition.leader_epoch < 0 else partition.leader_epoch,
            partition.metadata,
        )
        for topic in answer.topics
        for partition in topic.partitions
    }


def offset_delete(bootstrap: str, group: str, partitions: Iterable[TopicPartitionKey]) -> None:
    """Delete single committed offsets of a group that does not subscribe to their topics."""
    fields = {"group": group, "topics": _by_topic({key: {} for key in partitions})}
    _ask("OffsetDelete", bootstrap, 47, 0, _OffsetDeleteV0.build(fields), _OffsetDeleteAnswerV0)


def delete_groups(bootstrap: str, *groups: str) -> None:
    """Delete groups without members, and all their committed offsets."""
    _ask("DeleteGroups", bootstrap, 42, 1, _DeleteGroupsV1.build({"groups": groups}), _DeleteGroupsAnswerV1)


def find_coordinator(bootstrap: str, group: str) -> None:
    """Wait until the group has a coordinator: the one request that makes the broker create its topic."""
    request = _FindCoordinatorV1.build({"group": group})
    _ask("FindCoordinator", bootstrap, 10, 1, request, _FindCoordinatorAnswerV1)


def _by_topic(partitions: Mapping[TopicPartitionKey, Mapping[str, Any]]) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, index), fields in partitions.items():
        topics.setdefault(topic, []).append({"index": index, **fields})
    return [{"name": name, "partitions": entries} for name, entries in topics.items()]


def _ask(name: str, bootstrap: str, api_key: int, version: int, body: bytes, answer: Construct) -> Any:
    """Send the request until a coordinator answers it; raise the first error in the answer."""
    request = _Header.build({"api_key": api_key, "api_version": version}) + body
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        found = answer.parse(_exchange(bootstrap, request))
        code = next(_errors(found), 0)
        if code == 0:
            return found
        if code not in _PASSING or time.monotonic() > deadline:
            raise RequestError(name, code)
        time.sleep(0.05)


def _errors(answer: Any) -> Iterator[int]:
    """Yield the error codes that are not 0, wherever the answer has them."""
    entries = [answer, *answer.get("groups", ())]
    entries += [partition for topic in answer.get("topics", ()) for partition in topic.partitions]
    return (code for entry in entries if (code := entry.get("error", 0)))


def _exchange(bootstrap: str, request: bytes) -> bytes:
    host, port = bootstrap.split(":")
    with socket.create_connection((host, int(port)), timeout=_TIMEOUT_S) as connection:
        connection.sendall(_framed(request))
        with connection.makefile("rb") as stream:
            length = Int32sb.parse_stream(stream)
            return stream.read(length)[_CORRELATION_ID.sizeof() :]


def _framed(request: bytes) -> bytes:
    size: bytes = Int32sb.build(len(request))
    return size + request
