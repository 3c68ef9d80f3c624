"""One job at a time on a local folder, by a lock that the kernel releases however the job ends, including
kill -9. Also the job's private folder for temporary files.

The lock covers processes of one machine. For places without locks see `streaming.job.sole_writer`.
"""

import errno
import fcntl
import os
import re
import shlex
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, MutableMapping
from contextlib import ExitStack, contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final
from uuid import uuid4

from streaming.jvm.ownership import refuse_replaceable
from streaming.model.errors import MisuseError, OffsetlakeError
from streaming.settings.model import Settings
from streaming.spark.base_files import FOLDER_VARIABLE, remove_partial_files
from streaming.spark.checkpoint import checkpoint_uri

LOCK_FILE: Final = ".offsetlake.lock"
"""The locked file in each folder; it contains the holder, also after the lock is released."""

_LOCAL_DIRS: Final = "SPARK_LOCAL_DIRS"
"""The environment variable of Spark's local folders, which overrides `spark.local.dir`."""

_LONGEST_FOLDER_OF_SOCKETS: Final = 60
"""Bytes of the path: a socket address has 103 on every system, of which 43 are for `/.<UUID>.sock`."""

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

_SHORT: Final = Path("/tmp")
"""The folder of Spark's Unix sockets if the usual path is too long."""

_ANOTHER_PLACE: Final = "Choose another place (TMPDIR, and spark.local.dir in [spark.conf])"
OWN_PLACES: Final = "give this job its own checkpoint and table root (--checkpoint, --table-root)"
_OWN_CHECKPOINT: Final = (
    "give this job its own checkpoint (--checkpoint): jobs on this machine with the same one would have the "
    "same folder for temporary files"
)
"""Alternatives to stopping the holder of a lock."""

_NO_LOCKS_THERE: Final = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)


@contextmanager
def sole_job(settings: Settings) -> Iterator[bool]:
    """Be the only job on the checkpoint and on the table root until the end of the block; yields whether the
    table root is locked: URLs have no locks, nor have some mounts of NFS.

    Raises `MisuseError` if there is another job, `OffsetlakeError` if a folder is not writable.
    """
    with ExitStack() as locks:
        folders = _local_folders((settings.job.checkpoint, settings.tables.root))
        locked = [folder for folder in folders if locks.enter_context(_locked(folder))]
        yield any(folder in locked for folder in _local_folders([settings.tables.root]))


@contextmanager
def temporary_folders(settings: Settings, environment: MutableMapping[str, str]) -> Iterator[list[str]]:
    """Put all temporary files of a local job into folders of its own, one for each checkpoint.

    Yields JVM options for them; until the end of the block the environment, which the JVM inherits, has the
    same folders. Remains of an earlier job are deleted: a killed JVM deletes nothing. Only the bases of the
    state stay, if the system was not started since: a file may have lost its end then. The folders are
    private to the user, and locked until the end of the block. Raises as `sole_job` does.
    """
    if not settings.spark.is_local:  # elsewhere cluster managers do this
        yield []
        return
    chosen = environment.get(_LOCAL_DIRS) or settings.spark.conf.get("spark.local.dir", "")
    name = _name_of_folder(settings.job.checkpoint)
    ours = Path(tempfile.gettempdir(), name)
    local = [Path(folder.strip(), name) for folder in chosen.split(",") if folder.strip()] or [ours]
    if unfit := [mark for mark in ',"' if mark in str(ours)]:
        raise MisuseError(
            f"starting the job: expected a folder for temporary files (TMPDIR) that Spark and Java can be "
            f"told of, found {unfit[0]} in {ours}. Choose another TMPDIR."
        )
    sockets = ours if len(os.fsencode(ours)) <= _LONGEST_FOLDER_OF_SOCKETS else _SHORT / name
    with ExitStack() as stack:
        bases = local[0] / f"bases-{_started_system()}"
        for folder in dict.fromkeys([ours, sockets, *local]):
            stack.enter_context(_private(folder))
            _empty(folder, but=bases)
        remove_partial_files(bases)
        for name, value in ((_LOCAL_DIRS, ",".join(map(str, local))), (FOLDER_VARIABLE, str(bases))):
            stack.callback(_restore, environment, name, environment.get(name))
            environment[name] = value
        stack.callback(setattr, tempfile, "tempdir", tempfile.tempdir)
        tempfile.tempdir = str(ours)  # PySpark has a folder there while it starts the JVM
        yield [f'"-Djava.io.tmpdir={ours}"', f'"-Dspark.python.unix.domain.socket.dir={sockets}"']


def _restore(environment: MutableMapping[str, str], name: str, value: str | None) -> None:
    if value is None:
        del environment[name]
    else:
        environment[name] = value


def _started_system() -> str:
    """Return the id of the last start of the system; without one, an id that is never repeated."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return str(uuid4())


def _name_of_folder(checkpoint: str) -> str:
    digest = blake2b(checkpoint_uri(checkpoint).encode(errors="surrogateescape"), digest_size=8).hexdigest()
    return f"offsetlake-{os.geteuid()}-{digest}"


@contextmanager
def _private(folder: Path) -> Iterator[None]:
    """Create and lock a folder that only this user can access or replace.

    Others may know its name in advance: no link or folder of theirs is used.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        for path in {folder.absolute(), folder.resolve()}:
            refuse_replaceable(path, "starting the job: temporary files", instead=_ANOTHER_PLACE)
        with suppress(FileExistsError):
            folder.mkdir(0o700)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise _not_private(folder, str(error)) from error
    try:
        if (owner := os.fstat(descriptor).st_uid) != os.geteuid():
            raise _not_private(folder, f"one of user {owner}")
        os.fchmod(descriptor, 0o700)
        _take(descriptor, folder, folder, _OWN_CHECKPOINT)
        yield
    finally:
        os.close(descriptor)


def _not_private(folder: Path, found: str) -> OffsetlakeError:
    return OffsetlakeError(
        f"starting the job: expected a folder of user {os.geteuid()} for temporary files at {folder}, found "
        f"{found}. {_ANOTHER_PLACE}, or remove that."
    )


def _empty(folder: Path, *, but: Path) -> None:
    """Delete the content of a folder but one entry; undeletable files are left to the next start."""
    for entry in [*folder.iterdir()]:
        if entry == but:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            with suppress(OSError):
                entry.unlink()


def _local_folders(locations: Iterable[str]) -> list[Path]:
    """Return the distinct local folders among paths and URLs, sorted."""
    paths = [Path(location.removeprefix("file://")) for location in locations if is_local(location)]
    return sorted({path.resolve() for path in paths})


def is_local(location: str) -> bool:
    return "://" not in location or location.startswith("file://")


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Lock a folder until the end of the block; yields whether its file system has locks."""
    file = folder / LOCK_FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        if folder.is_dir() and os.path.lexists(file):
            raise _not_a_file(file, str(error)) from error
        raise OffsetlakeError(
            f"starting the job: expected a writable folder at {folder}, "
            f"found {'a file' if folder.is_file() else f'none: {error}'}. "
            "Check --checkpoint and --table-root, and the owner of that folder."
        ) from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _not_a_file(file, "something else, such as a pipe")
        yield _take(descriptor, file, folder, OWN_PLACES)
    finally:
        os.close(descriptor)


def _not_a_file(file: Path, found: str) -> OffsetlakeError:
    return OffsetlakeError(
        f"starting the job: expected a file of the job at {file}, found {found}. Remove it, unless a job of "
        "another user runs there."
    )


def _take(descriptor: int, locked: Path, folder: Path, instead: str) -> bool:
    """Lock a file and write the holder into it, or lock a folder; return whether the file system has locks.
    Errors name the `folder`, and the alternative `instead` to stopping the holder.

    A process that can open a file, even for reading, can lock it: so the file is made private. A file that
    belongs to others, or has a second name, is not written to.
    """
    found = os.fstat(descriptor)
    is_ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and found.st_nlink == 1
    if is_ours:
        with suppress(OSError):  # some file systems have no modes
            os.fchmod(descriptor, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise MisuseError(
            f"starting the job: {_holder(descriptor, locked)} is already using {folder}. "
            f"Stop it first, or {instead}."
        ) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS_THERE:
            raise
        return False
    if is_ours:
        with suppress(OSError):  # only informative, for others; a full disk has no room for it
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"process {os.getpid()}\n".encode())
    return True


def _holder(descriptor: int, locked: Path) -> str:
    """Return the holder of a lock from the file; a folder does not contain it."""
    with suppress(OSError):  # a folder
        if written := re.fullmatch(rb"process [0-9]+\n", os.pread(descriptor, 64, 0)):
            return written[0].decode().strip()
    return f"another process (`fuser -v {shlex.quote(str(locked))}` shows which)"
