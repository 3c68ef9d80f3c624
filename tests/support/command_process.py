"""The `offsetlake` command as a process in the background, with what it has printed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

COMMAND = [sys.executable, "-m", "streaming.cli"]


@contextmanager
def running(*arguments: str, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """The command in the background, its output in `out.txt`; it does not outlive the test."""
    with (cwd / "out.txt").open("w") as out:
        process = subprocess.Popen(
            [*COMMAND, *arguments], cwd=cwd, stdout=out, stderr=out, text=True, start_new_session=True
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def output(cwd: Path) -> str:
    """What the command has printed so far."""
    return (cwd / "out.txt").read_text()
