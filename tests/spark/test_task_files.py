"""A real query whose tasks write rows to real tables: attempts that die, batches that run again, storage that
refuses."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from new_tables import new_tables
from pyspark import SparkContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from storage_faults import parquet_files
from test_replay_in_parts import DECODED, commit

from streaming.job.failures import as_failure
from streaming.job.writer import BatchWriter
from streaming.model.progress import Retention
from streaming.packing.by_shard import pack_by_shard
from streaming.packing.shards import Shards
from streaming.settings.secrets import Secret
from streaming.spark import query, task_files
from streaming.spark.processor import ReplayShard
from streaming.spark.udfs import BLOCK_TYPE
from streaming.tables.tables import Tables

pytestmark = pytest.mark.spark

PARTITIONS = 4
SHARDS = Shards(partition_count=PARTITIONS, state_partitions=2)
LARGE = "m" * 30_000
MANY = 620  # rows of a shard with so much metadata, in more bytes than `LEAST_BYTES`


def key(number: int) -> tuple[str, str, int]:
    return (f"g{number % 50}", "t", number)


class Query:
    """A query over blocks in files, each of which is a batch, and the writer of its tables."""

    def __init__(self, spark: SparkSession, folder: Path, tables: Tables) -> None:
        self.spark = spark
        self.folder = folder
        self.tables = tables
        tables.create()
        self.blocks = folder / "blocks"
        self.blocks.mkdir()
        self.now = 1_700_000_000_000
        self.offset = 0
        self.failure: BaseException | None = None

    def add(self, *records: dict[str, Any]) -> None:
        """Add a batch with these records, which are dealt among the offsets partitions by group."""
        rows = []
        for record in records:
            partition = int(record["group"].removeprefix("g")) % PARTITIONS
            place = {"source_partition": partition, "source_offset": self.offset}
            rows.append({**record, **place, "source_timestamp": record.get("source_timestamp", 1_000)})
            self.offset += 1
        packed = pack_by_shard(pa.Table.from_pylist(rows, DECODED), SHARDS)
        table = pa.table({"shard": pa.array([*packed], pa.int32()), "records": pa.array(packed.values())})
        pq.write_table(table, self.blocks / f"{len([*self.blocks.iterdir()]):03}.parquet")

    def writer(self) -> BatchWriter:
        return BatchWriter(
            self.tables,
            replace(self.tables.progress(), topic="t"),
            query_id=lambda: "query",
            positions=lambda batch_id: {0: batch_id},
            report=lambda _: None,
            topic_ids=lambda names: dict.fromkeys(names, ""),
            clock=lambda: self.now,
        )

    def run(self, retention: Retention | None = None) -> None:
        """Apply all batches that are not applied yet."""
        writer = self.writer()
        if retention is not None:
            writer.heartbeat({}, retention)

        def write(batch: DataFrame, batch_id: int) -> None:
            try:
                writer.write(batch, batch_id)
            except BaseException as error:
                self.failure = error
                raise

        blocks = self.spark.readStream.schema(BLOCK_TYPE).option("maxFilesPerTrigger", 1)
        started = (
            query.with_shard_results(blocks.parquet(str(self.blocks)))
            .writeStream.outputMode("update")
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .foreachBatch(write)
            .trigger(availableNow=True)
            .start()
        )
        started.awaitTermination()

    def rows_in_files(self) -> list[int]:
        """The number of rows of offsets in each file of the table."""
        rows = [pq.read_table(file) for file in self.files()]
        return sorted(sum(kind == "offset" for kind in some["kind"].to_pylist()) for some in rows)

    def files(self) -> set[Path]:
        uris = DeltaTable(self.tables.place_of_changes).file_uris()
        return {Path(uri.removeprefix("file://")) for uri in uris}

    def offsets(self) -> dict[int, int]:
        rows = self.tables.read().offsets.select(["partition", "committed_offset"]).to_pylist()
        assert len({row["partition"] for row in rows}) == len(rows)
        return {row["partition"]: row["committed_offset"] for row in rows}


def many(value: int = 1) -> Iterator[dict[str, Any]]:
    for number in range(2 * MANY):
        yield commit(1, key(number), committed_offset=value, metadata=LARGE)


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Query:
    return Query(spark, tmp_path, Tables(str(tmp_path / "tables")))


def test_tasks_write_many_rows_and_the_driver_few(world: Query) -> None:
    world.add(*many())
    world.add(commit(1, key(1), committed_offset=2), commit(1, key(2), committed_offset=2))
    world.run()
    assert world.offsets() == {number: 2 if number in (1, 2) else 1 for number in range(2 * MANY)}
    counts = world.rows_in_files()
    assert counts[:2] == [0, 2], "the progress of the first batch; two rows in the one file of the other"
    assert sum(counts) == 2 * MANY + 2
    assert len(counts) == 4
    sequences = world.tables.read_changes()["sequence"].to_pylist()
    assert (sequences.count(1), sequences.count(2)) == (2 * MANY + 50, 2), "50 groups have appeared"
    assert parquet_files(world.tables.place_of_changes) == world.files()


@pytest.mark.more
def test_a_file_of_a_task_is_as_one_of_the_driver(world: Query) -> None:
    world.add(*many())
    world.run()
    ours = [file for file in actions(world.tables) if file["num_records"] > 1]
    other = new_tables(world.folder / "other")
    progress = replace(world.tables.progress(), heartbeat=world.now)
    other.append_changes(world.tables.read_changes(), progress, is_batch=True, is_observation=False)
    [theirs] = actions(other)
    assert len(ours) == 2
    for file in ours:
        assert {name for name in file if file[name] is not None} == {
            name for name in theirs if theirs[name] is not None
        }
        assert [file[name] for name in SAME] == [theirs[name] for name in SAME]
        assert facts(world.tables, file) == facts(other, theirs)


SAME = ("partition.day", "min.sequence", "max.sequence", "min.batch_time", "max.batch_time", "max.kind")


def actions(tables: Tables) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pa.table(tables.delta("changes").get_add_actions(flatten=True)).to_pylist()
    return rows


def names_of(file: dict[str, Any]) -> set[str]:
    return {name for name, value in file.items() if value is not None}


def facts(tables: Tables, file: dict[str, Any]) -> list[tuple[Any, ...]]:
    """The columns of a file with their types and encodings."""
    group = pq.ParquetFile(Path(tables.place_of_changes, file["path"])).metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return [(one.path_in_schema, one.physical_type, one.encodings, one.compression) for one in columns]


@pytest.mark.more
@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "an error"])
def test_of_an_attempt_that_dies_with_its_files_written_nothing_is_committed(
    world: Query, is_killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = str(world.folder / "dead")
    world.add(*many())
    monkeypatch.setattr(query, "ReplayShard", lambda *arguments: dying(marker, is_killed, *arguments))
    with pytest.raises(Exception, match=r"Python worker exited|dies here"):
        world.run()
    assert Path(marker).exists()
    assert world.tables.progress().sequence == 0
    left = len(parquet_files(world.tables.place_of_changes))
    assert left <= 1, "the other task may still have been at work"
    world.run()
    assert sum(world.rows_in_files()) == len(world.offsets()) == 2 * MANY
    assert len(parquet_files(world.tables.place_of_changes)) == len(world.files()) + left


def dying(marker: str, is_killed: bool, *arguments: Any) -> ReplayShard:
    """An operator of which the first task dies once all of its results are there."""

    class Dying(ReplayShard):  # within a function: Spark sends it by value
        def handleInputRows(self, *more: Any) -> Iterator[Any]:  # noqa: N802
            import signal

            results = [*super().handleInputRows(*more)]
            try:
                os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                yield from results
                return
            if is_killed:
                os.kill(os.getpid(), signal.SIGKILL)
            raise AssertionError("it dies here")

    return Dying(*arguments)


@pytest.mark.more
def test_a_batch_that_spark_runs_again_after_the_commit_is_compared_and_leaves_no_files(world: Query) -> None:
    world.add(*many())
    world.run()
    before, files = world.tables.delta("changes").version(), parquet_files(world.tables.root)
    (world.folder / "checkpoint" / "commits" / "0").unlink()
    (world.folder / "checkpoint" / "commits" / ".0.crc").unlink(missing_ok=True)
    world.run()
    assert world.tables.delta("changes").version() == before
    assert parquet_files(world.tables.root) == files
    world.add(commit(1, key(1), committed_offset=2))
    world.run()
    assert world.offsets()[1] == 2
    assert world.tables.progress().sequence == 2


@pytest.mark.more
def test_storage_that_refuses_a_task_ends_the_query_with_a_clear_error_and_no_files(
    world: Query,
) -> None:
    world.add(*many())
    day = Path(world.tables.place_of_changes, "day=2023-11-14")
    day.write_text("in the way")
    for _ in range(2):
        with pytest.raises(StreamingQueryException):
            world.run()
        assert world.failure is not None
        said = str(as_failure("running the query", world.failure))
        assert f"writing to {world.tables.place_of_changes}: expected writable storage, found: " in said, said
        assert parquet_files(world.tables.root) == set()
    day.unlink()
    world.run()
    assert len(world.offsets()) == 2 * MANY


def test_a_removal_gets_its_cause_beside_many_rows_that_tasks_write(world: Query) -> None:
    retention = Retention(
        retention_ms=10**9,
        check_interval_ms=5_000,
        source="broker",
        read_at=0,
        known_since=world.now - 100_000,
    )
    at = {"source_timestamp": world.now - 50_000}
    world.add(commit(1, ("g1", "t", 1), committed_offset=1, commit_timestamp=world.now - 60_000))
    world.add(*many(3), commit(1, ("g1", "t", 1), is_tombstone=True, **at))
    world.run(retention)
    rows = world.tables.read_changes().filter(pc.field("op") == "remove").to_pylist()
    assert [(row["group"], row["partition"], row["cause"]) for row in rows] == [("g1", 1, "deleted")]
    of_driver = [file for file in actions(world.tables) if file["num_records"] in range(2, 200)]
    held = [pq.read_table(Path(world.tables.place_of_changes, file["path"])) for file in of_driver]
    assert {name for rows in held for name in rows["group"].to_pylist()} - {None} == {"g1"}
    assert len(world.offsets()) == 2 * MANY - 1


def test_an_executor_with_another_release_replays_nothing(
    world: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add(commit(1, key(1), committed_offset=1))
    monkeypatch.setattr(task_files, "_installed_release", lambda: "9.9.9")  # in the driver alone
    with pytest.raises(StreamingQueryException):
        world.run()
    assert world.failure is not None
    said = str(as_failure("running the query", world.failure))
    assert f"expected offsetlake 9.9.9, as on the driver, found {version('offsetlake')} on " in said
    assert world.tables.progress().sequence == 0


def test_secrets_of_the_storage_are_in_nothing_that_spark_shows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks get what was a reference as this reference, and other secrets by their own environment."""
    options = {
        "aws_region": "eu",
        "aws_access_key_id": Secret("hidden-1", "${env:THE_KEY}"),
        "aws_secret_access_key": "hidden-2",
    }
    world = Query(spark, tmp_path, Tables(str(tmp_path / "tables"), options))
    seen: list[str] = []
    set_property = SparkContext.setLocalProperty

    def see(context: SparkContext, name: str, value: str) -> None:
        seen.append(value)
        set_property(context, name, value)

    monkeypatch.setattr(SparkContext, "setLocalProperty", see)
    world.add(commit(1, key(1), committed_offset=1))
    world.run()
    conf = [*spark.sparkContext.getConf().getAll()]
    assert len(world.offsets()) == 1
    [announced] = [json.loads(text) for text in seen if "storage_options" in text]
    assert announced["batch"]["storage_options"] == {
        "aws_region": "eu",
        "aws_access_key_id": "${env:THE_KEY}",
        "aws_secret_access_key": "${env:_OFFSETLAKE_STORAGE_OPTION_AWS_SECRET_ACCESS_KEY}",
    }
    assert "hidden" not in f"{seen} {conf}"
