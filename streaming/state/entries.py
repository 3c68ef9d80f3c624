"""Merges a batch of offset commits into the entries of one shard, in pure Arrow and numpy.

All indexes refer to one *pool* of rows: the n entries held before the batch, then the c commits of the batch
as entries. A *slot* is a key: slots 0 to n - 1 are the held entries, further ones are new keys.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from streaming.common.arrays import Index, Mask
from streaming.common.keys import PlacedGroup, entry_codes
from streaming.common.pieces import take
from streaming.model.schemas import ENTRIES
from streaming.state.group_records import GroupEvent
from streaming.state.layers import LayerChange

Number = TypeVar("Number", bound=np.generic)

ABSENT: Final = -1
"""The index that means "no such row", also in `streaming.common.pieces.take`."""


@dataclass(frozen=True)
class EntryGroups:
    """The groups of the entries, and the records of the batch that last created and last ended each.

    One element per group: offset and timestamp of the record, `ABSENT` without one. A commit creates its
    group, and so does a record of the group; a group tombstone ends it.
    """

    ids: list[PlacedGroup]
    created_offset: Index
    created_timestamp: Index
    ended_offset: Index
    ended_timestamp: Index
    is_described: Mask  # the batch has a record of the group itself, not only commits

    @property
    def ends(self) -> Mask:
        """Groups that do not exist after the batch."""
        return self.ended_offset > self.created_offset

    @property
    def begins(self) -> Mask:
        """Groups that exist after the batch because of one of its records."""
        return self.created_offset > self.ended_offset


@dataclass(frozen=True)
class MergedEntries:
    """The effect of a batch on the entries: one element per slot, and the rows they refer to.

    `before_row` and `after_row` are indexes into `pool`. `touched_row` is the pool row of the newest commit
    or tombstone of the batch for the key, `ABSENT` without one. `is_outdated`: the batch has a commit for the
    key or a record of its group, so a tombstone need not have removed the value held before. `commits` is the
    number of commits of the key, including unreadable and superseded ones.
    """

    pool: pa.Table
    before_row: Index
    after_row: Index
    touched_row: Index
    is_outdated: Mask
    commits: Index
    unreadable_source_offset: Index
    hidden_before: Mask
    hidden_after: Mask
    slot_groups: Index
    groups: EntryGroups

    @property
    def visible_before(self) -> Mask:
        """Slots whose offset was visible to readers before the batch."""
        visible: Mask = (self.before_row != ABSENT) & ~self.hidden_before
        return visible

    @property
    def visible_after(self) -> Mask:
        """Slots whose offset is visible to readers after the batch."""
        visible: Mask = (self.after_row != ABSENT) & ~self.hidden_after
        return visible

    def groups_with_offsets(self) -> tuple[Mask, Mask]:
        """Return, per group of `groups`, whether it had visible offsets before the batch, and after it."""
        count = len(self.groups.ids)
        had, has = (
            np.bincount(self.slot_groups[visible], minlength=count) > 0
            for visible in (self.visible_before, self.visible_after)
        )
        return had, has

    def groups_with_removals(self) -> Mask:
        """Return, per group of `groups`, whether a tombstone of the batch left one of its keys absent."""
        removed = (self.touched_row != ABSENT) & (self.after_row == ABSENT)
        is_group: Mask = np.bincount(self.slot_groups[removed], minlength=len(self.groups.ids)) > 0
        return is_group

    def newest_records(self) -> list[tuple[int, int]]:
        """Return, per group of `groups`, source offset and timestamp of its newest commit or tombstone.

        For a group without one in the batch they have no meaning.
        """
        rows = np.full(len(self.groups.ids), ABSENT, dtype=np.int64)
        np.maximum.at(rows, self.slot_groups, self.touched_row)
        offsets, timestamps = (
            self.pool[name].to_numpy()[rows].tolist() for name in ("source_offset", "source_timestamp")
        )
        return list(zip(offsets, timestamps, strict=True))

    def changed_by(self, slots: Index) -> tuple[Index, Index]:
        """Return source offset and timestamp of each slot's changing record: its own, else its group's."""
        touched, of_group, groups = self.touched_row[slots], self.slot_groups[slots], self.groups
        is_own, is_end = touched != ABSENT, groups.ends[of_group]

        def pick(own: str, ended: Index, created: Index) -> Index:
            of_slot = np.where(is_end, ended[of_group], created[of_group])
            return np.where(is_own, self.pool[own].to_numpy()[touched], of_slot)

        return (
            pick("source_offset", groups.ended_offset, groups.created_offset),
            pick("source_timestamp", groups.ended_timestamp, groups.created_timestamp),
        )

    def change(self, numbers: Index) -> LayerChange | None:
        """Return the change of the shard's entries; None: nothing changes.

        `numbers` are the numbers in the shard of the n merged entries.
        """
        is_changed = (self.touched_row != ABSENT) | (self.hidden_before != self.hidden_after)
        if not np.any(is_changed):
            return None
        slots = np.flatnonzero(is_changed & (self.after_row != ABSENT))
        return LayerChange(numbers[is_changed[: len(numbers)]], self.rows(slots, self.after_row[slots]))

    def rows(self, slots: Index, pool_rows: Index) -> pa.Table:
        """Return `pool_rows` of the pool as they are after the batch in `slots` (nulls where `ABSENT`)."""
        since = self.unreadable_source_offset[slots]
        table = take(self.pool, pool_rows)
        table = _with_column(table, "unreadable_source_offset", pa.array(since, mask=since == ABSENT))
        return _with_column(table, "hidden", pa.array(self.hidden_after[slots]))


def merge_entries(
    entries: pa.Table,
    commits: pa.Table,
    *,
    created: Sequence[GroupEvent],
    ended: Mapping[PlacedGroup, GroupEvent],
) -> MergedEntries:
    """Merge `commits` (records of types 0 and 1, in log order within each offsets partition) into `entries`.

    `created` are the group records of the batch that create their group (in any order); `ended` has the last
    record that ended each group.
    """
    n = len(entries)
    pool = pa.concat_tables([entries, _as_entries(commits)]).combine_chunks()
    key_codes, group_codes, groups_by_code = entry_codes(pool)
    slots, is_new = _slots(key_codes[:n], key_codes[n:])
    slot_rows = np.concatenate([np.arange(n), n + np.flatnonzero(is_new)])  # a pool row for each slot's key
    count = len(slot_rows)
    slot_groups = group_codes[slot_rows]
    groups = _entry_groups(groups_by_code, group_codes[n:], commits, created, ended)

    is_tombstone = commits["is_tombstone"].to_numpy()
    is_unreadable = commits["error_kind"].is_valid().to_numpy()
    last_value = _last(slots, ~is_tombstone & ~is_unreadable, count)
    last_tombstone = _last(slots, is_tombstone & ~is_unreadable, count)
    boundary = np.maximum(last_value, last_tombstone)
    unreadable = _first(slots, is_unreadable & (np.arange(len(commits)) > boundary[slots]), count)
    touched = _last(slots, np.ones(len(commits), dtype=bool), count)

    before_row = np.where(np.arange(count) < n, np.arange(count), ABSENT)
    # without a readable record in the batch, the held entry stays
    base = np.where(boundary == ABSENT, before_row, ABSENT)
    base = np.where(last_value > last_tombstone, n + last_value, base)
    after_row = np.where((base == ABSENT) & (unreadable != ABSENT), n + unreadable, base)
    hidden_before = _padded(entries["hidden"].to_numpy(), count, fill=False)
    return MergedEntries(
        pool=pool,
        before_row=before_row,
        after_row=after_row,
        touched_row=np.where(touched == ABSENT, ABSENT, n + touched),
        is_outdated=(_last(slots, ~is_tombstone, count) != ABSENT) | groups.is_described[slot_groups],
        commits=_commits(slots, commits, ~is_tombstone, count),
        unreadable_source_offset=_unreadable_source_offset(entries, commits, unreadable, boundary, count),
        hidden_before=hidden_before,
        hidden_after=np.where(groups.ends[slot_groups], True, hidden_before & ~groups.begins[slot_groups]),
        slot_groups=slot_groups,
        groups=groups,
    )


def _as_entries(commits: pa.Table) -> pa.Table:
    """Convert commits to the columns of entries; an unreadable value is null."""
    table = commits.append_column("unreadable_source_offset", pa.nulls(len(commits), pa.int64()))
    return table.append_column("hidden", pa.array(np.zeros(len(commits), dtype=bool))).select(ENTRIES.names)


def _slots(held_keys: Index, commit_keys: Index) -> tuple[Index, Mask]:
    """Return the slot of each of c commits, and which commits are the first of a key that is not held."""
    found = pd.Index(held_keys).get_indexer(pd.Index(commit_keys)).astype(np.int64)
    is_unknown = found == ABSENT
    numbers, _ = pd.factorize(commit_keys[is_unknown])
    found[is_unknown] = len(held_keys) + numbers
    is_new = is_unknown.copy()
    is_new[is_unknown] = ~pd.Series(numbers).duplicated().to_numpy()
    return found, is_new


def _last(slots: Index, chosen: Mask, count: int) -> Index:
    """Return for each of `count` slots the last chosen commit, `ABSENT` without one."""
    rows = np.flatnonzero(chosen)
    last = np.full(count, ABSENT, dtype=np.int64)
    last[slots[rows]] = rows  # for repeated indices numpy keeps the last value
    return last


def _first(slots: Index, chosen: Mask, count: int) -> Index:
    """Return for each of `count` slots the first chosen commit, `ABSENT` without one."""
    rows = np.flatnonzero(chosen)[::-1]
    first = np.full(count, ABSENT, dtype=np.int64)
    first[slots[rows]] = rows
    return first


def _commits(slots: Index, commits: pa.Table, chosen: Mask, count: int) -> Index:
    """Return for each of `count` slots the number of commits that the chosen ones stand for."""
    stands_for = commits["stands_for"]
    if stands_for.null_count == len(commits):
        return np.bincount(slots[chosen], minlength=count)
    weights = stands_for.fill_null(1).to_numpy()[chosen]
    return np.bincount(slots[chosen], weights, count).astype(np.int64)


def _unreadable_source_offset(
    entries: pa.Table, commits: pa.Table, unreadable: Index, boundary: Index, count: int
) -> Index:
    """Return per slot the source offset since which its newest value is unreadable, else `ABSENT`."""
    held = _padded(entries["unreadable_source_offset"].fill_null(ABSENT).to_numpy(), count, fill=ABSENT)
    offsets = np.append(commits["source_offset"].to_numpy(), ABSENT)  # at index ABSENT is ABSENT
    since_held = np.where(boundary == ABSENT, held, ABSENT)
    return np.where(since_held != ABSENT, since_held, offsets[unreadable])


def _entry_groups(
    ids: list[PlacedGroup],
    commit_groups: Index,
    commits: pa.Table,
    created: Sequence[GroupEvent],
    ended: Mapping[PlacedGroup, GroupEvent],
) -> EntryGroups:
    numbers = {group: number for number, group in enumerate(ids)}
    created_offset, created_timestamp, ended_offset, ended_timestamp = (
        np.full(len(ids), ABSENT, dtype=np.int64) for _ in range(4)
    )
    creates = np.flatnonzero(~commits["is_tombstone"].to_numpy())
    is_described = np.zeros(len(ids), dtype=bool)
    created_offset[commit_groups[creates]] = commits["source_offset"].to_numpy()[creates]
    created_timestamp[commit_groups[creates]] = commits["source_timestamp"].to_numpy()[creates]
    for event in created:
        number = numbers.get(event.placed_group)
        if number is None:
            continue
        is_described[number] = True
        if event.source_offset > created_offset[number]:
            created_offset[number], created_timestamp[number] = event.source_offset, event.source_timestamp
    for group, event in ended.items():
        number = numbers.get(group)
        if number is not None:
            ended_offset[number], ended_timestamp[number] = event.source_offset, event.source_timestamp
    return EntryGroups(ids, created_offset, created_timestamp, ended_offset, ended_timestamp, is_described)


def _padded(values: npt.NDArray[Number], count: int, *, fill: bool | int) -> npt.NDArray[Number]:
    padded = np.full(count, fill, dtype=values.dtype)
    padded[: len(values)] = values
    return padded


def _with_column(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    position = ENTRIES.get_field_index(name)
    return table.set_column(position, ENTRIES.field(position), values.cast(ENTRIES.field(position).type))
