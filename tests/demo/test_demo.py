"""The demo around its parts: what it waits for, how it ends, where it prints, and what is to be pasted."""

import os
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from new_tables import new_tables
from table_batches import Batch, append, group, offset

from streaming.demo import demo
from streaming.demo.broker_offsets import CommittedOffset, OffsetKey
from streaming.model.errors import OffsetlakeError
from streaming.model.progress import PartitionEnds, Progress
from streaming.tables.tables import Tables

BILLING: Batch = {"billing": group(), ("billing", "orders", 0): offset(committed_offset=431)}


class Stub:
    """Stands for the broker, for its traffic and for the endpoints."""

    bootstrap_servers = "127.0.0.1:1"
    commands = (("sh", "kafka-consumer-groups.sh"),)
    page = "http://127.0.0.1:8720/"

    def __init__(self, *_: Any) -> None:
        pass

    def __enter__(self) -> "Stub":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def check(self) -> None:
        pass


def failing_job(settings: Any, *_: Any, **__: Any) -> None:
    Path(settings.spark.log_file).write_text("why")
    raise OffsetlakeError(f"the job failed. Spark's own log is {settings.spark.log_file}.")


def job_without_spark(*_: Any, **__: Any) -> None:
    raise OffsetlakeError("the job failed")


def idle_job(_settings: Any, _listener: Any, stop: threading.Event, **__: Any) -> None:
    stop.wait(10)


@contextmanager
def output_of_descriptor_1(file: Path) -> Iterator[None]:
    """Point descriptor 1 to a file."""
    saved = os.dup(1)
    with file.open("wb") as out:
        os.dup2(out.fileno(), 1)
        try:
            yield
        finally:
            os.dup2(saved, 1)
            os.close(saved)


@pytest.fixture(autouse=True)
def stubs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "LocalBroker", Stub)
    monkeypatch.setattr(demo, "DemoTraffic", Stub)
    monkeypatch.setattr(demo, "Endpoints", Stub)
    monkeypatch.setattr(demo, "_LOOK_S", 0.1)


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_job_that_fails_is_one_line_that_names_a_log_which_stays(
    monkeypatch: pytest.MonkeyPatch, temporary: Path
) -> None:
    monkeypatch.setattr(demo, "run_job", failing_job)
    with pytest.raises(demo.DemoError) as raised:
        demo.run_demo(threading.Event(), seconds=5)
    [log] = temporary.iterdir()
    assert str(raised.value) == f"the job failed. Spark's own log is {log}."
    assert log.read_text() == "why"


@pytest.mark.parametrize("job", [idle_job, job_without_spark])
def test_a_demo_that_names_no_log_leaves_no_files(
    monkeypatch: pytest.MonkeyPatch, temporary: Path, job: Any
) -> None:
    monkeypatch.setattr(demo, "run_job", job)
    monkeypatch.setattr(demo, "broker_offsets", lambda _: {})
    with nullcontext() if job is idle_job else pytest.raises(demo.DemoError, match="the job failed"):
        demo.run_demo(threading.Event(), seconds=0.2)
    assert list(temporary.iterdir()) == []


def test_a_demo_stopped_before_it_showed_anything_compares_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "run_job", idle_job)
    stop = threading.Event()
    stop.set()
    demo.run_demo(stop, seconds=None)  # asking the stub for its offsets would raise


def test_lines_reach_standard_output_while_descriptor_1_is_another_file(tmp_path: Path) -> None:
    with (
        output_of_descriptor_1(tmp_path / "out.txt"),
        demo._output() as out,
        output_of_descriptor_1(tmp_path / "spark.log"),
    ):
        out.write("shown\n")
        out.flush()
    assert (tmp_path / "out.txt").read_text() == "shown\n"
    assert (tmp_path / "spark.log").read_text() == ""


def test_a_reader_that_has_gone_ends_the_demo_without_an_error(
    monkeypatch: pytest.MonkeyPatch, offsetlake: Any
) -> None:
    monkeypatch.setattr(demo, "run_job", idle_job)
    reader, writer = os.pipe()
    os.close(reader)
    saved = os.dup(1)
    os.dup2(writer, 1)
    try:
        code, _, err = offsetlake("demo", "--for", "5s")
    finally:
        os.dup2(saved, 1)
        os.close(saved)
        os.close(writer)
    assert (code, err) == (0, "")


def test_an_output_that_takes_no_more_is_a_clear_error(
    monkeypatch: pytest.MonkeyPatch, offsetlake: Any
) -> None:
    monkeypatch.setattr(demo, "run_job", idle_job)
    with output_of_descriptor_1(Path("/dev/full")):
        code, _, err = offsetlake("demo", "--for", "5s")
    assert code == 1
    assert "found: [Errno 28] No space left on device. Free some space" in err


# --- what it waits for -----------------------------------------------------------------------------------


def test_the_demo_says_what_it_waits_for_in_order(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    stop = threading.Event()

    def writing_job(settings: Any, _listener: Any, stop_job: threading.Event, **_: Any) -> None:
        tables = Tables(settings.tables.root)
        tables.create()
        stop.wait(0.5)
        append(tables, BILLING)
        stop_job.wait(2.5)  # until it has been seen
        stop.set()
        stop_job.wait(10)

    billing = {OffsetKey("billing", "orders", 0): CommittedOffset(431)}
    monkeypatch.setattr(demo, "run_job", writing_job)
    monkeypatch.setattr(demo, "broker_offsets", lambda _: billing)
    demo.run_demo(stop, None)
    said = [line[10:] for line in capfd.readouterr().out.splitlines() if line[2:3] == line[5:6] == ":"]
    assert "in another terminal: sh kafka-consumer-groups.sh" in said
    assert [one for one in said if not one.startswith(("the tables, as of", "in another terminal"))] == [
        "starting a Kafka broker on 127.0.0.1:1 ...",
        "starting Spark (some 20 s are usual) ...",
        "waiting for the first batch ...",
        "in a browser: http://127.0.0.1:8720/",
        "group billing appeared",
        "stopping the consumer groups ...",
        "waiting until the tables equal the broker's answers ...",
        "the tables agree with the broker: 1 offsets of 1 groups",
        "stopping the job and the broker ...",
    ]


def test_tables_that_differ_from_the_broker_fail_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    key = OffsetKey("billing", "orders", 0)
    monkeypatch.setattr(demo, "run_job", idle_job)
    monkeypatch.setattr(demo, "broker_offsets", lambda _: {key: CommittedOffset(431)})
    monkeypatch.setattr(demo, "_AGREE_LIMIT_S", 0.0)
    with pytest.raises(demo.DemoError, match="differ in 1 offsets") as raised:
        demo.run_demo(threading.Event(), seconds=0)
    assert "expected CommittedOffset(offset=431, leader_epoch=None, metadata=''), found None" in str(
        raised.value
    )


def test_a_endpoint_that_shuts_by_itself_fails_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    class Shut(Stub):
        def check(self) -> None:
            raise OffsetlakeError("the process has ended")

    monkeypatch.setattr(demo, "run_job", idle_job)
    monkeypatch.setattr(demo, "Endpoints", Shut)
    with pytest.raises(OffsetlakeError, match="the process has ended"):
        demo.run_demo(threading.Event(), seconds=5)


# --- the command for another terminal --------------------------------------------------------------------


def test_the_command_is_the_one_that_was_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "offsetlake"
    program.parent.mkdir()
    program.touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["bin/offsetlake", "demo"])
    assert demo.ask_command("/tmp/x") == [str(program), "offsets", "--table-root", "/tmp/x"]


def test_the_command_works_when_it_is_pasted(tmp_path: Path) -> None:
    root = tmp_path / "it's a folder"
    tables = new_tables(root)
    read = Progress().with_positions({3: 12}).with_ends({3: PartitionEnds(12, 12)}, now=0)
    append(tables, BILLING, partitions=read.partitions)
    command = shlex.join(demo.ask_command(str(root)))
    ran = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "431" in ran.stdout
