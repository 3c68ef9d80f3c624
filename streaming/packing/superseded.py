"""Drops commits that a later one supersedes, before they cause further work."""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from decoders import RECORD_TYPES
from streaming.common.arrays import Index, Mask, from_numbers
from streaming.common.keys import PLACED_KEY, entry_codes, numbered

COMMIT_TYPES: Final = pa.array(
    [number for number, kind in RECORD_TYPES.items() if kind.tabular], pa.int16()
)  # of offset commits, current and legacy

_MOST_NUMBERS: Final = 16  # times the number of codes: up to here, counting is faster than a lookup


def drop_superseded(records: pa.Table) -> pa.Table:
    """Drop offset commits that a later record of the same table supersedes.

    Expects the records of each offsets partition in log order. Keeps the newest readable value and the newest
    tombstone of every key (`replay` needs both to know whether a group was created again), and everything
    that is not a readable offset commit. `stands_for` of a kept record is the number of records of its kind,
    itself included (schema `PACKED_RECORDS`).
    """
    droppable = is_commit(records) & records["error_kind"].is_null().to_numpy()
    rows = np.flatnonzero(droppable)
    commits = records.select([*PLACED_KEY, "is_tombstone"])
    commits = commits if len(rows) == len(records) else commits.take(rows)
    codes, _, _ = entry_codes(commits)
    is_tombstone = commits["is_tombstone"].to_numpy()
    stands_for = np.ones(len(records), dtype=np.int32)
    for chosen in (is_tombstone, ~is_tombstone) if is_tombstone.any() else (~is_tombstone,):
        stands_for[rows[chosen]] = _counted_at_newest(codes[chosen])
    keep = stands_for > 0
    if keep.all():
        return records
    place = records.schema.get_field_index("stands_for")
    kept = records.filter(pa.array(keep))
    return kept.set_column(place, records.schema.field(place), from_numbers(stands_for[keep]))


def _counted_at_newest(codes: Index) -> Index:
    """Return for each of n codes (of `entry_codes`) its number of occurrences at the last one, else 0."""
    numbers = _numbers(codes)
    counts = np.bincount(numbers)
    if counts.max(initial=0) <= 1:
        return np.ones(len(codes), np.int64)
    rows = np.arange(len(numbers))
    last = np.empty(len(counts), np.int64)
    last[numbers] = rows  # of repeated indices numpy keeps the last
    return np.where(last[numbers] == rows, counts[numbers], 0)


def _numbers(codes: Index) -> Index:
    """Return numbers for n codes of keys that are low enough for `bincount`. Partitions usually are low:
    then this takes half the time of looking each code up.
    """
    pairs, partitions = codes >> 32, codes & 0xFFFF_FFFF
    width = int(partitions.max(initial=0)) + 1
    if (int(pairs.max(initial=0)) + 1) * width <= _MOST_NUMBERS * len(codes):
        return pairs * width + partitions
    return numbered(from_numbers(codes))[0]


def is_commit(records: pa.Table) -> Mask:
    """Return which records commit or remove an offset under a readable key; their value may be unreadable."""
    of_type = pc.is_in(records["record_type"], value_set=COMMIT_TYPES)
    found: Mask = pc.and_(of_type, pc.is_valid(records["partition"])).fill_null(False).to_numpy()
    return found
