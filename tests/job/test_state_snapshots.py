"""The state in the checkpoint: however short the runs, a start replays few changelogs."""

from pathlib import Path
from typing import Any

import kafka_clients as kafka
import pytest
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


def test_runs_too_short_for_maintenance_leave_snapshots(
    spark: SparkSession, broker: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.create_topics(broker.bootstrap_servers, {"short-runs": 1})
    job = RunningJob(spark, broker.bootstrap_servers, tmp_path)
    usual = spark.conf.get(MIN_DELTAS)
    spark.conf.set(MIN_DELTAS, 2)
    try:
        behind = []
        for number in range(6):
            kafka.commit_offsets(broker.bootstrap_servers, "short-runs", {("short-runs", 0): number})
            job.run_once()
            lose_state_stores(spark)
            behind.append(versions_behind(tmp_path / "checkpoint" / "0"))
    finally:
        spark.conf.set(MIN_DELTAS, usual)
    assert max(behind) <= 2, behind
