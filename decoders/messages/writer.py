"""Functions that write a message from plain objects, derived from its layout; the reverse of `reader`.

The beginning of the one for an OffsetFetch response:

    def write(message, on_error=same):
        done, out = [], []
        add = out.append
        message_topics = message["topics"]
        add(pack_ll(message.get("throttleTimeMs", 0), len(message_topics)))
        for message_topics_element in message_topics:
            ...
            if len(out) > 4096:  # small pieces take ten times the memory of their bytes
                done.append(b"".join(out))
                out.clear()
        return b"".join(done + out)

A field with a default may be missing; fields that the version lacks are ignored. Tagged fields that have
their default are not written, as in Kafka.

`on_error` is called for each error code but 0 that is written, and returns it.
"""

import base64
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, singledispatch
from typing import Final

from construct import Construct, Default, Renamed, Struct

from decoders.formats.java_values import MAX_TEXT_BYTES
from decoders.formats.wire import (
    COMPACT_LENGTH,
    VARINT,
    Blob,
    Boolean,
    CompactLength,
    Counted,
    FlexibleStruct,
    Integer,
    NullableStruct,
    Sequence,
    Text,
    Uuid,
)
from decoders.messages.fields import ERROR_CODE_NAME
from decoders.rows.source import FunctionSource

Write = Callable[..., bytes]
OnError = Callable[[int], int]


class UnwritableError(ValueError):
    """A message that cannot be written: a field is missing, has the wrong type, or is too large."""


UNWRITABLE: Final = (KeyError, TypeError, AttributeError, ValueError, struct.error)
"""The exceptions of a writer: a field is missing, has the wrong type, or is too large."""


@cache
def writer_of(layout: Construct) -> Write:
    """The function that writes a message; compiled once. It raises `UNWRITABLE`."""
    source = _WriterSource("def write(message, on_error=same):", dict(_NAMES))
    source.add("done, out = [], []", "add = out.append")
    _write(layout, "message", "message", source)
    source.add('return b"".join(done + out)')
    write: Write = source.compiled()
    return write


# --- called by the functions -------------------------------------------------------------------------------


def same(code: int) -> int:
    return code


def varint(number: int) -> bytes:
    written: bytes = VARINT.build(number)
    return written


_AT_ONCE: Final = 4_096  # pieces to join at a time: separate, they take ten times the memory of their bytes
_MOST: Final = 0x3FFF
_SHORT: Final = [varint(count + 1) for count in range(_MOST)]
"""Compact lengths of one or two bytes: nearly all."""


def _compact(count: int) -> bytes:
    """Write the compact length of elements or bytes; -1 for null."""
    written: bytes = COMPACT_LENGTH.build(count)
    return written


def _text_length(count: int) -> bytes:
    if count > MAX_TEXT_BYTES:
        raise ValueError(f"expected at most {MAX_TEXT_BYTES} bytes of text, found {count}")
    return _compact(count)


def _uuid(value: str) -> bytes:
    data = base64.urlsafe_b64decode(value + "==")
    if len(data) != 16:
        raise ValueError(f"expected an id of 16 bytes in base64url, found {value!r}")
    return data


def _integers(letter: str, values: list[int]) -> bytes:
    return struct.pack(f">{len(values)}{letter}", *values)


def _tags(present: list[tuple[int, bytes]]) -> bytes:
    """Write a section of tagged fields from tags, in order, and their contents."""
    return varint(len(present)) + b"".join(
        varint(tag) + varint(len(content)) + content for tag, content in present
    )


_NAMES: Final = {
    "same": same,
    "short": _SHORT,
    "compact": _compact,
    "text_length": _text_length,
    "uuid": _uuid,
    "integers": _integers,
    "tags_of": _tags,
}


# --- writing a function ------------------------------------------------------------------------------------


@dataclass
class _WriterSource(FunctionSource):
    """The source of a writer; `run` has the expressions for one call of `struct`, and their letters."""

    def end_run(self) -> None:
        """Write the call of `struct` for the values of fixed size since the last line."""
        if not self.run:
            return
        letters = "".join(self.run.values())
        values = ", ".join(value for value, letter in self.run.items() if letter != "x")
        self.run = {}
        pack = f"pack_{letters.replace('?', 't')}"
        self.names[pack] = struct.Struct(f">{letters}").pack
        self.add(f"add({pack}({values}))")


@singledispatch
def _write(declaration: Construct, value: str, name: str, source: FunctionSource) -> None:
    """Write the code that writes a declared value, given by an expression.

    The variables of that code begin with `name`.
    """
    raise TypeError(f"no writer can be derived from {declaration!r}")


@_write.register(Integer)
@_write.register(Boolean)
def _(declaration: Integer | Boolean, value: str, name: str, source: FunctionSource) -> None:
    source.add_fixed(value, declaration.fmtstr[-1])


@_write.register
def _(declaration: Uuid, value: str, name: str, source: FunctionSource) -> None:
    source.add(f"add(uuid({value}))")


@_write.register
def _(declaration: Text, value: str, name: str, source: FunctionSource) -> None:
    with _unless_null(declaration, value, name, source):
        source.add(f"{name} = {name}.encode()")
        _write_length(declaration.length, name, source, long="text_length")
        source.add(f"add({name})")


@_write.register
def _(declaration: Blob, value: str, name: str, source: FunctionSource) -> None:
    with _unless_null(declaration, value, name, source):
        _write_length(declaration.length, name, source)
        source.add(f"add({name})")


@contextmanager
def _unless_null(declaration: Counted, value: str, name: str, source: FunctionSource) -> Iterator[None]:
    """Write the code for null; the code for other values, in the variable `name`, is added in this
    context.
    """
    source.add(f"{name} = {value}")
    if not declaration.nullable:
        yield
        return
    with source.block(f"if {name} is None:"):
        source.add(f"add({declaration.length.build(-1)!r})")
    with source.block("else:"):
        yield


def _write_length(length: Construct, name: str, source: FunctionSource, *, long: str = "compact") -> None:
    if isinstance(length, CompactLength):
        source.add(f"add(short[count] if (count := len({name})) < {_MOST} else {long}(count))")
    else:
        source.add_fixed(f"len({name})", length.fmtstr[-1])


@_write.register
def _(declaration: Sequence, value: str, name: str, source: FunctionSource) -> None:
    with _unless_null(declaration, value, name, source):
        _write_length(declaration.length, name, source)
        if isinstance(declaration.element, Integer):
            source.add(f'add(integers("{declaration.element.fmtstr[-1]}", {name}))')
        else:
            with source.block(f"for {name}_element in {name}:"):
                _write(declaration.element, f"{name}_element", f"{name}_element", source)
                source.add(f"if len(out) > {_AT_ONCE}:", '    done.append(b"".join(out))', "    out.clear()")


@_write.register
def _(declaration: Struct, value: str, name: str, source: FunctionSource) -> None:
    for field in declaration.subcons:
        _write(field.subcon, _value_of(field, value), f"{name}_{field.name}", source)


@_write.register
def _(declaration: Default, value: str, name: str, source: FunctionSource) -> None:
    _write(declaration.subcon, value, name, source)


@_write.register
def _(declaration: FlexibleStruct, value: str, name: str, source: FunctionSource) -> None:
    _write.dispatch(Struct)(declaration, value, name, source)
    if not declaration.tags:
        source.add_fixed(f"no tags of {name}", "x")
        return
    source.add("tags = []")
    for tag, field in sorted(declaration.tags.items()):
        content = f"write_{name}_{field.name}"
        source.names[content] = writer_of(field.subcon.subcon)
        source.add(f"tagged = {_value_of(field, value)}")
        with source.block(f"if tagged != {field.subcon.value!r}:"):
            source.add(f"tags.append(({tag}, {content}(tagged)))")
    source.add("add(tags_of(tags))")


def _value_of(field: Renamed, message: str) -> str:
    """The expression of a field's value, with the default, if it has one."""
    value = f'{message}["{field.name}"]'
    if isinstance(field.subcon, Default):
        value = f'{message}.get("{field.name}", {field.subcon.value!r})'
    return f"({value} and on_error({value}))" if field.name == ERROR_CODE_NAME else value


@_write.register
def _(declaration: NullableStruct, value: str, name: str, source: FunctionSource) -> None:
    source.add(f"{name} = {value}")
    marker = declaration.marker
    with source.block(f"if {name} is None:"):
        source.add(f"add({marker.build(declaration.null)!r})")
    with source.block("else:"):
        source.add(f"add({marker.build(1)!r})")
        _write(declaration.subcon, name, name, source)
