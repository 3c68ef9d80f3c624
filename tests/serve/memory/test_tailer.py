"""The tailer keeps up with a writer, reads again what it cannot follow, and says what it cannot read."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from alert_tables import DAY, START, Lake
from deltalake import CommitProperties, DeltaTable
from maintenance_rounds import KEPT, round_at
from memory_snapshots import (
    check_whole,
    groups_answered,
    groups_in,
    offsets_answered,
    offsets_in,
    whole,
)
from table_batches import Batch, append, changes_of, group, heartbeat, offset, running

from streaming.common.times import DAY_MS, day_of
from streaming.model.progress import PartitionEnds, Progress, Rebuild
from streaming.serve.memory import reading
from streaming.serve.memory import tailer as follower_module
from streaming.serve.memory.snapshot import MemorySnapshot
from streaming.serve.memory.tailer import Tailer
from streaming.tables.files import NewFiles, write_files
from streaming.tables.rows import change_rows
from streaming.tables.tables import Tables, TablesMissingError

SUPPORT = Path(__file__).parents[2] / "support"


def batch_of(number: int) -> Batch:
    """A batch that brings some offsets and a group to this number."""
    return {
        **{("g", "t", partition): offset(committed_offset=number) for partition in range(3)},
        "g": group(generation_or_epoch=number),
    }


def is_as_answered(snapshot: MemorySnapshot, tables: Tables) -> bool:
    check_whole(snapshot)
    return offsets_in(snapshot) == offsets_answered(tables) and groups_in(snapshot) == groups_answered(tables)


def wait_until(is_so: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def wholes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sequences of the tables each time that they were read as a whole."""
    read: list[int] = []
    real = reading._whole

    def counted(tables: Tables, before: reading.Reading, at: object) -> reading.Reading:
        read.append(at.progress.sequence)  # type: ignore[attr-defined]
        return real(tables, before, at)  # type: ignore[arg-type]

    monkeypatch.setattr(reading, "_whole", counted)
    return read


@pytest.fixture
def tailer(tables: Tables, wholes: list[int], silent: None) -> Tailer:
    return Tailer(tables)


# --- what is followed --------------------------------------------------------------------------------------


def test_batches_heartbeats_folds_and_maintenance_are_followed_without_reading_all(
    tables: Tables, tailer: Tailer, wholes: list[int]
) -> None:
    assert tailer.poll()
    for number in range(1, 9):
        append(tables, batch_of(number), now=number * 1_000)
        tables.fold()
        heartbeat(tables, number * 1_000 + 500)
        if number % 2:
            assert tailer.poll()
    round_at(tables, 20_000)
    append(tables, batch_of(9))
    assert tailer.poll()
    assert wholes == [0]
    assert tailer.current.progress == tables.progress()
    assert is_as_answered(tailer.current, tables)


def test_nothing_new_is_the_same_snapshot_and_a_heartbeat_shares_its_columns(
    tables: Tables, tailer: Tailer
) -> None:
    append(tables, batch_of(1))
    assert tailer.poll()
    before = tailer.current
    assert tailer.poll()
    assert tailer.current is before
    heartbeat(tables, 99_000)
    assert tailer.poll()
    assert tailer.current.offsets is before.offsets
    assert (before.age_ms(100_000), tailer.current.age_ms(100_000)) == (99_000, 1_000)


def test_columns_that_do_not_change_are_shared(tables: Tables, tailer: Tailer) -> None:
    append(tables, batch_of(1))
    assert tailer.poll()
    before = tailer.current.offsets.columns
    append(tables, {("g", "t", 1): offset(committed_offset=2)})
    assert tailer.poll()
    after = tailer.current.offsets.columns
    assert after.commit_timestamp is before.commit_timestamp
    assert (before.committed_offset.tolist(), after.committed_offset.tolist()) == ([1, 1, 1], [1, 2, 1])


def test_a_rebuild_is_reported_and_its_end_is_one_step(
    tables: Tables, tailer: Tailer, wholes: list[int]
) -> None:
    append(tables, batch_of(1))
    assert tailer.poll()
    heartbeat(tables, 5_000, rebuild=Rebuild(since=4_000, reason="it was requested"))
    assert tailer.poll()
    assert tailer.current.progress.rebuild == Rebuild(since=4_000, reason="it was requested")
    append(tables, {("g", "t", 0): None, ("h", "t", 7): offset(), "h": group()}, rebuild=None, generation=1)
    assert tailer.poll()
    assert tailer.current.progress.generation == 1
    assert wholes == [0 + 1]
    assert is_as_answered(tailer.current, tables)


@pytest.mark.usefixtures("silent")
def test_snapshots_under_a_running_writer_are_of_one_batch(tables: Tables) -> None:
    def write() -> None:
        for number in range(1, 21):
            append(tables, batch_of(number), live=batch_of(number - 1) if number > 1 else {})
            if number % 5 == 0:
                tables.fold()
            if number % 10 == 0:
                for name in ("changes", "offsets", "groups"):
                    table = DeltaTable(f"{tables.root}/{name}")
                    table.optimize.compact()
                    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
                heartbeat(tables, number * 1_000)

    seen: set[int] = set()

    def check(snapshot: MemorySnapshot) -> None:
        number = snapshot.progress.sequence
        seen.add(number)
        offsets = snapshot.offsets.columns.committed_offset.tolist()
        assert offsets == [number] * 3 if number else offsets == []
        row = snapshot.row_of("g")
        assert (row or {"generation_or_epoch": 0})["generation_or_epoch"] == number

    with Tailer(tables, every_s=0.01) as tailer, running(write) as is_running:
        while is_running():
            check(tailer.current)
            check(whole(tables))
        wait_until(lambda: tailer.current.progress.sequence == 20)
        check(tailer.current)
    assert not tailer.is_alive()
    assert max(seen) == 20
    assert len(seen) > 1


WRITER = """
import sys
from table_batches import append, group, offset
from streaming.tables.tables import Tables
tables = Tables(sys.argv[1])
number = tables.progress().sequence
while True:
    number += 1
    append(tables, {**{("g", "t", n): offset(committed_offset=number) for n in range(3)}, "g": group()})
    print(number, flush=True)
    tables.fold()
"""


@pytest.mark.more
def test_a_writer_that_is_killed_leaves_no_half_batch(tables: Tables, tailer: Tailer) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(["", str(SUPPORT)])}
    for count in (1, 5):
        command = [sys.executable, "-c", WRITER, tables.root]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as writer:
            assert writer.stdout is not None
            for _ in range(count):
                assert writer.stdout.readline()
                assert tailer.poll()
            writer.send_signal(signal.SIGKILL)
        assert tailer.poll()
        number = tables.progress().sequence
        assert tailer.current.progress.sequence == number
        assert tailer.current.offsets.columns.committed_offset.tolist() == [number] * 3
    assert is_as_answered(tailer.current, tables)


# --- what is read again ------------------------------------------------------------------------------------


def trim(tables: Tables) -> None:
    """Let days pass, until maintenance has trimmed the changes and shortened the log."""
    tables.fold()
    append(tables, batch_of(90), now=START + 30 * DAY_MS)
    tables.fold()
    for _ in range(2):
        round_at(tables, START + 30 * DAY_MS, replace(KEPT, keep_removed_ms=8 * DAY_MS))


def cut_log(tables: Tables) -> None:
    """Leave of the log what a checkpoint does not replace, as its clean-up does."""
    table = DeltaTable(f"{tables.root}/changes")
    table.create_checkpoint()
    for file in sorted(Path(f"{tables.root}/changes/_delta_log").glob("*.json"))[: table.version()]:
        file.unlink()


def make_anew(tables: Tables) -> None:
    """Make the tables anew, with as many commits as there were and more."""
    shutil.rmtree(tables.root)
    tables.create()
    for number in range(1, 9):
        append(tables, {("other", "t", 0): offset(committed_offset=number), "other": group()})


def delete_rows(tables: Tables) -> None:
    """Delete rows of `changes` as somebody might with another program."""
    DeltaTable(f"{tables.root}/changes").delete('"topic" = \'t\' AND "partition" = 1')


def delete_files(tables: Tables) -> None:
    """Delete whole files of `changes`: no other is written in their place."""
    table = DeltaTable(f"{tables.root}/changes")
    table.delete(f"\"day\" = '{day_of(START)}'")


def append_rows_only(tables: Tables) -> None:
    """Append rows to `changes` that are no batch of the job: the commit says no progress."""
    rows, _ = change_rows(changes_of({("h", "t", 0): offset()}, {}), sequence=5, batch_time=START)
    table = tables.delta("changes")
    with NewFiles(tables.storage(table)) as new:
        write_files(table, new, rows)
        new.commit(table, [], CommitProperties())


def restore(tables: Tables) -> None:
    """Restore `changes` to an earlier version, and go on from there."""
    DeltaTable(f"{tables.root}/changes").restore(2)
    append(tables, batch_of(70))


def alter(tables: Tables) -> None:
    DeltaTable(f"{tables.root}/changes").alter.set_table_properties({"x.y": "1"}, raise_if_not_exists=False)


@pytest.mark.parametrize(
    "event",
    [
        *(trim, make_anew, append_rows_only, restore),
        *(
            pytest.param(event, marks=pytest.mark.more)
            for event in (cut_log, delete_rows, delete_files, alter)
        ),
    ],
)
def test_what_cannot_be_followed_is_read_again(
    tables: Tables, tailer: Tailer, wholes: list[int], event: Callable[[Tables], None]
) -> None:
    for number in range(1, 4):
        append(tables, batch_of(number), now=START + number)
    assert tailer.poll()
    append(tables, {("g", "t", 9): offset(), **batch_of(4)}, now=START + 4)  # not seen before the event
    event(tables)
    append(tables, batch_of(80))
    assert tailer.poll()
    assert len(wholes) == 2
    assert tailer.current.progress == tables.progress()
    assert is_as_answered(tailer.current, tables)
    append(tables, batch_of(81))
    assert tailer.poll()
    assert len(wholes) == 2
    assert is_as_answered(tailer.current, tables)


def test_a_copy_of_earlier_is_read_again(
    tables: Tables, tailer: Tailer, wholes: list[int], tmp_path: Path
) -> None:
    append(tables, batch_of(1))
    shutil.copytree(tables.root, tmp_path / "copy")
    append(tables, batch_of(2))
    assert tailer.poll()
    shutil.rmtree(tables.root)
    shutil.copytree(tmp_path / "copy", tables.root)
    assert tailer.poll()
    assert tailer.current.offsets.columns.committed_offset.tolist() == [1] * 3
    assert wholes == [2, 1]


def test_changes_of_earlier_than_the_folds_are_read_as_questions_do(
    tables: Tables, tailer: Tailer, tmp_path: Path
) -> None:
    append(tables, batch_of(1))
    shutil.copytree(f"{tables.root}/changes", tmp_path / "copy")
    append(tables, {("g", "t", 7): offset(), **batch_of(2)}, live=batch_of(1))
    tables.fold()
    assert tailer.poll()
    shutil.rmtree(f"{tables.root}/changes")
    shutil.copytree(tmp_path / "copy", f"{tables.root}/changes")
    assert tailer.poll()
    assert is_as_answered(tailer.current, tables)


def test_a_file_that_is_gone_before_it_is_read_is_no_failure(
    tables: Tables, tailer: Tailer, wholes: list[int]
) -> None:
    assert tailer.poll()
    append(tables, batch_of(1))
    table = DeltaTable(f"{tables.root}/changes")
    append(tables, batch_of(2))
    table = DeltaTable(f"{tables.root}/changes")
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert tailer.poll()
    assert wholes == [0, 2]
    assert is_as_answered(tailer.current, tables)


def test_names_that_nothing_has_any_more_do_not_stay_for_ever(
    tables: Tables, tailer: Tailer, wholes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_SPARE_PLACES", 0)
    append(tables, batch_of(1))
    assert tailer.poll()
    for number in range(9):
        key = (f"g{number}", f"t{number}", 0)
        append(tables, {key: offset(), key[0]: group()})
        append(tables, {key: None, key[0]: None})
        tables.fold()
        assert tailer.poll()
        assert len(tailer.current.groups) == 1
    assert len(tailer.current.topics) < 8
    assert is_as_answered(tailer.current, tables)


# --- what cannot be read -----------------------------------------------------------------------------------


def test_what_cannot_be_read_stays_as_it_was_and_is_said_once(
    tables: Tables, tmp_path: Path, said: list[str]
) -> None:
    tailer = Tailer(tables, clock=lambda: 7)
    append(tables, batch_of(1))
    assert tailer.poll()
    before = tailer.current
    Path(tables.root).rename(tmp_path / "away")
    assert not tailer.poll()
    assert not tailer.poll()
    assert tailer.current.offsets is before.offsets
    assert tailer.last_poll is not None
    assert tailer.last_poll.at == 7
    assert next(iter(tailer.last_poll.failures)) == "offsets and groups"
    assert len(said) == len(set(said)) == len(tailer.last_poll.failures)
    assert "expected a Delta table at" in said[0]
    (tmp_path / "away").rename(tables.root)
    append(tables, batch_of(2))
    assert tailer.poll()
    assert tailer.last_poll.failures == {}
    assert said[-1].endswith("refreshed again")
    assert is_as_answered(tailer.current, tables)


def test_tables_of_a_newer_format_are_refused_and_the_snapshot_stays(tables: Tables, said: list[str]) -> None:
    tailer = Tailer(tables)
    append(tables, batch_of(1))
    assert tailer.poll()
    before = tailer.current
    newer = {"offsetlake.format": "99"}
    DeltaTable(f"{tables.root}/changes").alter.set_table_properties(newer, raise_if_not_exists=False)
    append_as_newer(tables)
    assert not tailer.poll()
    assert tailer.current is before
    assert "A newer offsetlake wrote it" in said[0]


def append_as_newer(tables: Tables) -> None:
    """Nothing of this release may write there; what is there is enough."""
    with pytest.raises(Exception, match="format 99"):
        append(tables, batch_of(2))


def test_before_the_tables_there_is_an_empty_snapshot_that_is_loading(
    tmp_path: Path, said: list[str]
) -> None:
    tailer = Tailer(Tables(str(tmp_path / "none")))
    assert not tailer.poll()
    assert (len(tailer.current.offsets), len(tailer.current.groups)) == (0, 0)
    assert not tailer.current.is_whole
    assert tailer.current.offsets_of("g").metadata.to_pylist() == []
    assert TablesMissingError.__name__ not in said[0]


def test_a_failing_look_is_repeated_with_patience_and_the_thread_ends(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []

    def fail(*_: object) -> None:
        looks.append(time.monotonic())
        time.sleep(0.02)
        raise OSError("not to be read")

    monkeypatch.setattr(follower_module, "_STEPS", {**follower_module._STEPS, "log ends": fail})
    with Tailer(tables, every_s=0.001) as tailer:
        append(tables, batch_of(1))
        wait_until(lambda: tailer.current.progress.sequence == 1)  # what can be read is read meanwhile
        wait_until(lambda: len(looks) >= 4)
    assert tailer.last_poll is not None
    assert tailer.last_poll.failures == {"log ends": "not to be read"}
    assert not tailer.is_alive()
    assert all(later - earlier >= 0.15 for earlier, later in pairwise(looks[1:]))


def test_a_panic_in_a_look_is_a_failure_as_others_are(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    looks: list[int] = []

    class Panic(BaseException):
        """As those of pyo3, which are no `Exception`."""

    def fail(*_: object) -> None:
        looks.append(1)
        raise Panic("called `Option::unwrap()` on a `None` value")

    monkeypatch.setattr(follower_module, "_STEPS", {**follower_module._STEPS, "log ends": fail})
    with Tailer(tables, every_s=0.001) as tailer:
        wait_until(lambda: len(looks) >= 3)
        assert tailer.is_alive()
    assert tailer.last_poll is not None
    assert "Option::unwrap" in tailer.last_poll.failures["log ends"]
    assert len(said) == 1


# --- what endpoints ask ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("silent")
def test_alerts_are_read_when_they_change(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    tailer = Tailer(lake.tables)
    lake.commit("billing")
    assert tailer.poll()
    assert len(tailer.current.alerts) == 0
    lake.pass_time(6 * DAY)
    lake.evaluate()
    assert tailer.poll()
    assert tailer.current.alerts["group"].to_pylist() == ["billing"]
    before = tailer.current.alerts
    lake.heartbeat()
    assert tailer.poll()
    assert tailer.current.alerts is before


def test_a_group_is_loading_as_long_as_its_partition_is(tables: Tables, tailer: Tailer) -> None:
    ends = {number: PartitionEnds(5, 5) for number in range(2)}
    progress = Progress().with_ends(ends, now=0).with_positions({0: 5, 1: 3})
    names = {0: "b", 1: "a"}  # by Kafka's hash
    batch: Batch = {name: group(source_partition=number) for number, name in names.items()}
    append(tables, batch, topic="__consumer_offsets", partitions=progress.partitions)
    assert tailer.poll()
    snapshot = tailer.current
    assert {name: snapshot.partition_of(name) for name in ("a", "b", "c")} == {"a": 1, "b": 0, "c": 1}
    assert {name: snapshot.is_among(name, snapshot.loading) for name in ("a", "b", "c")} == {
        "a": True,
        "b": False,
        "c": True,
    }
    assert snapshot.listed().tolist() == [False, True]
    assert snapshot.loading == {1}


def test_partition_counts_are_those_of_committed_partitions(tables: Tables, tailer: Tailer) -> None:
    append(tables, {("g", "t", 3): offset(), ("g", "u", 0): offset(), ("h", "u", 0): offset()})
    append(tables, {("g", "v", 9): offset()})
    append(tables, {("g", "v", 9): None})
    assert tailer.poll()
    snapshot = tailer.current
    assert dict(zip(snapshot.topics.names.places, snapshot.partition_counts().tolist(), strict=True)) == {
        "t": 4,
        "u": 1,
        "v": 0,
    }
    assert snapshot.committing.tolist() == [1, 2, 0]
    assert snapshot.offsets_of("h").place.tolist() == [snapshot.topics.place("u", 0)]
    assert snapshot.row_of("g") is None  # it has offsets alone
