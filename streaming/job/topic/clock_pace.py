"""Jumps of the clock of this machine."""

import time
from collections.abc import Callable

from streaming.common.times import now_ms


class ClockPace:
    """Detects jumps of the clock, by comparison with a clock that only runs forward (`steady`, in seconds).

    A suspended virtual machine may resume with the time at which it was suspended. Until its clock is
    corrected, the job does not know how long the pause was.
    """

    def __init__(
        self, clock: Callable[[], int] = now_ms, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._steady = steady
        self._ahead = self._difference()

    def jumped_ms(self) -> int:
        """Return by how much (ms) the clock has advanced more than the elapsed time since the last call."""
        before, self._ahead = self._ahead, self._difference()
        return self._ahead - before

    def _difference(self) -> int:
        return self._clock() - int(self._steady() * 1_000)
