"""What the operator does with one shard in one batch: Spark's side of `streaming.state.replay`."""

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Row

from streaming.common.arrow_stream import narrow
from streaming.common.pieces import pieces
from streaming.model.errors import OffsetlakeError
from streaming.model.schemas import ENTRIES
from streaming.model.totals import Totals, totals_to_json
from streaming.packets import codec
from streaming.packets.quarantine import quarantined, unpack_bounded
from streaming.spark.layered_state import LayeredState
from streaming.spark.worker_memory import handled_rows, spare_modules_from_collection
from streaming.state.group_records import GROUP_RECORDS
from streaming.state.layers import Layers
from streaming.state.replay import Shard, replay

RESULT_BYTES: Final = 2**31 - 1
"""Spark takes the rows of one shard as one Arrow batch, and that counts in 32 bits."""


def replay_packets(state: Any, shard: int, packets: Iterable[bytes]) -> Iterator[Row]:
    """Replay the packets of one shard on its state (`processor.ReplayShard`); yield rows `SHARD_RESULT`."""
    spare_modules_from_collection()
    records, totals = unpack_bounded(packets)
    handled_rows(len(records))
    tables = LayeredState("entries", ENTRIES, state), LayeredState("group_records", GROUP_RECORDS, state)
    held = [table.read(shard) for table in tables]
    before = Shard(*(values.layers() for values in held))
    after, changes = replay(before, records)
    for table, values, was, now in zip(tables, held, _layers(before), _layers(after), strict=True):
        if now is not was:
            table.write(shard, values, values.updated(now))
    yield from _results(changes, quarantined(records), totals)


def _layers(shard: Shard) -> tuple[Layers, Layers]:
    return shard.entries, shard.group_records


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
