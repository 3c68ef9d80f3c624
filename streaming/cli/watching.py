"""Repeats an answer: on a terminal in place of the last one, elsewhere below it."""

import os
import signal
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from io import StringIO
from itertools import accumulate
from typing import Final

from rich.text import Text

from streaming.common.screen import Screen
from streaming.common.times import clock, now_ms

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP)
"""Signals that end or suspend this process; the terminal's screen is restored first."""


class _Signalled(BaseException):
    """One of `_ENDING` was received."""

    def __init__(self, number: int) -> None:
        self.number = number


def watched(ask: Callable[[], int], every_s: float) -> int:
    """Call `ask` every `every_s` seconds until Ctrl-C, showing its output; return its last exit code."""
    if Screen.is_possible(sys.stdout):
        return _on_screen(ask, every_s)
    code = 0
    with suppress(KeyboardInterrupt):
        while True:
            code = ask()
            sys.stdout.flush()
            time.sleep(every_s)
            print()
    return code


def _on_screen(ask: Callable[[], int], every_s: float) -> int:
    """Show the output of `ask` on an alternate screen, which is closed at the end and while this process is
    suspended."""
    screen = Screen(sys.stdout)
    while True:
        try:
            with _signals_raised():
                screen.open()
                return _drawn(screen, ask, every_s)
        except _Signalled as signalled:
            number = signalled.number
        finally:
            _close(screen)
        os.kill(os.getpid(), number)  # with its default effect


def _drawn(screen: Screen, ask: Callable[[], int], every_s: float) -> int:
    """Draw the output of `ask` every `every_s` seconds until Ctrl-C; return its last exit code."""
    code = 0
    try:
        while True:
            code, printed, said = _printed(ask)
            note = f"at {clock(now_ms())} (UTC), again every {every_s:g} s; Ctrl-C ends it"
            size = screen.size
            below = [*map(Text, said), Text(note, "dim")]
            screen.draw([*fitting(list(map(Text, printed)), below, size), *below], size)
            time.sleep(every_s)
    except KeyboardInterrupt:
        return code


@contextmanager
def _signals_raised() -> Iterator[None]:
    """Raise `_Signalled` for signals that would end or suspend this process; ignored signals stay ignored."""

    def raised(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_IGN)  # ignore a second one meanwhile
        raise _Signalled(number)

    before = {number: signal.getsignal(number) for number in _ENDING}
    taken = {number: one for number, one in before.items() if one == signal.SIG_DFL}
    for number in taken:
        signal.signal(number, raised)
    try:
        yield
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler)


def _close(screen: Screen) -> None:
    """Restore the usual screen, unless the terminal is gone."""
    with suppress(OSError):
        screen.close()


def fitting(lines: Sequence[Text], below: Sequence[Text], size: os.terminal_size) -> list[Text]:
    """Return the first lines that fit on a screen above those in `below`; if some are left out, the last line
    has their number."""

    def height(line: Text) -> int:
        return max(1, -(-line.cell_len // size.columns))

    room = size.lines - sum(map(height, below))
    ends = list(accumulate(map(height, lines[: size.lines])))
    if len(lines) == len(ends) and (not ends or ends[-1] <= room):
        return list(lines)
    shown = bisect_right(ends, room - 1)
    return [*lines[:shown], Text(f"... {len(lines) - shown} more lines", "dim")]


def _printed(ask: Callable[[], int]) -> tuple[int, list[str], list[str]]:
    """Return the exit code and the lines of an answer, as for a terminal, and those of standard error."""
    out, err = _Terminal(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = ask()
    return code, out.getvalue().splitlines(), err.getvalue().splitlines()


class _Terminal(StringIO):
    """Collects output that is laid out as for a terminal."""

    def isatty(self) -> bool:
        return True
