"""A table in two layers: a base that is written rarely, and the changes since it was written.

The state of an offsets partition may have many thousands of rows, of which a batch changes a few. In two
layers, each batch writes only the few; the whole table is written once that costs no more than was saved.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import Index, Mask
from streaming.common.pieces import take


@dataclass(frozen=True)
class LayerChange:
    """The effect of records on a table: the numbers of the stale rows, and the added rows."""

    stale: Index
    added: pa.Table


@dataclass(frozen=True)
class Layers:
    """The rows of `base` except those in `replaced` (their numbers, ascending), and the `recent` rows.

    `base` and `recent` have no more chunks per column than their bytes need.
    """

    base: pa.Table
    recent: pa.Table
    replaced: Index = field(default_factory=lambda: np.empty(0, np.int64))

    @classmethod
    def of(cls, table: pa.Table) -> "Layers":
        """Return a base without changes."""
        return cls(table.combine_chunks(), table.schema.empty_table())

    @cached_property
    def table(self) -> pa.Table:
        """The current rows: the remaining ones of the base, in its order, then the recent ones.

        Columns are joined one by one, so that only one of them is in memory a third time.
        """
        if not len(self.recent) and not len(self.replaced):
            return self.base
        if len(self.replaced) == len(self.base):
            return self.recent
        kept = np.flatnonzero(self._is_kept)
        columns = [self._joined(name, kept) for name in self.base.column_names]
        return pa.table(columns, schema=self.base.schema)

    def _joined(self, name: str, kept: Index) -> pa.ChunkedArray:
        of_base = take(self.base.select([name]), kept)
        return pa.concat_tables([of_base, self.recent.select([name])]).combine_chunks()[name]

    def __len__(self) -> int:
        return len(self.base) - len(self.replaced) + len(self.recent)

    def where(self, name: str, values: pa.Array) -> tuple[pa.Table, Index]:
        """Return the current rows with one of the values in a column, and their numbers in `table` (not
        built).
        """
        is_one = [pc.is_in(rows[name], value_set=values).to_numpy() for rows in (self.base, self.recent)]
        of_base, of_recent = np.flatnonzero(is_one[0] & self._is_kept), np.flatnonzero(is_one[1])
        found = pa.concat_tables([take(self.base, of_base), take(self.recent, of_recent)])
        of_base = of_base - np.searchsorted(self.replaced, of_base)
        of_recent = of_recent + len(self.base) - len(self.replaced)
        return found.combine_chunks(), np.concatenate([of_base, of_recent])

    def updated(self, is_stale: Mask, added: pa.Table) -> "Layers":
        """Return the layers after a change: without the stale rows of `table`, with `added` at the end.

        The base stays the same.
        """
        is_kept = self._is_kept
        kept = np.flatnonzero(is_kept)
        of_base, of_recent = is_stale[: len(kept)], is_stale[len(kept) :]
        left = self.recent.filter(pa.array(~of_recent))
        is_kept[kept[of_base]] = False
        return Layers(self.base, pa.concat_tables([left, added]).combine_chunks(), np.flatnonzero(~is_kept))

    def after(self, changes: Sequence[LayerChange]) -> "Layers":
        """Return the layers after changes of different rows; the same object without changes."""
        if not changes:
            return self
        is_stale = np.zeros(len(self), dtype=bool)
        is_stale[np.concatenate([change.stale for change in changes])] = True
        return self.updated(is_stale, pa.concat_tables([change.added for change in changes]))

    @property
    def _is_kept(self) -> Mask:
        """Which rows of the base are current."""
        is_kept = np.ones(len(self.base), dtype=bool)
        is_kept[self.replaced] = False
        return is_kept
