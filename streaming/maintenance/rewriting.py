"""Rewrites of files by delta-rs: deletion of rows, and sorting."""

from contextlib import suppress
from datetime import date
from typing import Final

from deltalake import CommitProperties, DeltaTable, WriterProperties
from deltalake.exceptions import CommitFailedError

from streaming.tables.files import ROW_GROUP_ROWS, writer_properties

TARGET_BYTES: Final = 32 * 2**20
"""Size up to which files are joined; not larger, since each round rewrites the last file of the day."""

_SORT_MEMORY_BYTES: Final = 256 * 2**20  # without a limit a day of 4 M rows took 1.7 GB


def delete_rows(
    table: DeltaTable,
    predicate: str,
    commit: CommitProperties | None = None,
    *,
    by: str,
    day: date | None = None,
) -> int:
    """Delete rows, then rewrite the remaining ones (of a day), sorted; return the number of deleted rows.

    A deletion by delta-rs writes files with the type `string_view`, which Arrow does not compare, so other
    engines cannot filter them by text. A sort writes plain texts again.
    """
    deleted = table.delete(predicate, writer_properties=writing(table), commit_properties=commit)
    if deleted["num_deleted_rows"] and deleted["num_added_files"]:
        with suppress(CommitFailedError):  # another commit has rewritten them
            sort_files(table, by, day)
    return int(deleted["num_deleted_rows"] or 0)


def sort_files(table: DeltaTable, by: str, day: date | None) -> None:
    table.optimize.z_order(
        [by],
        None if day is None else [("day", "=", str(day))],
        target_size=TARGET_BYTES,
        max_concurrent_tasks=1,
        max_spill_size=_SORT_MEMORY_BYTES,
        writer_properties=writing(table),
    )


def writing(table: DeltaTable) -> WriterProperties:
    """Return the options with which delta-rs rewrites files of a table."""
    return writer_properties(table, row_group_rows=ROW_GROUP_ROWS)
