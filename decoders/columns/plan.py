"""The columns of the decoded table and the messages that fill them, derived from a record table."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
from construct import Renamed, Struct
from numpy.typing import NDArray

from decoders.columns.cursor import Bools
from decoders.columns.failures import OUTCOME_COLUMNS
from decoders.columns.field_kinds import Shape
from decoders.columns.messages import shapes_of
from decoders.formats.record_type import RecordTypes

_K = TypeVar("_K")
_V = TypeVar("_V")

# Column names are Kafka's field names in snake_case. A bare `offset` would look like the record's own offset.
_RENAMED: Final = {"offset": "committed_offset"}

_RECORD_COLUMNS: Final[list[tuple[str, pa.DataType]]] = [
    ("record_type", pa.int16()),
    ("value_version", pa.int16()),
    ("is_tombstone", pa.bool_()),
]


_FEW: Final = 4  # up to so many numbers, comparing is faster than a table


def is_any_of(numbers: NDArray[np.int16], wanted: tuple[int, ...]) -> Bools:
    if len(wanted) > _FEW:
        return _is_wanted(wanted)[numbers.view(np.uint16)]
    is_any = np.zeros(len(numbers), np.bool_)
    for number in wanted:
        is_any |= numbers == number
    return is_any


@cache
def _is_wanted(wanted: tuple[int, ...]) -> Bools:
    """A table of 2^16: whether each 16-bit number is wanted."""
    is_wanted = np.zeros(1 << 16, np.bool_)
    is_wanted[list(wanted)] = True
    return is_wanted


@dataclass(frozen=True)
class Part:
    """A message that is read as columns, with the record types and version that hold it."""

    declaration: Struct
    type_ids: list[int]
    version: int | None  # of a value; None for a key
    columns: Mapping[str, str]  # field name to column name

    def matches(self, type_ids: NDArray[np.int16], versions: NDArray[np.int16]) -> Bools:
        is_type = is_any_of(type_ids, tuple(self.type_ids))
        return is_type if self.version is None else is_type & (versions == self.version)

    @property
    def shapes(self) -> dict[str, Shape]:
        shapes = shapes_of(self.declaration)
        return {column: shapes[field] for field, column in self.columns.items()}


@dataclass(frozen=True)
class ColumnPlan:
    """The columns of the decoded table, by shape: those that keys fill, and those that values fill.

    `keys` and `values` belong to tabular types. `groups` are the first fields of the keys of other types.
    """

    keys: list[Part]
    groups: list[Part]
    values: list[Part]
    key_shapes: Mapping[str, Shape]
    value_shapes: Mapping[str, Shape]

    @property
    def schema(self) -> pa.Schema:
        shapes = {**self.key_shapes, **self.value_shapes}
        fields: list[tuple[str, pa.DataType]] = [(name, shape.arrow_type) for name, shape in shapes.items()]
        return pa.schema([*_RECORD_COLUMNS, *fields, *OUTCOME_COLUMNS])


def plan_of(record_types: RecordTypes) -> ColumnPlan:
    """Derive the plan from a record table; `TypeError` if a field of a tabular type cannot be a column."""
    keys = [
        Part(key, type_ids, None, _key_columns(key))
        for key, type_ids in _grouped(
            (kind.key, type_id) for type_id, kind in record_types.items() if kind.tabular
        ).items()
    ]
    groups = [
        Part(Struct("group" / content), type_ids, None, {"group": "group"})
        for content, type_ids in _grouped(
            (_group_of(kind.key).subcon, type_id)
            for type_id, kind in record_types.items()
            if not kind.tabular
        ).items()
    ]
    values = [
        Part(value, type_ids, version, _columns(value))
        for (value, version), type_ids in _grouped(
            ((value, version), type_id)
            for type_id, kind in record_types.items()
            if kind.tabular
            for version, value in kind.values.items()
        ).items()
    ]
    return ColumnPlan(
        keys=keys,
        groups=groups,
        values=values,
        key_shapes=_shapes([*groups, *keys]),
        value_shapes=_in_order_of_bytes(values, _shapes(values)),
    )


def _grouped(pairs: Iterable[tuple[_K, _V]]) -> dict[_K, list[_V]]:
    groups: dict[_K, list[_V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def _columns(declaration: Struct) -> dict[str, str]:
    return {field: column_name(field) for field in shapes_of(declaration)}


def column_name(field_name: str) -> str:
    """The column of a field: `commit_timestamp` for `commitTimestamp`."""
    return _RENAMED.get(field_name, re.sub(r"(?=[A-Z])", "_", field_name).lower())


def _group_of(key: Struct) -> Renamed:
    """The first field of the key: always the group, under several names."""
    return key.subcons[0]


def _key_columns(key: Struct) -> dict[str, str]:
    return _columns(key) | {_group_of(key).name: "group"}


def _shapes(parts: list[Part]) -> dict[str, Shape]:
    return {column: shape for part in parts for column, shape in part.shapes.items()}


def _in_order_of_bytes(values: list[Part], shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """Put a field that a later version adds after its predecessor there; tagged fields go last."""
    order: list[str] = []
    for part in values:
        place = 0
        for field in part.declaration.subcons:
            column = part.columns[field.name]
            if column not in order:
                order.insert(place, column)
            place = order.index(column) + 1
    return {column: shapes[column] for column in dict.fromkeys([*order, *shapes])}
