"""The `offsetlake` command as a process in the background, with what it has printed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

COMMAND = [sys.executable, "-m", "streaming.cli"]


@contextmanager
def started(
    command: Sequence[str], *, output: Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A program in the background, its output in a file; it does not outlive the test."""
    with output.open("w") as out:
        process = subprocess.Popen(
            command, cwd=cwd, env=env, stdout=out, stderr=out, text=True, start_new_session=True
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def running(*arguments: str, cwd: Path) -> AbstractContextManager[subprocess.Popen[str]]:
    """The command in the background, its output in `out.txt`; it does not outlive the test."""
    return started([*COMMAND, *arguments], output=cwd / "out.txt", cwd=cwd)


def output(cwd: Path) -> str:
    """What the command has printed so far."""
    return (cwd / "out.txt").read_text()
