"""`offsetlake sql` has a process of its own: what takes it down is an error, and it ends with the command."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command_process import COMMAND
from kafka_clients import wait_until
from new_tables import new_tables

ENDLESS = "SELECT count(*) FROM generate_series(1, 2000000000) a, generate_series(1, 2000000000) b"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    tables = new_tables(tmp_path_factory.mktemp("sql") / "lake")
    return tables.root


@contextmanager
def asked(root: str, query: str, temporary: Path) -> Iterator[subprocess.Popen[str]]:
    """The command, with Ctrl-C as in a terminal."""
    with subprocess.Popen(
        [*COMMAND, "sql", query, "--table-root", root],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT array_length(array_repeat(1, 2000000000))",  # when it is planned
        "SELECT max(repeat('x', 1000000 * value)) FROM generate_series(1, 200)",  # when it is run
    ],
)
def test_a_query_that_takes_its_process_down_is_an_error(root: str, query: str, tmp_path: Path) -> None:
    with asked(root, query, tmp_path) as process:
        out, said = process.communicate(timeout=60)
        assert (process.returncode, out) == (1, "")
        assert said.startswith("offsetlake: sql: expected a query whose values")
        assert said.endswith("found that SIGABRT ended it.\n")
        assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


BOUNDED = """
import sys
from streaming.cli.own_process import bounded, run_apart

def work():
    with bounded(64 << 20):
        bytearray(32 << 20)
        try:
            bytearray(128 << 20)
        except MemoryError:
            print("refused")
    bytearray(128 << 20)
    print("taken")

run_apart(work, message="it")
"""


def test_only_so_much_more_memory_is_had_within_bounds() -> None:
    ran = subprocess.run([sys.executable, "-c", BOUNDED], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("refused\ntaken\n", "")


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGTERM, marks=pytest.mark.more), signal.SIGINT, signal.SIGKILL]
)
def test_its_process_ends_with_the_command(root: str, number: signal.Signals, tmp_path: Path) -> None:
    with asked(root, ENDLESS, tmp_path) as process:
        wait_until(lambda: children(process.pid), "the process of its own")
        [child] = children(process.pid)
        wait_until(lambda: "/dev/null" in str(Path(f"/proc/{child}/fd/2").readlink()), "the query to run")
        process.send_signal(number)
        process.communicate(timeout=30)
        assert process.returncode == (130 if number == signal.SIGINT else -number)
        wait_until(lambda: not Path(f"/proc/{child}").exists(), "its end")
    if number != signal.SIGKILL:
        assert list(tmp_path.iterdir()) == []


def test_who_kills_its_process_is_reported(root: str, tmp_path: Path) -> None:
    with asked(root, ENDLESS, tmp_path) as process:
        wait_until(lambda: children(process.pid), "the process of its own")
        os.kill(children(process.pid)[0], signal.SIGKILL)
        _, said = process.communicate(timeout=30)
        assert (process.returncode, said.count("\n")) == (1, 1)
        assert said.endswith("found that SIGKILL ended it.\n")


def test_codes_and_errors_are_those_of_the_process(root: str, tmp_path: Path) -> None:
    with asked(root, "SELEC", tmp_path) as process:
        out, said = process.communicate(timeout=30)
        assert (process.returncode, out) == (2, "")
        assert said.startswith("offsetlake: sql: expected one query")
