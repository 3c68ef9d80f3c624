"""A process that never outlives its owner: the broker and the listeners of the demo and of the tests.

A watcher process holds the reading end of a pipe whose writing end only this process has; however this
process ends (return, Ctrl-C, SIGTERM, kill -9), the pipe closes and the watcher stops the child. (Linux's
parent-death signal would follow the thread that started the child, not the process.)
"""

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from streaming.settings.environment import without_settings

_STOP_LIMIT: Final = 20.0  # seconds; 0.3 s are usual

_WATCHER: Final = """
read -r _                                # returns when the owner has gone: nothing is ever written
kill -TERM "$1" 2>/dev/null || exit 0
for _ in 1 2 3 4 5 6 7 8 9 10; do sleep 1; kill -0 "$1" 2>/dev/null || exit 0; done
kill -KILL "$1"
"""


class Child:
    """A command that runs from its making to `end`; both its outputs are appended to a log."""

    def __init__(self, command: Sequence[str], *, log: Path, directory: Path) -> None:
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=directory,
                env=without_settings(os.environ),
                process_group=0,  # Ctrl-C on a terminal reaches us, and we decide when the child stops
            )
        self._watcher = subprocess.Popen(
            ["/bin/sh", "-c", _WATCHER, "watcher", str(self._process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Tell whether its process exists."""
        return self._process.poll() is None

    def end(self, how: signal.Signals) -> None:
        """End it with a signal, killed if it does not obey in time; then its watcher, so that nothing is
        unwatched at any moment."""
        _end_process(self._process, how)
        _end_process(self._watcher, signal.SIGKILL)
        assert self._watcher.stdin is not None
        self._watcher.stdin.close()


def _end_process(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    process.send_signal(how)  # does nothing when the process has ended
    try:
        process.wait(timeout=_STOP_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
