"""The stateful aggregation: Spark's side of `streaming.state.replay`, shard by shard."""

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from streaming.common.arrow_stream import narrow
from streaming.common.pieces import pieces
from streaming.model.errors import OffsetlakeError
from streaming.model.schemas import ENTRIES
from streaming.model.totals import Totals, totals_to_json
from streaming.packets import codec
from streaming.packets.quarantine import quarantined, unpack_bounded
from streaming.spark.layered_state import LayeredState, open_pieces
from streaming.spark.worker_memory import handled_rows, spare_modules_from_collection
from streaming.state.group_records import GROUP_RECORDS
from streaming.state.replay import Shard, replay

SHARD_RESULT: Final = StructType(
    [
        StructField("changes", BinaryType()),  # Arrow stream of schema CHANGES_IN_BATCH, narrowed
        StructField("quarantine", BinaryType()),  # the same of schema QUARANTINE_IN_BATCH
        StructField("totals", StringType()),
    ]
)
"""What the operator gives for every shard that had records in the batch: one row, or several where a cell
would be too large; the totals are their sum."""

RESULT_BYTES: Final = 2**31 - 1
"""Spark takes the rows of one shard as one Arrow batch, and that counts in 32 bits."""


class ReplayShard(StatefulProcessor):
    """Keeps every shard and replays the packets of a batch on it."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state of the shard's tables."""
        spare_modules_from_collection()
        pieces_of_state = open_pieces(handle)
        self._entries = LayeredState("entries", ENTRIES, pieces_of_state)
        self._group_records = LayeredState("group_records", GROUP_RECORDS, pieces_of_state)

    def handleInputRows(  # noqa: N802 (Spark's name)
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        """Replay the packets of one shard; give its changes, its failed records and its counters."""
        records, totals = unpack_bounded(row["records"] for row in rows)
        handled_rows(len(records))
        shard = key[0]
        entries, group_records = self._entries.read(shard), self._group_records.read(shard)
        before = Shard(entries.layers(), group_records.layers())
        after, changes = replay(before, records)
        if after.entries is not before.entries:
            self._entries.write(shard, entries, entries.updated(after.entries))
        if after.group_records is not before.group_records:
            updated = group_records.updated(after.group_records)
            self._group_records.write(shard, group_records, updated)
        yield from _results(changes, quarantined(records), totals)

    def close(self) -> None:
        """Nothing is held open."""


def _results(changes: pa.Table, failed: pa.Table, totals: Totals) -> Iterator[Row]:
    """Yield the rows (`SHARD_RESULT`) that say what became of the records of a shard."""
    nothing = changes.slice(0, 0), failed.slice(0, 0)
    size = 0
    for tables in [*zip_longest(pieces(changes), pieces(failed))] or [nothing]:
        cells = [_cell(table, none) for table, none in zip(tables, nothing, strict=True)]
        size += max(map(len, cells))
        _refuse_too_much(size)
        yield Row(
            changes=cells[0],
            quarantine=cells[1],
            totals=totals_to_json(totals),
        )
        totals = Totals()


def _cell(table: pa.Table | None, nothing: pa.Table) -> bytes:
    return codec.to_bytes(narrow(nothing if table is None else table))


def _refuse_too_much(size: int) -> None:
    if size > RESULT_BYTES:
        raise OffsetlakeError(
            f"replaying a batch: expected what it changes in one shard of the state to take at most "
            f"{RESULT_BYTES} bytes, found {size}. Set a lower [source] max_records_per_batch, then run "
            "`offsetlake rebuild`: the batch that was begun keeps its size."
        )
