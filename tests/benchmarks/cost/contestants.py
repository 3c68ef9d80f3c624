"""Who is compared: the job of this checkout and of others, and references; how each is started."""

import shlex
import sys
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from streaming.demo.local_broker import free_ports
from streaming.jvm.jars import ensure_jars
from tests.benchmarks.cost.watched import Command, Watched
from tests.benchmarks.watched_job import Batch, read_batches

OFFSETS_TOPIC: Final = "__consumer_offsets"
ROOT: Final = Path(__file__).parents[3]
_PROGRAMS: Final = Path(__file__).parent
_SETTINGS: Final = """
[alerts]
log = "off"
"""


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a contestant is to do in a folder of its own: follow the offsets topic, or (`records`) read them.

    What is read is there already, and the contestant ends by itself when it has read it, if it can.
    """

    bootstrap: str
    folder: Path
    partitions: int
    trigger: str = "5s"
    records: int = 0


class Contestant(Protocol):
    """One of those that are compared."""

    @property
    def name(self) -> str:
        """What tables call it."""

    @property
    def tree(self) -> Path | None:
        """The checkout whose queries show what it wrote; None: it writes no tables."""

    def command(self, task: Task) -> Command:
        """What is to be started."""

    def has_begun(self, task: Task, watched: Watched) -> bool:
        """Tell whether the present start works on records."""

    def has_read(self, task: Task) -> bool:
        """Tell whether it has read all records, and would not end by itself."""


@dataclass(frozen=True)
class Job:
    """The job of a checkout."""

    name: str
    tree: Path
    settings: str = ""

    def command(self, task: Task) -> Command:
        """Start `offsetlake run`, with its defaults."""
        settings = task.folder / "settings.toml"
        settings.write_text(_SETTINGS + self.settings)
        return Command(
            [
                *(sys.executable, "-m", "streaming.cli", "run", "--bootstrap-server", task.bootstrap),
                *("--config", str(settings), "--checkpoint", str(checkpoint(task))),
                *("--table-root", str(tables(task))),
                *(("--once",) if task.records else ("--trigger", task.trigger)),
            ],
            {"PYTHONPATH": str(self.tree)},
        )

    def has_begun(self, task: Task, watched: Watched) -> bool:
        """Tell whether a batch is in the tables."""
        return len(batches(task, watched.started)) > 0

    def has_read(self, task: Task) -> bool:
        """It ends by itself."""
        return False


@dataclass(frozen=True)
class SparkReference:
    """A bare PySpark query of the same shape that does no work."""

    name: str = "spark"
    tree: None = None

    def command(self, task: Task) -> Command:
        """Start the query."""
        return Command(
            [
                *(sys.executable, str(_PROGRAMS / "spark_query.py"), "--bootstrap", task.bootstrap),
                *("--topic", OFFSETS_TOPIC, "--partitions", str(task.partitions)),
                *("--checkpoint", str(checkpoint(task)), "--jars", str(ensure_jars("connector"))),
                *(("--once",) if task.records else ("--trigger", spark_interval(task.trigger))),
            ],
            {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": ""},
        )

    def has_begun(self, task: Task, watched: Watched) -> bool:
        """Tell whether a batch is done."""
        return len(batches(task, watched.started)) > 0

    def has_read(self, task: Task) -> bool:
        """It ends by itself."""
        return False


@dataclass(frozen=True)
class ConsumerReference:
    """A plain consumer loop that only counts records."""

    name: str = "consumer"
    tree: None = None

    def command(self, task: Task) -> Command:
        """Start the loop."""
        program = str(_PROGRAMS / "consumer.py")
        numbers = [str(task.partitions), str(task.records)]
        return Command([sys.executable, program, task.bootstrap, OFFSETS_TOPIC, *numbers], {})

    def has_begun(self, task: Task, watched: Watched) -> bool:
        """It takes no time to speak of."""
        return True

    def has_read(self, task: Task) -> bool:
        """It ends by itself."""
        return False


@dataclass(frozen=True)
class ForeignMonitor:
    """A foreign monitor with a Prometheus counter of the records that it has read.

    In all texts `{bootstrap}`, `{port}` (a free one) and `{config}` (the file that the template becomes) are
    replaced.
    """

    path: Path
    template: str
    arguments: str
    environment: Sequence[str]
    url: str
    metric: str
    tree: None = None
    _ports: dict[Path, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of its file."""
        return self.path.name

    def command(self, task: Task) -> Command:
        """Write its configuration and start it."""
        [self._ports[task.folder]] = free_ports(1)
        (task.folder / "monitor.config").write_text(self._filled(self.template, task))
        pairs = [self._filled(pair, task).split("=", 1) for pair in self.environment]
        arguments = shlex.split(self._filled(self.arguments, task))
        return Command([str(self.path), *arguments], dict(pairs))

    def has_begun(self, task: Task, watched: Watched) -> bool:
        """Tell whether it has read something."""
        return self.counted(task) > 0

    def has_read(self, task: Task) -> bool:
        """Tell whether its counter has come to the number of records."""
        return self.counted(task) >= task.records > 0

    def counted(self, task: Task) -> float:
        """Read its counter: the sum over all labels; 0 while it does not answer."""
        with suppress(OSError), urllib.request.urlopen(self._filled(self.url, task), timeout=10) as answer:
            lines = answer.read().decode().splitlines()
            return sum(float(line.split()[-1]) for line in lines if _is_of(line, self.metric))
        return 0.0

    def _filled(self, text: str, task: Task) -> str:
        known = {
            "bootstrap": task.bootstrap,
            "port": str(self._ports[task.folder]),
            "config": str(task.folder / "monitor.config"),
        }
        for name, value in known.items():
            text = text.replace("{" + name + "}", value)
        return text


def _is_of(line: str, metric: str) -> bool:
    return line.startswith((f"{metric} ", f"{metric}{{"))


def checkpoint(task: Task) -> Path:
    """Where a contestant keeps its checkpoint."""
    return task.folder / "checkpoint"


def spark_interval(trigger: str) -> str:
    """Write a trigger such as 500ms or 5s as Spark reads it."""
    number = trigger.rstrip("ms")
    return f"{number} {'milliseconds' if trigger.endswith('ms') else 'seconds'}"


def folder_of(root: Path, contestant: Contestant, run: int) -> Path:
    """Make a folder for one run of a contestant; without blanks, whatever its name."""
    folder = root / f"{contestant.name.replace(' ', '-')}-{run}"
    folder.mkdir()
    return folder


def tables(task: Task) -> Path:
    """Where a job writes its tables."""
    return task.folder / "tables"


def batches(task: Task, since: float = 0.0) -> list[Batch]:
    """The batches that are committed and were planned from a moment on, by the files of Spark's checkpoint.

    The job keeps its query's in a folder below, named by a number.
    """
    root = checkpoint(task)
    return [
        batch
        for folder in (root, *root.glob("*"))
        if (folder / "offsets").is_dir()
        for batch in read_batches(folder)
        if batch.planned >= since
    ]
