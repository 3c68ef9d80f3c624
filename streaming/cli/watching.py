"""Prints an answer again and again: on a terminal in place of the last one, elsewhere below it."""

import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from io import StringIO

from rich.text import Text

from streaming.common.times import now_ms
from streaming.demo.layout import clock
from streaming.demo.screen import Screen


def watched(ask: Callable[[], int], every_s: float) -> int:
    """Print what `ask` prints every so many seconds, until Ctrl-C; return its last exit code."""
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
    """Show what `ask` prints on a screen that is gone at the end."""
    screen, code = Screen(sys.stdout), 0
    screen.open()
    try:
        while True:
            code, lines = _printed(ask)
            note = f"at {clock(now_ms())} (UTC), again every {every_s:g} s; Ctrl-C ends it"
            size = screen.size
            screen.draw([*map(Text, lines[: size.lines - 1]), Text(note, "dim")], size)
            time.sleep(every_s)
    except KeyboardInterrupt:
        return code
    finally:
        screen.close()


def _printed(ask: Callable[[], int]) -> tuple[int, list[str]]:
    """Return the exit code and the lines of an answer, as for a terminal; what is said beside it last."""
    out, err = _Terminal(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = ask()
    return code, [*out.getvalue().splitlines(), *err.getvalue().splitlines()]


class _Terminal(StringIO):
    """Keeps what is printed, which is laid out as for a terminal."""

    def isatty(self) -> bool:
        """It is to be shown on one."""
        return True
