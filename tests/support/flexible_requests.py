"""Kafka's newer requests about groups, whose shape the queries have: sent raw, errors and all given back.

No Python client offers many groups in one OffsetFetch, or shows what a broker answers for a single group.
"""

import socket
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from construct import Construct, Flag, Int16sb, Int32sb, Int64sb, PrefixedArray, Struct

from decoders.formats.wire import (
    COMPACT_BYTES,
    COMPACT_NULLABLE_STRING,
    COMPACT_STRING,
    STRING,
    VARINT,
    FlexibleStruct,
    compact_array,
)

_TIMEOUT_S: Final = 10.0


def _struct(**fields: Construct) -> FlexibleStruct:
    return FlexibleStruct(*(name / field for name, field in fields.items()))


_Header: Final = _struct(api_key=Int16sb, api_version=Int16sb, correlation_id=Int32sb, client_id=STRING)
_Strings: Final = compact_array(COMPACT_STRING)

_OffsetFetchV8: Final = _struct(
    groups=compact_array(
        _struct(
            group=COMPACT_STRING,
            topics=compact_array(
                _struct(name=COMPACT_STRING, partitions=compact_array(Int32sb)), nullable=True
            ),
        )
    ),
    require_stable=Flag,
)
_OffsetFetchAnswerV8: Final = _struct(
    throttle_ms=Int32sb,
    groups=compact_array(
        _struct(
            group=COMPACT_STRING,
            topics=compact_array(
                _struct(
                    name=COMPACT_STRING,
                    partitions=compact_array(
                        _struct(
                            index=Int32sb,
                            offset=Int64sb,
                            leader_epoch=Int32sb,
                            metadata=COMPACT_NULLABLE_STRING,
                            error=Int16sb,
                        )
                    ),
                )
            ),
            error=Int16sb,
        )
    ),
)

_ListGroupsV5: Final = _struct(states=_Strings, types=_Strings)
_ListGroupsAnswerV5: Final = _struct(
    throttle_ms=Int32sb,
    error=Int16sb,
    groups=compact_array(
        _struct(group=COMPACT_STRING, protocol_type=COMPACT_STRING, state=COMPACT_STRING, type=COMPACT_STRING)
    ),
)

_CountOfGroupsV5: Final = Struct("throttle_ms" / Int32sb, "error" / Int16sb, "one_more" / VARINT)
"""The begin of the answer to ListGroups: the array itself is not read."""

_DescribeGroupsV6: Final = _struct(groups=_Strings, include_authorized_operations=Flag)
_DescribeGroupsAnswerV6: Final = _struct(
    throttle_ms=Int32sb,
    groups=compact_array(
        _struct(
            error=Int16sb,
            error_message=COMPACT_NULLABLE_STRING,
            group=COMPACT_STRING,
            state=COMPACT_STRING,
            protocol_type=COMPACT_STRING,
            protocol=COMPACT_STRING,
            members=compact_array(
                _struct(
                    member_id=COMPACT_STRING,
                    group_instance_id=COMPACT_NULLABLE_STRING,
                    client_id=COMPACT_STRING,
                    client_host=COMPACT_STRING,
                    metadata=COMPACT_BYTES,
                    assignment=COMPACT_BYTES,
                )
            ),
            authorized_operations=Int32sb,
        )
    ),
)

# ApiVersions (api 18), version 0: without tagged fields, also in the header.
_PlainHeader: Final = Struct(
    "api_key" / Int16sb, "api_version" / Int16sb, "correlation_id" / Int32sb, "client_id" / STRING
)
_ApiVersionsAnswerV0: Final = Struct(
    "correlation_id" / Int32sb,
    "error" / Int16sb,
    "apis" / PrefixedArray(Int32sb, Struct("api_key" / Int16sb, "least" / Int16sb, "latest" / Int16sb)),
)


def latest_versions(bootstrap: str) -> dict[int, int]:
    """ApiVersions: the latest version of each request that the broker answers, by the request's api key."""
    header = {"api_key": 18, "api_version": 0, "correlation_id": 1, "client_id": "tests"}
    answer = _ApiVersionsAnswerV0.parse(_exchange(bootstrap, _PlainHeader.build(header)))
    assert answer.error == 0
    return {api.api_key: api.latest for api in answer.apis}


def offset_fetch(bootstrap: str, groups: Mapping[str, Iterable[tuple[str, int]] | None]) -> list[Any]:
    """OffsetFetch (version 8) for many groups; None asks for everything that a group has committed."""
    asked = [
        {"group": group, "topics": None if keys is None else _by_topic(keys)}
        for group, keys in groups.items()
    ]
    body = _OffsetFetchV8.build({"groups": asked, "require_stable": False})
    return list(_ask(bootstrap, 9, 8, body, _OffsetFetchAnswerV8).groups)


def list_groups(bootstrap: str, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[Any]:
    """ListGroups (version 5) with filters."""
    body = _ListGroupsV5.build({"states": states, "types": types})
    answer = _ask(bootstrap, 16, 5, body, _ListGroupsAnswerV5)
    assert answer.error == 0
    return list(answer.groups)


def count_groups(bootstrap: str) -> int:
    """Ask how many groups there are (ListGroups), at little cost however many that is."""
    body = _ListGroupsV5.build({"states": (), "types": ()})
    answer = _ask(bootstrap, 16, 5, body, _CountOfGroupsV5)
    assert answer.error == 0
    return int(answer.one_more) - 1


def describe_groups(bootstrap: str, groups: Sequence[str]) -> list[Any]:
    """DescribeGroups (version 6), which knows classic groups only."""
    body = _DescribeGroupsV6.build({"groups": groups, "include_authorized_operations": False})
    return list(_ask(bootstrap, 15, 6, body, _DescribeGroupsAnswerV6).groups)


def _by_topic(keys: Iterable[tuple[str, int]]) -> list[dict[str, Any]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in keys:
        topics.setdefault(topic, []).append(partition)
    return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]


def _ask(bootstrap: str, api_key: int, version: int, body: bytes, answer: Construct) -> Any:
    header = {"api_key": api_key, "api_version": version, "correlation_id": 1, "client_id": "tests"}
    data = _exchange(bootstrap, _Header.build(header) + body)
    tags_bytes = 1
    assert VARINT.parse(data[4:]) == 0  # after the correlation id: no tagged fields
    return answer.parse(data[4 + tags_bytes :])


def _exchange(bootstrap: str, request: bytes) -> bytes:
    host, port = bootstrap.split(":")
    with socket.create_connection((host, int(port)), timeout=_TIMEOUT_S) as connection:
        connection.sendall(Int32sb.build(len(request)) + request)
        with connection.makefile("rb") as stream:
            data: bytes = stream.read(Int32sb.parse_stream(stream))
            return data
