"""Where Spark listens on this machine: other users of it reach the ports, and get nothing there."""

import os
import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from listening_ports import (
    NO_SUCH_CLASS,
    answer,
    tcp_ports,
    to_endpoint,
    unix_sockets,
    upload_of_block,
)
from processes import DRIVER, WORKERS, descendants, parts_of
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

LARGEST_PID = 2**22

PATIENCE_S = 20.0

pytestmark = pytest.mark.spark


@dataclass
class Seen:
    """What came of questions to every port: the answers, by port and question, and what happened."""

    answers: Mapping[tuple[int, str], bytes]
    was_called: Mapping[str, bool]


class Runnable:
    """Something that Java might call back: notes that it was."""

    was_called = False

    def call(self) -> None:
        self.was_called = True

    class Java:
        implements = ("java.lang.Runnable",)


def processes(spark: SparkSession) -> set[int]:
    """Return this process, the JVM, and all that it has started: Python workers among them."""
    context: Any = spark.sparkContext
    context.range(2, numSlices=2).map(lambda number: number).collect()
    return {os.getpid(), *descendants(context._gateway.proc.pid, without=0)}


@pytest.fixture(scope="module")
def seen(spark: SparkSession) -> Seen:
    """Ask at every port, without the secret, for what whoever has it would get there."""
    context: Any = spark.sparkContext
    gateway, called = context._gateway, Runnable()
    ensure_callback_server_started(gateway)  # as `foreachBatch` does
    questions = {
        "deserialize": to_endpoint(),
        "deserialize a block": upload_of_block(),
        "call Java": b"c\nz:java.lang.System\nsetProperty\nsoffsetlake.called\nsyes\ne\n",
        "call Python": f"c\n{gateway.gateway_property.pool.put(called)}\ncall\ne\n".encode(),
    }
    asked = [(port, question) for port in tcp_ports(processes(spark)) for question in questions]
    with ThreadPoolExecutor(len(asked)) as threads:
        said = threads.map(lambda ask: answer(ask[0], questions[ask[1]]), asked)
        answers = dict(zip(asked, said, strict=True))
    by_java = context._jvm.java.lang.System.getProperty("offsetlake.called") is not None
    return Seen(answers, {"Java": by_java, "Python": called.was_called})


def test_no_port_deserializes_for_who_has_no_secret(seen: Seen) -> None:
    assert {asked for asked, said in seen.answers.items() if NO_SUCH_CLASS.encode() in said} == set()
    assert len(seen.answers) >= 16, "the driver, its blocks, and the two sides of py4j"


def test_no_port_calls_for_who_has_no_secret(seen: Seen) -> None:
    assert seen.was_called == {"Java": False, "Python": False}


def test_no_port_forks_for_who_has_no_secret(seen: Seen) -> None:
    """A daemon answers with the process that it has forked, before anything is sent."""
    numbers = {asked: int.from_bytes(said[:4]) for asked, said in seen.answers.items() if len(said) >= 4}
    assert {asked for asked, number in numbers.items() if 0 < number <= LARGEST_PID} == set()


@pytest.mark.more
def test_strangers_who_never_end_hold_up_nothing(spark: SparkSession) -> None:
    """Nor what PySpark would otherwise have at a port: its server of accumulators hears one at a time."""
    context: Any = spark.sparkContext
    with ExitStack() as strangers, ThreadPoolExecutor(1) as thread:
        for port, said in product(tcp_ports(processes(spark)), (b"", b"\0\0\0\0\x7f\xff", b"c\n" * 9)):
            for _ in range(10):
                stranger = strangers.enter_context(socket.create_connection(("127.0.0.1", port)))
                with suppress(ConnectionError):
                    stranger.sendall(said)
        counted = context.accumulator(0)
        task = thread.submit(context.range(4, numSlices=2).foreach, lambda number: counted.add(number))
        wait([task], PATIENCE_S)
        was_held_up = not task.done()
        strangers.close()  # so that the task ends
    assert not was_held_up
    assert counted.value == 6


def test_python_workers_are_reached_in_a_folder_that_is_private(spark: SparkSession) -> None:
    found = processes(spark)
    sockets = unix_sockets(found)
    assert {parts_of(found, os.getpid())[pid] for pid in sockets.values()} >= {DRIVER, WORKERS}
    folders = {socket.parent.stat() for socket in sockets}
    assert {(stat.st_uid, stat.st_mode & 0o777) for stat in folders} == {(os.geteuid(), 0o700)}


def test_secrets_are_on_no_command_line_and_in_no_environment_or_log(spark: SparkSession) -> None:
    context: Any = spark.sparkContext
    secrets = {
        "of Spark": context._jvm.org.apache.spark.SparkEnv.get().securityManager().getSecretKey(),
        "of py4j": context._gateway.gateway_parameters.auth_token,
    }
    assert min(map(len, secrets.values())) >= 32
    shown = Path(f"/proc/{context._gateway.proc.pid}/fd/1").read_bytes()  # Spark's log
    for pid in processes(spark):
        with suppress(FileNotFoundError, ProcessLookupError):  # a worker has ended
            shown += Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
    assert b"spark.authenticate=true" in shown, "nothing was looked at"
    assert {whose for whose, secret in secrets.items() if secret.encode() in shown} == set()
