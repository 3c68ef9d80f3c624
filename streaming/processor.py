"""The stateful aggregation: Spark's side of `coordinator.replay`, one state value per offsets partition."""

from collections.abc import Iterator
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from streaming import packets
from streaming.coordinator import Shard, replay
from streaming.progress import Totals, totals_to_json
from streaming.schemas import QUARANTINE_IN_BATCH

SHARD_RESULT: Final = StructType(
    [
        StructField("source_partition", IntegerType()),
        StructField("changes", BinaryType()),  # Arrow stream of schema CHANGES_IN_BATCH
        StructField("quarantine", BinaryType()),  # Arrow stream of schema QUARANTINE_IN_BATCH
        StructField("totals", StringType()),
    ]
)
"""What the operator gives for every offsets partition that had records in the batch: one row."""

_STATE_TYPE: Final = StructType([StructField("data", BinaryType())])


class ReplayOffsetsPartition(StatefulProcessor):
    """Keeps the shard of each offsets partition and replays the packets of a batch on it."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the two state values: entries, and records of groups (which change far less often)."""
        self._entries = handle.getValueState("entries", _STATE_TYPE)
        self._group_records = handle.getValueState("group_records", _STATE_TYPE)

    def handleInputRows(  # noqa: N802 (Spark's name)
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Replay the packets of one offsets partition; give its changes, its failed records and its
        counters."""
        unpacked = [packets.unpack(packet) for frame in rows for packet in frame["records"]]
        records = pa.concat_tables([table for table, _ in unpacked])
        shard = self._read_shard()
        after, changes = replay(shard, records)
        self._write_shard(shard, after)
        yield pd.DataFrame(
            {
                "source_partition": [key[0]],
                "changes": [packets.to_bytes(changes)],
                "quarantine": [packets.to_bytes(quarantined(records))],
                "totals": [totals_to_json(sum((totals for _, totals in unpacked), Totals()))],
            }
        )

    def close(self) -> None:
        """Nothing is held open."""

    def _read_shard(self) -> Shard:
        empty = Shard.empty()
        entries, group_records = self._entries.get(), self._group_records.get()
        return Shard(
            packets.from_bytes(entries[0]) if entries else empty.entries,
            packets.from_bytes(group_records[0]) if group_records else empty.group_records,
        )

    def _write_shard(self, before: Shard, after: Shard) -> None:
        if after.entries is not before.entries:
            self._entries.update((packets.to_bytes(after.entries),))
        if after.group_records is not before.group_records:
            self._group_records.update((packets.to_bytes(after.group_records),))


def quarantined(records: pa.Table) -> pa.Table:
    """Return the records that are kept because they could not be decoded (schema `QUARANTINE_IN_BATCH`).

    Records of an unknown type are counted but not kept: new types are a part of Kafka's life.
    """
    kept = pc.is_in(records["error_kind"], value_set=pa.array(["malformed", "unsupported_version"]))
    return records.filter(kept).select(QUARANTINE_IN_BATCH.names)
