"""A large batch is written a portion at a time, and nothing of it is lost, however it is divided."""

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, Row, SparkSession
from test_writer import ENDS, Job, out_of_reach, results, set_offset

from streaming.model.errors import MisuseError, OffsetlakeError
from streaming.model.schemas import CHANGES_IN_BATCH, QUARANTINE_IN_BATCH
from streaming.model.totals import Totals, totals_to_json
from streaming.packing import codec
from streaming.spark import shard_results
from streaming.spark.processor import SHARD_RESULT
from streaming.spark.shard_results import ShardResults
from streaming.state.arrow_stream import narrow
from streaming.tables.files import NewFiles
from streaming.tables.tables import Tables


def with_metadata(group: str, size: int) -> dict[str, object]:
    row = set_offset(group, 1)
    return row | {"after": row["after"] | {"metadata": "m" * size}}


def results_of(parts: list[list[dict[str, object]]]) -> ShardResults:
    tables = [pa.Table.from_pylist(rows, CHANGES_IN_BATCH) for rows in parts]
    return ShardResults(
        parts=[lambda table=table: table for table in tables],  # type: ignore[misc]
        newest_removal=None,
        quarantine=QUARANTINE_IN_BATCH.empty_table(),
        totals=Totals(decoded=sum(map(len, tables))),
    )


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_portions_full_of_bytes_are_all_written(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_results, "PIECE_BYTES", 1_000)
    parts = [[with_metadata(f"g{part}-{row}", 600) for row in range(2)] for part in range(5)]
    report = job.start().apply(results_of(parts), 0)
    assert report.changed_offsets == 10
    assert job.offsets() == {f"g{part}-{row}": 1 for part in range(5) for row in range(2)}


@pytest.mark.spark
@pytest.mark.parametrize("full_of", [1, 1_000], ids=["its first portion is written", "it is committed"])
def test_a_batch_that_the_storage_refuses_leaves_no_files_of_workers(
    job: Job, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full_of: int
) -> None:
    """Where it is refused when nothing, or all, has been read; run again it is written as a whole."""
    monkeypatch.setattr(shard_results, "PORTION_ROWS", full_of)
    left = tmp_path / "left by workers"
    left.mkdir()
    with out_of_reach(job), pytest.raises(OffsetlakeError):
        job.start().write(left_in_files(spark, left), 0)
    assert not [*left.iterdir()]
    for _ in range(2):  # the second time it is in the tables, and is only compared
        job.start().write(left_in_files(spark, left), 0)
        assert job.offsets() == {f"g{part}": 1 for part in range(4)}
        assert not [*left.iterdir()]
    job.start().apply(results(set_offset("later", 1)), 1)
    job.positions = {0: 99}
    with pytest.raises(MisuseError, match="expected offsets partition 0 to end at 10"):
        job.start().write(left_in_files(spark, left), 1)
    assert not [*left.iterdir()]


def left_in_files(spark: SparkSession, folder: Path) -> DataFrame:
    """Return what the query gives of a batch whose changes workers have left in four files."""
    nothing = codec.to_bytes(narrow(QUARANTINE_IN_BATCH.empty_table()))
    rows = []
    for part in range(4):
        path = folder / f"{part}.changes"
        changes = pa.Table.from_pylist([set_offset(f"g{part}", 1)], CHANGES_IN_BATCH)
        codec.to_file(narrow(changes), str(path))
        totals = totals_to_json(Totals(decoded=1))
        rows.append(Row(changes=b"", quarantine=nothing, totals=totals, file=str(path), newest_removal=None))
    return spark.createDataFrame(rows, SHARD_RESULT)


class FullDisk(Tables):
    """A table root on which so many files of changes can be written, and then none."""

    def __init__(self, root: str, room: int) -> None:
        super().__init__(root)
        self._room = room

    def write_changes(self, rows: pa.Table, new: NewFiles) -> None:
        if not self._room:
            raise OffsetlakeError("no space left")
        self._room -= 1
        super().write_changes(rows, new)


@pytest.mark.parametrize("room", range(5))
def test_a_batch_that_fails_between_portions_shows_nothing_and_is_written_again_as_a_whole(
    job: Job, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    monkeypatch.setattr(shard_results, "PORTION_ROWS", 2)
    parts = [[set_offset(f"g{part}-{row}", 1) for row in range(2)] for part in range(5)]
    writer = job.start()
    writer._tables = FullDisk(job.tables.root, room)
    with pytest.raises(OffsetlakeError, match="no space left"):
        writer.apply(results_of(parts), 0)
    assert job.offsets() == {}
    assert writer.fold() == 0
    writer.heartbeat(ENDS)  # after a failure nothing more is written
    assert job.tables.progress().sequence == 0
    job.start().apply(results_of(parts), 0)
    assert job.offsets() == {row["group"]: 1 for some in parts for row in some}
    assert len(job.tables.read_changes()) == 10


sizes = st.lists(st.lists(st.sampled_from([0, 10, 500, 3_000]), max_size=6), max_size=6)
"""How long the metadata of each change is, by parts of the batch."""


@settings(max_examples=settings.default.max_examples // 2)
@given(sizes, st.integers(1, 8), st.sampled_from([200, 2_000, 20_000]))
def test_nothing_is_lost_however_a_batch_is_divided(parts: list[list[int]], rows: int, size: int) -> None:
    with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        job = Job(Path(root))
        patch.setattr(shard_results, "PORTION_ROWS", rows)
        patch.setattr(shard_results, "PIECE_BYTES", size)
        changes = [
            [with_metadata(f"g{part}-{number}", length) for number, length in enumerate(lengths)]
            for part, lengths in enumerate(parts)
        ]
        groups = [row["group"] for some in changes for row in some]
        report = job.start().apply(results_of(changes), 0)
        assert (report.changed_offsets, report.changed_groups) == (len(groups), 0)
        assert job.offsets() == dict.fromkeys(groups, 1)
        job.start().apply(results_of(changes), 0)  # read again after a crash: the same, so nothing is written
        assert job.offsets() == dict.fromkeys(groups, 1)
