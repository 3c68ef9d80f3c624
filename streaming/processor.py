"""The stateful aggregation: Spark's side of `coordinator.replay`, one shard per offsets partition."""

from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from streaming import packets
from streaming.coordinator import Shard, replay
from streaming.freed_memory import handled_rows
from streaming.groups import GROUP_RECORDS
from streaming.narrow import narrow
from streaming.progress import totals_to_json
from streaming.quarantine import quarantined, unpack_bounded
from streaming.schemas import ENTRIES
from streaming.shard_state import LayeredState
from streaming.workers import spare_modules_from_collection

SHARD_RESULT: Final = StructType(
    [
        StructField("source_partition", IntegerType()),
        StructField("changes", BinaryType()),  # Arrow stream of schema CHANGES_IN_BATCH, narrowed
        StructField("quarantine", BinaryType()),  # the same of schema QUARANTINE_IN_BATCH
        StructField("totals", StringType()),
    ]
)
"""What the operator gives for every offsets partition that had records in the batch: one row."""


class ReplayOffsetsPartition(StatefulProcessor):
    """Keeps the shard of each offsets partition and replays the packets of a batch on it."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state of the shard's tables."""
        spare_modules_from_collection()
        self._entries = LayeredState(handle, "entries", ENTRIES)
        self._group_records = LayeredState(handle, "group_records", GROUP_RECORDS)

    def handleInputRows(  # noqa: N802 (Spark's name)
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        """Replay the packets of one offsets partition; give its changes, its failed records and its
        counters."""
        records, totals = unpack_bounded(row["records"] for row in rows)
        handled_rows(len(records))
        partition = key[0]
        entries, group_records = self._entries.read(partition), self._group_records.read(partition)
        before = Shard(entries.layers(), group_records.layers())
        after, changes = replay(before, records)
        if after.entries is not before.entries:
            self._entries.write(partition, entries, entries.updated(after.entries))
        if after.group_records is not before.group_records:
            updated = group_records.updated(after.group_records)
            self._group_records.write(partition, group_records, updated)
        yield Row(
            source_partition=partition,
            changes=packets.to_bytes(narrow(changes)),
            quarantine=packets.to_bytes(narrow(quarantined(records))),
            totals=totals_to_json(totals),
        )

    def close(self) -> None:
        """Nothing is held open."""
