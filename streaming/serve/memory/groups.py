"""Groups: their names, and all that the tables say of each, whatever columns the tables have."""

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
"""The columns of groups, but for the name; times are ms since 1970."""


DESCRIBED: Final = (
    "type",
    "protocol_type",
    "protocol",
    "state",
    "generation_or_epoch",
    "assignment_epoch",
    "members",
)
"""The columns of `ROWS` that describe a group to those who ask for it."""

_AT_A_TIME: Final = 256  # groups, or members, that become plain values: a millisecond
_BYTES_AT_A_TIME: Final = 256 * 1024  # of these
_NOTHING: Final = fixed(np.empty(0, np.int64))


@dataclass(frozen=True, eq=False)
class Groups:
    """n groups in the order of their names.

    `rows` (schema `ROWS`, n rows in this order) has what the tables say of each. `is_described`: they have a
    row of it; one of which they have offsets alone is null there. `assignments` are the topic partitions that
    members have, or are to have. `sizes` are about how many bytes the columns `DESCRIBED` of each row take.
    """

    names: NameIndex
    rows: pa.Table
    is_described: Mask
    assignments: Assignments
    sizes: Index

    @classmethod
    def none(cls) -> Self:
        """Return no groups."""
        return cls(
            NameIndex.none(), no_rows(ROWS), fixed(np.empty(0, np.bool_)), Assignments.none(), _NOTHING
        )

    def __len__(self) -> int:
        return len(self.names)

    def place(self, group: str) -> int | None:
        """Return the place of a group; None: there is none of this name."""
        return self.names.place(group)

    def described(self, places: Index) -> Iterator[Mapping[str, Any]]:
        """Give what describes each of the groups at n places (the columns `DESCRIBED`), as plain values; all
        are None where it has no row.

        Only a few are made at a time: as long as Arrow makes them no other thread goes on.
        """
        if len(places) == 1 and self.member_counts[places[0]] <= _AT_A_TIME:  # as most ask: much quicker
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
        """How many members each group has (n); 0 where it has no row."""
        return numbers_or(pc.list_value_length(self.rows["members"]), 0)

    @cached_property
    def source_partitions(self) -> Index:
        """The offsets partition of each group (n), -1 where it has no row."""
        return numbers_or(self.rows["source_partition"], NONE)

    def with_names(self, names: NameIndex, moved: Index) -> "Groups":
        """Return the groups under other names; `moved` says where those of before are now (`NONE`: gone)."""
        if names is self.names:
            return self
        source = np.full(len(names), NONE, np.int64)
        source[moved[moved != NONE]] = np.flatnonzero(moved != NONE)
        is_described = np.append(self.is_described, False)[source]
        assignments = self.assignments.with_moved(moved)
        sizes = fixed(np.append(self.sizes, 0)[source])
        return Groups(names, take(self.rows, source), fixed(is_described), assignments, sizes)

    def with_changes(self, changes: "GroupChanges") -> "Groups":
        """Return the groups after changes, of which each is of another group."""
        if not len(changes.groups):
            return self
        source = np.where(self.is_described, np.arange(len(self)), NONE)
        is_described = self.is_described.copy()
        numbers = len(self) + np.arange(len(changes.groups))
        source[changes.groups] = np.where(changes.is_absent, NONE, numbers)
        is_described[changes.groups] = ~changes.is_absent
        rows = take(pa.concat_tables([self.rows, changes.rows]), source)
        newer = Assignments.of(changes.rows["members"], changes.groups)  # of absent ones there are none
        assignments = self.assignments.with_changes(changes.groups, newer)
        sizes = np.concatenate([self.sizes, row_bytes(changes.rows.select(DESCRIBED)), [0]])[source]
        return Groups(self.names, rows, fixed(is_described), assignments, fixed(sizes))


@dataclass(frozen=True, eq=False)
class GroupChanges:
    """Changes of n groups: their places, what the tables now say (schema `ROWS`), and whether they are
    gone."""

    groups: Index
    is_absent: Mask
    rows: pa.Table


def _with_many_members(rows: pa.Table) -> Iterator[Mapping[str, Any]]:
    """Give rows as plain values, the members a few at a time."""
    counts = numbers_or(pc.list_value_length(rows["members"]), NONE).tolist()
    members = _plain(pc.list_flatten(rows["members"]))
    for row, count in zip(rows.drop_columns(["members"]).to_pylist(), counts, strict=True):
        yield {**row, "members": None if count == NONE else list(islice(members, count))}


def _plain(column: pa.ChunkedArray) -> Iterator[Any]:
    for start in range(0, len(column), _AT_A_TIME):
        yield from column.slice(start, _AT_A_TIME).to_pylist()


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
