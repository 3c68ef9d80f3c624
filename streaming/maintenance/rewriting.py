"""Deletes rows of a table, and sorts its files: what delta-rs rewrites."""

from contextlib import suppress
from datetime import date
from typing import Final

from deltalake import CommitProperties, DeltaTable, WriterProperties
from deltalake.exceptions import CommitFailedError

from streaming.tables.files import ROW_GROUP_ROWS, writer_properties

TARGET_BYTES: Final = 32 * 2**20
"""Size up to which files are joined; not larger, as each round rewrites the last file of the day."""

_SORT_MEMORY_BYTES: Final = 256 * 2**20  # without a limit a day of 4 M rows took 1.7 GB


def delete_rows(
    table: DeltaTable,
    predicate: str,
    commit: CommitProperties | None = None,
    *,
    by: str,
    day: date | None = None,
) -> int:
    """Delete rows, then rewrite those that are left (of a day), sorted; return how many were deleted.

    In the files that a deletion by delta-rs leaves other engines cannot look for texts: they are of the type
    `string_view`, which Arrow does not compare. Those of a sort are texts again.
    """
    deleted = table.delete(predicate, writer_properties=writing(table), commit_properties=commit)
    if deleted["num_deleted_rows"] and deleted["num_added_files"]:
        with suppress(CommitFailedError):  # another commit has rewritten them
            sort_files(table, by, day)
    return int(deleted["num_deleted_rows"] or 0)


def sort_files(table: DeltaTable, by: str, day: date | None) -> None:
    """Rewrite the files of a table, or of one day of it, sorted by a column."""
    table.optimize.z_order(
        [by],
        None if day is None else [("day", "=", str(day))],
        target_size=TARGET_BYTES,
        max_concurrent_tasks=1,
        max_spill_size=_SORT_MEMORY_BYTES,
        writer_properties=writing(table),
    )


def writing(table: DeltaTable) -> WriterProperties:
    """Return how delta-rs is to rewrite files of a table."""
    return writer_properties(table, row_group_rows=ROW_GROUP_ROWS)
