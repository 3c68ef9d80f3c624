"""Wall and processor time of this process and all that it has started, by what it is spent on.

Processor time says more than the wall on a machine with other work to do.
Needs Linux: all is read from /proc.
"""

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

JVM: Final = "JVM, all else"
THREADS: Final[Mapping[str, str]] = {
    "Executor task": "JVM, tasks",
    "C1 Compiler": "JVM, compiling bytecode",
    "C2 Compiler": "JVM, compiling bytecode",
    "GC Thread": "JVM, collecting garbage",
    "rocksdb": "JVM, RocksDB's own threads",
}
"""What threads of the JVM are for, by the beginnings of their names."""

_TICKS: Final = os.sysconf("SC_CLK_TCK")


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
    root = os.getpid()
    parents, seconds = {}, {}
    for pid, stat in _stats(Path("/proc")):
        parents[pid] = int(stat[1])
        seconds[pid] = sum(map(int, stat[11:15])) / _TICKS  # with ended children that it has waited for

    def is_ours(pid: int) -> bool:
        return pid != left_out and (pid == root or (pid in parents and is_ours(parents[pid])))

    spent: Counter[str] = Counter()
    for pid in filter(is_ours, seconds):
        part = "driver, Python" if pid == root else _part_of(pid)
        spent[part] += seconds[pid]
        if part == JVM:
            of_threads = _seconds_of_threads(pid)
            spent += of_threads
            spent[JVM] -= of_threads.total()
    return Clocks(time.perf_counter(), spent)


def _part_of(pid: int) -> str:
    with suppress(OSError):
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        if b"pyspark.daemon" in command:
            return "Python workers"
        if Path(f"/proc/{pid}/exe").readlink().name == "java":
            return JVM
    return "all else"


def _seconds_of_threads(pid: int) -> Counter[str]:
    spent: Counter[str] = Counter()
    for thread, stat in _stats(Path(f"/proc/{pid}/task")):
        with suppress(OSError):
            name = Path(f"/proc/{pid}/task/{thread}/comm").read_text()
            part = next((part for start, part in THREADS.items() if name.startswith(start)), None)
            if part is not None:
                spent[part] += sum(map(int, stat[11:13])) / _TICKS
    return spent


def _stats(folder: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the fields after the name of each process or thread (proc(5), "stat")."""
    for stat in folder.glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            yield int(stat.parent.name), stat.read_text().rpartition(")")[2].split()
