"""Returns memory that this process has freed to the system: Arrow and the C library keep most of it."""

import ctypes
import sys
from typing import Any, Final

import pyarrow as pa

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # of glibc's malloc.h
_ARENAS: Final = 2
_LARGE_BYTES: Final = 2**20
_SPARE_BYTES: Final = 8 * 2**20


def glibc() -> Any:
    """Return the C library of this process if it is glibc, else None."""
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    return library if hasattr(library, "gnu_get_libc_version") else None


_LIBRARY: Final = glibc()


def return_freed_memory() -> None:
    """Return freed memory to the system, also Arrow's. Takes about 10 ms for a few hundred MiB."""
    pa.default_memory_pool().release_unused()
    if _LIBRARY is not None:
        _LIBRARY.malloc_trim(0)


def return_freed_memory_at_once() -> None:
    """Make this process return each block of a megabyte or more to the system as soon as it is freed; no
    effect without glibc.

    By default glibc does so only until such blocks were freed a few times, and Arrow later or never.
    """
    if _LIBRARY is not None:
        _LIBRARY.mallopt(_M_ARENA_MAX, _ARENAS)
        _LIBRARY.mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        _LIBRARY.mallopt(_M_TRIM_THRESHOLD, _SPARE_BYTES)
        pa.set_memory_pool(pa.system_memory_pool())
