"""One job at a time on a local folder: a lock that the kernel takes back however the job ends, kill -9
included.

It covers processes of one machine. Where it cannot, on URLs and on file systems without locks, a second job
is noticed when it commits (`streaming.job.writer`).
"""

import errno
import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from streaming.model.errors import MisuseError, OffsetlakeError
from streaming.settings.model import Settings

LOCK_FILE: Final = ".offsetlake.lock"
"""The file that is locked in each folder; who holds it is written there, and stays there afterwards."""

_NO_LOCKS_THERE: Final = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)


@contextmanager
def sole_job(settings: Settings) -> Iterator[None]:
    """Be the only job on the checkpoint and on the table root until the end of the block.

    Raises `MisuseError` if there is one already, `OffsetlakeError` if a folder cannot be written to.
    """
    with ExitStack() as locks:
        for folder in _local_folders((settings.job.checkpoint, settings.tables.root)):
            locks.enter_context(_locked(folder))
        yield


def _local_folders(locations: Iterable[str]) -> list[Path]:
    """Return the folders among locations that may be URLs, each once, in an order of its own."""
    paths = [Path(location.removeprefix("file://")) for location in locations if _is_local(location)]
    return sorted({path.resolve() for path in paths})


def _is_local(location: str) -> bool:
    return "://" not in location or location.startswith("file://")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    file = folder / LOCK_FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise OffsetlakeError(
            f"starting the job: expected a writable folder at {folder}, "
            f"found {'a file' if folder.is_file() else f'none: {error}'}. "
            "Check --checkpoint and --table-root, and the owner of that folder."
        ) from error
    try:
        _take(descriptor, folder, file)
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int, folder: Path, file: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise MisuseError(
            f"starting the job: {file.read_text().strip() or 'another process'} is already using {folder}. "
            "Stop it first, or give this job its own checkpoint and table root (--checkpoint, --table-root)."
        ) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS_THERE:
            raise
    else:
        with suppress(OSError):  # only so that others can say who it is; a full disk has no room for it
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"process {os.getpid()}\n".encode())
