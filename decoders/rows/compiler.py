"""Functions that read a message and write its JSON, derived from its declaration.

`construct` takes tens of microseconds for a message. Here each declaration becomes, once, the Python function
that a person would write for it, which takes one or two. Beginning and end of the one for
`REGULAR_EXPRESSION_KEY`:

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

It takes the bytes and the start, and returns the JSON and the position after the message. Short texts and
lists, nearly all, take a fast path. Loops end because every element reads at least one byte; `source`
explains how malformed bytes are refused.

The JSON equals that of Kafka's JSON converters: ids and bytes are base64, and tagged fields that have their
default are left out.
"""

from functools import cache, singledispatch
from typing import Protocol

from construct import Construct, Default, Renamed, Struct

from decoders.formats.java_values import AS_JAVA
from decoders.formats.wire import (
    Blob,
    FlexibleStruct,
    Integer,
    NullableStruct,
    Sequence,
    Text,
    Uuid,
)
from decoders.rows.runtime import NAMES, formats
from decoders.rows.source import (
    FunctionSource,
    counted,
    refuse_impossible_count,
    unless_short,
    write_number,
    write_tags,
)


class ReadRow(Protocol):
    def __call__(self, data: bytes, at: int, before: str = "") -> tuple[str, int]: ...


@cache
def reader_of(declaration: Struct, prefix: str = "", suffix: str = "") -> ReadRow:
    """The function that reads a message; compiled once.

    It takes the bytes, the start and a text to put first. It returns the JSON, with `prefix` and `suffix`
    around it, and the position after the message, and raises `UNREADABLE`.
    """
    source = FunctionSource('def read(data, at, before=""):', dict(NAMES))
    message = _write(declaration, "message", source)
    source.add("if at > len(data):", "    raise IndexError")
    source.add(f"message = f'{{before}}{_literal(prefix)}{message}{_literal(suffix)}'")
    source.add(r'return (with_kafkas_escapes(message) if "\\u" in message else message), at')
    read: ReadRow = source.compiled()
    return read


def _literal(text: str) -> str:
    """Escape text for an f-string."""
    return text.replace("{", "{{").replace("}", "}}")


# --- writing a function ----------------------------------------------------------------------------------


@singledispatch
def _write(declaration: Construct, name: str, source: FunctionSource) -> str:
    """Write the code that reads a declared value at `at`, and return its JSON as part of an f-string.

    The variables of that code begin with `name`.
    """
    raise TypeError(f"no reader can be derived from {declaration!r}")


@_write.register
def _(declaration: Renamed, name: str, source: FunctionSource) -> str:
    return _write(declaration.subcon, name, source)


@_write.register
def _(declaration: Default, name: str, source: FunctionSource) -> str:
    return _write(declaration.subcon, name, source)


@_write.register
def _(declaration: Integer, name: str, source: FunctionSource) -> str:
    source.add_fixed(name, declaration.fmtstr[-1])
    return f"{{{name}}}"


@_write.register
def _(declaration: Uuid, name: str, source: FunctionSource) -> str:
    source.add(f"{name} = data[at : (at := at + 16)]")
    return f'"{{uuids[{name}]}}"'


@_write.register
def _(declaration: Text, name: str, source: FunctionSource) -> str:
    short = f'{name} = quoted(data[at : (at := at + count)].decode("utf-8", "{AS_JAVA}"))'
    with unless_short(declaration, source, short):  # noqa: SIM117
        with counted(declaration, name, source, null='"null"'):
            source.add(f"{name} = long_text(data[at : at + length])", "at += length")
    return f"{{{name}}}"


@_write.register
def _(declaration: Blob, name: str, source: FunctionSource) -> str:
    with counted(declaration, name, source, null='"null"'):
        source.add(f"{name} = base64(data[at : at + length])", "at += length")
    return f"{{{name}}}"


@_write.register
def _(declaration: Sequence, name: str, source: FunctionSource) -> str:
    if isinstance(declaration.element, Integer):
        _write_integers(declaration, declaration.element, name, source)
    else:
        with counted(declaration, name, source, null='"null"'):
            _write_elements(declaration.element, name, source)
    return f"{{{name}}}"


def _write_integers(declaration: Sequence, element: Integer, name: str, source: FunctionSource) -> None:
    size, letter = element.length, element.fmtstr[-1]
    source.names[f"formats_{letter}"] = formats(letter)
    short = (
        f"unpack, template = formats_{letter}[count]",
        f"{name} = template % unpack(data, at)",
        f"at += {size} * count",
    )
    with unless_short(declaration, source, *short), counted(declaration, name, source, null='"null"'):
        source.add(f'{name} = integers(length, "{letter}", data, at)', f"at += {size} * length")


def _write_elements(declaration: Construct, name: str, source: FunctionSource) -> None:
    """Write the code that reads `length` elements; it refuses more than there are bytes at once."""
    refuse_impossible_count(source)
    with source.block("if length:"):
        source.add(f"{name}_elements = []")
        with source.block("for _ in range(length):"):
            element = _write(declaration, f"{name}_element", source)
            source.add(f"{name}_elements.append(f'{element}')")
        source.add(f"{name} = f\"[{{','.join({name}_elements)}}]\"")
    with source.block("else:"):
        source.add(f'{name} = "[]"')


@_write.register
def _(declaration: Struct, name: str, source: FunctionSource) -> str:
    return f"{{{{{_write_fields(declaration, name, source)}}}}}"


@_write.register
def _(declaration: FlexibleStruct, name: str, source: FunctionSource) -> str:
    fields = _write_fields(declaration, name, source)
    tags = _write_tags(declaration, name, source)
    if not tags:
        return f"{{{{{fields}}}}}"
    if not fields:
        return f"{{{{{{({' + '.join(tags)})[1:]}}}}}}"
    return f"{{{{{fields}{''.join(f'{{{tag}}}' for tag in tags)}}}}}"


def _write_fields(declaration: Struct, name: str, source: FunctionSource) -> str:
    fields = [(field.name, _write(field, f"{name}_{field.name}", source)) for field in declaration.subcons]
    return ",".join(f'"{field}":{content}' for field, content in fields)


def _write_tags(declaration: FlexibleStruct, name: str, source: FunctionSource) -> list[str]:
    """Write the code that reads a section of tagged fields into variables, and return their names.

    Each variable holds `,"name":content`, or nothing if the field is absent or has its default.
    """
    variables = [f"{name}_{field.name}" for field in declaration.tags.values()]
    for variable in variables:
        source.add(f'{variable} = ""')
    names = iter(variables)
    write_tags(declaration, name, source, lambda field: _write_tag(field, next(names), source))
    return variables


def _write_tag(field: Renamed, name: str, source: FunctionSource) -> None:
    """Write the code that reads the content of a tagged field."""
    content = _write(field, name, source)
    source.add(f"{name} = f',\"{field.name}\":{content}'")
    with source.block(f"if {name} == {_default_text(field)!r}:"):
        source.add(f'{name} = ""')


def _default_text(field: Renamed) -> str:
    """The default of a tagged field as `,"name":content`."""
    content = field.subcon.subcon.build(field.subcon.value)
    text, _ = reader_of(Struct(field))(content, 0)
    return f",{text[1:-1]}"


@_write.register
def _(declaration: NullableStruct, name: str, source: FunctionSource) -> str:
    write_number(declaration.marker, "marker", source)
    with source.block(f"if marker > {declaration.null}:"):
        content = _write(declaration.subcon, name, source)
        source.add(f"{name} = f'{content}'")
    with source.block("else:"):
        source.add(f'{name} = "null"')
    return f"{{{name}}}"
