"""The alternate screen of a terminal, which leaves no trace when it is closed.

A whole frame is drawn if the size of the terminal or the shape of the frame has changed. Otherwise only rows
that differ are written, so that text selected for copying stays selected.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, TextIO

from rich.console import Console
from rich.text import Text

_OPEN: Final = "\x1b[?1049h\x1b[?25l"  # the alternate screen, without a cursor
_CLOSE: Final = "\x1b[?25h\x1b[?1049l"
_CLEAR: Final = "\x1b[2J"
_CLEAR_REST_OF_ROW: Final = "\x1b[K"
_USUAL_SIZE: Final = os.terminal_size((80, 24))  # of a terminal that does not report its size


class Screen:
    """Draws frames on a terminal between `open` and `close`."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._console = Console(file=out, highlight=False)
        self._shape: tuple[object, ...] = ()
        self._rows: Mapping[int, str] = {}

    @staticmethod
    def is_possible(out: TextIO) -> bool:
        """Return whether this is a terminal that can position text."""
        return out.isatty() and not Console(file=out).is_dumb_terminal

    @property
    def size(self) -> os.terminal_size:
        # Only of this descriptor: rich also asks descriptors that are a file while Spark starts, and COLUMNS.
        with suppress(OSError):
            size = os.get_terminal_size(self._out.fileno())
            if all(size):
                return size
        return _USUAL_SIZE

    def open(self) -> None:
        """Switch to the alternate screen; the next frame is drawn as a whole."""
        self._shape = ()
        self._write(_OPEN)

    def close(self) -> None:
        """Restore the former content of the terminal."""
        self._write(_CLOSE)

    def draw(self, lines: Sequence[Text], size: os.terminal_size) -> None:
        """Draw a frame made for this size; lines beyond its last row are left out.

        The terminal folds a line that is wider than the screen.
        """
        rows, end = self._placed(lines, size)
        shape = (size, end, *rows)
        is_new = shape != self._shape
        # The cursor stays in the first row, where the terminal echoes typed text: it is always written.
        changed = {
            row: text for row, text in rows.items() if is_new or row == 1 or self._rows.get(row) != text
        }
        text = "".join(f"{_at(row)}{text}" for row, text in changed.items())
        self._write(f"{_CLEAR if is_new else ''}{text}{_at(1)}")
        self._shape, self._rows = shape, rows

    def _placed(self, lines: Sequence[Text], size: os.terminal_size) -> tuple[dict[int, str], int]:
        """Return the text to write at each row, and the row after the last one."""
        rows: dict[int, str] = {}
        end = 1
        for line in lines:
            height = max(1, -(-line.cell_len // size.columns))
            if end + height > size.lines + 1:
                break
            # A full row has no rest, and clearing it would delete its last character.
            is_full = line.cell_len == height * size.columns
            rows[end] = with_style(line, self._console) + ("" if is_full else _CLEAR_REST_OF_ROW)
            end += height
        return rows, end

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def with_style(line: Text, console: Console) -> str:
    """Return a line with the codes of its colours, if the console has colours."""
    with console.capture() as written:  # rich would end the process if the reader is gone
        console.print(line, end="", soft_wrap=True)
    return written.get()


def _at(row: int) -> str:
    return f"\x1b[{row};1H"
