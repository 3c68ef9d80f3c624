"""Commits are counted from the records to the tables, however they are divided into blocks and batches."""

import json
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from blocks_read import read_all
from decoded_records import DECODED
from hypothesis import given, settings
from hypothesis import strategies as st
from new_tables import new_tables

from streaming.job.change_over import change_over
from streaming.job.writer import BatchWriter
from streaming.model.schemas import CHANGES_IN_BATCH, QUARANTINE_IN_BATCH
from streaming.model.totals import Totals
from streaming.packing.by_shard import pack_by_shard
from streaming.packing.shards import Shards
from streaming.queries.lag import LagQueries
from streaming.queries.sql import run_sql
from streaming.spark.shard_results import ShardResults
from streaming.state.arrow_stream import narrow, widen
from streaming.state.replay import Shard, replay

Key = tuple[str, str, int]
Records = list[dict[str, Any]]

SHARDS = Shards(partition_count=3, state_partitions=2)


# --- records, and what they come to ----------------------------------------------------------------------


def commit(key: Key = ("g", "t", 0), **changed: Any) -> dict[str, Any]:
    """A record of a group: a commit, unless `changed` makes something else of it."""
    group, topic, partition = key
    row = {"record_type": 1, "is_tombstone": False, "group": group, "topic": topic, "partition": partition}
    return {**row, "metadata": "", "commit_timestamp": 5, **changed}


def tombstone(key: Key = ("g", "t", 0)) -> dict[str, Any]:
    return commit(key, is_tombstone=True)


def unreadable(key: Key = ("g", "t", 0)) -> dict[str, Any]:
    return {**commit(key), "error_kind": "unsupported_version", "key": b"k", "value": b"v"}


def end_of_group(name: str = "g") -> dict[str, Any]:
    document = json.dumps({"key": {"type": 2, "data": {"group": name}}, "value": None}, separators=(",", ":"))
    return {"record_type": 2, "is_tombstone": True, "group": name, "document": document}


def in_log(records: Iterable[dict[str, Any]]) -> Records:
    """Give records their places: those of a group are in one partition; each commits its place."""
    return [
        {
            "committed_offset": None if "error_kind" in record or record["is_tombstone"] else place,
            **record,
            "source_partition": sum(record["group"].encode()) % SHARDS.partition_count,
            "source_offset": place,
            "source_timestamp": 1_000 + place,
        }
        for place, record in enumerate(records)
    ]


def counted(records: Records) -> Counter[Key]:
    """The number of commits of every key: one record after the other, without any state."""
    is_commit = [record["record_type"] == 1 and not record["is_tombstone"] for record in records]
    return Counter(key_of(record) for record, counts in zip(records, is_commit, strict=True) if counts)


def key_of(row: dict[str, Any]) -> Key:
    return row["group"], row["topic"], row["partition"]


def compacted(records: Records) -> Records:
    """What compaction leaves: of every key the last record."""
    names = ("record_type", "group", "topic", "partition")
    last = {tuple(map(record.get, names)): record for record in records}
    return sorted(last.values(), key=lambda record: record["source_offset"])


# --- the job, without Spark ------------------------------------------------------------------------------


class Job:
    """Reads batches of records into tables; may crash after each, and then reads it again."""

    def __init__(self, root: Path, query_id: str = "query") -> None:
        self.query_id = query_id
        self.tables = new_tables(root)
        self.shards: dict[int, Shard] = {}
        self.start()

    def start(self) -> None:
        self.writer = BatchWriter(
            self.tables,
            self.tables.progress(),
            query_id=lambda: self.query_id,
            positions=lambda _: dict.fromkeys(range(SHARDS.partition_count), 1_000),
            report=lambda _: None,
            clock=lambda: 2_000,
        )

    def read(self, records: Records, batch_id: int, block_ends: Iterable[int] = ()) -> None:
        """Read one batch, whose blocks end at these records; `before` is the state before it."""
        blocks: dict[int, list[bytes]] = {}
        for start, stop in divided(records, block_ends):
            table = pa.Table.from_pylist(records[start:stop], DECODED)
            for shard, block in pack_by_shard(table, SHARDS).items():
                blocks.setdefault(shard, []).append(block)
        self.before, self.shards = self.shards, dict(self.shards)
        all_changes = [CHANGES_IN_BATCH.empty_table()]
        for shard, own in blocks.items():
            unpacked, _ = read_all(own)
            self.shards[shard], changes = replay(self.shards.get(shard, Shard.empty()), unpacked)
            all_changes += [widen(narrow(changes), CHANGES_IN_BATCH)] if len(changes) else []
        changes = pa.concat_tables(all_changes)
        totals = Totals(decoded=len(records))
        self.writer.apply(ShardResults.of(changes, QUARANTINE_IN_BATCH.empty_table(), totals), batch_id)

    def crash(self) -> None:
        """Die between the commit of a batch to the tables and that of its state, and start again."""
        self.shards = self.before
        self.start()

    def commits(self) -> Counter[Key]:
        """The commits of every key, over all rows of `changes`."""
        rows = self.tables.read_changes().to_pylist()
        assert {row["commits"] is None for row in rows if row["kind"] == "group"} <= {True}
        found = Counter[Key]()
        for row in rows:
            if row["kind"] == "offset":
                found[key_of(row)] += row["commits"]
        return found


def divided(records: Records, ends: Iterable[int]) -> list[tuple[int, int]]:
    bounds = sorted({0, len(records), *(end % (len(records) + 1) for end in ends)})
    return list(pairwise(bounds))


# --- any records -----------------------------------------------------------------------------------------

KEYS = st.tuples(st.sampled_from(["g", "h", "g\0", ""]), st.sampled_from(["t", "u"]), st.just(0))
RECORDS = st.lists(
    st.one_of(
        st.builds(commit, KEYS),
        st.builds(commit, KEYS),
        st.builds(tombstone, KEYS),
        st.builds(unreadable, KEYS),
        st.builds(end_of_group, st.sampled_from(["g", "h"])),
    ),
    max_size=60,
).map(in_log)
ENDS = st.lists(st.integers(0, 60), max_size=4)


@settings(max_examples=settings.default.max_examples // 2)
@given(records=RECORDS, batch_ends=ENDS, block_ends=ENDS, crashes=st.booleans())
def test_the_rows_of_a_key_stand_for_all_of_its_commits(
    records: Records,
    batch_ends: list[int],
    block_ends: list[int],
    crashes: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    job = Job(tmp_path_factory.mktemp("tables"))
    for batch_id, (start, stop) in enumerate(divided(records, batch_ends)):
        job.read(records[start:stop], batch_id, block_ends)
        if crashes:
            job.crash()
            job.read(records[start:stop], batch_id, block_ends[::-1])
    assert job.commits() == counted(records)
    [total] = run_sql(job.tables, 'SELECT sum("commits") AS "commits" FROM changes').rows.to_pylist()
    assert (total["commits"] or 0) == counted(records).total()


# --- what is worth a name --------------------------------------------------------------------------------


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def steps(job: Job) -> list[tuple[str, int | None, int | None]]:
    """What `history` shows of group g: event, committed offset and commits."""
    rows = LagQueries(job.tables).list_history("g").rows
    return [(row["event"], row["committed_offset"], row["commits"]) for row in rows.to_pylist()]


def test_history_says_how_many_commits_a_step_stands_for(job: Job) -> None:
    log = in_log(
        [commit(), commit(), commit(), tombstone(("h", "t", 0)), commit(), unreadable(), tombstone()]
    )
    for batch_id, (start, stop) in enumerate(divided(log, [3, 4, 6])):
        job.read(log[start:stop], batch_id)
    assert steps(job) == [("first", 2, 3), ("commit", 4, 2), ("removed", None, 0)]


def test_commits_before_a_tombstone_in_one_batch_are_counted_with_the_removal(job: Job) -> None:
    log = in_log([commit(), commit(), commit(), tombstone()])
    job.read(log[:1], 0)
    job.read(log[1:], 1)
    assert steps(job) == [("first", 0, 1), ("removed", None, 2)]


def test_commits_that_nobody_saw_are_counted_in_a_row_that_changes_nothing(job: Job) -> None:
    """The group was made by the commit and is gone at the end of the batch; its offset has no tombstone."""
    job.read(in_log([commit(), commit(), end_of_group()]), 0)
    [row] = [row for row in job.tables.read_changes().to_pylist() if row["kind"] == "offset"]
    assert (row["op"], row["before"], row["after"], row["commits"]) == ("remove", None, None, 2)
    job.tables.fold()
    assert len(job.tables.read().offsets) == 0
    assert steps(job) == [], "it never was"


def test_an_offset_that_its_group_hides_or_shows_again_was_not_committed(job: Job) -> None:
    other = ("g", "u", 0)
    log = in_log([commit(), commit(other), end_of_group(), commit(other)])
    for batch_id, (start, stop) in enumerate(divided(log, [2, 3])):
        job.read(log[start:stop], batch_id)
    rows = job.tables.read_changes().to_pylist()
    told = [(row["op"], row["topic"], row["commits"]) for row in rows if row["kind"] == "offset"]
    assert sorted(told[:2]) == [("set", "t", 1), ("set", "u", 1)]
    assert sorted(told[2:4]) == [("remove", "t", 0), ("remove", "u", 0)]
    assert sorted(told[4:]) == [("set", "t", 0), ("set", "u", 1)]


def test_a_batch_of_which_superseded_commits_are_gone_when_it_is_read_again_keeps_its_count(job: Job) -> None:
    """The topic was compacted between the crash and the start: the outcome is the same, and stays."""
    log = in_log(
        [
            commit(),
            commit(),
            commit(("h", "t", 0)),
            commit(),
            tombstone(("h", "t", 0)),
            unreadable(),
            commit(),
        ]
    )
    job.read(log, 0)
    version = job.tables.delta("changes").version()
    job.crash()
    job.read(compacted(log), 0)
    assert len(compacted(log)) < len(log)
    assert job.tables.delta("changes").version() == version
    assert job.commits() == counted(log)
    more = in_log([*log, commit()])
    job.read(more[len(log) :], 1)
    assert job.commits() == counted(more)


def test_a_row_that_only_counts_may_be_gone_when_its_batch_is_read_again(job: Job) -> None:
    """A later commit, of a later batch, has superseded the one that nobody saw."""
    hidden = [commit(("h", "t", 0)), end_of_group("h")]
    log = in_log([commit(), *hidden, commit(("h", "t", 0))])
    job.read(log[:3], 0)
    job.crash()
    job.read(compacted(log)[:-1], 0)
    assert [record["record_type"] for record in compacted(log)[:-1]] == [1, 2]
    job.read(log[3:], 1)
    assert job.commits() == counted(log)


def test_how_many_commits_a_rebuild_has_missed_is_not_known(job: Job) -> None:
    log = in_log([commit(), commit()])
    job.read(log[:1], 0)
    aside = Job(Path(job.tables.aside().root), "query of the rebuild")
    aside.read(log, 0)
    change_over(job.tables, aside.tables, lambda _: None)
    assert steps(job) == [("first", 0, 1), ("commit", 1, None)]
