"""Numbers keys: equal keys get equal numbers, whatever characters the names have.

pandas fails at that: its hash tables of texts read C strings, so `factorize`, `groupby` and `MultiIndex` take
names that are equal up to a NUL for one. Kafka allows such names. Texts of numpy lose NULs at their end.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import Index, from_mask, from_numbers, numbers_or, to_numbers
from streaming.model.schemas import KEY, SOURCE_PARTITION

KEY_NAMES: Final = [field.name for field in KEY]

PLACED_KEY: Final = [SOURCE_PARTITION.name, *KEY_NAMES]
"""The key of a committed offset in the log: with the partition of the offsets topic that holds it."""

PlacedGroup: TypeAlias = tuple[int, str]
"""A group in an offsets partition. A copy of the topic may have one name in two of them: two groups."""


def key_codes(columns: Iterable[pa.ChunkedArray | pa.Array]) -> Index:
    """Number the keys that columns of n texts or numbers form together (n int64, from 0 in order of
    appearance).

    No text or number may be null.

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
    """Return the index of each of n values among the distinct values, and these in order of appearance, or in
    the order of the column's dictionary. No value may be null.

    >>> codes, values = numbered(pa.array(["b", "a", "b"]))
    >>> codes.tolist(), values.to_pylist()
    ([0, 1, 0], ['b', 'a'])
    """
    chunked = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    is_encoded = pa.types.is_dictionary(chunked.type)
    chunks = (chunked.unify_dictionaries() if is_encoded else chunked.dictionary_encode()).chunks
    if not chunks:
        kind = chunked.type.value_type if is_encoded else chunked.type
        return np.empty(0, np.int64), pa.nulls(0, kind)  # `pa.array` would import pandas
    codes = np.concatenate([to_numbers(chunk.indices) for chunk in chunks]).astype(np.int64)
    values = chunks[-1].dictionary  # all chunks share it
    return of_used(codes, values) if is_encoded else (codes, values)


def of_used(codes: Index, values: pa.Array) -> tuple[Index, pa.Array]:
    """Leave out the values without a row, which a dictionary may have: return n codes (-1: null) and the
    values that they refer to; the same objects if all are used."""
    is_used = np.zeros(len(values) + 1, np.bool_)
    is_used[codes] = True  # the last element is for -1
    is_used = is_used[:-1]
    if is_used.all():
        return codes, values
    return np.append(np.cumsum(is_used) - 1, -1)[codes], values.filter(from_mask(is_used))


def without_unused(column: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return a column whose dictionary has no text that does not occur."""
    indices = column.indices
    codes, texts = of_used(
        numbers_or(indices, -1) if indices.null_count else to_numbers(indices), column.dictionary
    )
    if len(texts) == len(column.dictionary):
        return column
    return pa.DictionaryArray.from_arrays(from_numbers(codes.astype(np.int32), codes >= 0), texts)


def firsts(codes: Index) -> Index:
    """Return for each code the index of the first of n rows with it (k int64). Codes are 0 to k - 1, each at
    least once.

    >>> firsts(np.array([1, 0, 1])).tolist()
    [1, 0]
    """
    first = np.empty((codes.max() if len(codes) else -1) + 1, np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]  # for repeated indices numpy keeps the last value
    return first


def leading(codes: Index, *columns: Index) -> Index:
    """Return for each code (0 to k - 1, each at least once) the index of its minimal row: the one with the
    lowest number in the first column, of equal ones in the next, and so on; of fully equal ones the first.

    >>> leading(np.array([0, 0, 1]), np.array([5, 2, 7])).tolist()
    [1, 2]
    """
    rows, count = np.arange(len(codes)), (codes.max() if len(codes) else -1) + 1
    for column in columns:
        if len(rows) == count:
            break
        own, numbers = codes[rows], column[rows]
        least = np.full(count, _LARGEST)
        np.minimum.at(least, own, numbers)
        rows = rows[numbers == least[own]]
    return rows[firsts(codes[rows])]


def ranks(texts: pa.ChunkedArray | pa.Array) -> Index:
    """Return n numbers in the order of n texts, none of them null: equal texts get equal numbers.

    >>> ranks(pa.array(["b", "a", "b"])).tolist()
    [1, 0, 1]
    """
    codes, distinct = numbered(texts)
    ranked = np.empty(len(distinct), np.int64)
    ranked[numbers_or(pc.sort_indices(distinct).cast(pa.int64()), 0)] = np.arange(len(distinct))
    own: Index = ranked[codes]
    return own


@dataclass(frozen=True)
class Numbering:
    """The numbers that `key_codes` gives to keys, to look up the same keys among other rows."""

    names: Sequence[str]
    _values: Sequence[pa.Array]  # the distinct values of each column
    _joined: Sequence[pa.Array]  # per further column, the distinct codes of all columns up to it

    @classmethod
    def of(cls, rows: pa.Table, names: Sequence[str]) -> tuple[Self, Index]:
        """Number the keys of n rows, the columns of these names (none null); return this and n codes."""
        codes, first = numbered(rows[names[0]])
        values, joined = [first], list[pa.Array]()
        for name in names[1:]:
            own, distinct = numbered(rows[name])
            codes, pairs = numbered(from_numbers(codes * len(distinct) + own))
            values.append(distinct)
            joined.append(pairs)
        return cls(names, values, joined), codes

    def codes_of(self, rows: pa.Table) -> Index:
        """Return the numbers of the keys of n other rows; -1 for an unknown key."""
        first, *others = (
            _places(rows[name], values) for name, values in zip(self.names, self._values, strict=True)
        )
        codes = first
        for own, values, pairs in zip(others, self._values[1:], self._joined, strict=True):
            both = np.where((codes < 0) | (own < 0), -1, codes * len(values) + own)
            codes = _places_of_numbers(both, pairs)
        return codes


def _places(column: pa.ChunkedArray | pa.Array, values: pa.Array) -> Index:
    """Return the indexes of n values among distinct ones; -1: null, or not among them."""
    if isinstance(column, pa.ChunkedArray) and pa.types.is_dictionary(column.type):
        if not (chunks := column.unify_dictionaries().chunks):
            return np.empty(0, np.int64)
        of_texts = np.append(_places(chunks[-1].dictionary, values), -1)  # the last element is for null
        return np.concatenate([of_texts[numbers_or(chunk.indices, -1)] for chunk in chunks])
    return numbers_or(pc.index_in(column, value_set=values), -1)


def _places_of_numbers(numbers: Index, values: pa.Array) -> Index:
    """Return the indexes of n numbers (-1: none) among known ones, which are not negative; -1: unknown."""
    known = to_numbers(values)
    most = int(known.max(initial=-1))
    if most >= _TABLE_SIZE:
        return _places(from_numbers(numbers), values)
    table = np.full(most + 2, -1, np.int64)  # the last element is for -1
    table[known] = np.arange(len(known))
    places: Index = table[np.where(numbers > most, -1, numbers)]
    return places


def entry_codes(table: pa.Table) -> tuple[Index, Index, list[PlacedGroup]]:
    """Number the keys (`PLACED_KEY`) and the groups of a table of n rows: equal keys get equal codes.

    Returns n key codes, n group codes (indexes into the list of groups) and the groups.
    """
    names, distinct_names = numbered(table["group"])
    group_codes, distinct = numbered(from_numbers(names << 32 | _low_bits(table[SOURCE_PARTITION.name])))
    pairs = key_codes([from_numbers(group_codes), table["topic"]])
    places = to_numbers(distinct)
    groups = distinct_names.take(from_numbers(places >> 32)).to_pylist()
    placed = [*zip((places & _LOW_BITS).tolist(), groups, strict=True)]
    return pairs << 32 | _low_bits(table["partition"]), group_codes, placed


_LOW_BITS: Final = 0xFFFF_FFFF
_LARGEST: Final = 2**63 - 1
_TABLE_SIZE: Final = 2**23


def _low_bits(partitions: pa.ChunkedArray) -> Index:
    low: Index = partitions.to_numpy().astype(np.int64) & _LOW_BITS
    return low
