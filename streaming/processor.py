"""The stateful aggregation: Spark's side of `coordinator.replay`, one shard per offsets partition."""

from collections.abc import Iterator
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from streaming import packets
from streaming.coordinator import Shard, replay
from streaming.groups import GROUP_RECORDS
from streaming.progress import Totals, totals_to_json
from streaming.schemas import ENTRIES, QUARANTINE_IN_BATCH
from streaming.shard_state import LayeredState

SHARD_RESULT: Final = StructType(
    [
        StructField("source_partition", IntegerType()),
        StructField("changes", BinaryType()),  # Arrow stream of schema CHANGES_IN_BATCH
        StructField("quarantine", BinaryType()),  # Arrow stream of schema QUARANTINE_IN_BATCH
        StructField("totals", StringType()),
    ]
)
"""What the operator gives for every offsets partition that had records in the batch: one row."""


class ReplayOffsetsPartition(StatefulProcessor):
    """Keeps the shard of each offsets partition and replays the packets of a batch on it."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state of the shard's tables."""
        self._entries = LayeredState(handle, "entries", ENTRIES)
        self._group_records = LayeredState(handle, "group_records", GROUP_RECORDS)

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
        entries, group_records = self._entries.read(), self._group_records.read()
        before = Shard(entries.layers(), group_records.layers())
        after, changes = replay(before, records)
        if after.entries is not before.entries:
            self._entries.write(entries, entries.updated(after.entries))
        if after.group_records is not before.group_records:
            self._group_records.write(group_records, group_records.updated(after.group_records))
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


def quarantined(records: pa.Table) -> pa.Table:
    """Return the records that are kept because they could not be decoded (schema `QUARANTINE_IN_BATCH`).

    Records of an unknown type are counted but not kept: new types are a part of Kafka's life.
    """
    kept = pc.is_in(records["error_kind"], value_set=pa.array(["malformed", "unsupported_version"]))
    return records.filter(kept).select(QUARANTINE_IN_BATCH.names)
