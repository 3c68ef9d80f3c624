"""Looks at a running job from outside: its processes, its files, its tables, and what it says."""

import os
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from job_process import JobProcess
from processes import DRIVER, JVM, PARTS, WORKERS, resident_memory, written_bytes

from streaming.jvm.java import find_java
from streaming.tables.snapshot import Snapshot
from streaming.tables.tables import Tables, TablesMissingError

_BATCH: Final = re.compile(r"^\S+Z batch \d+: ([\d,]+) records, .* in ([\d.]+) s$", re.MULTILINE)
_COLLECTION: Final = re.compile(r"Pause Full .*->(\d+)M\(")  # the heap in use after it


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What was seen at one moment. Sizes are bytes on disk, `written_bytes` is since the job's start; NaN:
    not known (no batch or collection since the last sample)."""

    seconds: float
    groups_seen: int
    broker_groups: int
    live_groups: int
    live_offsets: int
    driver_rss_bytes: int
    jvm_rss_bytes: int
    workers_rss_bytes: int
    heap_bytes: float  # of the JVM, in use after a full collection
    checkpoint_bytes: int
    state_bytes: int  # of all versions that the checkpoint keeps
    local_state_bytes: int  # of RocksDB's working copies: the state alone
    changes_bytes: int
    offsets_bytes: int
    groups_bytes: int
    alerts_bytes: int
    offsets_in_use_bytes: int  # without files that were replaced and wait for their deletion
    groups_in_use_bytes: int
    log_files: int  # of `changes`
    scratch_bytes: int  # Spark's folder for what it needs while it runs, the local state included
    written_bytes: int
    batch_records: float
    batch_seconds: float


COLUMNS: Final = tuple(column.name for column in fields(Sample))


@dataclass
class Watch:
    """Looks at a job whose scratch folder and log of garbage collections are under its own folder."""

    job: JobProcess
    written_by: dict[tuple[str, int], int] = field(default_factory=dict)  # part and process -> bytes
    appeared: dict[str, int] = field(default_factory=dict)  # every file ever seen -> its largest size
    _first_path: dict[tuple[int, str], str] = field(default_factory=dict)  # inode and name -> path
    _read: dict[Path, int] = field(default_factory=dict)  # file -> how far it was read

    def sample(
        self, *, seconds: float, groups_seen: int, broker_groups: int, counts_rows: bool = True
    ) -> Sample:
        """Look at everything."""
        files = self.files()
        memory = resident_memory(self.job.parts)
        batches = _BATCH.findall(self._news(self.job.output_file))
        live = counted(self.job.tables) if counts_rows else (0, 0)
        return Sample(
            seconds=seconds,
            groups_seen=groups_seen,
            broker_groups=broker_groups,
            live_offsets=live[0],
            live_groups=live[1],
            driver_rss_bytes=memory[DRIVER],
            jvm_rss_bytes=memory[JVM],
            workers_rss_bytes=memory[WORKERS],
            heap_bytes=self._heap(),
            checkpoint_bytes=_sum(files, "checkpoint/"),
            state_bytes=_sum(files, "checkpoint/", lambda path: "/state/" in path),
            local_state_bytes=_sum(files, "scratch/", lambda path: path.endswith(".sst")),
            changes_bytes=_sum(files, "tables/changes/"),
            offsets_bytes=_sum(files, "tables/offsets/"),
            groups_bytes=_sum(files, "tables/groups/"),
            alerts_bytes=_sum(files, "tables/alerts/"),
            offsets_in_use_bytes=_in_use(self.job.tables, "offsets"),
            groups_in_use_bytes=_in_use(self.job.tables, "groups"),
            log_files=sum(path.startswith("tables/changes/_delta_log/") for path in files),
            scratch_bytes=_sum(files, "scratch/"),
            written_bytes=sum(self.written().values()),
            batch_records=_median([float(records.replace(",", "")) for records, _ in batches]),
            batch_seconds=_median([float(spent) for _, spent in batches]),
        )

    def files(self) -> dict[str, int]:
        """Return all files of the job, as paths below its folder, with their sizes; each once, by the name
        that it had first, however often it is linked. Those that are to be renamed are left out."""
        found: dict[str, int] = {}
        start = len(f"{self.job.directory}/")
        for path, stat in _walk(str(self.job.directory)):
            name = path.rpartition("/")[2]
            if not name.endswith(".tmp"):
                first = self._first_path.setdefault((stat.st_ino, name), path[start:])
                found[first] = stat.st_size
        for path, size in found.items():
            self.appeared[path] = max(self.appeared.get(path, 0), size)
        return found

    def written(self) -> Counter[str]:
        """Return how many bytes the job's processes have sent to storage so far, by part; as far as seen,
        those of ended ones too."""
        parts = self.job.parts
        for pid, count in written_bytes(parts).items():
            self.written_by[parts[pid], pid] = count
        sums = Counter(dict.fromkeys(PARTS, 0))
        for (part, _), count in self.written_by.items():
            sums[part] += count
        return sums

    def collect_garbage(self) -> None:
        """Have the JVM do a full collection, after which what is in use is what is needed."""
        jcmd = find_java().parent / "jcmd"
        for pid, part in self.job.parts.items():
            if part == JVM and jcmd.exists():  # it comes with a JDK only
                subprocess.run([jcmd, str(pid), "GC.run"], stdout=subprocess.DEVNULL, check=True)

    def _heap(self) -> float:
        collections = _COLLECTION.findall(self._news(self.job.directory / "gc.log"))
        return min((float(megabytes) * 2**20 for megabytes in collections), default=float("nan"))

    def _news(self, file: Path) -> str:
        """Read what was written to a file, in whole lines, since it was read last."""
        if not file.exists():
            return ""
        with file.open("rb") as stream:
            stream.seek(self._read.get(file, 0))
            news = stream.read()
        news = news[: news.rfind(b"\n") + 1]
        self._read[file] = self._read.get(file, 0) + len(news)
        return news.decode(errors="replace")


def counted(tables: Tables) -> tuple[int, int]:
    """Return how many live offsets and groups the tables have."""

    def count(at: Snapshot) -> tuple[int, int]:
        return len(at.offsets()), len(at.groups())

    try:
        return tables.ask(count)
    except TablesMissingError:
        return 0, 0


def _in_use(tables: Tables, name: str) -> int:
    """Return how large the files are that the newest version of a table consists of."""
    try:
        actions = tables.delta(name).get_add_actions()
    except TablesMissingError:
        return 0
    return int(pc.sum(pa.table(actions)["size_bytes"]).as_py() or 0)


def _walk(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                if entry.is_dir(follow_symlinks=False):
                    yield from _walk(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    yield entry.path, entry.stat()


def _sum(files: dict[str, int], folder: str, when: Callable[[str], bool] = lambda _: True) -> int:
    return sum(size for path, size in files.items() if path.startswith(folder) and when(path))


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2] if values else float("nan")
