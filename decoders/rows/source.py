"""The source code of functions that are derived from declarations: the common parts of readers and writers.

A reader takes `data` and the start, `at`. It does not explain malformed bytes: an index beyond the data
raises; a slice beyond it moves `at` past the end, which the reader checks last.
"""

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any, Final

from construct import Construct, Renamed

from decoders.formats.wire import VARINT, CompactLength, Counted, FlexibleStruct, Integer, Varint
from decoders.rows.runtime import SHORT

UNREADABLE: Final = (IndexError, struct.error)  # raised by the functions for malformed bytes


@dataclass
class FunctionSource:
    """The source of a function: its first line, the lines so far, and the names that they refer to."""

    header: str
    names: dict[str, Any]
    lines: list[str] = field(default_factory=list)
    indent: str = "    "
    run: dict[str, str] = field(default_factory=dict)

    def add(self, *lines: str) -> None:
        self.end_run()
        self.lines += [self.indent + line for line in lines]

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Write a header line, and indent the lines that are added in this context."""
        self.add(header)
        self.indent += "    "
        yield
        self.end_run()
        self.indent = self.indent[:-4]

    def add_fixed(self, name: str, letters: str) -> None:
        """Read a value of fixed size into a variable; adjacent ones share one call of `struct`."""
        self.run[name] = letters

    def end_run(self) -> None:
        """Write the call of `struct` for the values of fixed size since the last line."""
        if not self.run:
            return
        letters, variables = "".join(self.run.values()), "".join(f"{name}, " for name in self.run)
        self.run = {}
        packed = struct.Struct(f">{letters}")
        unpack = f"unpack_{letters.replace('?', 't')}"
        self.names[unpack] = packed.unpack_from
        self.add(f"{variables}= {unpack}(data, at)", f"at += {packed.size}")

    def compiled(self) -> Any:
        exec("\n".join([self.header, *self.lines]), self.names)
        return self.names[self.header.removeprefix("def ").partition("(")[0]]


@contextmanager
def unless_short(declaration: Counted, source: FunctionSource, *short: str) -> Iterator[None]:
    """Write the `short` lines as the fast path for content of few (`count`) bytes or elements; the code for
    content of any length is written in this context.
    """
    match declaration.length:
        case CompactLength():
            is_short, size = f"0 <= (count := data[at] - 1) <= {SHORT}", 1
        case Integer(length=2) if not source.run:  # else the length is read together with fields before it
            is_short, size = f"data[at] == 0 and (count := data[at + 1]) <= {SHORT}", 2
        case _:
            yield
            return
    with source.block(f"if {is_short}:"):
        source.add(f"at += {size}", *short)
    with source.block("else:"):
        yield


@contextmanager
def counted(declaration: Counted, name: str, source: FunctionSource, *, null: str) -> Iterator[None]:
    """Write the code that reads a `length` and assigns `null` to the variable of a null; the code that reads
    content of `length` bytes or elements is written in this context.
    """
    write_number(declaration.length, "length", source)
    with source.block("if length < 0:"):
        source.add(f"{name} = {null}" if declaration.nullable else "raise IndexError")
    with source.block("else:"):
        yield


def refuse_impossible_count(source: FunctionSource) -> None:
    """Write the code that refuses more elements (`length`) than there are bytes, before any is created."""
    with source.block("if length > len(data) - at:"):
        source.add("raise IndexError")


def write_tags(
    declaration: FlexibleStruct, name: str, source: FunctionSource, write_tag: Callable[[Renamed], None]
) -> None:
    """Write the code that reads a section of tagged fields; `write_tag` writes the part for one content."""
    with source.block("if data[at]:"):
        write_number(VARINT, f"{name}_count", source)
        with source.block(f"for _ in range({name}_count):"):
            write_number(VARINT, "tag", source)
            write_number(VARINT, "size", source)
            for tag, tagged in declaration.tags.items():
                with source.block(f"if tag == {tag}:"):
                    write_tag(tagged)
                    source.add("continue")
            with source.block("if size < 0:"):
                source.add("raise IndexError")
            source.add("at += size")
    with source.block("else:"):  # no tags: usual
        source.add("at += 1")


@singledispatch
def write_number(declaration: Construct, name: str, source: FunctionSource) -> None:
    """Write the code that reads a number, such as a length, into a variable."""
    raise TypeError(f"{declaration!r} is not a number")


@write_number.register
def _(declaration: Integer, name: str, source: FunctionSource) -> None:
    source.add_fixed(name, declaration.fmtstr[-1])


@write_number.register
def _(declaration: Varint, name: str, source: FunctionSource) -> None:
    source.add(f"{name} = data[at]", "at += 1")
    with source.block(f"if {name} > 0x7F:"):  # more than one byte: rare
        source.add(f"{name}, at = varint(data, at - 1)")


@write_number.register
def _(declaration: CompactLength, name: str, source: FunctionSource) -> None:
    source.add(f"{name} = data[at] - 1", "at += 1")
    with source.block(f"if {name} > 0x7E:"):  # more than one byte: rare
        source.add(f"{name}, at = compact_length(data, at - 1)")
