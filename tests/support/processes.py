"""What /proc tells of the processes of a job: which part of it each is, and what they have used.

Processes that end while they are looked at are left out. Which belong to a job at all is found by `bombs`,
which stand alone, as they are imported into the job. Needs Linux: see proc(5).
"""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from bombs.sitecustomize import processes_of_session as processes_of_session

DRIVER, JVM, WORKERS, STARTED_BY_JVM = "driver", "JVM", "Python workers", "started by the JVM"
PARTS: Final = (DRIVER, JVM, STARTED_BY_JVM, WORKERS)
"""The parts of a job; for files of a local checkpoint Hadoop starts processes of its own."""

THREADS: Final[Mapping[str, str]] = {
    "Executor task": "tasks",
    "C1 Compiler": "compiling bytecode",
    "C2 Compiler": "compiling bytecode",
    "GC Thread": "collecting garbage",
    "rocksdb": "RocksDB's own threads",
}
"""What most threads of the JVM are for, by the beginnings of their names."""

_PROC: Final = Path("/proc")
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")

Parts = Mapping[int, str]
"""Processes, and which part of the job each belongs to."""


def descendants(root: int, *, without: int) -> list[int]:
    """Return a process and all that descend from it, but not one of them and what descends from that."""
    parents = {}
    for pid in _numbers(_PROC):
        with suppress(OSError):
            parents[pid] = int(_fields(_PROC / f"{pid}/stat")[1])

    def is_wanted(pid: int) -> bool:
        return pid != without and (pid == root or (pid in parents and is_wanted(parents[pid])))

    return list(filter(is_wanted, parents))


def parts_of(processes: Iterable[int], driver: int) -> dict[int, str]:
    """Tell which part of a job each of its processes belongs to."""
    found = {}
    for pid in processes:
        with suppress(OSError):
            command = (_PROC / f"{pid}/cmdline").read_bytes()
            is_launcher = b"org.apache.spark.launcher.Main" in command  # it prints how to start the JVM
            is_java = (_PROC / f"{pid}/exe").readlink().name == "java" and not is_launcher
            is_worker = b"pyspark.worker" in command
            found[pid] = (
                DRIVER if pid == driver else JVM if is_java else WORKERS if is_worker else STARTED_BY_JVM
            )
    return found


def processor_seconds(parts: Parts) -> Counter[str]:
    """Return the processor time up to now by part, that of ended processes too."""
    seconds: Counter[str] = Counter()
    for pid, part in parts.items():
        with suppress(OSError):
            fields = _fields(_PROC / f"{pid}/stat")
            seconds[part] += _seconds(fields[11:13])  # type: ignore[assignment]  # Counter adds up floats, too
            seconds[STARTED_BY_JVM if part == JVM else part] += _seconds(  # type: ignore[assignment]
                fields[13:15]  # of ended children
            )
    return seconds


def forked_worker_seconds(parts: Parts) -> dict[int, float]:
    """Return the processor time up to now of each Python worker that another one, PySpark's daemon, forked.

    The daemon ignores the end of its children: what they have used is nobody's any more when they have ended.
    """
    workers = {pid for pid, part in parts.items() if part == WORKERS}
    found = {}
    for pid in workers:
        with suppress(OSError):
            fields = _fields(_PROC / f"{pid}/stat")
            if int(fields[1]) in workers:
                found[pid] = _seconds(fields[11:15])
    return found


def thread_seconds(parts: Parts) -> Counter[str]:
    """Return the processor time of the JVM's threads up to now, by what they are for, else by their names."""
    seconds: Counter[str] = Counter()
    for pid in [pid for pid, part in parts.items() if part == JVM]:
        for thread in _numbers(_PROC / f"{pid}/task"):
            with suppress(OSError):
                folder = _PROC / f"{pid}/task/{thread}"
                kind = _kind_of_thread((folder / "comm").read_text().strip())
                seconds[kind] += _seconds(_fields(folder / "stat")[11:13])  # type: ignore[assignment]
    return seconds


def peak_memory(parts: Parts) -> Counter[str]:
    """Return the most memory (resident bytes) that each process has had, summed up by part."""
    return _kilobytes_named(parts, "status", "VmHWM")


def resident_memory(parts: Parts) -> Counter[str]:
    """Return the memory (resident bytes) that the processes have now, by part."""
    found: Counter[str] = Counter()
    for pid, part in parts.items():
        with suppress(OSError):
            found[part] += _PAGE * int((_PROC / f"{pid}/statm").read_text().split()[1])
    return found


def proportional_memory(parts: Parts) -> Counter[str]:
    """Return the memory (bytes) that the processes have now, by part; pages that are shared in proportion."""
    return _kilobytes_named(parts, "smaps_rollup", "Pss")


def _kilobytes_named(parts: Parts, file: str, name: str) -> Counter[str]:
    """Sum up by part what a file of each process says in KiB; returns bytes."""
    found: Counter[str] = Counter()
    for pid, part in parts.items():
        with suppress(OSError):
            found[part] += 1024 * _named(_PROC / f"{pid}/{file}", name)
    return found


def written_bytes(parts: Parts) -> dict[int, int]:
    """Return how many bytes each process has sent to storage so far."""
    found = {}
    for pid in parts:
        with suppress(OSError):
            found[pid] = _named(_PROC / f"{pid}/io", "write_bytes")
    return found


def _numbers(folder: Path) -> Iterator[int]:
    """Yield the processes or threads of a folder."""
    with suppress(OSError):
        yield from (int(entry.name) for entry in folder.iterdir() if entry.name.isdigit())


def _fields(stat: Path) -> list[str]:
    """Read what follows the name of a process or thread, which may hold anything."""
    return stat.read_text().rpartition(")")[2].split()


def _seconds(ticks: Iterable[str]) -> float:
    return sum(map(int, ticks)) / _TICKS


def _named(file: Path, name: str) -> int:
    """Read the first number behind a name; 0 where there is none, as of kernel threads and zombies."""
    found = re.search(rf"^{name}:\s*(\d+)", file.read_text(), re.MULTILINE)
    return int(found[1]) if found else 0


def _kind_of_thread(name: str) -> str:
    """Name a thread (of which the kernel gives 15 characters) by what all of its kind have in common."""
    for start, kind in THREADS.items():
        if name.startswith(start):
            return kind
    return re.sub(r"[#\d].*", "", name[:13]).strip(" -")
