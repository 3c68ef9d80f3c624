"""Requests and responses: what is read, what is written, and what is said about frames that are neither."""

import json
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from construct import Struct
from hypothesis import given
from hypothesis import strategies as st
from message_strategies import REQUESTS, SIZE_BYTES, body_of, with_defaults

from decoders import DecodeError, ErrorKind
from decoders.formats.wire import INT16, INT32, STRING, FlexibleStruct, array
from decoders.messages import (
    APIS,
    Request,
    UnwritableError,
    prepare,
    read_request,
    read_response,
    request_bytes,
    response_bytes,
)
from decoders.messages.reader import reader_of
from decoders.messages.versions import layout_of, tagged, versions
from decoders.messages.writer import writer_of

OFFSET_FETCH, LIST_GROUPS, API_VERSIONS, OFFSET_DELETE = 9, 16, 18, 47

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "requests.json").read_text())


def frame_of(*hex_parts: str) -> bytes:
    return bytes.fromhex("".join(hex_parts))


# --- one declaration, many versions ------------------------------------------------------------------------

MESSAGE = Struct(
    "old" / versions("0-1", INT16),
    "name" / versions("0+", STRING, nullable="2+"),
    "topics"
    / versions("1+", array(Struct("partition" / INT32, "epoch" / versions("3+", INT32, default=-1)))),
    "extra" / tagged(0, array(INT16), default=[], since=2),
)


@pytest.mark.parametrize(
    ("version", "message", "written"),
    [
        (0, {"old": 1, "name": "a"}, "0001 000161"),
        (1, {"old": 1, "name": "a", "topics": [{"partition": 5}]}, "0001 000161 00000001 00000005"),
        (2, {"name": None, "topics": [{"partition": 5}]}, "00 02 00000005 00 00"),
        (2, {"name": "", "topics": [], "extra": [7]}, "01 01 01 00 03 02 0007"),
        (3, {"name": "a", "topics": [{"partition": 5}]}, "0261 02 00000005 ffffffff 00 00"),
    ],
)
def test_each_version_has_its_fields_and_its_encoding(
    version: int, message: dict[str, Any], written: str
) -> None:
    layout = layout_of(MESSAGE, version, version >= 2)
    assert writer_of(layout)(message) == frame_of(written)
    read, at = reader_of(layout)(frame_of(written), 0)
    assert at == len(frame_of(written))
    assert read == with_defaults(layout, message)


def test_only_text_and_arrays_can_be_null_in_some_versions() -> None:
    with pytest.raises(TypeError, match="has no length in front"):
        layout_of(Struct("a" / versions("0+", INT16, nullable="1+")), 1, False)


LAYOUTS = [api.request_layout(version) for api, version in REQUESTS]
LAYOUTS += [api.response_layout(version) for api, version in REQUESTS]


@given(st.data())
@pytest.mark.parametrize("part", range(4))
def test_what_is_written_is_read_again(part: int, data: st.DataObject) -> None:
    layout = data.draw(st.sampled_from(LAYOUTS[part::4]))
    body = data.draw(body_of(layout))
    written = writer_of(layout)(body)
    read, at = reader_of(layout)(written, 0)
    assert (read, at) == (with_defaults(layout, body), len(written))
    assert layout.parse(written) == read
    kept = {name: value for name, value in read.items() if not is_default(layout, name, value)}
    assert layout.build(kept) == written


def is_default(layout: Struct, name: str, value: Any) -> bool:
    """Whether a tagged field holds its default: then it is not written."""
    tags = layout.tags.values() if isinstance(layout, FlexibleStruct) else ()
    return any(field.name == name and field.subcon.value == value for field in tags)


# --- requests ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: f"{vector['api']} {vector['version']}")
def test_requests_of_real_clients_are_read(vector: dict[str, Any]) -> None:
    frame = bytes.fromhex(vector["frame"])
    request = read_request(frame)
    assert APIS[request.api_key].name == vector["api"]
    assert request.api_version == vector["version"]
    assert request.client_id == vector["client_id"]
    assert request.body == vector["body"]
    sent = request_bytes(*request[:4], request.body or {})[SIZE_BYTES:]
    assert frame.startswith(sent)
    assert len(frame) - len(sent) == vector.get("trailing_bytes", 0)


def test_bytes_behind_a_request_are_ignored() -> None:
    assert any(vector.get("trailing_bytes") for vector in VECTORS)  # librdkafka, Metadata of all topics
    frame = request_bytes(OFFSET_DELETE, 0, 1, "c", {"groupId": "g", "topics": []})[SIZE_BYTES:]
    assert read_request(frame + b"\xff" * 9) == read_request(frame)


def test_a_client_without_a_name_has_an_empty_one() -> None:
    assert read_request(frame_of("0012 0000 00000007 ffff")) == Request(API_VERSIONS, 0, 7, "", {})


def test_unknown_tagged_fields_are_skipped() -> None:
    frame = frame_of("0010 0005 00000001 000163", "01 05 02 abcd", "01 01", "02 00 00 ff01 03 010203")
    assert read_request(frame).body == {"statesFilter": [], "typesFilter": []}


@pytest.mark.parametrize(("version", "header_end"), [(6, "00"), (32_767, "00"), (-1, "")])
def test_apiversions_of_any_version_is_answered(version: int, header_end: str) -> None:
    frame = frame_of("0012", f"{version & 0xFFFF:04x}", "00000007 000163", header_end, "ff" * 5)
    assert read_request(frame) == Request(API_VERSIONS, version, 7, "c", None)


def test_what_is_prepared_is_not_written_at_its_first_use() -> None:
    reader_of.cache_clear()
    writer_of.cache_clear()
    prepare()
    written = reader_of.cache_info().misses, writer_of.cache_info().misses
    for version in APIS[LIST_GROUPS].versions:
        end = "00 01 01 00" if version == 5 else "00 01 00" if version == 4 else "00 00"
        read_request(frame_of(f"0010 {version:04x} 00000001 0000", end))
        response_bytes(LIST_GROUPS, version, 1, {"groups": []})
    assert (reader_of.cache_info().misses, writer_of.cache_info().misses) == written


# --- responses ---------------------------------------------------------------------------------------------


def test_a_response_is_sent_with_size_and_header() -> None:
    body = {"groups": [{"groupId": "g", "protocolType": "", "groupState": "Empty", "groupType": "classic"}]}
    plain = "0000000f 00000007 0000 00000001 000167 0000"
    assert response_bytes(LIST_GROUPS, 0, 7, body) == frame_of(plain)
    flexible = "0000001f 00000007 00 00000000 0000 02 0267 01 06456d707479 08636c6173736963 00 00"
    assert response_bytes(LIST_GROUPS, 5, 7, body) == frame_of(flexible)


def test_apiversions_is_always_answered_behind_the_plain_header() -> None:
    sent = response_bytes(API_VERSIONS, 4, 7, {"apiKeys": []})
    assert sent == frame_of("0000000c 00000007 0000 01 00000000 00")
    assert read_response(API_VERSIONS, 4, sent[SIZE_BYTES:]).body["finalizedFeaturesEpoch"] == -1


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_responses_of_all_versions_are_read_by_a_client(api: Any) -> None:
    for version in api.versions:
        layout = api.response_layout(version)
        body = with_defaults(layout, smallest(layout))
        sent = response_bytes(api.key, version, -5, body)
        assert int.from_bytes(sent[:SIZE_BYTES]) == len(sent) - SIZE_BYTES
        assert read_response(api.key, version, sent[SIZE_BYTES:]) == (-5, body)


def errors_in(value: Any) -> Iterator[int]:
    """The error codes in a message that was read."""
    if isinstance(value, list):
        yield from chain.from_iterable(map(errors_in, value))
    elif isinstance(value, dict):
        yield from (code for name, code in value.items() if name == "errorCode" and code)
        yield from chain.from_iterable(map(errors_in, value.values()))


@given(st.data())
def test_the_errors_of_a_response_are_counted_at_every_level(data: st.DataObject) -> None:
    api, version = data.draw(st.sampled_from(REQUESTS))
    body, errors = data.draw(body_of(api.response_layout(version))), dict[int, int]()
    sent = response_bytes(api.key, version, 1, body, errors=errors)
    assert errors == Counter(errors_in(read_response(api.key, version, sent[SIZE_BYTES:]).body))
    assert response_bytes(api.key, version, 1, body) == sent


def smallest(layout: Struct) -> dict[str, Any]:
    """A message of empty texts, empty arrays and zeros."""
    kinds = {"Text": "", "Sequence": [], "Integer": 0, "Boolean": False, "Blob": b""}
    required = [field for field in layout.subcons if type(field.subcon).__name__ in kinds]
    return {field.name: kinds[type(field.subcon).__name__] for field in required}


def listed(group: Any) -> dict[str, Any]:
    return {"groupId": group, "protocolType": "", "groupState": "", "groupType": ""}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({}, r"^ListGroups response v5 cannot be written: field 'groups' is missing$"),
        ({"groups": None}, "NoneType"),
        ({"groups": [{"groupId": "g"}]}, "field 'protocolType' is missing"),
        ({"groups": [], "errorCode": 70_000}, "format requires"),
        ({"groups": [listed("x" * 32_768)]}, "expected at most 32767 bytes of text, found 32768"),
        ({"groups": [listed("\ud800")]}, "surrogates not allowed"),
        ({"groups": [listed(5)]}, "'int' object has no attribute 'encode'"),
    ],
)
def test_what_cannot_be_written_is_said(body: dict[str, Any], why: str) -> None:
    with pytest.raises(UnwritableError, match=why):
        response_bytes(LIST_GROUPS, 5, 1, body)


def test_only_known_versions_are_written() -> None:
    with pytest.raises(UnwritableError, match="OffsetFetch: expected a version from 1 to 10, found 11"):
        response_bytes(OFFSET_FETCH, 11, 1, {})
    with pytest.raises(UnwritableError, match="expected a known API, found 99"):
        read_response(99, 0, b"")


# --- frames that are not requests --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "kind", "field", "at_byte", "reason"),
    [
        (
            "",
            "malformed",
            "requestApiKey",
            0,
            "request: expected 4 bytes for requestApiKey at byte 0, found 0",
        ),
        (
            "000900",
            "malformed",
            "requestApiKey",
            0,
            "request: expected 4 bytes for requestApiKey at byte 0, found 3",
        ),
        (
            "00630000",
            "unknown_type",
            "requestApiKey",
            0,
            "request: expected a known API for requestApiKey at byte 0, found 99",
        ),
        (
            "0009000b",
            "unsupported_version",
            "requestApiVersion",
            2,
            "OffsetFetch request: expected a version from 1 to 10 for requestApiVersion at byte 2, found 11",
        ),
        (
            "00090001 000000",
            "malformed",
            "correlationId",
            4,
            "OffsetFetch request v1: expected 4 bytes for correlationId at byte 4, found 3",
        ),
        (
            "00090001 00000001 0005 61",
            "malformed",
            "clientId",
            10,
            "OffsetFetch request v1: expected 5 bytes for clientId at byte 10, found 1",
        ),
        (
            "00090009 00000001 ffff 00 02 0362",
            "malformed",
            "groups[0].groupId",
            13,
            "OffsetFetch request v9: expected 2 bytes for groups[0].groupId at byte 13, found 1",
        ),
        (
            "00090009 00000001 ffff 00 ffffffff07 0162",
            "malformed",
            "groups",
            16,
            "OffsetFetch request v9: expected 2147483646 bytes for groups at byte 16, found 2",
        ),
        (
            "00100005 00000001 ffff 01 07 ffffffff0f 00",
            "malformed",
            "tags",
            17,
            "ListGroups request v5: expected a length of 0 or more for tags at byte 17, found -1",
        ),
        (
            "002a0000 00000001 ffff ffffffff",
            "malformed",
            "groupsNames",
            10,
            "DeleteGroups request v0: expected a length of 0 or more for groupsNames at byte 10, found -1",
        ),
    ],
)
def test_what_is_wrong_with_a_frame_is_said(
    frame: str, kind: str, field: str, at_byte: int, reason: str
) -> None:
    with pytest.raises(DecodeError) as error:
        read_request(frame_of(frame))
    assert vars(error.value) == {
        "kind": ErrorKind(kind),
        "reason": reason,
        "field": field,
        "at_byte": at_byte,
    }


def test_a_response_that_is_cut_short_is_refused() -> None:
    sent = response_bytes(API_VERSIONS, 0, 1, {"apiKeys": [{"apiKey": 1, "minVersion": 0, "maxVersion": 2}]})
    with pytest.raises(
        DecodeError, match=r"ApiVersions response v0: expected 2 bytes for apiKeys\[0\].maxVersion"
    ):
        read_response(API_VERSIONS, 0, sent[SIZE_BYTES:-1])
