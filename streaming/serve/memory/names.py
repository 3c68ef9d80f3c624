"""Distinct names in order, each with its place, which columns hold in place of the text.

Places count from 0, in the order of the names' UTF-8 bytes. Adding or removing names moves places but keeps
their order: columns sorted by place stay sorted.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress, islice
from typing import Any, Final, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import Index, Mask, from_mask, from_numbers, numbers_or

Int32 = npt.NDArray[np.int32]

NONE: Final = -1
"""Marks a missing value: no place of a name, and no number where Kafka also writes -1."""

_AT_A_TIME: Final = 4_096  # names to enter at a time, before other threads may run

TEXTS: Final = pa.large_string()

Column = TypeVar("Column", bound=npt.NDArray[Any])


def fixed(column: Column) -> Column:
    """Make a column read-only and return it."""
    column.flags.writeable = False
    return column


class Coded(NamedTuple):
    """n texts as indices into m `texts`, which may hold duplicates; `NONE`: null."""

    codes: Index
    texts: pa.Array

    @classmethod
    def of(cls, column: pa.Array) -> Self:
        """Encode n texts, or decompose a dictionary array of them."""
        held = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        return cls(numbers_or(held.indices, NONE), held.dictionary.cast(TEXTS))

    def places_in(self, names: "NameIndex") -> Index:
        """Return the places of the n texts; `NONE` for null and for texts that are not in `names`."""
        return np.append(names.places_of(self.texts), NONE)[self.codes]


def joined(columns: Sequence[Coded]) -> Coded:
    """Concatenate encoded columns."""
    starts = np.cumsum([0, *(len(column.texts) for column in columns)])
    codes = [
        np.where(column.codes == NONE, NONE, column.codes + start)
        for column, start in zip(columns, starts.tolist(), strict=False)
    ]
    empty = pa.nulls(0, TEXTS)
    return Coded(
        np.concatenate([np.empty(0, np.int64), *codes]),
        pa.concat_arrays([empty, *(column.texts for column in columns)]),
    )


@dataclass(frozen=True, eq=False)
class NameIndex:
    """n distinct names, ordered by their UTF-8 bytes: as an array, and the place of each."""

    texts: pa.Array
    places: Mapping[str, int]

    @classmethod
    def none(cls) -> Self:
        return cls(pa.nulls(0, TEXTS), {})

    def __len__(self) -> int:
        return len(self.texts)

    def place(self, name: str) -> int | None:
        return self.places.get(name)

    def name(self, place: int) -> str:
        return str(self.texts[place].as_py())

    @cached_property
    def lengths(self) -> Index:
        """The bytes of each name (n)."""
        return numbers_or(pc.binary_length(self.texts), 0)

    @cached_property
    def longest(self) -> int:
        """The bytes of the longest name; 0: there are no names."""
        return int(self.lengths.max(initial=0))

    def places_of(self, texts: pa.Array) -> Index:
        """Return the places of n texts; `NONE` where a text is not in the index."""
        return numbers_or(pc.index_in(texts.cast(TEXTS), value_set=self.texts), NONE)

    def changed(self, new: pa.Array, is_kept: Mask | None = None) -> tuple["NameIndex", Index]:
        """Return the index with the texts `new` added (known or not) and only the old names of `is_kept` (n;
        None: all), and the new place of each old name (n; `NONE` where it was dropped)."""
        fresh = pc.unique(new.cast(TEXTS).drop_null())
        is_kept = np.ones(len(self), np.bool_) if is_kept is None else is_kept
        fresh = fresh.filter(from_mask(~np.append(is_kept, False)[self.places_of(fresh)]))
        if not len(fresh) and is_kept.all():
            return self, np.arange(len(self))
        kept = np.flatnonzero(is_kept)
        fresh = fresh.take(pc.sort_indices(fresh))
        held = list(compress(self.places, is_kept.tolist()))
        added = fresh.to_pylist()
        before = np.array([bisect_left(held, name) for name in added], np.int64)  # how many precede each
        moved = np.full(len(self), NONE, np.int64)
        moved[kept] = np.arange(len(kept)) + np.searchsorted(before, np.arange(len(kept)), side="right")
        source = np.empty(len(kept) + len(added), np.int64)
        source[moved[kept]] = kept
        source[before + np.arange(len(added))] = len(self) + np.arange(len(added))
        texts = pa.concat_arrays([self.texts, fresh]).take(from_numbers(source))
        return NameIndex(texts, _places(sorted([*held, *added]))), moved  # two sorted runs, fast to merge


def _places(ordered: Sequence[str]) -> Mapping[str, int]:
    """Number the names, a few at a time so that other threads can run."""
    places: dict[str, int] = {}
    numbered = enumerate(ordered)
    while batch := list(islice(numbered, _AT_A_TIME)):
        places.update((name, place) for place, name in batch)
    return places
