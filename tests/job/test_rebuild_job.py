"""The job rebuilds its tables where reading on is not enough, and keeps what the tables said before."""

import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import kafka_clients as kafka
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql import SparkSession
from running_job import RunningJob

from decoders import RECORD_TYPES
from decoders.formats.wire import INT16
from streaming.alerts.table import AlertTable
from streaming.common.times import DAY_MS, now_ms
from streaming.demo.local_broker import LocalBroker
from streaming.expiry.causes import EXPIRED, GONE_WHILE_AWAY
from streaming.job.follow import follow
from streaming.job.rebuild import ASKED_FOR, rebuild, rebuild_as_asked
from streaming.job.writer import BatchWriter
from streaming.model.errors import MisuseError
from streaming.model.progress import Progress, Reached
from streaming.model.schemas import CHANGES
from streaming.spark.checkpoint import DamagedCheckpointError
from streaming.tables.tables import Tables

pytestmark = [pytest.mark.spark, pytest.mark.broker]


Record = tuple[bytes, bytes | None]
JobFactory = Callable[[str], RunningJob]


@pytest.fixture
def make_job(spark: SparkSession, broker: LocalBroker, tmp_path: Path) -> JobFactory:
    """A function that makes a job which reads an ordinary topic, in a folder whose name URLs would escape."""

    def make(topic: str) -> RunningJob:
        return RunningJob(spark, broker.bootstrap_servers, tmp_path / "a job, für #1", topic=topic)

    return make


def commit(group: str, offset: int) -> Record:
    value = RECORD_TYPES[1].values[3]
    fields = {"offset": offset, "leaderEpoch": -1, "metadata": "", "commitTimestamp": 1_000}
    return _key(group), INT16.build(3) + value.build(fields)


def _key(group: str) -> bytes:
    return INT16.build(1) + RECORD_TYPES[1].key.build({"group": group, "topic": "t", "partition": 0})


def committed(job: RunningJob) -> dict[str, int]:
    offsets = job.tables.read().offsets
    return dict(zip(offsets["group"].to_pylist(), offsets["committed_offset"].to_pylist(), strict=True))


def alerted(job: RunningJob) -> set[str | None]:
    """The groups of all alerts so far."""
    return {told.episode.finding.group for told in AlertTable(job.tables).read().episodes()}


def admin(job: RunningJob) -> AdminClient:
    return AdminClient({"bootstrap.servers": job.bootstrap})


def delete_records_before(job: RunningJob, offset: int) -> None:
    client = admin(job)
    for future in client.delete_records([TopicPartition(job.topic, 0, offset)]).values():
        future.result(20)


def add_partitions(job: RunningJob, count: int) -> None:
    client = admin(job)
    client.create_partitions([NewPartitions(job.topic, count)])[job.topic].result(20)


def make_anew(job: RunningJob, count: int) -> None:
    kafka.delete_topics(job.bootstrap, job.topic)
    kafka.wait_until(lambda: job.topic not in admin(job).list_topics().topics, "the topic to be gone")
    kafka.create_topics(job.bootstrap, {job.topic: count})


def read_to_the_end(progress: Progress, *, at: int) -> Progress:
    """What a rebuild would have said that was stopped so long ago, at the end of the topic as it was then."""
    partitions = {
        number: replace(partition, stable=Reached(as_of=at), whole=Reached(as_of=at))
        for number, partition in progress.partitions.items()
    }
    return replace(progress, partitions=partitions, heartbeat=at)


@pytest.mark.more
def test_a_position_before_the_beginning_of_the_log_leads_to_a_rebuild_without_ghosts(
    make_job: JobFactory,
) -> None:
    job = make_job("cut-off")
    kafka.create_topics(job.bootstrap, {job.topic: 1})
    kafka.produce_raw(job.bootstrap, job.topic, [commit("stays", 1), commit("goes", 2), commit("moves", 3)])
    job.run_once()
    before = job.tables.progress()
    # what the job missed: `goes` is removed, and compaction has left neither its commit nor the tombstone
    kafka.produce_raw(
        job.bootstrap, job.topic, [(_key("goes"), None), commit("stays", 1), commit("moves", 9)]
    )
    delete_records_before(job, 4)
    job.run_once()

    assert committed(job) == {"stays": 1, "moves": 9}
    assert any("begins at offset 4" in line for line in job.said)
    after = job.tables.progress()
    assert (before.generation, after.generation, after.rebuild) == (0, 1, None)
    assert after.query_id != before.query_id
    step = [row for row in job.tables.read_changes().to_pylist() if row["sequence"] > before.sequence]
    assert {(row["kind"], row["group"], row["op"], row["cause"]) for row in step} == {
        ("offset", "goes", "remove", GONE_WHILE_AWAY),
        ("group", "goes", "remove", None),
        ("offset", "stays", "set", None),  # from another record of the log
        ("offset", "moves", "set", None),
    }
    assert len({row["sequence"] for row in step}) == 1
    assert job.tables.aside().existing() == []
    assert not (Path(job.settings.job.checkpoint) / "0").exists()

    kafka.produce_raw(job.bootstrap, job.topic, [commit("new", 5)])
    assert committed(job) == {"stays": 1, "moves": 9}
    job.run_once()
    assert committed(job) == {"stays": 1, "moves": 9, "new": 5}
    assert job.tables.progress().generation == 1


def test_spark_ends_after_the_last_reading_and_before_the_last_fold_and_alerts(make_job: JobFactory) -> None:
    job = replace(make_job("last"), options={"expiry.retention": "7d"})
    ends = list[tuple[int, bool, set[str | None]]]()

    def end_spark() -> None:
        tables = job.tables
        ends.append((tables.progress().generation, tables.unfolded_rows() > 0, alerted(job)))

    def run_once() -> None:
        with job.reader(threading.Event()) as reader:
            follow(replace(reader, end_spark=end_spark), once=True)
        assert job.tables.unfolded_rows() == 0

    kafka.create_topics(job.bootstrap, {job.topic: 1})
    kafka.produce_raw(job.bootstrap, job.topic, [commit("a", 1)])
    run_once()
    assert alerted(job) == {"a"}
    kafka.produce_raw(job.bootstrap, job.topic, [commit("b", 2)])
    add_partitions(job, 3)  # leads to a rebuild, which needs Spark, too
    run_once()
    assert ends == [(0, True, set()), (1, True, {"a", "b"})]
    assert committed(job) == {"a": 1, "b": 2}


@pytest.mark.more
def test_a_topic_recreated_with_more_partitions_leads_to_a_rebuild(make_job: JobFactory) -> None:
    job = make_job("anew")
    kafka.create_topics(job.bootstrap, {job.topic: 1})
    kafka.produce_raw(job.bootstrap, job.topic, [commit("a", 1), commit("b", 2)])
    job.run_once()
    add_partitions(job, 3)
    job.run_once()
    assert any("has 3 partitions, and had 1" in line for line in job.said)
    assert committed(job) == {"a": 1, "b": 2}
    assert len(job.tables.progress().partitions) == 3

    make_anew(job, 3)
    kafka.produce_raw(job.bootstrap, job.topic, [commit("b", 2), commit("b", 3), commit("c", 4)])
    job.run_once()
    assert any("was deleted and recreated" in line for line in job.said)
    assert committed(job) == {"b": 3, "c": 4}
    assert job.tables.progress().generation == 2


@pytest.mark.more
def test_a_rebuild_that_is_interrupted_is_taken_up_again_and_shows_nothing_half(
    make_job: JobFactory,
) -> None:
    job = make_job("interrupted")
    kafka.create_topics(job.bootstrap, {job.topic: 1})
    kafka.produce_raw(job.bootstrap, job.topic, [commit("a", 1), commit("b", 2)])
    job.run_once()
    kafka.produce_raw(job.bootstrap, job.topic, [commit("a", 7)])
    stop = threading.Event()
    job.reports.clear()
    with job.reader(stop, on_batch=lambda _report: stop.set()) as reader:
        assert not rebuild(reader, ASKED_FOR)

    assert committed(job) == {"a": 1, "b": 2}
    noted = job.tables.progress().rebuild
    assert noted is not None
    assert noted.reason == ASKED_FOR
    query_id = job.tables.aside().progress().query_id
    job.run_once()
    assert committed(job) == {"a": 7, "b": 2}
    assert job.tables.progress().rebuild is None
    assert job.tables.progress().query_id == query_id, "it was begun again instead of taken up"


def interrupted(job: RunningJob, expected: dict[str, int]) -> None:
    """Rebuild the tables of a job until its first batch is there, and stop."""
    stop = threading.Event()
    with job.reader(stop, on_batch=lambda _report: stop.set()) as reader:
        assert not rebuild(reader, ASKED_FOR)
    assert committed(job) == expected
    assert job.tables.aside().progress().partitions[0].position > 0


@pytest.mark.more
def test_an_interrupted_rebuild_begins_again_where_the_topic_has_more_partitions(
    make_job: JobFactory,
) -> None:
    job = make_job("more-meanwhile")
    kafka.create_topics(job.bootstrap, {job.topic: 2})
    kafka.produce_raw(job.bootstrap, job.topic, [commit("a", 1)])
    job.run_once()
    interrupted(job, {"a": 1})
    add_partitions(job, 3)
    kafka.produce_raw(job.bootstrap, job.topic, [commit("b", 2)], partition=2)
    job.run_once()
    assert committed(job) == {"a": 1, "b": 2}
    assert (job.tables.progress().generation, len(job.tables.progress().partitions)) == (1, 3)
    assert any("had 2 when" in line and "starts over" in line for line in job.said)


@pytest.mark.more
def test_an_interrupted_rebuild_of_a_topic_that_was_recreated_shows_no_ghosts(make_job: JobFactory) -> None:
    job = make_job("anew-meanwhile")
    kafka.create_topics(job.bootstrap, {job.topic: 1})
    kafka.produce_raw(job.bootstrap, job.topic, [commit("a", 1)])
    job.run_once()
    interrupted(job, {"a": 1})
    make_anew(job, 1)
    kafka.produce_raw(job.bootstrap, job.topic, [commit("b", 2), commit("b", 3), commit("b", 4)])
    job.run_once()
    assert committed(job) == {"b": 4}
    assert job.tables.progress().generation == 1


@pytest.mark.more
def test_an_interrupted_rebuild_begins_again_after_longer_than_tombstones_are_kept(
    make_job: JobFactory,
) -> None:
    job = make_job("late-meanwhile")
    kafka.create_topics(job.bootstrap, {job.topic: 1})
    kafka.produce_raw(job.bootstrap, job.topic, [commit("goes", 1), commit("stays", 1)])
    job.run_once()
    interrupted(job, {"goes": 1, "stays": 1})
    # what compaction leaves of the removal of `goes`: nothing, and a log that ends later
    delete_records_before(job, 2)
    kafka.produce_raw(job.bootstrap, job.topic, [commit("stays", 1)])
    aside, late = job.tables.aside(), now_ms() - 2 * DAY_MS
    aside.append_changes(CHANGES.empty_table(), read_to_the_end(aside.progress(), at=late), is_batch=False)
    job.run_once()
    assert committed(job) == {"stays": 1}
    assert any("longer ago than tombstones are retained" in line for line in job.said)
    assert job.tables.progress().generation == 1


@pytest.mark.more
def test_partitions_that_are_added_while_the_job_follows_lead_to_one_rebuild(make_job: JobFactory) -> None:
    job = make_job("more-while-following")
    job.options["job.check_topic_every"] = "300ms"
    kafka.create_topics(job.bootstrap, {job.topic: 2})
    kafka.produce_raw(job.bootstrap, job.topic, [commit("a", 1)])
    stop = threading.Event()
    running = threading.Thread(target=job.run, args=(stop,))
    job.tables.create()
    running.start()
    try:
        kafka.wait_until(lambda: committed(job) == {"a": 1}, "the first commit", timeout_s=60)
        add_partitions(job, 3)
        kafka.produce_raw(job.bootstrap, job.topic, [commit("b", 2)], partition=2)
        kafka.wait_until(lambda: committed(job) == {"a": 1, "b": 2}, "the new partition", timeout_s=60)
        kafka.produce_raw(job.bootstrap, job.topic, [commit("b", 3)], partition=2)
        kafka.wait_until(lambda: committed(job) == {"a": 1, "b": 3}, "what comes after", timeout_s=60)
    finally:
        stop.set()
        running.join(60)
    assert job.tables.progress().generation == 1
    assert sum("rebuilding, because" in line for line in job.said) == 1


def test_a_lost_checkpoint_is_recreated_on_request(make_job: JobFactory, tmp_path: Path) -> None:
    job = make_job("lost")
    kafka.create_topics(job.bootstrap, {job.topic: 1})
    kafka.produce_raw(job.bootstrap, job.topic, [commit("a", 1)])
    job.run_once()
    (Path(job.settings.job.checkpoint)).rename(tmp_path / "elsewhere")
    with pytest.raises(MisuseError, match="offsetlake rebuild"):
        job.run_once()
    moved = replace(job, options={"job.checkpoint": str(tmp_path / "elsewhere")})
    kafka.produce_raw(job.bootstrap, job.topic, [commit("a", 1)])
    with pytest.raises(MisuseError, match=r"checkpoint/0/state.* A checkpoint cannot be moved"):
        moved.run_once()
    kafka.produce_raw(job.bootstrap, job.topic, [commit("a", 2)])
    for generation, files in enumerate(
        ({"metadata": ""}, {"metadata": "{}", ".metadata.crc": "crc\0 of other bytes"})
    ):
        folder = Path(job.settings.job.checkpoint, str(generation))
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text)
    with pytest.raises(
        DamagedCheckpointError, match="expected the file metadata as Spark has written it, found ''"
    ):
        job.run_once()
    with job.reader(threading.Event()) as reader:
        with pytest.raises(DamagedCheckpointError, match="another checksum"):
            reader.checkpoint(1).query_id()
        rebuild_as_asked(reader)
    assert committed(job) == {"a": 2}
    kafka.produce_raw(job.bootstrap, job.topic, [commit("a", 3)])
    job.run_once()
    assert committed(job) == {"a": 3}


def test_tables_older_than_their_checkpoint_are_rebuilt(make_job: JobFactory, tmp_path: Path) -> None:
    job = make_job("older")
    kafka.create_topics(job.bootstrap, {job.topic: 1})
    kafka.produce_raw(job.bootstrap, job.topic, [commit("a", 1)])
    job.run_once()
    shutil.copytree(job.tables.root, tmp_path / "backup")
    kafka.produce_raw(job.bootstrap, job.topic, [commit("b", 2)])
    job.run_once()
    shutil.rmtree(job.tables.root)
    shutil.copytree(tmp_path / "backup", job.tables.root)
    kafka.produce_raw(job.bootstrap, job.topic, [commit("c", 3)])
    job.run_once()
    assert committed(job) == {"a": 1, "b": 2, "c": 3}
    assert job.tables.progress().generation == 1
    assert any("they have partition 0 of topic older up to offset 1" in line for line in job.said)
    job.run_once()
    assert job.tables.progress().generation == 1


@pytest.mark.more
def test_a_kill_after_a_batch_of_markers_alone_needs_no_rebuild(make_job: JobFactory) -> None:
    """The checkpoint has completed the batch; a heartbeat after it is not awaited."""
    job = make_job("markers")
    kafka.create_topics(job.bootstrap, {job.topic: 1})
    kafka.produce_raw(job.bootstrap, job.topic, [commit("a", 1)])
    job.run_once()
    producer = Producer({"bootstrap.servers": job.bootstrap, "transactional.id": "aborts"})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(job.topic, key=commit("b", 2)[0], value=commit("b", 2)[1])
    producer.flush(20)
    producer.abort_transaction(20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BatchWriter, "heartbeat", lambda *_args, **_more: None)
        job.run_once()
    with job.reader(threading.Event()) as reader:
        end = reader.checkpoint(0).end(job.topic)
    assert end[0] == job.tables.progress().partitions[0].position == 3
    job.run_once()
    assert job.tables.progress().generation == 0


@pytest.mark.more
def test_the_checkpoint_of_other_tables_is_not_deleted(make_job: JobFactory, tmp_path: Path) -> None:
    job = make_job("shared")
    kafka.create_topics(job.bootstrap, {job.topic: 1})
    kafka.produce_raw(job.bootstrap, job.topic, [commit("a", 1)])
    job.run_once()
    other = replace(job, options={"tables.root": str(tmp_path / "others")})
    other_tables = Tables(other.settings.tables.root)
    with pytest.raises(MisuseError, match=r"tables are new: .* checkpoint of their own \(--checkpoint\)"):
        other.run_once()
    with (
        other.reader(threading.Event()) as reader,
        pytest.raises(MisuseError, match=r"expected no checkpoint of other tables.*\(--checkpoint\)"),
    ):
        rebuild_as_asked(reader)
    assert other_tables.progress_if_any() == Progress(), "it does not even say that it is being rebuilt"
    kafka.produce_raw(job.bootstrap, job.topic, [commit("a", 2)])
    job.run_once()
    assert committed(job) == {"a": 2}
    own = replace(other, options={**other.options, "job.checkpoint": str(tmp_path / "own")})
    with own.reader(threading.Event()) as reader:
        rebuild_as_asked(reader)
    own.run_once()
    assert other_tables.read().offsets["committed_offset"].to_pylist() == [2]


@pytest.mark.more
def test_an_offset_that_was_due_while_the_job_was_away_has_probably_expired(
    spark: SparkSession, broker: LocalBroker, tmp_path: Path
) -> None:
    job = RunningJob(spark, broker.bootstrap_servers, tmp_path)
    kafka.create_topics(job.bootstrap, {"due": 1})
    kafka.commit_with_retention(job.bootstrap, "rebuilt-due", {("due", 0): 5}, retention_ms=1)
    kafka.alter_offsets(job.bootstrap, "rebuilt-not-due", {("due", 0): 5})
    job.run_once()
    for group in ("rebuilt-due", "rebuilt-not-due"):
        kafka.delete_offsets(job.bootstrap, group, [("due", 0)])
    with job.reader(threading.Event()) as reader:
        rebuild_as_asked(reader)
    rows = job.tables.read_changes().to_pylist()
    causes = {row["group"]: row["cause"] for row in rows if row["topic"] == "due" and row["op"] == "remove"}
    assert causes == {"rebuilt-due": EXPIRED, "rebuilt-not-due": GONE_WHILE_AWAY}
