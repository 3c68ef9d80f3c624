"""An append-only store of texts, each addressed by its slot: the metadata of offsets.

A column of slots is fast to copy; copying a column of texts takes as long as the texts are. Pieces are joined
once a later one has grown as large, so that there are few.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import Index, from_mask, from_numbers, numbers_or
from streaming.serve.memory.names import Int32

_BINARY: Final = pa.large_binary()
_EMPTY: Final = pa.LargeBinaryArray.from_buffers(
    _BINARY, 1, [None, pa.py_buffer(np.zeros(2, np.int64)), pa.py_buffer(b"")]
)


_SPARE_TEXTS: Final = 65_536
_SPARE_BYTES: Final = 64 * 2**20


@dataclass(frozen=True, eq=False)
class TextStore:
    """Texts (UTF-8) in pieces; slot 0 is the empty text.

    `starts` are the first slots of the pieces, followed by the end; `lengths` are the bytes of each text.
    `used` is the number and total bytes of texts when all were last in use.
    """

    pieces: tuple[pa.LargeBinaryArray, ...]
    starts: Index
    lengths: Int32
    used: tuple[int, int] = (1, 0)

    @classmethod
    def none(cls) -> Self:
        return cls((_EMPTY,), np.array([0, 1]), np.zeros(1, np.int32))

    def __len__(self) -> int:
        return int(self.starts[-1])

    @cached_property
    def longest(self) -> int:
        """The bytes of the longest text."""
        return int(self.lengths.max())

    @property
    def nbytes(self) -> int:
        return sum(piece.nbytes for piece in self.pieces)

    @property
    def is_spare(self) -> bool:
        """Whether the store has grown so much since all texts were in use that unused ones are worth
        dropping."""
        count, size = self.used
        return len(self) > 2 * count + _SPARE_TEXTS or self.nbytes > 2 * size + _SPARE_BYTES

    def with_more(self, texts: pa.Array) -> tuple["TextStore", Index]:
        """Return the store with n texts added, and their slots (n); null and empty texts get slot 0."""
        is_some = numbers_or(pc.binary_length(texts), 0) > 0
        some = texts.filter(from_mask(is_some)).cast(pa.large_string()).cast(_BINARY)
        if not len(some):
            return self, np.zeros(len(texts), np.int64)
        slots = np.where(is_some, len(self) - 1 + np.cumsum(is_some), 0)
        lengths = np.append(self.lengths, _lengths(some))
        return _of([*self.pieces, some], lengths, self.used), slots

    def at(self, slots: Index | Int32) -> pa.LargeBinaryArray:
        """Return the texts of n slots."""
        numbers = slots.astype(np.int64)
        first, last = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
        piece = int(np.searchsorted(self.starts, first, side="right")) - 1
        if last < self.starts[piece + 1]:  # all in one piece: the common case
            return self.pieces[piece].take(from_numbers(numbers - self.starts[piece]))
        of_piece = np.searchsorted(self.starts, numbers, side="right") - 1
        order = np.argsort(of_piece, kind="stable")
        touched, begins = np.unique(of_piece[order], return_index=True)
        parts = [
            self.pieces[number].take(from_numbers(numbers[rows] - self.starts[number]))
            for number, rows in zip(touched.tolist(), np.split(order, begins[1:]), strict=True)
        ]
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return pa.concat_arrays(parts).take(from_numbers(back))

    def only(self, slots: Index | Int32) -> tuple["TextStore", Index]:
        """Return a store with the texts of n slots only, and the new slots (n)."""
        used, places = np.unique(np.append(0, slots), return_inverse=True)
        texts = self.at(used)
        return _of([texts], self.lengths[used], (len(texts), texts.nbytes)), places[1:]


def _lengths(texts: pa.LargeBinaryArray) -> Int32:
    lengths: Int32 = numbers_or(pc.binary_length(texts), 0).astype(np.int32)
    return lengths


def _of(pieces: list[pa.LargeBinaryArray], lengths: Int32, used: tuple[int, int]) -> TextStore:
    while len(pieces) > 1 and len(pieces[-2]) <= 2 * len(pieces[-1]):
        pieces[-2:] = [pa.concat_arrays(pieces[-2:])]
    return TextStore(tuple(pieces), np.cumsum([0, *map(len, pieces)]), lengths, used)
