"""The console of `run`: what is waited for, how catching up goes in one line, a line per batch of change."""

import errno
import io
import json
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from streaming.cli import console as console_module
from streaming.cli.console import FAR_BEHIND, Console, describe_batch, describe_catching_up, is_catching_up
from streaming.cli.logs import Warnings, logs_to
from streaming.job.reporter import BatchReport
from streaming.model.progress import PartitionEnds, Progress
from streaming.model.totals import Position, Totals, UnknownRecords

LOG = logging.getLogger("streaming.x.y")
TIME = "1970-01-01T00:00:01Z "
START = Progress().with_ends({0: PartitionEnds(1_000, 1_000), 1: PartitionEnds(0, 0)}, now=0)
BEHIND = START.with_positions({0: 250})
CAUGHT_UP = replace(BEHIND.with_positions({0: 1_000}), sequence=7)
NEWER_KIND = UnknownRecords(
    record_type=99, value_version=None, count=1, first=Position(3, 14), last=Position(3, 14)
)


def after_a_stop(missed: int) -> Progress:
    """All partitions were loaded once; so many source offsets came in the meantime."""
    return CAUGHT_UP.with_ends({0: PartitionEnds(1_000 + missed, 1_000 + missed)}, now=1)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Unprintable(io.StringIO):
    """An output that fails from the first line on, and counts what is tried."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error, self.tries = error, 0

    def write(self, text: str) -> int:
        self.tries += 1
        raise self.error


def report(progress: Progress = CAUGHT_UP, **changed: object) -> BatchReport:
    facts: dict[str, object] = {
        "moved": 250,
        "totals": Totals(decoded=1_234),
        "changed_offsets": 0,
        "changed_groups": 0,
        "quarantined": 0,
        "seconds": 1.26,
    }
    return BatchReport(**facts | changed, progress=progress)  # type: ignore[arg-type]


def told(*reports: BatchReport, out: io.StringIO | None = None) -> list[str]:
    out = out or io.StringIO()
    with Console(err=out, clock=lambda: 1_500) as console:
        for one in reports:
            console.batch(one)
    return untimed(out.getvalue())


def untimed(text: str) -> list[str]:
    """The lines of a console whose clock stands, without their times."""
    return text.replace(TIME, "").removesuffix("\n").split("\n") if text else []


# --- sentences -------------------------------------------------------------------------------------------


def test_batch_is_described_in_one_line() -> None:
    batch = report(changed_offsets=1_000, changed_groups=2)
    assert describe_batch(batch) == "batch 7: 1,234 records, 1,000 offsets and 2 groups changed in 1.3 s"


def test_a_batch_that_changed_nothing_has_no_number_of_its_own() -> None:
    assert describe_batch(report(quarantined=3)) == (
        "after batch 7: 1,234 records, 0 offsets and 0 groups changed, 3 quarantined in 1.3 s"
    )


@pytest.mark.parametrize(
    ("moved", "left", "sentence"),
    [
        (0, 1_000, "catching up: 0 %, 100 source offsets/s, 10 s left"),
        (250, 750, "catching up: 25 %, 100 source offsets/s, 8 s left"),
        (1_000, 0, "catching up: 100 %, 100 source offsets/s, 0 s left"),
    ],
)
def test_catching_up_is_described_by_rate_percent_and_time_left(moved: int, left: int, sentence: str) -> None:
    assert describe_catching_up(moved, left, 100.0) == sentence


def test_catching_up_without_anything_to_read_divides_nothing_by_zero() -> None:
    assert describe_catching_up(0, 0, 0.0) == "catching up: 0 %, 0 source offsets/s, 0 s left"


def test_catching_up_lasts_until_every_partition_is_loaded() -> None:
    assert is_catching_up(Progress())
    assert is_catching_up(BEHIND)
    assert not is_catching_up(CAUGHT_UP)


def test_catching_up_is_also_what_follows_a_long_stop() -> None:
    assert not is_catching_up(after_a_stop(FAR_BEHIND))
    assert is_catching_up(after_a_stop(FAR_BEHIND + 1))


# --- what is told ----------------------------------------------------------------------------------------


def test_batches_without_a_change_are_not_told() -> None:
    assert told(report(), report()) == []


@pytest.mark.parametrize("changed", ["changed_offsets", "changed_groups", "quarantined"])
def test_batches_with_a_change_are_reported(changed: str) -> None:
    batch = report(**{changed: 1})
    assert told(batch) == [describe_batch(batch)]


def test_log_file_gets_a_line_per_step_of_catching_up() -> None:
    further = BEHIND.with_positions({0: 500})
    first, second, last = told(report(BEHIND), report(further), report(CAUGHT_UP, moved=500))
    assert first.startswith("catching up: 25 %")
    assert second.startswith("catching up: 50 %")
    assert last.startswith("caught up: 1,000 source offsets, ")
    assert last.endswith(f" a second; {describe_batch(report())}")


def test_catching_up_is_one_line_that_moves_on_a_terminal() -> None:
    terminal = Terminal()
    [line] = told(report(BEHIND), report(BEHIND), report(CAUGHT_UP), out=terminal)
    steps = line.split("\r\x1b[K")
    assert [step[:11] for step in steps if step] == ["catching up", "catching up", "caught up: "]


def test_caught_up_is_reported_once() -> None:
    lines = told(report(BEHIND), report(CAUGHT_UP), report(CAUGHT_UP), report(CAUGHT_UP, changed_offsets=1))
    assert [line.split(":")[0] for line in lines] == ["catching up", "caught up", "batch 7"]


def test_catching_up_again_counts_from_where_it_began() -> None:
    stopped = after_a_stop(400_000).with_positions({0: 101_000})
    lines = told(report(BEHIND), report(CAUGHT_UP), report(stopped, moved=100_000))
    assert lines[-1].startswith("catching up: 25 %, ")


@pytest.mark.parametrize("error", [BrokenPipeError, OSError(errno.ENOSPC, "disk full")])
def test_console_goes_quiet_when_it_cannot_print(error: OSError) -> None:
    out = Unprintable(error)
    assert told(report(BEHIND), report(CAUGHT_UP), report(changed_offsets=1), out=out) == []
    assert out.tries == 1


def test_what_must_not_be_lost_is_tried_each_time_again() -> None:
    out = Unprintable(OSError(errno.ENOSPC, "disk full"))
    console = Console(err=io.StringIO(), out=out)
    for _ in range(2):
        with pytest.raises(OSError, match="disk full"):
            console.write("an alert")
    assert out.tries == 2


def test_a_reader_that_leaves_changes_nothing_about_the_end() -> None:
    program = """
import logging
from streaming.cli.console import Console
with Console():
    for sentence in ("one", "two"):
        logging.getLogger("streaming.x").warning(sentence)
"""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as out:
        ran = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=out, check=False)
    assert (ran.returncode, ran.stdout) == (0, b"")


def test_every_line_begins_with_its_time_and_an_error_is_marked() -> None:
    out = io.StringIO()
    with Console(err=out, clock=lambda: 1_500):
        LOG.info("one")
        LOG.warning("two")
        LOG.error("three")
    assert out.getvalue() == f"{TIME}one\n{TIME}two\n{TIME}ERROR: three\n"


def test_json_lines_have_time_level_logger_message_and_the_numbers_of_a_batch() -> None:
    out = io.StringIO()
    with Console("json", err=out, clock=lambda: 1_500) as console:
        LOG.warning("group \x1b[2J")
        LOG.error("no")
        for progress in (BEHIND, CAUGHT_UP):
            console.batch(report(progress, changed_offsets=2))
    warning, error, behind, caught_up = map(json.loads, out.getvalue().splitlines())
    assert warning == {
        "time": TIME.strip(),
        "level": "warning",
        "logger": "streaming.x.y",
        "message": "group \x1b[2J",
    }
    assert (error["level"], error["message"]) == ("error", "no")
    assert (behind["level"], behind["source_offsets_left"]) == ("info", 750)
    assert {name: caught_up[name] for name in ("batch", "records", "changed_offsets", "seconds")} == {
        "batch": 7,
        "records": 1_234,
        "changed_offsets": 2,
        "seconds": 1.26,
    }


def test_alerts_are_apart_from_all_the_rest() -> None:
    err, out = io.StringIO(), io.StringIO()
    with Console(err=err, out=out, clock=lambda: 1_500) as console:
        LOG.info("one")
        console.write('{"alert": 1}')
    assert (err.getvalue(), out.getvalue()) == (f"{TIME}one\n", '{"alert": 1}\n')


# --- loggers -----------------------------------------------------------------------------------------------


def test_what_is_logged_is_printed_once_and_only_within_the_block(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    out, root = io.StringIO(), logging.getLogger("streaming")
    before = root.handlers[:], root.level, root.propagate
    with Console(err=out):
        LOG.info("within")
        LOG.debug("what nobody asked for")
    assert (root.handlers, root.level, root.propagate) == before
    LOG.warning("after")
    assert out.getvalue().count("\n") == 1
    assert out.getvalue().endswith("Z within\n")
    assert caplog.messages == ["after"]  # of the root logger, which others may have given a handler
    assert capfd.readouterr() == ("", "")


def test_who_only_imports_the_package_has_nothing_printed() -> None:
    program = "import logging, streaming; logging.getLogger('streaming.x').error('wrong')"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("", "")


def test_a_command_without_a_log_prints_warnings_as_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    with logs_to(Warnings()):
        LOG.info("what goes on")
        LOG.warning("group \x1b[2J")
    assert capsys.readouterr() == ("", "offsetlake: group \\x1b[2J\n")


# --- waiting ---------------------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds pass fifty times as fast."""
    for name in ("_SHORT_S", "_TICK_S", "_TELL_AGAIN_S"):
        monkeypatch.setattr(console_module, name, getattr(console_module, name) / 50)


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def visible(terminal: Terminal) -> list[str]:
    """What a terminal shows."""
    return [line.rpartition("\r\x1b[K")[2] for line in untimed(f"{terminal.getvalue()} ")]


@pytest.mark.usefixtures("quick")
def test_a_log_file_gets_now_and_then_what_is_waited_for() -> None:
    out = io.StringIO()
    with Console(err=out, clock=lambda: 1_500) as console, console.waiting("starting Spark"):
        wait_until(lambda: out.getvalue().count("\n") == 3)
    first, *others = untimed(out.getvalue())
    assert first == "starting Spark ..."
    assert all(re.fullmatch(r"still starting Spark \(\d+ s\)", other) for other in others)


@pytest.mark.usefixtures("quick")
def test_a_terminal_has_one_line_of_what_is_waited_for_below_all_others() -> None:
    terminal, wait = Terminal(), r"connecting to \x1b[2Jkafka:9092 ... 0 s "
    with Console(err=terminal, clock=lambda: 1_500) as console:
        with console.waiting("connecting to \x1b[2Jkafka:9092"):
            wait_until(lambda: visible(terminal) == [wait])
            LOG.info("one")
            assert visible(terminal) == ["one", wait]
        LOG.info("two")
    assert visible(terminal) == ["one", "two", " "]


@pytest.mark.parametrize("out", [io.StringIO(), Terminal()])
def test_what_takes_no_time_is_not_told(out: io.StringIO) -> None:
    with Console(err=out) as console, console.waiting("connecting"):
        pass
    assert out.getvalue() == ""


def test_a_line_that_is_updated_stays_within_the_terminal() -> None:
    terminal = Terminal()
    console = Console(err=terminal)
    console._lines.live("x", "x" * 200)
    assert terminal.getvalue() == "\r\x1b[K" + "x" * 79


def test_unknown_kinds_of_records_are_reported_once_with_their_place() -> None:
    batch = report(totals=Totals(unknown=(NEWER_KIND,)))
    [warning] = told(batch, batch)
    assert warning.startswith("WARNING: records of type 99 cannot be read by this release; ")
    assert "first at partition 3, offset 14" in warning
    assert "newer offsetlake" in warning


def test_unknown_version_of_a_known_type_is_reported_with_its_number() -> None:
    kind = replace(NEWER_KIND, record_type=1, value_version=5)
    [warning] = told(report(totals=Totals(unknown=(kind,))))
    assert warning.startswith("WARNING: records of type 1, value version 5, cannot be read")
