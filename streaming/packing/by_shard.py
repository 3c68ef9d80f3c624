"""Packs decoded records into one block per shard, between the decoding UDF and the stateful operator."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import to_numbers
from streaming.common.partitions import offsets_partitions
from streaming.model.schemas import PACKED_RECORDS
from streaming.model.totals import Totals
from streaming.packing.codec import count_records, pack
from streaming.packing.quarantine import with_kept_bytes
from streaming.packing.shards import Shards
from streaming.packing.superseded import drop_superseded


def pack_by_shard(records: pa.Table, shards: Shards, *, check_partition: bool = False) -> dict[int, bytes]:
    """Return one packed block for each shard with records among these, by the key of the shard. The columns
    are `PACKED_RECORDS` without the lengths and `stands_for`, in any order.

    All records are counted. Then superseded commits are dropped (the newest one has their number), and so are
    the bytes of decoded records. With `check_partition`, records in another partition than that of their
    group are dropped, too: brokers ignore them there (they date from a time when the topic had another number
    of partitions).
    """
    records = _by_partition(records)
    keys = shards.keys_of(to_numbers(records["source_partition"]))
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    stops = np.append(starts, len(keys))[1:]
    alone = with_kept_bytes(records).append_column("stands_for", pa.nulls(len(records), pa.int32()))
    packed = alone.select(PACKED_RECORDS.names).cast(PACKED_RECORDS)
    count = shards.partition_count if check_partition else None
    return {
        int(keys[start]): _pack_one(packed.slice(start, stop - start), count)
        for start, stop in zip(starts, stops, strict=True)
    }


def _by_partition(records: pa.Table) -> pa.Table:
    """Group the records by partition; within one they stay in their order, that of the log."""
    partitions = to_numbers(records["source_partition"])
    if np.all(partitions[:-1] <= partitions[1:]):
        return records
    return records.take(np.argsort(partitions, kind="stable"))


def _pack_one(records: pa.Table, partition_count: int | None) -> bytes:
    placed = records
    if partition_count is not None:
        is_placed = _is_placed(records, partition_count)
        if not pc.all(is_placed).as_py():
            placed = records.filter(is_placed)
    totals = count_records(placed) + Totals(wrong_partition=len(records) - len(placed))
    return pack(drop_superseded(placed), totals)


def _is_placed(records: pa.Table, partition_count: int) -> pa.ChunkedArray:
    """Return which records are in the partition of their group; an unreadable group counts as right."""
    groups = records["group"]
    partitions = offsets_partitions(groups.fill_null(""), partition_count)
    found = to_numbers(records["source_partition"])
    return pc.or_(pc.is_null(groups), pa.array(partitions == found))
