"""The stateful operator, without a query: over many batches it gives what a replay in memory gives."""

import os
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from map_state import MapState
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from streaming.common import pieces
from streaming.model.errors import OffsetlakeError
from streaming.model.schemas import CHANGES_IN_BATCH, KEY, PACKED_RECORDS
from streaming.model.totals import Totals, totals_from_json
from streaming.packing import codec, unpacking
from streaming.packing.shards import shard_keys
from streaming.packing.unpacking import PackedBlocks
from streaming.spark import shard_replay
from streaming.spark.base_files import BaseFiles
from streaming.spark.processor import ReplayShard
from streaming.state import stored
from streaming.state.arrow_stream import widen
from streaming.state.replay import Shard, replay
from tests.benchmarks.bench_growth import Case, shard_records

CASE = Case(keys=3_000, partitions=2, records=0, small=300, rounds=0)
PIECE, SCHEMA_BYTES = 20_000, 5_000
VALUE = 5_000
KEYS = [(field.name, "ascending") for field in KEY]


@pytest.fixture(params=["the same worker", "a worker that is new now and then", "no room for bases"])
def bases(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A function that is to be called with the number of each batch."""
    folder = None if request.param == "no room for bases" else tmp_path
    monkeypatch.setattr(shard_replay, "_BASES", BaseFiles(folder))

    def before_batch(number: int) -> None:
        if request.param.startswith("a worker") and number % 3 == 0:
            monkeypatch.setattr(shard_replay, "_BASES", BaseFiles(folder))

    return before_batch


@pytest.mark.parametrize("second_base_bytes", [0, pytest.param(100_000_000, marks=pytest.mark.more)])
def test_every_batch_gives_what_a_replay_in_memory_gives(
    bases: Any, second_base_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "_SECOND_BASE_BYTES", second_base_bytes)
    monkeypatch.setattr(pieces, "VALUE_BYTES", VALUE)
    operator = TwsTester(ReplayShard())
    shards = {key: Shard.empty() for key in shard_keys(CASE.shards.state_partitions)}
    written_bases, second_bases = set(), set()
    for number in range(20):
        bases(number)
        for key, records in batch(number):
            shards[key], changes = replay(shards[key], records)
            totals = Totals(decoded=len(records))
            block = Row(shard=key, records=codec.pack(records, totals))
            [result] = operator.test(key, [block])
            assert totals_from_json(result["totals"]) == totals
            found = widen(codec.from_bytes(result["changes"]), CHANGES_IN_BATCH)
            assert found.sort_by(KEYS).equals(changes.sort_by(KEYS))
            written = operator.peekMapState("pieces", key)
            written_bases.add(written["entries", 0])
            second_bases.add(written.get(("entries_second", 0)))
    assert len(written_bases) > 2 * CASE.partitions, "no base was written again: nothing was tested"
    if not second_base_bytes:
        assert len(second_bases) > 3 * CASE.partitions, "no second base was written"
        assert {(b"", 0), None} < second_bases, "no second base was dropped"


@pytest.mark.parametrize("count", [1, 60, 3_000])
def test_many_records_replayed_in_slices_give_what_they_give_at_once(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each slice has offsets partitions of its own, whole; the operator gives the changes of all of them.
    Many blocks are read from a file."""
    monkeypatch.setattr(unpacking, "SLICE_RECORDS", 30)
    monkeypatch.setattr(shard_replay, "_HELD_BYTES", 10_000)
    case = replace(CASE, partitions=20)
    operator, shard = TwsTester(ReplayShard()), Shard.empty()
    for number in range(3):
        workload = replace(case.filling, records=count, seed=1 + number)
        records = pa.concat_tables(
            [records for _, records in shard_records(case, workload, count, number * 10_000)]
        )
        blocks = blocks_of(records, 25)
        assert (len([*PackedBlocks(blocks, BytesIO()).slices()]) > 1) == (count >= 60)
        shard, changes = replay(shard, records)
        totals = Totals(decoded=len(records))
        results = operator.test(0, [Row(shard=0, records=block) for block in blocks])
        found = [widen(codec.from_bytes(row["changes"]), CHANGES_IN_BATCH) for row in results]
        assert pa.concat_tables(found).sort_by(KEYS).equals(changes.sort_by(KEYS))
        assert sum((totals_from_json(row["totals"]) for row in results), Totals()) == totals


def test_many_blocks_wait_in_a_file_that_is_gone_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With metadata that does not compress, the blocks of a batch may have gigabytes."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/nowhere")
    monkeypatch.setattr(shard_replay, "_BASES", BaseFiles(None))
    _, records = next(iter(shard_records(CASE, replace(CASE.filling, records=1), 1, 0)))
    place = PACKED_RECORDS.get_field_index("metadata")
    records = records.set_column(place, "metadata", pa.array([os.urandom(500_000).hex()]))
    block = codec.pack(records, Totals(decoded=1))
    seen = list[int]()

    def blocks() -> Iterator[bytes]:
        tracemalloc.start()
        for _ in range(40):
            yield bytes(bytearray(block))  # a copy
        seen.extend((tracemalloc.get_traced_memory()[0], open_files_in(tmp_path)))
        tracemalloc.stop()

    results = [*shard_replay.replay_blocks(MapState(), 0, blocks())]
    assert sum((totals_from_json(row["totals"]) for row in results), Totals()) == Totals(decoded=40)
    held, files = seen
    assert held < 3 * len(block)
    assert (files, open_files_in(tmp_path)) == (1, 0)
    assert [*tmp_path.iterdir()] == []


def open_files_in(folder: Path) -> int:
    """Count this process's open files in a folder, deleted ones too."""
    opened = (file.readlink() for file in Path("/proc/self/fd").iterdir() if file.is_symlink())
    return sum(path.is_relative_to(folder) for path in opened)


def test_what_is_larger_than_a_cell_or_a_state_value_is_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", PIECE)
    monkeypatch.setattr(pieces, "VALUE_BYTES", VALUE)
    monkeypatch.setattr(shard_replay, "_BASES", BaseFiles(None))
    operator, shard = TwsTester(ReplayShard()), Shard.empty()
    counts: dict[str, list[int]] = {"entries": [], "entries_recent": []}
    for number, count in enumerate((50, 4_000, 500, 1, 4_000, 1)):
        workload = replace(CASE.filling, records=count, seed=1 + number)
        _, records = next(iter(shard_records(CASE, workload, count, number * 10_000)))
        shard, changes = replay(shard, records)
        block = Row(shard=0, records=codec.pack(records, Totals(decoded=len(records))))
        results = operator.test(0, [block])
        tables = [widen(codec.from_bytes(row["changes"]), CHANGES_IN_BATCH) for row in results]
        assert pa.concat_tables(tables).sort_by(KEYS).equals(changes.sort_by(KEYS))
        assert max(len(row["changes"]) for row in results) <= PIECE + SCHEMA_BYTES
        counted = sum((totals_from_json(row["totals"]) for row in results), Totals())
        assert counted == Totals(decoded=len(records))
        held = operator.peekMapState("pieces", 0)
        assert all(len(piece) <= VALUE for piece, _ in held.values())
        for name, count_by_batch in counts.items():
            _, further = held.get((name, 0), (b"", 0))
            assert {place for of, place in held if of == name} - {0} == set(range(1, 1 + further))
            count_by_batch.append(further)
    assert all(max(of_name) > min(of_name) == 0 for of_name in counts.values()), counts


def test_results_that_spark_cannot_carry_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_replay, "RESULT_BYTES", 1_000)
    _, records = next(batch(0))
    block = Row(shard=0, records=codec.pack(records, Totals()))
    wanted = (
        r"one shard of the state.* at most 1000 bytes, found \d+.*max_records_per_batch.*offsetlake rebuild"
    )
    with pytest.raises(OffsetlakeError, match=wanted):
        TwsTester(ReplayShard()).test(0, [block])


def batch(number: int) -> Iterator[tuple[int, pa.Table]]:
    """All keys at first, then some of them, in records after those of the batches before."""
    count = CASE.keys if number == 0 else CASE.small
    workload = replace(CASE.filling, records=count, seed=1 + number)
    yield from shard_records(CASE, workload, count, number * CASE.keys)


def blocks_of(records: pa.Table, size: int) -> list[bytes]:
    """Pack records as tasks read them, one offsets partition after the other, so many in a block."""
    in_order = records.sort_by([("source_partition", "ascending"), ("source_offset", "ascending")])
    cut = [in_order.slice(start, size) for start in range(0, len(in_order), size)]
    return [codec.pack(some, Totals(decoded=len(some))) for some in cut]
