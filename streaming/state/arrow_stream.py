"""Tables in transfer between processes, without empty columns and fields.

The values of a change are wide structs. An offset fills one half of the fields and a group the other;
`before` is often absent. In Arrow a null takes as much memory as a value, for the reader as well as for the
writer.
"""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_IS_THERE: Final = "."
"""Suffix of the column that has the validity of a struct; before it is the struct's own name."""


def narrow(table: pa.Table) -> pa.Table:
    """Return the columns that are not null in every row; structs are split into their fields."""
    columns = {name: column for name, column in _leaves(table) if column.null_count < len(column)}
    return pa.table(columns)


def widen(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table of schema `schema` that `narrow` was given; not all of its values may be null."""
    batches = [
        pa.record_batch([_column(batch, field) for field in schema], schema=schema)
        for batch in table.to_batches()
    ]
    return pa.Table.from_batches(batches, schema)


def _leaves(table: pa.Table) -> Iterator[tuple[str, pa.ChunkedArray]]:
    for field, column in zip(table.schema, table.columns, strict=True):
        if not pa.types.is_struct(field.type):
            yield field.name, column
            continue
        is_there = column.is_valid()
        yield field.name + _IS_THERE, pc.if_else(is_there, True, pa.scalar(None, pa.bool_()))
        if column.null_count < len(column):
            for child, values in zip(field.type, column.flatten(), strict=True):
                yield f"{field.name}{_IS_THERE}{child.name}", values


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    if not pa.types.is_struct(field.type):
        return _held(batch, field.name, field.type)
    is_there = _held(batch, field.name + _IS_THERE, pa.bool_())
    if is_there.null_count == len(batch):
        return pa.nulls(len(batch), field.type)
    children = [_held(batch, f"{field.name}{_IS_THERE}{child.name}", child.type) for child in field.type]
    return pa.StructArray.from_arrays(children, fields=list(field.type), mask=is_there.is_null())


def _held(batch: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
    number = batch.schema.get_field_index(name)
    return batch.column(number) if number >= 0 else pa.nulls(len(batch), kind)
