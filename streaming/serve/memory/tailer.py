"""Keeps the newest snapshot: polls the tables on its own thread."""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Final, Self

from streaming.common.rate_limits import OngoingProblems, end_together
from streaming.common.retries import raise_if_ending
from streaming.common.times import now_ms
from streaming.serve.memory.reading import Counting, Reading, read_alerts, read_batches, read_log_ends
from streaming.serve.memory.snapshot import MemorySnapshot
from streaming.tables.select import in_one_line
from streaming.tables.tables import Tables

_log = logging.getLogger(__name__)

EVERY_S: Final = 0.5
"""The interval of polling a folder: changes are in the snapshot within a second."""

_EVERY_S_OF_STORE: Final = 2.0
"""The interval of polling an object store: each poll costs nine requests."""

_STEPS: Final = {"offsets and groups": read_batches, "log ends": read_log_ends, "alerts": read_alerts}
_RETRY_FACTOR: Final = 10
"""A failed read is retried after this multiple of its duration: it may have read everything."""

_LONGEST_WAIT_S: Final = 30.0


@dataclass(frozen=True)
class Poll:
    """The last poll of the tables: when it was (ms), and the errors by what could not be read."""

    at: int
    failures: Mapping[str, str]


class Tailer(threading.Thread):
    """Keeps the newest snapshot within a `with` block; where a read fails, the former state remains.

    `current` is replaced as a whole, so a caller that takes it once has one consistent snapshot.
    `MemorySnapshot.age_ms` is its age, and `last_poll` holds the errors of the last poll. Messages about
    errors begin with `where`. `every_s` is the interval of polling (None: by the kind of storage).
    """

    def __init__(
        self,
        tables: Tables,
        *,
        every_s: float | None = None,
        clock: Callable[[], int] = now_ms,
        counters: Counting | None = None,
        where: str = "",
    ) -> None:
        super().__init__(name="offsetlake-snapshot", daemon=True)
        self.last_poll: Poll | None = None
        self._tables = tables
        self._every_s = every_s or (_EVERY_S_OF_STORE if "://" in tables.root else EVERY_S)
        self._clock = clock
        self._problems = OngoingProblems(_log, where)
        self._reading = Reading(snapshot=MemorySnapshot.none(), counters=counters)
        self._failures: Mapping[str, str] = {}
        self._not_before: dict[str, float] = {}
        self._done = threading.Event()

    @property
    def current(self) -> MemorySnapshot:
        """The newest snapshot; empty before the first poll."""
        return self._reading.snapshot

    @property
    def newest(self) -> Reading:
        """The newest snapshot with the counters up to it."""
        return self._reading

    def poll(self, *, patiently: bool = False) -> bool:
        """Poll the tables once, on the thread or without it, and return whether all could be read;
        `patiently` delays the retry of reads that failed."""
        now, reading, failures = self._clock(), self._reading, dict[str, str]()
        for about, read in _STEPS.items():
            began = monotonic()
            if patiently and began < self._not_before.get(about, began):
                failures[about] = self._failures[about]
                continue
            try:
                reading = read(self._tables, reading, now)
            except BaseException as error:  # also a panic of delta-rs; what was read before remains
                raise_if_ending(error)
                failures[about] = in_one_line(error)
                wait = min(_RETRY_FACTOR * (monotonic() - began), _LONGEST_WAIT_S)
                self._not_before[about] = monotonic() + wait
                self._problems.make(
                    about,
                    f"the in-memory snapshot of {about} cannot be refreshed, retrying: {failures[about]}",
                )
            else:
                self._problems.settle(about, f"the in-memory snapshot of {about} is refreshed again")
        self._reading, self._failures = reading, failures
        self.last_poll = Poll(now, failures)
        return not failures

    def run(self) -> None:
        """Poll until the end of the `with` block; at once if there was no poll yet."""
        while not self._done.wait(self._every_s if self.last_poll else 0):
            self.poll(patiently=True)

    def __enter__(self) -> Self:
        """Poll once, so that there is a snapshot, and go on polling."""
        self.poll()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End after the poll in progress, within a bounded time."""
        end_together([self])

    def stop(self) -> None:
        """Let the thread end after the poll in progress, without waiting for it."""
        self._done.set()
