"""Alerts of a job on a real broker: a transaction that stays open is told, and is not taken for expiry."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kafka_clients as kafka
import pytest
from kafka_clients import OffsetTransaction
from pyspark.sql import SparkSession
from running_job import RunningJob

from streaming.common.times import now_ms
from streaming.demo.local_broker import LocalBroker

pytestmark = [pytest.mark.spark, pytest.mark.broker]


def told(job: RunningJob) -> list[tuple[str, str, str | None]]:
    """Rule, event and group of the lines of JSON that the job has printed."""
    alerts: list[dict[str, Any]] = [json.loads(line)["alert"] for line in job.said if line.startswith("{")]
    return [(alert["rule"], alert["event"], alert["group"]) for alert in alerts]


def test_transaction_left_open_past_the_retention(
    make_broker: Callable[..., LocalBroker],
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    bootstrap = make_broker(offsets_partitions=1).bootstrap_servers
    kafka.create_topics(bootstrap, {"t": 1})
    kafka.commit_offsets(bootstrap, "g", {("t", 0): 1})
    transaction = OffsetTransaction(bootstrap, "g")
    transaction.send("g", {("t", 0): 50})
    options = {
        "tables.complete_within": "1500ms",  # of seconds instead of minutes
        "alerts.evaluate_every": "300ms",
        "job.heartbeat_every": "300ms",
        "expiry.retention": "2s",  # for the prediction only: the broker keeps offsets for a week
    }
    job, stop = RunningJob(spark, bootstrap, tmp_path, options=options), threading.Event()
    running = threading.Thread(target=job.run, args=(stop,))
    running.start()
    try:
        stalled = [("partition_stalled", "opened", None)]
        kafka.wait_until(lambda: bool(told(job)), "the first alert", timeout_s=120)
        assert told(job) == stalled
        kafka.commit_offsets(bootstrap, "g", {("t", 0): 2})  # which nobody can see yet
        kafka.wait_until(lambda: age_of_commit(job) > 4_000, "the retention to pass")
        assert told(job) == stalled
        transaction.commit()
        expected = {("partition_stalled", "closed", None), ("offset_expiring", "opened", "g")}
        kafka.wait_until(lambda: expected <= set(told(job)), "the alert about the group", timeout_s=60)
        assert job.tables.progress().alerts_evaluated_at is not None  # as heartbeats carry it
    finally:
        stop.set()
        running.join(60)


def age_of_commit(job: RunningJob) -> int:
    """How old the newest commit is that can be seen, in milliseconds."""
    (moment,) = job.tables.read().offsets["commit_timestamp"].to_pylist()
    return now_ms() - round(moment.timestamp() * 1_000)
