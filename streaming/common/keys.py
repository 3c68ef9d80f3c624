"""Numbers keys: equal numbers, equal keys, whatever the names are made of.

pandas cannot do that: its hash tables of texts read C strings, so that two names which are alike up to a NUL
are one to `factorize`, `groupby` and `MultiIndex`. Kafka takes such names; texts of numpy lose NULs at their
end.
"""

from collections.abc import Iterable
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from streaming.common.arrays import Index, from_numbers, to_numbers
from streaming.model.schemas import KEY, SOURCE_PARTITION

KEY_NAMES: Final = [field.name for field in KEY]

PLACED_KEY: Final = [SOURCE_PARTITION.name, *KEY_NAMES]
"""What identifies a committed offset in the log: with the partition of the offsets topic that holds it."""

PlacedGroup: TypeAlias = tuple[int, str]
"""A group in an offsets partition. A copy of the topic may hold one name in two, which are two groups."""


def key_codes(columns: Iterable[pa.ChunkedArray | pa.Array]) -> Index:
    """Number the keys that columns of n texts or numbers make together (n int64, from 0 in order of coming).

    None of the texts and numbers is null.

    >>> key_codes([pa.array(["a", "a\\0", "a", "a"]), pa.array([1, 1, 1, 2])]).tolist()
    [0, 1, 0, 2]
    """
    first, *others = columns
    codes, _ = numbered(first)
    for column in others:
        own, values = numbered(column)
        codes, _ = numbered(from_numbers(codes * len(values) + own))
    return codes


def numbered(column: pa.ChunkedArray | pa.Array) -> tuple[Index, pa.Array]:
    """Return for each of n values, none of them null, the place of its equal among the distinct ones, and
    these in the order in which they come.

    >>> codes, values = numbered(pa.array(["b", "a", "b"]))
    >>> codes.tolist(), values.to_pylist()
    ([0, 1, 0], ['b', 'a'])
    """
    chunked = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    chunks = chunked.dictionary_encode().chunks  # all have one dictionary, that of the last
    if not chunks:
        return np.empty(0, np.int64), pa.nulls(0, column.type)  # `pa.array` would import pandas
    codes = np.concatenate([to_numbers(chunk.indices) for chunk in chunks]).astype(np.int64)
    return codes, chunks[-1].dictionary


def entry_codes(table: pa.Table) -> tuple[Index, Index, list[PlacedGroup]]:
    """Number the keys (`PLACED_KEY`) and the groups of a table of n rows: equal codes, equal keys.

    Returns n key codes, n group codes (positions in the list of groups) and the groups.
    """
    names, distinct_names = numbered(table["group"])
    group_codes, distinct = numbered(from_numbers(names << 32 | _low_bits(table[SOURCE_PARTITION.name])))
    pairs = key_codes([from_numbers(group_codes), table["topic"]])
    places = to_numbers(distinct)
    groups = distinct_names.take(from_numbers(places >> 32)).to_pylist()
    placed = [*zip((places & _LOW_BITS).tolist(), groups, strict=True)]
    return pairs << 32 | _low_bits(table["partition"]), group_codes, placed


_LOW_BITS: Final = 0xFFFF_FFFF


def _low_bits(partitions: pa.ChunkedArray) -> Index:
    low: Index = partitions.to_numpy().astype(np.int64) & _LOW_BITS
    return low
