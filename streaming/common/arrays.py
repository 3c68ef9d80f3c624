"""Numbers and texts to Arrow arrays and back, without pandas.

The first call of `pyarrow.array` or `to_numpy` imports pandas, only to check whether its argument is a pandas
object: half of the time of a command that answers one question.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Index = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_NUMBERS: Final = {pa.int32(): np.int32, pa.int64(): np.int64}


def from_numbers(
    values: npt.NDArray[np.int32] | npt.NDArray[np.int64] | npt.NDArray[np.float64],
    is_valid: Mask | None = None,
) -> pa.Array:
    """Return n numbers as an array (int32, int64, double) on the same memory, null where they are not valid.

    >>> from_numbers(np.arange(3)).to_pylist()
    [0, 1, 2]
    >>> from_numbers(np.array([0.5, 1.5]), np.array([True, False])).to_pylist()
    [0.5, None]
    """
    valid, nulls = (None, 0) if is_valid is None else (_bits(is_valid), int(np.count_nonzero(~is_valid)))
    data = [valid, pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), data, null_count=nulls)


def from_mask(mask: Mask, is_valid: Mask | None = None) -> pa.Array:
    """Return n booleans as an array, null where they are not valid.

    >>> from_mask(np.array([True, False])).to_pylist()
    [True, False]
    """
    valid = None if is_valid is None else _bits(is_valid)
    return pa.Array.from_buffers(pa.bool_(), len(mask), [valid, _bits(mask)])


def to_mask(column: pa.Array | pa.ChunkedArray) -> Mask:
    """Return n booleans as a numpy array; null is false.

    >>> to_mask(pa.array([True, None, False])).tolist()
    [True, False, False]
    """
    array = _one(column)
    mask: Mask = _bools(array, array.buffers()[1]) & _valid(array)
    return mask


def begins_run(*columns: Index) -> Mask:
    """Return which of n rows differ from the row before in one of the columns (n each); the first row does.

    >>> begins_run(np.array([1, 1, 1, 2]), np.array([0, 0, 5, 5])).tolist()
    [True, False, True, True]
    """
    begins = np.ones(len(columns[0]), np.bool_)
    first, *others = columns
    np.not_equal(first[1:], first[:-1], out=begins[1:])
    for column in others:
        begins[1:] |= column[1:] != column[:-1]
    return begins


def numbers_or(column: pa.Array | pa.ChunkedArray, missing: int) -> Index:
    """Return n int32 or int64 as int64, with `missing` in place of null.

    >>> numbers_or(pa.array([7, None], pa.int32()), -1).tolist()
    [7, -1]
    """
    array = _one(column).cast(pa.int64())  # `fill_null` would import pandas
    numbers: Index = _numbers(array)
    return np.where(_valid(array), numbers, missing) if array.null_count else numbers.copy()


def where(table: pa.Table, mask: Mask) -> pa.Table:
    """Return the rows of a table for which n booleans are true; if all are, the table itself, not a copy."""
    return table if mask.all() else table.filter(from_mask(mask))


def no_rows(schema: pa.Schema) -> pa.Table:
    """Return a table without rows (`Schema.empty_table` would import pandas).

    >>> no_rows(pa.schema([("a", pa.int64())])).num_rows
    0
    """
    return pa.Table.from_batches([], schema)


def merged(parts: Sequence[Index]) -> Index:
    """Return all numbers of ascending arrays, ascending.

    >>> merged([np.array([1, 5]), np.array([3])]).tolist()
    [1, 3, 5]
    """
    return np.sort(np.concatenate(parts), kind="stable")  # merges parts that are in order


def are_among(numbers: Index, ascending: Index) -> Mask:
    """Return for n numbers whether they are among some ascending ones.

    >>> are_among(np.array([3, 9, 1]), np.array([1, 3])).tolist()
    [True, False, True]
    """
    places = np.searchsorted(ascending, numbers)
    found: Mask = np.append(ascending, -1)[places] == numbers
    return found & (places < len(ascending))


def spread(starts: Index, lengths: Index) -> tuple[Index, Index]:
    """Return all numbers in n ranges, one range after the other: for each number its range, and the number.

    >>> [found.tolist() for found in spread(np.array([7, 0]), np.array([2, 1]))]
    [[0, 0, 1], [7, 8, 0]]
    """
    ranges = np.repeat(np.arange(len(starts)), lengths)
    begins = np.cumsum(lengths) - lengths
    numbers: Index = np.arange(len(ranges)) + (starts - begins)[ranges]
    return ranges, numbers


def scaled(column: pa.Array | pa.ChunkedArray, factor: int, missing: int) -> Index:
    """Return n doubles times a factor as int64, truncated, with `missing` in place of null.

    >>> scaled(pa.array([0.0015, None]), 1_000, -1).tolist()
    [1, -1]
    """
    by = from_numbers(np.array([float(factor)]))[0]  # with a Python number `pc.multiply` would import pandas
    return numbers_or(pc.multiply(column, by).cast(pa.int64(), safe=False), missing)


def from_texts(texts: Sequence[str]) -> pa.Array:
    """Return n texts as an array (string).

    >>> from_texts(["é", ""]).to_pylist()
    ['é', '']
    """
    utf8 = [text.encode() for text in texts]
    bounds = np.cumsum([0, *map(len, utf8)], dtype=np.int64)
    data = [None, pa.py_buffer(bounds), pa.py_buffer(b"".join(utf8))]
    return pa.Array.from_buffers(pa.large_string(), len(utf8), data, null_count=0).cast(pa.string())


def to_numbers(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return n int32 or int64 as a numpy array; `ValueError` if any of them is null.

    >>> to_numbers(pa.array([7, 8, 9], pa.int32()).slice(1)).tolist()
    [8, 9]
    """
    array = _one(column)
    if array.null_count:
        raise ValueError(f"reading numbers: expected no null, found {array.null_count}")
    return _numbers(array)


def _one(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array, on the same memory if it is one; `combine_chunks` would copy it, and of
    no chunks import pandas."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return column.combine_chunks() if column.num_chunks else pa.nulls(0, column.type)


def _numbers(array: pa.Array) -> npt.NDArray[Any]:
    """Return n numbers; where they are null, any."""
    numbers = np.frombuffer(array.buffers()[1] or b"", _NUMBERS[array.type])
    return numbers[array.offset : array.offset + len(array)]


def _valid(array: pa.Array) -> Mask:
    bits = array.buffers()[0] if array.null_count else None
    return np.ones(len(array), np.bool_) if bits is None else _bools(array, bits)


def _bools(array: pa.Array, bits: pa.Buffer | None) -> Mask:
    """Return the bits of the n elements of an array as booleans."""
    packed = np.frombuffer(bits or b"", np.uint8)
    stop = array.offset + len(array)
    mask: Mask = np.unpackbits(packed, count=stop, bitorder="little")[array.offset :].astype(np.bool_)
    return mask


def _bits(mask: Mask) -> pa.Buffer:
    return pa.py_buffer(np.packbits(mask, bitorder="little"))
