"""Replays one shard in one batch: Spark's side of `streaming.state.replay`."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import Row

from streaming.common.pieces import pieces
from streaming.model.errors import OffsetlakeError
from streaming.model.schemas import ENTRIES
from streaming.model.totals import Totals, totals_to_json
from streaming.packing import codec
from streaming.packing.quarantine import quarantined
from streaming.packing.unpacking import PackedBlocks
from streaming.spark.layered_state import GROUP_RECORDS_NAME, HELD_BYTES, LayeredState, hold_at_most
from streaming.spark.worker_memory import hand_over, handled_rows, release, spare_modules_from_collection
from streaming.state.arrow_stream import narrow
from streaming.state.changes import newest_removal
from streaming.state.group_records import GROUP_RECORDS
from streaming.state.layers import Layers
from streaming.state.replay import Effect, Shard, effect_of

RESULT_BYTES: Final = 2**31 - 1
"""Spark converts the rows of one shard to one Arrow batch, which counts bytes in 32 bits."""

FILE_BYTES: Final = 64 * 1024
"""Changes of this many bytes before compression are written to a file if there is a folder: in the JVM each
cell is copied about ten times on its way to the driver, in arrays that only full collections remove."""


@dataclass(frozen=True)
class Cells:
    """The content of one row of results: Arrow streams, or the file with the changes."""

    changes: bytes
    quarantine: bytes
    file: str | None = None
    newest_removal: int | None = None


def replay_blocks(
    state: Any,
    shard: int,
    blocks: Iterable[bytes],
    folder: str | None = None,
    held_bytes: int = HELD_BYTES,
) -> Iterator[Row]:
    """Replay the packed blocks of one shard on its state (`processor.ReplayShard`); yield rows
    `SHARD_RESULT`.

    Large sets of changes are written to files in `folder`, if there is one and writing succeeds. The worker
    holds at most `held_bytes` of the states of shards.
    """
    spare_modules_from_collection()
    hold_at_most(held_bytes)
    read = PackedBlocks(blocks)
    tables = LayeredState("entries", ENTRIES, state), LayeredState(GROUP_RECORDS_NAME, GROUP_RECORDS, state)
    held = [table.read(shard) for table in tables]
    before = Shard(*(values.layers() for values in held))
    effects, results, records = list[Effect](), list[Cells](), 0
    for some in read.slices():
        effect = effect_of(before, some)
        results += _cells(effect.changes, quarantined(some), folder)
        _refuse_too_much(results)
        effects.append(effect.without_changes())
        records += len(some)
        release()
    handled_rows(records)
    after = before.after(effects)
    effects.clear()  # frees memory for the writing
    release()
    for table, values, was, now in zip(tables, held, _layers(before), _layers(after), strict=True):
        if now is not was:
            table.write(shard, values, values.updated(now))
    hand_over()
    for number, cells in enumerate(results):
        counted = Totals() if number else read.totals
        yield Row(
            changes=cells.changes,
            quarantine=cells.quarantine,
            totals=totals_to_json(counted),
            file=cells.file,
            newest_removal=cells.newest_removal,
        )


def _layers(shard: Shard) -> tuple[Layers, Layers]:
    return shard.entries, shard.group_records


def _cells(changes: pa.Table, failed: pa.Table, folder: str | None) -> Iterator[Cells]:
    """Yield the results of some records of a shard, in pieces, at least one: changes, and failed records."""
    nothing = changes.slice(0, 0), failed.slice(0, 0)
    for changed, bad in [*zip_longest(pieces(changes), pieces(failed))] or [nothing]:
        failures = _cell(bad, nothing[1])
        path = None if folder is None or changed is None else _left_in(folder, changed)
        removal = None if changed is None else newest_removal(changed)
        yield Cells(b"" if path else _cell(changed, nothing[0]), failures, path, removal)


def _cell(table: pa.Table | None, nothing: pa.Table) -> bytes:
    return codec.to_bytes(narrow(nothing if table is None else table))


def _left_in(folder: str, changes: pa.Table) -> str | None:
    """Write changes to a new file; None if they are few, or the folder is gone or full."""
    if changes.nbytes < FILE_BYTES:
        return None
    path = Path(folder, f"{uuid4()}.changes")
    try:
        codec.to_file(narrow(changes), str(path))
    except OSError:
        with suppress(OSError):
            path.unlink()
        return None
    return str(path)


def _refuse_too_much(results: Sequence[Cells]) -> None:
    size = sum(max(len(cells.changes), len(cells.quarantine)) for cells in results)
    if size > RESULT_BYTES:
        raise OffsetlakeError(
            f"replaying a batch: expected what it changes in one shard of the state to take at most "
            f"{RESULT_BYTES} bytes, found {size}. Set a lower [source] max_records_per_batch, then run "
            "`offsetlake rebuild`: the batch that was begun keeps its size."
        )
