"""Lays out the cells of a table in lines: side by side under their heads, never broken within a cell.

If a terminal is too narrow for all columns, the less important ones are left out. If that is not enough
because some names are long, a cell longer than its column ends its line, and the row continues below under
the same heads: all other rows stay aligned, on one line each. Consecutive rows with the same cells before
their last line print these once. Only sentences are wrapped, between words.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

from streaming.cli.layout.cells import Cells, size_of, sizes_of

_GAP: Final = 2
"""Blanks between columns."""

_INDENT: Final = 2
"""Blanks before the continuation of a row, at least."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column: its head, the number of cells of each size, and its layout options.

    `rank` as in `ColumnPlace`. `is_rigid`: no cell may exceed the width (numbers, timestamps). `is_prose`:
    sentences, which may be wrapped.
    """

    head: str
    sizes: Mapping[int, int]
    rank: int = 0
    is_rigid: bool = False
    to_the_right: bool = False
    is_prose: bool = False

    @property
    def full(self) -> int:
        """The width that fits all cells and the head."""
        return max([size_of(self.head), *self.sizes])

    @property
    def least(self) -> int:
        """The minimum width."""
        return self.full if self.is_rigid else size_of(self.head)

    def spilled(self, width: int, *, up_to: float = inf) -> int:
        """Return the number of cells longer than a width, and not longer than `up_to`."""
        return sum(count for size, count in self.sizes.items() if width < size <= up_to)


Widths = Mapping[int, int]
"""The shown columns by number, with their widths."""


def count_sizes(columns: int, parts: Iterable[Cells]) -> list[Counter[int]]:
    """Return for each of n columns the number of cells of each size."""
    counters: list[Counter[int]] = [Counter() for _ in range(columns)]
    for cells in parts:
        for counter, texts in zip(counters, cells, strict=True):
            counter.update(sizes_of(texts))
    return counters


# --- choice of columns -----------------------------------------------------------------------------------


def full_widths(columns: Sequence[Column]) -> Widths:
    return {number: column.full for number, column in enumerate(columns)}


def fitting_widths(columns: Sequence[Column], room: int, *, up_to: float = inf) -> Widths:
    """Choose columns and widths so that rows fit into the `room` of a line.

    Columns of rank 0 are always included. The others follow by rank, each if it fits and does not make
    further cells longer than their columns; cells longer than `up_to` do not count.
    """
    found = _shared_out(columns, [number for number, column in enumerate(columns) if column.rank == 0], room)
    least = _spilled(columns, found, up_to)
    others = sorted(set(range(len(columns))) - found.keys(), key=lambda number: columns[number].rank)
    for number in others:
        more = _shared_out(columns, sorted([*found, number]), room)
        if _total(more) <= room and _spilled(columns, more, up_to) <= least:
            found = more
    return found


def _shared_out(columns: Sequence[Column], numbers: Sequence[int], room: int) -> Widths:
    """Distribute the room among columns, in steps, each where it fits the most further cells.

    Between two equal columns the right one gets the step: the cells left of it are often the same in many
    rows, and then they are printed once.
    """
    widths = {number: columns[number].least for number in numbers}
    while steps := [
        (gain / (size - widths[number]), number, size)
        for number in numbers
        for size, gain in _steps(columns[number], widths[number], room - _total(widths))
    ]:
        _, number, size = max(steps)
        widths[number] = size
    return widths


def _steps(column: Column, width: int, left: int) -> Iterator[tuple[int, int]]:
    """Yield the larger widths that a column might get, and how many more cells would fit into each."""
    gain = 0
    for size in sorted(size for size in column.sizes if width < size <= width + left):
        gain += column.sizes[size]
        yield size, gain


def _spilled(columns: Sequence[Column], widths: Widths, up_to: float) -> int:
    return sum(columns[number].spilled(width, up_to=up_to) for number, width in widths.items())


def _total(widths: Widths) -> int:
    """Return the width of a line with these columns."""
    return sum(widths.values()) + _GAP * (len(widths) - 1)


# --- lines -----------------------------------------------------------------------------------------------


def lines_of(
    columns: Sequence[Column],
    widths: Widths,
    parts: Iterable[Cells],
    *,
    room: int | None = None,
    blocks: int | None = None,
) -> Iterator[str]:
    """Yield the lines of a table: the heads, then the rows, whose cells come in `parts` for all columns.

    `room` is the width of a line; None: unlimited. `blocks` is the number of a column: a blank line separates
    its values.
    """
    grid = _Grid([columns[number] for number in widths], list(widths.values()), room)
    yield from grid.lines([[columns[number].head] for number in widths])
    last = None
    for cells in parts:
        lines = grid.lines([cells[number] for number in widths])
        if blocks is None:
            yield from lines
            continue
        for line, value in zip(lines, cells[blocks], strict=True):
            yield line if last in (None, value) else f"\n{line}"
            last = value


class _Slot(NamedTuple):
    """The place of the cells of a column: the line of a row, and the start and end on it."""

    shelf: int
    start: int
    stop: int
    column: Column


class _Grid:
    """Columns side by side, on several shelves if not even their heads fit on one line."""

    def __init__(self, columns: Sequence[Column], widths: list[int], room: int | None) -> None:
        self._room = room
        self._widths = widths
        self._slots = list(_slots(columns, widths, room))
        self._is_shelved = any(slot.shelf for slot in self._slots)
        self._may_share = not self._is_shelved and not any(column.is_prose for column in columns)
        self._above: list[str] = []
        """The lines of the last row, except its last line."""

    def lines(self, cells: Cells) -> Iterator[str]:
        """Yield n rows: each one line, or several separated by line ends."""
        sizes = [sizes_of(texts) for texts in cells]
        whole = map(str.rstrip, map((" " * _GAP).join, zip(*self._padded(cells, sizes), strict=True)))
        is_long = self._is_long(sizes)
        if is_long is None:
            self._above = []
            yield from whole
            return
        for number, line in enumerate(whole):
            if is_long[number]:
                row = [(texts[number], of[number]) for texts, of in zip(cells, sizes, strict=True)]
                yield "\n".join(self._broken(row))
            else:
                self._above = []
                yield line

    def _padded(self, cells: Cells, sizes: list[list[int]]) -> Iterator[list[str]]:
        for texts, of, width, slot in zip(cells, sizes, self._widths, self._slots, strict=True):
            if slot.column.to_the_right:
                yield [" " * (width - size) + text for text, size in zip(texts, of, strict=True)]
            else:
                yield [text + " " * (width - size) for text, size in zip(texts, of, strict=True)]

    def _is_long(self, sizes: list[list[int]]) -> list[bool] | None:
        """Return which of n rows do not fit on one line; None: all fit."""
        if self._room is None:
            return None
        if self._is_shelved:
            return [True] * len(sizes[0])
        longer = [
            [size > width for size in of]
            for of, width in zip(sizes, self._widths, strict=True)
            if max(of, default=0) > width
        ]
        return list(map(any, zip(*longer, strict=True))) if longer else None

    def _broken(self, row: list[tuple[str, int]]) -> list[str]:
        """Return the lines of a row, given each cell and its size, without those that the row above begins
        with."""
        lines = list(self._flow(row))
        shared = 0
        if self._may_share:
            while shared < min(len(lines) - 1, len(self._above)) and lines[shared] == self._above[shared]:
                shared += 1
        self._above = lines[:-1]
        return lines[shared:]

    def _flow(self, row: list[tuple[str, int]]) -> Iterator[str]:
        """Put each cell below its head; on a new line if the place is taken, or the line is full."""
        assert self._room is not None
        line, end, shelf = "", 0, 0
        for (text, size), slot in zip(row, self._slots, strict=True):
            at = slot.stop - size if slot.column.to_the_right else slot.start
            if line and (slot.shelf > shelf or at < end + _GAP or at + size > self._room):
                yield line
                line, end, shelf = "", 0, slot.shelf
                at = min(at, max(_INDENT, self._room - size))
                if slot.column.is_prose:  # sentences are aligned, whatever their lengths
                    at = _INDENT
                    *first, text = folded(text, self._room - at)
                    yield from (" " * at + part for part in first)
                    size = size_of(text)
            line += " " * (at - end) + text
            end = at + size
        yield line


def _slots(columns: Sequence[Column], widths: list[int], room: int | None) -> Iterator[_Slot]:
    shelf, start = 0, 0
    for column, width in zip(columns, widths, strict=True):
        if room is not None and start and start + width > room:
            shelf, start = shelf + 1, _INDENT
        yield _Slot(shelf, start, start + width, column)
        start += width + _GAP


def folded(text: str, room: int) -> list[str]:
    """Wrap a text between words into lines of at most `room`, unless a word is longer.

    >>> folded("the broker will drop it", 15)
    ['the broker will', 'drop it']
    """
    lines: list[str] = []
    for word in text.split(" "):
        if lines and size_of(lines[-1]) + 1 + size_of(word) <= room:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
