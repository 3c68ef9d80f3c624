"""A terminal as far as the demo needs one: what it shows after the bytes that were written to it."""

import re
from typing import Final

_TOKENS: Final = re.compile(r"\x1b\[(\??)([\d;]*)([A-Za-z])|([^\x1b])")

Rows = list[list[str]]


class SmallTerminal:
    """Two screens of cells, the usual and the alternate one; a row that is full goes on in the next.

    Text goes beyond the last row by scrolling. A sequence that it does not know fails.
    """

    def __init__(self, columns: int, lines: int) -> None:
        self.columns, self.lines = columns, lines
        self._screens = {"usual": self._blank(), "alternate": self._blank()}
        self._name = "usual"
        self._row = self._column = 0
        self.shows_cursor = True

    @property
    def is_alternate(self) -> bool:
        return self._name == "alternate"

    def shown(self) -> list[str]:
        """The rows of the present screen, without the blanks at their ends."""
        return ["".join(row).rstrip() for row in self._screens[self._name]]

    def resize(self, columns: int, lines: int) -> None:
        """Cut the screens, or add blank cells, as xterm does."""
        self.columns, self.lines = columns, lines
        for name, rows in self._screens.items():
            wide = [(row + [" "] * columns)[:columns] for row in rows]
            self._screens[name] = (wide + self._blank())[:lines]
        self._row, self._column = min(self._row, lines - 1), min(self._column, columns - 1)

    def write(self, text: str) -> None:
        end = 0
        for token in _TOKENS.finditer(text):
            assert token.start() == end, f"cannot read {text[end : end + 20]!r}"
            end = token.end()
            private, numbers, what, char = token.groups()
            if char is None:
                self._obey(f"{private}{what}", [int(number) for number in numbers.split(";") if number])
            else:
                self._put(char)
        assert end == len(text), f"cannot read {text[end:]!r}"

    def _put(self, char: str) -> None:
        if char == "\r":
            self._column = 0
        elif char == "\n":
            self._next_row()
        else:
            if self._column == self.columns:  # the row was full, and only now it is left
                self._column = 0
                self._next_row()
            self._screens[self._name][self._row][self._column] = char
            self._column += 1

    def _next_row(self) -> None:
        if self._row + 1 < self.lines:
            self._row += 1
        else:
            rows = self._screens[self._name]
            rows[:] = [*rows[1:], [" "] * self.columns]

    def _obey(self, what: str, numbers: list[int]) -> None:
        rows = self._screens[self._name]
        match what, numbers:
            case "H", [row, column]:
                self._row, self._column = min(row, self.lines) - 1, min(column, self.columns) - 1
            case "J", [2]:
                rows[:] = self._blank()
            case "K", []:  # where a row is full, from its last cell on
                start = min(self._column, self.columns - 1)
                rows[self._row][start:] = [" "] * (self.columns - start)
            case "m", _:
                pass
            case (("?h" | "?l"), [1049]):
                self._name = "alternate" if what == "?h" else "usual"
            case (("?h" | "?l"), [25]):
                self.shows_cursor = what == "?h"
            case _:
                raise AssertionError(f"a sequence that this terminal does not know: {what} {numbers}")

    def _blank(self) -> Rows:
        return [[" "] * self.columns for _ in range(self.lines)]
