"""A memory cgroup of Linux (version 1): all processes in it together get no more memory than its limit."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/sys/fs/cgroup/memory")
_LIMIT_S: Final = 20.0

NEEDS: Final = "a memory cgroup of version 1 can only be made by root, where it is mounted writable"


def can_be_made() -> bool:
    """Return whether this process may make memory cgroups."""
    return os.geteuid() == 0 and (_ROOT / "memory.limit_in_bytes").is_file() and os.access(_ROOT, os.W_OK)


@dataclass(frozen=True)
class MemoryGroup:
    """A group in a folder of the kernel."""

    folder: Path

    def add(self, pid: int) -> None:
        """Move a process into the group; what it starts from now on is there, too."""
        (self.folder / "cgroup.procs").write_text(str(pid))

    @property
    def kills(self) -> int:
        """How many processes the kernel has killed since memory ran out."""
        return self._named("memory.oom_control")["oom_kill"]

    @property
    def used_bytes(self) -> int:
        """The memory of the processes and of the kernel for them, without cached files."""
        usage = int((self.folder / "memory.usage_in_bytes").read_text())
        return usage - self._named("memory.stat")["total_cache"]

    def _named(self, file: str) -> dict[str, int]:
        lines = (self.folder / file).read_text().splitlines()
        return {name: int(value) for name, value in map(str.split, lines)}


@contextmanager
def memory_group(limit_bytes: int) -> Iterator[MemoryGroup]:
    """Make a group with a limit, and remove it once its processes have ended."""
    folder = _ROOT / f"offsetlake-test-{os.getpid()}"
    folder.mkdir()
    try:
        (folder / "memory.limit_in_bytes").write_text(str(limit_bytes))
        yield MemoryGroup(folder)
    finally:
        deadline = time.monotonic() + _LIMIT_S
        while (folder / "cgroup.procs").read_text() and time.monotonic() < deadline:
            time.sleep(0.1)
        folder.rmdir()
