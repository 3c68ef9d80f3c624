"""Maintenance of the tables: compaction, and deletion of history, files and log entries no longer needed.

Safe beside a running job: nothing here takes the writer's lock. An append and a compaction both commit; of
two conflicting commits Delta accepts one: the job then repeats its own (`tables.commits`), and maintenance
leaves its own to the next round. delta-rs does not detect conflicting compactions; the lease
(`maintenance.lease`) and the name in the tables (`tables.fences`) prevent them.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Final
from uuid import uuid4

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from pyarrow.fs import FileSelector, PyFileSystem

from streaming.maintenance.compaction import compact, sort_closed_days
from streaming.maintenance.lease import maintenance_lease
from streaming.maintenance.samples import SamplesLostError
from streaming.maintenance.trimming import (
    KeepTimes,
    Proceed,
    delete_old_rows,
    files_of,
)
from streaming.maintenance.trusted_time import Times, times_of
from streaming.maintenance.unused_files import delete_unused_files, note_kept_files
from streaming.model.errors import OffsetlakeError
from streaming.tables.fences import MAINTAINER, MaintenanceBusyError
from streaming.tables.select import QueryFailedError, in_one_line
from streaming.tables.storage_errors import TablesUnreachableError
from streaming.tables.tables import Tables

_IS_FULL: Final = re.compile(r"\(os error (27|28|122)\)|No space left")
"""Errors of a full disk. There is no room for the lease: files of killed writers are deleted without it."""

_COMMITS_PER_CHECKPOINT: Final = 10  # of maintenance; delta-rs writes a checkpoint every 20 commits
_NAME: Final = uuid4().hex  # of this process


class MaintenanceError(OffsetlakeError):
    """A round of maintenance could not do all of its work."""


@dataclass(frozen=True, kw_only=True)
class TableReport:
    """The results of one round for one table; `log_files` is the number of files in `_delta_log`
    afterwards."""

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


def maintain(
    tables: Tables,
    keep: KeepTimes,
    *,
    clock: Callable[[], int],
    should_stop: Callable[[], bool] = lambda: False,
    name: str = _NAME,
) -> list[TableReport]:
    """Run one round: for each table drop old rows, compact, delete unused files, shorten the log.

    `should_stop` is called between steps. `name` is the name of the process in the tables. Raises
    `MaintenanceBusyError` when another process maintains the tables, and `MaintenanceError` for failed steps,
    after the other steps.
    """
    names = tables.existing()
    # first, for space that the rest may need, since the lease is a commit
    freed, failures = _without_unused_files(tables, names, keep, clock, should_stop, only_replaced=True)
    reports = list[TableReport]()
    in_all = partial(_maintain_all, tables, names, keep, clock, should_stop, name, failures)
    try:
        try:
            reports = in_all(freed)
        except (DeltaError, OSError, TablesUnreachableError) as error:
            if not _IS_FULL.search(str(error)):
                raise
            more, failed = _without_unused_files(tables, names, keep, clock, should_stop)
            failures += failed
            if not more.total():
                raise
            reports = in_all(freed + more)
    except (DeltaError, OSError, TablesUnreachableError) as error:
        failures.append(in_one_line(error))
    except MaintenanceBusyError as error:
        if not failures:
            raise
        failures.append(str(error))
    if failures:
        raise MaintenanceError(
            f"maintaining the tables under {tables.root}: {'; '.join(failures)}. Check free disk space "
            "and the permission to delete files. Nothing is lost; the next round retries."
        )
    return reports


def _maintain_all(
    tables: Tables,
    names: Sequence[str],
    keep: KeepTimes,
    clock: Callable[[], int],
    should_stop: Callable[[], bool],
    name: str,
    failures: list[str],
    freed: Mapping[str, int],
) -> list[TableReport]:
    """Maintain the tables `names` under the lease, with the `name` of this process in each.

    Failures of steps are appended to `failures`. `freed` unused files were deleted before, by table.
    """
    reports = list[TableReport]()
    with maintenance_lease(tables, clock) as renew:

        def proceed() -> bool:
            renew()
            return not should_stop()

        own = tables.with_name(MAINTAINER, name)
        for table in names:
            own.take_over(table, MAINTAINER, lambda _: renew())
        times = times_of(own, clock(), keep.history_ms)
        for table in names:
            report, failed = _maintain_table(own, table, keep, times, proceed, freed.get(table, 0))
            reports.append(report)
            failures += failed
    return reports


def _without_unused_files(
    tables: Tables,
    names: Sequence[str],
    keep: KeepTimes,
    clock: Callable[[], int],
    stop: Callable[[], bool],
    *,
    only_replaced: bool = False,
) -> tuple[Counter[str], list[str]]:
    """Delete unused files; return their number by table, and failures, which do not stop other tables."""
    freed, failures = Counter[str](), []
    for name in names:
        if stop():
            break
        try:
            freed[name] = delete_unused_files(tables, name, keep, clock(), only_replaced=only_replaced)
        except (DeltaError, OSError, QueryFailedError) as error:
            failures.append(f"{name}: {in_one_line(error)}")
    return freed, failures


def _maintain_table(
    tables: Tables, name: str, keep: KeepTimes, times: Times, proceed: Proceed, freed: int
) -> tuple[TableReport, list[str]]:
    """Run the steps for one table; a failed step does not stop the others. `freed` unused files were deleted
    before."""
    files_before = len(files_of(tables.delta(name)))
    done = Counter(freed=freed)
    failures = []
    steps: dict[str, Callable[[], int]] = {
        "freed": lambda: delete_unused_files(tables, name, keep, times.clock),
        "noted": lambda: note_kept_files(tables, name, keep),
        "rows_dropped": lambda: delete_old_rows(tables, name, keep, times, proceed),
        "sorted": lambda: sort_closed_days(tables, name, times, proceed),
        "compacted": lambda: compact(tables, name, proceed),
        "log_shortened": lambda: shorten_log(tables, name),
    }
    for step, work in steps.items():
        if not proceed():
            break
        try:
            done[step] += work()
        except CommitFailedError:
            continue  # another commit came first: the next round retries
        except (DeltaError, OSError, QueryFailedError, SamplesLostError) as error:
            failures.append(f"{name}: {in_one_line(error)}")
    table = tables.delta(name)
    files = files_of(table)
    report = TableReport(
        table=name,
        files_before=files_before,
        files_after=len(files),
        bytes_after=sum(file["size_bytes"] for file in files),
        rows_dropped=done["rows_dropped"],
        unused_files_deleted=done["freed"],
        log_files=_count_log_files(tables, table),
    )
    return report, failures


# --- the Delta log ------------------------------------------------------------------------------------


def shorten_log(tables: Tables, name: str) -> int:
    """Delete log entries older than the table's `delta.logRetentionDuration` that a checkpoint replaces.

    Progress is only in log entries: a new one is written with it before old ones are deleted. A checkpoint
    written here replaces entries at the next round, when all readers that started without it are done.
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
        with tables.storage(table).open_input_stream("_delta_log/_last_checkpoint") as pointer:
            return int(json.loads(pointer.read())["version"])
    except FileNotFoundError:
        return 0


def _count_log_files(tables: Tables, table: DeltaTable) -> int:
    return len(PyFileSystem(tables.storage(table)).get_file_info(FileSelector("_delta_log")))
