"""Column shapes: how one field of n rows is read, its form in numpy, and the Arrow array that it becomes.

There are three: integers, ids, and texts. Of a text, numpy holds only its place in the buffer; the bytes are
gathered at once at the end. Fields of other kinds have no shape; records with such fields become documents.

A value *is there* if it is neither null nor the default that means "none" in the field's declaration.
"""

from dataclasses import dataclass, replace
from functools import cache, singledispatch
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
from construct import Construct, Default, Renamed
from numpy.typing import NDArray

from decoders.columns.cursor import Array, BinaryColumn, Bools, Cursor, Ints, as_int32, to_bitmap, to_buffer
from decoders.formats.faults import overlong_text, unexpected_null
from decoders.formats.java_values import MAX_TEXT_BYTES, decode_text
from decoders.formats.wire import UUID, CompactLength, Integer, Text, Uuid


class Shape(Protocol):
    """How the column of one field is read and converted."""

    @property
    def arrow_type(self) -> pa.DataType: ...

    def blank(self, count: int) -> NDArray[Any]:
        """An array of `count` values, none of which is there."""

    def read(self, cursor: Cursor) -> NDArray[Any]:
        """Read the field from every row of a cursor; in rows that become invalid the value means nothing."""

    def is_there(self, values: NDArray[Any]) -> Bools: ...

    def stored(self, shown: Any) -> Any:
        """Convert one value from its form in documents to the form that `read` returns."""

    def to_arrow(self, values: NDArray[Any], is_there: Bools, column: BinaryColumn) -> Array:
        """The values of n rows, null where they are not there; `column` is the one they were read from."""


@dataclass(frozen=True)
class Integers:
    """Integers of one width (n)."""

    dtype: np.dtype[Any]
    default: int | None = None

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.from_numpy_dtype(self.dtype)

    def blank(self, count: int) -> NDArray[Any]:
        return np.zeros(count, self.dtype)

    def read(self, cursor: Cursor) -> NDArray[Any]:
        return cursor.integers(self.dtype)

    def is_there(self, values: NDArray[Any]) -> Bools:
        return np.ones(len(values), np.bool_) if self.default is None else values != self.default

    def stored(self, shown: int) -> int:
        return shown

    def to_arrow(self, values: NDArray[Any], is_there: Bools, column: BinaryColumn) -> Array:
        return pa.Array.from_buffers(self.arrow_type, len(values), [to_bitmap(is_there), to_buffer(values)])


_ID: Final = np.dtype("V16")


@dataclass(frozen=True)
class Ids:
    """Ids of 16 bytes (n), in Arrow as base64url without padding, as Kafka prints them."""

    default: str | None = None

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.string()

    def blank(self, count: int) -> NDArray[Any]:
        return np.zeros(count, _ID)

    def read(self, cursor: Cursor) -> NDArray[Any]:
        return cursor.fixed(_ID)

    def is_there(self, values: NDArray[Any]) -> Bools:
        return np.ones(len(values), np.bool_) if self.default is None else values != self.stored(self.default)

    def stored(self, shown: str) -> Any:
        return np.frombuffer(UUID.build(shown), _ID)[0]

    def to_arrow(self, values: NDArray[Any], is_there: Bools, column: BinaryColumn) -> Array:
        text = _base64url(values[is_there])
        offsets = np.concatenate([[0], np.cumsum(is_there) * text.shape[1]]).astype(np.int32)
        buffers = [to_bitmap(is_there), to_buffer(offsets), to_buffer(text)]
        return pa.Array.from_buffers(pa.string(), len(values), buffers)


_DIGITS: Final = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", np.uint8)
# The two digits of every 12-bit number, side by side in one uint16.
_DIGIT_PAIRS: Final = np.stack([_DIGITS.repeat(64), np.tile(_DIGITS, 64)], axis=1).view(np.uint16).ravel()


def _base64url(ids: NDArray[Any]) -> NDArray[np.uint8]:
    """Encode n ids as n by 22 characters: three bytes are two 12-bit numbers, each of them two digits."""
    padded = np.zeros((len(ids), 6, 3), np.uint8)
    padded.reshape(len(ids), 18)[:, :16] = ids.view(np.uint8).reshape(len(ids), 16)
    first, second, third = (padded[:, :, byte].astype(np.uint16) for byte in range(3))
    numbers = np.stack([first << 4 | second >> 4, (second & 0xF) << 8 | third], axis=2)
    return _DIGIT_PAIRS[numbers.reshape(len(ids), 12)].view(np.uint8)[:, :22]


_SPAN: Final = np.dtype([("start", np.int64), ("stop", np.int64)])
_NULL: Final = -1  # start and stop of a null text


@dataclass(frozen=True)
class Texts:
    """Texts with a length in front, as their spans of the buffer (n)."""

    length: "Integers | CompactLengths"
    nullable: bool

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.string()

    def blank(self, count: int) -> NDArray[Any]:
        return _spans(np.full(count, _NULL), np.full(count, _NULL))

    def read(self, cursor: Cursor) -> NDArray[Any]:
        lengths_at = cursor.at
        lengths = self.length.read(cursor).astype(np.int64)
        is_null = lengths < 0
        cursor.refuse(lengths > MAX_TEXT_BYTES, overlong_text, lengths, at=lengths_at)
        if not self.nullable:
            cursor.refuse(is_null, unexpected_null, lengths, at=lengths_at)
        starts = cursor.step(np.maximum(lengths, 0))
        return _spans(np.where(is_null, _NULL, starts), np.where(is_null, _NULL, starts + lengths))

    def is_there(self, values: NDArray[Any]) -> Bools:
        is_there: Bools = values["start"] != _NULL
        return is_there

    def stored(self, shown: str | None) -> Any:
        """Raise `TypeError`: the position in the buffer does not follow from the characters."""
        raise TypeError("a text is kept as a place in the buffer, which its characters do not tell")

    def to_arrow(self, values: NDArray[Any], is_there: Bools, column: BinaryColumn) -> Array:
        return _as_text(_pieces(column, values, is_there))


@dataclass(frozen=True)
class CompactLengths:
    """The varint lengths in front of compact texts."""

    def read(self, cursor: Cursor) -> Ints:
        """Lengths; negative for a null text."""
        return as_int32(cursor.varints() - 1)


def _spans(starts: Ints, stops: Ints) -> NDArray[Any]:
    spans = np.empty(len(starts), _SPAN)
    spans["start"], spans["stop"] = starts, stops
    return spans


def _pieces(column: BinaryColumn, spans: NDArray[Any], is_there: Bools) -> Array:
    """Gather n pieces of the buffer with Arrow.

    Rows follow each other in the buffer, so the edges of their pieces only rise. They are the offsets of an
    array in which every second element is a piece, and the others are the gaps between.
    """
    count = len(spans)
    edges = np.where(is_there, spans, _spans(column.starts, column.starts))
    numbers = np.arange(0, 2 * count, 2)
    pieces_and_gaps = pa.Array.from_buffers(
        pa.large_binary(),
        max(2 * count - 1, 0),
        [None, to_buffer(edges), to_buffer(column.data)],
    )
    is_piece = pa.Array.from_buffers(pa.int64(), count, [to_bitmap(is_there), to_buffer(numbers)])
    return pieces_and_gaps.take(is_piece)


def _as_text(raw: Array) -> Array:
    """Decode bytes as Java does. Arrow checks the column; Python decodes it only if that fails."""
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if row is None else decode_text(row) for row in raw.to_pylist()], pa.string())


@cache
def shape_of(declaration: Construct) -> Shape:
    """The shape of a field's column; `TypeError` if fields of its kind cannot be a column."""
    shape: Shape = _shape_of(declaration)
    return shape


@singledispatch
def _shape_of(declaration: Construct) -> Any:
    raise TypeError(f"{declaration!r} cannot be a column")


@_shape_of.register
def _(declaration: Renamed) -> Any:
    return _shape_of(declaration.subcon)


@_shape_of.register
def _(declaration: Default) -> Any:
    return replace(_shape_of(declaration.subcon), default=declaration.value)


@_shape_of.register
def _(declaration: Integer) -> Any:
    kind = "i" if declaration.fmtstr[-1].islower() else "u"
    return Integers(np.dtype(f"{kind}{declaration.length}"))


@_shape_of.register
def _(declaration: CompactLength) -> Any:
    return CompactLengths()


@_shape_of.register
def _(declaration: Uuid) -> Any:
    return Ids()


@_shape_of.register
def _(declaration: Text) -> Any:
    return Texts(_shape_of(declaration.length), declaration.nullable)
