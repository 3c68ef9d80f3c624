"""Replica of some offsets partitions: the state of the group coordinators that lead them.

`replay` applies a batch of decoded records to a shard and returns the next shard and the changes. It is pure
Arrow and numpy: no Spark, no clock, no I/O. The result equals the state that the coordinator's own replay
reaches for everything below the last stable offset (Kafka: `OffsetMetadataManager.replay`,
`GroupMetadataManager.replay`):

- the newest record of a (group, topic, partition) wins, by its offset in the log: never by a timestamp, never
  by the size of the committed offset. Types 0 and 1 address the same entry. A tombstone removes it.
- a commit whose value is unreadable keeps the last readable value and marks it with
  `unreadable_source_offset`.
- a group's tombstone does not remove offsets but hides them: they are visible again once a commit or a record
  of the group creates the group again.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import asdict, dataclass
from functools import cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import Index, Mask, to_numbers
from streaming.common.keys import PlacedGroup
from streaming.common.pieces import take
from streaming.model.schemas import CHANGES_IN_BATCH, ENTRIES
from streaming.packing.superseded import is_commit
from streaming.state.changes import GroupTransition, group_changes, offset_changes
from streaming.state.concerned import concerned
from streaming.state.entries import MergedEntries, merge_entries
from streaming.state.group_records import (
    GROUP_RECORDS,
    GroupEvent,
    GroupRecords,
    Value,
    fold_events,
    read_events,
    read_unreadable_events,
)
from streaming.state.group_types import TYPE_OF_RECORD
from streaming.state.groups import SIMPLE, Group, describe
from streaming.state.layers import LayerChange, Layers

GROUP_RECORD_TYPES: Final = pa.array(list(TYPE_OF_RECORD), pa.int16())


@dataclass(frozen=True)
class Shard:
    """The entries and group records of some offsets partitions (schemas `ENTRIES`, `GROUP_RECORDS`)."""

    entries: Layers
    group_records: Layers

    @classmethod
    def empty(cls) -> "Shard":
        return cls(Layers.of(ENTRIES.empty_table()), Layers.of(GROUP_RECORDS.empty_table()))

    def after(self, effects: Iterable["Effect"]) -> "Shard":
        """Return the shard after effects on different offsets partitions.

        Tables that do not change are the same objects.
        """
        done = list(effects)
        return Shard(
            self.entries.after([effect.entries for effect in done if effect.entries]),
            self.group_records.after([effect.group_records for effect in done if effect.group_records]),
        )


@dataclass(frozen=True)
class Effect:
    """The effect of records on a shard: on each of its tables (None: no change), and the changes that readers
    see (schema `CHANGES_IN_BATCH`).
    """

    entries: LayerChange | None
    group_records: LayerChange | None
    changes: pa.Table

    def without_changes(self) -> "Effect":
        """Return the effect on the tables alone, in little memory, once the changes are written."""
        return Effect(
            self.entries and self.entries.encoded(),
            self.group_records and self.group_records.encoded(),
            CHANGES_IN_BATCH.empty_table(),
        )


def replay(shard: Shard, records: pa.Table) -> tuple[Shard, pa.Table]:
    """Apply a batch of decoded records; return the next shard and the changes (schema `CHANGES_IN_BATCH`).

    Offsets partitions are replayed independently of each other. There is at most one change per key, with the
    values before and after the batch. A tombstone for an entry that is not held results in a `remove` without
    `before`, since a repeated batch need not see the same state as its first run. Tables of the shard that
    do not change are the same objects, and need not be written.
    """
    effect = effect_of(shard, records)
    return shard.after([effect]), effect.changes


def effect_of(shard: Shard, records: pa.Table) -> Effect:
    """Return the effect of a batch of decoded records on a shard, or of a part of the batch with all of its
    records of some offsets partitions.
    """
    records = _in_log_order(records)
    entries, numbers = concerned(shard.entries, records)
    group_records = shard.group_records.table
    about_groups = _GroupBatch.read(group_records, records.filter(pa.array(_is_about_group(records))))
    merged = merge_entries(
        entries,
        records.filter(pa.array(is_commit(records))),
        created=about_groups.created(),
        ended=about_groups.ended(),
    )
    transitions = _group_transitions(group_records, merged, about_groups)
    changes = pa.concat_tables([offset_changes(merged), group_changes(transitions)])
    return Effect(merged.change(numbers), about_groups.change(group_records), changes)


def _in_log_order(records: pa.Table) -> pa.Table:
    """Group the records by offsets partition, each in the order of its log."""
    partitions, offsets = (to_numbers(records[name]) for name in ("source_partition", "source_offset"))
    is_later = (partitions[:-1] == partitions[1:]) & (offsets[:-1] < offsets[1:])
    is_ordered = np.all(is_later | (partitions[:-1] < partitions[1:]))
    return records if is_ordered else take(records, np.lexsort((offsets, partitions)))


def _is_about_group(records: pa.Table) -> Mask:
    """Return which records are about a group, under a readable key; their value may be unreadable."""
    of_type = pc.is_in(records["record_type"], value_set=GROUP_RECORD_TYPES)
    return _mask(pc.and_(of_type, pc.is_valid(records["group"])))


def _mask(values: pa.ChunkedArray) -> Mask:
    mask: Mask = values.fill_null(False).to_numpy()
    return mask


class _GroupBatch:
    """The group records of one batch, and the records of their groups before and after it.

    An unreadable value still means that its group exists.
    """

    def __init__(
        self, before: dict[PlacedGroup, GroupRecords], events: list[GroupEvent], unreadable: list[GroupEvent]
    ) -> None:
        self.events = events
        self.unreadable = unreadable
        self.before = before
        by_group: dict[PlacedGroup, list[GroupEvent]] = {}
        for event in events:
            by_group.setdefault(event.placed_group, []).append(event)
        self.after = {
            group: fold_events(before.get(group, {}), happened) for group, happened in by_group.items()
        }

    @classmethod
    def read(cls, kept: pa.Table, records: pa.Table) -> "_GroupBatch":
        """Convert the batch's group records; select from `kept` the held records of their groups."""
        is_readable = pc.is_valid(records["document"])
        events = read_events(records.filter(is_readable))
        unreadable = read_unreadable_events(records.filter(pc.invert(is_readable)))
        return cls(_records_by_group(kept, {event.placed_group for event in events}), events, unreadable)

    def change(self, kept: pa.Table) -> LayerChange | None:
        """Return the change of the shard's group records; None: nothing changes."""
        if not self.events:
            return None
        rows = [asdict(event) for records in self.after.values() for event in records.values()]
        return LayerChange(_rows_of(kept, self.after.keys()), pa.Table.from_pylist(rows, GROUP_RECORDS))

    def created(self) -> list[GroupEvent]:
        """Return the records that create their group if it does not exist."""
        return [*(event for event in self.events if event.value is not None), *self.unreadable]

    def last(self) -> dict[PlacedGroup, GroupEvent]:
        in_log_order = sorted([*self.events, *self.unreadable], key=lambda event: event.source_offset)
        return {event.placed_group: event for event in in_log_order}

    def ended(self) -> dict[PlacedGroup, GroupEvent]:
        """Return the last record that removed the group object, by group."""
        return {event.placed_group: event for event in self.events if event.ends_group}


def _records_by_group(kept: pa.Table, groups: Set[PlacedGroup]) -> dict[PlacedGroup, GroupRecords]:
    records: dict[PlacedGroup, GroupRecords] = {}
    for row in take(kept, _rows_of(kept, groups)).to_pylist():
        event = GroupEvent(**row)
        records.setdefault(event.placed_group, {})[event.record_type, event.part] = event
    return records


def _rows_of(kept: pa.Table, groups: Set[PlacedGroup]) -> Index:
    names = pa.array([*{name for _, name in groups}], pa.string())
    rows = np.flatnonzero(_mask(pc.is_in(kept["group"], value_set=names)))
    found = take(kept.select(["source_partition", "group"]), rows)
    placed = zip(found["source_partition"].to_pylist(), found["group"].to_pylist(), strict=True)
    is_wanted: Mask = np.array([group in groups for group in placed], dtype=bool)
    wanted: Index = rows[is_wanted]
    return wanted


def _group_transitions(
    kept: pa.Table, merged: MergedEntries, about_groups: _GroupBatch
) -> Iterator[GroupTransition]:
    """Compare groups before and after the batch: those with records in it, and those that got their first
    visible offset or lost their last one. Simple groups exist as long as they have offsets.

    A simple group whose last offset was removed is reported as gone even if its offsets were not held.
    """
    had, has = merged.groups_with_offsets()
    numbers = {group: number for number, group in enumerate(merged.groups.ids)}
    is_emptied = merged.groups_with_removals() & ~has
    came_or_went = {merged.groups.ids[number] for number in np.flatnonzero((had != has) | is_emptied)}
    last_event = about_groups.last()
    records_of_others = _records_by_group(kept, came_or_went - about_groups.after.keys())
    newest_records = merged.newest_records()
    for group in sorted(came_or_went | about_groups.after.keys()):
        number = numbers.get(group)
        before = about_groups.before.get(group) or records_of_others.get(group)
        after = about_groups.after.get(group, before)
        event = last_event.get(group)
        loads = cache(json.loads)  # most records of a large group are the same before and after
        yield GroupTransition(
            group=group,
            before=_group(before, number is not None and bool(had[number]), loads),
            after=_group(after, number is not None and bool(has[number]), loads),
            is_ended=event.ends_group if event else number is not None and bool(is_emptied[number]),
            record=(event.source_offset, event.source_timestamp) if event else newest_records[numbers[group]],
        )


def _group(records: GroupRecords | None, has_offsets: bool, loads: Callable[[str], Value]) -> Group | None:
    return describe(records, loads) if records else SIMPLE if has_offsets else None
