"""Rows of a snapshot in the form in which queries read them from the tables."""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streaming.common.arrays import Index, Mask, from_mask, from_numbers
from streaming.common.timestamps import to_timestamps
from streaming.model.schemas import GROUPS, OFFSETS
from streaming.serve.memory.names import NONE, NameIndex
from streaming.serve.memory.snapshot import MemorySnapshot

OFFSET_ROWS: Final = pa.schema(
    [field for field in OFFSETS if field.name not in ("leader_epoch", "metadata", "source_offset")]
)
"""The columns of offsets that the rules need."""

_TIMES: Final = ("commit_timestamp", "expire_timestamp", "source_timestamp")


def offset_rows(snapshot: MemorySnapshot, group: int | None = None) -> pa.Table:
    """Return the offsets of a snapshot (schema `OFFSET_ROWS`) in its order: all, or (`group`, a place) those
    of one group."""
    offsets, topics = snapshot.offsets, snapshot.topics
    columns = offsets.columns if group is None else offsets.of(group)
    place = columns.place.astype(np.int64)
    groups = offsets.groups() if group is None else np.full(len(place), group)
    held = {
        "group": _texts(snapshot.groups.names, groups),
        "topic": _texts(topics.names, topics.topic[place]),
        "partition": from_numbers(topics.partition[place]).cast(pa.int32()),
        "topic_id": _texts(topics.ids, columns.topic_id.astype(np.int64)),
        **{name: to_timestamps(_numbers(getattr(columns, name))) for name in _TIMES},
        "unreadable_source_offset": _numbers(columns.unreadable_source_offset),
        "committed_offset": from_numbers(columns.committed_offset, columns.was_readable),
        "source_partition": from_numbers(columns.source_partition),
    }
    return pa.Table.from_arrays([held[name] for name in OFFSET_ROWS.names], schema=OFFSET_ROWS)


def group_rows(snapshot: MemorySnapshot, group: int | None = None) -> pa.Table:
    """Return the groups that have a row (schema `GROUPS`, except that members are as the snapshot holds
    them), in its order: all, or (`group`, a place) one."""
    groups, some = snapshot.groups, slice(None) if group is None else slice(group, group + 1)
    is_described, rows = from_mask(groups.is_described[some]), groups.rows[some]
    members = rows.schema.field("members")
    fields = [members if field.name == "members" else field for field in GROUPS]
    columns = [
        groups.names.texts[some].cast(pa.string())
        if field.name == "group"
        else to_timestamps(rows[field.name])
        if pa.types.is_timestamp(field.type)
        else rows[field.name]
        for field in fields
    ]
    return pa.Table.from_arrays(
        [pa.chunked_array(one) if isinstance(one, pa.Array) else one for one in columns],
        schema=pa.schema(fields),
    ).filter(is_described)


def _texts(names: NameIndex, places: Index) -> pa.Array:
    """Return the names at n places; null for `NONE`."""
    is_known: Mask = places != NONE
    found = from_numbers(places, None if is_known.all() else is_known)
    return names.texts.cast(pa.string()).take(found)


def _numbers(column: npt.NDArray[np.int64]) -> pa.Array:
    return from_numbers(column, column != NONE)
