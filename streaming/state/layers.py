"""A table in layers: a base that is written rarely, a second one if the first is large, and the recent rows.

The state of an offsets partition may have many thousands of rows, of which a batch changes a few. In layers,
each batch writes only the recent rows: those that changed since the newest base was written. A second base
has the rows that changed since the first one was written.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

import numpy as np
import pyarrow as pa

from streaming.common.arrays import Index, from_mask, merged
from streaming.common.pieces import take
from streaming.state.encoded import MANY_ROWS, encoded, joined, plain, plain_type, with_dictionary
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
    """The rows of one or two `bases` except those in `replaced`, and the `recent` rows.

    The rows of the bases are numbered through; `replaced` are such numbers, ascending. Columns of a base may
    be encoded (`streaming.state.encoded`), and columns of `recent` may have dictionaries. No table has more
    chunks per column than its bytes need.
    """

    bases: tuple[pa.Table, ...]
    recent: pa.Table
    replaced: Index = field(default_factory=lambda: np.empty(0, np.int64))

    @classmethod
    def of(cls, table: pa.Table) -> "Layers":
        """Return a base without changes."""
        return cls((table.combine_chunks(),), table.schema.empty_table())

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of the rows with plain columns."""
        return pa.schema([field.with_type(plain_type(field.type)) for field in self.recent.schema])

    @cached_property
    def table(self) -> pa.Table:
        """The current rows: the remaining ones of the bases, in their order, then the recent ones.

        Columns are joined one by one, so that only one of them is in memory a third time.
        """
        if len(self.bases) == 1 and not len(self.recent) and not len(self.replaced):
            return self._plain(self.bases[0]).combine_chunks()
        if len(self) == len(self.recent):
            return self._plain(self.recent).combine_chunks()
        kept = self._kept
        return pa.table([self._joined(name, kept) for name in self.schema.names], schema=self.schema)

    def _joined(self, name: str, kept: Index) -> pa.ChunkedArray:
        parts = *self._of_bases(kept, [name]), self.recent.select([name])
        return pa.concat_tables(map(self._plain, parts)).combine_chunks()[name]

    def rewritten(self) -> "Layers":
        """Return the current rows as one base with encoded columns, ordered if it can be (`ordered`).

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
        return Layers((base,), self.schema.empty_table())

    def condensed(self) -> "Layers":
        """Return the layers with the same first base; the newer rows are a second one (see `rewritten`)."""
        first, *_ = self.bases
        of_first, of_second = np.split(self.replaced, [np.searchsorted(self.replaced, len(first))])
        newer = Layers(self.bases[1:], self.recent, of_second - len(first)).rewritten()
        return Layers((first, *newer.bases), newer.recent, of_first)

    def _encoded(self, name: str, rows: Index | None) -> pa.ChunkedArray:
        """Return rows (None: all) of one column of the bases followed by `recent`."""
        parts = [part[name] for part in (*self.bases, self.recent)]
        whole = joined(parts, self.schema.field(name).type)
        return encoded(whole if rows is None else take(pa.table({name: whole}), rows)[name])

    def __len__(self) -> int:
        return self._kept_count + len(self.recent)

    @property
    def base_rows(self) -> int:
        """How many rows the bases have, with the replaced ones."""
        return sum(map(len, self.bases))

    def by_base(self, rows: Index) -> Iterator[tuple[pa.Table, int, Index]]:
        """Yield each base, the number of its first row, and its share of some rows (ascending numbers in all
        bases) as numbers in this base."""
        starts = [0, *accumulate(map(len, self.bases[:-1]))]
        parts = np.split(rows, np.searchsorted(rows, starts[1:]))
        for base, start, own in zip(self.bases, starts, parts, strict=True):
            yield base, start, own - start

    def rows(self, of_base: Index, of_recent: Index) -> tuple[pa.Table, Index]:
        """Return current rows by their numbers (ascending) in the bases and in `recent`, and their numbers in
        `table` (not built)."""
        parts = *self._of_bases(of_base, self.schema.names), take(self.recent, of_recent)
        found = pa.concat_tables(map(self._plain, parts))
        of_base = of_base - np.searchsorted(self.replaced, of_base)
        of_recent = of_recent + self._kept_count
        return found.combine_chunks(), np.concatenate([of_base, of_recent])

    def after(self, changes: Sequence[LayerChange]) -> "Layers":
        """Return the layers after changes of different rows; the same object without changes.

        The bases stay the same; the added rows are the last ones.
        """
        if not changes:
            return self
        stale = np.unique(np.concatenate([change.stale for change in changes]))
        of_base, of_recent = np.split(stale, [np.searchsorted(stale, self._kept_count)])
        is_left = np.ones(len(self.recent), dtype=bool)
        is_left[of_recent - self._kept_count] = False
        replaced = merged([self.replaced, self._in_base(of_base)])
        rows = [self.recent.filter(from_mask(is_left)), *(change.added for change in changes)]
        return Layers(self.bases, self._recent(rows), replaced)

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
        """Return the numbers in the bases of n of their remaining rows, from their numbers in `table`."""
        left_before = self.replaced - np.arange(len(self.replaced))
        rows: Index = numbers + np.searchsorted(left_before, numbers, side="right")
        return rows

    def _of_bases(self, rows: Index, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the rows with these numbers (ascending) of each base."""
        return (take(base.select(columns), own) for base, _, own in self.by_base(rows))

    @property
    def _kept_count(self) -> int:
        return self.base_rows - len(self.replaced)

    @property
    def _current(self) -> Index:
        """The numbers of the current rows in the bases followed by `recent`."""
        return np.concatenate([self._kept, self.base_rows + np.arange(len(self.recent))])

    @property
    def _kept(self) -> Index:
        """The numbers of the current rows of the bases."""
        is_kept = np.ones(self.base_rows, dtype=bool)
        is_kept[self.replaced] = False
        return np.flatnonzero(is_kept)

    def _plain(self, rows: pa.Table) -> pa.Table:
        """Return rows with some of the columns, plain."""
        kinds = [self.schema.field(name) for name in rows.column_names]
        columns = [plain(column, kind.type) for column, kind in zip(rows.columns, kinds, strict=True)]
        return pa.table(columns, schema=pa.schema(kinds))
