"""The demo: a real local broker, real consumer groups, the job, and the live table that it keeps.

Everything runs in a temporary directory and is stopped and removed at the end, however that comes. The last
thing it does is to compare the tables with what the broker itself answers.
"""

import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from streaming.common.escapes import shown
from streaming.common.patience import Every
from streaming.common.times import now_ms
from streaming.demo.broker_offsets import CommittedOffset, OffsetKey, broker_offsets, shown_metadata
from streaming.demo.local_broker import LocalBroker
from streaming.demo.traffic import DemoTraffic
from streaming.job.listener import Listener
from streaming.job.run import run_job
from streaming.model.errors import OffsetlakeError
from streaming.settings.model import Settings
from streaming.settings.reading import read_settings
from streaming.tables.snapshot import LiveRows
from streaming.tables.tables import Tables, TablesMissingError

Offsets = dict[OffsetKey, CommittedOffset]

_REFRESH_S: Final = 1.0
_PRINT_EVERY_MS: Final = 10_000  # where there is no terminal to refresh
_AGREE_LIMIT_S: Final = 60.0
_EVENTS_SHOWN: Final = 6
_LOG_LINES_SHOWN: Final = 15
_GIST: Final = (
    "A Kafka broker listens on {bootstrap}, consumer groups of several kinds commit, and the job turns\n"
    "__consumer_offsets into tables. Spark takes some 20 s to start."
)


class DemoError(OffsetlakeError):
    """The demo did not show what it should."""


def run_demo(stop: threading.Event, seconds: float | None) -> None:
    """Show the live table until `stop` is set or `seconds` are over, then compare it with the broker.

    Raises `DemoError` if the tables and the broker do not agree in the end. Stopped before it showed any
    offsets, it ends without comparing.
    """
    with _console() as console, tempfile.TemporaryDirectory(prefix="offsetlake-demo-") as directory:
        root = Path(directory)
        console.print("starting a local Kafka broker ...")
        with LocalBroker(root / "broker") as broker:
            settings = demo_settings(broker.bootstrap_servers, root)
            console.print(_GIST.format(bootstrap=broker.bootstrap_servers))
            traffic = DemoTraffic(broker.bootstrap_servers)
            with _job(settings) as job:
                with traffic:
                    scene = _Scene(settings, console)
                    scene.play(job, traffic, stop, seconds)
                if stop.is_set() and not scene.offsets:
                    return  # stopped in the first seconds: there is nothing to compare yet
                console.print("groups stopped; waiting until the tables equal the broker's answers ...")
                _wait_for_agreement(settings, job)
                console.print(scene.picture())
                groups = len({key.group for key in scene.offsets})
                console.print(
                    f"the tables agree with the broker: {len(scene.offsets)} offsets of {groups} groups"
                )


@contextmanager
def _console() -> Iterator[Console]:
    """Print to standard output, even while Spark starts: the job then points descriptor 1 to its log."""
    with os.fdopen(os.dup(1), "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors) as out:
        yield Console(file=out, highlight=False)


def demo_settings(bootstrap_servers: str, root: Path) -> Settings:
    """Return the settings of the demo's job: a quick trigger, everything under `root`."""
    return read_settings(
        options={
            "source.bootstrap_servers": bootstrap_servers,
            "tables.root": str(root / "warehouse"),
            "job.checkpoint": str(root / "checkpoint"),
            "job.trigger": "1s",
            "job.state_partitions": 2,
            "spark.log_file": str(root / "spark.log"),
        }
    )


class _Job(threading.Thread):
    """The job, as `offsetlake run` runs it, in a thread of its own."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(name="offsetlake-demo-job", daemon=True)
        self._settings = settings
        self.stop = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Run until told to stop; a failure is kept for `check`."""
        try:
            silent = Listener(lambda _: None, lambda _: None, lambda _: None, lambda _: None)
            run_job(self._settings, silent, self.stop, once=False)
        except BaseException as error:
            self.failure = error

    def check(self) -> None:
        """Raise `DemoError` if the job failed, with the end of Spark's log: the file will be gone."""
        if self.failure is not None:
            raise DemoError(
                f"running the job: {str(self.failure) or type(self.failure).__name__}\n"
                f"The end of Spark's log:\n{_tail(Path(self._settings.spark.log_file))}"
            ) from self.failure


def _tail(log_file: Path) -> str:
    if not log_file.exists():
        return "(there is none)"
    return "\n".join(log_file.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES_SHOWN:])


@contextmanager
def _job(settings: Settings) -> Iterator[_Job]:
    job = _Job(settings)
    job.start()
    try:
        yield job
    finally:
        job.stop.set()
        job.join()
    job.check()


@dataclass
class _Scene:
    """The live table, and what happened to groups while it was watched."""

    settings: Settings
    console: Console
    groups: dict[str, str] = field(default_factory=dict)  # name -> state
    offsets: Offsets = field(default_factory=dict)
    events: list[str] = field(default_factory=list)

    def play(self, job: _Job, traffic: DemoTraffic, stop: threading.Event, seconds: float | None) -> None:
        """Refresh the table until the time is over or the demo is stopped."""
        end = None if seconds is None else time.monotonic() + seconds
        printing = Every(_PRINT_EVERY_MS, at_once=True)
        with Live(console=self.console, auto_refresh=False) as live:
            while not stop.wait(_REFRESH_S) and (end is None or time.monotonic() < end):
                job.check()
                traffic.check()
                picture = self.picture()
                if self.console.is_terminal:
                    live.update(picture, refresh=True)
                elif self.offsets and printing.is_due():
                    self.console.print(picture)

    def picture(self) -> RenderableType:
        """Read the tables and draw them, with what happened since the last picture."""
        snapshot = _read(self.settings)
        if snapshot is None or not len(snapshot.offsets):
            return Text("waiting for the first batch ...")
        before = dict(self.offsets)
        self._take_in(snapshot)
        return Group(
            self._table(snapshot, before), *(Text(shown(event)) for event in self.events[-_EVENTS_SHOWN:])
        )

    def _take_in(self, snapshot: LiveRows) -> None:
        now = time.strftime("%H:%M:%S")
        groups = {row["group"]: row["state"] for row in snapshot.groups.to_pylist()}
        self.events += [
            f"{now}  group {name} appeared" for name in sorted(groups.keys() - self.groups.keys())
        ]
        self.events += [
            f"{now}  group {name} vanished" for name in sorted(self.groups.keys() - groups.keys())
        ]
        self.groups, self.offsets = groups, table_offsets(snapshot)

    def _table(self, snapshot: LiveRows, before: Offsets) -> Table:
        age = (now_ms() - snapshot.progress.heartbeat) / 1_000
        title = f"the offsets table, as of {age:.0f} s ago"
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        for name in ("group", "type", "state", "topic"):
            table.add_column(name)
        for name in ("partition", "offset", "step"):
            table.add_column(name, justify="right")
        types = {row["group"]: row["type"] for row in snapshot.groups.to_pylist()}
        for key, committed in sorted(self.offsets.items()):
            step = committed.offset - before[key].offset if key in before else None
            table.add_row(
                Text(shown(key.group)),
                types.get(key.group, "-"),
                self.groups.get(key.group, "-"),
                Text(shown(key.topic)),
                str(key.partition),
                str(committed.offset),
                "new" if step is None else f"{step:+d}" if step else "",
                style="green" if step is None or step > 0 else "red" if step < 0 else "",
            )
        return table


def _wait_for_agreement(settings: Settings, job: _Job) -> None:
    """Wait until the tables hold what the broker answers, now that no group commits any more."""
    deadline = time.monotonic() + _AGREE_LIMIT_S
    while True:
        job.check()
        snapshot = _read(settings)
        found = {} if snapshot is None else table_offsets(snapshot)
        expected = broker_offsets(settings.source.bootstrap_servers)
        if found == expected:
            return
        if time.monotonic() > deadline:
            raise DemoError(_difference(found, expected))
        time.sleep(_REFRESH_S)


def table_offsets(snapshot: LiveRows) -> Offsets:
    """Return the tables' offsets as a client sees a broker's."""
    columns = ["group", "topic", "partition", "committed_offset", "leader_epoch", "metadata"]
    return {
        OffsetKey(row["group"], row["topic"], row["partition"]): CommittedOffset(
            row["committed_offset"], row["leader_epoch"], shown_metadata(row["metadata"])
        )
        for row in snapshot.offsets.select(columns).to_pylist()
    }


def _difference(found: Offsets, expected: Offsets) -> str:
    keys = sorted(key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key))
    lines = [f"{key}: expected {expected.get(key)}, found {found.get(key)}" for key in keys[:10]]
    return (
        "comparing the tables with the broker: they differ in " + f"{len(keys)} offsets.\n" + "\n".join(lines)
    )


def _read(settings: Settings) -> LiveRows | None:
    try:
        return Tables(settings.tables.root).read()
    except TablesMissingError:
        return None
