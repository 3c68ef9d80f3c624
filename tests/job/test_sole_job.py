"""One job at a time on a checkpoint and on a table root; the lock goes with the process, however it ends."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import kafka_clients as kafka
import pytest

from streaming.demo.local_broker import LocalBroker
from streaming.job.listener import Listener
from streaming.job.run import rebuild_tables, run_job
from streaming.job.sole_job import LOCK_FILE, sole_job
from streaming.model.errors import MisuseError, OffsetlakeError
from streaming.settings.model import Settings
from streaming.settings.reading import read_settings

HOLD = """
import sys
from streaming.settings.reading import read_settings
from streaming.job.sole_job import sole_job
with sole_job(read_settings(options={"job.checkpoint": sys.argv[1], "tables.root": sys.argv[2]})):
    print("locked", flush=True)
    sys.stdin.read()
"""


def settings(checkpoint: Path | str, root: Path | str, **options: str) -> Settings:
    named = {name.replace("__", "."): value for name, value in options.items()}
    return read_settings(options={"job.checkpoint": str(checkpoint), "tables.root": str(root), **named})


@contextmanager
def another_job(checkpoint: Path, root: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the locks."""
    command = [sys.executable, "-c", HOLD, str(checkpoint), str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield process


@pytest.mark.parametrize("shared", ["checkpoint", "tables"])
def test_a_second_job_on_a_checkpoint_or_table_root_is_told_who_is_there(tmp_path: Path, shared: str) -> None:
    folders = {"checkpoint": tmp_path / "other-checkpoint", "tables": tmp_path / "other-tables"}
    folders[shared] = tmp_path / shared
    with (
        another_job(tmp_path / "checkpoint", tmp_path / "tables") as holder,
        pytest.raises(MisuseError, match=rf"process {holder.pid} is already using {tmp_path / shared}\."),
        sole_job(settings(*folders.values())),
    ):
        pass


def test_kill_9_gives_the_folders_back(tmp_path: Path) -> None:
    with another_job(tmp_path / "checkpoint", tmp_path / "tables") as holder:
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    for _ in range(2):
        with sole_job(settings(tmp_path / "checkpoint", tmp_path / "tables")):
            written = (tmp_path / "tables" / LOCK_FILE).read_text()
            assert written == f"process {os.getpid()}\n"


def test_urls_are_not_locked_but_those_of_local_folders_are(tmp_path: Path) -> None:
    with sole_job(settings("hdfs://n/c", "s3://bucket/tables")):
        assert list(tmp_path.iterdir()) == []
    with sole_job(settings(tmp_path.as_uri(), "s3://bucket/tables")), pytest.raises(MisuseError):
        sole_job(settings(tmp_path, "s3://bucket/tables")).__enter__()


def test_a_file_in_place_of_a_folder_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OffsetlakeError, match=r"expected a writable folder at .*file") as raised:
        sole_job(settings(tmp_path / "file", tmp_path / "tables")).__enter__()
    assert raised.value.exit_code == 1


@pytest.mark.broker
@pytest.mark.parametrize("start", [lambda *args: run_job(*args, once=True), rebuild_tables])
def test_the_job_is_refused_before_it_starts_spark(
    broker: LocalBroker, tmp_path: Path, start: Callable[[Settings, Listener, threading.Event], None]
) -> None:
    kafka.ensure_offsets_topic(broker.bootstrap_servers)
    ours = settings(
        tmp_path / "checkpoint", tmp_path / "tables", source__bootstrap_servers=broker.bootstrap_servers
    )
    with another_job(tmp_path / "checkpoint", tmp_path / "tables"), pytest.raises(MisuseError, match="Stop"):
        start(ours, Listener(*[lambda _: None] * 3, warn=lambda _: None), threading.Event())
