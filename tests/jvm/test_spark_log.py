"""Spark's log does not fill the disk, and nothing that is written to it is lost while it is rolled."""

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from kafka_clients import wait_until

from streaming.job.housekeeping import Housekeeping
from streaming.jvm.log_file import LOG_BYTES, output_to, roll_log
from streaming.settings.reading import read_settings


def test_a_log_that_is_long_is_kept_under_other_names_a_few_times(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    for number in range(6):
        log.write_text(f"{number}" * 11)
        roll_log(log, most_bytes=10)
    assert log.read_text() == ""
    kept = {file.name: file.read_text()[0] for file in tmp_path.iterdir() if file != log}
    assert kept == {"spark.log.1": "5", "spark.log.2": "4", "spark.log.3": "3"}
    log.write_text("0" * 10)
    roll_log(log, most_bytes=10)
    assert log.read_text() == "0" * 10


def test_who_has_it_open_goes_on_at_its_begin(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    log.write_bytes(b"x" * (LOG_BYTES + 1))
    with output_to(log):
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    assert log.read_text() == ""
    assert (tmp_path / "spark.log.1").stat().st_size == LOG_BYTES + 1
    assert child.stdin is not None
    child.stdin.write(b"y" * 11)
    child.stdin.flush()
    wait_until(lambda: log.stat().st_size == 11, "the line")
    roll_log(log, most_bytes=10)
    child.communicate(b"last\n")
    assert log.read_bytes() == b"last\n"


def test_what_cannot_be_rolled_is_left(tmp_path: Path) -> None:
    for place in (Path("/dev/null"), tmp_path / "none", tmp_path):
        roll_log(place, most_bytes=0)
    log = tmp_path / "spark.log"
    log.write_text("x" * 11)
    (tmp_path / "spark.log.2").touch()
    (tmp_path / "spark.log.3" / "x").mkdir(parents=True)
    roll_log(log, most_bytes=10)
    assert log.read_text() == "x" * 11


def test_the_job_rolls_it_whatever_else_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    log = tmp_path / "spark.log"
    log.write_bytes(b"x" * (LOG_BYTES + 1))
    monkeypatch.setattr("streaming.job.housekeeping._ROLL_EVERY_MS", 50)
    settings = read_settings(options={"spark.log_file": str(log)})
    nothing: Any = None
    with Housekeeping(nothing, nothing, nothing, nothing, settings):
        wait_until(lambda: log.stat().st_size == 0, "the log to be rolled")
        time.sleep(0.3)
    assert said[0].startswith("a heartbeat failed, retrying: ")
    assert len(list(tmp_path.iterdir())) == 2
