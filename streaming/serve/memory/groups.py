"""Groups: their names, and all columns of the table `groups`; columns that a table lacks are null."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import Index, Mask, no_rows, numbers_or
from streaming.common.pieces import ranges, row_bytes, take
from streaming.common.timestamps import to_milliseconds
from streaming.model.schemas import GROUPS
from streaming.serve.memory.assigned import Assignments
from streaming.serve.memory.names import NONE, NameIndex, fixed
from streaming.tables.tail.rows import field_of


def _in_memory(field: pa.Field) -> pa.Field:
    return field.with_type(pa.int64()) if pa.types.is_timestamp(field.type) else field


ROWS: Final = pa.schema([_in_memory(field) for field in GROUPS if field.name != "group"])
"""The columns of groups except the name; times are ms since 1970."""


DESCRIBED: Final = (
    "type",
    "protocol_type",
    "protocol",
    "state",
    "generation_or_epoch",
    "assignment_epoch",
    "members",
)
"""The columns of `ROWS` that a description of a group needs."""

_AT_A_TIME: Final = 256  # groups or members to convert at a time: takes a millisecond
_BYTES_AT_A_TIME: Final = 256 * 1024  # of these
_NOTHING: Final = fixed(np.empty(0, np.int64))


@dataclass(frozen=True, eq=False)
class Groups:
    """n groups, ordered by name.

    `rows` (schema `ROWS`, n rows) are the rows of the table `groups`. `is_described`: the table has a row of
    the group; without one, if only offsets are known, the row here is null. `assignments` are the topic
    partitions of the members. `sizes` are the approximate bytes of the columns `DESCRIBED` of each row.
    """

    names: NameIndex
    rows: pa.Table
    is_described: Mask
    assignments: Assignments
    sizes: Index

    @classmethod
    def none(cls) -> Self:
        return cls(
            NameIndex.none(), no_rows(ROWS), fixed(np.empty(0, np.bool_)), Assignments.none(), _NOTHING
        )

    def __len__(self) -> int:
        return len(self.names)

    def place(self, group: str) -> int | None:
        """Return the place of a group; None: no such group."""
        return self.names.place(group)

    def described(self, places: Index) -> Iterator[Mapping[str, Any]]:
        """Yield the columns `DESCRIBED` of the groups at n places as plain values, all None where the group
        has no row.

        Converts a few rows at a time, because Arrow holds the GIL while it converts.
        """
        if len(places) == 1 and self.member_counts[places[0]] <= _AT_A_TIME:  # the common case, much faster
            place = int(places[0])
            yield {name: column[place].as_py() for name, column in self._described}
            return
        for start, stop in ranges(self.sizes[places], _BYTES_AT_A_TIME, _AT_A_TIME):
            chosen = places[start:stop]
            rows = take(self.rows.select(DESCRIBED), chosen)
            if self.member_counts[chosen].sum() <= _AT_A_TIME:
                yield from rows.to_pylist()
            else:
                yield from _with_many_members(rows)

    @cached_property
    def _described(self) -> list[tuple[str, pa.ChunkedArray]]:
        return [(name, self.rows[name]) for name in DESCRIBED]

    @cached_property
    def member_counts(self) -> Index:
        """The number of members of each group (n); 0 where it has no row."""
        return numbers_or(pc.list_value_length(self.rows["members"]), 0)

    @cached_property
    def source_partitions(self) -> Index:
        """The offsets partition of each group (n); -1 where it has no row."""
        return numbers_or(self.rows["source_partition"], NONE)

    def with_names(self, names: NameIndex, moved: Index) -> "Groups":
        """Return the groups under other names; `moved` maps old places to new ones (`NONE`: gone)."""
        if names is self.names:
            return self
        source = np.full(len(names), NONE, np.int64)
        source[moved[moved != NONE]] = np.flatnonzero(moved != NONE)
        is_described = np.append(self.is_described, False)[source]
        assignments = self.assignments.with_moved(moved)
        sizes = fixed(np.append(self.sizes, 0)[source])
        return Groups(names, take(self.rows, source), fixed(is_described), assignments, sizes)

    def with_changes(self, changes: "GroupChanges") -> "Groups":
        """Return the groups after changes of distinct groups."""
        if not len(changes.groups):
            return self
        source = np.where(self.is_described, np.arange(len(self)), NONE)
        is_described = self.is_described.copy()
        numbers = len(self) + np.arange(len(changes.groups))
        source[changes.groups] = np.where(changes.is_absent, NONE, numbers)
        is_described[changes.groups] = ~changes.is_absent
        rows = take(pa.concat_tables([self.rows, changes.rows]), source)
        newer = Assignments.of(changes.rows["members"], changes.groups)  # removed groups have none
        assignments = self.assignments.with_changes(changes.groups, newer)
        sizes = np.concatenate([self.sizes, row_bytes(changes.rows.select(DESCRIBED)), [0]])[source]
        return Groups(self.names, rows, fixed(is_described), assignments, fixed(sizes))


@dataclass(frozen=True, eq=False)
class GroupChanges:
    """Changes of n distinct groups: their places, whether they are gone, and their new rows (schema
    `ROWS`)."""

    groups: Index
    is_absent: Mask
    rows: pa.Table


def _with_many_members(rows: pa.Table) -> Iterator[Mapping[str, Any]]:
    """Yield rows as plain values, converting a few members at a time."""
    counts = numbers_or(pc.list_value_length(rows["members"]), NONE).tolist()
    members = _plain(pc.list_flatten(rows["members"]))
    for row, count in zip(rows.drop_columns(["members"]).to_pylist(), counts, strict=True):
        yield {**row, "members": None if count == NONE else list(islice(members, count))}


def _plain(column: pa.ChunkedArray) -> Iterator[Any]:
    for start in range(0, len(column), _AT_A_TIME):
        yield from column.slice(start, _AT_A_TIME).to_pylist()


def as_rows(values: pa.RecordBatch | pa.StructArray, given: Mapping[str, pa.Array]) -> pa.Table:
    """Return n rows (schema `ROWS`) of a table or of changes; the columns in `given` replace those of
    `values`, missing ones are null."""
    columns = [
        given[field.name] if field.name in given else _column(values, field, GROUPS.field(field.name).type)
        for field in ROWS
    ]
    return pa.table(columns, schema=ROWS)


def _column(values: pa.RecordBatch | pa.StructArray, field: pa.Field, kind: pa.DataType) -> pa.Array:
    held = field_of(values, field.name, kind)
    return to_milliseconds(held) if pa.types.is_timestamp(kind) else held
