"""The benchmarks: records and requests mean what is claimed, and batches are timed by the right files."""

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest
from kafka_clients import partition_of
from raw_requests import offset_commit_request

from decoders import decode_columns
from streaming.demo_traffic import CommittedOffset
from tests.benchmarks.commit_client import TOPIC, Commit, request_of
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


def test_the_newest_offsets_are_those_of_the_last_commits(workload: Workload, made: list[Chunk]) -> None:
    last = {
        (row["group"], row["topic"], row["partition"]): row["committed_offset"]
        for row in _decoded(made).to_pylist()
    }
    newest = workload.newest().to_pylist()
    assert len(newest) == len(last) == 300
    assert {(row["group"], row["topic"], row["partition"]): row["committed_offset"] for row in newest} == last


def test_a_request_made_from_a_template_is_the_one_that_would_be_built() -> None:
    built = offset_commit_request("billing", {(TOPIC, 7): CommittedOffset(1 << 40)})
    assert request_of(Commit("billing", 7, 1 << 40)) == built


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
