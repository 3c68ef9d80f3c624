"""The changes of one batch that readers see, as rows of the change feed: values before and after it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import Mask
from streaming.common.keys import KEY_NAMES, PLACED_KEY, PlacedGroup
from streaming.common.pieces import by_batches, take
from streaming.model.schemas import CHANGES_IN_BATCH, COMMITS, GROUP, OFFSET, SOURCE, SOURCE_PARTITION
from streaming.state.entries import ABSENT, MergedEntries
from streaming.state.groups import Group

TOMBSTONED: Final = "tombstoned"
TOMBSTONED_AFTER_CHANGE: Final = "tombstoned after change"
HIDDEN: Final = "hidden"
"""All that a shard knows about the removal of an offset; the driver derives a cause from it
(`streaming.expiry.causes`).

`tombstoned`: by a tombstone of its own, which removed the value `before` while the group was as before the
batch. `tombstoned after change`: the same, but the batch has a later commit of the offset or a record of its
group, so the tombstone need not have removed `before`. `hidden`: only its group has a tombstone.
"""

_IS_ABSENT: Final = "is_absent"
_SOURCE_NAMES: Final = [*(field.name for field in SOURCE), SOURCE_PARTITION.name]
_NONE: Final = CHANGES_IN_BATCH.empty_table()


@dataclass(frozen=True, kw_only=True)
class GroupTransition:
    """One group before and after a batch (None = absent), and the record that caused the change.

    `is_ended`: the batch removes the group, whether or not it was held.
    """

    group: PlacedGroup
    before: Group | None
    after: Group | None
    is_ended: bool
    record: tuple[int, int]

    @property
    def is_change(self) -> bool:
        """Whether readers see a change; the end of a group that was not held is one, too."""
        return self.before != self.after or (self.is_ended and self.after is None)


def offset_changes(merged: MergedEntries) -> pa.Table:
    """Return a row (schema `CHANGES_IN_BATCH`) per offset that was set, removed, hidden or shown.

    An offset that was committed and hidden again, and was not visible before, has a row as well: its commits
    count (`only_counts`).
    """
    before, after = merged.visible_before, merged.visible_after
    is_touched = merged.touched_row != ABSENT
    is_removed = is_touched & (merged.after_row == ABSENT)  # also of a key that was not held
    is_committed = merged.commits > 0
    slots = np.flatnonzero((is_touched & (before | after)) | is_removed | (before != after) | is_committed)
    before_rows = np.where(before[slots], merged.before_row[slots], ABSENT)
    after_rows = np.where(after[slots], merged.after_row[slots], ABSENT)
    key_rows = np.maximum(merged.before_row[slots], merged.touched_row[slots])
    offsets, timestamps = merged.changed_by(slots)
    reasons = np.select(
        [~is_removed[slots], merged.is_outdated[slots]], [HIDDEN, TOMBSTONED_AFTER_CHANGE], TOMBSTONED
    )
    places, *keys = take(merged.pool.select(PLACED_KEY), key_rows).columns
    return _changes(
        "offset",
        is_set=after_rows != ABSENT,
        reasons=pa.array(reasons, pa.string(), mask=after_rows != ABSENT),
        keys=keys,
        before=as_values(take(merged.pool, before_rows), before_rows == ABSENT, OFFSET),
        after=as_values(merged.rows(slots, after_rows), after_rows == ABSENT, OFFSET),
        commits=pa.array(merged.commits[slots], COMMITS.type),
        source=[pa.array(offsets), pa.array(timestamps), places],
    )


def only_counts(changes: pa.Table) -> Mask:
    """Return which of n rows (schema `CHANGES_IN_BATCH`) change nothing for readers: they only have the
    number of commits of an offset that was visible neither before nor after the batch.
    """
    is_hidden = pc.equal(changes["cause"], HIDDEN).fill_null(False)
    found: Mask = pc.and_(is_hidden, pc.is_null(changes["before"])).to_numpy()
    return found


def group_changes(transitions: Iterable[GroupTransition]) -> pa.Table:
    """Return a row (schema `CHANGES_IN_BATCH`) per group that was created, changed or removed."""
    changed = [transition for transition in transitions if transition.is_change]
    if not changed:
        return _NONE
    places, names = zip(*(transition.group for transition in changed), strict=True)
    return _changes(
        "group",
        is_set=np.array([transition.after is not None for transition in changed], dtype=bool),
        reasons=pa.nulls(len(changed), pa.string()),
        keys=[
            pa.array(names, pa.string()),
            pa.nulls(len(changed), pa.string()),
            pa.nulls(len(changed), pa.int32()),
        ],
        group_before=_structs([transition.before for transition in changed]),
        group_after=_structs([transition.after for transition in changed]),
        commits=pa.nulls(len(changed), COMMITS.type),
        source=[
            pa.array([offset for offset, _ in (t.record for t in changed)], pa.int64()),
            pa.array([timestamp for _, timestamp in (t.record for t in changed)], pa.int64()),
            pa.array(places, pa.int32()),
        ],
    )


def _changes(
    kind: str,
    *,
    is_set: Mask,
    reasons: pa.Array,
    keys: list[pa.Array | pa.ChunkedArray],
    commits: pa.Array,
    source: list[pa.Array | pa.ChunkedArray],
    **values: pa.Array | pa.ChunkedArray,
) -> pa.Table:
    ops = pc.if_else(pa.array(is_set), "set", "remove")
    columns = {
        "kind": pa.repeat(kind, len(ops)),
        "op": ops,
        **dict(zip(KEY_NAMES, keys, strict=True)),
        **values,
        "cause": reasons,
        COMMITS.name: commits,
        **dict(zip(_SOURCE_NAMES, source, strict=True)),
    }
    return pa.table(
        [columns.get(field.name, pa.nulls(len(ops), field.type)) for field in CHANGES_IN_BATCH],
        schema=CHANGES_IN_BATCH,
    )


def as_values(rows: pa.Table, is_absent: Mask, kind: pa.StructType) -> pa.ChunkedArray:
    """Combine the columns of n rows into structs, null where absent, in the chunks of the rows."""
    marked = rows.append_column(_IS_ABSENT, pa.array(is_absent))
    return by_batches(marked, lambda batch: _struct(batch, kind), kind)


def _struct(batch: pa.RecordBatch, kind: pa.StructType) -> pa.Array:
    columns = [batch[field.name].cast(field.type) for field in kind]
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=batch[_IS_ABSENT])


def _structs(groups: list[Group | None]) -> pa.Array:
    """Convert groups to `GROUP` structs; equal ones, such as all simple groups, only once."""
    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    distinct = pa.array([None if group is None else group.as_row() for group in numbers], GROUP)
    return distinct.take(pa.array([numbers[group] for group in groups], pa.int64()))
