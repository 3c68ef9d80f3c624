"""Committed offsets as columns: the rows of a group are contiguous, sorted by topic and partition.

A change of values copies the columns that it touches, a change of keys copies all of them; unchanged columns
are shared with the snapshot before.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streaming.common.arrays import Index, Mask
from streaming.serve.memory.names import NONE, Int32, fixed
from streaming.serve.memory.texts import TextStore
from streaming.serve.memory.topics import Moved

KINDS: Final[Mapping[str, type[np.integer[Any]]]] = {
    "place": np.int32,
    "committed_offset": np.int64,
    "leader_epoch": np.int32,
    "commit_timestamp": np.int64,
    "expire_timestamp": np.int64,
    "topic_id": np.int32,
    "unreadable_source_offset": np.int64,
    "source_partition": np.int32,
    "source_timestamp": np.int64,
    "written_at": np.int64,
    "metadata_slot": np.int32,
}
"""The columns of offsets, all of them integers."""


def were_readable(committed: Index, unreadable_source_offset: Index) -> Mask:
    """Compute `OffsetColumns.was_readable` for some rows."""
    is_known: Mask = (committed != NONE) | (unreadable_source_offset == NONE)
    return is_known


@dataclass(frozen=True, eq=False, kw_only=True)
class OffsetColumns:
    """n committed offsets, with Kafka's -1 (`NONE`) for missing values.

    `place` and `topic_id` are places of the topic partition and of the topic id in the snapshot's `Topics`.
    Times are ms since 1970. `committed_offset` is -1 where no commit of the key was ever readable, and
    `unreadable_source_offset` is the source offset of the first newer commit that could not be read.
    `source_partition` is the offsets partition, `source_timestamp` the time of the record, and `written_at`
    the time, by the job's clock, of its batch (where that is not known: of the record, by the broker's clock,
    but no later than the newest batch).
    """

    place: Int32
    committed_offset: Index
    leader_epoch: Int32
    commit_timestamp: Index
    expire_timestamp: Index
    topic_id: Int32
    unreadable_source_offset: Index
    source_partition: Int32
    source_timestamp: Index
    written_at: Index
    metadata_slot: Int32
    texts: TextStore

    @classmethod
    def none(cls) -> Self:
        return cls.of({name: np.empty(0, kind) for name, kind in KINDS.items()}, TextStore.none())

    @classmethod
    def of(cls, columns: dict[str, npt.NDArray[Any]], texts: TextStore) -> Self:
        """Cast columns of any width, by name. They become read-only."""
        held = {name: fixed(columns[name].astype(kind, copy=False)) for name, kind in KINDS.items()}
        return cls(texts=texts, **held)

    def __len__(self) -> int:
        return len(self.place)

    @property
    def was_readable(self) -> Mask:
        """Whether each `committed_offset` (n) is a commit: so is -1, unless a commit was unreadable."""
        return were_readable(self.committed_offset, self.unreadable_source_offset)

    @property
    def metadata(self) -> pa.LargeBinaryArray:
        """The metadata (n, UTF-8); empty where there is none."""
        return self.texts.at(self.metadata_slot)

    def part(self, start: int, stop: int) -> "OffsetColumns":
        """Return the rows from `start` to `stop`, on the same memory."""
        return OffsetColumns(
            texts=self.texts, **{name: column[start:stop] for name, column in self._columns()}
        )

    def part_of(self, rows: Index) -> "OffsetColumns":
        """Return the rows with some indexes."""
        return OffsetColumns(texts=self.texts, **{name: column[rows] for name, column in self._columns()})

    def taken(self, source: Index, newer: "OffsetColumns") -> "OffsetColumns":
        """Return m rows by index; indices from n on refer to `newer`, whose texts include those held here."""
        columns = {name: np.concatenate([old, getattr(newer, name)])[source] for name, old in self._columns()}
        return OffsetColumns.of(columns, newer.texts)

    def with_values(self, rows: Index, newer: "OffsetColumns") -> "OffsetColumns":
        """Return the offsets with m rows replaced; columns without a difference are shared."""
        columns = {}
        for name, old in self._columns():
            values = getattr(newer, name)
            columns[name] = old if np.array_equal(old[rows], values) else _with_values(old, rows, values)
        return OffsetColumns.of(columns, newer.texts)

    def with_moved(self, places: Index, ids: Index) -> "OffsetColumns":
        """Return the offsets after topic partitions and topic ids have moved; both arrays map old places to
        new ones."""
        return replace(self, place=_moved(self.place, places), topic_id=_moved(self.topic_id, ids))

    def without_spare_texts(self) -> "OffsetColumns":
        """Drop texts that no offset refers to, once most of them are unused."""
        if not self.texts.is_spare:
            return self
        texts, slots = self.texts.only(self.metadata_slot)
        return OffsetColumns.of(dict(self._columns()) | {"metadata_slot": slots}, texts)

    def _columns(self) -> list[tuple[str, npt.NDArray[Any]]]:
        return [(name, getattr(self, name)) for name in KINDS]


@dataclass(frozen=True, eq=False)
class Offsets:
    """All committed offsets. The rows of the group at place g are `starts[g]` to `starts[g + 1]`, sorted by
    topic and partition."""

    columns: OffsetColumns
    starts: Index

    @classmethod
    def none(cls) -> Self:
        return cls(OffsetColumns.none(), fixed(np.zeros(1, np.int64)))

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def counts(self) -> Index:
        return np.diff(self.starts)

    def of(self, group: int) -> OffsetColumns:
        """Return the offsets of the group at a place, on the same memory."""
        return self.columns.part(int(self.starts[group]), int(self.starts[group + 1]))

    def groups(self) -> Index:
        """Return the place of the group of each offset."""
        return np.repeat(np.arange(len(self.starts) - 1), self.counts)

    def with_moved(self, moved: Moved) -> "Offsets":
        return Offsets(self.columns.with_moved(moved.places, moved.ids), self.starts)

    def with_groups(self, moved: Index, count: int) -> "Offsets":
        """Return the offsets after groups have moved: `moved` maps old places to new ones, and `count` is the
        number of groups now. Groups that are gone must have no offsets."""
        if len(moved) == count == len(self.starts) - 1:
            return self
        counts = np.zeros(count, np.int64)
        is_there = moved != NONE
        counts[moved[is_there]] = self.counts[is_there]
        return _indexed(self.columns, counts)

    def with_changes(self, changes: "OffsetChanges") -> "Offsets":
        groups, is_set = changes.groups, ~changes.is_absent
        rows = self._first_not_before(groups, changes.columns.place)
        is_held = self._has(rows, groups, changes.columns.place)
        if (is_held & is_set).all():
            columns = self.columns.with_values(rows, changes.columns)
            return Offsets(columns.without_spare_texts(), self.starts)
        gone, come = (np.bincount(groups[mask], minlength=len(self.counts)) for mask in (is_held, is_set))
        source = _merged(len(self), rows[is_held], rows[is_set], np.flatnonzero(is_set))
        columns = self.columns.taken(source, changes.columns)
        return _indexed(columns.without_spare_texts(), self.counts - gone + come)

    def _first_not_before(self, groups: Index, places: Int32) -> Index:
        """Return the row of each of n keys or, where it is missing, the first later row of its group, by
        binary search."""
        low, high = self.starts[groups], self.starts[groups + 1]
        held = self.columns.place
        while (is_open := low < high).any():
            middle = (low + high) // 2
            is_before = np.zeros(len(low), np.bool_)
            is_before[is_open] = held[middle[is_open]] < places[is_open]
            low = np.where(is_before, middle + 1, low)
            high = np.where(is_open & ~is_before, middle, high)
        return low

    def _has(self, rows: Index, groups: Index, places: Int32) -> Mask:
        is_within = rows < self.starts[groups + 1]
        found: Mask = is_within.copy()
        found[is_within] = self.columns.place[rows[is_within]] == places[is_within]
        return found


@dataclass(frozen=True, eq=False)
class OffsetChanges:
    """Changes of n distinct keys in order: the place of the group, whether the key was removed (its value
    then is meaningless), and the new values. The texts of `columns` include those already held."""

    groups: Index
    is_absent: Mask
    columns: OffsetColumns


def _indexed(columns: OffsetColumns, counts: Index) -> Offsets:
    return Offsets(columns, fixed(np.append(0, np.cumsum(counts))))


def _merged(held: int, dropped: Index, places: Index, numbers: Index) -> Index:
    """Return the indices of the new rows in order: the `held` rows without those `dropped`, and each new row
    (numbered from `held` on) before the held one at its place. `places` must not fall."""
    is_kept = np.ones(held, np.bool_)
    is_kept[dropped] = False
    kept = np.flatnonzero(is_kept)
    targets = np.searchsorted(kept, places) + np.arange(len(places))
    is_new = np.zeros(len(kept) + len(places), np.bool_)
    is_new[targets] = True
    source = np.empty(len(is_new), np.int64)
    source[is_new] = held + numbers
    source[~is_new] = kept
    return source


def _with_values(column: npt.NDArray[Any], rows: Index, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    changed = column.copy()
    changed[rows] = values
    return changed


def _moved(column: Int32, moved: Index) -> Int32:
    """Map n places, or `NONE`, to new ones; shared where nothing has moved."""
    if np.array_equal(moved, np.arange(len(moved))):
        return column
    places: Int32 = np.append(moved, NONE).astype(np.int32)[column]
    return fixed(places)
