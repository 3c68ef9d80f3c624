"""Storage that refuses is not made fuller by those who try again: what was written for a commit that never
came is deleted, and what may have been committed stays."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from batch_results import Parts, files_of_rows, write_batch
from storage_faults import (
    answer_lost_of,
    fill,
    no_file_larger_than,
    parquet_files,
    small_disk,
)
from test_writer import Job, results, set_offset

from streaming.model.errors import OffsetlakeError
from streaming.tables import folding
from streaming.tables.fences import OtherWriterError

LARGE = 200_000


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path / "tables")


@pytest.fixture
def portions(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each part of a batch is a file of a task, and each bucket of a fold is done by itself."""
    monkeypatch.setattr(folding, "_PORTION_BYTES", 1)
    with files_of_rows(2):
        yield


def parts_of_a_batch(*, last: int) -> Parts:
    """Parts of a batch, the last with metadata of so many bytes that do not compress."""
    sizes = [10] * 4 + [last]
    noise = random.Random(1)
    parts = []
    for part, size in enumerate(sizes):
        rows = [set_offset(f"g{part}-{row}", 1) for row in range(2)]
        rows[0]["after"] |= {"metadata": noise.randbytes(size).hex()}
        parts.append(rows)
    return parts


@pytest.mark.usefixtures("portions")
def test_a_batch_that_is_refused_leaves_no_files(job: Job) -> None:
    before = parquet_files(job.root)
    for _ in range(2):
        with no_file_larger_than(LARGE), pytest.raises(OffsetlakeError, match="Check free space"):
            write_batch(job.start(), parts_of_a_batch(last=LARGE), 0)
        assert parquet_files(job.root) == before
    write_batch(job.start(), parts_of_a_batch(last=LARGE), 0)
    assert len(job.offsets()) == 10


@pytest.mark.usefixtures("portions")
def test_a_fold_that_is_refused_leaves_no_files(job: Job) -> None:
    write_batch(job.start(), parts_of_a_batch(last=LARGE), 0)
    before = parquet_files(job.root)
    for _ in range(2):
        with no_file_larger_than(LARGE), pytest.raises(OffsetlakeError, match="Check free space"):
            job.tables.fold()
        assert parquet_files(job.root) == before
    job.tables.fold()
    assert (job.tables.unfolded_rows(), len(job.offsets())) == (0, 10)


@pytest.mark.usefixtures("portions")
def test_a_batch_of_a_second_writer_leaves_no_files(job: Job) -> None:
    ours, theirs = job.start(), job.start()
    theirs.apply(results(set_offset("g", 1)), 0)
    before = parquet_files(job.root)
    with pytest.raises(OtherWriterError):
        write_batch(ours, parts_of_a_batch(last=1), 1)
    assert parquet_files(job.root) == before


@pytest.mark.usefixtures("portions")
@pytest.mark.parametrize("name", ["changes", "offsets"])
def test_after_an_outcome_that_is_not_known_files_stay(job: Job, name: str) -> None:
    def write() -> None:
        writer = job.start()
        write_batch(writer, parts_of_a_batch(last=1), 0)
        writer.fold()

    with answer_lost_of(name, OSError("timed out")), pytest.raises(OffsetlakeError, match="timed out"):
        write()
    write()
    assert len(job.offsets()) == len(job.tables.delta("offsets").to_pyarrow_table()) == 10
    assert len(job.tables.read_changes()) == 10


@pytest.mark.usefixtures("portions")
@pytest.mark.parametrize("size", ["600k", "1500k"])
def test_on_a_disk_that_is_full_each_start_leaves_as_much_room_as_it_found(tmp_path: Path, size: str) -> None:
    with small_disk(tmp_path / "disk", size):
        job = Job(tmp_path / "disk" / "tables")
        job.start().apply(results(set_offset("g", 1)), 0)
        rest = fill(tmp_path / "disk")
        os.truncate(rest, rest.stat().st_size - 200_000)  # room for some of the portions
        free = room(tmp_path)
        for _ in range(3):
            with pytest.raises(OffsetlakeError, match="No space left"):
                write_batch(job.start(), parts_of_a_batch(last=LARGE), 1)
            assert room(tmp_path) >= free
        rest.unlink()
        if size == "1500k":
            write_batch(job.start(), parts_of_a_batch(last=LARGE), 1)
            assert len(job.offsets()) == 11


def room(tmp_path: Path) -> int:
    found = os.statvfs(tmp_path / "disk")
    return found.f_bavail * found.f_bsize
