"""The order of the rows of a base, by which a batch finds the entries of its keys without reading the others.

The rows of a base with dictionaries of groups and topics are ordered by group, offsets partition, topic and
partition; texts by their place in the dictionary. When a base is written again, only the recent rows have to
be sorted.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import Index, Mask, numbers_or, to_numbers

ORDER: Final = ("group", "source_partition", "topic", "partition")
"""The columns by which the rows of a base are ordered; groups and topics have dictionaries."""

_TEXTS: Final = ("group", "topic")
_MOST_BITS: Final = 63

Codes = npt.NDArray[np.int32]


def is_ordered(base: pa.Table) -> bool:
    """Return whether the rows of a base are ordered."""
    return set(ORDER) <= set(base.column_names) and all(
        pa.types.is_dictionary(base[name].type) for name in _TEXTS
    )


def in_order(rows: pa.Table) -> Index:
    """Return the numbers of n rows (columns `ORDER`, with dictionaries) in the order of a base."""
    columns = [_numbers(rows, name) for name in ORDER]
    bits = [int(column.max(initial=0)).bit_length() for column in columns]
    if sum(bits) > _MOST_BITS or any(column.min(initial=0) < 0 for column in columns):
        return np.lexsort(columns[::-1])
    keys = np.zeros(len(rows), np.int64)
    for column, size in zip(columns, bits, strict=True):
        keys <<= size
        keys |= column
    return np.argsort(keys, kind="stable")  # fast if most rows are in order


@dataclass(frozen=True)
class Ranges:
    """The rows of n groups in an ordered base: from `start` to before `stop` (n each)."""

    base: pa.Table
    start: Index
    stop: Index

    @classmethod
    def of(cls, base: pa.Table, groups: pa.ChunkedArray, partitions: Index) -> "Ranges":
        """Return the rows of n groups, each in an offsets partition."""
        codes = _numbers(base, "group")
        wanted = _codes(base, "group", groups).astype(codes.dtype)  # else numpy would convert the codes
        start, stop = (np.searchsorted(codes, wanted, side).astype(np.int64) for side in ("left", "right"))
        return cls(base, *_narrowed(_numbers(base, "source_partition"), start, stop, partitions))

    def places(self, numbers: Index, topics: pa.ChunkedArray, partitions: Index) -> Index:
        """Return the rows of m topic partitions of the groups with these numbers; -1: there is none."""
        start, stop = self.start[numbers], self.stop[numbers]
        start, stop = _narrowed(_numbers(self.base, "topic"), start, stop, _codes(self.base, "topic", topics))
        start, stop = _narrowed(_numbers(self.base, "partition"), start, stop, partitions)
        return np.where(start < stop, start, -1)

    def first(self, replaced: Index) -> Index:
        """Return the first row of each group that is not among the replaced ones (ascending); -1: there is
        none."""
        bounds = np.append(replaced, len(self.base))
        ends = np.flatnonzero(np.diff(bounds, append=-1) != 1)  # of runs of neighbours
        place = np.searchsorted(bounds, self.start)
        run = ends[np.searchsorted(ends, place)]
        first = np.where(bounds[place] == self.start, bounds[run] + 1, self.start)
        return np.where(first < self.stop, first, -1)


def _numbers(base: pa.Table, name: str) -> Codes:
    """Return a column as numbers; texts as their codes, of one dictionary.

    A base with more than 2 GiB in a column has several chunks of each column once it was in a file.
    """
    column = base[name]
    if name in _TEXTS:
        codes = [chunk.indices for chunk in column.chunks]
        column = pa.chunked_array(codes, column.type.index_type)
    numbers: Codes = to_numbers(column)
    return numbers


def _codes(base: pa.Table, name: str, texts: pa.ChunkedArray) -> Index:
    """Return the codes of texts; -1 for those that the base lacks."""
    wanted = texts.combine_chunks().dictionary_encode()
    # each text of the base is looked up among the few wanted ones: numbering the others takes longer
    found = numbers_or(pc.index_in(base[name].chunk(0).dictionary, value_set=wanted.dictionary), -1)
    codes = np.full(len(wanted.dictionary) + 1, -1)
    codes[found[found >= 0]] = np.flatnonzero(found >= 0)
    return codes[numbers_or(wanted.indices, -1)]


def _narrowed(numbers: Codes, start: Index, stop: Index, wanted: Index) -> tuple[Index, Index]:
    """Return the part of each of n ranges, in which the numbers ascend, that has the wanted number."""
    return _bound(numbers, start, stop, wanted, np.less), _bound(numbers, start, stop, wanted, np.less_equal)


def _bound(
    numbers: Codes, start: Index, stop: Index, wanted: Index, is_before: Callable[[Any, Any], Mask]
) -> Index:
    """Return the first place in each range whose number is not before the wanted one, by bisection."""
    low, high = start, stop
    while (is_open := low < high).any():
        middle = (low + high) // 2
        goes_up = is_open & is_before(numbers[np.where(is_open, middle, 0)], wanted)
        low, high = np.where(goes_up, middle + 1, low), np.where(is_open & ~goes_up, middle, high)
    return low
