"""Memory management of the job's Python processes, driver and workers.

All share one machine, and work in turns: so each returns the memory that it has freed. Large blocks are
returned as soon as they are freed, the rest after many rows.

Workers exclude the objects of modules from garbage collection.
"""

import gc
import time
from collections.abc import Callable
from typing import Final

from pyspark import TaskContext

from streaming.common.freed_memory import return_freed_memory, return_freed_memory_at_once

MANY_ROWS: Final = 100_000
"""After this many rows, freed memory is returned. More often, requesting it again takes longer."""

RETURNED_EVERY_S: Final = 60.0
"""The interval of returning memory freed by few rows: by itself the C library returns only memory at the end
of its heap."""


class FreedMemory:
    """Decides when the memory that this process has freed is returned."""

    def __init__(self, give_back: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._return = give_back
        self._clock = clock
        self._last = clock()
        self._rows = 0  # since then

    def after(self, rows: int) -> None:
        """Return freed memory if there were many rows since the last time, with these, or if it is a while
        ago."""
        now = self._clock()
        self._rows += rows
        if self._rows >= MANY_ROWS or now - self._last > RETURNED_EVERY_S:
            self._last, self._rows = now, 0
            self._return()


return_after: Final = FreedMemory(return_freed_memory).after


def prepare_worker() -> None:
    """Make this worker return large blocks at once, and exclude the objects of its modules from garbage
    collection.

    PySpark's workers collect garbage after every task. With the 80,000 objects of pandas, pyarrow and PySpark
    that takes at least 0.05 s, as long as a small task itself. Has an effect only within a task, once.
    """
    global _is_prepared
    if not _is_prepared and TaskContext.get() is not None:
        gc.freeze()
        return_freed_memory_at_once()
        _is_prepared = True


_is_prepared = False
