"""A batch that is replayed a part at a time comes to what one replay of all its records comes to."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from decoded_records import CLASSIC_VALUE, DECODED, EPOCH_VALUE, group_document
from hypothesis import given
from hypothesis import strategies as st
from map_state import MapState

from streaming.common import pieces
from streaming.model.schemas import CHANGES_IN_BATCH, ENTRIES, PACKED_RECORDS, QUARANTINE_IN_BATCH
from streaming.model.totals import Position, Totals, totals_from_json
from streaming.packing import codec, unpacking
from streaming.packing.by_shard import pack_by_shard
from streaming.packing.codec import count_records
from streaming.packing.quarantine import quarantined, with_kept_bytes
from streaming.packing.shards import Shards
from streaming.spark import shard_replay
from streaming.spark.base_files import BaseFiles
from streaming.spark.fingerprint import Fingerprint
from streaming.spark.layered_state import GROUP_RECORDS_NAME, LayeredState
from streaming.spark.shard_replay import replay_blocks
from streaming.state import concerned, encoded, layers
from streaming.state.arrow_stream import widen
from streaming.state.group_records import GROUP_RECORDS
from streaming.state.replay import Shard, replay

Row = dict[str, Any]

SHARDS = Shards(partition_count=6, state_partitions=1)
PIECE = 700
NOWHERE = Position(-1, -1)
PLACE = [("source_partition", "ascending"), ("source_offset", "ascending")]
VALUES = {2: CLASSIC_VALUE, 3: EPOCH_VALUE}


# --- any records -----------------------------------------------------------------------------------------


def commit(record_type: int, key: tuple[str, str, int], **changed: Any) -> Row:
    group, topic, partition = key
    row = {"record_type": record_type, "is_tombstone": False, "group": group, "topic": topic}
    return {**row, "partition": partition, "commit_timestamp": 5, **changed}


def about_group(record_type: int, group: str, *, ends: bool) -> Row:
    row = {"record_type": record_type, "is_tombstone": ends, "group": group}
    return {**row, "document": group_document(record_type, group, "", None if ends else VALUES[record_type])}


def failed(kind: str, key: bytes, value: bytes | None, **readable: Any) -> Row:
    row = {"error_kind": kind, "key": key, "value": value, "value_version": 9, "record_type": 1}
    return {"is_tombstone": value is None, "reason": "r", **row, **readable}


names = st.sampled_from(["", "g", "g\0", "g\0h", "\0", "ü-😀", "\uffff"]) | st.text(max_size=3)
keys = st.tuples(names, st.sampled_from(["t", "t\0", "t\0u", ""]), st.sampled_from([0, 1, -1, 2**31 - 1]))
types = st.sampled_from([0, 1])
zero = st.just(0)
metadata = st.sampled_from(["", "m", "\0", "m" * 2_000, "😀" * 500])
offsets = st.integers(0, 5)
blobs = st.binary(max_size=9) | st.just(b"b" * 700)
records = st.one_of(
    st.builds(commit, types, keys, committed_offset=offsets, metadata=metadata),
    st.builds(commit, types, keys, committed_offset=offsets, metadata=metadata),
    st.builds(commit, types, keys, is_tombstone=st.just(True)),
    st.builds(about_group, st.sampled_from([2, 3]), names, ends=st.booleans()),
    st.builds(
        failed, st.just("unsupported_version"), blobs, blobs, group=names, topic=st.just("t"), partition=zero
    ),
    st.builds(failed, st.sampled_from(["malformed", "unknown_type"]), blobs, st.none() | blobs),
)
logs = st.lists(st.lists(records, max_size=12), min_size=1, max_size=SHARDS.partition_count)
"""What one batch holds of each offsets partition."""


def in_log(batches: list[list[list[Row]]]) -> list[list[list[Row]]]:
    """Give records their places."""
    ends = [0] * SHARDS.partition_count
    placed = []
    for logs_of_batch in batches:
        placed.append([])
        for partition, log in enumerate(logs_of_batch):
            rows = []
            for row in log:
                place = {"source_partition": partition, "source_offset": ends[partition]}
                rows.append({**row, **place, "source_timestamp": 1_000 + 7 * ends[partition]})
                ends[partition] += 1
            placed[-1].append(rows)
    return placed


# --- one shard, without Spark ----------------------------------------------------------------------------


def blocks_of(logs_of_batch: list[list[Row]], size: int, tasks: int, random: Any) -> list[bytes]:
    """Decode and pack the records of one batch as tasks do: each reads some offsets partitions, in any order,
    one after the other; they answer in any order."""
    of_tasks: list[list[bytes]] = [[] for _ in range(tasks)]
    turned = [*logs_of_batch]
    random.shuffle(turned)
    for task, blocks in enumerate(of_tasks):
        rows = [row for log in turned[task::tasks] for row in log]
        for start in range(0, len(rows), size):
            table = pa.Table.from_pylist(rows[start : start + size], DECODED)
            blocks += pack_by_shard(table, SHARDS).values()
    turns = [task for task, blocks in enumerate(of_tasks) for _ in blocks]
    random.shuffle(turns)
    return [of_tasks[task].pop(0) for task in turns]


def all_records(logs_of_batch: list[list[Row]]) -> tuple[pa.Table, Totals]:
    rows = [row for log in logs_of_batch for row in log]
    table = with_kept_bytes(pa.Table.from_pylist(rows, DECODED))
    alone = table.append_column("stands_for", pa.nulls(len(table), pa.int32()))
    return alone.select(PACKED_RECORDS.names).cast(PACKED_RECORDS), count_records(table)


def rows_of(table: pa.Table) -> list[Row]:
    return sorted(table.to_pylist(), key=repr)


def widened(cells: list[bytes], schema: pa.Schema) -> pa.Table:
    tables = [widen(table, schema) for table in map(codec.from_bytes, cells) if len(table)]
    return pa.concat_tables([schema.empty_table(), *tables])


@pytest.fixture(params=[pytest.param("small shard", marks=pytest.mark.more), "large shard"])
def sizes(request: pytest.FixtureRequest) -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "large shard":
            patch.setattr(concerned, "LOOKED_THROUGH", 0)
            patch.setattr(encoded, "_LEAST_REPEATED", 0)
            patch.setattr(layers, "MANY_ROWS", 0)
        yield patch


def check_unknown(found: Totals, wanted: Totals, logs_of_batch: list[list[Row]]) -> None:
    """Which partition's records are said to be the first and the last is open, but there they are."""
    kinds, expected = (
        [replace(one, first=NOWHERE, last=NOWHERE) for one in totals.unknown] for totals in (found, wanted)
    )
    assert kinds == expected
    for one in found.unknown:
        for place, choose in ((one.first, min), (one.last, max)):
            assert place.offset == choose(
                row["source_offset"]
                for row in logs_of_batch[place.partition]
                if row.get("error_kind") in ("unsupported_version", "unknown_type")
            )


@given(
    batches=st.lists(logs, min_size=1, max_size=4).map(in_log),
    slice_records=st.integers(1, 20),
    size=st.integers(1, 9),
    tasks=st.integers(1, 3),
    are_bases_kept=st.booleans(),
    upgraded_at=st.integers(0, 3),
    random=st.randoms(use_true_random=False),
)
def test_parts_come_to_what_one_replay_comes_to(
    sizes: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[list[list[Row]]],
    slice_records: int,
    size: int,
    tasks: int,
    are_bases_kept: bool,
    upgraded_at: int,
    random: Any,
) -> None:
    sizes.setattr(unpacking, "SLICE_RECORDS", slice_records)
    bases = BaseFiles(tmp_path_factory.mktemp("bases") if are_bases_kept else None)
    sizes.setattr(shard_replay, "_BASES", bases)
    state, shard = MapState(), Shard.empty()
    for number, logs_of_batch in enumerate(batches):
        largest = PIECE if number >= upgraded_at else 1_000_000  # the pieces of an older release were larger
        sizes.setattr(pieces, "VALUE_BYTES", largest)
        blocks = blocks_of(logs_of_batch, size, tasks, random)
        if not blocks:
            continue
        everything, totals = all_records(logs_of_batch)
        shard, changes = replay(shard, everything)
        results = [row.asDict() for row in replay_blocks(state, 7, blocks)]

        found = widened([row["changes"] for row in results], CHANGES_IN_BATCH)
        assert rows_of(found) == rows_of(changes)
        assert str(Fingerprint.of(found)) == str(Fingerprint.of(changes))
        bad = widened([row["quarantine"] for row in results], QUARANTINE_IN_BATCH)
        assert rows_of(bad) == rows_of(quarantined(everything))
        counted = sum((totals_from_json(row["totals"]) for row in results), Totals())
        assert replace(counted, unknown=()) == replace(totals, unknown=())
        check_unknown(counted, totals, logs_of_batch)

        for name, schema, held in (
            ("entries", ENTRIES, shard.entries),
            (GROUP_RECORDS_NAME, GROUP_RECORDS, shard.group_records),
        ):
            table = LayeredState(name, schema, state, bases).read(7).layers().table
            assert table.schema == schema
            assert rows_of(table) == rows_of(held.table)
        further = {name: count for (name, place), (_, count) in state.values.items() if not place}
        assert {*state.values} == {(name, n) for name, count in further.items() for n in range(1 + count)}
