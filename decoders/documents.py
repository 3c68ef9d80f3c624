"""Fast reader of one record at a time, derived from its declarations: bytes to the JSON text that Kafka
prints.

`construct` takes tens of microseconds for a message. Here each declaration is written out, once, as the
function that a person would write for it, which takes a few. That of `REGULAR_EXPRESSION_KEY` begins and ends

    def read(data, at):
        length, = unpack_h(data, at)
        at += 2
        if length < 0:
            raise IndexError
        else:
            message_groupId = (short_text if length < 100 else text)(data[at : at + length])
            at += length
        ...
        message = f'{{"groupId":{message_groupId},"regularExpression":{message_regularExpression}}}'
        if at > len(data):
            raise IndexError
        return message, at

It takes the bytes and where to start, and returns the JSON and the byte after it. It does not say what is
wrong with bytes. Python refuses an index beyond the data; a slice beyond it leaves `at` there, which is seen
at the end, and loops end because every element has an index. Bytes that are refused go to `construct`, whose
error names field and byte.

The text is that of Kafka's JSON converters: ids and bytes are base64, a tagged field that holds its default
is left out.
"""

import json
import struct
from binascii import b2a_base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import cache, lru_cache, partial, singledispatch
from json.encoder import encode_basestring
from re import Match
from re import compile as regex
from typing import Any, Final

from construct import Construct, Default, Renamed, Struct

from decoders.records import RECORD_TYPES, RecordType, RecordTypes
from decoders.rows import parse_message, read_key, read_value
from decoders.wire import (
    MAX_TEXT_BYTES,
    MAX_VARINT_BYTES,
    VARINT,
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
    as_int32,
    decode_text,
    decode_uuid,
)

Read = Callable[[bytes, int], tuple[str, int]]  # takes the data and where to start: JSON and next byte
ReadKey = Callable[[bytes | None], tuple[RecordType, str]]

# Texts that are worth remembering: the names of groups, topics and hosts come again and again.
SHORT_BYTES: Final = 100
SHORT_COUNT: Final = 100  # lists of integers whose format is worth remembering

UNREADABLE: Final = (IndexError, struct.error)  # what the functions raise for bytes that they cannot read


def document_text(key: bytes | None, value: bytes | None, *, record_types: RecordTypes = RECORD_TYPES) -> str:
    """One record as the compact JSON that Kafka's message formatter prints; raises `DecodeError`.

    >>> document_text(bytes.fromhex("0002000167"), None)
    '{"key":{"type":2,"data":{"group":"g"}},"value":null}'
    """
    record_type, key_document = key_text(key, record_types)
    return record_text(key_document, value_text(value, record_type))


def record_text(key_document: str, value_document: str) -> str:
    """A record from the texts of its key and its value."""
    return f'{{"key":{key_document},"value":{value_document}}}'


def key_text(key: bytes | None, record_types: RecordTypes) -> tuple[RecordType, str]:
    """What the table says of a key's record type, and the key as JSON; raises `DecodeError`."""
    type_id, record_type, text = read_key(key, record_types, message_text)
    return record_type, f'{{"type":{type_id},"data":{text}}}'


def key_reader(record_types: RecordTypes) -> ReadKey:
    """`key_text` for one record table, with a memory: the same groups and members come again and again."""
    return lru_cache(maxsize=2_048)(partial(key_text, record_types=record_types))


def value_text(value: bytes | None, record_type: RecordType) -> str:
    """A value as JSON, `null` for a tombstone; raises `DecodeError`."""
    if value is None:
        return "null"
    version, text = read_value(value, record_type, message_text)
    return f'{{"version":{version},"data":{text}}}'


def message_text(declaration: Struct, data: bytes, at: int) -> str:
    """The message that starts at a byte, as compact JSON; raises `WireError`."""
    try:
        text, _ = reader_of(declaration)(data, at)
    except UNREADABLE:
        return _compact_json(parse_message(declaration, data, at))  # raises what is wrong
    return text


def _compact_json(message: Any) -> str:
    text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
    return _with_kafkas_escapes(text)


def tags_text(declaration: FlexibleStruct, data: bytes, at: int) -> tuple[str, int]:
    """A section of tagged fields, whose count stands at a byte, as a JSON object of those that do not hold
    their default, and the byte after it; raises `WireError`.
    """
    section = _section_of(declaration)
    try:
        return reader_of(section)(data, at)
    except UNREADABLE:
        parse_message(section, data, at)  # raises what is wrong
        raise


@cache
def _section_of(declaration: FlexibleStruct) -> FlexibleStruct:
    return FlexibleStruct(tags=declaration.tags)


@cache
def reader_of(declaration: Struct) -> Read:
    """The function that reads a message; written and compiled once."""
    source = _Source(names=dict(_NAMES))
    message = _write(declaration, "message", source)
    source.add(f"message = f'{message}'", "if at > len(data):", "    raise IndexError", "return message, at")
    return source.compiled()


# --- writing a function ----------------------------------------------------------------------------------


@dataclass
class _Source:
    """A function in the making: its lines so far, and the names that they refer to."""

    names: dict[str, Any]
    lines: list[str] = dataclass_field(default_factory=lambda: ["def read(data, at):"])
    indent: str = "    "
    run: dict[str, str] = dataclass_field(default_factory=dict)

    def add(self, *lines: str) -> None:
        """Write lines."""
        self._end_run()
        self.lines += [self.indent + line for line in lines]

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """What is written meanwhile stands below a header."""
        self.add(header)
        self.indent += "    "
        yield
        self._end_run()
        self.indent = self.indent[:-4]

    def add_fixed(self, name: str, letters: str) -> None:
        """Read a value of fixed size into a variable: neighbours in one call of `struct`."""
        self.run[name] = letters

    def _end_run(self) -> None:
        if not self.run:
            return
        letters, variables = "".join(self.run.values()), "".join(f"{name}, " for name in self.run)
        self.run = {}
        packed = struct.Struct(f">{letters}")
        self.names[f"unpack_{letters}"] = packed.unpack_from
        self.add(f"{variables}= unpack_{letters}(data, at)", f"at += {packed.size}")

    def compiled(self) -> Read:
        """The function."""
        exec("\n".join(self.lines), self.names)
        read: Read = self.names["read"]
        return read


@singledispatch
def _write(declaration: Construct, name: str, source: _Source) -> str:
    """Write what reads a declared thing at `at`, and return how its JSON stands in an f-string.

    The variables that it needs begin with `name`.
    """
    raise TypeError(f"no reader can be derived from {declaration!r}")


@_write.register
def _(declaration: Renamed, name: str, source: _Source) -> str:
    return _write(declaration.subcon, name, source)


@_write.register
def _(declaration: Default, name: str, source: _Source) -> str:
    return _write(declaration.subcon, name, source)


@_write.register
def _(declaration: Integer, name: str, source: _Source) -> str:
    source.add_fixed(name, declaration.fmtstr[-1])
    return f"{{{name}}}"


@_write.register
def _(declaration: Uuid, name: str, source: _Source) -> str:
    source.add_fixed(name, "16s")
    return f'"{{uuid({name})}}"'


@_write.register
def _(declaration: Text, name: str, source: _Source) -> str:
    with _counted(declaration, name, source):
        read = f"(short_text if length < {SHORT_BYTES} else text)"
        source.add(f"{name} = {read}(data[at : at + length])", "at += length")
    return f"{{{name}}}"


@_write.register
def _(declaration: Blob, name: str, source: _Source) -> str:
    with _counted(declaration, name, source):
        source.add(f"{name} = base64(data[at : at + length])", "at += length")
    return f"{{{name}}}"


@_write.register
def _(declaration: Sequence, name: str, source: _Source) -> str:
    with _counted(declaration, name, source):
        if isinstance(declaration.element, Integer):
            size, letter = declaration.element.length, declaration.element.fmtstr[-1]
            source.add(f'{name} = integers(length, "{letter}", data, at)', f"at += {size} * length")
        else:
            source.add(f"{name}_elements = []")
            with source.block("for _ in range(length):"):
                element = _write(declaration.element, f"{name}_element", source)
                source.add(f"{name}_elements.append(f'{element}')")
            source.add(f"{name} = f\"[{{','.join({name}_elements)}}]\"")
    return f"{{{name}}}"


@_write.register
def _(declaration: Struct, name: str, source: _Source) -> str:
    fields = [
        f'"{field.name}":{_write(field, f"{name}_{field.name}", source)}' for field in declaration.subcons
    ]
    return f"{{{{{','.join(fields)}}}}}"


@_write.register
def _(declaration: FlexibleStruct, name: str, source: _Source) -> str:
    fields = _write.dispatch(Struct)(declaration, name, source)
    source.add(f"{name} = f'{fields}'")
    with source.block("if data[at]:"):
        _write_tags(declaration, name, source)
    with source.block("else:"):  # no tags: nearly always
        source.add("at += 1")
    return f"{{{name}}}"


def _write_tags(declaration: FlexibleStruct, name: str, source: _Source) -> None:
    """Write what adds tagged fields to the JSON of a struct: those that do not hold their default."""
    source.names[f"{name}_defaults"] = {tag: _default_text(field) for tag, field in declaration.tags.items()}
    source.add(f"{name}_tags = {name}_defaults.copy()")
    _write_number(VARINT, f"{name}_count", source)
    with source.block(f"for _ in range({name}_count):"):
        _write_number(VARINT, "tag", source)
        _write_number(VARINT, "size", source)
        for tag, field in declaration.tags.items():
            with source.block(f"if tag == {tag}:"):
                content = _write(field, f"{name}_{field.name}", source)
                source.add(f"{name}_tags[{tag}] = f'\"{field.name}\":{content}'", "continue")
        with source.block("if size < 0:"):
            source.add("raise IndexError")
        source.add("at += size")
    source.add(f"{name} = with_tags({name}, {name}_tags, {name}_defaults)")


def _default_text(field: Renamed) -> str:
    """The default of a tagged field as `"name":content`."""
    content = field.subcon.subcon.build(field.subcon.value)
    return message_text(Struct(field), content, 0)[1:-1]


@_write.register
def _(declaration: NullableStruct, name: str, source: _Source) -> str:
    _write_number(declaration.marker, "marker", source)
    with source.block(f"if marker > {declaration.null}:"):
        content = _write(declaration.subcon, name, source)
        source.add(f"{name} = f'{content}'")
    with source.block("else:"):
        source.add(f'{name} = "null"')
    return f"{{{name}}}"


@contextmanager
def _counted(declaration: Counted, name: str, source: _Source) -> Iterator[None]:
    """What is written meanwhile reads a content of `length` bytes or elements."""
    _write_number(declaration.length, "length", source)
    with source.block("if length < 0:"):
        source.add(f'{name} = "null"' if declaration.nullable else "raise IndexError")
    with source.block("else:"):
        yield


@singledispatch
def _write_number(declaration: Construct, name: str, source: _Source) -> None:
    """Write what reads a number that is not shown into a variable."""
    raise TypeError(f"{declaration!r} is not a number")


@_write_number.register
def _(declaration: Integer, name: str, source: _Source) -> None:
    source.add_fixed(name, declaration.fmtstr[-1])


@_write_number.register
def _(declaration: Varint, name: str, source: _Source) -> None:
    source.add(f"{name} = data[at]", "at += 1")
    with source.block(f"if {name} > 0x7F:"):  # more than one byte: seldom
        source.add(f"{name}, at = varint(data, at - 1)")


@_write_number.register
def _(declaration: CompactLength, name: str, source: _Source) -> None:
    source.add(f"{name} = data[at] - 1", "at += 1")
    with source.block(f"if {name} > 0x7E:"):  # more than one byte: seldom
        source.add(f"{name}, at = compact_length(data, at - 1)")


# --- what the functions call -----------------------------------------------------------------------------


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index in range(MAX_VARINT_BYTES):
        byte = data[at + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return as_int32(value), at + index + 1
    raise IndexError


def _compact_length(data: bytes, at: int) -> tuple[int, int]:
    length, at = _varint(data, at)
    return as_int32(length - 1), at


def _text(data: bytes) -> str:
    if len(data) > MAX_TEXT_BYTES:
        raise IndexError
    quoted = encode_basestring(decode_text(data))
    return _with_kafkas_escapes(quoted) if "\\u" in quoted else quoted


_ESCAPE: Final = regex(r"\\(?:u[0-9a-f]{4}|.)")


def _with_kafkas_escapes(quoted: str) -> str:
    """A JSON string of Python's as Kafka writes it: the hexadecimal digits of escapes in upper case."""
    return _ESCAPE.sub(_in_upper_case, quoted)


def _in_upper_case(escape: Match[str]) -> str:
    text = escape[0]
    return rf"\u{text[2:].upper()}" if text.startswith(r"\u") else text


def _base64(data: bytes) -> str:
    return f'"{b2a_base64(data, newline=False).decode("ascii")}"'


def _integers(count: int, letter: str, data: bytes, at: int) -> str:
    if count < SHORT_COUNT:
        unpack, template = _integers_format(count, letter)
        return template % unpack(data, at)
    return str(list(struct.unpack_from(f">{count}{letter}", data, at))).replace(" ", "")


@cache
def _integers_format(count: int, letter: str) -> tuple[Callable[[bytes, int], tuple[int, ...]], str]:
    return struct.Struct(f">{count}{letter}").unpack_from, f"[{','.join(['%d'] * count)}]"


def _with_tags(message: str, tags: dict[int, str], defaults: dict[int, str]) -> str:
    fields = [message[1:-1]] if message != "{}" else []
    fields += [text for tag, text in tags.items() if text != defaults[tag]]
    return f"{{{','.join(fields)}}}"


_NAMES: Final = {
    "varint": _varint,
    "compact_length": _compact_length,
    "uuid": decode_uuid,
    "text": _text,
    "short_text": lru_cache(maxsize=4_096)(_text),
    "base64": _base64,
    "integers": _integers,
    "with_tags": _with_tags,
}
