"""How the columns of the tables are put into Parquet files: small, and with little work."""

from typing import Final

import pyarrow as pa
from deltalake import ColumnProperties, DeltaTable, WriterProperties

_REPEATED: Final = ColumnProperties(dictionary_enabled=True)
_NUMBERS: Final = ColumnProperties(dictionary_enabled=False, encoding="DELTA_BINARY_PACKED")
_OTHERS: Final = ColumnProperties(dictionary_enabled=False)


def writer_properties(table: DeltaTable, *, row_group_rows: int | None = None) -> WriterProperties:
    """Return how files of a table are written.

    Names and small numbers repeat and have dictionaries. Offsets and moments hardly do: a dictionary of them
    would be as large as they are, and made in vain. They are written as differences, which every reader of
    Parquet has known for years (Spark from 3.3). The fields of structs, of which delta-rs can tell no two
    apart, are left to the compression.
    """
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


def _is_large(kind: pa.DataType) -> bool:
    return bool(pa.types.is_int64(kind) or pa.types.is_timestamp(kind))
