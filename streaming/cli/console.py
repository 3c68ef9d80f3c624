"""What `offsetlake run` prints: how it goes on standard error, and alerts on standard output.

Every line begins with its time (UTC), or is an object of JSON that has it. On a terminal, what is waited for
and how far catching up has come is one line that is updated.
"""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal, Self, TextIO

from streaming.cli.logs import logs_to
from streaming.cli.output import discard_output, for_programs, standard_error
from streaming.common.escapes import json_text, shown
from streaming.common.times import iso, now_ms
from streaming.job.reporter import BatchReport
from streaming.model.progress import Progress

LogFormat = Literal["text", "json"]

_log = logging.getLogger(__name__)

FAR_BEHIND: Final = 100_000
"""Source offsets; a batch that leaves more unread is part of catching up (after a long stop)."""

_CLEAR_LINE: Final = "\r\x1b[K"
_NO_WIDTH: Final = 80
"""Columns of a terminal of unknown width."""

_SHORT_S: Final = 0.5
"""Shorter waits are not reported."""
_TICK_S: Final = 1.0
_TELL_AGAIN_S: Final = 10.0
"""After so long a log file is told again what is waited for, and later after twice as long each time, ..."""
_TELL_SELDOM_S: Final = 600.0
"""... but at least this often."""


class Console:
    """Prints what is logged within its `with` block, one line per batch that changes something, and alerts.

    A failing standard error never stops the job: once a line cannot be printed there, no further lines are.
    """

    def __init__(
        self,
        log_format: LogFormat = "text",
        *,
        err: TextIO | None = None,
        out: TextIO | None = None,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._lines = _Lines(err or standard_error(), log_format, clock)
        self._out = out or sys.stdout
        for_programs(self._out)  # which alerts are for
        self._catching_up_since: float | None = None
        self._moved = 0
        self._told_unknown: set[tuple[int, int | None]] = set()

    def __enter__(self) -> Self:
        self._installed = logs_to(self._lines)
        self._installed.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._installed.__exit__(None, None, None)

    def write(self, line: str) -> None:
        """Print an alert, which must not be lost: raises what printing raises, and tries every time."""
        self._lines.erase()  # standard output may be the same terminal
        print(line, file=self._out, flush=True)

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Tell what is waited for within the block, and for how many seconds already."""
        done = threading.Event()
        thread = threading.Thread(target=self._tell_wait, args=(what, done), daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join(_TICK_S)  # longer only if nobody reads what is printed
            self._lines.settle(what)

    def batch(self, report: BatchReport) -> None:
        """Tell what one batch did."""
        self._tell_unknown(report)
        if is_catching_up(report.progress):
            self._tell_catching_up(report)
        elif self._catching_up_since is not None:
            self._tell_caught_up(report)
        elif report.has_changes or report.quarantined:
            _line(describe_batch(report), **numbers_of(report))

    def _tell_wait(self, what: str, done: threading.Event) -> None:
        began, told_s = time.monotonic(), 0.0
        pause_s = _SHORT_S
        while not done.wait(pause_s):
            passed_s, pause_s = time.monotonic() - began, _TICK_S
            if self._lines.is_live:
                self._lines.live(what, f"{what} ... {passed_s:.0f} s")
            elif not told_s or passed_s - told_s >= min(max(told_s, _TELL_AGAIN_S), _TELL_SELDOM_S):
                line = f"still {what} ({passed_s:.0f} s)" if told_s else f"{what} ..."
                _line(line, waited_s=round(passed_s))
                told_s = passed_s

    def _tell_catching_up(self, report: BatchReport) -> None:
        self._count(report)
        left, rate = behind(report.progress), self._rate()
        line = describe_catching_up(self._moved, left, rate)
        if self._lines.is_live:
            self._lines.live("catching up", line)
        else:
            counted = {"source_offsets": self._moved, "source_offsets_left": left}
            _line(line, **counted, source_offsets_per_second=round(rate))

    def _tell_caught_up(self, report: BatchReport) -> None:
        self._count(report)
        self._lines.settle("catching up")
        _line(
            f"caught up: {self._moved:,} source offsets, {self._rate():,.0f} a second; "
            f"{describe_batch(report)}",
            **numbers_of(report),
            source_offsets=self._moved,
            source_offsets_per_second=round(self._rate()),
        )
        self._catching_up_since, self._moved = None, 0

    def _count(self, report: BatchReport) -> None:
        if self._catching_up_since is None:
            self._catching_up_since = time.monotonic() - report.seconds
        self._moved += report.moved

    def _rate(self) -> float:
        assert self._catching_up_since is not None
        return self._moved / max(time.monotonic() - self._catching_up_since, 0.001)

    def _tell_unknown(self, report: BatchReport) -> None:
        for kind in report.totals.unknown:
            if (kind.record_type, kind.value_version) not in self._told_unknown:
                self._told_unknown.add((kind.record_type, kind.value_version))
                version = "" if kind.value_version is None else f", value version {kind.value_version},"
                _log.warning(
                    f"WARNING: records of type {kind.record_type}{version} "
                    f"cannot be read by this release; first at partition {kind.first.partition}, "
                    f"offset {kind.first.offset}. Kafka may have been upgraded: look for a newer offsetlake."
                )


def _line(message: str, **numbers: float) -> None:
    """Log a line that has numbers, where it is one of JSON."""
    _log.info(message, extra={"numbers": numbers})


class _Lines(logging.Handler):
    """Lines on one output, of which a terminal's last one can be updated; quiet for good after a failure."""

    def __init__(self, out: TextIO, log_format: LogFormat, clock: Callable[[], int]) -> None:
        super().__init__()
        self._out = out
        self._is_json = log_format == "json"
        if self._is_json:
            for_programs(out)
        self._clock = clock
        self._lock = threading.Lock()
        self._is_quiet = False
        self._live = ("", "")  # what the last line is about, and the line
        self.is_live = not self._is_json and out.isatty()

    def emit(self, record: logging.LogRecord) -> None:
        """Print one line that stays."""
        text = self._line(record)
        with self._lock:
            self._print(f"{self._clear}{text}\n{self._live[1]}")

    def live(self, about: str, line: str) -> None:
        """Print the line that is updated, on a terminal."""
        with self._lock:
            self._live = (about, shown(line)[: self._width - 1])
            self._print(f"{self._clear}{self._live[1]}")

    def settle(self, about: str) -> None:
        """Take away the line that is updated, if it is about this."""
        with self._lock:
            if self._live[0] == about:
                self._live = ("", "")
                self._print(self._clear)

    def erase(self) -> None:
        """Make room for a line of another output; what is updated comes back with its next update."""
        with self._lock:
            if self._live[1]:
                self._print(self._clear)

    def _line(self, record: logging.LogRecord) -> str:
        moment, level, message = iso(self._clock(), "seconds"), record.levelname.lower(), record.getMessage()
        if self._is_json:
            said: dict[str, Any] = {"time": moment, "level": level, "logger": record.name, "message": message}
            return json_text(said | getattr(record, "numbers", {}))
        return f"{moment} {'ERROR: ' if level == 'error' else ''}{shown(message)}"

    @property
    def _clear(self) -> str:
        return _CLEAR_LINE if self.is_live else ""

    @property
    def _width(self) -> int:
        try:
            return os.get_terminal_size(self._out.fileno()).columns or _NO_WIDTH
        except OSError:
            return _NO_WIDTH

    def _print(self, text: str) -> None:
        """Print; at the first failure (the reader has gone, the disk is full) go quiet for good."""
        if self._is_quiet:
            return
        try:
            print(text, end="", file=self._out, flush=True)
        except BrokenPipeError:
            self._is_quiet = True
            discard_output(self._out)
        except OSError:
            self._is_quiet = True


def is_catching_up(progress: Progress) -> bool:
    """Whether some partition was never read to its end, or many offsets are unread after a long stop."""
    partitions = progress.partitions.values()
    return not partitions or not all(p.loaded for p in partitions) or behind(progress) > FAR_BEHIND


def behind(progress: Progress) -> int:
    """Return the number of unread source offsets, as far as known."""
    return sum(partition.behind or 0 for partition in progress.partitions.values())


def describe_catching_up(moved: int, left: int, rate: float) -> str:
    """Return the progress of catching up since it began, and the time for the rest at `rate`.

    `moved` and `left` count the source offsets read since then and still unread.
    """
    percent = 100 * moved / max(moved + left, 1)
    return f"catching up: {percent:.0f} %, {rate:,.0f} source offsets/s, {left / max(rate, 1):.0f} s left"


def describe_batch(report: BatchReport) -> str:
    """Return a summary of one batch, with the batch number that answers to queries contain."""
    number = report.progress.sequence
    batch = f"batch {number}" if report.has_changes else f"after batch {number}"
    quarantined = f", {report.quarantined} quarantined" if report.quarantined else ""
    return (
        f"{batch}: {report.totals.decoded:,} records, {report.changed_offsets:,} offsets and "
        f"{report.changed_groups:,} groups changed{quarantined} in {report.seconds:.1f} s"
    )


def numbers_of(report: BatchReport) -> dict[str, float]:
    """Return the numbers of a batch for a JSON line; `batch` is that of the last change."""
    return {
        "batch": report.progress.sequence,
        "records": report.totals.decoded,
        "changed_offsets": report.changed_offsets,
        "changed_groups": report.changed_groups,
        "quarantined": report.quarantined,
        "seconds": round(report.seconds, 3),
    }
