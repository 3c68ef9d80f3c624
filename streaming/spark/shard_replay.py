"""Replays one shard in one batch: Spark's side of `streaming.state.replay`."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from tempfile import SpooledTemporaryFile
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Row

from streaming.common.pieces import pieces
from streaming.model.errors import OffsetlakeError
from streaming.model.schemas import CHANGES_IN_BATCH, ENTRIES, QUARANTINE_IN_BATCH
from streaming.model.totals import Totals, totals_to_json
from streaming.packing import codec
from streaming.packing.quarantine import quarantined
from streaming.packing.unpacking import PackedBlocks
from streaming.settings.kinds import MIB
from streaming.spark.base_files import BaseFiles, temporary_folder
from streaming.spark.fingerprint import Fingerprint
from streaming.spark.layered_state import GROUP_RECORDS_NAME, LayeredState
from streaming.spark.task_files import TaskFiles, announced
from streaming.spark.worker_memory import prepare_worker, return_after
from streaming.state.arrow_stream import narrow
from streaming.state.group_records import GROUP_RECORDS
from streaming.state.layers import Layers
from streaming.state.replay import Effect, Shard, effect_of

RESULT_BYTES: Final = 2**31 - 1
"""Spark converts the rows of one shard to one Arrow batch, which counts bytes in 32 bits."""

_HELD_BYTES: Final = 4 * MIB
"""If the blocks of a shard have more bytes, they wait in a file until they are replayed: with metadata that
does not compress, they may have gigabytes."""

_NO_CHANGES: Final = CHANGES_IN_BATCH.empty_table()
_NO_FAILURES: Final = QUARANTINE_IN_BATCH.empty_table()


@dataclass(frozen=True)
class Cells:
    """The content of one row of results: Arrow streams."""

    changes: bytes
    quarantine: bytes


_BASES: Final = BaseFiles.of_worker()


def replay_blocks(state: Any, shard: int, blocks: Iterable[bytes]) -> Iterator[Row]:
    """Replay the packed blocks of one shard on its state (`processor.ReplayShard`); yield rows
    `SHARD_RESULT`.

    Of an announced batch, most changes are written to files of the table (`task_files`).
    """
    with TaskFiles(announced()) as files:
        yield from _replayed(state, shard, blocks, files)


def _replayed(state: Any, shard: int, blocks: Iterable[bytes], files: TaskFiles) -> Iterator[Row]:
    prepare_worker()
    replayed = _replay(state, shard, blocks, files)
    return_after(replayed.records)
    written = files.handed_over()
    for number, cells in enumerate(replayed.results):
        counted = Totals() if number else replayed.totals + Totals(clamped=files.clamped)
        yield Row(
            changes=cells.changes,
            quarantine=cells.quarantine,
            totals=totals_to_json(counted),
            fingerprint=str(Fingerprint() if number else replayed.fingerprint),
            written=None if number or written is None else json.dumps(asdict(written)),
        )


def _replay(state: Any, shard: int, blocks: Iterable[bytes], files: TaskFiles) -> "_Replayed":
    """Replay blocks on the state of a shard, and write the state."""
    tables = [
        LayeredState(name, schema, state, _BASES)
        for name, schema in (("entries", ENTRIES), (GROUP_RECORDS_NAME, GROUP_RECORDS))
    ]
    held = [table.read(shard) for table in tables]
    before = Shard(*(values.layers() for values in held))
    replayed = _effects(before, blocks, files)
    return_after(replayed.records)
    after = before.after(replayed.effects)
    changed = [now is not was for was, now in zip(_layers(before), _layers(after), strict=True)]
    replayed.effects.clear()
    del before
    return_after(replayed.records)
    left = [*_layers(after)]
    del after
    for table, values, is_changed in zip(tables, held, changed, strict=True):
        now = left.pop(0)
        if is_changed:
            updated = values.updated(now)
            del now  # its rows are in the new values, which take as much memory
            return_after(replayed.records)
            table.write(shard, values, updated)
    return replayed


@dataclass(frozen=True)
class _Replayed:
    """The effects of blocks on the state of a shard, results, and counters of their records."""

    effects: list[Effect]
    results: list[Cells]
    fingerprint: Fingerprint
    records: int
    totals: Totals


def _effects(before: Shard, blocks: Iterable[bytes], files: TaskFiles) -> _Replayed:
    with SpooledTemporaryFile(_HELD_BYTES, dir=temporary_folder()) as file:
        return _effects_of(PackedBlocks(blocks, file), before, files)


def _effects_of(read: PackedBlocks, before: Shard, files: TaskFiles) -> _Replayed:
    effects, results, records, fingerprint = list[Effect](), list[Cells](), 0, Fingerprint()
    for some in read.slices():
        effect = effect_of(before, some)
        fingerprint += Fingerprint.of(effect.changes)
        results += _cells(files.left_to_driver(effect.changes), quarantined(some))
        _refuse_too_much(results)
        effects.append(effect.without_changes())
        records += len(some)
        return_after(len(some))
    results += _cells(files.rest(), _NO_FAILURES)
    _refuse_too_much(results)
    results = results or [Cells(_cell(None, _NO_CHANGES), _cell(None, _NO_FAILURES))]
    return _Replayed(effects, results, fingerprint, records, read.totals)


def _layers(shard: Shard) -> tuple[Layers, Layers]:
    return shard.entries, shard.group_records


def _cells(changes: pa.Table, failed: pa.Table) -> Iterator[Cells]:
    """Yield the results of some records of a shard, in pieces: changes, and failed records."""
    for changed, bad in zip_longest(pieces(changes), pieces(failed)):
        yield Cells(_cell(changed, _NO_CHANGES), _cell(bad, _NO_FAILURES))


def _cell(table: pa.Table | None, nothing: pa.Table) -> bytes:
    return codec.to_bytes(narrow(nothing if table is None else table))


def _refuse_too_much(results: Sequence[Cells]) -> None:
    size = sum(max(len(cells.changes), len(cells.quarantine)) for cells in results)
    if size > RESULT_BYTES:
        raise OffsetlakeError(
            f"replaying a batch: expected what it changes in one shard of the state to take at most "
            f"{RESULT_BYTES} bytes, found {size}. Set a lower [source] max_records_per_batch, then run "
            "`offsetlake rebuild`: the batch that was begun keeps its size."
        )
