"""The grid of faults: what happens to the job, at which moment, and what must then be.

A cell is one fault at one moment: a broker of its own, the real command, and in the end tables that equal the
broker's answers, a history that is whole, and no rebuild that need not be.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import kafka_clients as kafka
from grid_world import PASSWORDS, World, client_properties
from history_checks import check_history, table_offsets
from job_process import SETTINGS, JobProcess

from streaming.model.completeness import loading_in
from streaming.tables.tables import Tables

KEPT_MS: Final = 4_000
"""For how long tombstones are kept where a fault is to last for longer than that."""

_SHORT_S: Final = 3.0
_STARTING_S: Final = 4.0  # after that a process that was started is on its way, and has read nothing
_HANG_S: Final = 6.0
_SETTLE_LIMIT_S: Final = 150.0
_BACKLOG: Final = {True: 1_000, False: 200}
_SLOWLY: Final = "max_records_per_batch = 150\n"
_SOURCE: Final = '[source]\nconnect_timeout = "5s"\ntopic_poll_every = "500ms"\n'
_LOOKS_OFTEN: Final = 'check_topic_every = "2s"'
_LOOKS_LATE: Final = 'check_topic_every = "10m"'

FIRST, STARTING, FOLLOWING, REBUILDING, CUT = (
    "reading for the first time",
    "before the start",
    "following",
    "during a rebuild",
    "after an interrupted rebuild",
)
MOMENTS: Final = (STARTING, FIRST, FOLLOWING, REBUILDING, CUT)
DOWN: Final = (STARTING, CUT)
"""Moments at which no process of the job is there."""


@dataclass
class Cell:
    """A world, and the job in it at some moment."""

    world: World
    job: JobProcess
    moment: str
    exit_codes: list[int] = field(default_factory=list)

    @property
    def is_down(self) -> bool:
        """Whether the job is not there when the fault begins."""
        return self.moment in DOWN

    def start(self, command: str = "run", *options: str) -> None:
        """Start the command as the job's user."""
        properties = self.job.directory / "client.properties"
        self.job.start(command, "--command-config", str(properties), *options)

    def keep_running(self) -> None:
        """Start the job again where it has ended, as a service manager does."""
        if not self.job.is_running:
            if self.job.process is not None:
                self.exit_codes.append(self.job.wait())
            self.start()


Step = Callable[[Cell], None]


def nothing(_cell: Cell) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Fault:
    """What happens: how it begins, what goes on meanwhile, and how it ends.

    `needs_process`: it happens to a process, so where there is none one is started before it. `rebuilds`
    names the moments at which reading on is not enough afterwards (those of a rebuild are one anyway).
    """

    name: str
    strike: Step
    meanwhile: Step = nothing
    heal: Step = nothing
    needs_process: bool = False
    rebuilds: tuple[str, ...] = ()

    @property
    def is_seen_by_looking(self) -> bool:
        """Whether a look at the topic every now and then shows it; else it must be noticed without one."""
        return "longer" not in self.name


# --- what happens ---


def _change(cell: Cell) -> None:
    cell.world.change()
    time.sleep(_SHORT_S)


def _lose_tombstones(cell: Cell) -> None:
    """Longer than tombstones are kept: one is written, and gone with what it removed."""
    began = time.monotonic()
    cell.world.lose_tombstones(KEPT_MS)
    cell.world.change()
    time.sleep(max(0.0, began + KEPT_MS / 1_000 + 2 - time.monotonic()))


def _keep_tombstones(cell: Cell) -> None:
    """Keep them for longer as soon as the job has noticed, or has begun anew: once is enough."""
    limit = time.monotonic() + 60
    while time.monotonic() < limit and not _has_noticed(cell):
        cell.keep_running()
        time.sleep(0.2)
    cell.world.keep_tombstones()


def _has_noticed(cell: Cell) -> bool:
    return any(
        "longer ago than tombstones are retained" in out.read_text()
        for out in cell.job.directory.glob("out-*")
    )


def _stop_broker(cell: Cell) -> None:
    cell.world.broker.stop()
    if cell.is_down:
        cell.start()
    time.sleep(_SHORT_S)


def _cut_cable(cell: Cell) -> None:
    cell.world.cable.cut()
    if cell.is_down:
        cell.start()


def _mend_cable(cell: Cell) -> None:
    cell.world.cable.mend()
    _keep_tombstones(cell)


def _resume(cell: Cell) -> None:
    cell.job.resume()


def _resume_late(cell: Cell) -> None:
    cell.job.resume()
    _keep_tombstones(cell)


def _delete_records(cell: Cell) -> None:
    """Delete records below the end: the job has read them where it follows, and not elsewhere."""
    if cell.moment == FOLLOWING:
        kafka.wait_until(lambda: _is_at_end(cell), "the job to have read everything", timeout_s=60)
    cell.world.delete_records()


def _hang(cell: Cell) -> None:
    os.kill(cell.world.broker.pid, signal.SIGSTOP)
    if cell.is_down:
        cell.start()
    time.sleep(_HANG_S)


def _refuse_writes(cell: Cell) -> None:
    """Let the tables' file system be read-only, as after an error of the disk."""
    root = cell.job.tables.root
    Path(root).mkdir(exist_ok=True)
    subprocess.run(["mount", "--bind", root, root], check=True)
    read_only = ["mount", "-o", "remount,ro,bind", root]
    kafka.wait_until(  # busy while the job writes a file
        lambda: subprocess.run(read_only, check=False).returncode == 0, "the tables to be read-only"
    )
    if cell.is_down:
        cell.start()
    cell.world.change()
    time.sleep(_HANG_S)


def _take_writes(cell: Cell) -> None:
    subprocess.run(["umount", "--lazy", cell.job.tables.root], check=True)


def _refuse_credentials(cell: Cell) -> None:
    """Change the password behind the job's back: it ends, and so does each start until it is put back."""
    cell.world.set_password(PASSWORDS[1])
    if cell.is_down:
        cell.start()
    kafka.wait_until(lambda: not cell.job.is_running, "the job to end", timeout_s=90)
    cell.exit_codes.append(cell.job.wait())
    assert cell.exit_codes[-1] == 1, cell.job.output
    assert "Authentication" in cell.job.output
    cell.world.change()
    cell.start()
    assert cell.job.wait() == 1, cell.job.output


FAULTS: Final = (
    Fault(
        "brokers unreachable for less than the tombstone retention",
        _stop_broker,
        heal=lambda cell: cell.world.broker.start(),
    ),
    Fault(
        "brokers unreachable for longer than the tombstone retention",
        _cut_cable,
        _lose_tombstones,
        _mend_cable,
        rebuilds=(STARTING, FIRST, FOLLOWING),
    ),
    Fault(
        "job suspended for less than the tombstone retention",
        lambda cell: cell.job.suspend(),
        _change,
        _resume,
        needs_process=True,
    ),
    Fault(
        "job suspended for longer than the tombstone retention",
        lambda cell: cell.job.suspend(),
        _lose_tombstones,
        _resume_late,
        needs_process=True,
        rebuilds=(STARTING, FIRST, FOLLOWING),
    ),
    Fault("kill -9", lambda cell: cell.job.kill(), _change, needs_process=True),
    Fault(
        "partitions added",
        lambda cell: cell.world.add_partitions(),
        _change,
        rebuilds=(STARTING, FIRST, FOLLOWING),
    ),
    Fault(
        "topic deleted and recreated",
        lambda cell: cell.world.make_topic_anew(),
        _change,
        rebuilds=(STARTING, FIRST, FOLLOWING),
    ),
    Fault("all records deleted from the topic", _delete_records, _change, rebuilds=(STARTING, FIRST)),
    Fault("compaction in between", lambda cell: cell.world.compact(), _change),
    Fault(
        "a broker that hangs",
        _hang,
        heal=lambda cell: os.kill(cell.world.broker.pid, signal.SIGCONT),
    ),
    Fault("table storage that refuses writes", _refuse_writes, heal=_take_writes),
    Fault(
        "credentials refused", _refuse_credentials, heal=lambda cell: cell.world.set_password(PASSWORDS[0])
    ),
)


# --- one cell ---


@contextmanager
def job_at(world: World, fault: Fault, moment: str, directory: Path) -> Iterator[Cell]:
    """Bring a job to the moment of a fault."""
    is_slow = moment in (FIRST, REBUILDING, CUT)
    source = _SOURCE + (_SLOWLY if is_slow else "")
    settings = SETTINGS if fault.is_seen_by_looking else SETTINGS.replace(_LOOKS_OFTEN, _LOOKS_LATE)
    job = JobProcess(directory, f"127.0.0.1:{world.cable.port}", settings, more_settings=source)
    client_properties(directory / "client.properties")
    cell = Cell(world, job, moment)
    world.begin(_BACKLOG[is_slow])
    try:
        _PREPARE[moment](cell)
        yield cell
    finally:
        job.kill()


def _filled(cell: Cell) -> None:
    cell.start("run", "--once")
    assert cell.job.wait() == 0, cell.job.output
    cell.world.change()


def _reading_first(cell: Cell) -> None:
    cell.start()
    kafka.wait_until(lambda: _has_begun(cell, aside=False), "the first batch", timeout_s=90)


def _following(cell: Cell) -> None:
    cell.start()
    kafka.wait_until(lambda: _is_at_end(cell), "the job to have read everything", timeout_s=90)
    cell.world.change()


def _rebuilding(cell: Cell) -> None:
    _filled(cell)
    cell.start("rebuild")
    kafka.wait_until(lambda: _has_begun(cell, aside=True), "the rebuild to begin", timeout_s=90)


def _cut_rebuild(cell: Cell) -> None:
    _rebuilding(cell)
    cell.job.kill()
    cell.world.change()


_PREPARE: Final = {
    STARTING: _filled,
    FIRST: _reading_first,
    FOLLOWING: _following,
    REBUILDING: _rebuilding,
    CUT: _cut_rebuild,
}


def _has_begun(cell: Cell, *, aside: bool) -> bool:
    assert cell.job.is_running, cell.job.output
    tables = cell.job.tables.aside() if aside else cell.job.tables
    partitions = tables.progress_if_any().partitions.values()
    return any(partition.position for partition in partitions)


def are_there(tables: Tables) -> bool:
    """Tell whether all tables were made that a question needs: they are made one after the other."""
    return {"changes", "offsets", "groups"} <= {*tables.existing()}


def _is_at_end(cell: Cell) -> bool:
    assert cell.job.is_running, cell.job.output
    tables = cell.job.tables
    return are_there(tables) and table_offsets(tables) == cell.world.offsets()


def walk(cell: Cell, fault: Fault) -> None:
    """Let the fault happen and end, let the world go on, and hold the tables against it."""
    if fault.needs_process and cell.is_down:
        cell.start()
        time.sleep(_STARTING_S)
    fault.strike(cell)
    fault.meanwhile(cell)
    fault.heal(cell)
    _settle(cell)
    cell.world.change()
    _settle(cell)
    assert cell.job.stop() == 0, cell.job.output
    check_history(cell.job.tables)
    assert cell.job.tables.aside().existing() == []
    assert cell.job.tables.progress().generation == rebuilds_of(fault, cell.moment), _said(cell)
    assert set(cell.exit_codes) <= {0, 1, -signal.SIGKILL}, cell.exit_codes


def rebuilds_of(fault: Fault, moment: str) -> int:
    """Return how often the topic must be read anew: once where that is going on already."""
    return int(moment in (*fault.rebuilds, REBUILDING, CUT))


def _settle(cell: Cell) -> None:
    """Wait until the tables equal the broker's answers."""
    limit = time.monotonic() + _SETTLE_LIMIT_S
    while True:
        cell.keep_running()
        tables = cell.job.tables
        if are_there(tables):
            progress = tables.progress()
            is_done = not loading_in(progress) and progress.rebuild is None
            if is_done and table_offsets(tables) == cell.world.offsets():
                return
        if time.monotonic() > limit:
            found, expected = table_offsets(tables), cell.world.offsets()
            different = {key: (found.get(key), expected.get(key)) for key in found.keys() | expected.keys()}
            wrong = {key: pair for key, pair in different.items() if pair[0] != pair[1]}
            raise AssertionError(f"tables and broker differ, as (table, broker): {wrong}\n{_said(cell)}")
        time.sleep(0.5)


def _said(cell: Cell) -> str:
    outputs = sorted(cell.job.directory.glob("out-*"))
    return "\n".join(f"--- {out.name}\n{out.read_text()[-3_000:]}" for out in outputs)
