"""What is in packets, all at once."""

from collections.abc import Iterable

import pyarrow as pa

from streaming.model.totals import Totals
from streaming.packets.unpacking import Packets


def read_packets(*packets: bytes) -> tuple[pa.Table, Totals]:
    """Return the records (schema `PACKED_RECORDS`) of the packets of one shard, and what was counted."""
    return read_all(packets)


def read_all(packets: Iterable[bytes]) -> tuple[pa.Table, Totals]:
    """Do the same for any number of packets."""
    read = Packets(packets)
    return pa.concat_tables(read.slices()), read.totals
