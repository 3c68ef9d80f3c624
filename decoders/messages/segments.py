"""Values at the same place of n structs, written at once: numbers, lengths, contents of texts."""

from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from decoders.columns.cursor import Ints

Bytes = NDArray[np.uint8]


class Segment(Protocol):
    """The values at the same place of n structs."""

    @property
    def longest(self) -> int:
        """The size of the longest row in bytes."""

    def write(self, data: Bytes, at: Ints, rows: slice) -> None:
        """Write the given rows, row i at byte `at[i]` of `data`."""


def _scatter(data: Bytes, at: Ints, values: NDArray[Any]) -> None:
    """Write values of one size, value i at byte `at[i]` of `data`."""
    size = values.dtype.itemsize
    _at_every_byte(data, size)[at] = values.view(f"V{size}")


def _at_every_byte(data: Bytes, size: int) -> NDArray[Any]:
    """A view of the `size` bytes that follow each byte."""
    return np.ndarray(len(data) - size + 1, f"V{size}", data, strides=(1,))


@dataclass
class Fixed:
    """Adjacent values of fixed size: n values each, or one for all rows."""

    values: list[tuple[np.dtype[Any], NDArray[Any] | np.void]] = field(default_factory=list)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype([(f"f{number}", dtype) for number, (dtype, _) in enumerate(self.values)])

    @property
    def longest(self) -> int:
        return self.dtype.itemsize

    def write(self, data: Bytes, at: Ints, rows: slice) -> None:
        """Build the rows with their values side by side, then write each to its place."""
        made = np.empty(len(at), self.dtype)
        for number, (_, values) in enumerate(self.values):
            made[f"f{number}"] = values[rows] if isinstance(values, np.ndarray) else values
        _scatter(data, at, made)


_VARINT_STEPS: Final = np.array([1 << 7, 1 << 14, 1 << 21, 1 << 28])


@dataclass
class Varints:
    """Numbers of 0 or more as varints (n)."""

    numbers: Ints

    def __post_init__(self) -> None:
        self.sizes = np.searchsorted(_VARINT_STEPS, self.numbers, side="right") + 1

    @property
    def longest(self) -> int:
        return len(_VARINT_STEPS) + 1

    def write(self, data: Bytes, at: Ints, rows: slice) -> None:
        numbers, sizes = self.numbers[rows], self.sizes[rows]
        for size in np.unique(sizes):
            chosen = np.flatnonzero(sizes == size)
            groups = numbers[chosen, None] >> 7 * np.arange(size) & 0x7F
            groups[:, :-1] |= 0x80
            made = np.ascontiguousarray(groups.astype(np.uint8))
            _scatter(data, at[chosen], made.view(f"V{size}").reshape(-1))


@dataclass
class Contents:
    """The bytes of n texts of any length."""

    source: Bytes
    starts: Ints
    lengths: Ints

    @property
    def longest(self) -> int:
        return int(self.lengths.max())

    def write(self, data: Bytes, at: Ints, rows: slice) -> None:
        """Write the texts of one length at a time: either there are few distinct lengths, or few texts."""
        starts, lengths = self.starts[rows], self.lengths[rows]
        some = np.flatnonzero(lengths)
        order = some[np.argsort(lengths[some].astype(np.min_scalar_type(self.longest)), kind="stable")]
        sizes, firsts = np.unique(lengths[order], return_index=True)
        for size, chosen in zip(sizes.tolist(), np.split(order, firsts[1:]), strict=False):
            _scatter(data, at[chosen], _at_every_byte(self.source, size)[starts[chosen]])
