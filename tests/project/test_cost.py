"""What the benchmark of costs measures with: every process counts, the right files and counters are read."""

import os
import re
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.benchmarks.cost.contestants import ForeignMonitor, Task, batches, spark_interval
from tests.benchmarks.cost.table import Table
from tests.benchmarks.cost.watched import Command, PeakMemory, Watched

BURN_S = 0.2  # of processor time, by each process
TICK_S = 1 / os.sysconf("SC_CLK_TCK")  # the kernel cuts a process' two times (user, system) to whole ticks
BURN = f"import time\nwhile time.process_time() < {BURN_S}: pass"
FAMILY = f"""
import subprocess, sys
burn = {BURN!r}
subprocess.run([sys.executable, "-S", "-c", burn])
subprocess.Popen([sys.executable, "-S", "-c", burn])  # outlives its parent
exec(burn)
"""

DAEMON = f"""
import signal, subprocess, sys, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-S", "-c", {BURN + chr(10) + "time.sleep(0.5)"!r}, "pyspark.worker"])
time.sleep(1.5)
"""


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return Task(bootstrap="localhost:9", folder=tmp_path, partitions=8, records=7)


def test_processor_time_is_that_of_ended_children_and_of_orphans_too(tmp_path: Path) -> None:
    with Watched(_python(FAMILY), tmp_path) as watched:
        ended = watched.wait()
    assert ended.code == 0
    assert 3 * BURN_S <= ended.processor_seconds < 3 * BURN_S + 1
    assert ended.seconds >= BURN_S


def test_processor_time_is_that_of_workers_too_whose_end_is_ignored(tmp_path: Path) -> None:
    daemon = [*_python(DAEMON).arguments, "pyspark.worker"]
    with Watched(_python(f"import subprocess; subprocess.run({daemon})"), tmp_path) as watched:
        ended = watched.wait()
    assert BURN_S <= ended.processor_seconds < BURN_S + 1


def test_what_runs_is_measured_and_stopped(tmp_path: Path) -> None:
    with Watched(_python(f"{BURN}\nprint(1, flush=True); time.sleep(60)"), tmp_path) as watched:
        with PeakMemory(watched) as memory:
            watched.wait_until(lambda: watched.output_file.read_text() != "", "its line")
            time.sleep(0.2)
        assert BURN_S - 2 * TICK_S <= watched.used().parts.total() < BURN_S + 0.5
        assert memory.peak.total() > 1_000_000
        assert watched.stop().code == -15


def test_one_that_ends_too_early_is_named_with_its_words(tmp_path: Path) -> None:
    with (
        Watched(_python("print('no broker')"), tmp_path) as watched,
        pytest.raises(AssertionError, match="no broker"),
    ):
        watched.wait_until(lambda: False, "nothing")


@pytest.mark.parametrize("folder", ["checkpoint", "checkpoint/0"])
def test_batches_are_found_in_both_kinds_of_checkpoint(task: Task, folder: str) -> None:
    for part, text in (("offsets", 'v1\n{}\n{"topic": {"0": 5}}'), ("commits", "v1\n{}")):
        (task.folder / folder / part).mkdir(parents=True)
        (task.folder / folder / part / "0").write_text(text)
    assert [batch.records for batch in batches(task)] == [5]
    assert batches(task, since=time.time() + 60) == []


@pytest.fixture
def monitor(task: Task) -> Iterator[ForeignMonitor]:
    class Metrics(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(
                b'# TYPE read counter\nread_else 9\nread{partition="0"} 3\nread{partition="1"} 4\n'
            )

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Metrics) as server:
        Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        yield ForeignMonitor(
            path=Path("/opt/monitor"),
            template="servers: {bootstrap}, at: {port}",
            arguments="--config {config}",
            environment=["SERVERS={bootstrap}"],
            url=f"http://127.0.0.1:{server.server_port}/metrics",
            metric="read",
        )
        server.shutdown()


def test_a_foreign_monitor_is_told_where_the_brokers_are(monitor: ForeignMonitor, task: Task) -> None:
    command = monitor.command(task)
    config = task.folder / "monitor.config"
    assert command == Command(["/opt/monitor", "--config", str(config)], {"SERVERS": "localhost:9"})
    assert re.fullmatch(r"servers: localhost:9, at: \d{5}", config.read_text())


def test_a_foreign_monitor_has_read_what_its_counter_says(monitor: ForeignMonitor, task: Task) -> None:
    monitor.command(task)
    assert monitor.counted(task) == 7
    assert monitor.has_read(task)


def test_a_table_ends_with_medians_and_ratios(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("read", {"wall s": ".1f", "cpu s": ".1f"})
    for run, wall in enumerate((1.0, 2.0, 9.0)):
        table.row("this", "A", run, {"wall s": wall, "cpu s": 1.0})
        table.row("base", "A", run, {"wall s": 2 * wall})
    table.end("this", ["base", "absent"])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[-3:] == [
        ["this", "A", "med", "2.0", "1.0"],
        ["base", "A", "med", "4.0", "-"],
        ["this", "/", "base", "A", "0.50", "-"],
    ]


def test_triggers_are_written_as_spark_reads_them() -> None:
    assert [spark_interval(text) for text in ("500ms", "5s")] == ["500 milliseconds", "5 seconds"]


def _python(program: str) -> Command:
    return Command([sys.executable, "-S", "-c", program], {})
