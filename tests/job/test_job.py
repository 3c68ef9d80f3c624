"""The job against a real broker: what it writes into the tables is what the broker itself answers."""

import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import kafka_clients as kafka
import pyarrow as pa
import pyarrow.compute
import pytest
from deltalake import DeltaTable
from java_records import JavaRecords, records_no_client_writes
from kafka_clients import OffsetTransaction
from processes import descendants
from pyspark.sql import DataFrame, SparkSession
from running_job import RunningJob

from streaming.demo.broker_offsets import CommittedOffset, OffsetKey
from streaming.demo.local_broker import LocalBroker
from streaming.job.follow import follow
from streaming.job.running_query import Gate
from streaming.job.writer import BatchWriter
from streaming.maintenance.lease import LEASE_TRANSACTION
from streaming.model.completeness import Completeness
from streaming.model.errors import MisuseError
from streaming.spark import session
from streaming.spark.checkpoint import STATE_PARTITIONS
from streaming.tables.tables import Tables

pytestmark = [pytest.mark.spark, pytest.mark.broker]

JobFactory = Callable[..., RunningJob]


@pytest.fixture
def make_job(spark: SparkSession, broker: LocalBroker, tmp_path: Path) -> JobFactory:
    """A function that makes a job on the shared broker; it takes the fields of `RunningJob`."""

    def make(**fields: object) -> RunningJob:
        return RunningJob(spark, broker.bootstrap_servers, tmp_path, **fields)  # type: ignore[arg-type]

    return make


def table_offsets(tables: Tables) -> dict[OffsetKey, CommittedOffset]:
    rows = tables.read().offsets.to_pylist()
    return {
        OffsetKey(row["group"], row["topic"], row["partition"]): CommittedOffset(
            row["committed_offset"], row["leader_epoch"], row["metadata"]
        )
        for row in rows
    }


def commit_of_every_kind(bootstrap: str, name: str) -> None:
    """Commits, rewinds, deletions and transactions of several groups, all named after `name`."""
    topic, other = f"{name}-orders", f"{name}-payments"
    kafka.create_topics(bootstrap, {topic: 3, other: 2})
    kafka.commit_offsets(bootstrap, f"{name}-plain", {(topic, 0): 10, (topic, 1): 20})
    kafka.commit_offsets(bootstrap, f"{name}-plain", {(topic, 0): 4})  # a rewind
    for size in (0, 126, 127, 128, 4_096):
        metadata = CommittedOffset(size, metadata="é" * size)
        kafka.alter_offsets(bootstrap, f"{name}-metadata-{size}", {(topic, 2): metadata})
    kafka.alter_offsets(
        bootstrap, f"{name}-ünï-😀", {(topic, 0): CommittedOffset(7, metadata='{"a":"\x00"}')}
    )
    kafka.alter_offsets(bootstrap, "", {(topic, 0): 3, (other, 1): 5})
    kafka.commit_offsets(bootstrap, f"{name}-losing", {(topic, 0): 1, (other, 0): 2})
    kafka.delete_offsets(bootstrap, f"{name}-losing", [(topic, 0)])
    kafka.commit_offsets(bootstrap, f"{name}-deleted", {(topic, 0): 1})
    kafka.delete_group(bootstrap, f"{name}-deleted")
    for offset, end in ((30, OffsetTransaction.commit), (99, OffsetTransaction.abort)):
        transaction = OffsetTransaction(bootstrap, f"{name}-transactional")
        transaction.send(f"{name}-transactional", {(topic, 0): offset})
        end(transaction)


def test_the_tables_equal_the_brokers_answers_across_a_restart(
    make_broker: Callable[..., LocalBroker], spark: SparkSession, tmp_path: Path
) -> None:
    broker = make_broker(offsets_partitions=3)
    job = RunningJob(spark, broker.bootstrap_servers, tmp_path)
    commit_of_every_kind(broker.bootstrap_servers, "first")
    assert table_offsets(job.run_once()) == kafka.broker_offsets(broker.bootstrap_servers)

    commit_of_every_kind(broker.bootstrap_servers, "second")
    kafka.delete_group(broker.bootstrap_servers, "first-plain")
    kafka.commit_offsets(broker.bootstrap_servers, "first-losing", {("first-payments", 0): 1})
    tables = job.run_once()
    expected = kafka.broker_offsets(broker.bootstrap_servers)
    assert table_offsets(tables) == expected
    assert sorted(tables.read().groups["group"].to_pylist()) == sorted({key.group for key in expected})


@pytest.mark.more
def test_an_open_transaction_is_not_seen_until_it_commits(
    make_broker: Callable[..., LocalBroker], spark: SparkSession, tmp_path: Path
) -> None:
    broker = make_broker(offsets_partitions=1)
    bootstrap = broker.bootstrap_servers
    job = RunningJob(spark, bootstrap, tmp_path)
    kafka.create_topics(bootstrap, {"t": 1})
    kafka.commit_offsets(bootstrap, "g", {("t", 0): 1})
    transaction = OffsetTransaction(bootstrap, "g")
    transaction.send("g", {("t", 0): 50})
    kafka.commit_offsets(bootstrap, "h", {("t", 0): 2})

    tables = job.run_once()
    assert {key.group: value.offset for key, value in table_offsets(tables).items()} == {"g": 1}
    progress = tables.progress().partitions[0]
    assert progress.last_stable_offset is not None
    assert progress.high_watermark is not None
    assert progress.position == progress.last_stable_offset < progress.high_watermark
    assert progress.open_transaction_since is not None

    transaction.commit()
    tables = job.run_once()
    assert table_offsets(tables) == kafka.broker_offsets(bootstrap)
    assert tables.progress().partitions[0].open_transaction_since is None


@pytest.mark.more
def test_starting_again_reads_nothing_twice_and_changes_nothing(
    make_job: JobFactory, broker: LocalBroker
) -> None:
    job = make_job()
    kafka.create_topics(broker.bootstrap_servers, {"again": 1})
    kafka.commit_offsets(broker.bootstrap_servers, "again", {("again", 0): 1})
    tables = job.run_once()
    before, rows, counted = tables.read(), len(tables.read_changes()), tables.progress().totals
    job.reports.clear()
    tables = job.run_once()
    after = tables.read()
    assert after.offsets.sort_by("group").equals(before.offsets.sort_by("group"))
    assert len(tables.read_changes()) == rows
    assert tables.progress().totals == counted
    assert sum(report.totals.decoded for report in job.reports) == 0


def test_the_job_follows_live_commits_and_heartbeats_and_maintains_its_tables_when_nothing_comes(
    make_job: JobFactory, broker: LocalBroker
) -> None:
    often = dict.fromkeys(("tables.fold_every", "tables.maintain_every", "expiry.read_every"), "1s")
    job = make_job(options={"job.heartbeat_every": "500ms", **often})
    bootstrap, stop = broker.bootstrap_servers, threading.Event()
    kafka.create_topics(bootstrap, {"live": 1})
    kafka.commit_offsets(bootstrap, "live", {("live", 0): 1})
    job.tables.create()
    running = threading.Thread(target=job.run, args=(stop,))
    running.start()
    try:

        def shown() -> int | None:
            value = table_offsets(job.tables).get(OffsetKey("live", "live", 0))
            return None if value is None else value.offset

        kafka.wait_until(lambda: shown() == 1, "the first commit in the tables", timeout_s=60)
        kafka.commit_offsets(bootstrap, "live", {("live", 0): 2})
        kafka.wait_until(lambda: shown() == 2, "the second commit in the tables", timeout_s=60)
        heartbeat = job.tables.progress().heartbeat
        kafka.wait_until(
            lambda: job.tables.progress().heartbeat > heartbeat + 400, "a heartbeat", timeout_s=20
        )
        kafka.wait_until(lambda: job.tables.progress().batch_ms, "how long a batch took", timeout_s=20)
        kafka.wait_until(
            lambda: job.tables.delta("quarantine").transaction_version(LEASE_TRANSACTION) is not None,
            "a round of maintenance",
            timeout_s=20,
        )

        def read_again() -> bool:
            retention = job.tables.progress().retention
            return retention is not None and retention.read_at > max(heartbeat, retention.known_since)

        kafka.wait_until(read_again, "a later reading of the brokers' settings", timeout_s=20)
        completeness = Completeness(progress=job.tables.progress(), moment=heartbeat)
        assert completeness.of_state("current") == job.tables.progress().partitions.keys()
    finally:
        stop.set()
        running.join(60)
    assert not running.is_alive()
    assert job.tables.unfolded_rows() == 0
    assert not [sentence for sentence in job.said if "maintain" in sentence]


@pytest.mark.more
@pytest.mark.parametrize(("pause_s", "once"), [(3.0, True), (0.0, False)], ids=["long", "stopped after it"])
def test_how_long_a_batch_took_is_what_spark_says(
    make_job: JobFactory, broker: LocalBroker, pause_s: float, once: bool
) -> None:
    job, name, stop = make_job(), f"timed-{pause_s:g}", threading.Event()

    def write(_: object) -> None:
        time.sleep(pause_s)
        if not once:
            stop.set()

    kafka.create_topics(broker.bootstrap_servers, {name: 1})
    kafka.commit_offsets(broker.bootstrap_servers, name, {(name, 0): 1})
    began = time.monotonic()
    with job.reader(stop, on_batch=write) as reader:
        follow(reader, once=once)
    took_s, told_ms = time.monotonic() - began, job.tables.progress().batch_ms
    assert told_ms is not None
    at_least_s = pause_s + job.reports[-1].seconds
    assert at_least_s <= told_ms / 1_000 <= took_s - (len(job.reports) - 1) * pause_s


class Told:
    """A writer that keeps what it is told of durations."""

    def __init__(self) -> None:
        self.durations = list[int]()

    def write(self, batch: DataFrame, _: int) -> None:
        batch.collect()

    def took(self, batch_ms: int) -> None:
        self.durations.append(batch_ms)


@pytest.mark.more
def test_a_trigger_that_found_nothing_is_no_batch(spark: SparkSession, tmp_path: Path) -> None:
    """Spark tells of it under the number of the next batch."""
    folder, interval, writer = tmp_path / "in", "spark.sql.streaming.noDataProgressEventInterval", Told()
    spark.range(1).write.parquet(str(folder))
    gate = Gate(cast(BatchWriter, writer), lambda: False)
    before = spark.conf.get(interval)
    spark.conf.set(interval, "3s")  # so long a batch is what Spark has told last
    try:
        rows = spark.readStream.schema("id LONG").parquet(str(folder))
        query = rows.writeStream.foreachBatch(gate.write).trigger(processingTime="50 milliseconds").start()
        try:

            def told() -> Any:
                return query.lastProgress

            kafka.wait_until(lambda: told() and told().batchId == 1, "a trigger that found nothing")
            gate.report_duration(query)
            assert writer.durations == []
            spark.range(1).write.mode("append").parquet(str(folder))
            kafka.wait_until(lambda: (gate.report_duration(query), writer.durations)[1], "a batch's duration")
        finally:
            query.stop()
    finally:
        spark.conf.set(interval, before)


@pytest.mark.more
def test_a_job_that_finds_nothing_new_says_so(make_job: JobFactory, broker: LocalBroker) -> None:
    kafka.create_topics(broker.bootstrap_servers, {"nothing-new": 1})
    job, stop = make_job(topic="nothing-new"), threading.Event()
    job.run_once()
    running = threading.Thread(target=job.run, args=(stop,))
    running.start()
    try:
        said = "topic nothing-new has nothing new; waiting for commits"
        kafka.wait_until(lambda: said in job.said, "the job to say it", timeout_s=60)
    finally:
        stop.set()
        running.join(60)
    assert not running.is_alive()


def test_a_checkpoint_and_tables_that_do_not_belong_together_are_refused(
    make_job: JobFactory, broker: LocalBroker, tmp_path: Path
) -> None:
    kafka.ensure_offsets_topic(broker.bootstrap_servers)
    kafka.create_topics(broker.bootstrap_servers, {"pair": 1})
    kafka.commit_offsets(broker.bootstrap_servers, "pair", {("pair", 0): 1})
    make_job().run_once()
    for options in (
        {"job.checkpoint": str(tmp_path / "new")},
        {"tables.root": str(tmp_path / "new")},
    ):
        with pytest.raises(MisuseError, match="do not belong together"):
            make_job(options=options).run_once()
    with pytest.raises(MisuseError, match="expected topic __consumer_offsets"):
        make_job(topic="pair").run_once()


@pytest.mark.more
def test_decoding_and_state_take_turns_in_the_same_python_workers(
    make_job: JobFactory, broker: LocalBroker
) -> None:
    kafka.create_topics(broker.bootstrap_servers, {"workers": 1})
    kafka.commit_offsets(broker.bootstrap_servers, "workers", {("workers", 0): 1})
    make_job().run_once()
    daemons = [pid for pid in descendants(os.getpid(), without=broker.pid) if is_daemon_of_workers(pid)]
    assert len(daemons) == 1  # else each of them has workers of its own


@pytest.mark.more
def test_shards_follow_the_checkpoint_and_not_the_setting(
    make_job: JobFactory, broker: LocalBroker, spark: SparkSession
) -> None:
    """Others would be looked for under keys that hold nothing, and every commit would seem the first."""
    kafka.create_topics(broker.bootstrap_servers, {"shards": 20})
    job, groups = make_job(), [f"shards-{number}" for number in range(20)]
    for group in groups:
        kafka.alter_offsets(broker.bootstrap_servers, group, {("shards", 0): CommittedOffset(1)})
    tables = job.run_once()
    first = tables.progress().sequence
    held = spark.conf.get(STATE_PARTITIONS)
    spark.conf.set(STATE_PARTITIONS, int(held or 0) + 3)
    try:
        for group in groups:
            kafka.alter_offsets(broker.bootstrap_servers, group, {("shards", 0): CommittedOffset(2)})
        job.run_once()
    finally:
        spark.conf.set(STATE_PARTITIONS, held)
    assert any(f"state partitions ([job] state_partitions), found {held}" in line for line in job.said)
    rows = tables.delta("changes").to_pyarrow_table(filters=[("sequence", ">", first)]).to_pylist()
    replaced = {row["group"]: row["before"]["committed_offset"] for row in rows if row["group"] in groups}
    assert replaced == dict.fromkeys(groups, 1)


@pytest.mark.more
def test_state_and_tables_are_the_same_whether_spark_interprets_or_generates_code(
    make_broker: Callable[..., LocalBroker],
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a batch of one kind has written, one of the other kind reads; the query's own session is told."""
    bootstrap = make_broker(offsets_partitions=1).bootstrap_servers
    kafka.create_topics(bootstrap, {"t": 3})
    modes, write = [], BatchWriter.write

    def seen(writer: BatchWriter, batch: DataFrame, batch_id: int) -> None:
        modes.append(batch.sparkSession.conf.get("spark.sql.codegen.factoryMode"))
        write(writer, batch, batch_id)

    monkeypatch.setattr(BatchWriter, "write", seen)
    monkeypatch.setattr(session, "MANY_RECORDS", 10)
    job = RunningJob(spark, bootstrap, tmp_path, options={"source.max_records_per_batch": 20})
    for offsets in [1], range(2, 26), [99]:  # few are waiting, many, and few again
        for offset in offsets:
            keys = [("t", number) for number in range(3)]
            kafka.alter_offsets(bootstrap, "g", dict.fromkeys(keys, CommittedOffset(offset)))
        job.run_once()
    rows = job.tables.read_changes().to_pylist()
    assert modes[0] == modes[-1] == "NO_CODEGEN"
    assert set(modes[1:-1]) == {"FALLBACK"}, "already of the first batch it is known how much there is"
    mine = [row for row in rows if row["kind"] == "offset" and row["partition"] == 0]
    assert mine[-1]["after"]["committed_offset"] == 99
    values = [[(row[side] or {}).get("committed_offset") for row in mine] for side in ("before", "after")]
    assert values[0] == [None, *values[1][:-1]], "each batch found what the one before had left"
    assert {offset.offset for offset in table_offsets(job.tables).values()} == {99}


def is_daemon_of_workers(pid: int) -> bool:
    """Tell whether a process is one that workers are forked from, and no worker."""
    by_module = [b"-m", b"streaming.spark.worker_daemon", b"pyspark.worker"]
    return is_command(pid, by_module) and not is_command(parent(pid), by_module)


def is_command(pid: int, arguments: list[bytes]) -> bool:
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1:-1] == arguments


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_bad_records_are_kept_counted_and_stop_nothing(make_job: JobFactory, broker: LocalBroker) -> None:
    bootstrap = broker.bootstrap_servers
    kafka.create_topics(bootstrap, {"copy": 1})
    key = bytes.fromhex("000100016700017400000003")
    good = bytes.fromhex("0003000000000000002a0000000700016d00000000000003e8")
    other_key = bytes.fromhex("000100016800017400000003")
    records = [
        (key, good),  # 0
        (key, good[:-3]),  # 1: cut short
        (b"\xff\xfe", b"garbage"),  # 2: an unknown (negative) type
        (b"\x00", b""),  # 3: no type at all
        (bytes.fromhex("0063000167"), b"\x00\x00"),  # 4: type 99
        (key, b"\x00\x05" + good[2:]),  # 5: a value version of the future
        (other_key, good),  # 6
        (bytes.fromhex("0063000167"), None),  # 7: type 99 again
    ]
    kafka.produce_raw(bootstrap, "copy", records)
    tables = make_job(topic="copy").run_once()

    rows = {row["group"]: row for row in tables.read().offsets.to_pylist()}
    assert rows["g"]["committed_offset"] == 42
    assert rows["g"]["unreadable_source_offset"] == 1
    assert rows["h"]["unreadable_source_offset"] is None
    kept = tables.read_quarantine().sort_by("source_offset")
    assert kept["source_offset"].to_pylist() == [1, 3, 5]
    assert kept["error_kind"].to_pylist() == ["malformed", "malformed", "unsupported_version"]
    assert kept["value"].to_pylist() == [good[:-3], b"", b"\x00\x05" + good[2:]]
    totals = tables.progress().totals
    assert (totals.decoded, totals.malformed) == (2, 2)
    assert [
        (kind.record_type, kind.count, kind.first.offset, kind.last.offset) for kind in totals.unknown
    ] == [
        (-2, 1, 2, 2),
        (1, 1, 5, 5),
        (99, 1, 4, 4),
        (99, 1, 7, 7),  # a tombstone has no version
    ]


@pytest.mark.more
def test_records_in_a_partition_that_is_not_their_groups_are_counted_and_ignored(
    make_job: JobFactory, broker: LocalBroker
) -> None:
    bootstrap = broker.bootstrap_servers
    kafka.create_topics(bootstrap, {"grown": 3})
    right = kafka.partition_of("g", 3)
    key, values = bytes.fromhex("000100016700017400000003"), [offset_value(offset) for offset in range(3)]
    for partition in range(3):
        kafka.produce_raw(bootstrap, "grown", [(key, values[partition])], partition=partition)
    tables = make_job(topic="grown", options={"source.check_partition": "on"}).run_once()
    assert tables.read().offsets["committed_offset"].to_pylist() == [right]
    assert (tables.progress().totals.decoded, tables.progress().totals.wrong_partition) == (1, 2)


def offset_value(offset: int) -> bytes:
    """An offset commit value, version 0."""
    return b"\x00\x00" + offset.to_bytes(8, "big") + b"\x00\x00" + (1_000).to_bytes(8, "big")


@pytest.mark.more
def test_versions_that_no_client_writes_any_more_become_the_same_rows(
    make_job: JobFactory, broker: LocalBroker, java_records: JavaRecords
) -> None:
    kafka.create_topics(broker.bootstrap_servers, {"old-versions": 1})
    records = records_no_client_writes(java_records, group="old", topic="t")
    pairs = [(record.key, record.value) for record in records]
    kafka.produce_raw(broker.bootstrap_servers, "old-versions", pairs)
    tables = make_job(topic="old-versions").run_once()
    snapshot = tables.read()
    rows = {row["partition"]: row for row in snapshot.offsets.to_pylist()}
    for record in records:
        key, value = record.fields["key"], record.fields["value"]["data"]
        if key["type"] == 2:
            continue
        row = rows.pop(key["data"]["partition"])
        assert row["committed_offset"] == value["offset"]
        assert row["metadata"] == value["metadata"]
        assert row["leader_epoch"] == value.get("leaderEpoch")
        assert row["topic_id"] == value.get("topicId")
        assert row["commit_timestamp"] == moment(value["commitTimestamp"])
        expire = value.get("expireTimestamp")
        assert row["expire_timestamp"] == (None if expire is None else moment(expire))
    assert rows == {}
    groups = {row["group"]: row for row in snapshot.groups.to_pylist()}
    assert groups.keys() == {"old", "old-0", "old-1", "old-2", "old-4"}
    assert {row["state"] for name, row in groups.items() if name != "old"} == {"Stable"}
    assert all(len(row["members"]) == 1 for name, row in groups.items() if name != "old")
    assert (groups["old"]["state"], groups["old"]["members"]) == ("Empty", [])
    assert tables.progress().totals.decoded == len(records)


def moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1_000, UTC)


@pytest.mark.more
def test_a_batch_that_changes_and_counts_nothing_is_committed_like_a_heartbeat(
    make_broker: Callable[..., LocalBroker], spark: SparkSession, tmp_path: Path
) -> None:
    bootstrap = make_broker(offsets_partitions=1).bootstrap_servers
    job = RunningJob(spark, bootstrap, tmp_path, options={"job.heartbeat_every": "2m"})
    kafka.create_topics(bootstrap, {"t": 1})
    kafka.commit_offsets(bootstrap, "g", {("t", 0): 1})
    before = job.run_once().progress()
    version = newest_version(job)
    transaction = OffsetTransaction(bootstrap, "aborting")
    transaction.send("g", {("t", 0): 9})
    transaction.abort()
    after = job.run_once().progress()
    moved = after.partitions[0].position - before.partitions[0].position
    assert moved > 0, "the aborted records and their marker were read past"
    assert job.reports[-1].moved == moved, "by a batch"
    assert after.sequence == before.sequence, "as in a heartbeat"
    assert newest_version(job) == version + 5, "its own, and the writer's name and a heartbeat, at both ends"


def newest_version(job: RunningJob) -> int:
    return DeltaTable(f"{job.tables.root}/changes").version()


@pytest.mark.more
def test_changes_hold_values_before_and_after_in_sequence(make_job: JobFactory, broker: LocalBroker) -> None:
    bootstrap = broker.bootstrap_servers
    kafka.create_topics(bootstrap, {"steps": 1})
    job = make_job()
    for offset in (5, 3):
        kafka.commit_offsets(bootstrap, "steps", {("steps", 0): offset})
        job.run_once()
    kafka.delete_group(bootstrap, "steps")
    rows = job.run_once().read_changes()
    mine = rows.filter(pa.compute.equal(rows["group"], "steps")).to_pylist()
    steps = [
        (
            row["op"],
            *((row[side] or {}).get("committed_offset") for side in ("before", "after")),
            row["cause"],
        )
        for row in mine
        if row["kind"] == "offset"
    ]
    assert steps == [("set", None, 5, None), ("set", 5, 3, None), ("remove", 3, None, "deleted")]
    sequences = [row["sequence"] for row in mine]
    assert sequences == sorted(sequences)
    assert [row["op"] for row in mine if row["kind"] == "group"] == ["set", "remove"]
