"""Every command of the documentation runs as it stands there, on tables that the README's own job fills."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import kafka_clients as kafka
import pytest
from bombs.sitecustomize import kill_session
from conftest import BrokerFactory

from streaming.model.completeness import loading_in
from streaming.tables.tables import Tables, TablesMissingError

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]

ROOT: Final = Path(__file__).parents[2]
OTHER_PAGES: Final = {"ask.md"}  # test_ask.py runs its commands
PAGES: Final = (
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in OTHER_PAGES),
)
BROKER: Final = "localhost:9092"  # as the documents call it
SERVER: Final = "127.0.0.1:9192"  # the same of `offsetlake serve`
NODE_EXPORTER: Final = "/var/lib/node_exporter"
JOB: Final = f"offsetlake run --bootstrap-server {BROKER}"
ELSEWHERE: Final = {
    r"make ": "targets of the Makefile",
    r"(pipx|uv|readers/bin/offsetlake) |offsetlake demo": "installations; `make dist` tries them",
    r"kafka-acls |export KAFKA_PASSWORD|.*kafka:9093": "test_secured.py, on a broker that asks for them",
    r".*--master spark://": "test_cluster.py, on a cluster of Spark",
    r"kafka-consumer-groups ": "a tool of Kafka's; test_expiry_on_broker.py does the same with the file",
    r"kafka-[a-z-]+\.sh ": "tools of Kafka's; tests/serve/kafka asks the listener with them",
    r".*clusters\.toml": "several clusters; test_cli_clusters.py and tests/serve/process have some",
    r".*offsetlake scram|.*listener\.toml": "signing in; test_secured_serve.py",
    r"(helm|kubectl|buildah|docker|openssl) ": "of Kubernetes and containers; test_chart.py, test_compose.py",
    r"curl |promtool |prometheus": "what reads metrics; tests/serve/metrics does so with a real Prometheus",
}
"""Commands that are not run here, and who sees to them."""

FAILS: Final = re.compile(r".*--as-of -?[23]h")
"""Commands that answer with exit code 1 here, because the job was not there hours ago."""

LIMIT_S: Final = 180.0


def commands() -> Iterator[str]:
    """Yield the commands of all pages that are to be run here, in their order, without comments."""
    for page in PAGES:
        for block in re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL):
            for command in re.findall(r"^\$ (.*?)(?:\s+#.*)?$", block, re.MULTILINE):
                if not any(re.match(pattern, command) for pattern in ELSEWHERE):
                    yield command


def may_run_beside_the_job(command: str) -> bool:
    """Tell whether a command asks or maintains, and neither starts a job nor moves folders."""
    return "offsetlake " in command and not re.match(r"offsetlake (run|rebuild|serve)", command)


def serves(command: str) -> bool:
    """Tell whether a command answers over the wire until it is stopped."""
    return command.startswith("offsetlake serve")


def is_plain(command: str) -> bool:
    """Tell whether a command line is the command alone, without anything that a shell does."""
    return set(shlex.shlex(command, posix=False, punctuation_chars=True)).isdisjoint({"|", ">"})


class Shell:
    """A shell in a directory where `offsetlake` is a command and the documents' broker is a real one."""

    def __init__(self, directory: Path, bootstrap: str) -> None:
        self.directory = directory
        self.bootstrap = bootstrap
        self._count = 0
        program = directory / "bin" / "offsetlake"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m streaming.cli "$@"\n')
        program.chmod(0o755)
        (directory / "node_exporter").mkdir()

    @contextmanager
    def started(self, command: str) -> Iterator["subprocess.Popen[bytes]"]:
        """Start a command line; at the end of the block nothing of it is left."""
        environment = {
            **os.environ,
            "PATH": f"{self.directory / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        }
        self._count += 1
        with self.output.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-c", self._here(command)],
                cwd=self.directory,
                env=environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            kill_session(process.pid)
            process.wait()

    def run(self, command: str) -> str:
        """Run a command line to its end, which must be the one that is expected; return what it printed."""
        with self.started(command) as process:
            code = process.wait(LIMIT_S)
            assert code == bool(FAILS.match(command)), f"{command}\n{self.output.read_text()}"
            return self.output.read_text()

    def serve(self, command: str) -> None:
        """Run a command line that answers over the wire, until it says so, and stop it."""
        with self.started(f"{command.replace(SERVER, '127.0.0.1:0')} --http 127.0.0.1:0") as process:
            kafka.wait_until(lambda: "answering" in self.output.read_text(), f"{command} to answer")
            os.killpg(process.pid, signal.SIGTERM)
            assert process.wait(LIMIT_S) == 0, f"{command}\n{self.output.read_text()}"

    def _here(self, command: str) -> str:
        """Return a command line with what is here in the place of what the documents call so."""
        return command.replace(BROKER, self.bootstrap).replace(
            NODE_EXPORTER, str(self.directory / "node_exporter")
        )

    @property
    def output(self) -> Path:
        """Where the last command line prints to."""
        return self.directory / f"output-{self._count}.txt"


def is_followed(tables: Tables) -> bool:
    """Tell whether the job has read the topic to its end."""
    try:
        progress = tables.progress_if_any()
    except TablesMissingError:
        return False
    return bool(progress.partitions) and not loading_in(progress)


def in_a_shell(make_broker: BrokerFactory, directory: Path) -> Shell:
    """Return a shell in a directory, with a broker on which a group has committed."""
    bootstrap = make_broker(offsets_partitions=2).bootstrap_servers
    kafka.create_topics(bootstrap, {"orders": 8})
    kafka.commit_offsets(bootstrap, "billing", {("orders", 0): 431})
    return Shell(directory, bootstrap)


@pytest.mark.timeout(900)
def test_the_commands_of_the_documentation_do_what_they_say_beside_the_job(
    make_broker: BrokerFactory, tmp_path: Path, offsetlake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell, all_of_them = in_a_shell(make_broker, tmp_path), list(commands())
    assert JOB in all_of_them
    with shell.started(JOB) as job:
        tables, said = Tables(str(tmp_path / "warehouse")), shell.output
        kafka.wait_until(lambda: is_followed(tables), "the job to follow", timeout_s=LIMIT_S)
        monkeypatch.chdir(tmp_path)
        for command in dict.fromkeys(filter(may_run_beside_the_job, all_of_them)):
            if is_plain(command):  # a process each would start for a second
                ended = offsetlake(*shlex.split(command.replace(BROKER, shell.bootstrap))[1:])
                assert ended.code == bool(FAILS.match(command)), f"{command}\n{ended.out}{ended.err}"
            else:
                shell.run(command)
        for command in dict.fromkeys(filter(serves, all_of_them)):
            shell.serve(command)
        os.killpg(job.pid, signal.SIGINT)  # to the whole group, as Ctrl-C does
        assert job.wait(LIMIT_S) == 0
        assert said.read_text().rstrip().endswith("stopped")
        assert "Traceback" not in said.read_text()


@pytest.mark.more
@pytest.mark.timeout(900)
def test_commands_of_the_documentation_that_start_jobs_and_move_folders_do_what_they_say(
    make_broker: BrokerFactory, tmp_path: Path
) -> None:
    shell = in_a_shell(make_broker, tmp_path)
    shell.run(f"{JOB} --once")
    for command in commands():
        if command != JOB and not may_run_beside_the_job(command) and not serves(command):
            printed = shell.run(command)
            if "--once" in command:
                assert printed.rstrip().endswith("stopped")
    assert not (tmp_path / "warehouse").exists()
    [row] = Tables(str(tmp_path / "lake")).read(["billing"]).offsets.to_pylist()
    assert row["committed_offset"] == 431
