"""Fences: table properties that name the only process that may write to the tables, or maintain them.

A process that takes over puts its name into every table. That changes the metadata of the table, and delta-rs
refuses every commit, also a compaction, that was prepared on a version before such a change. For each later
commit a process opens the table, and finds the other name. So a process that was suspended commits nothing
once another one has taken over, wherever it continues.

Needs no clock, no lock, and no storage but that of the tables: their commits are conditional everywhere.
"""

from collections.abc import Mapping
from typing import Final

from deltalake import DeltaTable

from streaming.model.errors import MisuseError, OffsetlakeError

WRITER: Final = "offsetlake.writer"
"""The table property that names the job that writes to the tables; empty: it has ended."""

MAINTAINER: Final = "offsetlake.maintainer"
"""The table property that names the process that maintained the tables last."""


class OtherWriterError(MisuseError):
    """Another process has committed to tables that only this process may write to."""

    def __init__(self, root: str) -> None:
        super().__init__(
            f"writing to the tables under {root}: expected to be their only writer, found a commit of "
            "another one. Stop the other `offsetlake run` on these tables, then restart this one."
        )


class MaintenanceBusyError(OffsetlakeError):
    """Another process maintains the tables, or was killed during maintenance."""

    @classmethod
    def taken_over(cls, root: str) -> "MaintenanceBusyError":
        return cls(
            f"maintaining the tables under {root}: another process has taken over, as this one was suspended "
            "for longer than its lease. Nothing is lost; the next round does the rest."
        )


def name_in(table: DeltaTable, fence: str) -> str:
    """Return the name in a fence of a table; empty: none, or its process has ended."""
    return table.metadata().configuration.get(fence) or ""


def put_name(table: DeltaTable, fence: str, name: str) -> None:
    """Commit a name to a fence of a table; raises `CommitFailedError` if another one was committed since the
    table was opened."""
    table.alter.set_table_properties({fence: name}, raise_if_not_exists=False)


def refuse_others(table: DeltaTable, names: Mapping[str, str], root: str) -> None:
    """Raise `OtherWriterError` or `MaintenanceBusyError` where a fence of a table has another name than in
    `names`, by fence."""
    for fence, name in names.items():
        if name_in(table, fence) != name:
            raise OtherWriterError(root) if fence == WRITER else MaintenanceBusyError.taken_over(root)
