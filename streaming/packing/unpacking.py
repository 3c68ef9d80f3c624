"""Reads the packed blocks of one shard in one batch, a few offsets partitions at a time.

A task reads one offsets partition after the other, so each block of a large batch has the records of a few of
them. Replay takes several times the memory of its records. Reading in slices limits it, however large the
batch. Until then, blocks wait in a file.
"""

from collections.abc import Iterable, Iterator
from functools import reduce
from itertools import pairwise
from operator import add
from typing import IO, Final

import pyarrow as pa

from streaming.common.arrays import to_numbers
from streaming.model.totals import Totals
from streaming.packing.codec import PackedBlock
from streaming.packing.quarantine import KeptBytes

SLICE_RECORDS: Final = 25_000
"""The number of records to read at a time, or somewhat more: those of one offsets partition stay together."""


class PackedBlocks:
    """The packed blocks of one shard in one batch, in any order; they are written to an empty `file`."""

    def __init__(self, blocks: Iterable[bytes], file: IO[bytes]) -> None:
        self._file = file
        opened = [PackedBlock.put(block, file) for block in blocks]
        self._blocks = sorted(opened, key=lambda block: block.first_partition)
        self.totals = reduce(add, (block.totals for block in opened), Totals())
        """The sum of their counters. They are added in the given order, which within one offsets partition is
        the order of the log: tasks read partitions in any order, but each from start to end."""

    def slices(self) -> Iterator[pa.Table]:
        """Yield the records (schema `PACKED_RECORDS`) in tables, at least one, each with all records of some
        offsets partitions.

        The bytes of failed records stay within the limits of `KeptBytes`, however many blocks there are.
        """
        bounds, held = KeptBytes(), list[pa.Table]()
        lowest = self._blocks[0].first_partition  # of the held records
        for block, following in pairwise(self._blocks):
            held.append(bounds.bounded(block.records(self._file)))
            follower = following.first_partition
            if sum(map(len, held)) >= SLICE_RECORDS and lowest < follower:
                complete, rest = _divided(pa.concat_tables(held), follower)
                if len(complete):
                    yield complete
                held, lowest = [rest], follower
        held.append(bounds.bounded(self._blocks[-1].records(self._file)))
        yield pa.concat_tables(held)


def _divided(records: pa.Table, follower: int) -> tuple[pa.Table, pa.Table]:
    """Split records into those of offsets partitions below `follower`, which are complete, and the others."""
    is_complete = to_numbers(records["source_partition"]) < follower
    return tuple(records.filter(pa.array(chosen)) for chosen in (is_complete, ~is_complete))
