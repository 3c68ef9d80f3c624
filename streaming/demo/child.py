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

_STOP_LIMIT: Final = 20.0  # seconds; usually 0.3

_WATCHER: Final = """
read -r _                                # returns when the owner has gone: nothing is ever written
kill -TERM "$1" 2>/dev/null || exit 0
for _ in 1 2 3 4 5 6 7 8 9 10; do sleep 1; kill -0 "$1" 2>/dev/null || exit 0; done
kill -KILL "$1"
"""


class Child:
    """A command that runs from construction to `end`; its output is appended to a log."""

    def __init__(self, command: Sequence[str], *, log: Path, directory: Path) -> None:
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=directory,
                env=without_settings(os.environ),
                # Ctrl-C on a terminal reaches only this process, which decides when the child stops
                process_group=0,
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
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def end(self, how: signal.Signals) -> None:
        """End it with a signal, or kill it if it does not end in time; then end its watcher, so that it is
        always watched."""
        _end_process(self._process, how)
        _end_process(self._watcher, signal.SIGKILL)
        assert self._watcher.stdin is not None
        self._watcher.stdin.close()


def _end_process(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    process.send_signal(how)  # no effect if the process has ended
    try:
        process.wait(timeout=_STOP_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
