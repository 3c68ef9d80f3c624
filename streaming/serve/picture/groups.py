"""Groups: their names, and all that the tables say of each, whatever columns the tables have."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import Index, Mask, no_rows, numbers_or
from streaming.common.pieces import take
from streaming.common.timestamps import to_milliseconds
from streaming.model.schemas import GROUPS
from streaming.serve.picture.assigned import Assigned
from streaming.serve.picture.names import NONE, Names, fixed
from streaming.tables.tail.rows import field_of


def _in_memory(field: pa.Field) -> pa.Field:
    return field.with_type(pa.int64()) if pa.types.is_timestamp(field.type) else field


ROWS: Final = pa.schema([_in_memory(field) for field in GROUPS if field.name != "group"])
"""The columns of groups, but for the name; times are ms since 1970."""


@dataclass(frozen=True, eq=False)
class Groups:
    """n groups in the order of their names.

    `rows` (schema `ROWS`, n rows in this order) has what the tables say of each. `is_described`: they have a
    row of it; one of which they have offsets alone is null there.
    """

    names: Names
    rows: pa.Table
    is_described: Mask

    @classmethod
    def none(cls) -> Self:
        """Return no groups."""
        return cls(Names.none(), no_rows(ROWS), fixed(np.empty(0, np.bool_)))

    def __len__(self) -> int:
        return len(self.names)

    def place(self, group: str) -> int | None:
        """Return the place of a group; None: there is none of this name."""
        return self.names.place(group)

    def row(self, place: int) -> Mapping[str, Any]:
        """Return the columns of the group at a place as plain values; all are None where it has no row."""
        [row] = self.rows.slice(place, 1).to_pylist()
        return dict(row)

    @cached_property
    def member_counts(self) -> Index:
        """How many members each group has (n); 0 where it has no row."""
        return numbers_or(pc.list_value_length(self.rows["members"]), 0)

    @cached_property
    def source_partitions(self) -> Index:
        """The offsets partition of each group (n), -1 where it has no row."""
        return numbers_or(self.rows["source_partition"], NONE)

    @cached_property
    def assigned(self) -> Assigned:
        """The topic partitions that members have, or are to have."""
        return Assigned.of(self.rows["members"])

    def with_names(self, names: Names, moved: Index) -> "Groups":
        """Return the groups under other names; `moved` says where those of before are now (`NONE`: gone)."""
        if names is self.names:
            return self
        source = np.full(len(names), NONE, np.int64)
        source[moved[moved != NONE]] = np.flatnonzero(moved != NONE)
        is_described = np.append(self.is_described, False)[source]
        return Groups(names, take(self.rows, source), fixed(is_described))

    def with_changes(self, changes: "GroupChanges") -> "Groups":
        """Return the groups after changes, of which each is of another group."""
        if not len(changes.groups):
            return self
        source = np.where(self.is_described, np.arange(len(self)), NONE)
        is_described = self.is_described.copy()
        numbers = len(self) + np.arange(len(changes.groups))
        source[changes.groups] = np.where(changes.is_absent, NONE, numbers)
        is_described[changes.groups] = ~changes.is_absent
        return Groups(
            self.names, take(pa.concat_tables([self.rows, changes.rows]), source), fixed(is_described)
        )


@dataclass(frozen=True, eq=False)
class GroupChanges:
    """Changes of n groups: their places, what the tables now say (schema `ROWS`), and whether they are
    gone."""

    groups: Index
    is_absent: Mask
    rows: pa.Table


def as_rows(values: pa.RecordBatch | pa.StructArray, given: Mapping[str, pa.Array]) -> pa.Table:
    """Return n rows (schema `ROWS`) of what a table or a change says of groups; columns that it lacks are
    null, and some may be given."""
    columns = [
        given[field.name] if field.name in given else _column(values, field, GROUPS.field(field.name).type)
        for field in ROWS
    ]
    return pa.table(columns, schema=ROWS)


def _column(values: pa.RecordBatch | pa.StructArray, field: pa.Field, kind: pa.DataType) -> pa.Array:
    held = field_of(values, field.name, kind)
    return to_milliseconds(held) if pa.types.is_timestamp(kind) else held
