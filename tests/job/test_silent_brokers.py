"""Brokers that take connections and do not answer (SIGSTOP): silence is no answer, and it is said."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kafka_clients as kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from conftest import BrokerFactory
from pyspark.sql import SparkSession
from running_job import RunningJob
from test_rebuild_job import commit, committed

from streaming.brokers.broker import QUICK_TIMEOUT_S, Broker
from streaming.brokers.facts import BrokerError
from streaming.brokers.retention import RetentionReader
from streaming.common.times import now_ms
from streaming.demo.local_broker import LocalBroker, free_ports
from streaming.job.follow import follow
from streaming.job.housekeeping import Housekeeping
from streaming.job.topic.watch import TopicWatch
from streaming.job.writer import BatchWriter
from streaming.model.completeness import Completeness
from streaming.model.progress import PartitionProgress, Progress
from streaming.settings.reading import read_settings
from streaming.tables.tables import Tables

pytestmark = pytest.mark.broker

TOPIC = "watched"
OFTEN = {"job.heartbeat_every": "400ms", "source.topic_poll_every": "300ms", "job.check_topic_every": "1s"}


def broker_at(bootstrap: str) -> Broker:
    options = {"source.bootstrap_servers": bootstrap, "source.topic": TOPIC}
    return Broker(read_settings(options=options).source)


@contextmanager
def frozen(broker: LocalBroker) -> Iterator[None]:
    """Let a broker keep its connections, take new ones, and answer none."""
    os.kill(broker.pid, signal.SIGSTOP)
    kafka.wait_until(lambda: states_of_threads(broker.pid) == {"T"}, "all its threads to stand still")
    try:
        yield
    finally:
        os.kill(broker.pid, signal.SIGCONT)


def states_of_threads(pid: int) -> set[str]:
    stats = [file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/stat")]
    return {stat.rpartition(")")[2].split()[0] for stat in stats}


def wait_for_leaders(broker: Broker, count: int) -> None:
    def all_answer() -> bool:
        try:
            return len(broker.ends(count)) == count
        except BrokerError:  # a leader of a new topic may take longer than a quick answer may
            return False

    kafka.wait_until(all_answer, "the leaders of all partitions to answer")


def answers(watch: TopicWatch) -> bool:
    try:
        return watch.now() is not None
    except BrokerError:
        return False


@pytest.mark.more
def test_brokers_that_hang_are_named_by_their_partitions_and_give_no_end(make_broker: BrokerFactory) -> None:
    first = make_broker(overrides={"broker.session.timeout.ms": 60_000})
    second = make_broker(overrides=of_second_broker(first))
    bootstrap = first.bootstrap_servers
    kafka.create_topics(bootstrap, {TOPIC: 4})
    broker = broker_at(bootstrap)
    watch = TopicWatch(broker, TOPIC, pause_ms=1_000)
    wait_for_leaders(broker, 4)
    topics = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=10).topics
    led = {number for number, one in topics[TOPIC].partitions.items() if one.leader == 2}
    assert 0 < len(led) < 4
    with frozen(second):
        assert set(broker.ends(4)) == {0, 1, 2, 3} - led
        with pytest.raises(BrokerError):
            watch.now(1.0)
        with frozen(first):
            began = time.monotonic()
            with pytest.raises(BrokerError, match="Timed out"):
                broker.ends(4)
            assert time.monotonic() - began < 3 * QUICK_TIMEOUT_S  # the leaders, then their ends
            with pytest.raises(BrokerError):
                watch.now(1.0)
            assert watch.reason_to_rebuild(Progress(topic=TOPIC)) is None
    kafka.wait_until(lambda: answers(watch), "them to answer again")
    wait_for_leaders(broker, 4)
    second.kill()  # in good order each would wait for the other
    first.kill()


@pytest.mark.more
def test_what_other_leaders_answer_counts_while_a_partition_has_none(make_broker: BrokerFactory) -> None:
    """Its broker is gone: for days, perhaps. Meanwhile groups may belong to other partitions."""
    first = make_broker()
    second = make_broker(overrides=of_second_broker(first, session_ms=6_000))
    kafka.create_topics(first.bootstrap_servers, {TOPIC: 4})
    broker = broker_at(first.bootstrap_servers)
    watch = TopicWatch(broker, TOPIC, pause_ms=1_000)
    wait_for_leaders(broker, 4)
    second.kill()
    read = Progress(topic=TOPIC, partitions={number: PartitionProgress() for number in range(3)})
    kafka.wait_until(lambda: watch.reason_to_rebuild(read) is not None, "the other leader to be enough")
    assert "has 4 partitions, and had 3" in str(watch.reason_to_rebuild(read))
    assert 0 < len(broker.ends(4)) < 4
    with pytest.raises(BrokerError, match="from the leader of each partition"):
        watch.now()
    first.kill()


def of_second_broker(first: LocalBroker, session_ms: int = 60_000) -> dict[str, str | int]:
    """Settings of a broker that belongs to the cluster of another one, which has the controller."""
    lines = (first.directory / "server.properties").read_text().splitlines()
    told = dict(line.split("=", 1) for line in lines)
    [port] = free_ports(1)
    address = f"PLAINTEXT://127.0.0.1:{port}"
    return {
        "process.roles": "broker",
        "node.id": 2,
        "controller.quorum.voters": told["controller.quorum.voters"],
        "listeners": address,
        "advertised.listeners": address,
        "broker.session.timeout.ms": session_ms,
    }


# --- the job ---------------------------------------------------------------------------------------------


@contextmanager
def following(job: RunningJob) -> Iterator[None]:
    """Let a job follow its topic on a thread."""
    stop = threading.Event()
    job.tables.create()
    running = threading.Thread(target=job.run, args=(stop,))
    running.start()
    try:
        yield
    finally:
        stop.set()
        running.join(120)
    assert not running.is_alive()


@pytest.mark.more
@pytest.mark.spark
@pytest.mark.slow
def test_silence_is_said_and_shown_and_never_read_as_an_end(
    make_broker: BrokerFactory,
    spark: SparkSession,
    tmp_path: Path,
    offsetlake: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running = make_broker()
    bootstrap = running.bootstrap_servers
    kafka.create_topics(bootstrap, {TOPIC: 1})
    kafka.produce_raw(bootstrap, TOPIC, [commit("g", 1)])
    job = RunningJob(spark, bootstrap, tmp_path, topic=TOPIC, options=dict(OFTEN))
    for name, value in (
        ("TABLES_COMPLETE_WITHIN", "6s"),
        ("JOB_HEARTBEAT_EVERY", "400ms"),
        ("JOB_TRIGGER", "200ms"),
    ):
        monkeypatch.setenv(f"OFFSETLAKE_{name}", value)
    status = ("status", "--table-root", job.settings.tables.root, "--max-age", "1m", "--require-complete")

    def partition() -> PartitionProgress:
        return job.tables.progress().partitions[0]

    def state() -> str:
        return Completeness(progress=job.tables.progress(), moment=now_ms(), within_ms=6_000).state(0)

    with following(job):
        kafka.wait_until(lambda: committed(job) == {"g": 1} and partition().behind == 0, "it", timeout_s=60)
        # a first batch of more than 6 s makes the answer before it old, until the next heartbeat
        kafka.wait_until(lambda: state() == "current", "the next answer to be noted")
        assert offsetlake(*status).code == 0
        with frozen(running):
            began = now_ms()
            kafka.wait_until(lambda: partition().unanswered_since is not None, "it to be noted")
            kafka.wait_until(lambda: state() == "unanswered", "the last answer to be old")
            assert any(line.endswith("Continuing without.") for line in job.said)
            ended = offsetlake(*status)
            assert ended.code == 1
            assert "have not answered for offsets partitions 0 since" in ended.err
            assert "-1001" not in ended.out
            shown = offsetlake(*status[:3], "--output", "json")
            [row] = json.loads(shown.out)
            assert (row["state"], row["last_stable_offset"], row["behind"]) == ("unanswered", None, None)
            assert partition().stable.as_of is not None
            assert partition().stable.as_of < began + 500
        kafka.produce_raw(bootstrap, TOPIC, [commit("g", 2)])
        kafka.wait_until(lambda: committed(job) == {"g": 2}, "the commit after it", timeout_s=60)
        kafka.wait_until(lambda: state() == "current", "the answer to be noted")
    assert any(line.endswith("answers again") for line in job.said)
    assert job.tables.progress().generation == 0


@pytest.mark.more
@pytest.mark.usefixtures("silent")
def test_answers_that_took_long_say_what_was_then_and_not_what_is_now(
    make_broker: BrokerFactory, tmp_path: Path
) -> None:
    running = make_broker()
    bootstrap = running.bootstrap_servers
    kafka.create_topics(bootstrap, {TOPIC: 1})
    broker, tables = broker_at(bootstrap), Tables(str(tmp_path))
    wait_for_leaders(broker, 1)
    tables.create()
    progress = Progress(topic=TOPIC).with_ends(broker.ends(1), now_ms())
    writer = BatchWriter(
        tables, progress, query_id=lambda: None, positions=lambda _: {}, report=lambda _: None
    )
    settings = read_settings(options={"source.bootstrap_servers": bootstrap, "source.topic": TOPIC})
    watch = TopicWatch(broker, TOPIC, pause_ms=1_000)
    retention = RetentionReader(broker, settings)
    house = Housekeeping(writer, broker, watch, retention, settings)
    with frozen(running):
        began = now_ms()
        beating = threading.Thread(target=house.heartbeat)
        beating.start()
        time.sleep(1.5)  # shorter than a heartbeat waits
    thawed = now_ms()
    beating.join(10)
    written = tables.progress()
    assert written.heartbeat >= thawed
    as_of = written.partitions[0].stable.as_of
    assert as_of is not None
    assert as_of < began + 1_000


@pytest.mark.more
@pytest.mark.spark
@pytest.mark.slow
def test_what_is_asked_before_reading_is_asked_until_it_is_answered(
    make_broker: BrokerFactory, spark: SparkSession, tmp_path: Path, said: list[str]
) -> None:
    """Reading on from where the tables are would leave a ghost: `goes` was removed without a trace."""
    running = make_broker()
    bootstrap = running.bootstrap_servers
    kafka.create_topics(bootstrap, {TOPIC: 1})
    kafka.produce_raw(bootstrap, TOPIC, [commit("goes", 1), commit("stays", 1)])
    job = RunningJob(spark, bootstrap, tmp_path, topic=TOPIC, options=dict(OFTEN))
    job.run_once()
    kafka.produce_raw(bootstrap, TOPIC, [commit("stays", 1), commit("stays", 2)])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([TopicPartition(TOPIC, 0, 3)]).values():
        future.result(20)
    with job.reader(threading.Event()) as reader:
        reading = threading.Thread(target=lambda: follow(reader, once=True))
        with frozen(running):
            reading.start()
            kafka.wait_until(
                lambda: any(line.endswith("Waiting for the brokers.") for line in said), "it", timeout_s=30
            )
            kafka.wait_until(
                lambda: job.tables.progress().partitions[0].unanswered_since is not None, "it to be shown"
            )
        reading.join(90)
    assert not reading.is_alive()
    assert committed(job) == {"stays": 2}
    assert job.tables.progress().generation == 1
