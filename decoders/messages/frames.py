"""Requests and responses as they travel: a size of four bytes, a header, a message.

A *frame* is what stands behind the size. Who reads from strangers bounds it before reading it; what a request
takes in memory is then bounded too, by ten bytes for each byte of its frame, and some 250 for each of
`MOST_ELEMENTS`.
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple

from construct import Struct

from decoders.errors import DecodeError, ErrorKind
from decoders.formats.faults import Fault, WireError, missing_bytes, unexpected
from decoders.formats.wire import ReadsLeft
from decoders.messages.api import REQUEST_HEADERS, RESPONSE_HEADERS, Api
from decoders.messages.apis import APIS
from decoders.messages.bulk import plan_of
from decoders.messages.cluster import API_VERSIONS
from decoders.messages.reader import Message, TooManyError, reader_of
from decoders.messages.writer import UNWRITABLE, UnwritableError, writer_of
from decoders.rows.reference import MESSAGE_READS, malformed
from decoders.rows.source import UNREADABLE


class Request(NamedTuple):
    """A request: of which API and version, who asks, and the message, a dict of Kafka's names (`reader`).

    A client id that is null is "", as for a broker. The body is None where ApiVersions comes in a version
    that we do not know: it is answered all the same, in version 0 with the error UNSUPPORTED_VERSION.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str
    body: Message | None


class Response(NamedTuple):
    """A response: to which request, and the message, a dict of Kafka's names."""

    correlation_id: int
    body: Message


_KEY_AND_VERSION: Final = struct.Struct(">hh")
_SIZE: Final = struct.Struct(">i")
MOST_ELEMENTS: Final = 350_000
"""Elements of a request (names, topics, partitions to which more belongs): as many offsets fit into 4 MiB."""

_UNREAD: Final = Struct()  # stands for a message whose version we do not know


# --- what a server does ------------------------------------------------------------------------------------


def read_request(frame: bytes) -> Request:
    """Read a request; bytes behind the message are ignored, as brokers ignore them.

    Raises `DecodeError`, and nothing else, whatever the bytes are. Its `kind` is UNKNOWN_TYPE for an API that
    is not in `APIS`, UNSUPPORTED_VERSION for a version that the API does not have, TOO_LARGE for one of more
    than `MOST_ELEMENTS`, else MALFORMED; its `reason` says where, what was expected and what was found.
    """
    try:
        api_key, version = _KEY_AND_VERSION.unpack_from(frame)
    except struct.error:
        message = missing_bytes(_KEY_AND_VERSION.size, len(frame), "requestApiKey", 0)
        raise malformed("request", Fault(message, "requestApiKey", 0)) from None
    header_layout, layout = _request_layouts(api_key, version)
    try:
        header, at = reader_of(header_layout)(frame, 0)
        body, _ = reader_of(layout, MOST_ELEMENTS)(frame, at)
    except TooManyError:
        subject = _subject(APIS[api_key], version, "request")
        reason = f"{subject}: expected at most {MOST_ELEMENTS} elements, found more: ask for fewer at once"
        raise DecodeError(ErrorKind.TOO_LARGE, reason, field="", at_byte=at) from None
    except UNREADABLE:
        raise _what_is_wrong(
            frame, header_layout, layout, _subject(APIS[api_key], version, "request")
        ) from None
    client_id = header["clientId"] or ""
    return Request(api_key, version, header["correlationId"], client_id, None if layout is _UNREAD else body)


@lru_cache(maxsize=512)
def _request_layouts(api_key: int, version: int) -> tuple[Struct, Struct]:
    """The layouts of header and message of a request; raises `DecodeError`."""
    api = APIS.get(api_key)
    if api is None:
        reason = f"request: {unexpected('a known API', api_key, 'requestApiKey', 0)}"
        raise DecodeError(ErrorKind.UNKNOWN_TYPE, reason, field="requestApiKey", at_byte=0)
    header = REQUEST_HEADERS[api.request_header(version)]
    if version in api.versions:
        return header, api.request_layout(version)
    if api is API_VERSIONS:
        return header, _UNREAD
    message = unexpected(_expected_versions(api), version, "requestApiVersion", 2)
    reason = f"{api.name} request: {message}"
    raise DecodeError(ErrorKind.UNSUPPORTED_VERSION, reason, field="requestApiVersion", at_byte=2)


def prepare() -> None:
    """Write all readers of requests and writers of responses now (some 0.3 s), not each at its first use."""
    for api in APIS.values():
        for version in api.versions:
            header, layout = _request_layouts(api.key, version)
            reader_of(header)
            reader_of(layout, MOST_ELEMENTS)
            writer_of(RESPONSE_HEADERS[api.response_header(version)])
            writer_of(api.response_layout(version))


def response_bytes(api_key: int, version: int, correlation_id: int, body: Message) -> bytes:
    """A response as it is sent: size, header and message.

    The body is a dict of Kafka's names. Fields with a default may be left out, and fields that the version
    lacks are not looked at: one body serves all versions. Raises `UnwritableError`.
    """
    api = _api(api_key, version)
    with _named(api, version, "response"):
        header = writer_of(RESPONSE_HEADERS[api.response_header(version)])({"correlationId": correlation_id})
        return _sent(header, writer_of(api.response_layout(version))(body))


@dataclass(frozen=True)
class Pieces:
    """A response as it is sent, in pieces that are made when they are asked for; `size` is that of all."""

    size: int
    _pieces: Iterator[memoryview]

    def __iter__(self) -> Iterator[memoryview]:
        return self._pieces


def response_pieces(
    api_key: int, version: int, correlation_id: int, body: Message, *, piece_bytes: int = 1 << 20
) -> Pieces:
    """A large response as it is sent: size, header and message, in pieces of so many bytes.

    Arrays of structs in the body may be `Columns`, down from those of the message itself; the bytes are those
    of `response_bytes`. Raises `UnwritableError`, before the first piece. The columns must not change until
    the last.
    """
    api = _api(api_key, version)
    with _named(api, version, "response"):
        header = writer_of(RESPONSE_HEADERS[api.response_header(version)])({"correlationId": correlation_id})
        plan = plan_of(api.response_layout(version), body)
    before = _SIZE.pack(len(header) + plan.size) + header
    return Pieces(len(before) + plan.size, chain([memoryview(before)], plan.pieces(piece_bytes)))


# --- what a client does ------------------------------------------------------------------------------------


def request_bytes(api_key: int, version: int, correlation_id: int, client_id: str, body: Message) -> bytes:
    """A request as it is sent: size, header and message; see `response_bytes`."""
    api = _api(api_key, version)
    header = {
        "requestApiKey": api_key,
        "requestApiVersion": version,
        "correlationId": correlation_id,
        "clientId": client_id,
    }
    with _named(api, version, "request"):
        head = writer_of(REQUEST_HEADERS[api.request_header(version)])(header)
        return _sent(head, writer_of(api.request_layout(version))(body))


def read_response(api_key: int, version: int, frame: bytes) -> Response:
    """Read the response to a request of this API and version; raises `DecodeError` as `read_request` does.

    `UnwritableError` is raised if there is no such request.
    """
    api = _api(api_key, version)
    header_layout = RESPONSE_HEADERS[api.response_header(version)]
    layout = api.response_layout(version)
    try:
        header, at = reader_of(header_layout)(frame, 0)
        body, _ = reader_of(layout)(frame, at)
    except UNREADABLE:
        raise _what_is_wrong(frame, header_layout, layout, _subject(api, version, "response")) from None
    return Response(header["correlationId"], body)


# --- both --------------------------------------------------------------------------------------------------


def _api(api_key: int, version: int) -> Api:
    """An API that has this version."""
    api = APIS.get(api_key)
    if api is None:
        raise UnwritableError(f"expected a known API, found {api_key}")
    if version not in api.versions:
        raise UnwritableError(f"{api.name}: expected {_expected_versions(api)}, found {version}")
    return api


def _expected_versions(api: Api) -> str:
    return f"a version from {api.versions[0]} to {api.versions[-1]}"


def _subject(api: Api, version: int, direction: str) -> str:
    """A message as sentences to people call it: `OffsetFetch request v9`."""
    return f"{api.name} {direction} v{version}"


def _what_is_wrong(frame: bytes, header: Struct, layout: Struct, subject: str) -> DecodeError:
    """The error of a frame that the fast readers refused, found by `construct` within a bound."""
    stream = ReadsLeft(frame, MESSAGE_READS)
    try:
        header.parse_stream(stream)
        layout.parse_stream(stream)
    except WireError as error:
        return malformed(subject, error.fault)
    raise AssertionError(f"{subject}: one reader refused what the other read: {frame[:1_000].hex()}")


@contextmanager
def _named(api: Api, version: int, direction: str) -> Iterator[None]:
    """Say of which message it is that something cannot be written."""
    try:
        yield
    except UNWRITABLE as error:
        why = f"field {error} is missing" if isinstance(error, KeyError) else str(error)
        raise UnwritableError(f"{_subject(api, version, direction)} cannot be written: {why}") from error


def _sent(header: bytes, message: bytes) -> bytes:
    return b"".join((_SIZE.pack(len(header) + len(message)), header, message))
