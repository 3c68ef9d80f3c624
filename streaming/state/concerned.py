"""The entries of a shard that a batch may change or depend on.

Most batches commit offsets of groups that exist already. Then the entries of the committed keys are enough,
with one visible offset of each group, which shows that the group has offsets. All entries of a group are
needed if a record may create, end or empty it: a record of the group itself, a tombstone, or a commit while
some of its entries are hidden.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import Index, Mask, from_mask, to_mask, to_numbers
from streaming.packing.superseded import is_commit
from streaming.state.layers import Layers

LOOKED_THROUGH: Final = 5_000
"""Up to this many entries, all are merged: selecting some of them would take longer."""

_BITS_PER_COMMIT: Final = 64
_MULTIPLIERS: Final = np.array(
    [0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5], np.uint64
)
"""Odd numbers that spread a sum of products over its high bits."""


def concerned(entries: Layers, records: pa.Table) -> tuple[pa.Table, Index]:
    """Return the entries that records may change or depend on, and perhaps others, and their numbers in
    `entries.table`: all of a small shard; otherwise the recent ones of the records' groups, and some of the
    base."""
    if len(entries) <= LOOKED_THROUGH:
        return entries.table, np.arange(len(entries))
    of_base, of_recent = entries.places("group", pc.unique(records["group"]).drop_null())
    if all(pa.types.is_dictionary(entries.base[name].type) for name in ("group", "topic")):
        of_base = of_base[_is_concerned(entries.base, of_base, records)]
    return entries.rows(of_base, of_recent)


def _is_concerned(base: pa.Table, of_base: Index, records: pa.Table) -> Mask:
    """Return a mask of n entries of the base, all of groups in the records: true for concerned ones."""
    groups, codes = _dictionary(base["group"], of_base)
    is_hidden = to_mask(base["hidden"])[of_base]
    is_plain = is_commit(records) & ~to_mask(records["is_tombstone"])

    is_whole = to_mask(pc.is_in(groups, value_set=pc.unique(records.filter(from_mask(~is_plain))["group"])))
    is_whole[codes[is_hidden]] = True  # a group's entries are hidden together: in one layer
    is_one = is_whole[codes]

    first = np.full(len(groups), -1)
    visible = np.flatnonzero(~is_hidden)[::-1]
    first[codes[visible]] = visible  # of repeated indices numpy keeps the last
    is_one[first[first >= 0]] = True
    # a copy of the topic may have a group in two offsets partitions, which makes it two groups
    placed = to_numbers(base["source_partition"])[of_base]
    is_one |= placed != np.append(placed, -1)[first][codes]

    return is_one | _may_be_committed(base, of_base, codes, placed, records.filter(from_mask(is_plain)))


def _may_be_committed(
    base: pa.Table, of_base: Index, groups: Index, placed: Index, commits: pa.Table
) -> Mask:
    """Return for n entries of the base whether commits may be of their keys: always true for those that are,
    rarely for others."""
    names, topics = _dictionary(base["topic"], of_base)
    partitions = to_numbers(base["partition"])[of_base]
    of_commits = commits.select(["group", "topic", "partition", "source_partition"]).combine_chunks()
    group, topic = (
        pc.index_in(of_commits[name], value_set=dictionary)
        for name, dictionary in (("group", _dictionary_of(base["group"])), ("topic", names))
    )
    is_known = to_mask(pc.and_(group.is_valid(), topic.is_valid()))
    known = [
        to_numbers(column.fill_null(0))[is_known]
        for column in (group, topic, of_commits["partition"], of_commits["source_partition"])
    ]
    bits = max(16, int(len(commits) * _BITS_PER_COMMIT).bit_length())
    may_be = np.zeros(1 << bits, np.bool_)
    may_be[_hashed(bits, *known)] = True
    found: Mask = may_be[_hashed(bits, groups, topics, partitions, placed)]
    return found


def _hashed(bits: int, *numbers: Index) -> Index:
    """Hash n rows of several numbers to n numbers of so many bits."""
    mixed = sum(
        one.astype(np.uint64) * multiplier for one, multiplier in zip(numbers, _MULTIPLIERS, strict=True)
    )
    mixed = (mixed ^ mixed >> np.uint64(32)) * _MULTIPLIERS[0]
    hashed: Index = mixed >> np.uint64(64 - bits)
    return hashed


def _dictionary_of(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0).dictionary


def _dictionary(column: pa.ChunkedArray, rows: Index) -> tuple[pa.Array, Index]:
    """Return the dictionary of a column of one chunk, without nulls, and the codes of n of its rows."""
    return _dictionary_of(column), to_numbers(column.chunk(0).indices)[rows]
