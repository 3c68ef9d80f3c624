"""How the Python processes of the job, driver and workers, manage memory.

Memory that is freed is kept for the next rows while there are many, and given back afterwards. Batch after
batch of a first reading takes as much memory as the one before. The C library and Arrow give large pieces
back at once and ask for them again, and the system then clears every page of them again: a tenth of the time
of such batches, and more on virtual machines that give free memory back to their host.

Workers leave the objects of modules out of garbage collection.
"""

import ctypes
import gc
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext

MANY_ROWS: Final = 50_000
"""From this many rows on, freed memory is kept for the next ones."""

KEPT_FOR_S: Final = 60.0
"""How long freed memory is kept after the last of many rows; other work goes on in between."""

TRIMMED_EVERY_S: Final = 60.0
"""How often what small batches have left behind is given back: by itself the C library gives back only what
lies at the end of its heap."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -3, -4, -8  # of glibc's malloc.h
_KEPT: Final = {_M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: 2**31 - 1}
_GIVEN_BACK: Final = {_M_MMAP_MAX: 65_536, _M_MMAP_THRESHOLD: 32 * 2**20, _M_TRIM_THRESHOLD: 64 * 2**20}
"""What glibc comes to by itself where large pieces are freed often."""


class FreedMemory:
    """What this process does with memory that it frees; without glibc (`library` None) nothing is changed."""

    def __init__(self, library: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._library = library
        self._clock = clock
        self._default_pool = pa.default_memory_pool()
        self._last_many = 0.0
        self._last_trim = 0.0
        self.is_kept = False

    def expect_many_rows(self) -> None:
        """Keep freed memory from the first rows on, for all threads that start from now on together."""
        if self._library is not None:
            self._library.mallopt(_M_ARENA_MAX, 1)
        self.handled(MANY_ROWS)

    def handled(self, rows: int) -> None:
        """Keep freed memory if these rows were many; give it back if it is a while since there were many."""
        now = self._clock()
        if rows >= MANY_ROWS:
            self._last_many = now
            self._set(is_kept=True)
        elif now - self._last_many > KEPT_FOR_S:
            self._set(is_kept=False)
            if now - self._last_trim > TRIMMED_EVERY_S:
                self._last_trim = now
                self._give_back()

    def hand_over(self) -> None:
        """Give back what is free after a piece of work of many rows: now others work, and this process waits.

        What it needs for the next rows it asks for again, which takes 0.6 s of processor time for a gigabyte.
        """
        if self.is_kept:
            self._give_back()

    def _set(self, *, is_kept: bool) -> None:
        if self._library is None or is_kept == self.is_kept:
            return
        self.is_kept = is_kept
        for name, value in (_KEPT if is_kept else _GIVEN_BACK).items():
            self._library.mallopt(name, value)
        pa.set_memory_pool(pa.system_memory_pool() if is_kept else self._default_pool)

    def _give_back(self) -> None:
        self._default_pool.release_unused()
        if self._library is not None:
            self._library.malloc_trim(0)


def glibc() -> Any:
    """Return the C library of this process if it is glibc, else None."""
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    return library if hasattr(library, "gnu_get_libc_version") else None


_OF_THIS_PROCESS: Final = FreedMemory(glibc())


def expect_many_rows() -> None:
    """Do as `FreedMemory.expect_many_rows` says in this process."""
    _OF_THIS_PROCESS.expect_many_rows()


def handled_rows(rows: int) -> None:
    """Do as `FreedMemory.handled` says in this process: it has handled so many rows."""
    _OF_THIS_PROCESS.handled(rows)


def hand_over() -> None:
    """Do as `FreedMemory.hand_over` says in this process."""
    _OF_THIS_PROCESS.hand_over()


def spare_modules_from_collection() -> None:
    """Leave the current objects of this worker, those of its modules, out of garbage collections to come.

    PySpark's workers collect garbage after every task. With the 80,000 objects of pandas, pyarrow and
    PySpark that takes 0.05 s and more, as long as a small task itself. To be called within a task, where it
    acts once; elsewhere it does nothing.
    """
    global _is_spared
    if not _is_spared and TaskContext.get() is not None:
        gc.freeze()
        _is_spared = True


_is_spared = False
