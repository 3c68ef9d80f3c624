"""Whole Arrow columns of keys and values to one table: every record decoded, or with the reason why not.

Offset commits are read as columns (`columns`), all rows at once. Other records become documents, one at a
time (`documents`); of their keys only the group is a column.
"""

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Final

import numpy as np
import pyarrow as pa

from decoders.buffers import Array, Arrays, BinaryColumn, Ints
from decoders.columns import FieldColumn, Fields, read_message
from decoders.documents import ReadKey, key_reader, record_text, value_text
from decoders.errors import DecodeError, ErrorKind
from decoders.layout import OUTCOME_COLUMNS, Layout, Part, is_any_of, layout_of
from decoders.records import RECORD_TYPES, RecordType, RecordTypes
from decoders.rows import PREFIX_BYTES, reason_of, unknown_type
from decoders.shapes import Shape, shape_of
from decoders.wire import INT16, Fault

# Rows are decoded in blocks: their arrays stay in the processor's cache, and a column of texts, which have at
# most 32767 bytes each and treble at worst when bytes become U+FFFD, stays under Arrow's 2 GiB.
BLOCK_ROWS: Final = 16_384

_LAYOUT: Final = layout_of(RECORD_TYPES)
_READ_KEY: Final = key_reader(RECORD_TYPES)
RECORD_SCHEMA: Final[pa.Schema] = _LAYOUT.schema


def decode_columns(keys: Arrays, values: Arrays, *, record_types: RecordTypes = RECORD_TYPES) -> pa.Table:
    """Decode n keys and their n values (binary arrays, chunked or not) to a table of n rows, in their order.

    Columns, which `RECORD_SCHEMA` lists with their types:

    - `record_type` (null: no readable key prefix), `value_version` (null: a tombstone, or no readable value
      prefix) and `is_tombstone` (the value is null), for every row;
    - `group`, for every row whose key can be read;
    - for offset commits (types 0 and 1): `topic` and `partition`, also beside a value that cannot be read;
      `committed_offset`, `leader_epoch`, `metadata`, `commit_timestamp` (ms since 1970; -1 is a value),
      `expire_timestamp` (ms), `topic_id` (base64url), null where there is none;
    - for other types: `document`, the record as the compact JSON that Kafka's message formatter prints;
    - where the record cannot be decoded: `error_kind` (an `ErrorKind`), `reason` (a sentence), `field` (as
      Kafka names it) and `at_byte` (of the key or the value).

    No bytes make it raise; `ValueError` if there are not as many keys as values.
    """
    if len(keys) != len(values):
        raise ValueError(f"every key needs a value: got {len(keys)} keys and {len(values)} values")
    layout = _LAYOUT if record_types is RECORD_TYPES else layout_of(record_types)
    read_key = _READ_KEY if record_types is RECORD_TYPES else key_reader(record_types)
    key_array, value_array = _unchunked(keys), _unchunked(values)
    blocks = [
        _decode_block(
            BinaryColumn.from_arrow(key_array.slice(start, BLOCK_ROWS)),
            BinaryColumn.from_arrow(value_array.slice(start, BLOCK_ROWS)),
            layout,
            record_types,
            read_key,
        )
        for start in range(0, len(keys), BLOCK_ROWS)
    ]
    return pa.concat_tables(blocks) if blocks else layout.schema.empty_table()


def _unchunked(column: Arrays) -> Array:
    """A column as one array. Several chunks are copied together, with offsets that cannot overflow."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    if len(chunks) == 1:
        return chunks[0]
    return pa.concat_arrays(
        [pa.array([], pa.large_binary()), *(chunk.cast(pa.large_binary()) for chunk in chunks)]
    )


def _decode_block(
    keys: BinaryColumn, values: BinaryColumn, layout: Layout, record_types: RecordTypes, read_key: ReadKey
) -> pa.Table:
    prefix = shape_of(INT16)
    type_ids, versions = _prefixes(keys), _prefixes(values)
    outcomes: dict[int, Outcome] = {}

    key_fields = _blank(layout.key_shapes, len(keys))
    has_key = np.zeros(len(keys), np.bool_)
    for part in layout.keys:
        rows = np.flatnonzero(type_ids.is_there & part.matches(type_ids.values, versions.values))
        readable, faults = _read_part(part, keys, rows, key_fields)
        has_key[readable] = True
        outcomes |= _explained(faults, type_ids, record_types, attrgetter("key_subject"))

    value_fields = _blank(layout.value_shapes, len(keys))
    is_decoded = has_key & values.is_null & is_any_of(type_ids.values, layout.tabular_ids)
    for part in layout.values:
        rows = np.flatnonzero(has_key & versions.is_there & part.matches(type_ids.values, versions.values))
        readable, faults = _read_part(part, values, rows, value_fields)
        is_decoded[readable] = True
        outcomes |= _explained(faults, type_ids, record_types, attrgetter("value_subject"))

    is_decoded[list(outcomes)] = True
    unknown = _of_unknown_types(type_ids, np.flatnonzero(~is_decoded), record_types)
    outcomes |= unknown
    is_decoded[list(unknown)] = True
    alone, with_key = _read_alone(np.flatnonzero(~is_decoded), keys, values, read_key)
    outcomes |= alone
    for part in layout.groups:
        rows = with_key[part.matches(type_ids.values[with_key], versions.values[with_key])]
        _read_part(part, keys, rows, key_fields)
    arrays = [
        prefix.to_arrow(type_ids.values, type_ids.is_there, keys),
        prefix.to_arrow(versions.values, versions.is_there, values),
        pa.array(values.is_null),
        *_to_arrow(layout.key_shapes, key_fields, keys),
        *_to_arrow(layout.value_shapes, value_fields, values),
        *_outcome_columns(outcomes, len(keys)),
    ]
    return pa.Table.from_arrays(arrays, schema=layout.schema)


def _prefixes(column: BinaryColumn) -> FieldColumn:
    """The record type or the version in front of every row."""
    cursor = column.cursor(np.arange(len(column)))
    values = shape_of(INT16).read(cursor)
    return FieldColumn(values, cursor.is_valid & ~column.is_null)


def _blank(shapes: Mapping[str, Shape], count: int) -> Fields:
    return {
        name: FieldColumn(shape.blank(count), np.zeros(count, np.bool_)) for name, shape in shapes.items()
    }


def _read_part(
    part: Part, column: BinaryColumn, rows: Ints, columns: Fields
) -> tuple[Ints, dict[int, Fault]]:
    """Read a message in some rows into their places in the columns.

    Returns the rows that have it, and what is wrong with the others.
    """
    if not len(rows):
        return rows, {}
    cursor = column.cursor(rows, skip=PREFIX_BYTES)
    fields = read_message(part.declaration, cursor)
    kept = np.flatnonzero(cursor.is_valid)
    readable = rows[kept]
    for field, name in part.columns.items():
        columns[name].values[readable] = fields[field].values[kept]
        columns[name].is_there[readable] = fields[field].is_there[kept]
    return readable, {int(rows[row]): fault for row, fault in cursor.faults.items()}


def _to_arrow(shapes: Mapping[str, Shape], fields: Fields, column: BinaryColumn) -> list[Array]:
    return [
        shape.to_arrow(fields[name].values, fields[name].is_there, column) for name, shape in shapes.items()
    ]


# The columns from `document` to `at_byte` of one row.
Outcome = tuple[str | None, str | None, str | None, str | None, int | None]
_OUTCOME_TYPES: Final = [arrow_type for _, arrow_type in OUTCOME_COLUMNS]


def _explained(
    faults: Mapping[int, Fault],
    type_ids: FieldColumn,
    record_types: RecordTypes,
    subject_of: Callable[[RecordType], str],
) -> dict[int, Outcome]:
    """The outcomes of rows whose key or value, the subject, breaks the format."""
    ids = type_ids.values[list(faults)].tolist() if faults else []
    subjects = {type_id: subject_of(record_types[type_id]) for type_id in set(ids)}
    return {
        row: (None, ErrorKind.MALFORMED, reason_of(subjects[type_id], fault), fault.field, fault.at_byte)
        for (row, fault), type_id in zip(faults.items(), ids, strict=True)
    }


def _of_unknown_types(type_ids: FieldColumn, rows: Ints, record_types: RecordTypes) -> dict[int, Outcome]:
    """The outcomes of those of some rows whose record type is not in the table."""
    ids = type_ids.values[rows]
    is_unknown = type_ids.is_there[rows] & ~np.isin(ids, list(record_types))
    highest = max(record_types)
    return {
        row: _failure(unknown_type(type_id, highest))
        for row, type_id in zip(rows[is_unknown].tolist(), ids[is_unknown].tolist(), strict=True)
    }


def _failure(error: DecodeError) -> Outcome:
    """What is wrong with a row: not the error itself, which would keep its frames alive."""
    return None, error.kind, error.reason, error.field, error.at_byte


def _read_alone(
    rows: Ints, keys: BinaryColumn, values: BinaryColumn, read_key: ReadKey
) -> tuple[dict[int, Outcome], Ints]:
    """The outcomes of some rows, read one by one, and those of the rows whose key can be read."""
    outcomes: dict[int, Outcome] = {}
    with_key: list[int] = []
    for row, key, value in zip(rows.tolist(), keys.rows(rows), values.rows(rows), strict=True):
        try:
            record_type, key_document = read_key(key)
            with_key.append(row)
            document = record_text(key_document, value_text(value, record_type))
            outcomes[row] = document, None, None, None, None
        except DecodeError as error:
            outcomes[row] = _failure(error)
    return outcomes, np.array(with_key, np.int64)


def _outcome_columns(outcomes: Mapping[int, Outcome], count: int) -> list[Array]:
    """The columns from `document` to `at_byte`: null but for the rows that have an outcome."""
    if not outcomes:
        return [pa.nulls(count, arrow_type) for arrow_type in _OUTCOME_TYPES]
    places = np.full(count, -1)
    places[list(outcomes)] = np.arange(len(outcomes))
    place_of_each = pa.array(places, mask=places < 0)
    return [
        _spread(pa.array(column, arrow_type), place_of_each)
        for column, arrow_type in zip(zip(*outcomes.values(), strict=True), _OUTCOME_TYPES, strict=True)
    ]


def _spread(values: Array, places: Array) -> Array:
    """One of the values for each place."""
    if values.null_count == len(values):  # often: no errors, or no documents
        return pa.nulls(len(places), values.type)
    return values.take(places)
