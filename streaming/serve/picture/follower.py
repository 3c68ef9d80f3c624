"""Keeps the newest picture: looks at the tables every second, on a thread of its own."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final, Self

from streaming.common.patience import Complaints
from streaming.common.times import now_ms
from streaming.serve.picture.picture import Picture
from streaming.serve.picture.reading import Reading, read_alerts, read_batches, read_log_ends
from streaming.tables.select import in_one_line
from streaming.tables.tables import Tables

EVERY_S: Final = 0.5
"""How often the tables are looked at: what is new is in the picture within a second."""

_STEPS: Final = {"offsets and groups": read_batches, "log ends": read_log_ends, "alerts": read_alerts}
_PATIENCE: Final = 10
"""A look that failed is repeated after so many times as long as it took: it may have read everything."""

_LONGEST_WAIT_S: Final = 30.0
_END_LIMIT_S: Final = 15.0


@dataclass(frozen=True)
class Look:
    """When the tables were last looked at (ms), and by what of them could not be read why."""

    at: int
    failures: tuple[tuple[str, str], ...] = ()


class Follower(threading.Thread):
    """Keeps the newest picture within a `with` block; what could not be read stays as it was.

    `current` is replaced as a whole: who takes it once has one picture. Whether it is as new as it should be,
    its heartbeat tells (`Picture.age_ms`), and `last_look` why it is not.
    """

    def __init__(
        self,
        tables: Tables,
        say: Callable[[str], None],
        *,
        every_s: float = EVERY_S,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        super().__init__(name="offsetlake-picture", daemon=True)
        self.last_look: Look | None = None
        self._tables = tables
        self._every_s = every_s
        self._clock = clock
        self._complaints = Complaints(say)
        self._reading = Reading(picture=Picture.none())
        self._done = threading.Event()

    @property
    def current(self) -> Picture:
        """The newest picture; before the first look that nothing has been read yet."""
        return self._reading.picture

    def look(self) -> bool:
        """Look at the tables once, and return whether all could be read. For the thread, or without one."""
        now, reading, failures = self._clock(), self._reading, []
        for about, read in _STEPS.items():
            try:
                reading = read(self._tables, reading, now)
            except Exception as error:  # whatever it is, what is known is still known
                failures.append((about, in_one_line(error)))
                self._complaints.make(
                    about, f"the picture of {about} is not renewed, retrying: {in_one_line(error)}"
                )
            else:
                self._complaints.settle(about, f"the picture of {about} is renewed again")
        self._reading = reading
        self.last_look = Look(now, tuple(failures))
        return not failures

    def run(self) -> None:
        """Look, wait, and so on, until told to end."""
        while not self._done.is_set():
            began = monotonic()
            is_good = self.look()
            took = monotonic() - began
            wait = self._every_s if is_good else min(_PATIENCE * took, _LONGEST_WAIT_S)
            self._done.wait(max(wait, self._every_s))

    def __enter__(self) -> Self:
        """Look once, so that there is a picture, and go on looking."""
        self.look()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End after the look that is being taken, within a bounded time."""
        self._done.set()
        self.join(_END_LIMIT_S)
