"""Keeps the newest snapshot: looks at the tables every second, on a thread of its own."""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Final, Self

from streaming.common.rate_limits import OngoingProblems
from streaming.common.retries import raise_if_ending
from streaming.common.times import now_ms
from streaming.serve.memory.reading import Counting, Reading, read_alerts, read_batches, read_log_ends
from streaming.serve.memory.snapshot import MemorySnapshot
from streaming.tables.select import in_one_line
from streaming.tables.tables import Tables

_log = logging.getLogger(__name__)

EVERY_S: Final = 0.5
"""How often the tables are looked at: what is new is in the snapshot within a second."""

_STEPS: Final = {"offsets and groups": read_batches, "log ends": read_log_ends, "alerts": read_alerts}
_PATIENCE: Final = 10
"""What could not be read is tried again after so many times as long as that took: it may have been all."""

_LONGEST_WAIT_S: Final = 30.0
_END_LIMIT_S: Final = 15.0


@dataclass(frozen=True)
class Look:
    """When the tables were last looked at (ms), and why what of them could not be read."""

    at: int
    failures: Mapping[str, str]


class Tailer(threading.Thread):
    """Keeps the newest snapshot within a `with` block; what could not be read stays as it was.

    `current` is replaced as a whole: who takes it once has one snapshot. Whether it is as new as it should
    be, its heartbeat tells (`MemorySnapshot.age_ms`), and `last_look` why it is not.
    """

    def __init__(
        self,
        tables: Tables,
        *,
        every_s: float = EVERY_S,
        clock: Callable[[], int] = now_ms,
        counters: Counting | None = None,
    ) -> None:
        super().__init__(name="offsetlake-snapshot", daemon=True)
        self.last_look: Look | None = None
        self._tables = tables
        self._every_s = every_s
        self._clock = clock
        self._problems = OngoingProblems(_log)
        self._reading = Reading(snapshot=MemorySnapshot.none(), counters=counters)
        self._failures: Mapping[str, str] = {}
        self._not_before: dict[str, float] = {}
        self._done = threading.Event()

    @property
    def current(self) -> MemorySnapshot:
        """The newest snapshot; before the first look that nothing has been read yet."""
        return self._reading.snapshot

    @property
    def newest(self) -> Reading:
        """The newest snapshot with what was counted up to it."""
        return self._reading

    def look(self, *, patiently: bool = False) -> bool:
        """Look at the tables once, and return whether all could be read; `patiently` what could not be read
        the last time only after a while. For the thread, or without one."""
        now, reading, failures = self._clock(), self._reading, dict[str, str]()
        for about, read in _STEPS.items():
            began = monotonic()
            if patiently and began < self._not_before.get(about, began):
                failures[about] = self._failures[about]
                continue
            try:
                reading = read(self._tables, reading, now)
            except BaseException as error:  # a panic of delta-rs, too: what is known is still known
                raise_if_ending(error)
                failures[about] = in_one_line(error)
                wait = min(_PATIENCE * (monotonic() - began), _LONGEST_WAIT_S)
                self._not_before[about] = monotonic() + wait
                self._problems.make(
                    about,
                    f"the in-memory snapshot of {about} cannot be refreshed, retrying: {failures[about]}",
                )
            else:
                self._problems.settle(about, f"the in-memory snapshot of {about} is refreshed again")
        self._reading, self._failures = reading, failures
        self.last_look = Look(now, failures)
        return not failures

    def run(self) -> None:
        """Look, wait, and so on, until told to end; the first time at once, if there was no look yet."""
        while not self._done.wait(self._every_s if self.last_look else 0):
            self.look(patiently=True)

    def __enter__(self) -> Self:
        """Look once, so that there is a snapshot, and go on looking."""
        self.look()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End after the look that is being taken, within a bounded time."""
        self._done.set()
        self.join(_END_LIMIT_S)
