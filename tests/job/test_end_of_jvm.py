"""A job fails: one line says why, and where Spark's log is; nothing else is printed.

If its JVM has ended, this line says how.
"""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import kafka_clients as kafka
import pytest
from job_process import JobProcess
from processes import JVM

from streaming.demo.local_broker import LocalBroker

TOLD = """
import logging, sys
from socketserver import BaseServer
from py4j.protocol import Py4JNetworkError
from pyspark import accumulators
from streaming.spark.session import _leave_end_of_jvm_to_errors
_leave_end_of_jvm_to_errors()
server = object.__new__(accumulators.AccumulatorTCPServer)
for error in (Py4JNetworkError("gone"), EOFError("gone"), ConnectionRefusedError("gone"), KeyError("kept")):
    try:
        raise error
    except Exception as raised:
        logging.exception("by the root logger")
        server.handle_error(None, ("", 0))
        if not isinstance(raised, KeyError):
            logging.getLogger("py4j.clientserver").exception("by a logger of py4j")
"""
"""Tells errors as py4j and the server of accumulators do, those of an ended JVM first."""

ENDED = """
from pyspark.sql import SparkSession
from streaming.spark.java_errors import end_of_jvm
from streaming.spark.session import end_jvm
jvm = SparkSession.builder.master("local[1]").getOrCreate().sparkContext._gateway.proc
END
jvm.wait(60)
print(end_of_jvm(OSError("no space left")))
"""
"""Ends a JVM, and tells how that explains an error which came afterwards."""

CREATED = {"tables", "checkpoint", "spark.log"}

LIMIT_S = 240.0  # ten seconds are usual


def is_starting(job: JobProcess) -> bool:
    return "starting Spark" in job.output and JVM in job.parts.values()


def has_read(job: JobProcess) -> bool:
    return '"batch": 1' in job.output


def wait_until(job: JobProcess, moment: Callable[[JobProcess], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not moment(job):
        job.check()
        assert time.monotonic() < deadline, job.output
        time.sleep(0.02)


def test_errors_of_an_ended_jvm_are_left_to_who_asks_it_next_and_others_are_reported() -> None:
    ended = subprocess.run([sys.executable, "-c", TOLD], capture_output=True, text=True, check=True)
    told = [line for line in ended.stderr.splitlines() if line.startswith(("ERROR", "Exception", "KeyError"))]
    assert told == [
        "ERROR:root:by the root logger",
        "KeyError: 'kept'",
        "Exception occurred during processing of request from ('', 0)",
        "KeyError: 'kept'",
    ]
    assert "gone" not in ended.stderr


@pytest.mark.parametrize(
    ("end", "told"),
    [
        ("end_jvm()", "None"),
        (
            "jvm.kill()",
            "the JVM of Spark was ended by signal 9 (Killed). Where memory runs out, the system does that.",
        ),
    ],
    ids=["by the job", "by others"],
)
def test_a_jvm_that_the_job_has_ended_explains_no_error(end: str, told: str) -> None:
    script = ENDED.replace("END", end)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines() == [told]


@pytest.mark.spark
@pytest.mark.broker
def test_a_failing_query_is_explained_by_its_error_although_the_job_ends_the_jvm(
    broker: LocalBroker, tmp_path: Path
) -> None:
    name = "failing-query"
    kafka.create_topics(broker.bootstrap_servers, {name: 1})
    job = JobProcess(tmp_path, broker.bootstrap_servers)

    def run_once(offset: int) -> int:
        kafka.commit_offsets(broker.bootstrap_servers, name, {(name, 0): offset})
        job.start("run", "--once", "--log-format", "json")
        return job.wait()

    assert run_once(1) == 0
    shutil.rmtree(tmp_path / "checkpoint/0/state/0")
    assert run_once(2) == 1
    told = json.loads(job.output.splitlines()[-1])
    assert told["level"] == "error"
    assert told["message"] == (
        "running the query failed: StreamingQueryException: "
        "[STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY] Cannot restart streaming query with stateful "
        "operators because the state directory is empty or missing. "
        f"Spark's own log is {tmp_path / 'spark.log'}."
    )


@pytest.mark.more
@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.timeout(2 * LIMIT_S)
@pytest.mark.parametrize("moment", [is_starting, has_read])
def test_a_killed_jvm_is_one_line_and_what_is_left_is_the_users_alone(
    broker: LocalBroker, tmp_path: Path, moment: Callable[[JobProcess], bool]
) -> None:
    name = f"end-of-jvm-{moment.__name__}"
    kafka.create_topics(broker.bootstrap_servers, {name: 1})
    kafka.commit_offsets(broker.bootstrap_servers, name, {(name, 0): 1})
    job = JobProcess(tmp_path, broker.bootstrap_servers)
    job.start("run", "--log-format", "json")
    try:
        wait_until(job, moment)
        job.kill_one(driver=False)
        code = job.wait()
    finally:
        job.kill()
    told = [json.loads(line) for line in job.output.splitlines()]
    assert (code, [line["level"] for line in told if line["level"] != "info"]) == (1, ["error"])
    assert told[-1]["message"] == (
        "running the job failed: the JVM of Spark was ended by signal 9 (Killed). Where memory runs out, the "
        f"system does that. Spark's own log is {tmp_path / 'spark.log'}."
    )
    left = [path for path in tmp_path.rglob("*") if path.relative_to(tmp_path).parts[0] in CREATED]
    assert tmp_path / "spark.log" in left
    assert [path for path in left if path.stat().st_mode & 0o077] == []
