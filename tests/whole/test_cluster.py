"""The job on a Spark cluster of two workers, of which one dies, and, with everything on S3, the driver after
it: the tables equal the broker's answers.

Only `make test-cluster` runs this (it sets CLUSTER).
"""

import json
import os
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import kafka_clients as kafka
import pytest
from conftest import BrokerFactory
from group_actors import QUICK, assert_tables_say, start_group_actors, without_forgotten
from history_checks import check_history, check_quarantine, table_offsets
from job_process import JobProcess
from kafka_versions import KafkaVersion
from live_traffic import OFFSETS_PARTITIONS, LiveTraffic, wait_for_markers
from object_store import ObjectStore
from spark_cluster import DRIVER, SparkCluster, settings, start_spark_cluster

from streaming.demo.local_broker import free_ports
from streaming.spark.fold_tasks import TAG
from streaming.tables.folding import ROWS
from streaming.tables.tables import TablesMissingError
from tests.benchmarks.cost.reading import PARTITIONS, fill_offsets_topic
from tests.benchmarks.workloads import Workload

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.skipif("CLUSTER" not in os.environ, reason="`make test-cluster` runs it"),
]

LIMIT_S = 180.0
SECRET = "writer-secret"


def batches(job: JobProcess) -> int:
    """Return how many batches have changed the tables."""
    job.check()
    try:
        return job.tables.progress_if_any().sequence
    except TablesMissingError:
        return 0


def wait_for_batches(job: JobProcess, count: int) -> None:
    """Wait until so many more batches are in the tables."""
    target = batches(job) + count
    kafka.wait_until(lambda: batches(job) >= target, f"batch {target}", timeout_s=LIMIT_S)


def wait_for_work(cluster: SparkCluster, *workers: str) -> None:
    """Wait until each of these workers has run tasks of the job."""
    for name in workers:
        kafka.wait_until(lambda name=name: cluster.has_worked(name), f"tasks on {name}", timeout_s=LIMIT_S)  # type: ignore[misc]


@pytest.mark.timeout(900)
def test_a_worker_of_the_cluster_dies_and_the_tables_equal_the_brokers_answers(
    make_broker: BrokerFactory, kafka_version: KafkaVersion, java_jars: Path, tmp_path: Path
) -> None:
    bootstrap = make_broker(offsets_partitions=OFFSETS_PARTITIONS, overrides=QUICK).bootstrap_servers
    shared = (tmp_path / "checkpoint").as_uri()
    root = (tmp_path / "tables").as_uri()
    job = JobProcess(tmp_path, bootstrap, more_settings=settings(), checkpoint=shared, table_root=root)
    check_failures(job, kafka_version, java_jars, lambda: None)
    assert job.starts == 1


@pytest.mark.timeout(900)
def test_with_checkpoint_and_tables_on_s3_a_worker_dies_and_then_the_driver(
    make_broker: BrokerFactory,
    kafka_version: KafkaVersion,
    java_jars: Path,
    object_store: ObjectStore,
    tmp_path: Path,
) -> None:
    """For the tables the workers have credentials in their own environment."""
    bootstrap = make_broker(offsets_partitions=OFFSETS_PARTITIONS, overrides=QUICK).bootstrap_servers
    [port] = free_ports(1)
    with_ui = f'"spark.ui.enabled" = "true"\n"spark.ui.port" = {port}\n'
    job = JobProcess(
        tmp_path,
        bootstrap,
        more_settings=settings() + with_ui,
        checkpoint=object_store.new_checkpoint(),
        table_root=object_store.new_root(),
        storage_options=object_store.options(),
        environment=object_store.options(),
    )

    def kill_driver() -> None:
        check_secrecy(tmp_path, port)
        job.kill()

    check_failures(job, kafka_version, java_jars, kill_driver)
    assert job.starts == 2
    assert not list(tmp_path.glob("checkpoint*"))


@pytest.mark.timeout(900)
def test_workers_fold_many_rows(make_broker: BrokerFactory, tmp_path: Path) -> None:
    broker = make_broker(offsets_partitions=PARTITIONS, overrides={"log.cleaner.enable": "false"})
    keys = 120_000
    now = int(time.time() * 1_000)
    fill_offsets_topic(
        broker.bootstrap_servers,
        Workload(name="many", records=keys, keys=keys, groups=keys // 50, first_timestamp_ms=now - 1_000_000),
    )
    events = tmp_path / "events"
    events.mkdir()
    log = f'"spark.eventLog.enabled" = true\n"spark.eventLog.dir" = "{events.as_uri()}"\n'
    job = JobProcess(
        tmp_path,
        broker.bootstrap_servers,
        more_settings=settings() + log + '"spark.eventLog.compress" = false\n',
        checkpoint=(tmp_path / "checkpoint").as_uri(),
        table_root=(tmp_path / "tables").as_uri(),
    )
    with start_spark_cluster(tmp_path, "one") as cluster:
        job.start("run", "--once", "--master", cluster.url)
        assert job.wait() == 0, job.output
    assert job.tables.folded_rows("offsets") == keys
    assert job.tables.folded_up_to() == job.tables.progress().sequence
    assert "folds instead" not in job.output
    said = "".join(file.read_text() for file in events.rglob("*") if file.is_file())
    assert all(f"{TAG}{name}" in said for name in ROWS)


def check_failures(
    job: JobProcess, kafka_version: KafkaVersion, java_jars: Path, kill_driver: Callable[[], None]
) -> None:
    """Kill a worker, then perhaps the driver, which is started again, under live traffic."""
    bootstrap = job.bootstrap
    with (
        start_spark_cluster(job.directory, "one", "two", environment=job.environment) as cluster,
        start_group_actors(java_jars, bootstrap) as actors,
    ):
        traffic = LiveTraffic(bootstrap, actors, kafka_version, seed=1)
        try:
            with traffic:
                job.start("run", "--master", cluster.url)
                wait_for_work(cluster, "one", "two")
                wait_for_batches(job, 2)
                cluster.kill("two")
                wait_for_batches(job, 5)
                assert len(cluster.alive()) == 1
                cluster.start_worker("three")
                wait_for_work(cluster, "three")
                wait_for_batches(job, 2)
                kill_driver()
                if not job.is_running:
                    print(job.output)
                    job.start("run", "--master", cluster.url)
                    wait_for_batches(job, 3)
                assert traffic.failure is None
            wait_for_markers(bootstrap)
            answers = kafka.broker_offsets(bootstrap)
            kafka.wait_until(
                lambda: table_offsets(job.tables) == answers, "the tables to catch up", timeout_s=LIMIT_S
            )
            assert job.stop() == 0, job.output
        finally:
            job.kill()
            print(job.output)
        assert_tables_say(job.tables, without_forgotten(actors.groups(), answers))
    assert table_offsets(job.tables) == answers
    check_history(job.tables)
    check_quarantine(job.tables, traffic.unreadable)
    assert job.tables.progress().generation == 0, "a rebuild that nobody asked for"


def check_secrecy(directory: Path, ui_port: int) -> None:
    """Credentials are in no log, on no command line, and not in Spark's UI."""
    ui = f"http://{DRIVER}:{ui_port}"
    [application] = json.loads(text_of(f"{ui}/api/v1/applications"))
    of_ui = f"{ui}/api/v1/applications/{application['id']}"
    pages = [f"{ui}/environment/", f"{of_ui}/environment", f"{of_ui}/sql?details=true&planDescription=true"]
    shown = {page: text_of(page) for page in pages}
    assert any("fs.s3a" in text for text in shown.values())
    logs = {
        str(file): file.read_text(errors="replace")
        for file in [*directory.glob("*.log"), *directory.glob("*.txt"), *directory.glob("*/app-*/*/std*")]
    }
    assert any("app-" in name for name in logs)
    for where, text in {**shown, **logs, **command_lines()}.items():
        assert SECRET not in text, where


def text_of(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


def command_lines() -> dict[str, str]:
    lines = {}
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            lines[str(file)] = file.read_bytes().decode(errors="replace")
    return lines
