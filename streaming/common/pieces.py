"""Tables with more bytes than one Arrow array of texts can hold: selecting rows, and splitting.

Arrow counts the bytes of a column of texts in 32 bits: an array ends at 2 GiB. A million offsets with 4 KB of
metadata each take 4 GB. Such a column has many chunks; it can be filtered and compared, but its chunks cannot
be combined, and (as of Arrow 26) `take` fails. In the JVM, cells and values end at 2 GiB, too.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import Index, from_numbers, to_numbers

ARRAY_BYTES: Final = 2**31 - 1
"""Limit on the bytes of texts in one array; smaller tables need no special care."""

PIECE_BYTES: Final = 256 * 1024 * 1024
"""A size that fits into memory well, and is far from the limits of arrays, cells and state values."""

VALUE_BYTES: Final = 4 * 1024 * 1024
"""A good size for one value of Spark's state: on its way there it is copied about six times."""

_NUMBER_BYTES: Final = 8  # upper bound for a value that is not a text


def take(table: pa.Table, rows: Index) -> pa.Table:
    """Return m rows of a table by their indexes; -1 returns a row of nulls.

    The columns of the result may have several chunks.
    """
    if table.nbytes <= ARRAY_BYTES:
        return table.take(_nullable(rows))
    sizes = np.append(row_bytes(table), 0)[rows]  # the last one is for -1
    batches = table.to_batches()
    taken = [_take(table.schema, batches, rows[start:stop]) for start, stop in ranges(sizes, PIECE_BYTES)]
    return pa.concat_tables([table.schema.empty_table(), *taken])


def pieces(table: pa.Table) -> Iterator[pa.Table]:
    """Split a table into slices of at most `PIECE_BYTES`, or of one row; an empty table has none."""
    if table.nbytes <= PIECE_BYTES:
        yield from [table] if len(table) else []
        return
    for start, stop in ranges(row_bytes(table), PIECE_BYTES):
        yield table.slice(start, stop - start)


def divided(data: bytes | pa.Buffer) -> Iterator[bytes]:
    """Split bytes into pieces of at most `VALUE_BYTES`; at least one."""
    view = memoryview(data)
    return (bytes(view[n * VALUE_BYTES : (n + 1) * VALUE_BYTES]) for n in range(pieces_in(len(data))))


def pieces_in(length: int) -> int:
    """Return the number of pieces of so many bytes; empty bytes are one piece, too."""
    return max(1, -(-length // VALUE_BYTES))


def joined(tables: Iterable[pa.Table], most_bytes: int = PIECE_BYTES) -> Iterator[pa.Table]:
    """Concatenate consecutive tables of one schema while they have at most `most_bytes` together."""
    held, size = list[pa.Table](), 0
    for table in tables:
        own = plain_bytes(table)
        if held and size + own > most_bytes:
            yield pa.concat_tables(held)
            held, size = [], 0
        held.append(table)
        size += own
    if held:
        yield pa.concat_tables(held)


def plain_bytes(table: pa.Table) -> int:
    """Return the size of a table, at least as large as if it had plain texts instead of dictionaries."""
    encoded = [column for column in table.columns if pa.types.is_dictionary(column.type)]
    size: int = table.nbytes
    return size + sum(_decoded_bytes(chunk) for column in encoded for chunk in column.chunks)


def row_bytes(table: pa.Table) -> Index:
    """Return the approximate size of each of n rows: the bytes of its texts, and 8 for any other value."""
    columns = [[_value_bytes(chunk) for chunk in column.chunks] for column in table.columns]
    nothing = np.zeros(len(table), np.int64)
    return reduce(np.add, (np.concatenate(chunks) for chunks in columns if chunks), nothing)


def ranges(sizes: Index, most: int, most_rows: int | None = None) -> list[tuple[int, int]]:
    """Cut n rows of these sizes into ranges of rows with a total of at most `most`, or of one row; none has
    more than `most_rows` rows.
    """
    ends = np.append(0, np.cumsum(sizes))
    cuts = [0]
    while cuts[-1] < len(sizes):
        reach = int(np.searchsorted(ends, ends[cuts[-1]] + most, side="right")) - 1
        reach = reach if most_rows is None else min(reach, cuts[-1] + most_rows)
        cuts.append(max(reach, cuts[-1] + 1))
    return list(pairwise(cuts))


def by_batches(
    table: pa.Table, to_array: Callable[[pa.RecordBatch], pa.Array], kind: pa.DataType
) -> pa.ChunkedArray:
    """Convert each batch of a table to an array of type `kind`; return one column of these chunks."""
    return pa.chunked_array([to_array(batch) for batch in table.to_batches()], kind)


def _take(schema: pa.Schema, batches: list[pa.RecordBatch], rows: Index) -> pa.Table:
    """Return m rows of all batches together, few enough for one array; -1 returns a row of nulls."""
    starts = np.cumsum([0, *map(len, batches)])
    wanted = np.unique(rows[rows >= 0])
    bounds = np.searchsorted(wanted, starts)
    found = [
        batch.take(from_numbers(wanted[first:last] - start))
        for batch, start, (first, last) in zip(batches, starts.tolist(), pairwise(bounds), strict=False)
        if first < last
    ]
    places = np.where(rows >= 0, np.searchsorted(wanted, rows), rows)
    return pa.Table.from_batches(found, schema).take(_nullable(places))


def _decoded_bytes(column: pa.DictionaryArray) -> int:
    lengths = to_numbers(pc.binary_length(column.dictionary))
    return int(lengths[to_numbers(column.indices.drop_null())].sum())


def _value_bytes(array: pa.Array) -> Index:
    kind = array.type
    if pa.types.is_struct(kind):
        return reduce(np.add, map(_value_bytes, array.flatten()))
    if pa.types.is_list(kind):
        bounds = np.append(0, np.cumsum(_value_bytes(array.flatten())))
        lengths = _lengths(pc.list_value_length(array))
        stops = np.cumsum(lengths)
        of_values: Index = bounds[stops] - bounds[stops - lengths]
        return of_values + _NUMBER_BYTES
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _lengths(pc.binary_length(array)) + _NUMBER_BYTES
    return np.full(len(array), _NUMBER_BYTES, np.int64)


def _lengths(lengths: pa.Array) -> Index:
    return to_numbers(pc.fill_null(lengths, 0)).astype(np.int64)


def _nullable(rows: Index) -> pa.Array:
    """Return row indexes as an array, null where they are -1."""
    return from_numbers(rows, None if not len(rows) or rows.min() >= 0 else rows >= 0)
