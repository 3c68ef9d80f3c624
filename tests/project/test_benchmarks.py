"""The benchmarks: records mean what is claimed, and the right times are taken."""

import json
import os
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from kafka_clients import partition_of

from decoders import decode_columns
from streaming.job.reporter import BatchReport
from streaming.model.progress import Progress
from streaming.model.totals import Totals
from tests.benchmarks.clocks import Clocks
from tests.benchmarks.job_runs import Call, JobRun
from tests.benchmarks.watched_job import Batch, read_batches
from tests.benchmarks.workloads import Chunk, Workload, chunks

PARTITIONS = 8


@pytest.fixture
def workload() -> Workload:
    return Workload(name="tiny", records=1_000, keys=300, groups=7)


@pytest.fixture
def made(workload: Workload) -> list[Chunk]:
    return list(chunks(workload, PARTITIONS, size=64))


def test_every_record_of_a_workload_is_a_commit_of_version_3_or_4(made: list[Chunk]) -> None:
    records = _decoded(made)
    assert len(records) == 1_000
    assert records["reason"].null_count == len(records)
    assert set(records["record_type"].to_pylist()) == {1}
    assert records["value_version"].to_pylist() == [3] * 100 + [4] * 900
    assert records["topic_id"].null_count == 100


def test_groups_stand_in_the_partition_that_they_hash_to(made: list[Chunk]) -> None:
    partitions = [int(partition) for chunk in made for partition in chunk.partitions]
    groups = _decoded(made)["group"].to_pylist()
    assert partitions == [partition_of(group, PARTITIONS) for group in groups]
    assert len(set(partitions)) > 1


def test_the_parts_of_a_workload_are_the_whole(workload: Workload, made: list[Chunk]) -> None:
    parts = [
        chunk
        for start, stop in pairwise([0, 40, 150, 1_000])
        for chunk in chunks(workload, PARTITIONS, start=start, stop=stop, size=64)
    ]
    assert sum(len(chunk.keys) for chunk in parts) == 1_000
    assert _decoded(parts).equals(_decoded(made))


def test_the_newest_offsets_are_those_of_the_last_commits(workload: Workload, made: list[Chunk]) -> None:
    last = {
        (row["group"], row["topic"], row["partition"]): row["committed_offset"]
        for row in _decoded(made).to_pylist()
    }
    newest = workload.newest().to_pylist()
    assert len(newest) == len(last) == 300
    assert {(row["group"], row["topic"], row["partition"]): row["committed_offset"] for row in newest} == last


def test_a_run_that_waits_costs_the_time_of_its_batches_and_folds_and_all_processor_time() -> None:
    run = _run(waits=True)
    assert run.seconds_per_record.wall == pytest.approx((1.5 + 0.25) / 1_000)
    assert run.seconds_per_record.spent == pytest.approx({"driver": 3.0 / 1_000})


def test_a_run_that_does_not_wait_costs_all_its_time() -> None:
    assert _run(waits=False).seconds_per_record.wall == pytest.approx(20.0 / 1_000)


def _run(*, waits: bool) -> JobRun:
    """A run of two batches of warm-up and one that is measured; it waited from 100 s to 105 s."""
    run = JobRun(
        lambda: Clocks(0), waits, began=Clocks(100, {"driver": 7.0}), finished=Clocks(120, {"driver": 10.0})
    )
    for records, seconds in ((10, 4.0), (10, 2.0), (1_000, 1.5)):
        run.reports.append(_report(moved=records))
        run.progress.append({"durationMs": {"triggerExecution": 1_000 * seconds}})
    run.calls["fold"] += [Call(99.0, 3.0), Call(119.0, 0.25)]
    return run


def _report(*, moved: int) -> BatchReport:
    return BatchReport(
        moved=moved,
        totals=Totals(),
        changed_offsets=0,
        changed_groups=0,
        quarantined=0,
        seconds=0.0,
        progress=Progress(),
    )


def test_batches_are_timed_from_their_plan_to_their_commit(tmp_path: Path) -> None:
    _batch(tmp_path, 0, planned=10.0, committed=12.0, reached=[60, 40])
    _batch(tmp_path, 1, planned=13.0, committed=13.5, reached=[70, 41])
    _batch(tmp_path, 2, planned=14.0, committed=None, reached=[90, 45])
    assert read_batches(tmp_path) == [Batch(0, 10.0, 12.0, 100), Batch(1, 13.0, 13.5, 11)]


def test_of_the_oldest_batch_that_is_left_it_is_not_known_where_it_began(tmp_path: Path) -> None:
    _batch(tmp_path, 9, planned=10.0, committed=12.0, reached=[60, 40])
    _batch(tmp_path, 10, planned=13.0, committed=13.5, reached=[70, 41])
    assert read_batches(tmp_path) == [Batch(10, 13.0, 13.5, 11)]


def _batch(
    checkpoint: Path, number: int, *, planned: float, committed: float | None, reached: list[int]
) -> None:
    """Write what Spark leaves of a batch in its checkpoint."""
    offsets = {"topic": {str(partition): offset for partition, offset in enumerate(reached)}}
    for folder, text, moment in (
        ("offsets", f"v1\n{{}}\n{json.dumps(offsets)}", planned),
        ("commits", "v1\n{}", committed),
    ):
        if moment is not None:
            file = checkpoint / folder / str(number)
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
            os.utime(file, (moment, moment))


def _decoded(made: list[Chunk]) -> pa.Table:
    keys = pa.array([key for chunk in made for key in chunk.keys], pa.binary())
    values = pa.array([value for chunk in made for value in chunk.values], pa.binary())
    return decode_columns(keys, values)
