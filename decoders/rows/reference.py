"""The row reader: one record as the document that Kafka's own tools print, or the reason for its absence.

A document is `{"key": {"type": 1, "data": {...}}, "value": {"version": 4, "data": {...}}}`, its value None
for a tombstone. `read_key` and `read_value` take the reader of the message inside as an argument: `construct`
itself, which is the reference, or the fast reader derived from the declarations (`documents`).
"""

from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
from io import BytesIO
from typing import Any, Final, TypeVar

from construct import Construct, Default, Renamed, Struct

from decoders.errors import DecodeError, ErrorKind
from decoders.formats.faults import Fault, WireError, unexpected
from decoders.formats.record_type import RecordType, RecordTypes
from decoders.formats.record_types import RECORD_TYPES
from decoders.formats.wire import Blob, FlexibleStruct, NullableStruct, ReadsLeft, Sequence

Message = dict[str, Any]
Document = dict[str, Any]
M = TypeVar("M")  # the form in which a message is returned
ReadMessage = Callable[[Struct, bytes, int], M]

MESSAGE_READS: Final = 500
"""Fields and lengths of one message that may always be read to find its error."""

MORE_MESSAGE_READS: Final = 3_500
"""Further reads of one message while `SEARCH_READS` lasts; together about 20 ms."""

SEARCH_READS: Final = 20_000
"""Further reads of all messages of one search: about 0.1 s."""

PREFIX_BYTES = 2  # the record type of a key, the version of a value


def parse_message(declaration: Struct, data: bytes, at_byte: int = 0) -> Message:
    """Parse the message at byte `at_byte` with `construct`; values are as in Kafka's JSON.

    Raises `WireError`. Bytes after the last known field are ignored, as in Kafka.
    """
    return _parse(declaration, BytesIO(data), at_byte)


@dataclass
class FaultSearch:
    """Finds the errors of messages, with a limit for each message and one for all of them.

    Errors of ordinary messages are always found. `reads_left` limits all longer searches together.
    """

    reads_left: int = SEARCH_READS

    def parse(self, declaration: Struct, data: bytes, at_byte: int = 0) -> Message:
        """Like `parse_message`; the `WireError` may say that the search was given up."""
        stream = ReadsLeft(data, MESSAGE_READS + min(self.reads_left, MORE_MESSAGE_READS))
        allowed = stream.reads_left
        try:
            return _parse(declaration, stream, at_byte)
        finally:
            self.reads_left -= max(0, allowed - stream.reads_left - MESSAGE_READS)


def _parse(declaration: Struct, stream: BytesIO, at_byte: int) -> Message:
    stream.seek(at_byte)
    message: Message = _shown(declaration, declaration.parse_stream(stream))
    return message


@singledispatch
def _shown(declaration: Construct, value: Any) -> Any:
    """A parsed value as in Kafka's JSON."""
    return value


@_shown.register
def _(declaration: Renamed, value: Any) -> Any:
    return _shown(declaration.subcon, value)


@_shown.register
def _(declaration: Default, value: Any) -> Any:
    return _shown(declaration.subcon, value)


@_shown.register
def _(declaration: Blob, value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode("ascii")


@_shown.register
def _(declaration: Sequence, value: list[Any] | None) -> list[Any] | None:
    return None if value is None else [_shown(declaration.element, element) for element in value]


@_shown.register
def _(declaration: Struct, value: Message) -> Message:
    return {field.name: _shown(field, value[field.name]) for field in declaration.subcons}


@_shown.register
def _(declaration: FlexibleStruct, value: Message) -> Message:
    shown: Message = _shown.dispatch(Struct)(declaration, value)
    tagged = ((field, _shown(field, value[field.name])) for field in declaration.tags.values())
    return shown | {field.name: content for field, content in tagged if content != field.subcon.value}


@_shown.register
def _(declaration: NullableStruct, value: Message | None) -> Message | None:
    return None if value is None else _shown(declaration.subcon, value)


def decode_document(
    key: bytes | None, value: bytes | None, *, record_types: RecordTypes = RECORD_TYPES
) -> Document:
    """One record as Kafka's message formatter prints it, read by `construct`; raises `DecodeError`.

    >>> decode_document(bytes.fromhex("0002000167"), None)
    {'key': {'type': 2, 'data': {'group': 'g'}}, 'value': None}
    """
    type_id, record_type, key_data = read_key(key, record_types, parse_message)
    document: Document = {"key": {"type": type_id, "data": key_data}, "value": None}
    if value is not None:
        version, value_data = read_value(value, record_type, parse_message)
        document["value"] = {"version": version, "data": value_data}
    return document


def read_key(key: bytes | None, record_types: RecordTypes, read: ReadMessage[M]) -> tuple[int, RecordType, M]:
    """Return the number and the row of the record type, and the result of the given reader for the key.

    Raises `DecodeError`.
    """
    type_id = read_prefix(key, "key", "type")
    record_type = _known_type(type_id, record_types)
    return type_id, record_type, _read_message(record_type.key, key, read, record_type.key_subject)


def read_value(value: bytes, record_type: RecordType, read: ReadMessage[M]) -> tuple[int, M]:
    """Return the version, and the result of the given reader for the value. Raises `DecodeError`."""
    version = read_prefix(value, record_type.value_subject, "version")
    declaration = _known_version(version, record_type)
    return version, _read_message(declaration, value, read, record_type.value_subject)


def read_prefix(data: bytes | None, subject: str, field: str) -> int:
    """The number at the start: a key's record type, a value's version. Raises `DecodeError`."""
    if data is None or len(data) < PREFIX_BYTES:
        found = "null" if data is None else len(data)
        message = unexpected(f"{PREFIX_BYTES} bytes", found, field, 0)
        raise malformed(subject, Fault(message, field, 0))
    return int.from_bytes(data[:PREFIX_BYTES], signed=True)


def _known_type(type_id: int, record_types: RecordTypes) -> RecordType:
    record_type = record_types.get(type_id)
    if record_type is None:
        reason = unknown_type(type_id, max(record_types))
        raise DecodeError(ErrorKind.UNKNOWN_TYPE, reason, field="type", at_byte=0)
    return record_type


def unknown_type(type_id: int, highest: int) -> str:
    """The reason for a record type that is not in the table."""
    return f"key: expected a known record type (the highest is {highest}) at byte 0, found {type_id}"


def _known_version(version: int, record_type: RecordType) -> Struct:
    declaration = record_type.values.get(version)
    if declaration is None:
        expected = f"a known version (the highest is {max(record_type.values)})"
        reason = f"{record_type.value_subject}: expected {expected} at byte 0, found {version}"
        raise DecodeError(ErrorKind.UNSUPPORTED_VERSION, reason, field="version", at_byte=0)
    return declaration


def _read_message(declaration: Struct, data: Any, read: ReadMessage[M], subject: str) -> M:
    try:
        return read(declaration, data, PREFIX_BYTES)
    except WireError as error:
        raise malformed(subject, error.fault) from error


def malformed(subject: str, fault: Fault) -> DecodeError:
    """The error of bytes that break the format of `subject`, such as `offset-commit value`."""
    reason = reason_of(subject, fault.message)
    return DecodeError(ErrorKind.MALFORMED, reason, field=fault.field, at_byte=fault.at_byte)


def reason_of(subject: str, message: str) -> str:
    return f"{subject}: {message}"
