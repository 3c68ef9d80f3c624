"""What `offsetlake run` tells the people who watch it, on a terminal or in a log file."""

import sys
import time
from typing import Final, TextIO

from streaming.progress import Progress
from streaming.writer import BatchReport

_CLEAR_LINE: Final = "\r\x1b[K"


class Console:
    """Prints sentences and one line per batch of real change; while catching up, one line that moves."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._is_terminal = self._out.isatty()
        self._catching_up_since: float | None = None
        self._moved = 0
        self._told_unknown: set[tuple[int, int | None]] = set()

    def say(self, sentence: str) -> None:
        """Print one line."""
        print(f"{_CLEAR_LINE if self._is_terminal else ''}{sentence}", file=self._out, flush=True)

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
        line = describe_catching_up(report.progress, self._rate())
        if self._is_terminal:
            print(f"{_CLEAR_LINE}{line}", end="", file=self._out, flush=True)
        else:
            self.say(line)

    def _tell_caught_up(self, report: BatchReport) -> None:
        self._count(report)
        self.say(
            f"caught up: {self._moved:,} source offsets, {self._rate():,.0f} a second; "
            f"{describe_batch(report)}"
        )
        self._catching_up_since = None

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
                self.say(
                    f"WARNING: records of type {kind.record_type}{version} "
                    f"cannot be read by this release; first at partition {kind.first.partition}, "
                    f"offset {kind.first.offset}. Kafka may have been upgraded: look for a newer offsetlake."
                )


def is_catching_up(progress: Progress) -> bool:
    """Tell whether some partition has not reached the end that it had when the job first started."""
    return not all(partition.loaded for partition in progress.partitions.values())


def describe_catching_up(progress: Progress, rate: float) -> str:
    """Say how far the first reading of the topic has come, and how long the rest takes at `rate`."""
    targets = sum(partition.load_target or 0 for partition in progress.partitions.values())
    left = sum(
        max((partition.load_target or 0) - partition.position, 0)
        for partition in progress.partitions.values()
    )
    percent = 100 * (targets - left) / max(targets, 1)
    return f"catching up: {percent:.0f} %, {rate:,.0f} records/s, {left / max(rate, 1):.0f} s left"


def describe_batch(report: BatchReport) -> str:
    """Say what one batch did, in one line."""
    quarantined = f", {report.quarantined} quarantined" if report.quarantined else ""
    return (
        f"batch {report.batch_id}: {report.totals.decoded:,} records, {report.changed_offsets:,} offsets and "
        f"{report.changed_groups:,} groups changed{quarantined} in {report.seconds:.1f} s"
    )
