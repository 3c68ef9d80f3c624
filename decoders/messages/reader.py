"""Functions that read a message into plain objects, derived from its layout.

As in `rows.compiler`, each layout becomes, once, the Python function that a person would write for it. The
beginning of the one for an OffsetFetch request:

    def read(data, at):
        if 0 <= (count := data[at] - 1) <= 100:
            at += 1
            message_groupId = data[at : (at := at + count)].decode("utf-8", "as-java")
        ...
        return {"groupId": message_groupId, ...}, at

It takes the bytes and the start, and returns the message and the position after it. Structs are dicts with
Kafka's names, arrays are lists, ids are text in Kafka's form (22 characters), null is None; absent tagged
fields have their default. A count of elements over the number of remaining bytes is refused before any
element is created. So are more than `most` elements in the whole message, with `TooManyError`: an element of
two bytes takes about 250 in memory. Numbers in arrays do not count as elements.
"""

import struct
from dataclasses import dataclass
from functools import cache, singledispatch
from typing import Any, Final, Protocol

from construct import Construct, Default, Renamed, Struct

from decoders.formats.java_values import AS_JAVA, decode_uuid
from decoders.formats.wire import (
    Blob,
    Boolean,
    FlexibleStruct,
    Integer,
    NullableStruct,
    Sequence,
    Text,
    Uuid,
)
from decoders.rows.runtime import compact_length, long_text, varint
from decoders.rows.source import (
    FunctionSource,
    counted,
    refuse_impossible_count,
    unless_short,
    write_number,
    write_tags,
)

Message = dict[str, Any]


class TooManyError(Exception):
    """A message has more elements than allowed."""


_NAMES: Final = {
    "too_many": TooManyError,
    "varint": varint,
    "compact_length": compact_length,
    "uuid": decode_uuid,
    "long_text": long_text,
    "unpack": struct.unpack_from,
}


class ReadMessage(Protocol):
    def __call__(self, data: bytes, at: int) -> tuple[Message, int]: ...


@cache
def reader_of(layout: Struct, most: int | None = None) -> ReadMessage:
    """The function that reads a message of at most `most` elements (None: no limit); compiled once.

    It takes the bytes and the start, returns the message and the position after it, and raises `UNREADABLE`.
    """
    source = _ReaderSource("def read(data, at):", dict(_NAMES), is_bounded=most is not None)
    if most is not None:
        source.add(f"left = {most}")
    message = _write(layout, "message", source)
    source.add("if at > len(data):", "    raise IndexError", f"return {message}, at")
    read: ReadMessage = source.compiled()
    return read


@dataclass
class _ReaderSource(FunctionSource):
    """The source of a reader; if `is_bounded`, its variable `left` counts the elements still allowed."""

    is_bounded: bool = False


@singledispatch
def _write(declaration: Construct, name: str, source: _ReaderSource) -> str:
    """Write the code that reads a declared value at `at`, and return the expression of the value.

    The variables of that code begin with `name`.
    """
    raise TypeError(f"no reader can be derived from {declaration!r}")


@_write.register
def _(declaration: Renamed, name: str, source: _ReaderSource) -> str:
    return _write(declaration.subcon, name, source)


@_write.register
def _(declaration: Default, name: str, source: _ReaderSource) -> str:
    return _write(declaration.subcon, name, source)


@_write.register(Integer)
@_write.register(Boolean)
def _(declaration: Integer | Boolean, name: str, source: _ReaderSource) -> str:
    source.add_fixed(name, declaration.fmtstr[-1])
    return name


@_write.register
def _(declaration: Uuid, name: str, source: _ReaderSource) -> str:
    source.add(f"{name} = uuid(data[at : (at := at + 16)])")
    return name


@_write.register
def _(declaration: Text, name: str, source: _ReaderSource) -> str:
    short = f'{name} = data[at : (at := at + count)].decode("utf-8", "{AS_JAVA}")'
    with unless_short(declaration, source, short), counted(declaration, name, source, null="None"):
        source.add(f"{name} = long_text(data[at : at + length])", "at += length")
    return name


@_write.register
def _(declaration: Blob, name: str, source: _ReaderSource) -> str:
    with counted(declaration, name, source, null="None"):
        source.add(f"{name} = data[at : at + length]", "at += length")
    return name


@_write.register
def _(declaration: Sequence, name: str, source: _ReaderSource) -> str:
    with counted(declaration, name, source, null="None"):
        refuse_impossible_count(source)
        if isinstance(declaration.element, Integer):
            _write_integers(declaration.element, name, source)
        else:
            _write_elements(declaration.element, name, source)
    return name


def _write_integers(element: Integer, name: str, source: _ReaderSource) -> None:
    source.add(
        f'{name} = list(unpack(f">{{length}}{element.fmtstr[-1]}", data, at))',
        f"at += {element.length} * length",
    )


def _write_elements(element: Construct, name: str, source: _ReaderSource) -> None:
    if source.is_bounded:
        source.add("left -= length")
        with source.block("if left < 0:"):
            source.add("raise too_many")
    source.add(f"{name} = []")
    with source.block("for _ in range(length):"):
        value = _write(element, f"{name}_element", source)
        source.add(f"{name}.append({value})")


@_write.register
def _(declaration: Struct, name: str, source: _ReaderSource) -> str:
    return f"{{{', '.join(_write_fields(declaration, name, source))}}}"


@_write.register
def _(declaration: FlexibleStruct, name: str, source: _ReaderSource) -> str:
    fields = _write_fields(declaration, name, source)
    for field in declaration.tags.values():
        source.add(f"{name}_{field.name} = {field.subcon.value!r}")
    write_tags(declaration, name, source, lambda field: _write_tag(field, f"{name}_{field.name}", source))
    tagged = [f'"{field.name}": {name}_{field.name}' for field in declaration.tags.values()]
    return f"{{{', '.join(fields + tagged)}}}"


def _write_fields(declaration: Struct, name: str, source: _ReaderSource) -> list[str]:
    return [
        f'"{field.name}": {_write(field, f"{name}_{field.name}", source)}' for field in declaration.subcons
    ]


def _write_tag(field: Renamed, name: str, source: _ReaderSource) -> None:
    """Write the code that reads the content of a tagged field into a variable."""
    value = _write(field, name, source)
    source.add(f"{name} = {value}")


@_write.register
def _(declaration: NullableStruct, name: str, source: _ReaderSource) -> str:
    write_number(declaration.marker, "marker", source)
    with source.block(f"if marker > {declaration.null}:"):
        value = _write(declaration.subcon, name, source)
        source.add(f"{name} = {value}")
    with source.block("else:"):
        source.add(f"{name} = None")
    return name
