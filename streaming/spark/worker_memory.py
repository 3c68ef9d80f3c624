"""Memory management of the job's Python processes, driver and workers.

All share one machine, and work in turns: so each returns the memory that it has freed after a step with many
rows. Large blocks are returned as soon as they are freed.

Workers exclude the objects of modules from garbage collection.
"""

import gc
import time
from collections.abc import Callable
from typing import Final

from pyspark import TaskContext

from streaming.common.freed_memory import return_freed_memory, return_freed_memory_at_once

MANY_ROWS: Final = 50_000
"""From this many rows on, freed memory is returned after each step."""

RETURNED_EVERY_S: Final = 60.0
"""The interval of returning memory freed by steps with few rows: by itself the C library returns only memory
at the end of its heap."""


class FreedMemory:
    """Decides when the memory that this process has freed is returned."""

    def __init__(self, give_back: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._return = give_back
        self._clock = clock
        self._last = clock()

    def after(self, rows: int) -> None:
        """Return freed memory after a step with this many rows, or now and then if they are few."""
        now = self._clock()
        if rows >= MANY_ROWS or now - self._last > RETURNED_EVERY_S:
            self._last = now
            self._return()


return_after: Final = FreedMemory(return_freed_memory).after


def prepare_worker() -> None:
    """Make this worker return large blocks at once, and exclude its current objects, those of its modules,
    from future garbage collections.

    PySpark's workers collect garbage after every task. With the 80,000 objects of pandas, pyarrow and PySpark
    that takes at least 0.05 s, as long as a small task itself. Has an effect only within a task, once.
    """
    global _is_prepared
    if not _is_prepared and TaskContext.get() is not None:
        gc.freeze()
        return_freed_memory_at_once()
        _is_prepared = True


_is_prepared = False
