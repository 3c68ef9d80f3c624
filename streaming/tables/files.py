"""Writes rows of Delta tables: Arrow makes the files, on all cores, and delta-rs commits them together.

delta-rs alone writes a million rows on one core while the others wait. What the log says of the files is the
same: their partition, number of rows and nulls, and the bounds of the columns by which files are passed over.

Names and small numbers repeat: they are written with dictionaries. Offsets and timestamps hardly do: a
dictionary of them would be as large as they are. They are written as differences, which every reader of
Parquet has known for years (Spark from 3.3). delta-rs, which rewrites files, cannot tell fields of structs
apart: it leaves them to the compression.
"""

import json
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import pairwise
from typing import Any, Final, Self
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import ColumnProperties, CommitProperties, DeltaTable, WriterProperties
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction
from pyarrow.fs import PyFileSystem

from streaming.common.times import now_ms
from streaming.tables.bounds import greatest_bound, least_bound

ROWS_WORTH_A_FILE: Final = 200_000
"""From twice as many rows of one partition on, cores share them: so many are worth a file."""


_HELD_FILE_BYTES: Final = 4_096  # about what objects take, however few rows there are


class RecentFiles:
    """Rows of files that were read lately, for whoever asks about the same table again and again.

    A file of a Delta table never changes, and no other one ever has its name: which files there are is looked
    up in the log each time. So rows that are held cannot be old ones. Threads may share it.
    """

    def __init__(self, most_bytes: int) -> None:
        self._left = most_bytes
        self._held: OrderedDict[str, list[pa.RecordBatch]] = OrderedDict()
        self._lock = threading.Lock()

    def rows(self, name: str, read: Callable[[], Iterable[pa.RecordBatch]]) -> list[pa.RecordBatch]:
        """Return the rows of a file by its whole name; `read` reads them where they are not held."""
        with self._lock:
            if name in self._held:
                self._held.move_to_end(name)
                return self._held[name]
        rows = list(read())
        with self._lock:
            if name not in self._held:  # no other thread has read it meanwhile
                self._held[name] = rows
                self._left -= _size_of(rows)
            while self._left < 0:
                _, oldest = self._held.popitem(last=False)
                self._left += _size_of(oldest)
        return rows


def _size_of(rows: Sequence[pa.RecordBatch]) -> int:
    own: int = sum(batch.nbytes for batch in rows)
    return _HELD_FILE_BYTES + own


CORES: Final = os.cpu_count() or 1
BOUNDED_COLUMNS: Final = "delta.dataSkippingStatsColumns"
"""The table property that names the columns whose bounds are noted in the log."""

ROW_GROUP_ROWS: Final = 128 * 1024
"""Rows of a row group: readers skip what lies below a fold's mark by row group."""

_DIFFERENCES: Final = "DELTA_BINARY_PACKED"
_REPEATED: Final = ColumnProperties(dictionary_enabled=True)
_NUMBERS: Final = ColumnProperties(dictionary_enabled=False, encoding=_DIFFERENCES)
_OTHERS: Final = ColumnProperties(dictionary_enabled=False)


class NewFiles:
    """Files of rows on their way into a table: at the end of a `with` block those are deleted for which no
    commit was tried.

    After a commit that failed they stay, as it may have arrived. Those, and what a killed process leaves,
    maintenance deletes once they are old. Threads may share an object.
    """

    def __init__(self, storage: DeltaStorageHandler) -> None:
        self._storage = storage
        self._paths: list[str] = []
        self._added: list[AddAction] = []

    @contextmanager
    def output(self, path: str) -> Iterator[pa.NativeFile]:
        """Write a file at a path in the folder of the table."""
        self._paths.append(path)
        with PyFileSystem(self._storage).open_output_stream(path) as file:
            yield file

    def add(self, file: AddAction) -> None:
        """Note what a commit is to say of a file that is written."""
        self._added.append(file)

    def commit(self, table: DeltaTable, removed: Sequence[RemoveAction], commit: CommitProperties) -> None:
        """Add all files and remove others, as `commit_files` does."""
        self._paths = []
        commit_files(table, self._added, removed, commit)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for path in self._paths:
            with suppress(OSError):  # it was never there, or the storage is gone: maintenance finds it then
                self._storage.delete_file(path)
        self._paths = []


def write_files(
    table: DeltaTable,
    new: NewFiles,
    rows: pa.Table,
    *,
    row_group_rows: int = ROW_GROUP_ROWS,
    cores: int | None = None,
) -> None:
    """Write rows to new files, on so many cores (None: all).

    The table is partitioned by one column, or not at all.
    """
    write_file = partial(_write, new, bounded_columns(table), row_group_rows)
    if not (columns := table.metadata().partition_columns):
        write_file(rows, "", {})
        return
    [column] = columns
    write = partial(_write_part, write_file, column)
    threads = CORES if cores is None else cores
    parts = _parts(rows, column, threads)
    if len(parts) < 2 or threads < 2:
        for part in parts:
            write(part)
        return
    with ThreadPoolExecutor(threads, "offsetlake-files") as writers:
        list(writers.map(write, parts))


def commit_files(
    table: DeltaTable, added: Sequence[AddAction], removed: Sequence[RemoveAction], commit: CommitProperties
) -> None:
    """Add and remove files in one commit; `table` stays as it was opened.

    That a compaction has meanwhile replaced files that are to be removed is not noticed by delta-rs: `commit`
    must then allow no retries (`max_commit_retries=0`): `CommitFailedError` follows any other commit.
    """
    columns = table.metadata().partition_columns
    table.create_write_transaction(
        [*added, *removed], "append", table.schema(), columns, commit_properties=commit
    )


def replace_rows(
    table: DeltaTable, storage: DeltaStorageHandler, rows: pa.Table, commit: CommitProperties
) -> None:
    """Replace all rows of a table without partitions, in one commit; `table` stays as it was opened.

    In the files that a merge by delta-rs writes other engines cannot look for texts: they are of the type
    `string_view`, which Arrow does not compare.
    As to `commit` see `commit_files`.
    """
    removed = [removal(file) for file in pa.table(table.get_add_actions()).to_pylist()]
    with NewFiles(storage) as new:
        write_files(table, new, rows)
        new.commit(table, removed, commit)


def removal(file: Mapping[str, Any], partition: Mapping[str, str] | None = None) -> RemoveAction:
    """Return the action that removes a file, as delta-rs lists it, of a partition if there are any."""
    return RemoveAction(
        path=file["path"],
        data_change=True,
        deletion_timestamp=now_ms(),
        size=file["size_bytes"],
        partition_values=dict(partition or {}),
    )


@dataclass(frozen=True)
class _Part:
    """What becomes one file: those of `rows` that belong to a partition, which may be all."""

    rows: pa.Table
    partition: pa.Scalar


def _parts(rows: pa.Table, column: str, most: int) -> list[_Part]:
    """Give each partition a file, or up to `most` if there is one partition alone with many rows."""
    partitions = pc.unique(rows[column])
    if len(partitions) != 1:
        return [_Part(rows, partition) for partition in partitions]
    count = max(1, min(most, len(rows) // ROWS_WORTH_A_FILE))
    bounds = [len(rows) * number // count for number in range(count + 1)]
    return [_Part(rows.slice(start, stop - start), partitions[0]) for start, stop in pairwise(bounds)]


def _write_part(write_file: Callable[..., None], column: str, part: _Part) -> None:
    is_own = pc.equal(part.rows[column], part.partition)
    rows = (part.rows if pc.all(is_own).as_py() else part.rows.filter(is_own)).drop_columns(column)
    write_file(rows, f"{column}={part.partition}/", {column: str(part.partition)})


def _write(
    new: NewFiles,
    bounded: Sequence[str],
    row_group_rows: int,
    rows: pa.Table,
    folder: str,
    partition: dict[str, str | None],
) -> None:
    path = f"{folder}part-{uuid4()}.zstd.parquet"
    with new.output(path) as file:
        pq.write_table(rows, file, **arrow_options(rows.schema) | {"row_group_size": row_group_rows})
        size = file.tell()
    new.add(
        AddAction(
            path=path,
            size=size,
            partition_values=partition,
            modification_time=now_ms(),
            data_change=True,
            stats=statistics_text(rows, bounded),
        )
    )


# --- what the log says of files --------------------------------------------------------------------------


def statistics(rows: pa.Table, columns: Sequence[str]) -> dict[str, Any]:
    """Return what the log says of a file: its number of rows, nulls and bounds of some columns.

    Only a column that is null throughout has no bounds. Those of long texts are shorter (`tables.bounds`).
    """
    nulls = {column: rows[column].null_count for column in columns}
    bounds = {
        column: (_least(found["min"].as_py()), _greatest(found["max"].as_py()))
        for column in columns
        if nulls[column] < len(rows) and (found := pc.min_max(rows[column]))
    }
    return {
        "numRecords": len(rows),
        "minValues": {column: least for column, (least, _) in bounds.items()},
        "maxValues": {column: greatest for column, (_, greatest) in bounds.items()},
        "nullCount": nulls,
    }


def statistics_text(rows: pa.Table, columns: Sequence[str]) -> str:
    """Write the statistics as they stand in the log.

    In the escapes that JSON has for characters beyond U+FFFF, delta-rs misreads those of even planes.
    """
    return json.dumps(statistics(rows, columns), ensure_ascii=False)


def bounded_columns(table: DeltaTable) -> list[str]:
    """Return the columns whose bounds are noted: those that the table names, else texts, numbers, moments."""
    metadata = table.metadata()
    if named := metadata.configuration.get(BOUNDED_COLUMNS):
        return named.split(",")
    return [
        field.name
        for field in pa.schema(table.schema().to_arrow())
        if field.name not in metadata.partition_columns
        and not (pa.types.is_nested(field.type) or pa.types.is_binary(field.type))
    ]


def _least(bound: str | int | datetime) -> str | int:
    return least_bound(bound) if isinstance(bound, str) else _written(bound)


def _greatest(bound: str | int | datetime) -> str | int:
    return greatest_bound(bound) if isinstance(bound, str) else _written(bound)


def _written(bound: int | datetime) -> str | int:
    if not isinstance(bound, datetime):
        return bound
    return bound.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"  # whole ones, in all tables


# --- how columns are put into files ----------------------------------------------------------------------


def writer_properties(table: DeltaTable, *, row_group_rows: int | None = None) -> WriterProperties:
    """Return how delta-rs is to write files of a table."""
    by_column = {
        field.name: _NUMBERS if _is_large(field.type) else _REPEATED
        for field in pa.schema(table.schema().to_arrow())
        if not pa.types.is_nested(field.type)
    }
    return WriterProperties(
        compression="ZSTD",
        max_row_group_size=row_group_rows,
        default_column_properties=_OTHERS,
        column_properties=by_column,
    )


def arrow_options(schema: pa.Schema) -> dict[str, Any]:
    """Return how Arrow is to write files of these columns: options of `pyarrow.parquet.write_table`."""
    leaves = [leaf for field in schema for leaf in _leaves(field.name, field.type)]
    return {
        "compression": "zstd",
        "row_group_size": ROW_GROUP_ROWS,
        "use_dictionary": [path for path, kind in leaves if not _is_large(kind)],
        "column_encoding": {path: _DIFFERENCES for path, kind in leaves if _is_large(kind)},
        "store_schema": False,  # other readers need none of Arrow's own types
    }


def _leaves(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """Give the columns that a field is written as, by the names that Parquet has for them."""
    if pa.types.is_struct(kind):
        for child in kind:
            yield from _leaves(f"{path}.{child.name}", child.type)
    elif pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path, kind


def _is_large(kind: pa.DataType) -> bool:
    return bool(pa.types.is_int64(kind) or pa.types.is_timestamp(kind))
