"""A task writes rows of the batch to files of `changes`; the others go to the driver."""

import json
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from socket import gethostname
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import SparkContext, TaskContext

from streaming.expiry.causes import ends_of, undecided, without_evidence
from streaming.model.batch_to_write import BatchToWrite, WrittenRows
from streaming.model.errors import OffsetlakeError
from streaming.model.schemas import CHANGES_IN_BATCH
from streaming.settings.kinds import MIB
from streaming.settings.storage import resolved_options

if TYPE_CHECKING:
    from streaming.tables.files import NewFiles

ROWS_OF_A_FILE: Final = 32 * 1024
BYTES_OF_A_FILE: Final = 64 * MIB
"""Rows are written once they are so many, or, before the conversion, have so many bytes."""

LEAST_ROWS: Final = 50_000
LEAST_BYTES: Final = 16 * MIB
"""Fewer rows at the end of a task go to the driver: a batch of following is one file, not one per task."""

_BATCH: Final = "offsetlake.batch"
"""The local property of Spark with the batch. Spark passes it to the tasks of the actions of a thread."""


def announce(batch: BatchToWrite, context: SparkContext) -> None:
    """Let the tasks of the next actions of this thread write rows of this batch."""
    context.setLocalProperty(_BATCH, json.dumps({"release": _installed_release(), "batch": asdict(batch)}))


def announced() -> BatchToWrite | None:
    """Return the batch whose rows this task may write; None: all go to the driver.

    Raises `OffsetlakeError` if the driver runs another release, which may replay records in another way.
    """
    task = TaskContext.get()
    text = None if task is None else task.getLocalProperty(_BATCH)
    if text is None:
        return None
    values = json.loads(text)
    if values["release"] != _installed_release():
        raise OffsetlakeError(
            f"replaying records: expected offsetlake {values['release']}, as on the driver, found "
            f"{_installed_release()} on {gethostname()}. Install the same release on all machines."
        )
    return BatchToWrite(**values["batch"])


@cache
def _installed_release() -> str:
    return version("offsetlake")


class TaskFiles:
    """The rows of one shard in a batch, and the files with most of them.

    At the end of a `with` block that fails, the files are deleted. Without a batch there are none.
    """

    def __init__(self, batch: BatchToWrite | None) -> None:
        self._batch = batch
        self._new: NewFiles | None = None
        self._waiting: list[pa.Table] = []
        self._written = WrittenRows()
        self.clamped = 0

    def __enter__(self) -> "TaskFiles":
        return self

    def __exit__(self, *_: object) -> None:
        if self._new is not None:
            self._new.__exit__()

    def left_to_driver(self, changes: pa.Table) -> pa.Table:
        """Take changes (schema `CHANGES_IN_BATCH`); return those that the driver needs: of each group of
        which an offset was removed whose cause the evidence may show."""
        if self._batch is None:
            self._waiting.append(changes)
            return changes.slice(0, 0)
        of_driver, own = _divided(changes, self._batch.evidence_since)
        self._waiting.append(own)
        self._write_if(ROWS_OF_A_FILE, BYTES_OF_A_FILE)
        return of_driver

    def rest(self) -> pa.Table:
        """Return the last changes, for the driver, unless they are worth a file."""
        self._write_if(LEAST_ROWS, LEAST_BYTES)
        return pa.concat_tables([CHANGES_IN_BATCH.empty_table(), *self._waiting])

    def handed_over(self) -> WrittenRows | None:
        """Return the written rows: from now on their files belong to the driver; None: there are none."""
        if self._new is None:
            return None
        return self._written + WrittenRows(files=self._new.handed_over())

    def _write_if(self, rows: int, size: int) -> None:
        if self._batch is None:
            return
        if sum(map(len, self._waiting)) >= rows or sum(some.nbytes for some in self._waiting) >= size:
            self._write(pa.concat_tables(self._waiting), self._batch)
            self._waiting = []

    def _write(self, changes: pa.Table, batch: BatchToWrite) -> None:
        # Not at the top: delta-rs starts a thread, and workers are forked from a process that has one.
        from streaming.tables.change_files import write_change_file
        from streaming.tables.files import NewFiles
        from streaming.tables.rows import change_rows

        if self._new is None:
            self._new = NewFiles.of(batch.place, resolved_options(batch.storage_options))
        rows, clamped = change_rows(changes, sequence=batch.sequence, batch_time=batch.batch_time)
        write_change_file(batch, self._new, without_evidence(rows))
        offsets = pc.sum(pc.equal(changes["kind"], "offset")).as_py() or 0
        self.clamped += clamped
        self._written += WrittenRows(len(changes), offsets, ends_of(changes))


def _divided(changes: pa.Table, since: int) -> tuple[pa.Table, pa.Table]:
    """Return the changes of groups with removals whose cause the evidence may show, and the others."""
    is_undecided = undecided(changes, since)
    if not is_undecided.any():
        return changes.slice(0, 0), changes
    groups = pc.unique(changes["group"].filter(pa.array(is_undecided)))
    is_theirs = pc.is_in(changes["group"], value_set=groups)
    return changes.filter(is_theirs), changes.filter(pc.invert(is_theirs))
