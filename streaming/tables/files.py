"""Writes rows of Delta tables: Arrow writes the files on all cores, delta-rs commits them together.

delta-rs alone writes a million rows on one core while the others wait. The log has the same facts about the
files: partition, number of rows and nulls, and the bounds of the columns used for data skipping.

Names and small numbers repeat, so they are dictionary-encoded. Offsets and timestamps hardly repeat: their
dictionary would be as large as the column. They are delta-encoded, which Parquet readers support (Spark from
3.3). delta-rs, which rewrites files, cannot set the encoding of struct fields: it only compresses them.
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from itertools import pairwise
from typing import Any, Final, Self
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import ColumnProperties, CommitProperties, DeltaTable, WriterProperties
from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction
from pyarrow.fs import FileSelector, PyFileSystem

from streaming.common.conf_dir import whole_path
from streaming.common.container_limits import usable_cores
from streaming.common.keys import without_unused
from streaming.common.times import MINUTE_MS, now_ms
from streaming.model.errors import OffsetlakeError
from streaming.tables.bounds import greatest_bound, least_bound
from streaming.tables.select import in_one_line
from streaming.tables.storage_errors import TablesUnreachableError, advice_about

ROWS_WORTH_A_FILE: Final = 200_000
"""Rows that justify a file of their own: from twice as many rows of one partition on, cores share them."""


def storage_of(table: DeltaTable) -> PyFileSystem:
    """Return the storage of a table, for reading its files with Arrow: their sizes need no requests."""
    sizes = table._table.get_add_file_sizes()
    return PyFileSystem(DeltaStorageHandler.from_table(table._table, table._storage_options, sizes))


def whole_file(storage: PyFileSystem, path: str) -> pa.BufferReader:
    """Read a file at once, with one request, instead of in pieces."""
    with storage.open_input_file(path) as source:
        return pa.BufferReader(source.read_buffer())


_HELD_FILE_BYTES: Final = 4_096  # about the size of the objects, however few the rows


class RecentFiles:
    """A cache of the rows of recently read files, for repeated reads of one table.

    It cannot be stale: a file of a Delta table never changes, its name is never reused, and the log decides
    which files belong to the table. Threads may share it.
    """

    def __init__(self, most_bytes: int) -> None:
        self._left = most_bytes
        self._held: OrderedDict[str, list[pa.RecordBatch]] = OrderedDict()
        self._lock = threading.Lock()

    def rows(self, name: str, read: Callable[[], Iterable[pa.RecordBatch]]) -> list[pa.RecordBatch]:
        """Return the rows of a file by its full path; `read` reads them if they are not cached."""
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


BOUNDED_COLUMNS: Final = "delta.dataSkippingStatsColumns"
"""The table property that names the columns with bounds in the log."""

ROW_GROUP_ROWS: Final = 128 * 1024
"""Rows of a row group; readers skip row groups below a fold mark."""

_PREFIX: Final = "part-"
_DIFFERENCES: Final = "DELTA_BINARY_PACKED"
_REPEATED: Final = ColumnProperties(dictionary_enabled=True)
_NUMBERS: Final = ColumnProperties(dictionary_enabled=False, encoding=_DIFFERENCES)
_OTHERS: Final = ColumnProperties(dictionary_enabled=False)


_COMMITTED_WITHIN_MS: Final = 30 * MINUTE_MS
"""Older files are not committed: maintenance deletes files without a table once they are an hour old."""


class LateCommitError(OffsetlakeError):
    """The time between writing files and committing them was too long."""


@contextmanager
def writing_to(place: str) -> Iterator[None]:
    """Explain errors of the storage while a table (its path or URL) is written: `TablesUnreachableError`."""
    try:
        yield
    except (DeltaError, OSError) as error:
        said = in_one_line(error)
        raise TablesUnreachableError(
            f"writing to {whole_path(place)}: expected writable storage, found: {said}. "
            f"{advice_about(said) or 'Check free space and permissions'}. Nothing is lost: the job "
            "continues once it can write."
        ) from error


class NewFiles:
    """New files of a table. At the end of a `with` block, files for which no commit was tried are deleted,
    unless another process takes them over.

    After a failed commit they stay, since the commit may have arrived. Maintenance deletes those, and the
    files of killed processes, once they are old. Threads may share an object.
    """

    def __init__(self, storage: DeltaStorageHandler) -> None:
        self._storage = storage
        self._paths: list[str] = []
        self._added: list[AddAction] = []

    @classmethod
    def of(cls, place: str, storage_options: Mapping[str, str]) -> Self:
        """Return a collector for new files of the table at a path or URL."""
        return cls(DeltaStorageHandler(place, options=dict(storage_options)))

    @contextmanager
    def output(self, path: str) -> Iterator[pa.NativeFile]:
        """Open a file for writing, at a path relative to the table."""
        self._paths.append(path)
        with PyFileSystem(self._storage).open_output_stream(path) as file:
            yield file

    def add(self, file: AddAction) -> None:
        self._added.append(file)

    def handed_over(self) -> list[dict[str, Any]]:
        """Return the files as JSON values, for `take_over` in the process that commits or deletes them."""
        self._paths = []
        return [asdict(file) for file in self._added]

    def take_over(self, files: Iterable[Mapping[str, Any]]) -> None:
        """Take over the files that another process has written (`handed_over`)."""
        taken = [AddAction(**file) for file in files]
        self._paths += [file.path for file in taken]
        self._added += taken

    def find(self, folder: str, name: str) -> None:
        """Add the files of a folder that other processes may have written under a `name` (`write_file`), to
        delete them."""
        found = self._storage.get_file_info_selector(FileSelector(folder, allow_not_found=True))
        self._paths += [file.path for file in found if file.base_name.startswith(f"{_PREFIX}{name}")]

    def commit(self, table: DeltaTable, removed: Sequence[RemoveAction], commit: CommitProperties) -> None:
        """Add all files and remove others in one commit; see `commit_files`.

        Raises `LateCommitError` where files may have been deleted meanwhile.
        """
        first = min((file.modification_time for file in self._added), default=now_ms())
        if (age := now_ms() - first) > _COMMITTED_WITHIN_MS:
            raise LateCommitError(
                f"writing to {table.table_uri}: expected to commit new files within "
                f"{_COMMITTED_WITHIN_MS // MINUTE_MS} minutes, found them {age // MINUTE_MS} minutes old. "
                "This process was suspended, its clock has jumped, or writing took that long. Nothing was "
                "committed, and nothing is lost: start it again. If the error returns, set a smaller "
                "max_records_per_batch and run `offsetlake rebuild`."
            )
        self._paths = []
        commit_files(table, self._added, removed, commit)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for path in self._paths:
            with suppress(OSError):  # it was never created, or the storage is gone: maintenance finds it
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
    """Write rows to new files on up to `cores` cores (None: all).

    The table has one partition column or none.
    """
    write_file = partial(_write, new, bounded_columns(table), row_group_rows)
    if not (columns := table.metadata().partition_columns):
        write_file(rows, "", {})
        return
    [column] = columns
    write = partial(_write_part, write_file, column)
    threads = usable_cores() if cores is None else cores
    parts = _parts(rows, column, threads)
    if len(parts) < 2 or threads < 2:
        for part in parts:
            write(part)
        return
    with ThreadPoolExecutor(threads, "offsetlake-files") as writers:
        list(writers.map(write, parts))


def write_file(
    new: NewFiles, rows: pa.Table, *, bounded: Sequence[str], partitioned_by: str, name: str = ""
) -> None:
    """Write rows of one partition to one new file, whose name begins with `name`; `bounded` are the columns
    with bounds in the log."""
    write = partial(_write, new, bounded, ROW_GROUP_ROWS, name=name)
    _write_part(write, partitioned_by, _Part(rows, rows[partitioned_by][0]))


def commit_files(
    table: DeltaTable, added: Sequence[AddAction], removed: Sequence[RemoveAction], commit: CommitProperties
) -> None:
    """Add and remove files in one commit; `table` stays as it was opened.

    delta-rs does not notice that a compaction has meanwhile replaced files to be removed. With removed files,
    `commit` must allow no retries (`max_commit_retries=0`), so that any other commit raises
    `CommitFailedError`.
    """
    columns = table.metadata().partition_columns
    table.create_write_transaction(
        [*added, *removed], "append", table.schema(), columns, commit_properties=commit
    )


def replace_rows(
    table: DeltaTable, storage: DeltaStorageHandler, rows: pa.Table, commit: CommitProperties
) -> None:
    """Replace all rows of an unpartitioned table in one commit; `table` stays as it was opened.

    A merge by delta-rs writes files with the type `string_view`, which Arrow does not compare, so other
    engines cannot filter them by text. About `commit` see `commit_files`.
    """
    removed = [removal(file) for file in pa.table(table.get_add_actions()).to_pylist()]
    with NewFiles(storage) as new:
        write_files(table, new, rows)
        new.commit(table, removed, commit)


def removal(file: Mapping[str, Any], partition: Mapping[str, str] | None = None) -> RemoveAction:
    """Return the action that removes a file as listed by delta-rs, of a partition if the table has any."""
    return RemoveAction(
        path=file["path"],
        data_change=True,
        deletion_timestamp=now_ms(),
        size=file["size_bytes"],
        partition_values=dict(partition or {}),
    )


@dataclass(frozen=True)
class _Part:
    """The rows of one new file: the rows of `rows` that belong to `partition`, perhaps all."""

    rows: pa.Table
    partition: pa.Scalar


def _parts(rows: pa.Table, column: str, most: int) -> list[_Part]:
    """Return one part for each partition; for a single partition with many rows up to `most` parts."""
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
    name: str = "",
) -> None:
    path = f"{folder}{_PREFIX}{name}{uuid4()}.zstd.parquet"
    rows = _with_own_texts(rows, row_group_rows)
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


def _with_own_texts(rows: pa.Table, row_group_rows: int) -> pa.Table:
    """Return rows with a dictionary for each row group, since Arrow writes all texts of a dictionary."""
    for place, column in enumerate(rows.columns):
        if pa.types.is_dictionary(column.type):
            starts = range(0, len(column), row_group_rows)
            parts = [without_unused(column.slice(start, row_group_rows).combine_chunks()) for start in starts]
            rows = rows.set_column(place, rows.field(place), pa.chunked_array(parts, column.type))
    return rows


# --- statistics in the log -------------------------------------------------------------------------------


def statistics(rows: pa.Table, columns: Sequence[str]) -> dict[str, Any]:
    """Return the statistics of a file for the log: number of rows, and nulls and bounds of the columns.

    Only an all-null column has no bounds. Bounds of long texts are shortened (`tables.bounds`).
    """
    nulls = {column: rows[column].null_count for column in columns}
    bounds = {
        column: (_least(found["min"].as_py()), _greatest(found["max"].as_py()))
        for column in columns
        if nulls[column] < len(rows) and (found := pc.min_max(_distinct(rows[column])))
    }
    return {
        "numRecords": len(rows),
        "minValues": {column: least for column, (least, _) in bounds.items()},
        "maxValues": {column: greatest for column, (_, greatest) in bounds.items()},
        "nullCount": nulls,
    }


def _distinct(column: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return the texts of a column with dictionaries that occur in it; any other column as it is."""
    kind = column.type
    return pc.unique(column).cast(kind.value_type) if pa.types.is_dictionary(kind) else column


def statistics_text(rows: pa.Table, columns: Sequence[str]) -> str:
    """Return the statistics as the JSON text in the log.

    Not in ASCII: of the JSON escapes for code points above U+FFFF, delta-rs misreads those of even planes.
    """
    return json.dumps(statistics(rows, columns), ensure_ascii=False)


def bounded_columns(table: DeltaTable) -> list[str]:
    """Return the columns with bounds: those in the table property, else all texts, numbers and timestamps."""
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
    return bound.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"  # always whole ms


# --- encodings -------------------------------------------------------------------------------------------


def writer_properties(table: DeltaTable, *, row_group_rows: int | None = None) -> WriterProperties:
    """Return the options with which delta-rs writes files of a table."""
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
    """Return the options of `pyarrow.parquet.write_table` for files of these columns."""
    leaves = [leaf for field in schema for leaf in _leaves(field.name, field.type)]
    return {
        "compression": "zstd",
        "row_group_size": ROW_GROUP_ROWS,
        "use_dictionary": [path for path, kind in leaves if not _is_large(kind)],
        "column_encoding": {path: _DIFFERENCES for path, kind in leaves if _is_large(kind)},
        "store_schema": False,  # other readers need none of Arrow's own types
    }


def _leaves(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """Yield the leaf columns of a field, with their path in Parquet."""
    if pa.types.is_struct(kind):
        for child in kind:
            yield from _leaves(f"{path}.{child.name}", child.type)
    elif pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path, kind


def _is_large(kind: pa.DataType) -> bool:
    return bool(pa.types.is_int64(kind) or pa.types.is_timestamp(kind))
