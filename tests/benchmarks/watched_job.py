"""The real `offsetlake run` as a process of its own, with its defaults, and what its batches took.

Nothing is put into the job, so what is measured is what users get: its batches are timed by the files of its
checkpoint, its processes by /proc.
"""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from job_process import JobProcess

BATCH_LINE: Final = r"(?:after )?batch \d+:|caught up:|catching up:"
"""What the job says of its first batch."""

_LIMIT_S: Final = 180.0
_LOOK_EVERY_S: Final = 0.02
_SETTINGS: Final = """
[alerts]
log = "off"
"""


@dataclass(frozen=True)
class Batch:
    """One micro-batch by the files of the checkpoint: from when it was planned to when it was committed."""

    number: int
    planned: float
    committed: float
    records: int

    @property
    def seconds(self) -> float:
        """How long the batch took; asking the brokers for the ends, which comes before, is not in it."""
        return self.committed - self.planned


@dataclass
class WatchedJob(JobProcess):
    """A job that runs, with `options`, until the end of each `with` block; `started` is of time.time()."""

    settings: str = _SETTINGS
    options: Sequence[str] = ()
    started: float = 0.0

    def __enter__(self) -> Self:
        self.started = time.time()
        self.start("run", *self.options)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def query_checkpoint(self) -> Path:
        """The folder of the query's checkpoint, as long as nothing was rebuilt."""
        return self.directory / "checkpoint" / "0"

    def wait_until(self, is_so: Callable[[], bool], what: str) -> None:
        """Wait until something is so; fail if the job ends before."""
        deadline = time.monotonic() + _LIMIT_S
        while not is_so():
            self.check()
            assert time.monotonic() < deadline, f"waited in vain for {what}; the job has said:\n{self.output}"
            time.sleep(_LOOK_EVERY_S)

    def wait_for_first_batch(self) -> None:
        """Wait until the job says that a batch is in the tables."""
        self.wait_until(lambda: self.said(BATCH_LINE), "the first batch")

    def batches(self) -> list[Batch]:
        """The batches that are committed and still in the checkpoint (the last hundred), oldest first."""
        return read_batches(self.query_checkpoint)

    def reached(self) -> int:
        """How many source offsets are in committed batches."""
        offsets, commits = self.query_checkpoint / "offsets", self.query_checkpoint / "commits"
        newest = max((int(file.name) for file in commits.glob("[0-9]*")), default=None)
        return 0 if newest is None else _records_before(offsets / str(newest))


def read_batches(checkpoint: Path) -> list[Batch]:
    """Read when batches were planned and committed: when their files in the checkpoint were written.

    The oldest that is still there tells only where the next one began, unless it is the very first.
    """
    batches: list[Batch] = []
    planned = sorted((int(file.name), file) for file in (checkpoint / "offsets").glob("[0-9]*"))
    before = 0 if planned and planned[0][0] == 0 else None
    for number, file in planned:
        with suppress(OSError):  # Spark deletes old ones
            reached, start = _records_before(file), file.stat().st_mtime
            committed = checkpoint / "commits" / str(number)
            if before is not None and committed.exists():
                batches.append(Batch(number, start, committed.stat().st_mtime, reached - before))
            before = reached
    return batches


def _records_before(offsets_file: Path) -> int:
    """Sum up the source offsets that a batch reaches to."""
    by_topic = json.loads(offsets_file.read_text().splitlines()[-1])
    return sum(offset for partitions in by_topic.values() for offset in partitions.values())
