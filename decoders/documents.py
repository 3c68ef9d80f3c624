"""Fast reader of one record at a time, derived from its declarations: bytes to the JSON text that Kafka
prints.

`construct` takes tens of microseconds for a message; the functions derived here take a few, and raise the
same `WireError`, with the same field and byte. Each reads one thing. It takes the record's bytes, the byte to
start at and a list; it appends the JSON of what it has read to the list (text, or an integer) and returns the
byte after it. A field that breaks is therefore the one that its list has not got yet.

The text is that of Kafka's JSON converters: ids and bytes are base64, a tagged field that holds its default
is left out.
"""

import struct
from base64 import b64encode
from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass
from functools import cache, lru_cache, singledispatch
from itertools import groupby
from json.encoder import encode_basestring
from re import Match
from re import compile as regex
from typing import Any, Final

from construct import Construct, Default, Renamed, Struct

from decoders.records import RECORD_TYPES, RecordTypes
from decoders.rows import read_record
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

Read = Callable[[bytes, int, list[Any]], int]
ReadNumber = Callable[[bytes, int], tuple[int, int]]  # of a number that is not shown: value and next byte
ReadContent = Callable[[bytes, int, int, list[Any]], int]  # takes data, start, length and list
ReadElements = Callable[[bytes, int, int], tuple[str, int]]  # takes data, start and count: JSON and next byte


def document_text(key: bytes | None, value: bytes | None, *, record_types: RecordTypes = RECORD_TYPES) -> str:
    """One record as the compact JSON that Kafka's message formatter prints; raises `DecodeError`.

    >>> document_text(bytes.fromhex("0002000167"), None)
    '{"key":{"type":2,"data":{"group":"g"}},"value":null}'
    """
    type_id, key_text, version, value_text = read_record(key, value, record_types, _read_key, _read_message)
    value_document = "null" if value is None else f'{{"version":{version},"data":{value_text}}}'
    return f'{{"key":{{"type":{type_id},"data":{key_text}}},"value":{value_document}}}'


def _read_message(declaration: Struct, data: bytes, at: int) -> str:
    texts: list[str] = []
    reader_of(declaration)(data, at, texts)
    return texts[0]


# The same groups and members come again and again.
_read_key = lru_cache(maxsize=2_048)(_read_message)


@cache
def reader_of(declaration: Construct) -> Read:
    """The function that reads what is declared; derived once."""
    return _reader_of(declaration)


@singledispatch
def _reader_of(declaration: Construct) -> Read:
    raise TypeError(f"no reader can be derived from {declaration!r}")


@_reader_of.register
def _(declaration: Renamed) -> Read:
    return _reader_of(declaration.subcon)


@_reader_of.register
def _(declaration: Default) -> Read:
    return _reader_of(declaration.subcon)


# --- numbers ---------------------------------------------------------------------------------------------


@_reader_of.register
def _(declaration: Integer) -> Read:
    read_number = _number_reader_of(declaration)

    def read(data: bytes, at: int, out: list[Any]) -> int:
        value, at = read_number(data, at)
        out.append(value)
        return at

    return read


@singledispatch
def _number_reader_of(declaration: Construct) -> ReadNumber:
    raise TypeError(f"{declaration!r} is not a number")


@_number_reader_of.register
def _(declaration: Integer) -> ReadNumber:
    size, unpack = declaration.length, struct.Struct(declaration.fmtstr).unpack_from

    def read(data: bytes, at: int) -> tuple[int, int]:
        try:
            return unpack(data, at)[0], at + size
        except struct.error:
            raise missing_bytes(size, len(data) - at, at_byte=at) from None

    return read


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    if at < len(data) and data[at] < 0x80:  # one byte: nearly always
        return data[at], at + 1
    value = 0
    for index, byte in enumerate(data[at : at + MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return as_int32(value), at + index + 1
    raise unended_varint(at_byte=at, is_cut=len(data) < at + MAX_VARINT_BYTES)


def _read_compact_length(data: bytes, at: int) -> tuple[int, int]:
    if at < len(data) and data[at] < 0x80:
        return data[at] - 1, at + 1
    length, at = _read_varint(data, at)
    return as_int32(length - 1), at


@_number_reader_of.register
def _(declaration: Varint) -> ReadNumber:
    return _read_varint


@_number_reader_of.register
def _(declaration: CompactLength) -> ReadNumber:
    return _read_compact_length


def _integers_reader(integers: Items[Integer]) -> Read:
    """Reads neighbouring integers at once."""
    letters = "".join(integer.fmtstr[-1] for integer in integers)
    packed, single_reads = struct.Struct(f">{letters}"), [_reader_of(integer) for integer in integers]

    def read(data: bytes, at: int, out: list[Any]) -> int:
        if at + packed.size <= len(data):
            out += packed.unpack_from(data, at)
            return at + packed.size
        for read_one in single_reads:  # one of them says what is missing
            at = read_one(data, at, out)
        return at

    return read


# --- ids, texts and bytes --------------------------------------------------------------------------------


def _take(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise missing_bytes(size, len(data) - at, at_byte=at)
    return data[at : at + size]


@_reader_of.register
def _(declaration: Uuid) -> Read:
    def read(data: bytes, at: int, out: list[Any]) -> int:
        out.append(f'"{decode_uuid(_take(data, at, 16))}"')
        return at + 16

    return read


def _counted_reader(declaration: Counted, read_content: ReadContent) -> Read:
    read_length, nullable = _number_reader_of(declaration.length), declaration.nullable

    def read(data: bytes, at: int, out: list[Any]) -> int:
        length, start = read_length(data, at)
        if length >= 0:
            return read_content(data, start, length, out)
        if not nullable:
            raise unexpected_null(length, at_byte=at)
        out.append("null")
        return start

    return read


@_reader_of.register
def _(declaration: Text) -> Read:
    read_length, nullable = _number_reader_of(declaration.length), declaration.nullable
    short_lengths, size = _short_lengths(declaration.length)

    def read(data: bytes, at: int, out: list[Any]) -> int:
        start = at + size
        length = short_lengths.get(data[at:start])
        if length is None:
            length, start = read_length(data, at)
        stop = start + length
        if 0 <= length <= MAX_TEXT_BYTES and stop <= len(data):
            quoted = encode_basestring(decode_text(data[start:stop]))
            out.append(_with_kafkas_escapes(quoted) if "\\u" in quoted else quoted)
            return stop
        if length < 0 and nullable:
            out.append("null")
            return start
        raise _text_error(data, at, length, start)

    return read


def _short_lengths(length: Construct) -> tuple[dict[bytes, int], int]:
    """The lengths that nearly all texts have, by the bytes that stand for them, and the number of these
    bytes.

    Looking them up takes half the time of reading them.
    """
    lengths = {length.build(number): number for number in range(-1, 100)}
    return lengths, len(length.build(0))


def _text_error(data: bytes, at: int, length: int, start: int) -> WireError:
    if length < 0:
        return unexpected_null(length, at_byte=at)
    if length > MAX_TEXT_BYTES:
        return overlong_text(length, at_byte=at)
    return missing_bytes(length, len(data) - start, at_byte=start)


@_reader_of.register
def _(declaration: Blob) -> Read:
    def read_content(data: bytes, start: int, length: int, out: list[Any]) -> int:
        out.append(f'"{b64encode(_take(data, start, length)).decode("ascii")}"')
        return start + length

    return _counted_reader(declaration, read_content)


_ESCAPE: Final = regex(r"\\(?:u[0-9a-f]{4}|.)")


def _with_kafkas_escapes(quoted: str) -> str:
    """A JSON string of Python's as Kafka writes it: the hexadecimal digits of escapes in upper case."""
    return _ESCAPE.sub(_in_upper_case, quoted)


def _in_upper_case(escape: Match[str]) -> str:
    text = escape[0]
    return rf"\u{text[2:].upper()}" if text.startswith(r"\u") else text


# --- arrays and structs ----------------------------------------------------------------------------------


@_reader_of.register
def _(declaration: Sequence) -> Read:
    element = declaration.element
    read_elements = _integers_text(element) if isinstance(element, Integer) else _elements_text(element)

    def read_content(data: bytes, start: int, length: int, out: list[Any]) -> int:
        if not length:
            out.append("[]")
            return start
        _refuse_impossible_count(data, start, length)
        text, stop = read_elements(data, start, length)
        out.append(text)
        return stop

    return _counted_reader(declaration, read_content)


def _elements_text(element: Construct) -> ReadElements:
    read_element = _reader_of(element)

    def read(data: bytes, at: int, count: int) -> tuple[str, int]:
        elements: list[Any] = []
        try:
            for _ in range(count):
                at = read_element(data, at, elements)
        except WireError as error:
            raise error.within(f"[{len(elements)}]") from None
        return f"[{','.join(elements)}]", at

    return read


def _integers_text(element: Integer) -> ReadElements:
    """Reads integers all at once."""
    size, letter = element.length, element.fmtstr[-1]

    def read(data: bytes, at: int, count: int) -> tuple[str, int]:
        present = min(count, (len(data) - at) // size)
        stop = at + present * size
        if present < count:
            raise missing_bytes(size, len(data) - stop, at_byte=stop, field=f"[{present}]")
        elements = list(struct.unpack_from(f">{count}{letter}", data, at))
        return str(elements).replace(" ", ""), stop

    return read


def _refuse_impossible_count(data: bytes, at: int, count: int) -> None:
    if count > len(data) - at:
        raise missing_bytes(count, len(data) - at, at_byte=at)


@_reader_of.register
def _(declaration: Struct) -> Read:
    names, reads = [field.name for field in declaration.subcons], _field_readers(declaration)
    template = ",".join(f'"{name}":%s' for name in names)
    read_tags = tags_reader_of(declaration) if isinstance(declaration, FlexibleStruct) else None

    def read(data: bytes, at: int, out: list[Any]) -> int:
        fields: list[Any] = []
        try:
            for read_field in reads:
                at = read_field(data, at, fields)
        except WireError as error:
            raise error.within(names[len(fields)]) from None
        text = template % tuple(fields)
        if read_tags is None:
            out.append(f"{{{text}}}")
            return at
        if data[at : at + 1] == b"\0":  # no tags: nearly always
            out.append(f"{{{text}}}")
            return at + 1
        tagged, at = read_tags(data, at)
        out.append(f"{{{','.join([text, *tagged] if text else tagged)}}}")
        return at

    return read


def _field_readers(declaration: Struct) -> list[Read]:
    """Readers of a struct's untagged fields: one for each, or for a run of integers."""
    runs = groupby(map(_bare, declaration.subcons), lambda bare: isinstance(bare, Integer))
    return [
        read
        for is_integer, fields in runs
        for read in ([_integers_reader(list(fields))] if is_integer else map(_reader_of, fields))
    ]


def _bare(field: Construct) -> Construct:
    """What stands on the wire for a field, without its name and default."""
    return _bare(field.subcon) if isinstance(field, Renamed | Default) else field


@_reader_of.register
def _(declaration: NullableStruct) -> Read:
    read_marker, null = _number_reader_of(declaration.marker), declaration.null
    read_struct = _reader_of(declaration.subcon)

    def read(data: bytes, at: int, out: list[Any]) -> int:
        marker, at = read_marker(data, at)
        if marker > null:
            return read_struct(data, at, out)
        out.append("null")
        return at

    return read


# --- tagged fields ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Tag:
    """A tagged field: how to read it, and what its default is then read as."""

    name: str
    read: Read
    default: Any


@cache
def tags_reader_of(declaration: FlexibleStruct) -> Callable[[bytes, int], tuple[list[str], int]]:
    """The function that reads a section of tagged fields: takes the data and where its count stands.

    It returns those fields that do not hold their default, as `"name":content` in the order of their tags,
    and the byte after the section.
    """
    tags = {tag: _tag_of(field) for tag, field in declaration.tags.items()}

    def read(data: bytes, at: int) -> tuple[list[str], int]:
        found: dict[int, Any] = {}
        field = "tags"
        try:
            count, at = _read_varint(data, at)
            _refuse_impossible_count(data, at, count)
            for _ in range(count):
                field = "tags"
                number, at = _read_varint(data, at)
                size, at = _read_varint(data, at)
                tag = tags.get(number)
                if tag is None:
                    at = _skip(data, at, size)
                    continue
                field = tag.name
                content: list[Any] = []
                at = tag.read(data, at, content)
                found[number] = content[0]
        except WireError as error:
            raise error.within(field) from None
        return [
            f'"{tag.name}":{found[number]}'
            for number, tag in tags.items()
            if number in found and found[number] != tag.default
        ], at

    return read


def _tag_of(field: Renamed) -> _Tag:
    read, default, content = _reader_of(field), field.subcon.subcon.build(field.subcon.value), list[Any]()
    read(default, 0, content)
    return _Tag(field.name, read, content[0])


def _skip(data: bytes, at: int, size: int) -> int:
    if size < 0:
        raise unexpected_null(size, at_byte=at)
    if at + size > len(data):
        raise missing_bytes(size, len(data) - at, at_byte=at)
    return at + size
