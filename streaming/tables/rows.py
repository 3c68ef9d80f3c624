"""Converts the job's results (int64 milliseconds) to rows of the tables (UTC timestamps)."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.pieces import PIECE_BYTES
from streaming.common.times import FIRST_MS, LAST_MS, day_of
from streaming.common.timestamps import to_timestamps
from streaming.model.schemas import CHANGES, PROGRESS, QUARANTINE, TIMESTAMP

_OF_GROUPS: Final = ("group_before", "group_after")

SMALL_TABLE_ROWS: Final = 50_000
"""Tables of up to this many rows are combined into one chunk before the conversion."""


def change_rows(changes: pa.Table, *, sequence: int, batch_time: int) -> tuple[pa.Table, int]:
    """Return rows of `changes` (schema `CHANGES`), and the number of clamped timestamps."""
    without_progress = changes.append_column(PROGRESS, pa.nulls(len(changes), PROGRESS.type))
    return _rows(without_progress, CHANGES, sequence=sequence, batch_time=batch_time)


def without_groups(changes: pa.Table) -> pa.Table:
    """Return rows of `changes` (schema `CHANGES`) without the columns of groups that are null in all rows.

    Nearly all batches change only offsets. These columns would take room in their files, and time to write
    and read; in a file without them they are null.
    """
    empty = [name for name in _OF_GROUPS if changes[name].null_count == len(changes)]
    return changes.drop_columns(empty) if empty else changes


def quarantine_rows(failed: pa.Table, *, sequence: int, batch_time: int) -> tuple[pa.Table, int]:
    """Return rows of `quarantine` (schema `QUARANTINE`), and the number of clamped timestamps."""
    return _rows(failed, QUARANTINE, sequence=sequence, batch_time=batch_time)


def _rows(table: pa.Table, schema: pa.Schema, *, sequence: int, batch_time: int) -> tuple[pa.Table, int]:
    """Convert large tables chunk by chunk: unchanged columns are not copied, and only one chunk is in memory
    twice. The chunks of a small table are combined first, since each costs time."""
    is_small = len(table) <= SMALL_TABLE_ROWS and table.nbytes <= PIECE_BYTES
    table = table.combine_chunks() if is_small else table
    constants = {
        "sequence": pa.scalar(sequence, pa.int64()),
        "batch_time": pa.scalar(batch_time, pa.int64()),
        "day": pa.scalar(day_of(batch_time), pa.date32()),
    }
    converted, clamped = [], 0
    for batch in table.to_batches():
        columns = []
        for field in schema:
            constant = constants.get(field.name)
            values = batch[field.name] if constant is None else pa.repeat(constant, len(batch))
            column, count = _to_type(values, field.type)
            columns.append(column)
            clamped += count
        converted.append(pa.record_batch(columns, schema=schema))
    return pa.Table.from_batches(converted, schema), clamped


def _to_type(values: pa.Array, wanted: pa.DataType) -> tuple[pa.Array, int]:
    """Cast to a type in which milliseconds are timestamps; also return the number of clamped timestamps."""
    if values.null_count == len(values):
        return pa.nulls(len(values), wanted), 0
    if pa.types.is_struct(wanted):
        fields = values.flatten()  # with nulls below a null, where Arrow may hold any number
        children = [_to_type(child, field.type) for child, field in zip(fields, wanted, strict=True)]
        struct = pa.StructArray.from_arrays(
            [child for child, _ in children], fields=list(wanted), mask=values.is_null()
        )
        return struct, sum(count for _, count in children)
    if wanted == TIMESTAMP and pa.types.is_int64(values.type):
        return _clamped_timestamps(values)
    return values.cast(wanted), 0


def _clamped_timestamps(milliseconds: pa.Array) -> tuple[pa.Array, int]:
    clamped, count = milliseconds, 0
    bounds = pc.min_max(milliseconds)
    if bounds["min"].is_valid and (bounds["min"].as_py() < FIRST_MS or bounds["max"].as_py() > LAST_MS):
        clamped = pc.max_element_wise(
            pc.min_element_wise(milliseconds, LAST_MS, skip_nulls=False), FIRST_MS, skip_nulls=False
        )
        count = pc.sum(pc.not_equal(milliseconds, clamped)).as_py()
    return to_timestamps(clamped), count
