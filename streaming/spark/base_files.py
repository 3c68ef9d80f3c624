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

from streaming.state.stored import Base, Values, digest_of

FOLDER_VARIABLE: Final = "SPARK_OFFSETLAKE_BASES"
"""The environment variable of a local job with a folder that lasts until the next start of the system, so
that a job that is started again need not move the bases from the state store to Python."""

_LOCAL_DIRS: Final = "SPARK_LOCAL_DIRS"
"""The environment variable of workers with the executor's folders for temporary files."""

_FOLDER: Final = "offsetlake-bases"
_SIZE: Final = b"offsetlake.size"  # of the Arrow stream in the state

Shard = tuple[str, int]
"""The name of a table of the state, and the number of the shard."""


class BaseFiles:
    """The newest base of each table of a shard, in one folder (None: there is none, and nothing is kept)."""

    def __init__(self, folder: Path | None) -> None:
        self._folder: Final = folder
        self._mapped: dict[Shard, tuple[bytes, Base]] = {}  # by this process, with the digest

    @classmethod
    def of_worker(cls) -> "BaseFiles":
        """Return the files in the folder of the job, or in the first one that Spark gives to this worker."""
        if own := os.environ.get(FOLDER_VARIABLE):
            return cls(Path(own))
        local = os.environ.get(_LOCAL_DIRS, "").split(",")[0]
        return cls(Path(local, _FOLDER) if local else None)

    def find(self, shard: Shard, recent: bytes) -> Values | None:
        """Return the values of a shard with these recent rows, if there is a file of their base."""
        digest = digest_of(recent)
        held, base = self._mapped.get(shard, (None, None))
        if base is None or held != digest:
            base = self._map(shard, digest)
        return None if base is None else Values(base, recent)

    def keep(self, shard: Shard, values: Values) -> Values:
        """Write the base of a shard to a file, in place of its former one; return the values, with the base
        in the file unless that failed: then it is read from the state the next time."""
        if self._folder is None:
            return values.stored()
        path = self._path(shard, values.digest)
        self._mapped.pop(shard, None)
        with suppress(OSError):
            self._folder.mkdir(exist_ok=True)
            _write(path, values.base)
            for former in self._folder.glob(f"{_prefix(shard)}*"):
                if former != path:
                    former.unlink(missing_ok=True)
        base = self._map(shard, values.digest)
        return values.stored() if base is None else Values(base, values.recent)

    def _map(self, shard: Shard, digest: bytes) -> Base | None:
        if self._folder is None:
            return None
        unreadable = OSError, pa.ArrowInvalid, KeyError  # whatever has happened to the file
        with suppress(*unreadable), pa.memory_map(str(self._path(shard, digest))) as file:
            table = pa.ipc.open_file(file).read_all()
            size = int((table.schema.metadata or {})[_SIZE])
            base = Base(table.replace_schema_metadata(None), size)
            self._mapped[shard] = digest, base
            return base
        return None

    def _path(self, shard: Shard, digest: bytes) -> Path:
        assert self._folder is not None
        return self._folder / f"{_prefix(shard)}{digest.hex()}"


def remove_partial_files(folder: Path) -> None:
    """Remove files whose writers were killed; nothing may write to the folder."""
    for partial in folder.glob("*.*"):
        partial.unlink()


def _prefix(shard: Shard) -> str:
    name, number = shard
    return f"{name}-{number}-"


def _write(path: Path, base: Base) -> None:
    """Write a base to a file, all of it or nothing; raises `OSError`."""
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        schema = base.table.schema.with_metadata({_SIZE: str(base.size)})
        with pa.OSFile(str(partial), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            writer.write_table(base.table)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
