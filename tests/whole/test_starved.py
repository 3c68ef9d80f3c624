"""A machine that is short of processor time is no reason to end a job of months."""

import os
from pathlib import Path

import kafka_clients as kafka
import pytest
from conftest import BrokerFactory
from history_checks import table_offsets
from job_process import JobProcess

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.skipif("GRID" not in os.environ, reason="`make test-grid` runs it"),
]

LATE = Path(__file__).parents[1] / "support" / "late"


def test_a_worker_that_comes_too_late_is_started_again(make_broker: BrokerFactory, tmp_path: Path) -> None:
    bootstrap = make_broker(offsets_partitions=2).bootstrap_servers
    kafka.create_topics(bootstrap, {"t": 1})
    kafka.commit_offsets(bootstrap, "g", {("t", 0): 1})
    was_late = tmp_path / "was late"
    job = JobProcess(
        tmp_path / "job", bootstrap, python_path=(LATE,), environment={"LATE_WORKER": str(was_late)}
    )
    job.start("run", "--once")
    assert job.wait() == 0, job.output
    assert was_late.exists()
    assert "Starting the query again" in job.output
    assert table_offsets(job.tables) == kafka.broker_offsets(bootstrap)
