"""Functions that read a message and write its JSON, derived from its declaration.

`construct` takes tens of microseconds for a message. Here each declaration is written out, once, as the
function that a person would write for it, which takes one or two. That of `REGULAR_EXPRESSION_KEY` begins and
ends

    def read(data, at, before=""):
        if data[at] == 0 and (count := data[at + 1]) <= 100:
            at += 2
            message_groupId = quoted(data[at : (at := at + count)].decode("utf-8", "as-java"))
        else:
            length, = unpack_h(data, at)
            at += 2
            if length < 0:
                raise IndexError
            else:
                message_groupId = long_text(data[at : at + length])
                at += length
        ...
        if at > len(data):
            raise IndexError
        message = f'{before}{{"groupId":{message_groupId},"regularExpression":{message_regularExpression}}}'
        return (with_kafkas_escapes(message) if "\\u" in message else message), at

It takes the bytes and where to start, and returns the JSON and the byte after it. Short texts and lists,
which nearly all are, have a fast path; the path for all others follows it. The function does not say what is
wrong with bytes. Python refuses an index beyond the data; a slice beyond it leaves `at` there, which is seen
at the end, and loops end because every element has an index.

The text is that of Kafka's JSON converters: ids and bytes are base64, a tagged field that holds its default
is left out.
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import cache, singledispatch
from typing import Any, Final, Protocol

from construct import Construct, Default, Renamed, Struct

from decoders.formats.java_values import AS_JAVA
from decoders.formats.wire import (
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
)
from decoders.rows.runtime import NAMES, SHORT, formats


class Read(Protocol):
    """Reads a message."""

    def __call__(self, data: bytes, at: int, before: str = "") -> tuple[str, int]:
        """The JSON of the message that starts at a byte, behind some text, and the byte after the message."""


UNREADABLE: Final = (IndexError, struct.error)  # what the functions raise for bytes that they cannot read


@cache
def reader_of(declaration: Struct, prefix: str = "", suffix: str = "") -> Read:
    """The function that reads a message; written and compiled once. Its JSON has text around it."""
    source = _Source(names=dict(NAMES))
    message = _write(declaration, "message", source)
    source.add("if at > len(data):", "    raise IndexError")
    source.add(f"message = f'{{before}}{_literal(prefix)}{message}{_literal(suffix)}'")
    source.add(r'return (with_kafkas_escapes(message) if "\\u" in message else message), at')
    return source.compiled()


def _literal(text: str) -> str:
    """Text as it stands in an f-string."""
    return text.replace("{", "{{").replace("}", "}}")


# --- writing a function ----------------------------------------------------------------------------------


@dataclass
class _Source:
    """A function in the making: its lines so far, and the names that they refer to."""

    names: dict[str, Any]
    lines: list[str] = dataclass_field(default_factory=lambda: ['def read(data, at, before=""):'])
    indent: str = "    "
    run: dict[str, str] = dataclass_field(default_factory=dict)

    def add(self, *lines: str) -> None:
        """Write lines."""
        self._end_run()
        self.lines += [self.indent + line for line in lines]

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Indent what is written in this context below a header."""
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
    source.add(f"{name} = data[at : (at := at + 16)]")
    return f'"{{uuids[{name}]}}"'


@_write.register
def _(declaration: Text, name: str, source: _Source) -> str:
    short = f'{name} = quoted(data[at : (at := at + count)].decode("utf-8", "{AS_JAVA}"))'
    with _unless_short(declaration, source, short):  # noqa: SIM117
        with _counted(declaration, name, source):
            source.add(f"{name} = long_text(data[at : at + length])", "at += length")
    return f"{{{name}}}"


@_write.register
def _(declaration: Blob, name: str, source: _Source) -> str:
    with _counted(declaration, name, source):
        source.add(f"{name} = base64(data[at : at + length])", "at += length")
    return f"{{{name}}}"


@_write.register
def _(declaration: Sequence, name: str, source: _Source) -> str:
    if isinstance(declaration.element, Integer):
        _write_integers(declaration, declaration.element, name, source)
    else:
        with _counted(declaration, name, source):
            _write_elements(declaration.element, name, source)
    return f"{{{name}}}"


def _write_integers(declaration: Sequence, element: Integer, name: str, source: _Source) -> None:
    """Write what reads `length` integers."""
    size, letter = element.length, element.fmtstr[-1]
    source.names[f"formats_{letter}"] = formats(letter)
    short = (
        f"unpack, template = formats_{letter}[count]",
        f"{name} = template % unpack(data, at)",
        f"at += {size} * count",
    )
    with _unless_short(declaration, source, *short), _counted(declaration, name, source):
        source.add(f'{name} = integers(length, "{letter}", data, at)', f"at += {size} * length")


def _write_elements(declaration: Construct, name: str, source: _Source) -> None:
    """Write what reads `length` elements of any kind; more than there are bytes are refused at once."""
    with source.block("if length > len(data) - at:"):
        source.add("raise IndexError")
    with source.block("if length:"):
        source.add(f"{name}_elements = []")
        with source.block("for _ in range(length):"):
            element = _write(declaration, f"{name}_element", source)
            source.add(f"{name}_elements.append(f'{element}')")
        source.add(f"{name} = f\"[{{','.join({name}_elements)}}]\"")
    with source.block("else:"):
        source.add(f'{name} = "[]"')


@_write.register
def _(declaration: Struct, name: str, source: _Source) -> str:
    return f"{{{{{_write_fields(declaration, name, source)}}}}}"


@_write.register
def _(declaration: FlexibleStruct, name: str, source: _Source) -> str:
    fields = _write_fields(declaration, name, source)
    tags = _write_tags(declaration, name, source)
    if not tags:
        return f"{{{{{fields}}}}}"
    if not fields:
        return f"{{{{{{({' + '.join(tags)})[1:]}}}}}}"
    return f"{{{{{fields}{''.join(f'{{{tag}}}' for tag in tags)}}}}}"


def _write_fields(declaration: Struct, name: str, source: _Source) -> str:
    fields = [(field.name, _write(field, f"{name}_{field.name}", source)) for field in declaration.subcons]
    return ",".join(f'"{field}":{content}' for field, content in fields)


def _write_tags(declaration: FlexibleStruct, name: str, source: _Source) -> list[str]:
    """Write what reads a section of tagged fields into variables, and return these.

    Each holds `,"name":content`, or nothing where the field is absent or holds its default.
    """
    variables = [f"{name}_{field.name}" for field in declaration.tags.values()]
    for variable in variables:
        source.add(f'{variable} = ""')
    with source.block("if data[at]:"):
        _write_number(VARINT, f"{name}_count", source)
        with source.block(f"for _ in range({name}_count):"):
            _write_number(VARINT, "tag", source)
            _write_number(VARINT, "size", source)
            for variable, (tag, field) in zip(variables, declaration.tags.items(), strict=True):
                with source.block(f"if tag == {tag}:"):
                    _write_tag(field, variable, source)
            with source.block("if size < 0:"):
                source.add("raise IndexError")
            source.add("at += size")
    with source.block("else:"):  # no tags: nearly always
        source.add("at += 1")
    return variables


def _write_tag(field: Renamed, name: str, source: _Source) -> None:
    """Write what reads the content of a tagged field."""
    content = _write(field, name, source)
    source.add(f"{name} = f',\"{field.name}\":{content}'")
    with source.block(f"if {name} == {_default_text(field)!r}:"):
        source.add(f'{name} = ""')
    source.add("continue")


def _default_text(field: Renamed) -> str:
    """The default of a tagged field as `,"name":content`."""
    content = field.subcon.subcon.build(field.subcon.value)
    text, _ = reader_of(Struct(field))(content, 0)
    return f",{text[1:-1]}"


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
def _unless_short(declaration: Counted, source: _Source, *short: str) -> Iterator[None]:
    """What is written in this context reads content of any length; the `short` lines are the fast path for
    content of few (`count`) bytes or elements.
    """
    match declaration.length:
        case CompactLength():
            is_short, size = f"0 <= (count := data[at] - 1) <= {SHORT}", 1
        case Integer(length=2) if not source.run:  # else the length is read with its neighbours
            is_short, size = f"data[at] == 0 and (count := data[at + 1]) <= {SHORT}", 2
        case _:
            yield
            return
    with source.block(f"if {is_short}:"):
        source.add(f"at += {size}", *short)
    with source.block("else:"):
        yield


@contextmanager
def _counted(declaration: Counted, name: str, source: _Source) -> Iterator[None]:
    """What is written in this context reads content of `length` bytes or elements."""
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
