"""Reads the limit of the memory of this container: control groups (cgroups) of Linux, version 1 or 2."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final

_NO_LIMIT: Final = 2**60  # version 1 has the largest multiple of a page in place of no limit


def memory_limit(
    groups: Path = Path("/proc/self/cgroup"), mounted: Path = Path("/sys/fs/cgroup")
) -> int | None:
    """Return the limit in bytes of all processes of this container together; None: no limit.

    The groups above count, too. Of a container only its own group may be visible, as the root.
    """
    limits = [limit for file in _files(groups, mounted) if (limit := _limit(file)) is not None]
    return min(limits, default=None)


def _files(groups: Path, mounted: Path) -> Iterator[Path]:
    """Yield the files that may have a limit: of the group of this process, and of all groups above."""
    lines: list[str] = []
    with suppress(OSError, UnicodeDecodeError):  # not Linux; another kind of sandbox
        lines = groups.read_text(encoding="utf-8").splitlines()
    for line in lines:
        _, controllers, group = line.split(":", 2)
        own = PurePosixPath("/", group).relative_to("/")
        for place in (own, *own.parents):
            if "memory" in controllers.split(","):
                yield mounted / "memory" / place / "memory.limit_in_bytes"
            elif not controllers:
                yield mounted / place / "memory.max"


def _limit(file: Path) -> int | None:
    with suppress(OSError, ValueError):  # no such file; "max"
        limit = int(file.read_text(encoding="ascii"))
        return limit if limit < _NO_LIMIT else None
    return None
