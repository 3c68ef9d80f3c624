"""A table in two layers: a base that is written rarely, and the changes since it was written.

The state of an offsets partition may have many thousands of rows, of which a batch changes a few. In two
layers, each batch writes only the few; the whole table is written once that costs no more than was saved.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from streaming.common.arrays import Index, from_mask
from streaming.common.pieces import take
from streaming.state.encoded import MANY_ROWS, encoded, is_in, joined, plain, plain_type, with_dictionary
from streaming.state.ordered import ORDER, in_order, is_ordered


@dataclass(frozen=True)
class LayerChange:
    """The effect of records on a table: the numbers of the stale rows, and the added rows."""

    stale: Index
    added: pa.Table

    def encoded(self) -> "LayerChange":
        """Return the change in less memory: many added rows have dictionaries."""
        if len(self.added) < MANY_ROWS:
            return self
        columns = [*map(with_dictionary, self.added.columns)]
        return LayerChange(self.stale, pa.table(columns, self.added.column_names))


@dataclass(frozen=True)
class Layers:
    """The rows of `base` except those in `replaced` (their numbers, ascending), and the `recent` rows.

    The columns of `base` may be encoded (`streaming.state.encoded`), and those of `recent` may have
    dictionaries. `base` and `recent` have no more chunks per column than their bytes need.
    """

    base: pa.Table
    recent: pa.Table
    replaced: Index = field(default_factory=lambda: np.empty(0, np.int64))

    @classmethod
    def of(cls, table: pa.Table) -> "Layers":
        """Return a base without changes."""
        return cls(table.combine_chunks(), table.schema.empty_table())

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of the rows with plain columns."""
        return pa.schema([field.with_type(plain_type(field.type)) for field in self.recent.schema])

    @cached_property
    def table(self) -> pa.Table:
        """The current rows: the remaining ones of the base, in its order, then the recent ones.

        Columns are joined one by one, so that only one of them is in memory a third time.
        """
        if not len(self.recent) and not len(self.replaced):
            return self._plain(self.base).combine_chunks()
        if len(self.replaced) == len(self.base):
            return self._plain(self.recent).combine_chunks()
        kept = self._kept
        return pa.table([self._joined(name, kept) for name in self.schema.names], schema=self.schema)

    def _joined(self, name: str, kept: Index) -> pa.ChunkedArray:
        parts = take(self.base.select([name]), kept), self.recent.select([name])
        return pa.concat_tables(map(self._plain, parts)).combine_chunks()[name]

    def rewritten(self) -> "Layers":
        """Return the current rows as a base with encoded columns, ordered if it can be (`ordered`).

        Columns are rewritten one by one, so that only one of them is in memory a third time.
        """
        rows = self._current if len(self.replaced) else None
        columns = {name: self._encoded(name, rows) for name in ORDER if name in self.schema.names}
        if is_ordered(keys := pa.table(columns)):
            order = in_order(keys)
            rows, keys = order if rows is None else rows[order], take(keys, order).combine_chunks()
            columns = dict(zip(keys.column_names, keys.columns, strict=True))
        others = {name: self._encoded(name, rows) for name in self.schema.names if name not in columns}
        base = pa.table(columns | others).select(self.schema.names)
        return Layers(base, self.schema.empty_table())

    def _encoded(self, name: str, rows: Index | None) -> pa.ChunkedArray:
        """Return rows (None: all) of one column of `base` followed by `recent`."""
        whole = joined([self.base[name], self.recent[name]], self.schema.field(name).type)
        return encoded(whole if rows is None else take(pa.table({name: whole}), rows)[name])

    def __len__(self) -> int:
        return self._kept_count + len(self.recent)

    def base_rows(self, name: str, values: pa.Array) -> Index:
        """Return the numbers in `base` of its current rows with one of the values in a column."""
        is_found = is_in(self.base[name], values)
        is_found[self.replaced] = False
        return np.flatnonzero(is_found)

    def recent_rows(self, name: str, values: pa.Array) -> Index:
        """Return the numbers in `recent` of the rows with one of the values in a column."""
        return np.flatnonzero(is_in(self.recent[name], values))

    def rows(self, of_base: Index, of_recent: Index) -> tuple[pa.Table, Index]:
        """Return current rows by their numbers in `base` and in `recent`, and their numbers in `table` (not
        built)."""
        parts = take(self.base, of_base), take(self.recent, of_recent)
        found = pa.concat_tables(map(self._plain, parts))
        of_base = of_base - np.searchsorted(self.replaced, of_base)
        of_recent = of_recent + self._kept_count
        return found.combine_chunks(), np.concatenate([of_base, of_recent])

    def after(self, changes: Sequence[LayerChange]) -> "Layers":
        """Return the layers after changes of different rows; the same object without changes.

        The base stays the same; the added rows are the last ones.
        """
        if not changes:
            return self
        stale = np.unique(np.concatenate([change.stale for change in changes]))
        of_base, of_recent = np.split(stale, [np.searchsorted(stale, self._kept_count)])
        is_left = np.ones(len(self.recent), dtype=bool)
        is_left[of_recent - self._kept_count] = False
        replaced = np.sort(np.concatenate([self.replaced, self._in_base(of_base)]))
        rows = [self.recent.filter(from_mask(is_left)), *(change.added for change in changes)]
        return Layers(self.base, self._recent(rows), replaced)

    def _recent(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Return tables, one after the other, as recent rows."""
        if sum(map(len, parts)) < MANY_ROWS:
            return pa.concat_tables(map(self._plain, parts)).combine_chunks()
        names, types = self.schema.names, self.schema.types
        columns = [
            joined([part[name] for part in parts], kind) for name, kind in zip(names, types, strict=True)
        ]
        return pa.table(columns, names)

    def _in_base(self, numbers: Index) -> Index:
        """Return the numbers in the base of n of its remaining rows, from their numbers in `table`."""
        left_before = self.replaced - np.arange(len(self.replaced))
        rows: Index = numbers + np.searchsorted(left_before, numbers, side="right")
        return rows

    @property
    def _kept_count(self) -> int:
        return len(self.base) - len(self.replaced)

    @property
    def _current(self) -> Index:
        """The numbers of the current rows in `base` followed by `recent`."""
        return np.concatenate([self._kept, len(self.base) + np.arange(len(self.recent))])

    @property
    def _kept(self) -> Index:
        """The numbers of the current rows of the base."""
        is_kept = np.ones(len(self.base), dtype=bool)
        is_kept[self.replaced] = False
        return np.flatnonzero(is_kept)

    def _plain(self, rows: pa.Table) -> pa.Table:
        """Return rows with some of the columns, plain."""
        kinds = [self.schema.field(name) for name in rows.column_names]
        columns = [plain(column, kind.type) for column, kind in zip(rows.columns, kinds, strict=True)]
        return pa.table(columns, schema=pa.schema(kinds))
