"""Commands on a pseudo-terminal of any width: what a person at it gets to see, as text.

All of them run one after the other in one process, whose start is what takes longest.
"""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_END: Final = "\x1e"  # which no command prints
_PROGRAM: Final = """
import fcntl, json, struct, sys, termios, time

if (now := NOW) is not None:
    time.time_ns = lambda: now * 1_000_000
from streaming.cli.main import main

for width, arguments in json.loads(sys.argv[1]):
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    sys.argv[1:] = arguments
    try:
        main()
    except SystemExit:
        print(END, end="", flush=True)
"""


def on_terminal(
    asked: Iterable[tuple[int, Sequence[str]]],
    *,
    directory: Path = ROOT,
    now: int | None = None,
    with_errors: bool = False,
) -> list[str]:
    """Return what each command (a width, and the arguments) prints on standard output, a terminal.

    In a directory, with a clock that stands still at `now` (ms), and with standard error in between.
    """
    master, slave = pty.openpty()
    program = _PROGRAM.replace("END", repr(_END)).replace("NOW", repr(now))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [sys.executable, "-c", program, json.dumps([[width, [*words]] for width, words in asked])],
        cwd=directory,
        env=environment | {"PYTHONIOENCODING": "utf-8", "PYTHONPATH": str(ROOT)},
        stdin=slave,
        stdout=slave,
        stderr=slave if with_errors else subprocess.DEVNULL,
    )
    os.close(slave)
    seen = b"".join(iter(lambda: _read(master), b""))
    os.close(master)
    assert process.wait(60) == 0
    return seen.decode().replace("\r\n", "\n").split(_END)[:-1]


def _read(master: int) -> bytes:
    """Read what the terminal shows next; nothing once the process has ended."""
    try:
        return os.read(master, 65_536)
    except OSError:  # Linux: no one has the other end any more
        return b""
