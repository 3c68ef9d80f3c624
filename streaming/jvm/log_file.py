"""Spark's log: the output of the JVM and its Python workers, rolled when it is long."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

LOG_BYTES: Final = 10_000_000
"""The size at which it is rolled."""

_KEPT: Final = 3


@contextmanager
def output_to(log_file: Path) -> Iterator[None]:
    """Redirect the output of processes that are started meanwhile (the JVM and its Python workers) to a file.

    They inherit standard output and error; otherwise their output would mix with the command's own lines.
    """
    log_file.parent.mkdir(parents=True, exist_ok=True)
    roll_log(log_file)
    ours = [os.dup(stream) for stream in (1, 2)]
    with log_file.open("ab") as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
        try:
            yield
        finally:
            for stream, saved in zip((1, 2), ours, strict=True):
                os.dup2(saved, stream)
                os.close(saved)


def roll_log(log_file: Path, *, most_bytes: int = LOG_BYTES) -> None:
    """If a log is long, keep it under another name, with a few older ones, and empty it.

    It is copied and truncated: the JVM and its Python workers have it open, and append wherever its end is.
    If it cannot be copied, it stays.
    """
    try:
        if not log_file.is_file() or log_file.stat().st_size <= most_bytes:
            return
        for number in range(_KEPT, 1, -1):
            with suppress(FileNotFoundError):
                _kept_log(log_file, number - 1).replace(_kept_log(log_file, number))
        shutil.copy(log_file, _kept_log(log_file, 1))
        os.truncate(log_file, 0)
    except OSError:  # the disk is full, for instance: the next start tries again
        return


def _kept_log(log_file: Path, number: int) -> Path:
    return log_file.with_name(f"{log_file.name}.{number}")
