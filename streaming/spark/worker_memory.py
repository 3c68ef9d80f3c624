"""Memory management of the job's Python processes, driver and workers.

While there are many rows, freed memory is kept for the next ones; afterwards it is returned. During the first
reading of a topic, each batch takes as much memory as the one before. The C library and Arrow return large
blocks at once and request them again, and the system then clears every page again: a tenth of the time of
such batches, and more on virtual machines that return free memory to their host. Where the job has less
memory than usual, nothing is kept.

Workers exclude the objects of modules from garbage collection.
"""

import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext

from streaming.common.freed_memory import (
    AT_ONCE,
    glibc,
    return_freed_memory,
    return_freed_memory_at_once,
)

MANY_ROWS: Final = 50_000
"""From this many rows on, freed memory is kept for the next ones."""

KEPT_FOR_S: Final = 60.0
"""How long freed memory is kept after the last large number of rows; there may be small batches in
between."""

TRIMMED_EVERY_S: Final = 60.0
"""The interval of returning memory freed by small batches: by itself the C library returns only memory at the
end of its heap."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -3, -4, -8  # of glibc's malloc.h
_KEPT: Final = {_M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: 2**31 - 1}
_GIVEN_BACK: Final = {_M_MMAP_MAX: 65_536, _M_MMAP_THRESHOLD: 32 * 2**20, _M_TRIM_THRESHOLD: 64 * 2**20}
"""The values that glibc reaches by itself if large blocks are freed often."""


class FreedMemory:
    """Keeps or returns the memory that this process frees; no effect without glibc (`library` None).

    Unless it `keeps`, nothing is kept, however many rows there are.
    """

    def __init__(
        self, library: Any, clock: Callable[[], float] = time.monotonic, *, keeps: bool = True
    ) -> None:
        self._library = library
        self._keeps = keeps
        self._clock = clock
        self._default_pool = pa.default_memory_pool()
        self._last_many = 0.0
        self._last_trim = 0.0
        self.is_kept = False

    def expect_many_rows(self) -> None:
        """Keep freed memory from the first rows on, in one arena for all threads that start afterwards."""
        if self._library is not None:
            self._library.mallopt(_M_ARENA_MAX, 1)
        self.handled(MANY_ROWS)

    def keep_nothing(self) -> None:
        """From now on, do as with the environment `AT_ONCE`."""
        self._keeps = False
        return_freed_memory_at_once()

    def handled(self, rows: int) -> None:
        """Keep freed memory if there were many rows; return it if it is a while since there were many."""
        now = self._clock()
        if rows >= MANY_ROWS and self._keeps:
            self._last_many = now
            self._set(is_kept=True)
        elif now - self._last_many > KEPT_FOR_S:
            self._set(is_kept=False)
            if now - self._last_trim > TRIMMED_EVERY_S:
                self._last_trim = now
                return_freed_memory(self._default_pool)

    def hand_over(self) -> None:
        """Return free memory after a step with many rows: other processes work now, and this one waits.

        Requesting it again for the next rows takes 0.6 s of processor time for a gigabyte.
        """
        if self.is_kept or not self._keeps:
            return_freed_memory(self._default_pool)

    @contextmanager
    def returned(self) -> Iterator[None]:
        """Within the block, return large blocks of memory as soon as they are freed: while few objects take
        most of the memory, what lies between them would double it."""
        was_kept = self.is_kept
        self._set(is_kept=False)
        try:
            yield
        finally:
            self._set(is_kept=was_kept)

    def release(self) -> None:
        """Within a step with many rows, return free memory unless it is kept: what small blocks leave behind
        is otherwise as much as all that is in use."""
        if not self._keeps:
            return_freed_memory(self._default_pool)

    def _set(self, *, is_kept: bool) -> None:
        if self._library is None or is_kept == self.is_kept:
            return
        self.is_kept = is_kept
        for name, value in (_KEPT if is_kept else _GIVEN_BACK).items():
            self._library.mallopt(name, value)
        pa.set_memory_pool(pa.system_memory_pool() if is_kept else self._default_pool)


_OF_THIS_PROCESS: Final = FreedMemory(glibc(), keeps=not AT_ONCE.keys() <= os.environ.keys())


def expect_many_rows() -> None:
    _OF_THIS_PROCESS.expect_many_rows()


def keep_nothing() -> None:
    _OF_THIS_PROCESS.keep_nothing()


def handled_rows(rows: int) -> None:
    _OF_THIS_PROCESS.handled(rows)


def release() -> None:
    _OF_THIS_PROCESS.release()


def hand_over() -> None:
    _OF_THIS_PROCESS.hand_over()


def returned() -> AbstractContextManager[None]:
    return _OF_THIS_PROCESS.returned()


def spare_modules_from_collection() -> None:
    """Exclude the current objects of this worker, those of its modules, from future garbage collections.

    PySpark's workers collect garbage after every task. With the 80,000 objects of pandas, pyarrow and PySpark
    that takes at least 0.05 s, as long as a small task itself. Has an effect only within a task, once.
    """
    global _is_spared
    if not _is_spared and TaskContext.get() is not None:
        gc.freeze()
        _is_spared = True


_is_spared = False
