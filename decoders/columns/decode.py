"""Decodes whole Arrow columns of keys and values to one table; a record that fails has the reason instead.

Offset commits are read as columns (`messages`), all rows at once. Other records become documents, one at a
time (`rows.documents`); of their keys, only the group is a column.
"""

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Final

import numpy as np
import pyarrow as pa

from decoders.columns.cursor import Array, Arrays, BinaryColumn, Faults, Ints
from decoders.columns.failures import Failures, spread_texts
from decoders.columns.field_kinds import Shape, shape_of
from decoders.columns.messages import FieldColumn, Fields, read_message
from decoders.columns.plan import ColumnPlan, Part, is_any_of, plan_of
from decoders.errors import DecodeError
from decoders.formats.record_type import RecordType, RecordTypes
from decoders.formats.record_types import RECORD_TYPES
from decoders.formats.wire import INT16
from decoders.rows.documents import KeyReader, key_reader
from decoders.rows.reference import PREFIX_BYTES, FaultSearch

# Rows are decoded in blocks whose arrays nearly fit the processor's cache. The texts of a column must stay
# under Arrow's 2 GiB, and they can triple when bytes become U+FFFD. They stay under it if all bytes together
# are few, and in small blocks, since no text has more than 32767 bytes.
BLOCK_ROWS: Final = 32 * 1024
SMALL_BLOCK_ROWS: Final = 16 * 1024
FEW_BYTES: Final = 2**31 // 3

_PLAN: Final = plan_of(RECORD_TYPES)
_READ_KEY: Final = key_reader(RECORD_TYPES)
RECORD_SCHEMA: Final[pa.Schema] = _PLAN.schema


def decode_columns(keys: Arrays, values: Arrays, *, record_types: RecordTypes = RECORD_TYPES) -> pa.Table:
    """Decode n keys and their n values (binary arrays, chunked or not) to a table of n rows, in their order.

    Columns, with the types that `RECORD_SCHEMA` lists:

    - `record_type` (null: no readable key prefix), `value_version` (null: a tombstone, or no readable value
      prefix) and `is_tombstone` (the value is null), for every row;
    - `group`, for every row with a readable key;
    - for offset commits (types 0 and 1): `topic` and `partition`, even if the value is unreadable;
      `committed_offset`, `leader_epoch`, `metadata`, `commit_timestamp` (ms since 1970; -1 is a value),
      `expire_timestamp` (ms), `topic_id` (base64url), null where the record has none;
    - for other types: `document`, the record as the compact JSON that Kafka's message formatter prints;
    - for a record that cannot be decoded: `error_kind` (an `ErrorKind`), `reason` (a sentence), `field`
      (Kafka's name) and `at_byte` (of the key or the value).

    A record with very many fields is examined only up to a point, which the reason then names.

    Malformed bytes never raise. `ValueError` if the numbers of keys and values differ.
    """
    if len(keys) != len(values):
        raise ValueError(f"every key needs a value: got {len(keys)} keys and {len(values)} values")
    plan = _PLAN if record_types is RECORD_TYPES else plan_of(record_types)
    read_key = _READ_KEY if record_types is RECORD_TYPES else key_reader(record_types)
    key_array, value_array = _unchunked(keys), _unchunked(values)
    is_small = key_array.nbytes + value_array.nbytes > FEW_BYTES
    search = FaultSearch()
    block_rows = SMALL_BLOCK_ROWS if is_small else BLOCK_ROWS
    blocks = [
        _decode_block(
            BinaryColumn.from_arrow(key_array.slice(start, block_rows)),
            BinaryColumn.from_arrow(value_array.slice(start, block_rows)),
            plan,
            record_types,
            read_key,
            search,
        )
        for start in range(0, len(keys), block_rows)
    ]
    return pa.concat_tables(blocks) if blocks else plan.schema.empty_table()


def _unchunked(column: Arrays) -> Array:
    """Return a column as one array; several chunks are copied to one with 64-bit offsets, against
    overflow.
    """
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    if len(chunks) == 1:
        return chunks[0]
    return pa.concat_arrays(
        [pa.array([], pa.large_binary()), *(chunk.cast(pa.large_binary()) for chunk in chunks)]
    )


def _decode_block(
    keys: BinaryColumn,
    values: BinaryColumn,
    plan: ColumnPlan,
    record_types: RecordTypes,
    read_key: KeyReader,
    search: FaultSearch,
) -> pa.Table:
    count = len(keys)
    prefix = shape_of(INT16)
    type_ids, versions = _prefixes(keys), _prefixes(values)
    failures = Failures()
    is_open = np.ones(count, np.bool_)  # neither decoded nor failed so far

    key_fields = _blank(plan.key_shapes, count)
    has_key = np.zeros(count, np.bool_)
    for part in plan.keys:
        rows = np.flatnonzero(type_ids.is_there & part.matches(type_ids.values, versions.values))
        readable, faults = _read_part(part, keys, rows, key_fields)
        is_open[rows] = False
        has_key[readable] = True
        _add_malformed(failures, faults, type_ids, record_types, attrgetter("key_subject"))

    value_fields = _blank(plan.value_shapes, count)
    is_open |= has_key & ~values.is_null
    for part in plan.values:
        rows = np.flatnonzero(has_key & versions.is_there & part.matches(type_ids.values, versions.values))
        _, faults = _read_part(part, values, rows, value_fields)
        is_open[rows] = False
        _add_malformed(failures, faults, type_ids, record_types, attrgetter("value_subject"))

    documents = pa.nulls(count, pa.string())
    if is_open.any():
        unknown = _add_unknown_types(failures, np.flatnonzero(is_open), type_ids, record_types)
        is_open[unknown] = False
        rows = np.flatnonzero(is_open)
        texts, without_key = _read_alone(rows, keys, values, read_key, search, failures)
        documents = spread_texts(pa.array(texts, pa.string()), rows, count)
        with_key = np.delete(rows, without_key) if without_key else rows
        for part in plan.groups:
            matching = part.matches(type_ids.values[with_key], versions.values[with_key])
            _read_part(part, keys, with_key[matching], key_fields)
    arrays = [
        prefix.to_arrow(type_ids.values, type_ids.is_there, keys),
        prefix.to_arrow(versions.values, versions.is_there, values),
        pa.array(values.is_null),
        *_to_arrow(plan.key_shapes, key_fields, keys),
        *_to_arrow(plan.value_shapes, value_fields, values),
        documents,
        *failures.to_arrow(count),
    ]
    return pa.Table.from_arrays(arrays, schema=plan.schema)


def _prefixes(column: BinaryColumn) -> FieldColumn:
    """Read the record type or the version at the start of every row."""
    cursor = column.cursor(np.arange(len(column)))
    values = shape_of(INT16).read(cursor)
    return FieldColumn(values, cursor.is_valid & ~column.is_null)


def _blank(shapes: Mapping[str, Shape], count: int) -> Fields:
    return {
        name: FieldColumn(shape.blank(count), np.zeros(count, np.bool_)) for name, shape in shapes.items()
    }


def _read_part(part: Part, column: BinaryColumn, rows: Ints, columns: Fields) -> tuple[Ints, Faults]:
    """Read a message from the given rows into the columns.

    Returns the readable rows, and the faults of the others.
    """
    if not len(rows):
        return rows, Faults()
    cursor = column.cursor(rows, skip=PREFIX_BYTES)
    fields = read_message(part.declaration, cursor)
    kept = np.flatnonzero(cursor.is_valid)
    readable = rows[kept]
    for field, name in part.columns.items():
        columns[name].values[readable] = fields[field].values[kept]
        columns[name].is_there[readable] = fields[field].is_there[kept]
    return readable, cursor.faults.within(rows)


def _to_arrow(shapes: Mapping[str, Shape], fields: Fields, column: BinaryColumn) -> list[Array]:
    return [
        shape.to_arrow(fields[name].values, fields[name].is_there, column) for name, shape in shapes.items()
    ]


def _add_malformed(
    failures: Failures,
    faults: Faults,
    type_ids: FieldColumn,
    record_types: RecordTypes,
    subject_of: Callable[[RecordType], str],
) -> None:
    if faults.rows:
        ids = type_ids.values[faults.rows].tolist()
        subjects = {type_id: subject_of(record_types[type_id]) for type_id in set(ids)}
        failures.add_malformed(faults, [subjects[type_id] for type_id in ids])


def _add_unknown_types(
    failures: Failures, rows: Ints, type_ids: FieldColumn, record_types: RecordTypes
) -> Ints:
    """Add a failure for each row whose record type is not in the table, and return these rows."""
    ids = type_ids.values[rows]
    is_unknown = type_ids.is_there[rows] & ~is_any_of(ids, tuple(record_types))
    if is_unknown.any():
        failures.add_unknown_types(rows[is_unknown], ids[is_unknown], max(record_types))
    return rows[is_unknown]


def _read_alone(
    rows: Ints,
    keys: BinaryColumn,
    values: BinaryColumn,
    read_key: KeyReader,
    search: FaultSearch,
    failures: Failures,
) -> tuple[list[str | None], list[int]]:
    """Read k rows one by one: their documents (None: a failure), and the indexes (0 to k - 1) of those
    without a readable key.
    """
    documents: list[str | None] = []
    without_key = []
    for row, key, value in zip(rows.tolist(), keys.rows(rows), values.rows(rows), strict=True):
        document = None
        try:
            before_value, read_value = read_key[key]
        except DecodeError as error:
            without_key.append(len(documents))
            failures.add(row, error)
        else:
            try:
                document = read_value(before_value, value, search)
            except DecodeError as error:
                failures.add(row, error)
        documents.append(document)
    return documents, without_key
