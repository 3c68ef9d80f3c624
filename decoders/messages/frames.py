"""Requests and responses as they are sent: a size of four bytes, a header, a message.

A *frame* is everything after the size. A server limits its size before reading it. The memory of a request is
then limited too: ten bytes for each byte of its frame, and about 250 for each of `MOST_ELEMENTS`.
"""

import struct
from collections.abc import Iterator, MutableMapping
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
from decoders.messages.writer import UNWRITABLE, OnError, UnwritableError, same, writer_of
from decoders.rows.reference import MESSAGE_READS, malformed
from decoders.rows.source import UNREADABLE


class Request(NamedTuple):
    """A request: its API and version, its client, and the message, a dict with Kafka's names (see `reader`).

    A null client id is "", as in a broker. The body is None for ApiVersions in an unknown version: a server
    answers that too, in version 0 with the error UNSUPPORTED_VERSION.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str
    body: Message | None


class Response(NamedTuple):
    """A response: the correlation id of its request, and the message, a dict with Kafka's names."""

    correlation_id: int
    body: Message


_KEY_AND_VERSION: Final = struct.Struct(">hh")
_SIZE: Final = struct.Struct(">i")
MOST_ELEMENTS: Final = 350_000
"""Limit on the elements of a request (names, topics, partitions): 4 MiB hold as many offsets."""

_UNREAD: Final = Struct()  # placeholder for a message of an unknown version


# --- for servers -------------------------------------------------------------------------------------------


def read_request(frame: bytes) -> Request:
    """Read a request; bytes after the message are ignored, as in a broker.

    Raises `DecodeError`, and nothing else, whatever the bytes are. Its `kind` is UNKNOWN_TYPE for an API that
    is not in `APIS`, UNSUPPORTED_VERSION for a version that the API does not have, TOO_LARGE for more than
    `MOST_ELEMENTS`, else MALFORMED; its `reason` is a sentence with the place, the expectation and the
    finding.
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
        raise _error_of(frame, header_layout, layout, _subject(APIS[api_key], version, "request")) from None
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
    """Compile all readers of requests and writers of responses now (about 0.3 s), not at their first use."""
    for api in APIS.values():
        for version in api.versions:
            header, layout = _request_layouts(api.key, version)
            reader_of(header)
            reader_of(layout, MOST_ELEMENTS)
            writer_of(RESPONSE_HEADERS[api.response_header(version)])
            writer_of(api.response_layout(version))


def response_bytes(
    api_key: int,
    version: int,
    correlation_id: int,
    body: Message,
    *,
    errors: MutableMapping[int, int] | None = None,
) -> bytes:
    """Write a response: size, header and message.

    The body is a dict with Kafka's names. Fields with a default may be missing, and fields that the version
    lacks are ignored: one body serves all versions. Raises `UnwritableError`.

    `errors` (None: not wanted) counts the error codes in the response by code, at every level as Kafka's
    `AbstractResponse.errorCounts` does, but without 0 (NONE).
    """
    api = _api(api_key, version)
    try:
        header = writer_of(RESPONSE_HEADERS[api.response_header(version)])({"correlationId": correlation_id})
        return _sent(header, writer_of(api.response_layout(version))(body, _counting(errors)))
    except UNWRITABLE as error:
        raise _unwritable(api, version, "response", error) from error


@dataclass(frozen=True)
class Pieces:
    """A response in pieces that are written while iterating, once; `size` is the total in bytes."""

    size: int
    _pieces: Iterator[memoryview]

    def __iter__(self) -> Iterator[memoryview]:
        return self._pieces


def response_pieces(
    api_key: int,
    version: int,
    correlation_id: int,
    body: Message,
    *,
    piece_bytes: int = 1 << 20,
    errors: MutableMapping[int, int] | None = None,
) -> Pieces:
    """Write a large response: size, header and message, in pieces of `piece_bytes`.

    An array of structs in the body, or within other `Columns`, may be `Columns`; the bytes equal those of
    `response_bytes`, and so do the `errors`, which are complete before the first piece. Raises
    `UnwritableError`, also before it. The columns must not change until the last piece.
    """
    api = _api(api_key, version)
    try:
        header = writer_of(RESPONSE_HEADERS[api.response_header(version)])({"correlationId": correlation_id})
        plan = plan_of(api.response_layout(version), body, _counting(errors))
    except UNWRITABLE as error:
        raise _unwritable(api, version, "response", error) from error
    before = _SIZE.pack(len(header) + plan.size) + header
    return Pieces(len(before) + plan.size, chain([memoryview(before)], plan.pieces(piece_bytes)))


def _counting(errors: MutableMapping[int, int] | None) -> OnError:
    if errors is None:
        return same

    def count(code: int) -> int:
        errors[code] = errors.get(code, 0) + 1
        return code

    return count


# --- for clients -------------------------------------------------------------------------------------------


def request_bytes(api_key: int, version: int, correlation_id: int, client_id: str, body: Message) -> bytes:
    """Write a request: size, header and message; the body is as for `response_bytes`."""
    api = _api(api_key, version)
    header = {
        "requestApiKey": api_key,
        "requestApiVersion": version,
        "correlationId": correlation_id,
        "clientId": client_id,
    }
    try:
        head = writer_of(REQUEST_HEADERS[api.request_header(version)])(header)
        return _sent(head, writer_of(api.request_layout(version))(body))
    except UNWRITABLE as error:
        raise _unwritable(api, version, "request", error) from error


def read_response(api_key: int, version: int, frame: bytes) -> Response:
    """Read the response to a request of this API and version; raises `DecodeError` like `read_request`.

    Raises `UnwritableError` if there is no such request.
    """
    api = _api(api_key, version)
    header_layout = RESPONSE_HEADERS[api.response_header(version)]
    layout = api.response_layout(version)
    try:
        header, at = reader_of(header_layout)(frame, 0)
        body, _ = reader_of(layout)(frame, at)
    except UNREADABLE:
        raise _error_of(frame, header_layout, layout, _subject(api, version, "response")) from None
    return Response(header["correlationId"], body)


# --- for both ----------------------------------------------------------------------------------------------


def _api(api_key: int, version: int) -> Api:
    """Return the API; `UnwritableError` unless it has this version."""
    api = APIS.get(api_key)
    if api is None:
        raise UnwritableError(f"expected a known API, found {api_key}")
    if version not in api.versions:
        raise UnwritableError(f"{api.name}: expected {_expected_versions(api)}, found {version}")
    return api


def _expected_versions(api: Api) -> str:
    return f"a version from {api.versions[0]} to {api.versions[-1]}"


def _subject(api: Api, version: int, direction: str) -> str:
    """The name of a message in errors: `OffsetFetch request v9`."""
    return f"{api.name} {direction} v{version}"


def _error_of(frame: bytes, header: Struct, layout: Struct, subject: str) -> DecodeError:
    """Find the error in a frame that the fast readers refused, by `construct`, with limited reads.

    Its containers are cycles that refer to the stream, which therefore is closed: an open one would hold the
    frame until the next garbage collection.
    """
    with ReadsLeft(frame, MESSAGE_READS) as stream:
        try:
            header.parse_stream(stream)
            layout.parse_stream(stream)
        except WireError as error:
            return malformed(subject, error.fault)
    raise AssertionError(f"{subject}: one reader refused what the other read: {frame[:1_000].hex()}")


def _unwritable(api: Api, version: int, direction: str, error: Exception) -> UnwritableError:
    """Return an error of writing with the name of the message."""
    why = f"field {error} is missing" if isinstance(error, KeyError) else str(error)
    return UnwritableError(f"{_subject(api, version, direction)} cannot be written: {why}")


def _sent(header: bytes, message: bytes) -> bytes:
    return b"".join((_SIZE.pack(len(header) + len(message)), header, message))
