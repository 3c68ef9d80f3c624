"""How the columns of the tables are put into Parquet files: small, and with little work.

Names and small numbers repeat and have dictionaries. Offsets and moments hardly do: a dictionary of them
would be as large as they are, and made in vain. They are written as differences, which every reader of
Parquet has known for years (Spark from 3.3). delta-rs, which rewrites files, can tell no two fields of
structs apart: it leaves them to the compression.
"""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from deltalake import ColumnProperties, DeltaTable, WriterProperties

ROW_GROUP_ROWS: Final = 128 * 1024
"""Rows of a row group: readers skip what lies below a fold's mark by row group."""

_DIFFERENCES: Final = "DELTA_BINARY_PACKED"
_REPEATED: Final = ColumnProperties(dictionary_enabled=True)
_NUMBERS: Final = ColumnProperties(dictionary_enabled=False, encoding=_DIFFERENCES)
_OTHERS: Final = ColumnProperties(dictionary_enabled=False)


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
