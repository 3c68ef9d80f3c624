"""What the decoders' tests share: strategies derived from the declarations, and the table row of an outcome.

A strategy makes values that `construct` can build; a tagged field that holds its default is left out or
written.
"""

import json
from functools import singledispatch
from typing import Any

import pyarrow as pa
from construct import Construct, Default, Renamed, Struct
from hypothesis import strategies as st

from decoders import RECORD_TYPES, DecodeError, decode_columns, decode_document
from decoders.columns.plan import column_name, plan_of
from decoders.formats.java_values import decode_uuid
from decoders.formats.wire import (
    INT16,
    Blob,
    Boolean,
    FlexibleStruct,
    Integer,
    NullableStruct,
    Sequence,
    Text,
    Uuid,
)

Outcome = dict[str, Any] | DecodeError

# Sizes around which a varint, or the length of a compact text (size + 1), grows by a byte.
BORDER_SIZES = [126, 127, 128, 16_382, 16_383, 16_384]

# --- values of a declaration -----------------------------------------------------------------------------


@singledispatch
def values_of(declaration: Construct) -> st.SearchStrategy[Any]:
    """Values that the declaration can build."""
    raise TypeError(f"no strategy for {declaration!r}")


@values_of.register
def _(declaration: Renamed) -> st.SearchStrategy[Any]:
    return values_of(declaration.subcon)


@values_of.register
def _(declaration: Default) -> st.SearchStrategy[Any]:
    return st.just(declaration.value) | values_of(declaration.subcon)


@values_of.register
def _(declaration: Integer) -> st.SearchStrategy[Any]:
    bits = 8 * declaration.length
    lowest = -(2 ** (bits - 1)) if declaration.fmtstr[-1].islower() else 0
    return st.integers(lowest, lowest + 2**bits - 1)


@values_of.register
def _(declaration: Boolean) -> st.SearchStrategy[Any]:
    return st.booleans()


@values_of.register
def _(declaration: Uuid) -> st.SearchStrategy[Any]:
    return st.binary(min_size=16, max_size=16).map(decode_uuid)


@values_of.register
def _(declaration: Text) -> st.SearchStrategy[Any]:
    texts = st.text(max_size=8) | st.sampled_from(BORDER_SIZES).map("x".__mul__)
    return st.none() | texts if declaration.nullable else texts


@values_of.register
def _(declaration: Blob) -> st.SearchStrategy[Any]:
    blobs = st.binary(max_size=8) | st.sampled_from(BORDER_SIZES).map(bytes)
    return st.none() | blobs if declaration.nullable else blobs


@values_of.register
def _(declaration: Sequence) -> st.SearchStrategy[Any]:
    lists = st.lists(values_of(declaration.element), max_size=3)
    return st.none() | lists if declaration.nullable else lists


@values_of.register
def _(declaration: Struct) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({field.name: values_of(field) for field in declaration.subcons})


@values_of.register
def _(declaration: FlexibleStruct) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {field.name: values_of(field) for field in declaration.subcons},
        optional={field.name: values_of(field) for field in declaration.tags.values()},
    )


@values_of.register
def _(declaration: NullableStruct) -> st.SearchStrategy[Any]:
    return st.none() | values_of(declaration.subcon)


# --- whole records ---------------------------------------------------------------------------------------

Record = tuple[bytes | None, bytes | None]


def messages_of(declaration: Struct, prefix: int) -> st.SearchStrategy[bytes]:
    """A key or a value: its prefix and the bytes of a message."""
    return values_of(declaration).map(lambda value: INT16.build(prefix) + declaration.build(value))


@st.composite
def records(draw: st.DrawFn, type_ids: tuple[int, ...] = tuple(RECORD_TYPES)) -> Record:
    """Key and value of a valid record, or of a tombstone."""
    type_id = draw(st.sampled_from(type_ids))
    kind = RECORD_TYPES[type_id]
    key = draw(messages_of(kind.key, type_id))
    version = draw(st.sampled_from([None, *kind.values]))
    return key, None if version is None else draw(messages_of(kind.values[version], version))


@st.composite
def damaged_records(draw: st.DrawFn) -> Record:
    """A record cut short, or with some bytes replaced, or with bytes of its own accord."""
    return draw(_damaged(draw(records())[0])), draw(_damaged(draw(records())[1]))


def _damaged(data: bytes | None) -> st.SearchStrategy[bytes | None]:
    if not data:
        return st.just(data)
    cut = st.integers(0, len(data)).map(lambda size: data[:size])
    places = st.tuples(st.integers(0, min(len(data), 60) - 1), st.integers(0, 255))
    replaced = st.lists(places, max_size=3).map(lambda changes: _replaced(data, changes))
    return st.one_of(st.just(data), cut, replaced, replaced.map(lambda new: new + b"\1\2"))


def _replaced(data: bytes, changes: list[tuple[int, int]]) -> bytes:
    changed = bytearray(data)
    for place, byte in changes:
        changed[place] = byte
    return bytes(changed)


def arbitrary_records() -> st.SearchStrategy[Record]:
    """Any bytes at all, often behind the prefixes of a type and a version that exist."""
    prefixes = st.sampled_from([b"", *(INT16.build(type_id) for type_id in RECORD_TYPES)])
    versions = st.sampled_from([b"", *(INT16.build(version) for version in range(5))])
    rest = st.binary(max_size=40)
    keys = st.builds(bytes.__add__, prefixes, rest)
    values = st.builds(bytes.__add__, versions, rest)
    return st.tuples(st.none() | keys, st.none() | values)


# --- outcomes --------------------------------------------------------------------------------------------


def outcome_of(key: bytes | None, value: bytes | None, **options: Any) -> Outcome:
    """What the row reader makes of a record."""
    try:
        return decode_document(key, value, **options)
    except DecodeError as error:
        return error


def table_row(
    key: bytes | None, value: bytes | None, outcome: Outcome, record_types: Any = RECORD_TYPES
) -> dict[str, Any]:
    """The row of the decoded table that a record and its outcome should have."""
    row: dict[str, Any] = dict.fromkeys(plan_of(record_types).schema.names)
    row |= {"record_type": _prefix(key), "value_version": _prefix(value), "is_tombstone": value is None}
    key_outcome = outcome_of(key, None, record_types=record_types)
    if not isinstance(key_outcome, DecodeError):
        row |= _key_columns(key_outcome["key"]["data"], record_types[row["record_type"]].tabular)
    if isinstance(outcome, DecodeError):
        error = {"error_kind": outcome.kind, "reason": outcome.reason}
        return row | error | {"field": outcome.field, "at_byte": outcome.at_byte}
    if not record_types[row["record_type"]].tabular:
        return row | {"document": json.dumps(outcome, ensure_ascii=False, separators=(",", ":"))}
    return row | (
        _value_columns(outcome["value"], record_types[row["record_type"]]) if outcome["value"] else {}
    )


def _prefix(data: bytes | None) -> int | None:
    return int.from_bytes(data[:2], signed=True) if data is not None and len(data) >= 2 else None


def _key_columns(data: dict[str, Any], tabular: bool) -> dict[str, Any]:
    (_, group), *others = data.items()
    return {"group": group} | ({column_name(field): value for field, value in others} if tabular else {})


def _value_columns(value: dict[str, Any], kind: Any) -> dict[str, Any]:
    """The fields as columns; null where a field holds the default of its declaration."""
    declaration = kind.values[value["version"]]
    defaults = {field.name: getattr(field.subcon, "value", None) for field in declaration.subcons}
    return {
        column_name(field): None if content == defaults.get(field) else content
        for field, content in value["data"].items()
    }


def column_rows(records: list[Record], **options: Any) -> list[dict[str, Any]]:
    """What the column reader makes of some records."""
    keys = pa.array([key for key, _ in records], pa.binary())
    values = pa.array([value for _, value in records], pa.binary())
    table = decode_columns(keys, values, **options)
    table.validate(full=True)
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def with_plain_escapes(row: dict[str, Any]) -> dict[str, Any]:
    """The row, its document as Python writes JSON: Kafka's has other digits in escapes."""
    if row["document"] is None:
        return row
    text = json.dumps(json.loads(row["document"]), ensure_ascii=False, separators=(",", ":"))
    return row | {"document": text}
