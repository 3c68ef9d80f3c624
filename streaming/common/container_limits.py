"""The limits of this container: control groups (cgroups) of Linux, version 1 or 2.

Java reads them itself. Python and Arrow see all cores and all memory of the machine.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Final

import pyarrow as pa

_GROUPS: Final = Path("/proc/self/cgroup")
_MOUNTED: Final = Path("/sys/fs/cgroup")
_NO_LIMIT: Final = 2**60  # version 1 has the largest multiple of a page in place of no limit


def memory_limit(groups: Path = _GROUPS, mounted: Path = _MOUNTED) -> int | None:
    """Return the limit in bytes of all processes of this container together; None: no limit.

    The groups above count, too. Of a container only its own group may be visible, as the root.
    """
    names = ("memory.max", "memory.limit_in_bytes")
    found = [_numbers(folder / name) for folder in _folders("memory", groups, mounted) for name in names]
    return min((limit for limits in found for limit in limits if limit < _NO_LIMIT), default=None)


def core_limit(groups: Path = _GROUPS, mounted: Path = _MOUNTED) -> int | None:
    """Return the limit of this container in cores, rounded up as Java does; None: no limit.

    The groups above count, too.
    """
    found = list[list[int]]()
    for folder in _folders("cpu", groups, mounted):
        found.append(_numbers(folder / "cpu.max"))
        found.append(_numbers(folder / "cpu.cfs_quota_us") + _numbers(folder / "cpu.cfs_period_us"))
    quotas = [quota for quota in found if len(quota) == 2 and min(quota) > 0]  # -1: no limit
    return min((-(-time // period) for time, period in quotas), default=None)


@cache
def usable_cores() -> int:
    """Return the number of cores that this process may use: no more than the limit of its container."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(here, core_limit() or here)


def limit_cores_of_arrow() -> None:
    """Let Arrow use no more cores than this process may use."""
    pa.set_cpu_count(min(pa.cpu_count(), usable_cores()))  # OMP_NUM_THREADS may say fewer


def _folders(controller: str, groups: Path, mounted: Path) -> Iterator[Path]:
    """Yield the folders that may have a limit: of the group of this process, and of all groups above."""
    lines: list[str] = []
    with suppress(OSError, UnicodeDecodeError):  # not Linux; another kind of sandbox
        lines = groups.read_text(encoding="utf-8").splitlines()
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, is_complete, group = rest.partition(":")
        if not is_complete:  # of another kind of sandbox
            continue
        own = PurePosixPath("/", group).relative_to("/")
        for place in (own, *own.parents):
            if controller in controllers.split(","):
                yield mounted / controller / place
            elif not controllers:
                yield mounted / place


def _numbers(file: Path) -> list[int]:
    """Return the numbers in a file; empty: there is no such file, or no limit (`max`)."""
    with suppress(OSError, ValueError):
        return [int(word) for word in file.read_text(encoding="ascii").split()]
    return []
