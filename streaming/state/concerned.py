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

from streaming.common.arrays import Index, are_among, from_mask, spread, to_mask, to_numbers
from streaming.common.keys import firsts, key_codes
from streaming.common.pieces import take
from streaming.packing.superseded import is_commit
from streaming.state.encoded import is_in
from streaming.state.layers import Layers
from streaming.state.ordered import Ranges, is_ordered

LOOKED_THROUGH: Final = 5_000
"""Up to this many entries, all are merged: selecting some of them would take longer."""


def concerned(entries: Layers, records: pa.Table) -> tuple[pa.Table, Index]:
    """Return the entries that records may change or depend on, and perhaps others, and their numbers in
    `entries.table`.

    Of a small shard these are all entries, else the entries of the records' groups. Of an ordered base they
    are only the ones that `_of_ordered` finds.
    """
    if len(entries) <= LOOKED_THROUGH:
        return entries.table, np.arange(len(entries))
    of_groups = records.filter(pc.is_valid(records["group"]))
    groups = pc.unique(of_groups["group"])
    of_bases = [
        start + _of_base(base, replaced, of_groups, groups)
        for base, start, replaced in entries.by_base(entries.replaced)
    ]
    return entries.rows(np.concatenate(of_bases), _of_groups(entries.recent, groups))


def _of_base(base: pa.Table, replaced: Index, records: pa.Table, groups: pa.Array) -> Index:
    """Return the current rows of a base that records, all of these groups, may change or depend on."""
    found = _of_ordered(base, replaced, records) if is_ordered(base) else _of_groups(base, groups)
    return found[~are_among(found, replaced)]


def _of_groups(rows: pa.Table, groups: pa.Array) -> Index:
    return np.flatnonzero(is_in(rows["group"], groups))


def _of_ordered(base: pa.Table, replaced: Index, records: pa.Table) -> Index:
    """Return the rows of an ordered base as `_of_base`, with some of the replaced ones."""
    # a copy of the topic may have a group in two offsets partitions, which makes it two groups
    group_of = key_codes([records["group"], records["source_partition"]])
    first_record = take(records.select(["group", "source_partition"]), firsts(group_of))
    ranges = Ranges.of(base, first_record["group"], to_numbers(first_record["source_partition"]))

    first = ranges.first(replaced)
    held = np.flatnonzero(first >= 0)
    is_hidden = to_mask(take(base.select(["hidden"]), first[held])["hidden"])
    is_plain = is_commit(records) & ~to_mask(records["is_tombstone"])
    is_whole = np.zeros(len(first), np.bool_)
    is_whole[group_of[~is_plain]] = True
    is_whole[held[is_hidden]] = True  # a group's entries are hidden together: in one layer
    _, whole = spread(ranges.start[is_whole], (ranges.stop - ranges.start)[is_whole])

    commits = records.select(["topic", "partition"]).filter(from_mask(is_plain))
    committed = ranges.places(group_of[is_plain], commits["topic"], to_numbers(commits["partition"]))
    found = np.unique(np.concatenate([first, whole, committed]))
    return found[found >= 0]
