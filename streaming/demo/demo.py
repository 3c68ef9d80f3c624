"""The demo: a real local broker, real consumer groups, the job, the live table, listeners.

Everything runs in a temporary directory and is always stopped and removed at the end. Spark's log stays if
the job fails. Finally, the demo compares the tables with the broker's answers.
"""

import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol, TextIO

from streaming.assessment.assess import Facts, assess
from streaming.common.keys import KEY_NAMES
from streaming.common.times import now_ms
from streaming.demo.broker_offsets import OffsetKey, broker_offsets
from streaming.demo.display import Display
from streaming.demo.endpoints import Endpoints, this_program
from streaming.demo.local_broker import LocalBroker
from streaming.demo.scene import Offsets, Scene
from streaming.demo.traffic import DemoTraffic
from streaming.job.reporter import Reporter
from streaming.job.run import run_job
from streaming.jvm.jars import JarSet, RetrievalStoppedError, ensure_jars
from streaming.model.errors import OffsetlakeError
from streaming.settings.model import Settings
from streaming.settings.reading import read_settings
from streaming.tables.snapshot import LiveRows
from streaming.tables.tables import Tables, TablesMissingError

_LOOK_S: Final = 1.0
_AGREE_LIMIT_S: Final = 60.0
_JARS: Final[tuple[JarSet, ...]] = ("broker", "tools")
_NAME: Final = "offsetlake-demo-"
"""Prefix of the demo's temporary files."""


class DemoError(OffsetlakeError):
    """The demo did not work as expected."""


class _Checked(Protocol):
    """Something that runs in the background."""

    def check(self) -> None:
        """Raise the failure that ended it, if it has ended."""


def run_demo(stop: threading.Event, seconds: float | None) -> None:
    """Show the live tables until `stop` is set or `seconds` have passed, then compare them with the broker.

    Raises `DemoError` if they differ in the end. If stopped before any offsets were shown, nothing is
    compared.
    """
    with _output() as out, log_of_spark() as log, tempfile.TemporaryDirectory(prefix=_NAME) as directory:
        root = Path(directory)
        broker = LocalBroker(root / "broker")
        settings = demo_settings(broker.bootstrap_servers, root, log)
        listeners = Endpoints(settings.tables.root, root)
        with Display(
            out, [ask_command(settings.tables.root), *listeners.commands], page=listeners.page
        ) as display:
            display.begin(f"starting a Kafka broker on {broker.bootstrap_servers}")
            with suppress(RetrievalStoppedError):
                for jar_set in _JARS:
                    ensure_jars(jar_set, stop=stop)
                with broker:
                    if not stop.is_set():
                        with listeners:
                            _show_job(settings, display, listeners, stop, seconds)


def ask_command(table_root: str) -> list[str]:
    """Return a command that queries the tables from another terminal, in any folder."""
    return [*this_program(), "offsets", "--table-root", table_root]


@contextmanager
def _output() -> Iterator[TextIO]:
    """Yield standard output on a descriptor of its own: while Spark starts, descriptor 1 is redirected to its
    log.

    Raises `BrokenPipeError` if the reader is gone (without errno, which makes click treat it as a failure),
    and `DemoError` for other errors of the output or of the temporary directory.
    """
    try:
        with os.fdopen(os.dup(1), "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors) as out:
            yield out
    except BrokenPipeError as error:
        raise BrokenPipeError("the reader has gone") from error
    except OSError as error:
        raise DemoError(
            "running the demo: expected to write to standard output and to the temporary directory (TMPDIR), "
            f"found: {error}. Free some space, or write elsewhere."
        ) from error


@contextmanager
def log_of_spark() -> Iterator[Path]:
    """Create a file for Spark's log, which stays if an error names it."""
    descriptor, name = tempfile.mkstemp(prefix=f"{_NAME}spark-", suffix=".log")
    os.close(descriptor)
    is_named = False
    try:
        yield Path(name)
    except OffsetlakeError as error:
        is_named = name in str(error)
        raise
    finally:
        if not is_named:
            Path(name).unlink(missing_ok=True)


def _show_job(
    settings: Settings, display: Display, listeners: Endpoints, stop: threading.Event, seconds: float | None
) -> None:
    """Run the job and show its tables; then compare them with the broker."""
    display.begin("starting Spark (some 20 s are usual)")
    traffic = DemoTraffic(settings.source.bootstrap_servers)
    with _job(settings) as job:
        with traffic:
            try:
                scene = _watch(settings, display, [job, traffic, listeners, display], stop, seconds)
            finally:
                display.close_screen()
            display.begin("stopping the consumer groups")
        if scene is not None or not stop.is_set():
            display.begin("waiting until the tables equal the broker's answers")
            scene = _agreed(settings, display, job, scene or Scene())
            groups = len({key.group for key in scene.offsets})
            display.conclude(
                scene, f"the tables agree with the broker: {len(scene.offsets)} offsets of {groups} groups"
            )
        display.begin("stopping the job and the broker")


def demo_settings(bootstrap_servers: str, root: Path, log: Path) -> Settings:
    """Return the settings of the demo's job: a short trigger, everything under `root` except Spark's log."""
    return read_settings(
        options={
            "source.bootstrap_servers": bootstrap_servers,
            "tables.root": str(root / "warehouse"),
            "job.checkpoint": str(root / "checkpoint"),
            "job.trigger": "1s",
            "tables.maintain_every": "1m",  # a file each second would make reading of history slow
            "job.state_partitions": 2,
            "spark.log_file": str(log),
        }
    )


class _Job(threading.Thread):
    """The job in a thread, as `offsetlake run` runs it."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(name="offsetlake-demo-job", daemon=True)
        self._settings = settings
        self.stop = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Run until stopped; `check` raises a failure."""
        try:
            silent = Reporter(lambda _: None, lambda _: None)
            run_job(self._settings, silent, self.stop, once=False)
        except BaseException as error:
            self.failure = error

    def check(self) -> None:
        """Raise `DemoError` if the job failed."""
        if self.failure is not None:
            raise DemoError(str(self.failure) or type(self.failure).__name__) from self.failure


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


def _watch(
    settings: Settings,
    display: Display,
    running: Sequence[_Checked],
    stop: threading.Event,
    seconds: float | None,
) -> Scene | None:
    """Show the tables until the time is over or the demo is stopped; None: there was nothing to show yet."""
    end = None if seconds is None else time.monotonic() + seconds
    scene: Scene | None = None
    is_spark_there = False
    while not stop.wait(_LOOK_S) and (end is None or time.monotonic() < end):
        for one in running:
            one.check()
        rows = _read(settings)
        if rows is not None and not is_spark_there:
            is_spark_there = True
            display.begin("waiting for the first batch")
        if rows is not None and (scene is not None or len(rows.offsets)):
            scene = (scene or Scene()).after(rows, now_ms(), _lags(settings, rows))
            display.show(scene)
    return scene


def _agreed(settings: Settings, display: Display, job: _Job, scene: Scene) -> Scene:
    """Wait until the tables equal the broker's answers, after all groups have stopped committing."""
    deadline = time.monotonic() + _AGREE_LIMIT_S
    while True:
        job.check()
        display.check()
        rows = _read(settings)
        if rows is not None:
            scene = scene.after(rows, now_ms(), _lags(settings, rows))
        expected = broker_offsets(settings.source.bootstrap_servers)
        if scene.offsets == expected:
            return scene
        if time.monotonic() > deadline:
            raise DemoError(_difference(scene.offsets, expected))
        time.sleep(_LOOK_S)


def _difference(found: Offsets, expected: Offsets) -> str:
    keys = sorted(key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key))
    lines = [f"{key}: expected {expected.get(key)}, found {found.get(key)}" for key in keys[:10]]
    return f"comparing the tables with the broker: they differ in {len(keys)} offsets.\n" + "\n".join(lines)


def _lags(settings: Settings, rows: LiveRows) -> dict[OffsetKey, int]:
    """Return the known lags, as of the last sample of log ends."""
    now = now_ms()
    lagging = Tables(settings.tables.root).ask(
        lambda at: assess(at, rows.offsets, Facts(lag=True), moment=now)
    )
    return {
        OffsetKey(row["group"], row["topic"], row["partition"]): row["lag"]
        for row in lagging.select([*KEY_NAMES, "lag"]).to_pylist()
        if row["lag"] is not None
    }


def _read(settings: Settings) -> LiveRows | None:
    try:
        return Tables(settings.tables.root).read()
    except TablesMissingError:
        return None
