"""Bases of the state (`streaming.state.stored`) in files, which all workers of an executor map into memory.

Spark gives a shard to any of its workers, and moving a base of millions of offsets from the state store to
Python takes seconds, much longer than all the rest of a small batch. So a base that was read or written is
also an Arrow file in Spark's folder for temporary files. The workers share its memory, which the system can
take back.

A base is found by the digest of its bytes, which the recent rows of the state have. So it does not matter
which worker wrote the file, nor which batches were meanwhile repeated, rolled back or run elsewhere: either
it is the base that the state refers to, or it is not found and is read from the state.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow as pa

from streaming.state.stored import Base, numbers_from_bytes, numbers_to_bytes

FOLDER_VARIABLE: Final = "SPARK_OFFSETLAKE_BASES"
"""The environment variable of a local job with a folder that lasts until the next start of the system, so
that a job that is started again need not move the bases from the state store to Python."""

_LOCAL_DIRS: Final = "SPARK_LOCAL_DIRS"
"""The environment variable of workers with the executor's folders for temporary files."""

_FOLDER: Final = "offsetlake-bases"
_SIZE: Final = b"offsetlake.size"  # of the Arrow stream in the state
_REPLACED: Final = b"offsetlake.replaced"  # numbers of rows of the first base


Place = tuple[str, int]
"""The name of a value of the state with a base, and the number of the shard."""


def temporary_folder() -> str | None:
    """Return the first folder for temporary files that Spark gives to this worker; None outside of Spark."""
    return os.environ.get(_LOCAL_DIRS, "").split(",")[0] or None


class BaseFiles:
    """The newest base in each place, in one folder (None: there is none, and nothing is kept)."""

    def __init__(self, folder: Path | None) -> None:
        self._folder: Final = folder
        self._mapped: dict[Place, Base] = {}  # by this process

    @classmethod
    def of_worker(cls) -> "BaseFiles":
        """Return the files in the folder of the job, or in the first one that Spark gives to this worker."""
        if own := os.environ.get(FOLDER_VARIABLE):
            return cls(Path(own))
        local = temporary_folder()
        return cls(Path(local, _FOLDER) if local else None)

    def find(self, place: Place, digest: bytes) -> Base | None:
        """Return the base with this digest, if there is a file of it."""
        base = self._mapped.get(place)
        return base if base is not None and base.digest == digest else self._map(place, digest)

    def keep(self, place: Place, base: Base) -> Base:
        """Write a base to a file, in place of the former one.

        Return the base, in the file unless that failed: then it is read from the state the next time.
        """
        if self._folder is None:
            return base.stored()
        path = self._path(place, base.digest)
        self._mapped.pop(place, None)
        with suppress(OSError):
            self._folder.mkdir(exist_ok=True)
            _write(path, base)
            for former in self._folder.glob(f"{_prefix(place)}*"):
                if former != path:
                    former.unlink(missing_ok=True)
        return self._map(place, base.digest) or base.stored()

    def _map(self, place: Place, digest: bytes) -> Base | None:
        if self._folder is None:
            return None
        unreadable = OSError, ValueError, KeyError  # whatever has happened to the file
        with suppress(*unreadable), pa.memory_map(str(self._path(place, digest))) as file:
            table = pa.ipc.open_file(file).read_all()
            metadata = table.schema.metadata or {}
            replaced = numbers_from_bytes(metadata[_REPLACED])
            base = Base(table.replace_schema_metadata(None), replaced, digest, int(metadata[_SIZE]))
            self._mapped[place] = base
            return base
        return None

    def _path(self, place: Place, digest: bytes) -> Path:
        assert self._folder is not None
        return self._folder / f"{_prefix(place)}{digest.hex()}"


def remove_partial_files(folder: Path) -> None:
    """Remove files whose writers were killed; nothing may write to the folder."""
    for partial in folder.glob("*.*"):
        partial.unlink()


def _prefix(place: Place) -> str:
    name, number = place
    return f"{name}-{number}-"


def _write(path: Path, base: Base) -> None:
    """Write a base to a file, all of it or nothing; raises `OSError`."""
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        metadata = {_SIZE: b"%d" % base.size, _REPLACED: numbers_to_bytes(base.replaced)}
        schema = base.table.schema.with_metadata(metadata)
        with pa.OSFile(str(partial), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            writer.write_table(base.table)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
