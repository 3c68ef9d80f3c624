"""What `offsetlake run` prints, on a terminal or in a log file."""

import sys
import time
from typing import Final, TextIO

from streaming.cli.output import let_go
from streaming.common.escapes import shown
from streaming.job.listener import BatchReport
from streaming.model.progress import Progress

_CLEAR_LINE: Final = "\r\x1b[K"

FAR_BEHIND: Final = 100_000
"""Source offsets; a batch that leaves more of them unread is one of catching up (after a long stop)."""


class Console:
    """Prints messages and one line per batch that changes something; while catching up, one line that is
    updated.

    A failing output never stops the job: once a line cannot be printed, no further lines are, except by
    `write`.
    """

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._is_terminal = self._out.isatty()
        self._is_quiet = False
        self._catching_up_since: float | None = None
        self._moved = 0
        self._told_unknown: set[tuple[int, int | None]] = set()

    def say(self, sentence: str) -> None:
        """Print one line."""
        self._print(f"{_CLEAR_LINE if self._is_terminal else ''}{shown(sentence)}\n")

    def write(self, line: str) -> None:
        """Print a line that must not be lost: raises what printing raises, and tries every time."""
        print(f"{_CLEAR_LINE if self._is_terminal else ''}{line}", file=self._out, flush=True)

    def batch(self, report: BatchReport) -> None:
        """Tell what one batch did."""
        self._tell_unknown(report)
        if is_catching_up(report.progress):
            self._tell_catching_up(report)
        elif self._catching_up_since is not None:
            self._tell_caught_up(report)
        elif report.changed_offsets or report.changed_groups or report.quarantined:
            self.say(describe_batch(report))

    def _tell_catching_up(self, report: BatchReport) -> None:
        self._count(report)
        line = describe_catching_up(self._moved, behind(report.progress), self._rate())
        if self._is_terminal:
            self._print(f"{_CLEAR_LINE}{line}")
        else:
            self.say(line)

    def _tell_caught_up(self, report: BatchReport) -> None:
        self._count(report)
        self.say(
            f"caught up: {self._moved:,} source offsets, {self._rate():,.0f} a second; "
            f"{describe_batch(report)}"
        )
        self._catching_up_since, self._moved = None, 0

    def _count(self, report: BatchReport) -> None:
        if self._catching_up_since is None:
            self._catching_up_since = time.monotonic() - report.seconds
        self._moved += report.moved

    def _rate(self) -> float:
        assert self._catching_up_since is not None
        return self._moved / max(time.monotonic() - self._catching_up_since, 0.001)

    def _print(self, text: str) -> None:
        """Print; at the first failure (the reader has gone, the disk is full) go quiet for good."""
        if self._is_quiet:
            return
        try:
            print(text, end="", file=self._out, flush=True)
        except BrokenPipeError:
            self._is_quiet = True
            let_go(self._out)
        except OSError:
            self._is_quiet = True

    def _tell_unknown(self, report: BatchReport) -> None:
        for kind in report.totals.unknown:
            if (kind.record_type, kind.value_version) not in self._told_unknown:
                self._told_unknown.add((kind.record_type, kind.value_version))
                version = "" if kind.value_version is None else f", value version {kind.value_version},"
                self.say(
                    f"WARNING: records of type {kind.record_type}{version} "
                    f"cannot be read by this release; first at partition {kind.first.partition}, "
                    f"offset {kind.first.offset}. Kafka may have been upgraded: look for a newer offsetlake."
                )


def is_catching_up(progress: Progress) -> bool:
    """Tell whether some partition was never read to its end, or much is left to read after a long stop."""
    partitions = progress.partitions.values()
    return not partitions or not all(p.loaded for p in partitions) or behind(progress) > FAR_BEHIND


def behind(progress: Progress) -> int:
    """Count the source offsets that are still to be read, as far as is known."""
    return sum(partition.behind or 0 for partition in progress.partitions.values())


def describe_catching_up(moved: int, left: int, rate: float) -> str:
    """Say how far catching up has come since it began, and how long the rest takes at `rate`.

    `moved` and `left` count the source offsets read since then and still to be read.
    """
    percent = 100 * moved / max(moved + left, 1)
    return f"catching up: {percent:.0f} %, {rate:,.0f} source offsets/s, {left / max(rate, 1):.0f} s left"


def describe_batch(report: BatchReport) -> str:
    """Say what one batch did, in one line."""
    quarantined = f", {report.quarantined} quarantined" if report.quarantined else ""
    return (
        f"batch {report.batch_id}: {report.totals.decoded:,} records, {report.changed_offsets:,} offsets and "
        f"{report.changed_groups:,} groups changed{quarantined} in {report.seconds:.1f} s"
    )
