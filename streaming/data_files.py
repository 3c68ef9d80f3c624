"""Writes rows of Delta tables: Arrow makes the files, on all cores, and delta-rs commits them together.

delta-rs alone writes a million rows on one core while the others wait. What the log says of the files is the
same: their partition, number of rows and nulls, and the bounds of the columns by which files are passed over.
"""

import json
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import pairwise
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction
from pyarrow.fs import PyFileSystem

from streaming.parquet import arrow_options

MANY_ROWS: Final = 200_000
"""From twice as many rows of one partition on, cores share them: so many are worth a file."""

_CORES: Final = os.cpu_count() or 1
_ROW_GROUP_ROWS: Final = 128 * 1024  # readers skip what lies below a fold's mark by row group
_LONGEST_BOUND: Final = 256  # characters; longer ones are not worth their place in the log
_STATISTICS: Final = "delta.dataSkippingStatsColumns"


def append_rows(
    table: DeltaTable, storage: DeltaStorageHandler, rows: pa.Table, commit: CommitProperties
) -> None:
    """Append rows, which have the columns of the table, in one commit; `table` stays as it was opened.

    The table is partitioned by one column; `storage` is where it is. If this fails, files may be left that
    nobody refers to: maintenance deletes them.
    """
    commit_files(table, write_files(table, storage, rows), [], commit)


def write_files(table: DeltaTable, storage: DeltaStorageHandler, rows: pa.Table) -> list[AddAction]:
    """Write rows to files, on all cores; they belong to the table once they are committed."""
    [column] = table.metadata().partition_columns
    write = partial(_write, PyFileSystem(storage), column, _bounded_columns(table))
    parts = _parts(rows, column)
    if len(parts) < 2:
        return [write(part) for part in parts]
    with ThreadPoolExecutor(_CORES, "offsetlake-files") as cores:
        return list(cores.map(write, parts))


def commit_files(
    table: DeltaTable, added: Sequence[AddAction], removed: Sequence[RemoveAction], commit: CommitProperties
) -> None:
    """Add and remove files in one commit; `table` stays as it was opened.

    Raises `CommitFailedError` where another commit has removed one of these files meanwhile.
    """
    columns = table.metadata().partition_columns
    table.create_write_transaction(
        [*added, *removed], "append", table.schema(), columns, commit_properties=commit
    )


def statistics(rows: pa.Table, columns: Sequence[str]) -> dict[str, Any]:
    """Return what the log says of a file: its number of rows, nulls and bounds of some columns."""
    nulls = {column: rows[column].null_count for column in columns}
    bounds = {
        column: (_written(found["min"].as_py()), _written(found["max"].as_py()))
        for column in columns
        if nulls[column] < len(rows) and _is_short(found := pc.min_max(rows[column]))
    }
    return {
        "numRecords": len(rows),
        "minValues": {column: least for column, (least, _) in bounds.items()},
        "maxValues": {column: greatest for column, (_, greatest) in bounds.items()},
        "nullCount": nulls,
    }


@dataclass(frozen=True)
class _Part:
    """What becomes one file: those of `rows` that belong to a partition, which may be all."""

    rows: pa.Table
    partition: pa.Scalar


def _parts(rows: pa.Table, column: str) -> list[_Part]:
    """Give each partition a file, or several if there is one partition alone and its rows are many."""
    partitions = pc.unique(rows[column])
    if len(partitions) != 1:
        return [_Part(rows, partition) for partition in partitions]
    count = max(1, min(_CORES, len(rows) // MANY_ROWS))
    bounds = [len(rows) * number // count for number in range(count + 1)]
    return [_Part(rows.slice(start, stop - start), partitions[0]) for start, stop in pairwise(bounds)]


def _write(files: PyFileSystem, column: str, bounded: Sequence[str], part: _Part) -> AddAction:
    is_own = pc.equal(part.rows[column], part.partition)
    rows = (part.rows if pc.all(is_own).as_py() else part.rows.filter(is_own)).drop_columns(column)
    path = f"{column}={part.partition}/part-{uuid4()}.zstd.parquet"
    with files.open_output_stream(path) as file:
        pq.write_table(rows, file, row_group_size=_ROW_GROUP_ROWS, **arrow_options(rows.schema))
        size = file.tell()
    return AddAction(
        path=path,
        size=size,
        partition_values={column: str(part.partition)},
        modification_time=time.time_ns() // 1_000_000,
        data_change=True,
        stats=json.dumps(statistics(rows, bounded)),
    )


def _bounded_columns(table: DeltaTable) -> list[str]:
    """Return the columns whose bounds are noted: those that the table names, else texts, numbers, moments."""
    metadata = table.metadata()
    if named := metadata.configuration.get(_STATISTICS):
        return named.split(",")
    return [
        field.name
        for field in pa.schema(table.schema().to_arrow())
        if field.name not in metadata.partition_columns
        and not (pa.types.is_nested(field.type) or pa.types.is_binary(field.type))
    ]


def _is_short(bounds: pa.StructScalar) -> bool:
    return all(
        not isinstance(bound, str) or len(bound) <= _LONGEST_BOUND for bound in bounds.as_py().values()
    )


def _written(bound: str | int | datetime) -> str | int:
    if not isinstance(bound, datetime):
        return bound
    return bound.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"  # whole ones, in all tables
