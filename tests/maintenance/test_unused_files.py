"""Files that no table refers to any more: they go when nobody can be reading them, also where the disk is
full, and not before."""

import os
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler
from maintenance_rounds import KEPT, NOW, round_at
from new_tables import new_tables
from storage_faults import fill, no_file_larger_than, parquet_files, small_disk
from table_batches import Batch, append, live_on, offset

from streaming.common.times import DAY_MS, HOUR_MS, MINUTE_MS, now_ms
from streaming.job.maintenance_thread import Maintainer
from streaming.maintenance.lease import MaintenanceBusyError, maintenance_lease
from streaming.maintenance.maintenance import MaintenanceError
from streaming.maintenance.trimming import KeepTimes
from streaming.maintenance.unused_files import delete_unused_files
from streaming.model.schemas import CHANGES
from streaming.settings.reading import read_settings
from streaming.tables import files
from streaming.tables.files import write_files
from streaming.tables.tables import Tables

A_DAY = KeepTimes(**vars(KEPT) | {"keep_unused_files_ms": DAY_MS})


def moved_to(committed_offset: int) -> Batch:
    return {("g", "t", 0): offset(committed_offset=committed_offset)}


def left_over(tables: Tables, size: int = 1) -> Path:
    """A file that a killed writer has left in `offsets`."""
    path = Path(tables.root) / "offsets" / "bucket=1" / "left-over.parquet"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(bytes(size))
    return path


def test_where_nothing_can_be_written_unused_files_go_all_the_same(tables: Tables) -> None:
    append(tables, moved_to(1), now=NOW)
    path = left_over(tables)
    with no_file_larger_than(0), pytest.raises(MaintenanceError, match="Check free disk space"):
        round_at(tables, NOW)
    assert not path.exists()
    assert len(parquet_files(tables.root)) == 1


def test_a_disk_that_unused_files_have_filled_is_maintained_as_any_other(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "2m"):
        tables = new_tables(tmp_path / "disk" / "tables")
        append(tables, moved_to(1), now=NOW)
        path = left_over(tables, size=500_000)
        fill(tmp_path / "disk")
        with pytest.raises((OSError, DeltaError), match="No space left"):
            tables.delta("quarantine").create_checkpoint()
        assert round_at(tables, NOW)["offsets"].unused_files_deleted == 1
        assert not path.exists()


def test_while_another_maintains_the_tables_only_replaced_files_go(tables: Tables) -> None:
    """The other one may still commit those that no table refers to yet."""
    for number in (1, 2):
        append(tables, moved_to(number), now=NOW)
        tables.fold()
    path = left_over(tables)
    with maintenance_lease(tables, lambda: NOW), pytest.raises(MaintenanceBusyError):
        round_at(tables, NOW)
    assert path.exists()
    assert len(parquet_files(f"{tables.root}/offsets")) == 2, "the folded file, and the one of the other"
    round_at(tables, NOW)
    assert not path.exists()


def test_deleting_files_is_no_commit(tables: Tables) -> None:
    """Each would be another one in the log, that the job meets."""
    append(tables, moved_to(1), now=NOW)
    left_over(tables)
    round_at(tables, NOW)
    operations = {entry["operation"] for name in tables.existing() for entry in tables.delta(name).history()}
    assert operations == {"CREATE TABLE", "WRITE", "SET TBLPROPERTIES"}  # the lease, and its holder


@pytest.mark.parametrize(
    ("replaced_ago", "is_kept"),
    [(2 * HOUR_MS, True), pytest.param(25 * HOUR_MS, False, marks=pytest.mark.more)],
)
def test_replaced_files_are_kept_as_long_as_the_setting_says_whatever_checkpoints_are_written(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, replaced_ago: int, is_kept: bool
) -> None:
    now = now_ms()
    append(tables, moved_to(1), now=now - 9 * DAY_MS)
    live_on(tables, now - 9 * DAY_MS, now)
    tables.fold()
    round_at(tables, now, A_DAY)
    [replaced] = parquet_files(Path(tables.root) / "offsets")
    os.utime(replaced, (0, (now - 2 * DAY_MS) / 1_000))
    append(tables, moved_to(2), now=now)
    with monkeypatch.context() as then:
        then.setattr(files, "now_ms", lambda: now - replaced_ago)
        tables.fold()
    for _ in range(2):
        tables.delta("offsets").create_checkpoint()
        round_at(tables, now, A_DAY)
        assert replaced.exists() is is_kept


@pytest.mark.usefixtures("silent")
def test_how_long_replaced_files_are_kept_is_noted_when_the_job_starts(tables: Tables) -> None:
    """Its first round may be far off: checkpoints of the log are written before."""
    append(tables, moved_to(1), now=NOW)
    for asked, noted in (("90m", "interval 2 hours"), ("5m", "interval 1 hours")):
        settings = read_settings(options={"tables.root": tables.root, "tables.keep_unused_files": asked})
        with Maintainer(tables, settings):
            pass
        properties = [tables.delta(name).metadata().configuration for name in tables.existing()]
        assert {held["delta.deletedFileRetentionDuration"] for held in properties} == {noted}
    version = tables.delta("changes").version()
    with Maintainer(tables, settings):
        pass
    assert tables.delta("changes").version() == version, "noted once"


def test_what_could_not_be_deleted_is_said_also_while_another_maintains_the_tables(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        append(tables, moved_to(number), now=NOW)
        tables.fold()

    def refuse(*_: object) -> None:
        raise PermissionError("replaced.parquet: not yours")

    monkeypatch.setattr(DeltaStorageHandler, "delete_file", refuse)
    with (
        maintenance_lease(tables, lambda: NOW),
        pytest.raises(MaintenanceError, match=r"not yours.*another process is maintaining"),
    ):
        round_at(tables, NOW)


def test_files_that_were_committed_after_the_table_was_opened_stay(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process can be suspended between the opening of a table and the listing of its folder."""
    list_unused = DeltaTable.vacuum

    def late(table: DeltaTable, *arguments: Any, **named: Any) -> list[str]:
        if table.metadata().name == "changes":
            append(tables, moved_to(2), now=NOW)
        return list_unused(table, *arguments, **named)

    append(tables, moved_to(1), now=NOW)
    monkeypatch.setattr(DeltaTable, "vacuum", late)
    assert delete_unused_files(tables, "changes", KEPT, NOW) == 0
    assert len(tables.read_changes()) == 2


def test_files_that_may_have_been_deleted_as_unused_are_not_committed(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tables, moved_to(1), now=NOW)
    progress = tables.progress()
    late = now_ms() + 40 * MINUTE_MS
    with tables.new_changes() as new:
        write_files(tables.delta("changes"), new, tables.read_changes())
        monkeypatch.setattr(files, "now_ms", lambda: late)
        with pytest.raises(files.LateCommitError, match=r"found them (39|40) minutes old"):
            tables.append_changes(CHANGES.empty_table(), progress, is_batch=False, new=new)
    assert tables.progress() == progress
    assert len(tables.read_changes()) == 1
    assert len(parquet_files(f"{tables.root}/changes")) == 1
