"""The benchmarks' workloads: the bytes mean what the benchmark will compare the tables with."""

import pyarrow as pa
import pytest
from kafka_clients import partition_of

from decoders import decode_columns
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


def _decoded(made: list[Chunk]) -> pa.Table:
    keys = pa.array([key for chunk in made for key in chunk.keys], pa.binary())
    values = pa.array([value for chunk in made for value in chunk.values], pa.binary())
    return decode_columns(keys, values)
