"""What is in blocks, all at once."""

from collections.abc import Iterable
from io import BytesIO

import pyarrow as pa

from streaming.model.totals import Totals
from streaming.packing.unpacking import PackedBlocks


def read_blocks(*blocks: bytes) -> tuple[pa.Table, Totals]:
    """Return the records (schema `PACKED_RECORDS`) of the blocks of one shard, and what was counted."""
    return read_all(blocks)


def read_all(blocks: Iterable[bytes]) -> tuple[pa.Table, Totals]:
    """Do the same for any number of blocks."""
    read = PackedBlocks(blocks, BytesIO())
    return pa.concat_tables(read.slices()), read.totals
