"""Binary Arrow columns as numpy arrays, and a cursor that reads n of their rows at once."""

from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from itertools import repeat
from typing import Any, Final, Self, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from decoders.formats.faults import Fault, Why, missing_bytes, unended_varint
from decoders.formats.java_values import MAX_VARINT_BYTES

# pyarrow's classes take type arguments in its hints only, not when the program runs: hence the quotes.
Array: TypeAlias = "pa.Array[Any]"
Arrays: TypeAlias = "pa.Array[Any] | pa.ChunkedArray[Any]"

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

_WIDEST_READ: Final = 16  # bytes of the widest field of fixed size, an id


@dataclass(frozen=True)
class BinaryColumn:
    """n byte strings: row i is `data[starts[i]:stops[i]]`, or null.

    Starts never decrease. `data` is the Arrow buffer itself, or a padded copy if that is shorter than an id.
    """

    array: Array
    data: NDArray[np.uint8]
    starts: Ints
    stops: Ints
    is_null: Bools

    @classmethod
    def from_arrow(cls, array: Array) -> Self:
        """Any binary type, sliced or not, with or without nulls; only a tiny data buffer is copied."""
        if not pa.types.is_binary(array.type) and not pa.types.is_large_binary(array.type):
            array = array.cast(pa.large_binary())
        offsets = _offsets(array)
        return cls(
            array=array,
            data=_readable(array.buffers()[2]),
            starts=offsets[:-1],
            stops=offsets[1:],
            is_null=array.is_null().to_numpy(zero_copy_only=False),
        )

    def __len__(self) -> int:
        return len(self.starts)

    def rows(self, rows: Ints) -> list[bytes | None]:
        taken: list[bytes | None] = self.array.take(pa.array(rows)).to_pylist()
        return taken

    def cursor(self, rows: Ints, skip: int = 0) -> "Cursor":
        """A cursor over the given rows, `skip` bytes after their start (every row must have that many)."""
        return Cursor(self.data, self.starts[rows], self.starts[rows] + skip, self.stops[rows])


def _offsets(array: Array) -> Ints:
    """Return the n + 1 offsets of a binary array into its data buffer."""
    if not len(array):
        return np.zeros(1, np.int64)
    dtype = np.dtype(np.int64 if pa.types.is_large_binary(array.type) else np.int32)
    buffer = memoryview(array.buffers()[1] or b"")
    return np.frombuffer(buffer, dtype, len(array) + 1, array.offset * dtype.itemsize).astype(np.int64)


def _readable(buffer: pa.Buffer | None) -> NDArray[np.uint8]:
    """Pad a short buffer, so that any field of fixed size can be read at byte 0."""
    data = np.frombuffer(memoryview(buffer or b""), np.uint8)
    return data if len(data) >= _WIDEST_READ else np.pad(data, (0, _WIDEST_READ - len(data)))


@dataclass
class Faults:
    """The faults of some of n rows: the row number of each, and the parts of its `Fault`."""

    rows: list[int] = dataclass_field(default_factory=list)
    messages: list[str] = dataclass_field(default_factory=list)
    fields: list[str] = dataclass_field(default_factory=list)
    at_bytes: list[int] = dataclass_field(default_factory=list)

    def add(self, row: int | np.intp, fault: Fault) -> None:
        self.extend([int(row)], [fault.message], [fault.field], [fault.at_byte])

    def extend(self, rows: list[int], messages: list[str], fields: list[str], at_bytes: list[int]) -> None:
        self.rows += rows
        self.messages += messages
        self.fields += fields
        self.at_bytes += at_bytes

    def within(self, rows: Ints) -> "Faults":
        """The same faults with the row numbers of a larger whole, in which row i is `rows[i]`."""
        return replace(self, rows=rows[self.rows].tolist()) if self.rows else self


@dataclass
class Cursor:
    """The position of n rows that are being read: each at its own byte, each with its own end.

    A read takes the same field from every row. A row that is too short or malformed becomes invalid: its
    position stays and its values mean nothing, so a reader needs no branch for it. `faults` holds its fault.
    """

    data: NDArray[np.uint8]
    origins: Ints  # n: the first byte of each row, from which errors count
    at: Ints  # n: the next byte of each row
    stops: Ints  # n
    field: str = ""  # name of the field being read, for errors
    faults: Faults = dataclass_field(default_factory=Faults)  # of the rows that are invalid

    def __post_init__(self) -> None:
        self.is_valid: Bools = np.ones(len(self.at), np.bool_)

    def step(self, sizes: Ints | int) -> Ints:
        """Advance each row by `sizes` (0 or more) bytes; return where they start, 0 for a row that is too
        short.
        """
        starts = self.at
        stops = starts + sizes
        fits = stops <= self.stops
        if fits.all():
            self.at = stops
            return starts
        self.refuse(~fits, missing_bytes, stops - starts, self.stops - starts)
        self.at = np.where(fits, stops, starts)
        return np.where(fits, starts, 0)

    def refuse(self, is_wrong: Bools, why: Why, *facts: NDArray[Any], at: Ints | None = None) -> None:
        """Make rows invalid. `why` builds the message of a row from its facts (n each), the field and the
        byte, which is the position of the row unless `at` gives another.
        """
        if not is_wrong.any():
            return
        rows = np.flatnonzero(is_wrong & self.is_valid)
        self.is_valid[rows] = False
        at_bytes = ((self.at if at is None else at)[rows] - self.origins[rows]).tolist()
        messages = map(why, *(fact[rows].tolist() for fact in facts), repeat(self.field), at_bytes)
        self.faults.extend(rows.tolist(), list(messages), [self.field] * len(rows), at_bytes)

    def fixed(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Read a value of fixed size from each row, in the byte order of the data."""
        starts = self.step(dtype.itemsize)
        value_at_every_byte = np.ndarray(len(self.data) - dtype.itemsize + 1, dtype, self.data, strides=(1,))
        return value_at_every_byte[starts]

    def integers(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Read a big-endian integer from each row, in native byte order."""
        return self.fixed(dtype.newbyteorder(">")).astype(dtype)

    def varints(self) -> Ints:
        """Read an unsigned varint from each row, in the range of Java's `int`, as `wire.Varint` does."""
        values = np.zeros(len(self.at), np.int64)
        first_bytes = self.at
        goes_on = self.is_valid
        for shift in range(0, 7 * MAX_VARINT_BYTES, 7):
            is_cut = goes_on & (self.at == self.stops)
            self.refuse(is_cut, unended_varint, is_cut, at=first_bytes)
            next_bytes = np.take(self.data, self.at, mode="clip") * (goes_on & ~is_cut)
            values |= (next_bytes & 0x7F).astype(np.int64) << shift
            self.at = self.at + (goes_on & ~is_cut)
            goes_on = next_bytes > 0x7F
            if not goes_on.any():
                break
        self.refuse(goes_on, unended_varint, ~goes_on, at=first_bytes)
        return as_int32(values)

    def part(self, rows: Ints) -> "Cursor":
        """A cursor over some of these rows, all of them valid; `put_back` returns its results."""
        return Cursor(self.data, self.origins[rows], self.at[rows], self.stops[rows], self.field)

    def put_back(self, rows: Ints, part: "Cursor") -> None:
        """Take over position, validity and faults of `part`, the cursor over `rows`."""
        self.at[rows] = part.at
        self.is_valid[rows] = part.is_valid
        faults = part.faults.within(rows)
        self.faults.extend(faults.rows, faults.messages, faults.fields, faults.at_bytes)


def as_int32(values: Ints) -> Ints:
    """The low 32 bits of each value as a Java `int`."""
    return values.astype(np.int32).astype(np.int64)


def to_buffer(values: NDArray[Any]) -> pa.Buffer:
    """The memory of an array as an Arrow buffer; copied only if the array is not contiguous."""
    return pa.py_buffer(np.ascontiguousarray(values).data)


def to_bitmap(is_valid: Bools) -> pa.Buffer | None:
    """An Arrow validity bitmap; None if everything is valid."""
    return None if is_valid.all() else to_buffer(np.packbits(is_valid, bitorder="little"))
