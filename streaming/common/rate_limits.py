"""Limits repetition: logs problems once at their begin and once at their end, and runs work at intervals."""

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Final, Protocol, Self

_SELDOM_S: Final = 60.0
_LONGEST_WAIT_S: Final = 60.0
_END_LIMIT_S: Final = 15.0


class OngoingProblems:
    """Logs each problem as a warning when it begins and when it ends; `about` identifies it.

    The sentences begin with `where`, such as "cluster shop: ".
    """

    def __init__(self, log: logging.Logger, where: str = "") -> None:
        self._log, self._where = log, where
        self._made: dict[str, str] = {}

    def make(self, about: str, sentence: str) -> None:
        """Log a problem, unless one with the same `about` is ongoing."""
        if about not in self._made:
            self._log.warning(self._where + sentence)
        self._made[about] = sentence

    def settle(self, about: str, sentence: str) -> None:
        """Log the end of the problem, if there was one."""
        if self._made.pop(about, None) is not None:
            self._log.warning(self._where + sentence)


class RateLimitedLog:
    """Logs at most one warning a minute for each `about`; for causes that clients can repeat at will."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._said_at: dict[str, float] = {}

    def warning(self, about: str, sentence: str) -> None:
        """Log a warning, unless one with the same `about` was logged within the last minute."""
        now = time.monotonic()
        if about not in self._said_at or now - self._said_at[about] >= _SELDOM_S:
            self._said_at[about] = now
            self._log.warning(sentence)


class Interval:
    """A timer that is due once in each interval."""

    def __init__(self, interval_ms: int, *, at_once: bool) -> None:
        self._interval_s = interval_ms / 1_000
        self._next = time.monotonic() + (0 if at_once else self._interval_s)

    def is_due(self) -> bool:
        """Whether the interval has passed; if so, the next one begins now."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._interval_s
        return True

    def restart(self, times: float) -> None:
        """Begin the next interval now, and let it be `times` as long."""
        self._next = time.monotonic() + self._interval_s * times


class OnDemand(threading.Thread, ABC):
    """A thread that runs `work` within a `with` block, after each wait of `wait_s`.

    `changed` guards the state shared with callers; notifying it evaluates `wait_s` again.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.changed = threading.Condition()
        self.done = False

    @abstractmethod
    def wait_s(self) -> float:
        """Return the current wait before the next work (s); called with `changed` held."""

    @abstractmethod
    def work(self) -> None:
        """Run the work once."""

    def run(self) -> None:
        """Alternate between work and waiting until the `with` block ends."""
        while True:
            with self.changed:
                while not self.done and (wait := self.wait_s()) > 0:
                    self.changed.wait(min(wait, _LONGEST_WAIT_S))
                if self.done:
                    return
            self.work()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for the current work to end, within a bounded time."""
        end_together([self])

    def stop(self) -> None:
        """Let the thread end after the current work, without waiting for it."""
        with self.changed:
            self.done = True
            self.changed.notify_all()


class Stoppable(Protocol):
    """A thread that ends some time after it was told to."""

    def stop(self) -> None: ...

    def join(self, timeout: float | None = None) -> None: ...


def end_together(threads: Iterable[Stoppable]) -> None:
    """Stop threads that were started, and wait for all of them within one bounded time: what hangs in one
    does not add up."""
    threads = list(threads)
    for thread in threads:
        thread.stop()
    limit = time.monotonic() + _END_LIMIT_S
    for thread in threads:
        thread.join(max(0.0, limit - time.monotonic()))
