"""What the operator does with one shard in one batch: Spark's side of `streaming.state.replay`."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Row

from streaming.common.arrays import to_numbers
from streaming.common.arrow_stream import narrow
from streaming.common.pieces import pieces
from streaming.model.errors import OffsetlakeError
from streaming.model.schemas import ENTRIES
from streaming.model.totals import Totals, totals_to_json
from streaming.packets import codec
from streaming.packets.quarantine import quarantined, unpack_bounded
from streaming.spark.layered_state import GROUP_RECORDS_NAME, LayeredState
from streaming.spark.worker_memory import handled_rows, spare_modules_from_collection
from streaming.state.group_records import GROUP_RECORDS
from streaming.state.layers import Layers
from streaming.state.replay import Shard, replay

RESULT_BYTES: Final = 2**31 - 1
"""Spark takes the rows of one shard as one Arrow batch, and that counts in 32 bits."""

SLICE_RECORDS: Final = 100_000
"""Of twice as many records or more, about so many are replayed at a time: what it takes meanwhile, several
times their size, is bounded."""


def replay_packets(state: Any, shard: int, packets: Iterable[bytes]) -> Iterator[Row]:
    """Replay the packets of one shard on its state (`processor.ReplayShard`); yield rows `SHARD_RESULT`."""
    spare_modules_from_collection()
    records, totals = unpack_bounded(packets)
    handled_rows(len(records))
    tables = LayeredState("entries", ENTRIES, state), LayeredState(GROUP_RECORDS_NAME, GROUP_RECORDS, state)
    held = [table.read(shard) for table in tables]
    before = after = Shard(*(values.layers() for values in held))
    results = list[tuple[bytes, bytes]]()
    for some in slices(records):
        after, changes = replay(after, some)
        results += _cells(changes, quarantined(some))
        _refuse_too_much(results)
    for table, values, was, now in zip(tables, held, _layers(before), _layers(after), strict=True):
        if now is not was:
            table.write(shard, values, values.updated(now))
    for number, (changed, failed) in enumerate(results):
        counted = Totals() if number else totals
        yield Row(changes=changed, quarantine=failed, totals=totals_to_json(counted))


def slices(records: pa.Table) -> Iterator[pa.Table]:
    """Divide records by their offsets partition, of which one says nothing about another, into tables of
    `SLICE_RECORDS` or somewhat more; one partition stays whole."""
    if len(records) < 2 * SLICE_RECORDS:
        yield records
        return
    partitions = to_numbers(records["source_partition"])
    counts = np.bincount(partitions)
    numbers = ((np.cumsum(counts) - counts) // SLICE_RECORDS)[partitions]
    for number in np.unique(numbers):
        yield records.filter(pa.array(numbers == number))


def _layers(shard: Shard) -> tuple[Layers, Layers]:
    return shard.entries, shard.group_records


def _cells(changes: pa.Table, failed: pa.Table) -> Iterator[tuple[bytes, bytes]]:
    """Write what became of records of a shard, in pieces, at least one: what changed, and what failed."""
    nothing = changes.slice(0, 0), failed.slice(0, 0)
    for changed, bad in [*zip_longest(pieces(changes), pieces(failed))] or [nothing]:
        yield _cell(changed, nothing[0]), _cell(bad, nothing[1])


def _cell(table: pa.Table | None, nothing: pa.Table) -> bytes:
    return codec.to_bytes(narrow(nothing if table is None else table))


def _refuse_too_much(results: Sequence[tuple[bytes, bytes]]) -> None:
    size = sum(max(map(len, cells)) for cells in results)
    if size > RESULT_BYTES:
        raise OffsetlakeError(
            f"replaying a batch: expected what it changes in one shard of the state to take at most "
            f"{RESULT_BYTES} bytes, found {size}. Set a lower [source] max_records_per_batch, then run "
            "`offsetlake rebuild`: the batch that was begun keeps its size."
        )
