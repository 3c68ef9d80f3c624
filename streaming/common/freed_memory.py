"""Returns memory that this process has freed to the system: Arrow and the C library keep most of it."""

import ctypes
import sys
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # of glibc's malloc.h
_ARENAS: Final = 2
_LARGE_BYTES: Final = 2**20
_SPARE_BYTES: Final = 8 * 2**20

AT_ONCE: Final[Mapping[str, str]] = {
    "MALLOC_ARENA_MAX": str(_ARENAS),
    "MALLOC_MMAP_THRESHOLD_": str(_LARGE_BYTES),
    "MALLOC_TRIM_THRESHOLD_": str(_SPARE_BYTES),
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
"""The environment of a process that returns each block of a megabyte or more to the system as soon as it is
freed. By default glibc does so only until such blocks were freed a few times, and Arrow later or never."""


def glibc() -> Any:
    """Return the C library of this process if it is glibc, else None."""
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    return library if hasattr(library, "gnu_get_libc_version") else None


_LIBRARY: Final = glibc()


def return_freed_memory(pool: pa.MemoryPool | None = None) -> None:
    """Return freed memory to the system, also from Arrow's `pool` (None: the default pool). Takes about 10 ms
    for a few hundred MiB."""
    (pool or pa.default_memory_pool()).release_unused()
    if _LIBRARY is not None:
        _LIBRARY.malloc_trim(0)


def return_freed_memory_at_once() -> None:
    """Make this process return large blocks as with the environment `AT_ONCE`, from now on; no effect without
    glibc."""
    if _LIBRARY is not None:
        _LIBRARY.mallopt(_M_ARENA_MAX, _ARENAS)
        _LIBRARY.mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        _LIBRARY.mallopt(_M_TRIM_THRESHOLD, _SPARE_BYTES)
        pa.set_memory_pool(pa.system_memory_pool())
