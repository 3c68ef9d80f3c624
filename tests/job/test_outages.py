"""Brokers that go away, storage that refuses, a topic that is compacted while the job is down: afterwards the
tables equal what the brokers say, and their history is whole."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import kafka_clients as kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from conftest import BrokerFactory
from history_checks import check_history, table_offsets
from job_process import SETTINGS, JobProcess
from pyspark.sql import SparkSession
from running_job import RunningJob
from storage_faults import no_file_larger_than

from decoders import RECORD_TYPES
from decoders.formats.wire import INT16
from streaming.alerts.table import AlertTable
from streaming.common.times import now_ms
from streaming.demo.local_broker import LocalBroker
from streaming.job.follow import follow
from streaming.job.reporter import BatchReport
from streaming.model.errors import OffsetlakeError

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]

Record = tuple[bytes, bytes | None]

LIMIT_S = 90.0


def commit(group: str, offset: int) -> Record:
    fields = {"offset": offset, "leaderEpoch": -1, "metadata": "", "commitTimestamp": 1_000}
    return _key(group), INT16.build(3) + RECORD_TYPES[1].values[3].build(fields)


def _key(group: str) -> bytes:
    return INT16.build(1) + RECORD_TYPES[1].key.build({"group": group, "topic": "t", "partition": 0})


def committed(job: RunningJob | JobProcess) -> dict[str, int]:
    return {key.group: value.offset for key, value in table_offsets(job.tables).items()}


# --- brokers ---------------------------------------------------------------------------------------------

ABSENT = ("Continuing without.", "Waiting for the brokers.")


def has_said(job: RunningJob, *endings: str) -> bool:
    return any(sentence.endswith(endings) for sentence in job.said)


@pytest.mark.more
def test_the_job_outlasts_a_restart_of_the_brokers(
    make_broker: BrokerFactory, spark: SparkSession, tmp_path: Path
) -> None:
    broker = make_broker(offsets_partitions=2)
    bootstrap = broker.bootstrap_servers
    kafka.create_topics(bootstrap, {"t": 1})
    kafka.commit_offsets(bootstrap, "g", {("t", 0): 1})
    often = {"job.heartbeat_every": "500ms", "source.topic_poll_every": "500ms"}
    job, stop = RunningJob(spark, bootstrap, tmp_path, options=often), threading.Event()
    job.tables.create()
    running = threading.Thread(target=job.run, args=(stop,))
    running.start()
    try:
        kafka.commit_offsets(bootstrap, "g", {("t", 0): 3})
        kafka.wait_until(lambda: committed(job) == {"g": 3}, "it", timeout_s=90)
        job.said.clear()
        broker.kill()  # harder on the job than an end in good order, as in `make test-grid`
        kafka.wait_until(lambda: has_said(job, *ABSENT), "the job to notice", timeout_s=90)
        broker.start()
        kafka.wait_until(lambda: has_said(job, "answers again"), "a heartbeat")
        kafka.commit_offsets(bootstrap, "h", {("t", 0): 4})
        kafka.wait_until(lambda: committed(job) == {"g": 3, "h": 4}, "the commit after it", timeout_s=120)
    finally:
        stop.set()
        running.join(120)
    assert not running.is_alive()
    assert table_offsets(job.run_once()) == kafka.broker_offsets(bootstrap)
    check_history(job.tables)
    assert job.tables.progress().generation == 0


@pytest.mark.more
def test_a_topic_that_is_gone_at_a_start_is_waited_for_with_heartbeats_and_alerts(
    broker: LocalBroker, tmp_path: Path
) -> None:
    kafka.create_topics(broker.bootstrap_servers, {"gone": 1})
    kafka.produce_raw(broker.bootstrap_servers, "gone", [commit("g", 1)])
    alerts = '[alerts]\nevaluate_every = "1s"\nbehind_warning = "5s"'
    job = JobProcess(tmp_path, broker.bootstrap_servers, settings=SETTINGS.replace("[alerts]", alerts))
    job.start("run", "--once", "--topic", "gone")
    assert job.wait() == 0, job.output
    kafka.delete_topics(broker.bootstrap_servers, "gone")
    started_at = now_ms()

    def has_evaluated() -> bool:
        return (job.tables.progress().alerts_evaluated_at or 0) > started_at

    job.start("run", "--topic", "gone")
    try:
        kafka.wait_until(has_evaluated, "a heartbeat after an evaluation of alerts", timeout_s=LIMIT_S)
        alerts_of = AlertTable(job.tables)
        kafka.wait_until(
            lambda: "job_behind" in [one.episode.rule for one in alerts_of.read().open_episodes()],
            "an alert",
            timeout_s=LIMIT_S,
        )
        assert "this user may not see it (Describe permission): waiting for it" in job.output
        assert job.tables.progress().partitions[0].unanswered_since is not None
        assert job.stop() == 0, job.output
    finally:
        job.kill()
    assert committed(job) == {"g": 1}


# --- storage ---------------------------------------------------------------------------------------------


@contextmanager
def file_in_place_of(folder: Path) -> Iterator[None]:
    """Let nobody write into a folder, not even root."""
    hidden = folder.with_name("hidden")
    folder.rename(hidden)
    folder.touch()
    yield
    folder.unlink()
    hidden.rename(folder)


@pytest.mark.more
def test_after_a_full_disk_or_a_folder_that_cannot_be_written_the_job_goes_on_where_it_was(
    spark: SparkSession, broker: LocalBroker, tmp_path: Path
) -> None:
    bootstrap = broker.bootstrap_servers
    kafka.create_topics(bootstrap, {"refused": 1})
    job = RunningJob(spark, bootstrap, tmp_path, topic="refused")
    kafka.produce_raw(bootstrap, "refused", [commit("g", 1), commit("h", 1)])
    job.run_once()
    tables = tmp_path / "tables"
    nothing = no_file_larger_than(10)  # of this process; the JVM, which has the checkpoint, may go on
    refusals = [nothing, file_in_place_of(tables / "changes"), file_in_place_of(tables / "offsets")]
    for offset, refusal in enumerate(refusals, start=2):
        kafka.produce_raw(bootstrap, "refused", [commit("g", offset)])
        with refusal, pytest.raises((OffsetlakeError, OSError)) as raised:
            job.run_once()
        print(offset, raised.value)
        job.run_once()
        assert committed(job) == {"g": offset, "h": 1}
    check_history(job.tables)


# --- what becomes of the records between two readings of a batch -----------------------------------------

CrashedJob = Callable[..., RunningJob]


class CrashError(Exception):
    """The end of the job, at once."""


def crash(_report: BatchReport) -> None:
    raise CrashError


@pytest.fixture
def crashed_job(spark: SparkSession, tmp_path: Path) -> CrashedJob:
    """A function that makes a topic of records, by partition, and a job whose first batch is in the tables
    without Spark's knowing it; it takes more settings of the topic."""

    def make(bootstrap: str, topic: str, *records: list[Record], **config: str) -> RunningJob:
        kafka.create_topics(bootstrap, {topic: len(records)}, **config)
        for partition, of_partition in enumerate(records):
            kafka.produce_raw(bootstrap, topic, of_partition, partition=partition)
        job = RunningJob(spark, bootstrap, tmp_path, topic=topic)
        with pytest.raises(OffsetlakeError), job.reader(threading.Event(), on_batch=crash) as reader:
            follow(reader, once=True)
        return job

    return make


@pytest.mark.more
def test_records_deleted_between_the_append_and_the_replay_of_a_batch_lead_to_a_rebuild(
    crashed_job: CrashedJob, broker: LocalBroker
) -> None:
    """What was read is past the beginning of the log, what Spark wants to read again is before it."""
    bootstrap = broker.bootstrap_servers
    job = crashed_job(bootstrap, "deleted-before", [commit("g", 1), commit("h", 1)])
    assert committed(job) == {"g": 1, "h": 1}
    kafka.produce_raw(bootstrap, job.topic, [commit("g", 2)])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([TopicPartition(job.topic, 0, 2)]).values():
        future.result(20)
    job.run_once()
    assert committed(job) == {"g": 2}
    assert any("records that were still to be read are no longer in it" in sentence for sentence in job.said)
    check_history(job.tables)


@pytest.mark.more
def test_a_batch_that_was_compacted_before_its_replay_leads_to_a_rebuild(
    crashed_job: CrashedJob, make_broker: BrokerFactory
) -> None:
    bootstrap = make_broker(overrides={"log.cleaner.backoff.ms": 100}).bootstrap_servers
    compacted = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0"}
    records = [commit("g", 1), commit("h", 1), (_key("i"), None)]
    job = crashed_job(bootstrap, "compacted", records, **compacted)
    assert committed(job) == {"g": 1, "h": 1}

    def first_commit_is_gone() -> bool:
        kafka.produce_raw(bootstrap, job.topic, [commit("g", 2)])  # a new segment each time
        return all(record.offset > 0 for record in kafka.read_raw(bootstrap, job.topic))

    kafka.wait_until(first_commit_is_gone, "the cleaner", timeout_s=60)
    job.run_once()
    assert committed(job) == {"g": 2, "h": 1}
    assert any("has been compacted meanwhile" in sentence for sentence in job.said)
    check_history(job.tables)
    kafka.produce_raw(bootstrap, job.topic, [(_key("g"), None)])
    job.run_once()
    assert committed(job) == {"h": 1}
    check_history(job.tables)


@pytest.mark.more
def test_a_batch_that_is_read_again_as_it_was_is_no_reason_to_rebuild(
    crashed_job: CrashedJob, broker: LocalBroker
) -> None:
    records = [[commit(f"g{partition}-{number}", number) for number in range(20)] for partition in range(2)]
    job = crashed_job(broker.bootstrap_servers, "read-again", *records)
    job.run_once()
    assert job.tables.progress().generation == 0
    check_history(job.tables)
