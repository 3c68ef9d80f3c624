"""The row reader: one record as the document that Kafka's own tools print, or the reason why there is none.

A document is `{"key": {"type": 1, "data": {...}}, "value": {"version": 4, "data": {...}}}`, its value None
for a tombstone. What reads the messages inside is an argument: `construct` itself here, which is the
reference, or the fast derived reader (`documents`).
"""

from base64 import b64encode
from collections.abc import Callable
from functools import singledispatch
from io import BytesIO
from typing import Any

from construct import Construct, Default, Renamed, Struct

from decoders.errors import DecodeError, ErrorKind
from decoders.records import RECORD_TYPES, RecordType, RecordTypes
from decoders.wire import Blob, FlexibleStruct, NullableStruct, Sequence, WireError

Message = dict[str, Any]
Document = dict[str, Any]
ReadMessage = Callable[[Struct, bytes, int], Message]

PREFIX_BYTES = 2  # the record type in front of a key, the version in front of a value


def parse_message(declaration: Struct, data: bytes, at_byte: int = 0) -> Message:
    """The message that starts at a byte, read by `construct`, with values as Kafka's JSON converters show
    them.

    Raises `WireError`. Bytes after the last known field are ignored, as Kafka ignores them.
    """
    stream = BytesIO(data)
    stream.seek(at_byte)
    message: Message = _shown(declaration, declaration.parse_stream(stream))
    return message


@singledispatch
def _shown(declaration: Construct, value: Any) -> Any:
    """A parsed value as it stands in Kafka's JSON."""
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
    key: bytes | None,
    value: bytes | None,
    *,
    record_types: RecordTypes = RECORD_TYPES,
    read: ReadMessage = parse_message,
) -> Document:
    """One record as Kafka's message formatter prints it; raises `DecodeError`.

    >>> decode_document(bytes.fromhex("0002000167"), None)
    {'key': {'type': 2, 'data': {'group': 'g'}}, 'value': None}
    """
    type_id = read_prefix(key, "key", "type")
    record_type = _known_type(type_id, record_types)
    return {
        "key": {
            "type": type_id,
            "data": _read_message(record_type.key, key, f"{record_type.subject} key", read),
        },
        "value": None if value is None else _decode_value(record_type, value, read),
    }


def _decode_value(record_type: RecordType, value: bytes, read: ReadMessage) -> Document:
    subject = f"{record_type.subject} value"
    version = read_prefix(value, subject, "version")
    declaration = _known_version(version, record_type, subject)
    return {"version": version, "data": _read_message(declaration, value, subject, read)}


def read_prefix(data: bytes | None, subject: str, field: str) -> int:
    """The number that says what follows: a key's record type, a value's version. Raises `DecodeError`."""
    if data is None or len(data) < PREFIX_BYTES:
        found = "null" if data is None else len(data)
        raise malformed(subject, WireError(f"{PREFIX_BYTES} bytes", found, at_byte=0, field=field))
    return int.from_bytes(data[:PREFIX_BYTES], signed=True)


def _read_message(declaration: Struct, data: Any, subject: str, read: ReadMessage) -> Message:
    try:
        return read(declaration, data, PREFIX_BYTES)
    except WireError as error:
        raise malformed(subject, error) from error


def _known_type(type_id: int, record_types: RecordTypes) -> RecordType:
    if type_id in record_types:
        return record_types[type_id]
    expected = f"a known record type (the highest is {max(record_types)})"
    reason = f"key: expected {expected} at byte 0, found {type_id}"
    raise DecodeError(ErrorKind.UNKNOWN_TYPE, reason, field="type", at_byte=0)


def _known_version(version: int, record_type: RecordType, subject: str) -> Struct:
    if version in record_type.values:
        return record_type.values[version]
    expected = f"a known version (the highest is {max(record_type.values)})"
    reason = f"{subject}: expected {expected} at byte 0, found {version}"
    raise DecodeError(ErrorKind.UNSUPPORTED_VERSION, reason, field="version", at_byte=0)


def malformed(subject: str, error: WireError) -> DecodeError:
    """The error of bytes that break the format of `subject`, say an `offset-commit value`."""
    return DecodeError(ErrorKind.MALFORMED, f"{subject}: {error}", field=error.field, at_byte=error.at_byte)
