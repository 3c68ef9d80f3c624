"""Packs decoded records by offsets partition, on their way from the decoding UDF to the stateful operator."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.partitions import offsets_partitions
from streaming.model.schemas import PACKED_RECORDS
from streaming.model.totals import Totals
from streaming.packets.codec import count_records, pack
from streaming.packets.quarantine import with_kept_bytes
from streaming.packets.superseded import drop_superseded


def pack_by_partition(records: pa.Table, partition_count: int | None = None) -> dict[int, bytes]:
    """Return one packet for each `source_partition` among the records (that column, and `PACKED_RECORDS`).

    Everything is counted; then superseded commits are dropped, and the bytes of what could be decoded. With
    `partition_count`, records in another partition than the one of their group are dropped, too: brokers do
    not read them there (they are left from a time when the topic had another number of partitions).
    """
    records = _by_partition(records)
    partitions = records["source_partition"].to_numpy()
    starts = np.flatnonzero(np.diff(partitions, prepend=-1))
    stops = np.append(starts, len(partitions))[1:]
    packed = with_kept_bytes(records).select(PACKED_RECORDS.names).cast(PACKED_RECORDS)
    return {
        int(partitions[start]): _pack_one(
            int(partitions[start]), packed.slice(start, stop - start), partition_count
        )
        for start, stop in zip(starts, stops, strict=True)
    }


def _by_partition(records: pa.Table) -> pa.Table:
    """Bring the records of each partition together, in the order they came in, which is that of the log."""
    partitions = records["source_partition"].to_numpy()
    if np.all(partitions[:-1] <= partitions[1:]):
        return records
    return records.take(np.argsort(partitions, kind="stable"))


def _pack_one(source_partition: int, records: pa.Table, partition_count: int | None) -> bytes:
    placed = records
    if partition_count is not None:
        is_placed = _is_placed(source_partition, records, partition_count)
        if not pc.all(is_placed).as_py():
            placed = records.filter(is_placed)
    totals = count_records(source_partition, placed) + Totals(misplaced=len(records) - len(placed))
    return pack(drop_superseded(placed), totals)


def _is_placed(source_partition: int, records: pa.Table, partition_count: int) -> pa.ChunkedArray:
    """Tell which records are where their group belongs; so are those whose group cannot be read."""
    groups = records["group"]
    partitions = offsets_partitions(groups.fill_null(""), partition_count)
    return pc.or_(pc.is_null(groups), pa.array(partitions == source_partition))
