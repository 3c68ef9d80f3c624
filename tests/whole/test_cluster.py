"""The job on a Spark cluster of two workers, of which one dies: the tables equal the broker's answers.

Only `make test-cluster` runs this (it sets CLUSTER).
"""

import os
from pathlib import Path

import kafka_clients as kafka
import pytest
from conftest import BrokerFactory
from group_actors import QUICK, assert_tables_say, start_group_actors, without_forgotten
from history_checks import check_history, check_quarantine, table_offsets
from job_process import JobProcess
from kafka_versions import KafkaVersion
from live_traffic import OFFSETS_PARTITIONS, LiveTraffic, wait_for_markers
from spark_cluster import SparkCluster, settings, start_spark_cluster

from streaming.tables.tables import TablesMissingError

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.skipif("CLUSTER" not in os.environ, reason="`make test-cluster` runs it"),
]

LIMIT_S = 180.0


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
    job = JobProcess(tmp_path, bootstrap, more_settings=settings(), checkpoint=shared)
    with (
        start_spark_cluster(tmp_path, "one", "two") as cluster,
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
    assert job.starts == 1
    assert table_offsets(job.tables) == answers
    check_history(job.tables)
    check_quarantine(job.tables, traffic.unreadable)
    assert job.tables.progress().generation == 0, "a rebuild that nobody asked for"
