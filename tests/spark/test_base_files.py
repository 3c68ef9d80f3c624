"""Bases in files: what a worker finds there is the base of the state that it asks for, whoever wrote it."""

import errno
import resource
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from streaming.common.arrays import no_rows
from streaming.model.schemas import ENTRIES
from streaming.spark.base_files import BaseFiles
from streaming.state.layers import LayerChange, Layers
from streaming.state.ordered import Ranges, is_ordered
from streaming.state.stored import Base, Values

SHARD = ("entries", 7)
SCHEMA = pa.schema([("key", pa.int64()), ("name", pa.string()), ("never", pa.int32())])


def rows(keys: range, name: str = "one") -> pa.Table:
    return pa.table([[*keys], [f"{name}\0{key % 3}" for key in keys], [None] * len(keys)], schema=SCHEMA)


def after(values: Values, added: pa.Table) -> Values:
    layers = values.layers()
    return values.updated(layers.after([LayerChange(np.empty(0, np.int64), added)]))


FIRST = Values.of(Layers.of(rows(range(10_000))))
SECOND = after(FIRST, rows(range(10_000, 10_010)))
REWRITTEN = after(SECOND, rows(range(20_000, 60_000), "other"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    assert SECOND.bases == FIRST.bases != REWRITTEN.bases
    return tmp_path / "bases"


def found_in(files: BaseFiles, values: Values, shard: tuple[str, int] = SHARD) -> pa.Table | None:
    [base] = values.bases
    found = files.find(shard, base.digest)
    return None if found is None else replace(values, bases=(found,)).layers().table


def kept_in(files: BaseFiles, values: Values, shard: tuple[str, int] = SHARD) -> Values:
    [base] = values.bases
    return replace(values, bases=(files.keep(shard, base),))


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_every_worker_finds_a_base_that_one_has_kept(folder: Path) -> None:
    kept = kept_in(BaseFiles(folder), FIRST)
    assert kept.layers().table == FIRST.layers().table
    [base], [first] = kept.bases, FIRST.bases
    assert (base.size, base.digest) == (first.size, first.digest)
    assert base.data is None
    for files in (BaseFiles(folder), BaseFiles(folder)):
        assert found_in(files, SECOND) == SECOND.layers().table
        found = files.find(SHARD, first.digest)
        assert found is not None
        assert found.table.schema == first.table.schema, "columns stay encoded"


def test_its_memory_is_that_of_the_file(folder: Path) -> None:
    """So it is shared between workers, and is no heap of any of them."""
    kept_in(BaseFiles(folder), FIRST)
    before = pa.total_allocated_bytes()
    files = BaseFiles(folder)
    found = files.find(SHARD, FIRST.bases[0].digest)
    assert found is not None
    assert pa.total_allocated_bytes() - before < found.table.nbytes / 10
    mapped = [line for line in Path("/proc/self/maps").read_text().splitlines() if str(folder) in line]
    assert len(mapped) > 0


def test_a_base_is_found_for_no_other_state_than_its_own(folder: Path) -> None:
    """A batch that wrote a new base was taken back; what was kept before it is not taken for the new one."""
    files = BaseFiles(folder)
    kept_in(files, FIRST)
    assert found_in(files, REWRITTEN) is None
    assert found_in(files, FIRST, ("entries", 77)) is None
    assert found_in(files, FIRST, ("group_records", 7)) is None
    kept_in(files, REWRITTEN)
    assert found_in(files, SECOND) is None
    assert found_in(files, REWRITTEN) == REWRITTEN.layers().table


def test_one_file_is_kept_of_each_table_of_a_shard(folder: Path) -> None:
    files = BaseFiles(folder)
    for values in (FIRST, REWRITTEN):
        for shard in (("entries", 77), ("group_records", 7), SHARD):
            kept_in(files, values, shard)
    assert len(files_in(folder)) == 3
    assert found_in(BaseFiles(folder), REWRITTEN, ("entries", 77)) == REWRITTEN.layers().table


def test_a_base_stays_readable_when_another_worker_has_replaced_it(folder: Path) -> None:
    one, other = BaseFiles(folder), BaseFiles(folder)
    held = kept_in(one, FIRST)
    kept_in(other, REWRITTEN)
    assert len(files_in(folder)) == 1
    assert held.layers().table == FIRST.layers().table
    assert found_in(one, SECOND) == SECOND.layers().table, "it is still mapped"
    assert found_in(one, REWRITTEN) == REWRITTEN.layers().table


@pytest.mark.parametrize("size", [0, 7, 1_000, -1])
def test_a_file_that_was_damaged_is_not_found_and_is_written_again(folder: Path, size: int) -> None:
    kept_in(BaseFiles(folder), FIRST)
    [file] = folder.iterdir()
    file.write_bytes(file.read_bytes()[:size])
    files = BaseFiles(folder)
    assert found_in(files, SECOND) is None
    assert kept_in(files, FIRST).layers().table == FIRST.layers().table
    assert found_in(BaseFiles(folder), SECOND) == SECOND.layers().table


def test_a_file_of_something_else_is_not_found(folder: Path) -> None:
    kept_in(BaseFiles(folder), FIRST)
    [file] = folder.iterdir()
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
        writer.write_table(rows(range(3)))
    assert found_in(BaseFiles(folder), SECOND) is None


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_without_room_it_is_read_from_the_state_the_next_time(
    folder: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = BaseFiles(folder)
    kept_in(files, FIRST)

    def refuse(self: Path, target: object) -> None:
        raise OSError(number, "refused")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", refuse)
        kept = kept_in(files, REWRITTEN)
    assert kept.layers().table == REWRITTEN.layers().table
    assert found_in(files, REWRITTEN) is None
    assert len(files_in(folder)) == 1, "nothing of the attempt is left, and the former one may still be used"
    assert found_in(files, SECOND) == SECOND.layers().table


def test_a_file_that_cannot_be_written_to_its_end_is_not_left_behind(folder: Path) -> None:
    large, limits = Values.of(Layers.of(rows(range(200_000)))), resource.getrlimit(resource.RLIMIT_FSIZE)
    files = BaseFiles(folder)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
    try:
        assert kept_in(files, large).layers().table == large.layers().table
        assert found_in(files, large) is None
        assert files_in(folder) == []
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    kept_in(files, large)
    assert found_in(BaseFiles(folder), large) == large.layers().table


def test_without_a_folder_nothing_is_kept() -> None:
    files = BaseFiles(None)
    assert kept_in(files, FIRST).layers().table == FIRST.layers().table
    assert found_in(files, FIRST) is None


def test_a_second_base_keeps_the_numbers_of_the_rows_that_it_replaces(folder: Path) -> None:
    replaced = np.array([3, 9_999, 2**31 - 1])
    base = Base.written(rows(range(10)), replaced)
    for found in (BaseFiles(folder).keep(SHARD, base), BaseFiles(folder).find(SHARD, base.digest)):
        assert found is not None
        assert found.replaced.tolist() == replaced.tolist()


def test_rows_are_found_in_the_file_of_a_base_that_no_one_array_can_hold(folder: Path) -> None:
    """More than 2 GiB of metadata are in two chunks, and so in two record batches of the file."""
    groups = [f"g{number:03}" for number in range(100) for _ in range(4)]
    table = pa.table(
        {
            "group": pa.array(groups).dictionary_encode(),
            "source_partition": pa.array([7] * 400, pa.int32()),
            "topic": pa.array(["t"] * 400).dictionary_encode(),
            "partition": pa.array([0, 1, 2, 3] * 100, pa.int32()),
            "metadata": pa.chunked_array([["a"] * 250, ["b"] * 150]),
        }
    )
    base = BaseFiles(folder).keep(SHARD, Base.written(table, np.zeros(0, np.int64))).table
    assert is_ordered(base)
    assert base["group"].num_chunks == 2
    ranges = Ranges.of(base, pa.chunked_array([["g000", "g063", "g099", "no"]]), np.array([7] * 4))
    assert (ranges.stop - ranges.start).tolist() == [4, 4, 4, 0]
    found = ranges.places(np.arange(3), pa.chunked_array([["t"] * 3]), np.array([3, 0, 3]))
    assert found.tolist() == [3, 252, 399]


def test_an_empty_table_is_kept_like_others(folder: Path) -> None:
    empty = Values.of(Layers.of(no_rows(ENTRIES)))
    assert kept_in(BaseFiles(folder), empty).layers().table == no_rows(ENTRIES)
    assert found_in(BaseFiles(folder), empty) == no_rows(ENTRIES)


def test_workers_use_the_folder_of_the_job_or_the_first_one_of_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_OFFSETLAKE_BASES", raising=False)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/elsewhere")
    kept_in(BaseFiles.of_worker(), FIRST)
    assert len(files_in(tmp_path / "offsetlake-bases")) == 1
    monkeypatch.setenv("SPARK_OFFSETLAKE_BASES", str(tmp_path / "of-the-job"))
    assert found_in(BaseFiles.of_worker(), FIRST) is None
    kept_in(BaseFiles.of_worker(), FIRST)
    assert len(files_in(tmp_path / "of-the-job")) == 1
    for name in ("SPARK_OFFSETLAKE_BASES", "SPARK_LOCAL_DIRS"):
        monkeypatch.delenv(name)
    assert found_in(BaseFiles.of_worker(), FIRST) is None
