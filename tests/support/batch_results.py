"""Results of a batch, of which tasks have written rows to files: in this process, as `TaskFiles` does in
Spark's."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from streaming.job.reporter import BatchReport
from streaming.job.writer import BatchWriter
from streaming.model.batch_to_write import BatchToWrite, WrittenRows
from streaming.model.schemas import CHANGES_IN_BATCH, QUARANTINE_IN_BATCH
from streaming.model.totals import Totals
from streaming.spark import task_files
from streaming.spark.fingerprint import Fingerprint
from streaming.spark.shard_results import ShardResults
from streaming.spark.task_files import TaskFiles

Parts = Iterable[Iterable[dict[str, Any]]]
"""The changes of a batch, as slices of a shard give them."""


def results_of(parts: Parts, batch: BatchToWrite | None) -> ShardResults:
    """Return what the task of one shard gives of a batch (None: none was announced)."""
    tables = [pa.Table.from_pylist([*rows], CHANGES_IN_BATCH) for rows in parts]
    with TaskFiles(batch) as files:
        left = [files.left_to_driver(table) for table in tables]
        left.append(files.rest())
        written = files.handed_over()
    return ShardResults(
        changes=pa.concat_tables(left),
        quarantine=QUARANTINE_IN_BATCH.empty_table(),
        totals=Totals(decoded=sum(map(len, tables)), clamped=files.clamped),
        fingerprint=sum(map(Fingerprint.of, tables), Fingerprint()),
        written=written or WrittenRows(),
    )


def write_batch(writer: BatchWriter, parts: Parts, batch_id: int) -> BatchReport:
    """Let a writer apply a batch whose rows tasks write where they are enough."""
    batch = writer._begun()
    return writer.apply(results_of(parts, batch), batch_id, batch)


@contextmanager
def files_of_rows(rows: int) -> Iterator[None]:
    """Let tasks write a file for every so many rows; the rest is for the driver."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_files, "ROWS_OF_A_FILE", rows)
        yield
