"""A large batch is written a portion at a time, and nothing of it is lost, however it is divided."""

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_writer import Job, set_offset

from streaming.model.schemas import CHANGES_IN_BATCH, QUARANTINE_IN_BATCH
from streaming.model.totals import Totals
from streaming.spark import shard_results
from streaming.spark.shard_results import ShardResults


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


sizes = st.lists(st.lists(st.sampled_from([0, 10, 500, 3_000]), max_size=6), max_size=6)
"""How long the metadata of each change is, by parts of the batch."""


@settings(deadline=None, max_examples=40)
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
