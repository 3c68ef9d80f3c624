"""Columns of the state in little memory: repeated texts as dictionaries, and columns of nulls as nothing.

Of an offset, the names of its group and topic, the topic id and columns that are null take two thirds of the
memory. The other columns stay as they are. A column is *plain* if it has the type of its schema.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import Mask, to_mask, to_numbers
from streaming.common.keys import without_unused
from streaming.common.pieces import PIECE_BYTES, ranges

_MOST_BYTES: Final = 2**30
"""Texts with more bytes stay plain: a dictionary is one array, and so ends at 2 GiB."""

MANY_ROWS: Final = 1_000
"""From this many rows on, dictionaries save more time than they take."""

_LONGEST: Final = 256
"""Texts that are longer on average (bytes) stay plain: the records of groups hardly repeat, and hashing them
takes time in each batch."""

_LEAST_REPEATED: Final = 2
"""How often each text must occur, on average, to be worth a dictionary."""


def encoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column, plain or encoded, in its smallest form, with as few chunks as possible."""
    if column.null_count == len(column):
        return pa.chunked_array([pa.nulls(len(column))])
    return with_dictionary(column)


def with_dictionary(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column with as few chunks as possible; one of repeated texts with a dictionary."""
    if not len(column):
        return without_dictionary(column)
    if pa.types.is_string(column.type) and _may_be_encoded([column]):
        column = column.dictionary_encode()
    if not pa.types.is_dictionary(column.type):
        return combined(column)
    whole = without_unused(combined(column.unify_dictionaries()).chunk(0))
    one = pa.chunked_array([whole])
    is_repeated = len(whole) >= _LEAST_REPEATED * len(whole.dictionary)
    return one if is_repeated else combined(without_dictionary(one))


def joined(columns: Sequence[pa.ChunkedArray], kind: pa.DataType) -> pa.ChunkedArray:
    """Return columns of the plain type `kind`, each plain or encoded, one after the other; repeated texts
    have a dictionary."""
    if pa.types.is_string(kind) and _may_be_encoded(columns):
        parts = [
            column if pa.types.is_dictionary(column.type) else plain(column, kind).dictionary_encode()
            for column in columns
        ]
    else:
        parts = [plain(column, kind) for column in columns]
    return with_dictionary(
        pa.chunked_array([chunk for part in parts for chunk in part.chunks], parts[0].type)
    )


def plain(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return the plain form of a column, of type `kind`; it may have several chunks."""
    if column.type == kind:
        return column
    if pa.types.is_null(column.type):
        return pa.chunked_array([pa.nulls(len(column), kind)])
    return pa.chunked_array([part for chunk in column.chunks for part in _decoded(chunk)], kind)


def without_dictionary(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the plain form of a column with or without a dictionary; it may have several chunks."""
    return plain(column, plain_type(column.type))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type without a dictionary."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def is_in(column: pa.ChunkedArray, values: pa.Array) -> Mask:
    """Return which values of a column, plain or encoded, are among plain ones; null is not."""
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.bool_)
    if not pa.types.is_dictionary(column.type):
        return to_mask(pc.is_in(column, value_set=values))
    found = [np.zeros(0, np.bool_)]
    for chunk in column.chunks:
        of_dictionary = np.append(to_mask(pc.is_in(chunk.dictionary, value_set=values)), np.False_)
        found.append(of_dictionary[to_numbers(chunk.indices.fill_null(len(chunk.dictionary)))])
    return np.concatenate(found)


def combined(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column with as few chunks as possible."""
    return pa.table([column], [""]).combine_chunks().column(0)


def _decoded(column: pa.DictionaryArray) -> list[pa.Array]:
    """Return the texts of a column, in several arrays if they have too many bytes for one."""
    lengths = np.append(to_numbers(pc.binary_length(column.dictionary)).astype(np.int64), 0)
    sizes = lengths[to_numbers(column.indices.fill_null(len(column.dictionary)))]
    kind = column.dictionary.type
    if int(sizes.sum()) <= PIECE_BYTES:
        return [column.cast(kind)]
    return [column.slice(start, stop - start).cast(kind) for start, stop in ranges(sizes, PIECE_BYTES)]


def _may_be_encoded(columns: Sequence[pa.ChunkedArray]) -> bool:
    """Return whether the texts of columns, plain or encoded, are few and short enough for one dictionary."""
    plain_ones = [column for column in columns if pa.types.is_string(column.type)]
    is_short = sum(column.nbytes for column in plain_ones) <= _LONGEST * sum(map(len, plain_ones))
    return is_short and sum(map(_text_bytes, columns)) <= _MOST_BYTES


def _text_bytes(column: pa.ChunkedArray) -> int:
    """Return the bytes of the texts of a column, each as often as it is in memory."""
    if pa.types.is_dictionary(column.type):
        return max((chunk.dictionary.nbytes for chunk in column.chunks), default=0)
    size: int = column.nbytes
    return size
