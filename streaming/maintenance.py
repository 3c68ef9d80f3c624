"""Keeps the tables small and quick: compaction, history, files and log entries that nobody needs any more.

Safe beside a running job: nothing here holds the writer's lock. An append and a compaction both commit; of
two commits that exclude each other Delta lets one stand: the job then repeats its own (`streaming.tables`),
and maintenance leaves its own to the next round. What delta-rs does not keep apart is two compactions; for
these there is the lease (`streaming.lease`).
"""

import json
import math
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import date, timedelta
from typing import Any, Final, Self

import pyarrow as pa
from deltalake import (
    CommitProperties,
    DeltaTable,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSelector, PyFileSystem

from streaming.alert_rules import UNKNOWN_RECORD_VERSION
from streaming.delta_sql import in_one_line, select
from streaming.errors import OffsetlakeError
from streaming.folded import ROWS, fold_mark
from streaming.history import HISTORY_TRANSACTION, history_start, noted_day
from streaming.lease import maintenance_lease
from streaming.parquet import writer_properties
from streaming.schemas import CHANGES
from streaming.settings import TableSettings
from streaming.tables import Tables

SORTED_TRANSACTION: Final = "offsetlake.sorted"
"""The application id under which `changes` notes the first day (days since 1970) that is not sorted."""

TARGET_BYTES: Final = 32 * 2**20
"""Size up to which small files are joined; not larger, as each round rewrites the last file of the day."""

SMALL_BYTES: Final = TARGET_BYTES // 4
"""Files below this are small. Those of catching up (500,000 changes) are not, nor what sorting leaves."""

ENOUGH_FILES: Final = 8
"""So many small files in a partition are worth a rewrite."""

SORT_LIMIT_BYTES: Final = 2**30
"""Days of `changes` up to this size are sorted: it takes some five times as much in temporary files."""

_SORT_MEMORY_BYTES: Final = 256 * 2**20  # without a limit a day of 4 M rows took 1.7 GB
_ROW_GROUP_ROWS: Final = 128 * 1024  # readers skip what lies below a fold's mark by row group
_COMMITS_PER_CHECKPOINT: Final = 10  # of maintenance; delta-rs writes one every 100 by itself
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS
_EPOCH: Final = date(1970, 1, 1)
_KEPT_AFTER_HISTORY: Final = "\"kind\" = 'offset' AND \"op\" = 'remove'"


class MaintenanceError(OffsetlakeError):
    """A round of maintenance could not do all of its work."""


@dataclass(frozen=True, kw_only=True)
class TableRetention:
    """How long what is kept (ms). Days go as a whole, so what leaves stays up to a day longer.

    A day of `changes` that is older than `history` keeps its removed offsets alone, until it is older than
    `keep_removed` too, as are closed alerts. Replaced files stay for `keep_unused_files`, for those who still
    read them (delta-rs counts whole hours: rounded up).
    """

    history_ms: int
    keep_removed_ms: int
    keep_quarantine_ms: int
    keep_unused_files_ms: int

    @classmethod
    def of(cls, tables: TableSettings) -> Self:
        """Take the durations from the settings."""
        return cls(
            history_ms=tables.history_ms,
            keep_removed_ms=tables.keep_removed_ms,
            keep_quarantine_ms=tables.keep_quarantine_ms,
            keep_unused_files_ms=tables.keep_unused_files_ms,
        )


@dataclass(frozen=True, kw_only=True)
class TableReport:
    """What one round did to one table; `log_files` is what its `_delta_log` holds afterwards."""

    table: str
    files_before: int
    files_after: int
    bytes_after: int
    rows_dropped: int
    unused_files_deleted: int
    log_files: int


REPORT: Final = pa.schema(
    [
        pa.field(column.name, pa.string() if column.name == "table" else pa.int64())
        for column in fields(TableReport)
    ]
)
"""The columns of the reports as an Arrow table."""

Proceed = Callable[[], bool]
"""Asked before each step: renews the lease; False = leave the rest to the next round."""


def maintain(
    tables: Tables,
    retention: TableRetention,
    *,
    clock: Callable[[], int],
    should_stop: Callable[[], bool] = lambda: False,
) -> list[TableReport]:
    """Do one round: for each table drop what is too old, compact, delete unused files, shorten the log.

    `should_stop` is asked between steps. Raises `MaintenanceBusyError` when another process is at it, and
    `MaintenanceError` for what went wrong, after having done the rest.
    """
    reports, failures = [], []
    try:
        with maintenance_lease(tables, clock) as renew:

            def proceed() -> bool:
                renew()
                return not should_stop()

            for name in tables.existing():
                report, failed = _maintain_table(tables, name, retention, clock(), proceed)
                reports.append(report)
                failures += failed
    except (DeltaError, OSError) as error:
        failures.append(in_one_line(error))
    if failures:
        raise MaintenanceError(
            f"maintaining the tables under {tables.root}: {'; '.join(failures)}. Is there room on the disk, "
            "and may this process delete files there? Nothing is lost; the next round tries again."
        )
    return reports


def _maintain_table(
    tables: Tables, name: str, retention: TableRetention, now: int, proceed: Proceed
) -> tuple[TableReport, list[str]]:
    """Do what one table needs; a step that fails does not keep the others from their work."""
    files_before = len(_files(tables.delta(name)))
    done = Counter[str]()
    failures = []
    steps: dict[str, Callable[[], int]] = {
        # first, for the room that the others may need
        "unused_files_deleted": lambda: delete_unused_files(tables.delta(name), retention),
        "rows_dropped": lambda: drop_what_is_too_old(tables, name, retention, now, proceed),
        "sorted": lambda: sort_closed_days(tables, now, proceed) if name == "changes" else 0,
        "compacted": lambda: compact(tables, name, proceed),
        "log_shortened": lambda: shorten_log(tables, name),
    }
    for step, work in steps.items():
        if not proceed():
            break
        try:
            done[step] += work()
        except CommitFailedError:
            continue  # somebody else's commit came first: the next round finds this work again
        except (DeltaError, OSError) as error:
            failures.append(f"{name}: {in_one_line(error)}")
    table = tables.delta(name)
    files = _files(table)
    report = TableReport(
        table=name,
        files_before=files_before,
        files_after=len(files),
        bytes_after=sum(file["size_bytes"] for file in files),
        rows_dropped=done["rows_dropped"],
        unused_files_deleted=done["unused_files_deleted"],
        log_files=_count_log_files(tables, table),
    )
    return report, failures


# --- files that nobody needs -----------------------------------------------------------------------------


def delete_unused_files(table: DeltaTable, retention: TableRetention) -> int:
    """Delete the files that the table does not refer to, once they are old enough; return how many.

    Those of writers that were killed are among them; what is being written at this moment is too young.
    """
    hours = math.ceil(retention.keep_unused_files_ms / _HOUR_MS)
    return len(table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True))


def shorten_log(tables: Tables, name: str) -> int:
    """Delete log entries older than the table's `delta.logRetentionDuration` that a checkpoint replaces.

    Progress is written in log entries alone: a new one says it before old ones go. A checkpoint written here
    replaces entries at the next round, when nobody is left who began to read without it.
    """
    if name == "changes":
        tables.restate_progress()
    table = tables.delta(name)
    table.cleanup_metadata()
    if table.version() - _checkpointed_version(tables, table) >= _COMMITS_PER_CHECKPOINT:
        table.create_checkpoint()
    return 1


def _checkpointed_version(tables: Tables, table: DeltaTable) -> int:
    try:
        with _storage(tables, table).open_input_stream("_delta_log/_last_checkpoint") as pointer:
            return int(json.loads(pointer.read())["version"])
    except FileNotFoundError:
        return 0


# --- what is too old -------------------------------------------------------------------------------------


def drop_what_is_too_old(
    tables: Tables, name: str, retention: TableRetention, now: int, proceed: Proceed
) -> int:
    """Drop the days of a table, or the closed alerts, that its retention no longer covers; return the number
    of rows."""
    if name == "quarantine":
        return _delete(tables.delta(name), _is_before(_day(now - retention.keep_quarantine_ms)))
    if name == "alerts":
        return _delete(tables.delta(name), _is_closed_before(now - retention.keep_removed_ms))
    if name != "changes":
        return 0
    trimmed = trim_history(tables, _day(now - retention.history_ms), proceed)
    changes = tables.delta(name)
    kept_since = min(_day(now - retention.keep_removed_ms), history_start(changes))
    return trimmed + _delete(changes, _is_before(kept_since))


def trim_history(tables: Tables, first_whole_day: date, proceed: Proceed) -> int:
    """Leave only removed offsets in the days of `changes` before `first_whole_day`, each day in one commit.

    The commit notes the day, so a day is rewritten once. Days with changes that are not folded yet, and those
    after them, wait.
    """
    dropped = 0
    changes = tables.delta("changes")
    for day in _days(changes):
        if history_start(changes) <= day < first_whole_day:
            if not proceed() or _has_unfolded_rows(tables, changes, day):
                return dropped
            note = CommitProperties(app_transactions=[_note(HISTORY_TRANSACTION, day + timedelta(days=1))])
            dropped += _delete(changes, f"\"day\" = '{day}' AND NOT ({_KEPT_AFTER_HISTORY})", note)
            changes = tables.delta("changes")
    if history_start(changes) < first_whole_day:  # no day there, or nothing in it to delete
        _note_day(changes, HISTORY_TRANSACTION, first_whole_day)
    return dropped


def _note_day(changes: DeltaTable, transaction: str, day: date) -> None:
    commit = CommitProperties(app_transactions=[_note(transaction, day)])
    write_deltalake(changes, CHANGES.empty_table(), mode="append", commit_properties=commit)


def _note(transaction: str, day: date) -> Transaction:
    return Transaction(transaction, (day - _EPOCH).days)


def _has_unfolded_rows(tables: Tables, changes: DeltaTable, day: date) -> bool:
    folded = min(fold_mark(tables.delta(name)) for name in ROWS)
    asked = f"""SELECT 1 FROM changes WHERE "day" = '{day}' AND "sequence" > {folded} LIMIT 1"""
    return len(select(asked, changes=changes)) > 0


def _delete(table: DeltaTable, predicate: str, commit: CommitProperties | None = None) -> int:
    deleted = table.delete(predicate, writer_properties=_writing(table), commit_properties=commit)
    return int(deleted["num_deleted_rows"] or 0)


def _writing(table: DeltaTable) -> WriterProperties:
    return writer_properties(table, row_group_rows=_ROW_GROUP_ROWS)


def _is_before(day: date) -> str:
    return f"\"day\" < '{day}'"


def _is_closed_before(moment: int) -> str:
    # closed alerts of this rule say how many records have been told of
    return f"""CAST("closed_at" AS BIGINT) < {moment * 1_000} AND "rule" <> '{UNKNOWN_RECORD_VERSION}'"""


def _day(ms: int) -> date:
    return _EPOCH + timedelta(milliseconds=ms)


def _days(table: DeltaTable) -> list[date]:
    return sorted({file["partition.day"] for file in _files(table)})


# --- small files -----------------------------------------------------------------------------------------


def compact(tables: Tables, name: str, proceed: Proceed) -> int:
    """Join the small files of each partition that has enough of them; return the number of partitions."""
    compacted = 0
    for partition in _fragmented_partitions(tables.delta(name)):
        if not proceed():
            break
        with suppress(CommitFailedError):  # the job folded in the meantime: the next round will do
            table = tables.delta(name)
            table.optimize.compact(
                [(column, "=", value) for column, value in partition],
                target_size=TARGET_BYTES,
                max_concurrent_tasks=1,
                writer_properties=_writing(table),
            )
            compacted += 1
    return compacted


def sort_closed_days(tables: Tables, now: int, proceed: Proceed) -> int:
    """Sort the days of `changes` that have ended by group, each once; return how many.

    What happened to one group on a day then stands in one file, which readers find by its statistics.
    """
    count = 0
    changes = tables.delta("changes")
    sizes = Counter[date]()
    for file in _files(changes):
        sizes[file["partition.day"]] += file["size_bytes"]
    for day in sorted(sizes):
        if noted_day(changes, SORTED_TRANSACTION) <= day < _day(now - _HOUR_MS):
            if not proceed():
                break
            if sizes[day] <= SORT_LIMIT_BYTES:
                changes.optimize.z_order(
                    ["group"],
                    [("day", "=", str(day))],
                    target_size=TARGET_BYTES,
                    max_concurrent_tasks=1,
                    max_spill_size=_SORT_MEMORY_BYTES,
                    writer_properties=_writing(changes),
                )
                count += 1
            _note_day(tables.delta("changes"), SORTED_TRANSACTION, day + timedelta(days=1))
            changes = tables.delta("changes")
    return count


def _fragmented_partitions(table: DeltaTable) -> list[tuple[tuple[str, str], ...]]:
    columns = table.metadata().partition_columns
    small = Counter(
        tuple((column, str(file[f"partition.{column}"])) for column in columns)
        for file in _files(table)
        if file["size_bytes"] < SMALL_BYTES
    )
    return [partition for partition, count in sorted(small.items()) if count >= ENOUGH_FILES]


def _files(table: DeltaTable) -> list[dict[str, Any]]:
    files: list[dict[str, Any]] = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return files


def _storage(tables: Tables, table: DeltaTable) -> DeltaStorageHandler:
    return DeltaStorageHandler(table.table_uri, options=dict(tables.storage_options))


def _count_log_files(tables: Tables, table: DeltaTable) -> int:
    return len(PyFileSystem(_storage(tables, table)).get_file_info(FileSelector("_delta_log")))
