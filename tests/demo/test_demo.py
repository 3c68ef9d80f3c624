"""The demo around its parts: what it says of a failed job, where it prints, and how it ends early."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from streaming.demo import demo
from streaming.model.errors import OffsetlakeError


class Stub:
    """Stands for the broker and for its traffic."""

    bootstrap_servers = "127.0.0.1:1"

    def __init__(self, *_: Any) -> None:
        pass

    def __enter__(self) -> "Stub":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def check(self) -> None:
        pass


def failing_job(settings: Any, *_: Any, **__: Any) -> None:
    Path(settings.spark.log_file).write_text("".join(f"line {number}\n" for number in range(100)))
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
    monkeypatch.setattr(demo, "_REFRESH_S", 0.1)


def test_a_job_that_fails_shows_the_end_of_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "run_job", failing_job)
    with pytest.raises(demo.DemoError) as raised:
        demo.run_demo(threading.Event(), seconds=5)
    message = str(raised.value)
    assert "the job failed" in message
    assert message.splitlines()[-15:] == [f"line {number}" for number in range(85, 100)]


def test_a_demo_stopped_before_it_showed_anything_compares_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "run_job", idle_job)
    stop = threading.Event()
    stop.set()
    demo.run_demo(stop, seconds=None)  # asking the stub for its offsets would raise


def test_lines_reach_standard_output_while_descriptor_1_is_another_file(tmp_path: Path) -> None:
    with output_of_descriptor_1(tmp_path / "out.txt"), demo._console() as console:
        with output_of_descriptor_1(tmp_path / "spark.log"):
            console.print("shown")
        assert not console.is_terminal
    assert (tmp_path / "out.txt").read_text() == "shown\n"
    assert (tmp_path / "spark.log").read_text() == ""
