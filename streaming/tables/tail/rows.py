"""Reads the rows of single files of a table, one row group at a time.

For tables that must not be in memory twice: names are dictionaries, and only a part of one file is held. The
caller fills columns that a file lacks (`field_of`).
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import PyFileSystem

from streaming.tables.select import FilesGoneError

SEQUENCE: Final = "sequence"

_BATCH_ROWS: Final = 32 * 1024  # with 32 KB of metadata each below 2 GiB, the limit of a text array


class TableFile(NamedTuple):
    """A file of a table; `last_sequence` None: not in the log, or the rows have no sequence."""

    path: str
    last_sequence: int | None


def files_of(table: DeltaTable) -> list[TableFile]:
    """Return the files of the opened version of a table."""
    # `pa.table` would check for pandas objects, and import pandas
    actions = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()
    paths = actions["path"].to_pylist()
    last = f"max.{SEQUENCE}"
    sequences = actions[last].to_pylist() if last in actions.column_names else [None] * len(paths)
    return [TableFile(path, sequence) for path, sequence in zip(paths, sequences, strict=True)]


def rows_of(
    storage: DeltaStorageHandler,
    path: str,
    columns: Collection[str],
    *,
    dictionaries: Sequence[str] = (),
    after: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read the columns of one file that exist in it; the text columns in `dictionaries` as dictionaries.

    `after` (a sequence) skips row groups without later rows; the caller removes earlier rows of the others.
    Raises `FilesGoneError` if the file no longer exists.
    """
    try:
        with PyFileSystem(storage).open_input_file(path) as source:
            file = pq.ParquetFile(source, read_dictionary=list(dictionaries))
            held = [name for name in file.schema_arrow.names if name in columns]
            for number in _parts_after(file.metadata, after):
                rows = file.iter_batches(_BATCH_ROWS, row_groups=[number], columns=held, use_threads=False)
                yield from map(_with_texts, rows)
    except FileNotFoundError as error:
        raise FilesGoneError(f"reading a table: expected the file {path}, found none.") from error


def field_of(rows: pa.RecordBatch | pa.StructArray, name: str, kind: pa.DataType) -> pa.Array:
    """Return a column of n rows, or a field of n structs, cast to a type; nulls if there is none of this
    name.

    A dictionary stays one if a text is asked for.
    """
    is_struct = isinstance(rows, pa.StructArray)
    fields = rows.type if is_struct else rows.schema
    place = fields.get_field_index(name)
    if place < 0:
        return pa.nulls(len(rows), kind)
    values = pc.struct_field(rows, [place]) if is_struct else rows.column(place)
    if pa.types.is_dictionary(values.type) and pa.types.is_string(kind):
        return values
    return values if values.type == kind else values.cast(kind)


def _with_texts(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with plain texts and bytes in place of delta-rs's views, on which Arrow's take fails."""
    kinds = [_with_text(kind) for kind in rows.schema.types]
    if kinds == rows.schema.types:
        return rows
    columns = [column.cast(kind) for column, kind in zip(rows.columns, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(columns, rows.schema.names)


def _with_text(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_with_text(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_text(kind.value_type)))
    return kind


def _parts_after(about: Any, after: int | None) -> Iterator[int]:
    """Yield the numbers of the row groups that may have rows of a later sequence."""
    names = [about.schema.column(place).path for place in range(about.num_columns)]
    place = names.index(SEQUENCE) if after is not None and SEQUENCE in names else None
    for number in range(about.num_row_groups):
        known = None if place is None else about.row_group(number).column(place).statistics
        if known is None or after is None or not known.has_min_max or known.max > after:
            yield number
