"""What storage does to commits and files: other commits come first, answers are lost, there is no room."""

import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

_COMMIT = "create_write_transaction"


@contextmanager
def before_commit_to(name: str, act: Callable[[], object]) -> Iterator[None]:
    """Let something happen just before the next commit to a table, once."""
    commit = getattr(DeltaTable, _COMMIT)
    with pytest.MonkeyPatch.context() as patch:

        def late(table: DeltaTable, *arguments: Any, **named: Any) -> None:
            if table.metadata().name == name:
                patch.undo()
                act()
            commit(table, *arguments, **named)

        patch.setattr(DeltaTable, _COMMIT, late)
        yield
        assert getattr(DeltaTable, _COMMIT) is commit, f"nothing was committed to {name}"


@contextmanager
def answer_lost_of(name: str, error: Exception) -> Iterator[None]:
    """Let the next commit to a table arrive, and its answer be an error."""
    commit = getattr(DeltaTable, _COMMIT)
    with pytest.MonkeyPatch.context() as patch:

        def lost(table: DeltaTable, *arguments: Any, **named: Any) -> None:
            commit(table, *arguments, **named)
            if table.metadata().name == name:
                patch.undo()
                raise error

        patch.setattr(DeltaTable, _COMMIT, lost)
        yield
        assert getattr(DeltaTable, _COMMIT) is commit, f"nothing was committed to {name}"


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """Let this process write no more than so many bytes to a file: of what is larger the rest is refused."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """Mount a file system of so many bytes at a folder; skips the test where that is not allowed."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system can be mounted here: {getattr(error, 'stderr', error)}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Fill the file system of a folder to its last byte; return the file that does so."""
    path = folder / "filling"
    file = os.open(path, os.O_CREAT | os.O_WRONLY)
    try:
        for size in (65_536, 1):
            try:
                while os.write(file, bytes(size)):
                    pass
            except OSError:
                continue
    finally:
        os.close(file)
    return path


def parquet_files(root: Path | str) -> set[Path]:
    """Return the files of rows that are below a folder, whether a table refers to them or not."""
    return {path for path in Path(root).rglob("*.parquet") if path.parent.name != "_delta_log"}
