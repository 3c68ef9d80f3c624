"""Batches reach the tables once and in order, whatever fails between; nobody else writes meanwhile."""

import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from new_tables import new_tables

from streaming.job.topic.reasons import RebuildNeededError
from streaming.job.writer import BatchWriter
from streaming.model.completeness import Completeness
from streaming.model.errors import MisuseError, OffsetlakeError
from streaming.model.progress import PartitionEnds, Progress, Retention
from streaming.model.schemas import CHANGES, CHANGES_IN_BATCH, QUARANTINE_IN_BATCH
from streaming.model.totals import Totals
from streaming.queries.as_of import AsOf
from streaming.queries.status import partitions
from streaming.spark.shard_results import ShardResults
from streaming.tables.folding import FoldElsewhere
from streaming.tables.tables import Tables

RETENTION = Retention(retention_ms=60_000, check_interval_ms=5_000, source="broker", read_at=0, known_since=0)
ENDS = {0: PartitionEnds(1_000, 1_000)}


def set_offset(group: str, committed_offset: int) -> dict[str, Any]:
    return {
        "kind": "offset",
        "op": "set",
        "group": group,
        "topic": "t",
        "partition": 0,
        "after": {"committed_offset": committed_offset, "source_offset": committed_offset},
        "source_offset": committed_offset,
        "source_timestamp": 1_000,
        "source_partition": 0,
    }


def set_group(group: str) -> dict[str, Any]:
    """A group without members, which commits with an assigned consumer."""
    simple = {
        "type": "classic",
        "protocol_type": "",
        "state": "Empty",
        "members": [],
        "subscribed_topics": [],
    }
    no_offset = {"topic": None, "partition": None, "after": None}
    return {**set_offset(group, 1), "kind": "group", **no_offset, "group_after": simple}


def removed_offset(group: str, at: int, before: dict[str, Any] | None, cause: str) -> dict[str, Any]:
    row = set_offset(group, 0) | {"op": "remove", "before": before, "after": None, "cause": cause}
    return {**row, "source_timestamp": at}


def results(*changes: dict[str, Any], failed: int = 0) -> ShardResults:
    bad = [{"value": b"?", "source_offset": number, "source_partition": 0} for number in range(failed)]
    return ShardResults.of(
        changes=pa.Table.from_pylist(list(changes), CHANGES_IN_BATCH),
        quarantine=pa.Table.from_pylist(bad, QUARANTINE_IN_BATCH),
        totals=Totals(decoded=len(changes), malformed=failed),
    )


class Job:
    """A table root, and writers on it as one start of the job after the other makes them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tables = new_tables(root)
        self.positions = {0: 10}
        self.asked: list[list[str]] = []
        self.reason: str | None = None

    def start(self, progress: Progress | None = None, said: Progress | None = None) -> BatchWriter:
        """Start to write from a progress (None: that of the tables), made of what the tables said."""
        return BatchWriter(
            self.tables,
            progress or replace(said or self.tables.progress(), topic="t"),
            query_id=lambda: "query",
            positions=lambda _: self.positions,
            report=lambda _: None,
            topic_ids=self.topic_ids,
            missed=lambda progress, positions: self.reason,
            clock=lambda: 2_000,
            said=said,
        )

    def topic_ids(self, names: Iterable[str]) -> dict[str, str | None]:
        self.asked.append(list(names))
        return dict.fromkeys(names, "")

    def offsets(self) -> dict[str, int]:
        rows = self.tables.read().offsets.to_pylist()
        assert len({row["group"] for row in rows}) == len(rows)
        return {row["group"]: row["committed_offset"] for row in rows}

    def versions(self) -> tuple[int, int]:
        return tuple(DeltaTable(str(self.root / name)).version() for name in ("changes", "quarantine"))


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


@contextmanager
def out_of_reach(job: Job) -> Iterator[None]:
    """Let the storage refuse: `changes` is not there for a while."""
    log, hidden = job.root / "changes" / "_delta_log", job.root / "changes" / "hidden"
    log.rename(hidden)
    yield
    hidden.rename(log)


def test_a_batch_that_is_replayed_after_its_append_is_not_applied_again(job: Job) -> None:
    job.start().apply(results(set_offset("g", 1), failed=1), 0)
    versions, progress = job.versions(), job.tables.progress()
    report = job.start().apply(results(set_offset("g", 1), failed=1), 0)
    assert job.versions() == versions
    assert job.tables.progress() == progress
    assert (report.changed_offsets, report.quarantined, report.totals) == (0, 0, Totals())
    job.start().apply(results(set_offset("g", 3)), 1)
    assert job.offsets() == {"g": 3}
    assert job.tables.progress().totals == Totals(decoded=2, malformed=1)


@pytest.mark.parametrize("changes", [[], [set_offset("g", 1)]], ids=["markers alone", "a commit"])
def test_nothing_is_appended_of_a_batch_before_which_tombstones_may_have_been_missed(
    job: Job, changes: list[dict[str, Any]]
) -> None:
    writer, versions = job.start(), job.versions()
    job.reason = "away too long"
    with pytest.raises(RebuildNeededError, match="away too long"):
        writer.apply(results(*changes, failed=len(changes)), 0)
    writer.heartbeat(ENDS)
    assert job.versions() == versions, "not even a heartbeat may say that it was read"


def test_what_is_read_is_complete_as_of_the_time_when_the_brokers_were_asked(job: Job) -> None:
    """The clock stands at 2,000: the answers took a second, or the process was suspended."""
    writer = job.start()
    writer.apply(results(set_offset("g", 1)), 0)
    writer.heartbeat({0: PartitionEnds(10, 10)}, asked_at=1_000)
    progress = job.tables.progress()
    assert progress.heartbeat == 2_000
    assert progress.partitions[0].stable.as_of == 1_000


def test_a_heartbeat_says_when_alerts_were_last_evaluated(job: Job) -> None:
    writer = job.start()
    writer.heartbeat(ENDS)
    assert job.tables.progress().alerts_evaluated_at is None
    writer.heartbeat(ENDS, alerts_evaluated_at=1_500)
    writer.apply(results(set_offset("g", 1)), 0)
    writer.heartbeat(ENDS)
    assert job.tables.progress().alerts_evaluated_at == 1_500


def test_a_leader_that_does_not_answer_is_noted_until_it_does(job: Job) -> None:
    writer = job.start()
    job.positions = {0: 10, 1: 10}
    writer.apply(results(set_offset("g", 1)), 0)
    ends = {number: PartitionEnds(10, 10) for number in (0, 1)}
    writer.heartbeat(ends, asked_at=1_000)
    for asked_at in (1_100, 1_200):
        writer.heartbeat({0: ends[0]}, asked_at=asked_at)
    partitions = job.tables.progress().partitions
    assert [partitions[number].unanswered_since for number in (0, 1)] == [None, 1_100]
    completeness = Completeness(progress=job.tables.progress(), moment=2_000, within_ms=850)
    assert list(completeness.states.values()) == ["current", "unanswered"]
    assert partitions[1].stable.as_of == 1_000
    writer.heartbeat({}, asked_at=1_300)
    assert job.tables.progress().partitions[0].unanswered_since == 1_300
    writer.heartbeat(ends, asked_at=1_400)
    assert {one.unanswered_since for one in job.tables.progress().partitions.values()} == {None}


@pytest.mark.parametrize(
    "seen_now", [[], [("g", 1)], [("g", 1), ("h", 3)], [("g", 1), ("h", 2), ("i", 3)]], ids=str
)
def test_a_batch_that_gives_something_else_when_replayed_is_a_reason_to_rebuild(
    job: Job, seen_now: list[tuple[str, int]]
) -> None:
    """The topic was compacted meanwhile: the shards were filled from fewer records than the tables."""
    job.start().apply(results(set_offset("g", 1), set_offset("h", 2)), 0)
    versions = job.versions()
    with pytest.raises(RebuildNeededError, match=r"batch 0, which is in the tables, .* compacted meanwhile"):
        job.start().apply(results(*(set_offset(*seen) for seen in seen_now)), 0)
    assert job.versions() == versions
    job.start().apply(results(set_offset("h", 2), set_offset("g", 1)), 0)  # in any order


def test_tables_that_are_newer_than_the_checkpoint_by_two_batches_are_refused_at_the_second(
    job: Job,
) -> None:
    """A checkpoint that lost its newest files: Spark plans the second batch anew, and further."""
    writer = job.start()
    for number in range(2):
        job.positions = {0: 10 * (number + 1)}
        writer.apply(results(set_offset("g", number)), number)
    versions = job.versions()
    again = job.start()
    job.positions = {0: 10}
    again.apply(results(set_offset("g", 0)), 0)
    job.positions = {0: 25}
    with pytest.raises(MisuseError, match="older than the tables"):
        again.apply(results(set_offset("g", 2)), 1)
    assert job.versions() == versions


def test_a_replay_on_tables_of_an_older_release_is_not_compared(job: Job) -> None:
    writer = job.start()
    writer.apply(results(set_offset("g", 1)), 0)
    older = replace(job.tables.progress(), fingerprint=None)
    job.tables.append_changes(CHANGES.empty_table(), older, is_batch=False)
    job.start().apply(results(), 0)
    assert job.offsets() == {"g": 1}


def test_ends_and_positions_belong_together_wherever_they_are_read(job: Job) -> None:
    """Brokers are asked for ends now and then, and batches go on in between, and while they are asked."""
    writer = job.start()
    writer.heartbeat({0: PartitionEnds(10, 12)})
    job.positions = {0: 30}
    writer.apply(results(set_offset("g", 1)), 0)
    assert shown(job) == (30, 30, 30)
    writer.heartbeat({0: PartitionEnds(25, 40)})
    assert shown(job) == (30, 30, 40)
    rows = job.tables.delta("changes").to_pyarrow_table().filter(pc.field("kind") == "progress")
    observed = [observation(row["partitions"][0]) for row in rows["progress"].to_pylist()]
    assert sorted(observed) == [(0, 10, 12), (30, 30, 30)]


def shown(job: Job) -> tuple[int, int, int]:
    """What `status` shows of partition 0; a document says the same of it."""
    progress = job.tables.progress()
    about = AsOf.of(None, progress, now=2_000)
    (row,) = partitions(about).to_pylist()
    document = about.document()["partitions"][0]
    assert observation(document) == observation(row)
    assert row["behind"] == row["last_stable_offset"] - row["position"]
    return observation(row)


def observation(row: dict[str, Any]) -> tuple[int, int, int]:
    return row["position"], row["last_stable_offset"], row["high_watermark"]


def test_sequence_grows_over_restarts_and_heartbeats(job: Job) -> None:
    for batch_id in range(3):
        writer = job.start()
        writer.heartbeat(ENDS)
        writer.apply(results(set_offset("g", batch_id)), batch_id)
        writer.heartbeat(ENDS)
        writer.fold()
    assert job.tables.read_changes()["sequence"].to_pylist() == [1, 2, 3]
    assert job.offsets() == {"g": 2}


def test_how_long_a_batch_took_is_in_the_next_commit_and_in_those_after_it(job: Job) -> None:
    def written() -> int | None:
        return job.tables.progress().batch_ms

    writer = job.start()
    writer.apply(results(set_offset("g", 1)), 0)
    writer.took(700)
    assert written() is None, "nothing is committed for this alone"
    writer.heartbeat(ENDS)
    assert written() == 700
    writer.took(1_400)
    writer.apply(results(set_offset("g", 2)), 1)
    assert written() == 1_400, "a batch carries it, too"
    writer = job.start()
    writer.apply(results(set_offset("g", 2)), 1)  # in the tables already
    writer.heartbeat(ENDS)
    writer.apply(results(set_offset("g", 3)), 2)
    assert written() == 1_400, "after a restart it is that of before, until Spark tells of another"


def test_nothing_is_written_after_a_batch_that_failed(job: Job) -> None:
    writer = job.start()
    writer.apply(results(set_offset("g", 1)), 0)
    with out_of_reach(job), pytest.raises(OffsetlakeError):
        writer.apply(results(set_offset("g", 2), failed=1), 1)
    versions = job.versions()
    writer.heartbeat(ENDS)
    assert writer.fold() == 0
    assert job.versions() == versions
    job.start().apply(results(set_offset("g", 2), failed=1), 1)
    assert job.offsets() == {"g": 2}
    assert len(job.tables.read_quarantine()) == 1


def test_a_heartbeat_and_a_fold_that_failed_can_be_repeated(job: Job) -> None:
    writer = job.start()
    writer.apply(results(set_offset("g", 1)), 0)
    with out_of_reach(job):
        for attempt in (lambda: writer.heartbeat(ENDS), writer.fold):
            with pytest.raises(OffsetlakeError):
                attempt()
    assert writer.rows_since_fold == 1
    writer.heartbeat(ENDS)
    assert writer.fold() == 1
    assert job.tables.unfolded_rows() == 0
    writer.apply(results(set_offset("g", 2)), 1)
    assert job.offsets() == {"g": 2}


def test_a_batch_and_a_heartbeat_do_not_wait_for_a_fold(job: Job) -> None:
    begun, may_end = threading.Event(), threading.Event()

    class FoldingSlowly(Tables):
        def fold(self, elsewhere: FoldElsewhere | None = None) -> int:
            begun.set()
            assert may_end.wait(30)
            return super().fold(elsewhere)

    writer = job.start()
    writer.apply(results(set_offset("g", 1)), 0)
    writer._tables = FoldingSlowly(job.tables.root)
    with ThreadPoolExecutor() as pool:
        fold = pool.submit(writer.fold)
        try:
            assert begun.wait(30)
            pool.submit(writer.apply, results(set_offset("g", 2), set_offset("h", 3)), 1).result(30)
            pool.submit(writer.heartbeat, ENDS).result(30)
            assert not fold.done()
        finally:
            may_end.set()
        fold.result(30)
    assert writer.rows_since_fold == 2
    writer.fold()
    assert writer.rows_since_fold == job.tables.unfolded_rows() == 0
    assert writer.folded_offsets == 2
    assert job.offsets() == {"g": 2, "h": 3}


class AnswersLost(Tables):
    """Tables on a storage that has written when it says that it could not."""

    def append_changes(self, *arguments: Any, **named: Any) -> None:
        super().append_changes(*arguments, **named)
        raise OSError("timed out")


def test_a_heartbeat_that_arrived_though_the_storage_said_that_it_failed_is_ours(job: Job) -> None:
    writer, tables = job.start(), job.tables
    writer._commits._tables = AnswersLost(tables.root)
    with pytest.raises(OSError, match="timed out"):
        writer.heartbeat(ENDS)
    writer._commits._tables = tables
    writer.heartbeat(ENDS)
    writer.apply(results(set_offset("g", 1)), 0)
    assert job.offsets() == {"g": 1}


def test_a_heartbeat_in_doubt_is_ours_also_after_an_outage(job: Job) -> None:
    """It arrived, its answer did not, and until the next two could be tried the storage was away."""
    writer, tables = job.start(), job.tables
    writer._clock = iter(range(3_000, 9_000)).__next__
    writer._commits._tables = AnswersLost(tables.root)
    with pytest.raises(OSError, match="timed out"):
        writer.heartbeat(ENDS)
    writer._commits._tables = tables
    for _ in range(2):
        with out_of_reach(job), pytest.raises(OffsetlakeError):
            writer.heartbeat(ENDS)
    writer.heartbeat(ENDS)
    writer.apply(results(set_offset("g", 1)), 0)
    assert job.offsets() == {"g": 1}


def test_removals_get_their_cause_before_they_are_written(job: Job) -> None:
    """From the group as it was before the batch, the retention, and one question about topics."""
    value = {"commit_timestamp": 1_000, "committed_offset": 1, "source_offset": 1}
    writer = job.start()
    writer.heartbeat(ENDS, RETENTION)
    writer.apply(results({**set_offset("g", 1), "after": value}, set_group("g")), 0)
    unheld = removed_offset("h", 2_000, None, "tombstoned")
    writer.apply(results(unheld), 1)
    assert job.asked == []
    writer.apply(results(removed_offset("g", 2_000, value, "tombstoned"), unheld), 2)
    assert job.asked == [["t"]]
    causes = [row["cause"] for row in job.tables.read_changes().to_pylist()]
    assert sorted(filter(None, causes)) == ["deleted", "unknown", "unknown"]
    assert job.tables.progress().retention == RETENTION


@pytest.mark.parametrize(
    ("end", "cause"), [(10, "deleted"), (11, "expired (probable)")], ids=["whole", "cut"]
)
def test_a_removal_at_the_end_of_a_batch_that_was_cut_may_be_of_a_check_that_goes_on(
    job: Job, end: int, cause: str
) -> None:
    """Offsets of an empty group, long due; the job knows how far the log went before it read the batch."""
    old = [{**set_offset("g", number), "partition": number, "source_timestamp": 0} for number in (1, 2)]
    for row in old:
        row["after"] |= {"commit_timestamp": -10_000_000}
    job.positions = {0: 5}
    writer = job.start()
    writer.apply(results(*old, set_group("g")), 0)
    writer.heartbeat({0: PartitionEnds(end, end)}, RETENTION)
    job.positions = {0: 10}
    gone = removed_offset("g", 1_500, old[0]["after"], "tombstoned")
    writer.apply(results({**gone, "partition": 1, "source_offset": 9}), 1)
    (row,) = (row for row in job.tables.read_changes().to_pylist() if row["op"] == "remove")
    assert row["cause"] == cause


def test_a_second_writer_is_noticed_before_it_does_harm(job: Job) -> None:
    ours, theirs = job.start(), job.start()
    theirs.apply(results(set_offset("g", 1)), 0)
    with pytest.raises(MisuseError, match="only writer"):
        ours.heartbeat(ENDS)
    with pytest.raises(MisuseError, match="only writer"):
        ours.apply(results(set_offset("g", 9)), 1)
    assert job.offsets() == {"g": 1}


def test_a_checkpoint_that_is_older_than_the_tables_is_refused(job: Job) -> None:
    job.start().apply(results(set_offset("g", 1)), 0)
    job.positions = {0: 20}  # Spark planned the batch anew, and further
    with pytest.raises(MisuseError, match="expected offsets partition 0 to end at 10"):
        job.start().apply(results(set_offset("g", 1), set_offset("h", 2)), 0)


def test_a_group_in_two_partitions_neither_doubles_rows_nor_stops_the_fold(job: Job) -> None:
    writer = job.start()
    for batch_id in range(3):
        here, there = set_offset("g", batch_id), {**set_offset("g", 10 + batch_id), "source_partition": 1}
        writer.apply(results(here, there), batch_id)
        assert job.offsets() == {"g": 10 + batch_id}
        writer.fold()
    assert job.offsets() == {"g": 12}


def test_the_first_batch_is_committed_even_if_it_changes_nothing(job: Job) -> None:
    """It binds the tables to the query."""
    job.start().apply(results(), 0)
    assert job.tables.progress().query_id == "query"
    assert job.tables.is_appended("query", 0)


def test_a_batch_without_records_is_committed_as_a_heartbeat(job: Job) -> None:
    """Without a row or a file; Spark completes the batch next, and then the job may be killed."""
    writer = job.start()
    writer.apply(results(set_offset("g", 1)), 0)
    files = job.tables.delta("changes").file_uris()
    job.positions = {0: 11}
    for attempt in (writer, job.start(), job.start()):  # also if it is replayed
        attempt.apply(results(), 1)
        progress = job.tables.progress()
        assert (progress.partitions[0].position, progress.batch_id, progress.sequence) == (11, 1, 1)
    assert job.tables.delta("changes").file_uris() == files
    job.start().apply(results(set_offset("g", 2)), 2)
    assert job.offsets() == {"g": 2}


def test_fresh_tables_have_fresh_progress(tmp_path: Path) -> None:
    assert Tables(str(tmp_path / "none")).progress_if_any() == Progress()
