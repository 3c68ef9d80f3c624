"""Files of `changes` that tasks write, and the driver commits."""

from typing import Final

import pyarrow as pa

from streaming.model.batch_to_write import BatchToWrite
from streaming.tables.files import NewFiles, write_file, writing_to
from streaming.tables.rows import without_groups

BOUNDED_IN_CHANGES: Final = ("sequence", "batch_time", "kind", "group")
"""The columns of `changes` with bounds in the log."""


def write_change_file(batch: BatchToWrite, new: NewFiles, rows: pa.Table) -> None:
    """Write rows of a batch (schema `CHANGES`) to a new file; raises `TablesUnreachableError`."""
    with writing_to(batch.place):
        write_file(
            new, without_groups(rows), bounded=BOUNDED_IN_CHANGES, partitioned_by="day", name=batch.name
        )
