"""The stateful operator, without a query: over many batches it gives what a replay in memory gives."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from streaming import packets, shard_state
from streaming.coordinator import Shard, replay
from streaming.narrow import widen
from streaming.processor import ReplayOffsetsPartition
from streaming.progress import Totals, totals_from_json
from streaming.schemas import CHANGES_IN_BATCH, KEY
from streaming.shard_state import Bases
from tests.benchmarks.bench_growth import Case, shard_records

CASE = Case(keys=3_000, partitions=2, records=0, small=300, rounds=0)
KEYS = [(field.name, "ascending") for field in KEY]


@pytest.fixture(params=["the same worker", "a worker that is new now and then", "no room for bases"])
def bases(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A function that is to be called with the number of each batch."""
    room = 0 if request.param == "no room for bases" else 100_000_000
    monkeypatch.setattr(shard_state, "_BASES", Bases(room))

    def before_batch(number: int) -> None:
        if request.param.startswith("a worker") and number % 3 == 0:
            monkeypatch.setattr(shard_state, "_BASES", Bases(room))

    return before_batch


def test_every_batch_gives_what_a_replay_in_memory_gives(bases: Any) -> None:
    operator = TwsTester(ReplayOffsetsPartition())
    shards = {partition: Shard.empty() for partition in range(CASE.partitions)}
    written_bases = set()
    for number in range(20):
        bases(number)
        for partition, records in batch(number):
            shards[partition], changes = replay(shards[partition], records)
            totals = Totals(decoded=len(records))
            packet = Row(source_partition=partition, records=packets.pack(records, totals))
            [result] = operator.test(partition, [packet])
            assert result["source_partition"] == partition
            assert totals_from_json(result["totals"]) == totals
            found = widen(packets.from_bytes(result["changes"]), CHANGES_IN_BATCH)
            assert found.sort_by(KEYS).equals(changes.sort_by(KEYS))
            written_bases.add(operator.peekValueState("entries", partition))
    assert len(written_bases) > 2 * CASE.partitions, "no base was written anew: nothing was tested"


def batch(number: int) -> Iterator[tuple[int, pa.Table]]:
    """All keys at first, then some of them, in records after those of the batches before."""
    count = CASE.keys if number == 0 else CASE.small
    workload = replace(CASE.filling, records=count, seed=1 + number)
    yield from shard_records(CASE, workload, count, number * CASE.keys)
