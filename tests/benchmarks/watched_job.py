"""The real `offsetlake run` as a process of its own, watched from outside.

What it prints and when, its processor time and memory by part, and how long its batches take by the files of
its checkpoint.

Nothing is put into the job, so what is measured is what users get. Needs Linux: all is read from /proc.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from streaming.tables import Tables

ROOT: Final = Path(__file__).parents[2]
BATCH_LINE: Final = r"^(batch \d+:|caught up:|catching up:)"
PARTS: Final = ("driver", "JVM", "started by the JVM", "Python workers")

_COMMAND: Final = [sys.executable, "-m", "streaming.cli", "run", "--config", "settings.toml"]
_LIMIT_S: Final = 180.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_SETTINGS: Final = """
[job]
checkpoint = "checkpoint"
[tables]
root = "tables"
[alerts]
log = "off"
[spark]
log_file = "spark.log"
"""


@dataclass(frozen=True)
class Line:
    """Something that the job said; `moment` is of time.time()."""

    moment: float
    text: str


@dataclass(frozen=True)
class Batch:
    """One micro-batch by the files of the checkpoint: from when it was planned to when it was committed."""

    number: int
    planned: float
    committed: float
    records: int

    @property
    def seconds(self) -> float:
        """How long the batch took; asking the brokers for the ends, which comes before, is not in it."""
        return self.committed - self.planned


@dataclass
class WatchedJob:
    """A job with tables and a checkpoint of its own under `directory`; stopped at the end of the block."""

    directory: Path
    bootstrap: str
    options: list[str] = field(default_factory=list)
    settings: str = ""
    started: float = 0.0
    lines: list[Line] = field(default_factory=list)
    _process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "settings.toml").write_text(_SETTINGS + self.settings)
        self.lines = []
        self.started = time.time()
        self._process = subprocess.Popen(
            [*_COMMAND, "--bootstrap-server", self.bootstrap, *self.options],
            cwd=self.directory,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    @property
    def process(self) -> subprocess.Popen[str]:
        """The driver."""
        assert self._process is not None, "the job is started by entering its block"
        return self._process

    @property
    def tables(self) -> Tables:
        """The job's tables."""
        return Tables(str(self.directory / "tables"))

    @property
    def checkpoint(self) -> Path:
        """The folder of the query's checkpoint, as long as nothing was rebuilt."""
        return self.directory / "checkpoint" / "0"

    def said(self, pattern: str) -> list[Line]:
        """What the job has said that matches."""
        return [line for line in self.lines if re.search(pattern, line.text)]

    def wait_for_line(self, pattern: str, limit_s: float = _LIMIT_S) -> Line:
        """Wait until the job says something."""
        deadline = time.monotonic() + limit_s
        while not (found := self.said(pattern)):
            self.check(deadline, f"the job to say {pattern!r}")
            time.sleep(0.02)
        return found[0]

    def check(self, deadline: float, waited_for: str) -> None:
        """Fail if the job has ended or the deadline has passed."""
        is_late = time.monotonic() > deadline
        if is_late or self.process.poll() is not None:
            said = "\n".join(line.text for line in self.lines[-20:])
            raise AssertionError(f"waited in vain for {waited_for}; the job has said:\n{said}")

    def batches(self) -> list[Batch]:
        """The batches that are committed and still in the checkpoint (the last hundred), oldest first."""
        return read_batches(self.checkpoint)

    def reached(self) -> int:
        """How many source offsets are in committed batches."""
        offsets, commits = self.checkpoint / "offsets", self.checkpoint / "commits"
        newest = max((int(file.name) for file in commits.glob("[0-9]*")), default=None)
        return 0 if newest is None else _records_before(offsets / str(newest))

    def processes(self) -> dict[int, str]:
        """The processes of the job and which part each belongs to."""
        found = {}
        for pid in _session(self.process.pid):
            with suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_text()
                is_java = Path(f"/proc/{pid}/exe").readlink().name == "java"
                is_worker = "pyspark" in command and "daemon" in command
                found[pid] = (
                    "JVM"
                    if is_java
                    else "driver"
                    if pid == self.process.pid
                    else "Python workers"
                    if is_worker
                    else "started by the JVM"
                )
        return found

    def processor_seconds(self) -> Counter[str]:
        """Processor time up to now by part, of ended processes too."""
        seconds: Counter[str] = Counter()
        for pid, part in self.processes().items():
            with suppress(OSError):
                own, ended = _times(Path(f"/proc/{pid}/stat"))
                seconds[part] += own
                seconds["started by the JVM" if part == "JVM" else part] += ended
        return seconds

    def thread_seconds(self) -> Counter[str]:
        """Processor time of the JVM's threads up to now, by their names without numbers."""
        seconds: Counter[str] = Counter()
        for pid in [pid for pid, part in self.processes().items() if part == "JVM"]:
            for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
                with suppress(OSError):
                    name = stat.read_text().partition("(")[2].rpartition(")")[0]
                    seconds[_kind_of_thread(name)] += _times(stat)[0]
        return seconds

    def peak_memory(self) -> Counter[str]:
        """The most memory (resident bytes) that each of the present processes has had, summed up by part."""
        peaks: Counter[str] = Counter()
        for pid, part in self.processes().items():
            with suppress(OSError):
                status = Path(f"/proc/{pid}/status").read_text()
                peaks[part] += 1024 * int(status.partition("VmHWM:")[2].split()[0])
        return peaks

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for text in process.stdout:
            self.lines.append(Line(time.time(), text.rstrip("\n")))


def read_batches(checkpoint: Path) -> list[Batch]:
    """Read when batches were planned and committed: when their files in the checkpoint were written.

    The oldest that is still there tells only where the next one began, unless it is the very first.
    """
    batches: list[Batch] = []
    planned = sorted((int(file.name), file) for file in (checkpoint / "offsets").glob("[0-9]*"))
    before = 0 if planned and planned[0][0] == 0 else None
    for number, file in planned:
        with suppress(OSError):  # Spark deletes old ones
            reached, start = _records_before(file), file.stat().st_mtime
            committed = checkpoint / "commits" / str(number)
            if before is not None and committed.exists():
                batches.append(Batch(number, start, committed.stat().st_mtime, reached - before))
            before = reached
    return batches


def _records_before(offsets_file: Path) -> int:
    """Sum up the source offsets that a batch reaches to."""
    by_topic = json.loads(offsets_file.read_text().splitlines()[-1])
    return sum(offset for partitions in by_topic.values() for offset in partitions.values())


def _kind_of_thread(name: str) -> str:
    """Name a thread (of which the kernel gives 15 characters) by what all of its kind have in common."""
    if name.startswith(("C1 ", "C2 ")):
        return "JIT compiler"
    return re.sub(r"[#\d].*", "", name[:13]).strip(" -")


def _session(leader: int) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(ProcessLookupError):
            if os.getsid(int(entry.name)) == leader:
                found.append(int(entry.name))
    return found


def _times(stat: Path) -> tuple[float, float]:
    """Processor seconds of a process or thread, and of the children that it has waited for."""
    values = stat.read_text().rpartition(")")[2].split()
    own, ended = sum(map(int, values[11:13])), sum(map(int, values[13:15]))
    return own / _TICKS, ended / _TICKS
