"""Writes messages whose arrays are columns, in numpy, derived from the same layouts as `writer`.

A body may hold `Columns` in place of a list of structs. For each array, `_Rows` first computes the length of
every struct, and from it the position of each. The result is the *segments* of the message (`segments`) with
the position of each of their rows. Adjacent fields of fixed size form one segment: the partitions of an
OffsetFetch response without metadata are a single one. A piece of the message takes from each segment the
rows that begin in it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, singledispatch
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from construct import Construct, Default, Renamed, Struct
from numpy.typing import NDArray

from decoders.columns.cursor import Array, BinaryColumn, Ints
from decoders.formats.java_values import MAX_TEXT_BYTES
from decoders.formats.wire import (
    Boolean,
    CompactLength,
    Counted,
    FlexibleStruct,
    Integer,
    Sequence,
    Text,
    Uuid,
)
from decoders.messages.fields import ERROR_CODE_NAME
from decoders.messages.reader import Message
from decoders.messages.segments import Contents, Fixed, Segment, Varints
from decoders.messages.writer import OnError, UnwritableError, same, writer_of

Column: TypeAlias = "NDArray[Any] | Array | Columns"


@dataclass(frozen=True)
class Columns:
    """An array of n structs as columns: the elements of one array after those of the previous one.

    `fields` are columns of n by Kafka's name of the field: numpy arrays for integers and booleans (of any
    integer type, in range), numpy arrays of 16 bytes (`V16`) for ids, Arrow arrays for texts and bytes
    (binary or string; their nulls are null; text must be UTF-8, which is not checked), `Columns` for arrays
    of structs. A field with a default may be missing. `counts` has the number of elements for each of the
    structs around the array; None for an array of the message itself, which is only one.
    """

    fields: Mapping[str, Column]
    counts: NDArray[Any] | None = None

    def __len__(self) -> int:
        if self.counts is not None:
            return int(self.counts.sum())
        first = next(iter(self.fields.values()), ())
        return len(first.counts) if isinstance(first, Columns) and first.counts is not None else len(first)


@dataclass
class MessagePlan:
    """A message of `size` bytes, not yet written."""

    size: int
    segments: list[tuple[Ints, Segment]] = field(default_factory=list)  # with the position of each row

    def pieces(self, piece_bytes: int) -> Iterator[memoryview]:
        """Write the message in pieces of `piece_bytes`; the last may be shorter."""
        longest = max((segment.longest for _, segment in self.segments), default=0)
        beyond = np.zeros(0, np.uint8)  # the ends of rows that begin in the piece before
        for start in range(0, self.size, piece_bytes):
            size = min(piece_bytes, self.size - start)
            data = np.empty(size + longest, np.uint8)
            data[: len(beyond)] = beyond
            for at, segment in self.segments:
                rows = slice(*np.searchsorted(at, (start, start + size)))
                if rows.start < rows.stop:
                    segment.write(data, at[rows] - start, rows)
            yield data[:size].data
            beyond = data[size:]


def plan_of(layout: Struct, body: Message, on_error: OnError = same) -> MessagePlan:
    """The plan of a message that may contain `Columns`; `on_error` is as for `writer`.

    Raises `UnwritableError`; errors in fields that are not columns are any of `UNWRITABLE`.
    """
    rows = _Rows(1)
    for declared, alone in _fields_of(layout):
        value = body.get(declared.name)
        if isinstance(value, Columns):
            counts = np.array([len(value)]) if value.counts is None else value.counts
            _add(declared.subcon, Columns(value.fields, counts), declared.name, rows)
            _tell_errors(value, on_error)
        else:
            rows.add_constant(writer_of(alone)(body, on_error))
    rows.add_constant(writer_of(_tags_of(layout))(body))
    plan = MessagePlan(int(rows.sizes()[0]))
    rows.place(np.zeros(1, np.int64), plan)
    return plan


def _tell_errors(columns: Columns, on_error: OnError) -> None:
    for name, column in columns.fields.items():
        if isinstance(column, Columns):
            _tell_errors(column, on_error)
        elif name == ERROR_CODE_NAME and isinstance(column, np.ndarray):
            for code in column[column != 0].tolist():
                on_error(code)


@cache
def _fields_of(layout: Struct) -> list[tuple[Renamed, Struct]]:
    """The fields of a message, each also as a message of its own."""
    return [(declared, Struct(declared)) for declared in layout.subcons]


@cache
def _tags_of(layout: Struct) -> Struct:
    """The tagged fields of a message, as a message of their own."""
    return FlexibleStruct(tags=layout.tags) if isinstance(layout, FlexibleStruct) else Struct()


# --- the rows of one array ---------------------------------------------------------------------------------


@dataclass
class _Children:
    """One array in each of n structs: the numbers of elements, and the elements."""

    counts: Ints
    rows: "_Rows"

    def __post_init__(self) -> None:
        self.ends = np.append(0, np.cumsum(self.rows.sizes()))  # of every element, counted from 0
        self.firsts = self.ends[np.append(0, np.cumsum(self.counts))]  # of every array, and the end

    def sizes(self) -> Ints:
        """The size of each array in bytes."""
        sizes: Ints = np.diff(self.firsts)
        return sizes

    def place(self, at: Ints, plan: MessagePlan) -> None:
        """Place the array of struct i at byte `at[i]`."""
        self.rows.place(np.repeat(at - self.firsts[:-1], self.counts) + self.ends[:-1], plan)


@dataclass
class _Rows:
    """n structs: their parts in order, each with its size in bytes in every struct (n, or one number)."""

    count: int
    parts: list[tuple[Segment | _Children, Ints | int]] = field(default_factory=list)

    def add(self, part: Segment | _Children, sizes: Ints | int) -> None:
        self.parts.append((part, sizes))

    def add_fixed(self, dtype: np.dtype[Any], values: NDArray[Any] | np.void) -> None:
        """Append a value of fixed size; adjacent ones form one segment."""
        last = self.parts[-1][0] if self.parts else None
        fixed = last if isinstance(last, Fixed) else Fixed()
        fixed.values.append((dtype, values))
        self.parts[len(self.parts) - (fixed is last) :] = [(fixed, fixed.longest)]

    def add_constant(self, data: bytes) -> None:
        if data:
            self.add_fixed(np.dtype(f"V{len(data)}"), np.void(data))

    def sizes(self) -> Ints:
        """The size of every struct in bytes (n)."""
        total = np.zeros(self.count, np.int64)
        for _, sizes in self.parts:
            total += sizes
        return total

    def place(self, at: Ints, plan: MessagePlan) -> None:
        """Place struct i at byte `at[i]`."""
        for part, sizes in self.parts:
            if isinstance(part, _Children):
                part.place(at, plan)
            else:
                plan.segments.append((at, part))
            at = at + sizes


# --- columns of each kind of field -----------------------------------------------------------------------


@singledispatch
def _add(kind: Construct, column: Any, path: str, rows: _Rows) -> None:
    """Append a field whose values are a column; raises `UnwritableError`."""
    raise UnwritableError(f"{path}: columns are not written for {kind!r}")


@_add.register
def _(kind: Default, column: Any, path: str, rows: _Rows) -> None:
    _add(kind.subcon, column, path, rows)


@_add.register
def _(kind: Integer, column: NDArray[Any], path: str, rows: _Rows) -> None:
    bounds = np.iinfo(f"{'i' if kind.fmtstr[-1].islower() else 'u'}{kind.length}")
    _expect(_is_numpy(column, "iu"), "integers in numpy", column, path)
    if len(column) and not np.can_cast(column.dtype, bounds.dtype):
        _expect(bounds.min <= column.min() and column.max() <= bounds.max, f"{bounds.dtype}", column, path)
    rows.add_fixed(bounds.dtype.newbyteorder(">"), column)


@_add.register
def _(kind: Boolean, column: NDArray[Any], path: str, rows: _Rows) -> None:
    _expect(_is_numpy(column, "b"), "booleans in numpy", column, path)
    rows.add_fixed(np.dtype(np.bool_), column)


@_add.register
def _(kind: Uuid, column: NDArray[Any], path: str, rows: _Rows) -> None:
    _expect(_is_numpy(column, "V") and column.dtype.itemsize == 16, "V16 in numpy", column, path)
    rows.add_fixed(np.dtype("V16"), column)


@_add.register(Counted)
def _(kind: Counted, column: Array, path: str, rows: _Rows) -> None:
    _expect(isinstance(column, pa.Array), "an Arrow array", column, path)
    contents = BinaryColumn.from_arrow(column)
    is_null = contents.is_null
    _expect(kind.nullable or not is_null.any(), "no nulls", column, path)
    lengths = np.where(is_null, 0, contents.stops - contents.starts)
    longest = int(lengths.max(initial=0))
    _expect(not isinstance(kind, Text) or longest <= MAX_TEXT_BYTES, "at most 32767 bytes", longest, path)
    _add_lengths(kind, np.where(is_null, -1, lengths), rows)
    if longest:
        rows.add(Contents(contents.data, contents.starts, lengths), lengths)


@_add.register
def _(kind: Sequence, column: Columns, path: str, rows: _Rows) -> None:
    _expect(isinstance(column, Columns) and column.counts is not None, "Columns with counts", column, path)
    _expect(type(kind.element) in (Struct, FlexibleStruct), "an array of structs", kind.element, path)
    counts = np.asarray(column.counts, np.int64)
    _expect(len(counts) == rows.count, f"{rows.count} counts", len(counts), path)
    _add_lengths(kind, counts, rows)
    children = _Children(counts, _rows_of(kind.element, column, path))
    rows.add(children, children.sizes())


def _rows_of(layout: Struct, columns: Columns, path: str) -> _Rows:
    rows = _Rows(len(columns))
    for declared in layout.subcons:
        column = columns.fields.get(declared.name)
        if column is None:
            _expect(isinstance(declared.subcon, Default), "a column", "none", f"{path}.{declared.name}")
            rows.add_constant(writer_of(declared.subcon.subcon)(declared.subcon.value))
            continue
        if not isinstance(column, Columns):
            _expect(len(column) == rows.count, f"{rows.count} rows", len(column), f"{path}.{declared.name}")
        _add(declared.subcon, column, f"{path}.{declared.name}", rows)
    _expect(not getattr(layout, "tags", None), "no tagged fields", layout, path)
    rows.add_constant(b"\0" if isinstance(layout, FlexibleStruct) else b"")
    return rows


_ONE_BYTE: Final = 0x80


def _add_lengths(kind: Counted, lengths: Ints, rows: _Rows) -> None:
    """Append the lengths of texts or arrays; -1 is null."""
    if not isinstance(kind.length, CompactLength):
        rows.add_fixed(np.dtype(f">i{kind.length.length}"), lengths)
    elif lengths.max(initial=0) + 1 < _ONE_BYTE:
        rows.add_fixed(np.dtype(np.uint8), lengths + 1)
    else:
        varints = Varints(lengths + 1)
        rows.add(varints, varints.sizes)


def _is_numpy(column: object, kinds: str) -> bool:
    return isinstance(column, np.ndarray) and column.dtype.kind in kinds


def _expect(is_so: bool | np.bool_, expected: str, found: object, path: str) -> None:
    if not is_so:
        kind = f"{type(found).__name__} of {found.dtype}" if isinstance(found, np.ndarray) else found
        raise UnwritableError(f"expected {expected} for {path}, found {kind}")
