"""Rows that tasks write to files of the table are in the batch, once, however it is divided; of a batch that
is not committed no file is left."""

import tempfile
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from batch_results import files_of_rows, results_of, write_batch
from hypothesis import given, settings
from hypothesis import strategies as st
from storage_faults import parquet_files
from test_writer import ENDS, RETENTION, Job, out_of_reach, removed_offset, set_group, set_offset

from streaming.job.topic.reasons import RebuildNeededError
from streaming.model.errors import MisuseError, OffsetlakeError
from streaming.spark import task_files
from streaming.tables import change_files

PARTS = [[set_offset(f"g{part}-{row}", 1) for row in range(2)] for part in range(5)]
OFFSETS = {row["group"]: 1 for some in PARTS for row in some}
VALUE = {"commit_timestamp": 1_000, "committed_offset": 1, "source_offset": 1}


def with_metadata(group: str, size: int) -> dict[str, Any]:
    row = set_offset(group, 1)
    return row | {"after": row["after"] | {"metadata": "m" * size}}


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_rows_in_files_and_rows_of_the_driver_are_one_batch(job: Job) -> None:
    with files_of_rows(4):
        report = write_batch(job.start(), PARTS, 0)
    assert (report.changed_offsets, report.changed_groups, report.moved) == (10, 0, 10)
    assert job.offsets() == OFFSETS
    rows = job.tables.read_changes()
    assert pc.unique(rows["sequence"]).to_pylist() == [1]
    assert len(pc.unique(rows["batch_time"])) == 1
    assert job.start().rows_since_fold == 10
    assert len(job.tables.delta("changes").file_uris()) == 3, "two of tasks, and one of the driver"


def test_a_batch_run_again_after_its_commit_is_compared_and_leaves_no_files(job: Job) -> None:
    with files_of_rows(2):
        write_batch(job.start(), PARTS, 0)
        before, version = parquet_files(job.root), job.versions()
        write_batch(job.start(), reversed(PARTS), 0)
        assert job.versions() == version
        with pytest.raises(RebuildNeededError, match="compacted meanwhile"):
            write_batch(job.start(), PARTS[1:], 0)
        job.positions = {0: 99}
        with pytest.raises(MisuseError, match="expected offsets partition 0 to end at 10"):
            write_batch(job.start(), PARTS, 0)
    assert parquet_files(job.root) == before
    assert job.offsets() == OFFSETS


def test_of_a_batch_that_is_refused_no_file_is_left(job: Job) -> None:
    job.reason = "away too long"
    with files_of_rows(2), pytest.raises(RebuildNeededError, match="away too long"):
        write_batch(job.start(), PARTS, 0)
    assert parquet_files(job.root) == set()


def test_a_batch_that_cannot_be_committed_shows_nothing_and_is_written_again_as_a_whole(job: Job) -> None:
    writer = job.start()
    with files_of_rows(2):
        batch = writer._begun()
        results = results_of(PARTS, batch)
        with out_of_reach(job), pytest.raises(OffsetlakeError):
            writer.apply(results, 0, batch)
        assert parquet_files(job.root) == set()
        writer.heartbeat(ENDS)  # after a failure nothing more is written
        assert job.tables.progress().sequence == 0
        write_batch(job.start(), PARTS, 0)
    assert job.offsets() == OFFSETS
    assert len(job.tables.read_changes()) == 10


def test_a_task_that_fails_deletes_its_files(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    write, left = change_files.write_change_file, [2]

    def fail(*arguments: Any) -> None:
        write(*arguments)
        left[0] -= 1
        if not left[0]:
            assert len(parquet_files(job.root)) == 2
            raise OffsetlakeError("no space left")

    monkeypatch.setattr(change_files, "write_change_file", fail)
    with files_of_rows(2), pytest.raises(OffsetlakeError, match="no space left"):
        write_batch(job.start(), PARTS, 0)
    assert parquet_files(job.root) == set()


def test_files_of_a_batch_whose_tasks_died_are_found_by_their_name(job: Job) -> None:
    writer = job.start()
    with files_of_rows(2):
        write_batch(writer, PARTS, 0)
        committed, batch = parquet_files(job.root), writer._begun()
        results_of(PARTS, batch)
        assert len(parquet_files(job.root)) > len(committed)
    job.tables.delete_files_of(batch)
    assert parquet_files(job.root) == committed
    job.tables.delete_files_of(batch)


def test_removals_whose_cause_can_be_found_go_to_the_driver_with_their_group(job: Job) -> None:
    writer = job.start()
    writer.heartbeat(ENDS, RETENTION)
    write_batch(writer, [[{**set_offset("g", 1), "after": VALUE}, set_group("g")], *PARTS], 0)
    gone = removed_offset("g", 2_000, VALUE, "tombstoned")
    unheld = removed_offset("h", 2_000, None, "tombstoned")
    batch = writer._begun()
    with files_of_rows(2):
        results = results_of([[gone, unheld, {**set_offset("g", 5), "partition": 1}], *PARTS[:2]], batch)
    assert results.changes["group"].to_pylist() == ["g", "g"]
    assert (results.written.rows, results.written.offsets, results.written.ends) == (5, 5, {0: 1})
    writer.apply(results, 1, batch)
    rows = job.tables.read_changes().filter(pc.field("op") == "remove").to_pylist()
    assert {row["group"]: row["cause"] for row in rows} == {"g": "deleted", "h": "unknown"}


def test_what_was_removed_before_the_brokers_settings_were_known_is_not_left_to_the_driver(job: Job) -> None:
    writer = job.start()
    gone = removed_offset("g", 2_000 - 60_001, VALUE, "tombstoned")
    with files_of_rows(1):
        results = results_of([[gone]], writer._begun())
    assert (len(results.changes), results.written.rows) == (0, 1)


def test_an_unused_sequence_is_used_again(job: Job) -> None:
    writer = job.start()
    with files_of_rows(2):
        write_batch(writer, PARTS[:1], 0)
        write_batch(writer, [], 1)
        writer.heartbeat(ENDS)
        write_batch(writer, PARTS[1:2], 2)
    assert pc.unique(job.tables.read_changes()["sequence"]).to_pylist() == [1, 2]


def test_an_answer_about_a_moment_before_the_commit_of_a_batch_stays_the_same(job: Job) -> None:
    """A batch begins at 3,000 and is committed at 5,000; asked at 4,000, and later again."""
    writer = job.start()
    now = [2_000]
    writer._clock = lambda: now[0]
    write_batch(writer, PARTS[:1], 0)
    now[0] = 3_000
    batch = writer._begun()
    with files_of_rows(2):
        results = results_of(PARTS[1:2], batch)
    now[0] = 4_000
    writer.heartbeat(ENDS)
    asked = job.tables.read(as_of=4_000).offsets.sort_by("group")
    now[0] = 5_000
    writer.apply(results, 1, batch)
    assert job.tables.read_changes()["batch_time"].cast("int64").to_pylist()[-1] == 3_000_000
    assert job.tables.read(as_of=4_000).offsets.sort_by("group").equals(asked)
    assert len(asked) == 2
    assert [len(job.tables.read(as_of=at).offsets) for at in (3_000, 4_999, 5_000)] == [2, 2, 4]


def test_a_change_is_before_or_after_a_moment_between_begin_and_commit_and_not_lost(job: Job) -> None:
    writer = job.start()
    now = [2_000]
    writer._clock = lambda: now[0]
    writer.apply(results_of([[set_group("g")]], None), 0)
    now[0] = 3_000
    batch = writer._begun()
    now[0] = 5_000
    ended = set_group("g")
    ended |= {
        "group_before": ended["group_after"],
        "group_after": ended["group_after"] | {"state": "Dead"},
    }
    writer.apply(results_of([[ended]], batch), 1, batch)
    for since, known in ((2_500, ["Empty", "Dead"]), (3_000, ["Dead"]), (4_000, ["Dead"])):
        rows = job.tables.ask(lambda at, since=since: at.groups_over_time(["g"], since=since, until=9_000))
        assert rows["state"].to_pylist() == known, since
        early = job.tables.ask(
            lambda at, since=since: at.groups_over_time(["g"], since=since, until=4_000), as_of=4_000
        )
        assert early["state"].to_pylist() == ["Empty"], since


sizes = st.lists(st.lists(st.sampled_from([0, 10, 500, 3_000]), max_size=6), max_size=6)
"""How long the metadata of each change is, by parts of the batch."""


@settings(max_examples=settings.default.max_examples // 2)
@given(sizes, st.integers(1, 8), st.sampled_from([200, 2_000, 20_000]), st.integers(1, 9))
def test_nothing_is_lost_however_a_batch_is_divided(
    parts: list[list[int]], rows: int, size: int, least: int
) -> None:
    with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        job = Job(Path(root))
        patch.setattr(task_files, "ROWS_OF_A_FILE", rows)
        patch.setattr(task_files, "BYTES_OF_A_FILE", size)
        patch.setattr(task_files, "LEAST_ROWS", least)
        changes = [
            [with_metadata(f"g{part}-{number}", length) for number, length in enumerate(lengths)]
            for part, lengths in enumerate(parts)
        ]
        groups = [row["group"] for some in changes for row in some]
        for _ in range(2):  # read again after a crash: the same, so nothing is written
            write_batch(job.start(), changes, 0)
            assert job.offsets() == dict.fromkeys(groups, 1)
        assert len(parquet_files(root)) == len(job.tables.delta("changes").file_uris())
