"""Random worlds: records are packed, replayed by tasks that write files, committed and folded, and the job is
killed between any two of these steps. The tables equal a plain replay of the same records at every moment."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, NoReturn

import pyarrow as pa
import pytest
from decoded_records import CLASSIC_VALUE, DECODED, group_document
from deltalake import DeltaTable
from map_state import MapState
from new_tables import new_tables
from plain_replay import Entry, Key, PlainReplay, Record
from storage_faults import parquet_files

from streaming.common import pieces
from streaming.job.writer import BatchWriter, ChangesCommitter
from streaming.model.batch_to_write import BatchToWrite
from streaming.model.progress import PartitionEnds, Retention
from streaming.model.totals import Totals
from streaming.packing import unpacking
from streaming.packing.by_shard import pack_by_shard
from streaming.packing.codec import count_records
from streaming.packing.shards import Shards
from streaming.spark import shard_replay, task_files
from streaming.spark.base_files import BaseFiles
from streaming.spark.shard_results import ShardResults
from streaming.state import concerned, encoded, layers, stored
from streaming.tables import change_files, folding
from streaming.tables.files import NewFiles
from streaming.tables.tables import Tables

WORLDS = range(20)
"""Seeds; `make test` tries the first `QUICK`."""
QUICK = 1

MOMENTS = (
    "in a task, with a file written",
    "after the tasks",
    "between quarantine and changes",
    "after the commit",
    "in a fold, with its files written",
    "between two folds",
    "after the folds",
)
IN_FOLDS = MOMENTS[4:]
SMALL = (
    (unpacking, "SLICE_RECORDS", 7),
    (task_files, "ROWS_OF_A_FILE", 5),
    (task_files, "LEAST_ROWS", 3),
    (folding, "_HELD_BYTES", 4_000),
    (folding, "_SPLIT_BYTES", 1_500),
    (folding, "_FEW_BYTES", 600),
    (folding, "_PORTION_BYTES", 2_000),
    (pieces, "VALUE_BYTES", 700),
    (stored, "_SECOND_BASE_BYTES", 500),
)
"""Sizes with which a few records need several of everything."""
LARGE_SHARDS = ((concerned, "LOOKED_THROUGH", 0), (encoded, "_LEAST_REPEATED", 0), (layers, "MANY_ROWS", 0))
RETENTION = Retention(retention_ms=60_000, check_interval_ms=5_000, source="broker", read_at=0, known_since=0)

Offsets = dict[Key, tuple[int | None, int | None, int | None]]
Live = tuple[Offsets, set[str]]


class Kill(BaseException):
    """The process ends here, and cleans nothing up."""


@dataclass
class Collected:
    """The rows of a batch, as `ShardResults.collect` asks Spark for them."""

    rows: list[dict[str, Any]]

    def toArrow(self) -> "Collected":  # noqa: N802
        return self

    def to_pylist(self) -> list[dict[str, Any]]:
        return self.rows


class World:
    """A log, the tables that the job makes of it, and what they should hold."""

    def __init__(self, seed: int, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.random = Random(seed)
        self.patch, self.folder = patch, root / "bases"
        self.folder.mkdir()
        count = self.random.choice([1, 3, 5])
        self.shards = Shards(count, min(count, self.random.choice([1, 2, 3])))
        self.plain = [PlainReplay() for _ in range(count)]
        self.ends = [self.random.randrange(5) for _ in range(count)]
        self.positions = dict[int, dict[int, int]]()
        self.states = dict[int, MapState]()
        self.now = 10_000_000
        self.seen = list[tuple[int, Live]]()
        self.kills = 0
        self.totals = Totals()
        self.root = root / "tables"
        self.tables = new_tables(self.root)
        self.start()

    def start(self) -> None:
        """Start the job with what a killed one has left."""
        kept = self.folder if self.random.random() < 0.7 else None
        self.patch.setattr(shard_replay, "_BASES", BaseFiles(kept))
        self.writer = BatchWriter(
            self.tables,
            replace(self.tables.progress(), topic="t"),
            query_id=lambda: "query",
            positions=self.positions.__getitem__,
            report=lambda _: None,
            clock=lambda: self.now,
        )

    # --- the log ---

    def next_records(self) -> list[list[Record]]:
        """Append records to the log; return those of each offsets partition."""
        return [
            [self._record(partition) for _ in range(self.random.choice([0, 1, 5, 25]))]
            for partition in range(len(self.ends))
        ]

    def _record(self, partition: int) -> Record:
        group = f"g\0{partition}-{self.random.randrange(4)}"
        place = {"source_partition": partition, "source_offset": self.ends[partition], "group": group}
        self.ends[partition] += self.random.choice([1, 1, 2])  # markers of transactions have offsets, too
        of_topic = {"topic": self.random.choice("tu"), "partition": self.random.randrange(3)}
        of_group = {"topic": None, "partition": None, "record_type": 2}
        kind = self.random.random()
        if kind < 0.6:
            value = {
                "committed_offset": self.random.randrange(99),
                "metadata": "m" * self.random.randrange(30),
            }
            return Record(**place, **of_topic, **value)
        if kind < 0.78:
            return Record(**place, **of_topic, is_tombstone=True)
        if kind < 0.83:
            return Record(**place, **of_topic, error_kind="unsupported_version")
        if kind < 0.9:
            return Record(**place, **of_group, document=group_document(2, group, "", CLASSIC_VALUE))
        if kind < 0.97:
            return Record(**place, **of_group, document=group_document(2, group, "", None), is_tombstone=True)
        return Record(**{**place, "group": None}, **of_group | {"record_type": 99}, error_kind="malformed")

    # --- a batch ---

    def apply(self, number: int) -> None:
        """Let the job apply a batch, which may take several starts; the tables show it or they do not."""
        before, records = self.live(), self.next_records()
        self.positions[number] = dict(enumerate(self.ends))
        for plain, of_partition in zip(self.plain, records, strict=True):
            self.totals += count_records(decoded(of_partition))
            for record in of_partition:
                plain.apply(record)
        for attempt in range(5):
            moment = self.random.choice([None, None, *MOMENTS]) if attempt < 4 else None
            try:
                with killed(moment):
                    states = self._attempt(number, records, moment)
                self.states = states  # as Spark commits them
                break
            except Kill:
                self.kills += 1
                self.pass_time()
                assert live_in(self.tables.read()) in (before, self.live())
                self.start()
        assert live_in(self.tables.read()) == self.live()
        self.seen.append((self.now, self.live()))
        self.pass_time()

    def _attempt(self, number: int, records: list[list[Record]], moment: str | None) -> dict[int, MapState]:
        begun, states = self.writer._begun(), copy.deepcopy(self.states)
        results = self._results(begun, records, states)
        if self.random.random() < 0.5:
            self.pass_time()
            self.beat()
            self.seen.append((self.now, live_in(self.tables.read())))
            self.pass_time()
        die_if(moment == "after the tasks")
        self.writer.apply(results, number, begun)
        die_if(moment == "after the commit")
        if self.random.random() < 0.4:
            self.beat()
        if moment in IN_FOLDS or self.random.random() < 0.5:
            self.writer.fold()
        die_if(moment is not None)
        return states

    def _results(
        self, begun: BatchToWrite, records: list[list[Record]], states: dict[int, MapState]
    ) -> ShardResults:
        """Replay records on the state as tasks do, some of which are lost and run again."""
        rows = list[dict[str, Any]]()
        self.patch.setattr(shard_replay, "announced", lambda: begun)
        for key, blocks in self._blocks(records).items():
            state = states.setdefault(key, MapState())
            if self.random.random() < 0.2:
                self.kills += 1
                list(shard_replay.replay_blocks(copy.deepcopy(state), key, blocks))
            rows += [row.asDict() for row in shard_replay.replay_blocks(state, key, blocks)]
        self.random.shuffle(rows)
        return ShardResults.collect(Collected(rows))  # type: ignore[arg-type]

    def _blocks(self, records: list[list[Record]]) -> dict[int, list[bytes]]:
        """Pack records: of each offsets partition in their order, in batches of any size."""
        blocks = dict[int, list[bytes]]()
        turned = [*records]
        self.random.shuffle(turned)
        rows = [record for of_partition in turned for record in of_partition]
        while rows:
            some = self.random.choice([1, 3, 10, 40])
            for key, block in pack_by_shard(decoded(rows[:some]), self.shards).items():
                blocks.setdefault(key, []).append(block)
            rows = rows[some:]
        return blocks

    # --- and between batches ---

    def beat(self) -> None:
        ends = {number: PartitionEnds(end, end) for number, end in enumerate(self.ends)}
        self.writer.heartbeat(ends, self.random.choice([None, RETENTION]))

    def pass_time(self) -> None:
        self.now += self.random.choice([1_000, 5_000, 70_000])

    def live(self) -> Live:
        """What a plain replay of all records holds."""
        offsets = dict[Key, Entry]()
        for plain in self.plain:
            offsets |= plain.visible_offsets()
        return (
            {
                key: (one.committed_offset, one.unreadable_source_offset, source_offset(asdict(one)))
                for key, one in offsets.items()
            },
            {group for plain in self.plain for group in plain.visible_groups()},
        )


def decoded(records: list[Record]) -> pa.Table:
    failed = {"key": b"k", "value": b"v", "reason": "r"}
    rows = [
        {**asdict(one), "source_timestamp": 1_000 + one.source_offset, "commit_timestamp": 5}
        | (failed if one.error_kind else {})
        for one in records
    ]
    return pa.Table.from_pylist(rows, DECODED)


def source_offset(row: dict[str, Any]) -> int | None:
    """A value that was never readable has the place of a record that depends on the batches."""
    return None if row["committed_offset"] is None else int(row["source_offset"])


def live_in(snapshot: Any) -> Live:
    rows = snapshot.offsets.to_pylist()
    offsets = {
        (row["group"], row["topic"], row["partition"]): (
            row["committed_offset"],
            row["unreadable_source_offset"],
            source_offset(row),
        )
        for row in rows
    }
    assert len(offsets) == len(rows)
    groups = snapshot.groups["group"].to_pylist()
    assert len(set(groups)) == len(groups)
    return offsets, set(groups)


def die_if(is_time: bool) -> None:
    if is_time:
        raise Kill


@contextmanager
def killed(moment: str | None) -> Iterator[None]:
    """Kill the job when it reaches the moment (None: never): then it deletes no files, as it otherwise
    does."""

    def die(*_: Any, **__: Any) -> NoReturn:
        raise Kill

    def write_and_die(*arguments: Any) -> NoReturn:
        write(*arguments)
        raise Kill

    def commit_or_die(new: NewFiles, table: DeltaTable, *arguments: Any) -> None:
        die_if(table.metadata().partition_columns == [folding.BUCKET.name])
        commit(new, table, *arguments)

    def fold_or_die(name: str, *arguments: Any) -> int:
        die_if(name == folded[-1])
        return fold(name, *arguments)

    write, commit = change_files.write_change_file, NewFiles.commit
    fold, folded = folding.fold_table, [*folding.ROWS]
    with pytest.MonkeyPatch.context() as patch:
        if moment is not None:
            patch.setattr(NewFiles, "__exit__", lambda *_: None)
        if moment == "in a task, with a file written":
            patch.setattr(change_files, "write_change_file", write_and_die)
        if moment == "between quarantine and changes":
            patch.setattr(ChangesCommitter, "append", die)
        if moment == "in a fold, with its files written":
            patch.setattr(NewFiles, "commit", commit_or_die)
        if moment == "between two folds":
            patch.setattr("streaming.tables.tables.fold_table", fold_or_die)
        yield


@pytest.fixture
def patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in SMALL:
            patch.setattr(module, name, value)
        yield patch


@pytest.mark.parametrize(
    "seed", [pytest.param(one, marks=[] if one < QUICK else pytest.mark.more) for one in WORLDS]
)
def test_the_tables_equal_a_plain_replay_whenever_the_job_is_killed(
    seed: int, tmp_path: Path, patch: pytest.MonkeyPatch
) -> None:
    if seed % 2:
        for module, name, value in LARGE_SHARDS:
            patch.setattr(module, name, value)
    world = World(seed, tmp_path, patch)
    for number in range(5):
        world.apply(number)
    world.beat()
    for moment, live in world.seen:
        assert live_in(world.tables.read(as_of=moment)) == live, moment
    check_written_once(world.tables)
    found = world.tables.progress().totals
    assert replace(found, unknown=()) == replace(world.totals, unknown=())
    if not world.kills:
        changes = world.tables.delta("changes")
        assert len(parquet_files(world.root / "changes")) == len(changes.file_uris())


def check_written_once(tables: Tables) -> None:
    of_changes = ["sequence", "kind", "group", "topic", "partition", "source_partition"]
    rows = tables.read_changes()
    rows = rows.filter(pa.compute.field("kind") != "progress").select(of_changes).to_pylist()
    assert len({tuple(row.values()) for row in rows}) == len(rows)
    failed = tables.read_quarantine().select(["source_partition", "source_offset"]).to_pylist()
    assert len({tuple(row.values()) for row in failed}) == len(failed)
