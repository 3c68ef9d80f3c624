"""Wall and processor time of this process and all that it has started, by what it is spent on.

Processor time says more than the wall on a machine with other work to do.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from processes import JVM, THREADS, descendants, parts_of, processor_seconds, thread_seconds


@dataclass(frozen=True)
class Clocks:
    """Wall time, and processor time by what it was spent on, in seconds."""

    wall: float
    spent: Mapping[str, float] = field(default_factory=dict)

    @property
    def cpu(self) -> float:
        """All processor time."""
        return sum(self.spent.values())

    def since(self, earlier: "Clocks") -> "Clocks":
        """The time between two moments."""
        spent = {part: seconds - earlier.spent.get(part, 0) for part, seconds in self.spent.items()}
        return Clocks(self.wall - earlier.wall, spent)

    def per(self, count: int) -> "Clocks":
        """The time for one of a number of things."""
        return Clocks(self.wall / count, {part: seconds / count for part, seconds in self.spent.items()})


def read_clocks(left_out: int) -> Clocks:
    """Read the clocks now; without the process `left_out` and what it has started (a broker)."""
    driver = os.getpid()
    parts = parts_of(descendants(driver, without=left_out), driver)
    spent = processor_seconds(parts)
    for kind, seconds in thread_seconds(parts).items():
        if kind in THREADS.values():
            spent[f"{JVM}: {kind}"] = seconds
            spent[JVM] -= seconds
    spent[f"{JVM}: all else"] = spent.pop(JVM, 0.0)
    return Clocks(time.perf_counter(), spent)
