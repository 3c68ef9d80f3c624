"""The state in the checkpoint: however short the runs, a start replays few changelogs."""

import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import kafka_clients as kafka
import pytest
from processes import descendants
from pyspark.sql import SparkSession
from running_job import RunningJob
from state_files import versions_behind

from streaming.demo.local_broker import LocalBroker
from streaming.spark.session import MIN_DELTAS

pytestmark = [pytest.mark.spark, pytest.mark.broker]


def lose_state_stores(spark: SparkSession) -> None:
    """Close what is open of the state, and end its maintenance, as the end of the process does."""
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()


def end_workers(broker: LocalBroker) -> None:
    """End the Python workers, which may hold the state that Spark would give them; others are forked."""
    processes = descendants(os.getpid(), without=broker.pid)
    pythons = [pid for pid in processes if b"\0streaming.spark.worker_daemon\0" in _read(pid, "cmdline")]
    for pid in pythons:
        if int(_read(pid, "stat").rpartition(b")")[2].split()[1]) in pythons:
            os.kill(pid, signal.SIGKILL)


def _read(pid: int, name: str) -> bytes:
    return Path(f"/proc/{pid}/{name}").read_bytes()


@pytest.mark.more
def test_runs_too_short_for_maintenance_leave_snapshots(
    spark: SparkSession, broker: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.create_topics(broker.bootstrap_servers, {"short-runs": 1})
    job = RunningJob(spark, broker.bootstrap_servers, tmp_path)
    usual = spark.conf.get(MIN_DELTAS)
    spark.conf.set(MIN_DELTAS, 2)
    try:
        behind = []
        for number in range(4):  # without a snapshot the last would have three changelogs to replay, or four
            kafka.commit_offsets(broker.bootstrap_servers, "short-runs", {("short-runs", 0): number})
            job.run_once()
            lose_state_stores(spark)
            behind.append(versions_behind(tmp_path / "checkpoint" / "0"))
    finally:
        spark.conf.set(MIN_DELTAS, usual)
    assert max(behind) <= 2, behind


@pytest.mark.more
def test_state_of_two_runs_is_noticed_and_recreated(
    spark: SparkSession, broker: LocalBroker, tmp_path: Path
) -> None:
    """A snapshot of one run of a batch, and the changelog of what followed another run of it."""
    server, topic = broker.bootstrap_servers, "two-runs"
    kafka.create_topics(server, {topic: 100})
    kafka.commit_offsets(server, topic, {(topic, number): number for number in range(100)})
    job, other = (RunningJob(spark, server, tmp_path / name) for name in ("job", "other"))
    job.run_once()
    kafka.commit_offsets(server, topic, {(topic, 1): 1_000})
    other.run_once()  # whose first batch has this commit, too
    kafka.commit_offsets(server, topic, {(topic, 2): 2_000})
    job.run_once()
    states = [one.root / "checkpoint" / "0" / "state" / "0" for one in (job, other)]
    for file in [
        file for file in states[1].glob("*/**/*") if file.is_file() and "changelog" not in file.name
    ]:
        shutil.copy(file, states[0] / file.relative_to(states[1]))
    end_workers(broker)
    kafka.commit_offsets(server, topic, {(topic, 3): 3_000})
    tables = job.run_once()
    assert any(re.search("rebuilding.*, because .* of two runs", line) for line in job.said), job.said
    committed = {
        row["partition"]: row["committed_offset"] for row in tables.read([topic]).offsets.to_pylist()
    }
    assert committed == {number: number for number in range(100)} | {1: 1_000, 2: 2_000, 3: 3_000}
