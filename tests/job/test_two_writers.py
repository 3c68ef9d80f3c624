"""Two jobs write to one root (a URL, NFS: no lock tells them of each other): one of them ends, and nothing
is lost, whenever the other commits."""

import gc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake.exceptions import CommitFailedError
from storage_faults import answer_lost_of, before_commit_to, no_file_larger_than, parquet_files
from test_writer import ENDS, Job, results, set_offset

from streaming.job.change_over import change_over
from streaming.job.rebuild import announce
from streaming.job.writer import BatchWriter, ChangesCommitter
from streaming.model.progress import Progress
from streaming.model.schemas import CHANGES
from streaming.tables.fences import OtherWriterError
from streaming.tables.storage_errors import TablesUnreachableError
from streaming.tables.tables import Tables


@pytest.fixture
def job(tmp_path: Path) -> Job:
    job = Job(tmp_path / "tables")
    job.start().apply(results(set_offset("g", 1)), 0)
    return job


def rebuilt(job: Job) -> Tables:
    """Tables that a rebuild has filled beside those of a job."""
    aside = Job(Path(job.tables.aside().root))
    aside.start().apply(results(set_offset("g", 5)), 0)
    return aside.tables


def heartbeat(job: Job) -> Callable[[], Any]:
    return partial(job.start().heartbeat, ENDS)


def batch(job: Job) -> Callable[[], Any]:
    return partial(job.start().apply, results(set_offset("g", 2)), 1)


def announcement_of_a_rebuild(job: Job) -> Callable[[], Any]:
    reader: Any = SimpleNamespace(tables=job.tables)  # all that is needed of one
    return partial(announce, reader, "requested")


def end_of_a_rebuild(job: Job) -> Callable[[], Any]:
    return partial(change_over, job.tables, rebuilt(job), lambda _: None)


@pytest.mark.parametrize("prepare", [heartbeat, batch, announcement_of_a_rebuild, end_of_a_rebuild])
@pytest.mark.parametrize("does_fold", [False, True])
def test_a_commit_is_on_top_of_what_its_writer_looked_at(
    job: Job, prepare: Callable[[Job], Callable[[], Any]], does_fold: bool
) -> None:
    other, write = job.start(), prepare(job)

    def come_first() -> None:
        other.apply(results(set_offset("g", 3), set_offset("h", 3)), 1)
        if does_fold:
            other.fold()

    with before_commit_to("changes", come_first), pytest.raises(OtherWriterError):
        write()
    assert job.tables.progress() == other.progress
    other.apply(results(set_offset("h", 4)), 2)
    other.fold()
    assert job.tables.unfolded_rows() == 0
    assert job.offsets() == {"g": 3, "h": 4}
    assert [row["sequence"] for row in job.tables.read_changes().to_pylist()] == [1, 2, 2, 3]


def test_the_end_of_a_rebuild_has_the_time_of_its_commit(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """No reader of a past moment sees it earlier than others could."""
    now = [5_000]
    monkeypatch.setattr("streaming.job.change_over.now_ms", lambda: now[0])

    def topic_ids(_: object) -> None:
        now[0] = 65_000  # the brokers take a minute to answer

    assert change_over(job.tables, rebuilt(job), topic_ids) == job.tables.progress()
    assert job.tables.progress().heartbeat == 65_000


@pytest.mark.parametrize("others_batch", [1, 2], ids=["the same batch", "a later one"])
def test_what_another_has_written_since_the_tables_were_read_is_noticed(job: Job, others_batch: int) -> None:
    """A start reads the tables, then asks the brokers, and only then makes its writer."""
    said, other = job.tables.progress(), job.start()
    for batch_id in range(1, others_batch + 1):
        other.apply(results(set_offset("h", batch_id)), batch_id)
    writes: list[Callable[[BatchWriter], Any]] = [
        lambda writer: writer.heartbeat(ENDS),
        lambda writer: writer.apply(results(set_offset("h", 1)), 1),
    ]
    for write in writes:
        with pytest.raises(OtherWriterError):
            write(job.start(said=said))
    assert job.tables.progress() == other.progress


def test_a_compaction_that_comes_first_keeps_no_batch_from_being_written_once(job: Job) -> None:
    writer = job.start()
    for batch_id in (1, 2):
        writer.apply(results(set_offset("g", batch_id)), batch_id)
    with before_commit_to("changes", lambda: job.tables.delta("changes").optimize.compact()):
        writer.apply(results(set_offset("g", 3)), 3)
    writer.heartbeat(ENDS)
    assert job.offsets() == {"g": 3}
    assert len(job.tables.read_changes()) == 4
    written = {Path(path).name for path in job.tables.delta("changes").file_uris()}
    replaced = 3
    left = {path.name for path in parquet_files(job.root / "changes")} - written
    assert len(left) == replaced, "the rows of the batch were written once"


@pytest.mark.parametrize("name", ["changes", "quarantine"])
def test_a_batch_whose_commit_is_taken_for_anothers_is_not_written_again(job: Job, name: str) -> None:
    """A request that is repeated, since its answer was lost, finds the commit that it has made itself."""
    writer = job.start()
    with answer_lost_of(name, CommitFailedError("version 2 exists")):
        writer.apply(results(set_offset("g", 2), failed=3), 1)
    writer.apply(results(set_offset("g", 3)), 2)
    assert len(job.tables.read_changes()) == 3
    assert len(job.tables.read_quarantine()) == 3
    assert job.offsets() == {"g": 3}


def test_a_fold_whose_commit_is_taken_for_anothers_is_not_done_again(job: Job) -> None:
    with answer_lost_of("offsets", CommitFailedError("version 2 exists")):
        job.tables.fold()
    assert len(job.tables.delta("offsets").to_pyarrow_table()) == 1
    assert job.offsets() == {"g": 1}


def test_a_fresh_rebuild_is_the_first_to_write_to_its_tables(tmp_path: Path) -> None:
    job = Job(tmp_path)
    writer = job.start(progress=Progress(topic="t", generation=1), said=Progress())
    writer.apply(results(set_offset("g", 1)), 0)
    assert job.tables.progress() == replace(writer.progress, generation=1)


@pytest.mark.more
def test_a_long_outage_of_the_storage_holds_few_of_the_commits_that_may_have_arrived(job: Job) -> None:
    said = job.tables.progress()
    commits = ChangesCommitter(job.tables, said)
    append = partial(commits.append, CHANGES.empty_table(), is_batch=False)
    with no_file_larger_than(0):
        for heartbeat in range(1, 251):
            with pytest.raises(TablesUnreachableError):
                append(replace(said, heartbeat=heartbeat))
    held = [
        found
        for found in gc.get_objects()
        if isinstance(found, Progress) and found.heartbeat in range(1, 251)
    ]
    assert len(held) < 150
    append(replace(said, heartbeat=251))
    assert job.tables.progress().heartbeat == 251
