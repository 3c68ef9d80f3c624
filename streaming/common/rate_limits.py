"""Limits repetition: problems are reported when they begin and when they end, and work is done at
intervals."""

import logging
import threading
import time
from abc import ABC, abstractmethod
from typing import Final, Self

_SELDOM_S: Final = 60.0
_LONGEST_WAIT_S: Final = 60.0
_END_LIMIT_S: Final = 15.0


class OngoingProblems:
    """Remembers current problems, by what they are about, and logs them as warnings."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._made: dict[str, str] = {}

    def make(self, about: str, sentence: str) -> None:
        """Report a problem, unless one about the same thing is known already."""
        if about not in self._made:
            self._log.warning(sentence)
        self._made[about] = sentence

    def settle(self, about: str, sentence: str) -> None:
        """Report that a problem is over, if there was one about this."""
        if self._made.pop(about, None) is not None:
            self._log.warning(sentence)


class RateLimitedLog:
    """Warns of one thing once a minute at most, where anybody may be the reason any number of times."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._said_at: dict[str, float] = {}

    def tell(self, about: str, sentence: str) -> None:
        """Say a sentence, unless one about the same thing was said within the last minute."""
        now = time.monotonic()
        if about not in self._said_at or now - self._said_at[about] >= _SELDOM_S:
            self._said_at[about] = now
            self._log.warning(sentence)


class Interval:
    """Says when it is time again."""

    def __init__(self, interval_ms: int, *, at_once: bool) -> None:
        self._interval_s = interval_ms / 1_000
        self._next = time.monotonic() + (0 if at_once else self._interval_s)

    def is_due(self) -> bool:
        """Tell whether it is time; if so, the next time is an interval from now."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._interval_s
        return True


class OnDemand(threading.Thread, ABC):
    """Works within a `with` block, each time that `wait_s` says so.

    `changed` guards what both sides look at; to notify it has `wait_s` asked again.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.changed = threading.Condition()
        self.done = False

    @abstractmethod
    def wait_s(self) -> float:
        """Return how long to wait before the next work (s), as it looks now; called with `changed` held."""

    @abstractmethod
    def work(self) -> None:
        """Work once."""

    def run(self) -> None:
        """Work and wait, until told to end."""
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
        """End after the work that is being done, within a bounded time."""
        with self.changed:
            self.done = True
            self.changed.notify_all()
        self.join(_END_LIMIT_S)
