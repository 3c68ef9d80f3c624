"""Deletion of files that no table refers to any more, once they are old enough."""

import math
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from deltalake.fs import DeltaStorageHandler

from streaming.common.times import HOUR_MS
from streaming.maintenance.trimming import KeepTimes, files_of
from streaming.maintenance.trusted_time import trusted_time_ago
from streaming.tables.commits import committed
from streaming.tables.tables import Tables

_KEPT_FILES: Final = "delta.deletedFileRetentionDuration"
_DELETIONS_AT_ONCE: Final = 8


def delete_unused_files(
    tables: Tables, name: str, keep: KeepTimes, clock: int, *, only_replaced: bool = False
) -> int:
    """Delete files that a table does not refer to, once they are old enough; return their number.

    Files of killed writers are among them; files being written are too young. If the clock (ms) has just
    jumped they would seem old, so their age is measured by the job's heartbeats, in whole hours: of a pause
    of the job only half of the time to keep files counts. Nothing is committed.

    Without the name of this process in the tables, a suspended maintainer may still commit a file of any age.
    `only_replaced` files, which the log lists, are never committed again.
    """
    unused_before = trusted_time_ago(tables.delta("changes"), clock, _hours_to_keep(keep) * HOUR_MS)
    if unused_before is None:
        return 0
    hours = math.ceil((clock - unused_before) / HOUR_MS)
    table = tables.delta(name)
    unused = table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=not only_replaced)
    # committed since the table was opened: this process was suspended before the files were listed
    committed_since = {file["path"] for file in files_of(tables.delta(name))}
    unused = [path for path in unused if path not in committed_since]
    delete = partial(_delete_file, tables.storage(table))
    with ThreadPoolExecutor(_DELETIONS_AT_ONCE, "offsetlake-deletions") as threads:
        return sum(threads.map(delete, unused))


def _delete_file(storage: DeltaStorageHandler, path: str) -> bool:
    """Delete a file; False: it was deleted before, as files that the log lists as replaced may have been."""
    try:
        storage.delete_file(path)
    except FileNotFoundError:
        return False
    return True


def note_kept_files(tables: Tables, name: str, keep: KeepTimes) -> int:
    """Set how long a table keeps replaced files: checkpoints of its log drop entries of files replaced longer
    ago, and files without an entry count as unused."""
    noted = {_KEPT_FILES: f"interval {max(1, _hours_to_keep(keep))} hours"}

    def note() -> int:
        table = tables.delta(name)
        if noted.items() <= table.metadata().configuration.items():
            return 0
        table.alter.set_table_properties(noted)
        return 1

    return committed(note)


def _hours_to_keep(keep: KeepTimes) -> int:
    return math.ceil(keep.keep_unused_files_ms / HOUR_MS)
