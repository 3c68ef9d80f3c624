"""Limits repetition: problems are reported when they begin and when they end, and work is done at
intervals."""

import time
from collections.abc import Callable


class Complaints:
    """Remembers current problems, by what they are about."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._made: dict[str, str] = {}

    def make(self, about: str, sentence: str) -> None:
        """Report a problem, unless one about the same thing is known already."""
        if about not in self._made:
            self._say(sentence)
        self._made[about] = sentence

    def settle(self, about: str, sentence: str) -> None:
        """Report that a problem is over, if there was one about this."""
        if self._made.pop(about, None) is not None:
            self._say(sentence)


class Every:
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
