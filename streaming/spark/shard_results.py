"""The results of all shards in one batch: the rows of the query (`SHARD_RESULT`), read in the driver."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from streaming.common.pieces import PIECE_BYTES
from streaming.model.schemas import CHANGES_IN_BATCH, QUARANTINE_IN_BATCH
from streaming.model.totals import Totals, totals_from_json
from streaming.packing import codec
from streaming.state.arrow_stream import widen
from streaming.state.changes import newest_removal, only_counts

PORTION_ROWS: Final = 400_000
"""The number of changes to write at a time, or somewhat more: enough for a file for each of two cores."""


def is_full(rows: int, size: int) -> bool:
    """Return whether so many rows, or so many bytes, are enough for a portion of a batch."""
    return rows >= PORTION_ROWS or size >= PIECE_BYTES


@dataclass(frozen=True)
class ShardResults:
    """The results of all shards in one batch.

    The changes are in `parts`, each of which can be read once; `files` are those that workers wrote changes
    to. `newest_removal` is the newest of all (`streaming.state.changes`).
    """

    parts: Sequence[Callable[[], pa.Table]]
    newest_removal: int | None
    quarantine: pa.Table
    totals: Totals
    files: Sequence[str] = ()

    @classmethod
    def of(cls, changes: pa.Table, quarantine: pa.Table, totals: Totals) -> "ShardResults":
        """Return the results of a batch with these changes (schema `CHANGES_IN_BATCH`)."""
        return cls([lambda: changes], newest_removal(changes), quarantine, totals)

    @classmethod
    def collect(cls, batch: DataFrame) -> "ShardResults":
        """Run the batch (the one action that foreachBatch may run) and read the results of the shards."""
        rows = batch.toArrow().to_pylist()
        removals = [row["newest_removal"] for row in rows if row["newest_removal"] is not None]
        failed = [_widened(codec.from_bytes(row["quarantine"]), QUARANTINE_IN_BATCH) for row in rows]
        return cls(
            parts=[partial(_changes, row["changes"], row["file"]) for row in rows],
            newest_removal=max(removals, default=None),
            quarantine=_joined(failed, QUARANTINE_IN_BATCH),
            totals=sum((totals_from_json(row["totals"]) for row in rows), Totals()),
            files=[row["file"] for row in rows if row["file"] is not None],
        )

    def discard(self) -> None:
        """Delete the files of changes that were not read: those of a batch that failed, or was refused."""
        for path in self.files:
            Path(path).unlink(missing_ok=True)

    def portions(self) -> Iterator[pa.Table]:
        """Yield the changes in tables (schema `CHANGES_IN_BATCH`) of a size that fits into memory: at least
        one, and none of several is empty.
        """
        held, rows, size = list[pa.Table](), 0, 0
        has_yielded = False
        for read in self.parts:
            if is_full(rows, size):
                yield _joined(held, CHANGES_IN_BATCH)
                held, rows, size, has_yielded = [], 0, 0, True
            part = read()
            held.append(part)
            rows += len(part)
            size += part.nbytes
        if rows or not has_yielded:
            yield _joined(held, CHANGES_IN_BATCH)

    def changes(self) -> pa.Table:
        """Return all changes (schema `CHANGES_IN_BATCH`)."""
        return _joined((read() for read in self.parts), CHANGES_IN_BATCH)


@dataclass(frozen=True)
class Fingerprint:
    """A fingerprint of the changes of a batch: their number, and a hash of the records that caused them, in
    any order.

    A batch that is read again after compaction may lack records. Then the state of the shards differs from
    the tables. If only superseded records are missing it does not: so the number of commits is not part of
    the fingerprint, nor are rows with nothing else.
    """

    rows: int = 0
    hashes: int = 0

    @classmethod
    def of(cls, changes: pa.Table) -> "Fingerprint":
        """Return the fingerprint of changes (schema `CHANGES_IN_BATCH`)."""
        changes = changes.select(["op", "cause", "before", "source_offset", "source_partition"])
        if (is_no_change := only_counts(changes)).any():
            changes = changes.filter(pa.array(~is_no_change))
        is_set = pc.equal(changes["op"], "set").to_numpy()
        places = changes["source_offset"].to_numpy().astype(np.uint64) * 2 + is_set
        partitions = changes["source_partition"].to_numpy().astype(np.uint64)
        hashes = pd.util.hash_array(places) ^ pd.util.hash_array(partitions)
        return cls(len(changes), int(pd.util.hash_array(hashes).sum(dtype=np.uint64)))

    def __add__(self, other: "Fingerprint") -> "Fingerprint":
        return Fingerprint(self.rows + other.rows, (self.hashes + other.hashes) % 2**64)

    def __str__(self) -> str:
        """Return the form in the progress."""
        return f"{self.rows}-{self.hashes:016x}"


def _changes(cell: bytes, path: str | None) -> pa.Table:
    """Read the changes of one row of results; a file is deleted after reading."""
    if path is None:
        return _widened(codec.from_bytes(cell), CHANGES_IN_BATCH)
    table = codec.from_file(path)
    Path(path).unlink()
    return _widened(table, CHANGES_IN_BATCH)


def _widened(table: pa.Table, schema: pa.Schema) -> pa.Table:
    return widen(table, schema) if len(table) else schema.empty_table()


def _joined(tables: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
    filled = [table for table in tables if len(table)]
    return pa.concat_tables(filled) if filled else schema.empty_table()
