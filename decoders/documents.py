"""Fast reader of one message at a time, derived from its declaration: bytes to the values of Kafka's JSON.

`construct` needs tens of microseconds for a message; the functions derived here need a few, and raise the
same `WireError` with the same field and byte. A derived function takes the record's bytes and the byte to
start at, and returns the value and the byte after it:

    >>> from decoders.records import RECORD_TYPES
    >>> message_reader(RECORD_TYPES[2].key)(bytes.fromhex("0002000167"), 2)
    ({'group': 'g'}, 5)

Values are those of Kafka's JSON converters: ids and bytes are base64 text, a tagged field is left out where
it holds its default.
"""

import struct
from base64 import b64encode
from collections.abc import Callable
from functools import cache, singledispatch
from json.encoder import JSONEncoder
from re import Match
from re import compile as regex
from typing import Any, Final

from construct import Construct, Default, Renamed, Struct

from decoders.wire import (
    MAX_TEXT_BYTES,
    MAX_VARINT_BYTES,
    Blob,
    CompactLength,
    Counted,
    FlexibleStruct,
    Integer,
    NullableStruct,
    Sequence,
    Text,
    Uuid,
    Varint,
    WireError,
    as_int32,
    decode_text,
    decode_uuid,
    missing_bytes,
    overlong_text,
    unended_varint,
    unexpected_null,
)

Message = dict[str, Any]
Read = Callable[[bytes, int], tuple[Any, int]]
ReadTags = Callable[[bytes, int, int], tuple[Message, int]]


@cache
def message_reader(declaration: Construct) -> Read:
    """The reader of a declaration; derived once."""
    return _derive(declaration)


@singledispatch
def _derive(declaration: Construct) -> Read:
    raise TypeError(f"no reader can be derived from {declaration!r}")


@_derive.register
def _(declaration: Renamed) -> Read:
    return _derive(declaration.subcon)


@_derive.register
def _(declaration: Default) -> Read:
    return _derive(declaration.subcon)


@_derive.register
def _(declaration: Integer) -> Read:
    size, unpack = declaration.length, struct.Struct(declaration.fmtstr).unpack_from

    def read(data: bytes, at: int) -> tuple[int, int]:
        try:
            return unpack(data, at)[0], at + size
        except struct.error:
            raise missing_bytes(size, len(data) - at, at_byte=at) from None

    return read


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(data[at : at + MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return as_int32(value), at + index + 1
    raise unended_varint(at_byte=at, is_cut=len(data) < at + MAX_VARINT_BYTES)


def _read_compact_length(data: bytes, at: int) -> tuple[int, int]:
    if at < len(data) and data[at] < 0x80:  # nearly always
        return data[at] - 1, at + 1
    length, at = _read_varint(data, at)
    return as_int32(length - 1), at


@_derive.register
def _(declaration: Varint) -> Read:
    return _read_varint


@_derive.register
def _(declaration: CompactLength) -> Read:
    return _read_compact_length


def _take(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    stop = at + size
    if stop > len(data):
        raise missing_bytes(size, len(data) - at, at_byte=at)
    return data[at:stop], stop


@_derive.register
def _(declaration: Uuid) -> Read:
    def read(data: bytes, at: int) -> tuple[str, int]:
        content, at = _take(data, at, 16)
        return decode_uuid(content), at

    return read


def _counted(declaration: Counted, read_content: Callable[[bytes, int, int, int], tuple[Any, int]]) -> Read:
    """Reads the length in front, then `read_content(data, start, length, byte of the length)`."""
    read_length, nullable = _derive(declaration.length), declaration.nullable

    def read(data: bytes, at: int) -> tuple[Any, int]:
        length, start = read_length(data, at)
        if length >= 0:
            return read_content(data, start, length, at)
        if nullable:
            return None, start
        raise unexpected_null(length, at_byte=at)

    return read


@_derive.register
def _(declaration: Blob) -> Read:
    def read_content(data: bytes, start: int, length: int, length_at: int) -> tuple[str, int]:
        content, stop = _take(data, start, length)
        return b64encode(content).decode("ascii"), stop

    return _counted(declaration, read_content)


@_derive.register
def _(declaration: Text) -> Read:
    def read_content(data: bytes, start: int, length: int, length_at: int) -> tuple[str, int]:
        if length > MAX_TEXT_BYTES:
            raise overlong_text(length, at_byte=length_at)
        content, stop = _take(data, start, length)
        return decode_text(content), stop

    return _counted(declaration, read_content)


@_derive.register
def _(declaration: Sequence) -> Read:
    read_element = _derive(declaration.element)

    def read_content(data: bytes, at: int, length: int, length_at: int) -> tuple[list[Any], int]:
        _refuse_impossible_count(data, at, length)
        elements = []
        for index in range(length):
            try:
                element, at = read_element(data, at)
            except WireError as error:
                raise error.within(f"[{index}]") from None
            elements.append(element)
        return elements, at

    return _counted(declaration, read_content)


def _refuse_impossible_count(data: bytes, at: int, count: int) -> None:
    if count > len(data) - at:
        raise missing_bytes(count, len(data) - at, at_byte=at)


@_derive.register
def _(declaration: Struct) -> Read:
    fields = [(field.name, _derive(field)) for field in declaration.subcons]

    def read(data: bytes, at: int) -> tuple[Message, int]:
        message: Message = {}
        for name, read_field in fields:
            try:
                message[name], at = read_field(data, at)
            except WireError as error:
                raise error.within(name) from None
        return message, at

    return read


@_derive.register
def _(declaration: FlexibleStruct) -> Read:
    read_fields = _derive.dispatch(Struct)(declaration)
    read_tags = tags_reader(declaration)

    def read(data: bytes, at: int) -> tuple[Message, int]:
        message, at = read_fields(data, at)
        if data[at : at + 1] == b"\0":  # no tags: nearly always
            return message, at + 1
        try:
            count, at = _read_varint(data, at)
            _refuse_impossible_count(data, at, count)
        except WireError as error:
            raise error.within("tags") from None
        tagged, at = read_tags(data, at, count)
        message.update(tagged)
        return message, at

    return read


@cache
def tags_reader(declaration: FlexibleStruct) -> ReadTags:
    """The reader of tagged fields: takes the data, the byte after their count and the count.

    Returns the fields that do not hold their default, in the order of their tags, and the byte after the
    last.
    """
    known = {tag: (field.name, _derive(field), field.subcon.value) for tag, field in declaration.tags.items()}

    def read(data: bytes, at: int, count: int) -> tuple[Message, int]:
        found: dict[int, Any] = {}
        for _ in range(count):
            tag, size, at = _read_tag_header(data, at)
            if tag not in known:
                at = _skip(data, at, size)
                continue
            name, read_field, _default = known[tag]
            try:
                found[tag], at = read_field(data, at)
            except WireError as error:
                raise error.within(name) from None
        shown = {
            name: found[tag]
            for tag, (name, _read, default) in known.items()
            if tag in found and found[tag] != default
        }
        return shown, at

    return read


def _read_tag_header(data: bytes, at: int) -> tuple[int, int, int]:
    """The tag, the size of its content (negative: refused where it is needed) and the byte after both."""
    try:
        tag, at = _read_varint(data, at)
        size, at = _read_varint(data, at)
    except WireError as error:
        raise error.within("tags") from None
    return tag, size, at


def _skip(data: bytes, at: int, size: int) -> int:
    try:
        if size < 0:
            raise unexpected_null(size, at_byte=at)
        return _take(data, at, size)[1]
    except WireError as error:
        raise error.within("tags") from None


@_derive.register
def _(declaration: NullableStruct) -> Read:
    read_marker, null = _derive(declaration.marker), declaration.null
    read_struct = _derive(declaration.subcon)

    def read(data: bytes, at: int) -> tuple[Message | None, int]:
        marker, at = read_marker(data, at)
        return (None, at) if marker <= null else read_struct(data, at)

    return read


_encode: Final = JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_ESCAPE: Final = regex(r"\\(?:u[0-9a-f]{4}|.)")


def to_json(document: Message) -> str:
    """The document as compact JSON text, character for character as Kafka prints it."""
    text = _encode(document)
    return _ESCAPE.sub(_as_kafka_escapes, text) if "\\u00" in text else text


def _as_kafka_escapes(escape: Match[str]) -> str:
    """Kafka's JSON library writes the hexadecimal digits of an escape in upper case."""
    text = escape[0]
    return "\\u" + text[2:].upper() if text.startswith("\\u") else text
