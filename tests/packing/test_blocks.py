"""Blocks: what is packed per offsets partition comes out again, counted, without what nobody needs."""

from typing import Any

import pyarrow as pa
import pytest
from blocks_read import read_blocks
from decoded_records import DECODED
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.common.partitions import offsets_partitions
from streaming.model.schemas import PACKED_RECORDS
from streaming.model.totals import Position, Totals, UnknownRecords
from streaming.packing.by_shard import pack_by_shard
from streaming.packing.codec import count_records
from streaming.packing.shards import Shards, shard_keys

Row = dict[str, Any]

SHARDS = Shards(partition_count=10, state_partitions=5)
COMMIT: Row = {
    "record_type": 1,
    "value_version": 3,
    "is_tombstone": False,
    "group": "g",
    "topic": "t",
    "partition": 0,
}


def commit(source_partition: int, source_offset: int, **changed: Any) -> Row:
    position = {"source_partition": source_partition, "source_offset": source_offset, "source_timestamp": 0}
    return {**COMMIT, **position, "key": b"key", "value": b"value", **changed}


def failed(source_partition: int, source_offset: int, error_kind: str, **changed: Any) -> Row:
    nothing = dict.fromkeys(COMMIT) | {"is_tombstone": False}
    return commit(source_partition, source_offset, **nothing | {"error_kind": error_kind} | changed)


def packed(*rows: Row) -> dict[int, tuple[list[Row], Totals]]:
    """Pack and unpack: per shard (numbered from 0) the rows that are left, and the counters."""
    result = {}
    for key, block in pack_by_shard(pa.Table.from_pylist(list(rows), DECODED), SHARDS).items():
        records, totals = read_blocks(block)
        assert records.schema == PACKED_RECORDS
        result[shard_keys(SHARDS.state_partitions).index(key)] = records.to_pylist(), totals
    return result


def pack_first(table: pa.Table) -> bytes:
    """Pack records of the first shard alone."""
    [block] = pack_by_shard(table, SHARDS).values()
    return block


def test_records_are_packed_by_shard_and_each_partition_in_the_order_of_the_log() -> None:
    rows = [
        commit(7, 1, topic="a"),
        commit(3, 9, topic="b"),
        commit(6, 1, topic="a"),
        commit(7, 2, topic="c"),
        commit(3, 10, topic="d"),
    ]
    found = packed(*rows)
    assert {shard: places(left) for shard, (left, _) in found.items()} == {
        1: [(3, 9), (3, 10)],
        3: [(6, 1), (7, 1), (7, 2)],
    }
    assert [totals.decoded for _, totals in found.values()] == [2, 3]


def places(rows: list[Row]) -> list[tuple[int, int]]:
    return [(row["source_partition"], row["source_offset"]) for row in rows]


def test_a_key_in_two_partitions_is_two_keys() -> None:
    [(left, totals)] = packed(commit(0, 5), commit(1, 1), commit(1, 2), commit(0, 9)).values()
    assert places(left) == [(0, 9), (1, 2)]
    assert totals.decoded == 4


def test_nothing_is_packed_when_nothing_came() -> None:
    assert packed() == {}


def test_superseded_commits_are_counted_but_not_carried() -> None:
    [(left, totals)] = packed(commit(0, 1), commit(0, 2), commit(0, 3, is_tombstone=True)).values()
    assert [row["source_offset"] for row in left] == [2, 3]  # the newest value and the newest tombstone
    assert totals == Totals(decoded=3, tombstones=1)
    assert [row["stands_for"] for row in left] == [2, 1]


def test_the_newest_commit_says_how_many_it_stands_for_and_an_unreadable_one_stands_for_itself() -> None:
    [(left, _)] = packed(
        commit(0, 1),
        commit(0, 2, partition=1),
        commit(0, 3),
        commit(0, 4, error_kind="unsupported_version"),
        commit(0, 5, error_kind="unsupported_version"),
        commit(0, 6),
        commit(1, 6),
    ).values()
    stand_for = {(row["source_partition"], row["source_offset"]): row["stands_for"] for row in left}
    assert stand_for == {(0, 2): 1, (0, 4): 1, (0, 5): 1, (0, 6): 3, (1, 6): 1}


@pytest.mark.parametrize("far", [1, 2_147_483_647])
def test_commits_are_counted_however_far_apart_partitions_are(far: int) -> None:
    places = [("t", 0), ("t", far), ("u", 0), ("t", 0), ("u", far), ("u", far), ("t", far), ("u", far)]
    rows = [commit(0, n, topic=topic, partition=number) for n, (topic, number) in enumerate(places)]
    [(left, _)] = packed(*rows).values()
    found = {(row["topic"], row["partition"]): row["stands_for"] for row in left}
    assert found == {("t", 0): 2, ("t", far): 2, ("u", 0): 1, ("u", far): 3}


def test_nothing_is_noted_where_nothing_is_superseded() -> None:
    [(left, _)] = packed(commit(0, 1), commit(0, 2, partition=1)).values()
    assert [row["stands_for"] for row in left] == [None, None]


def test_records_in_another_partition_than_their_groups_are_counted_and_dropped() -> None:
    groups = [f"g{number}" for number in range(40)]
    home = offsets_partitions(pa.array(groups), SHARDS.partition_count).tolist()
    rows = [
        commit(partition, number, group=group) for number, group in enumerate(groups) for partition in (0, 1)
    ]
    table = pa.Table.from_pylist([*rows, failed(1, 99, "malformed")], DECODED)
    [block] = pack_by_shard(table, SHARDS, check_partition=True).values()
    records, totals = read_blocks(block)
    placed = [(home[number], number) for number in range(40) if home[number] in (0, 1)]
    assert sorted(places(records.to_pylist())) == sorted([*placed, (1, 99)])
    assert (totals.decoded, totals.malformed, totals.wrong_partition) == (len(placed), 1, 80 - len(placed))
    assert placed


def test_only_records_that_could_not_be_decoded_keep_their_bytes() -> None:
    [(left, _)] = packed(
        commit(0, 1), failed(0, 2, "malformed"), failed(0, 3, "malformed", value=None)
    ).values()
    assert [(row["key"], row["value"]) for row in left] == [(None, None), (b"key", b"value"), (b"key", None)]


def test_columns_may_come_in_another_order() -> None:
    table = pa.Table.from_pylist([commit(0, 1)], DECODED)
    shuffled = table.select(sorted(table.column_names))
    assert read_blocks(pack_first(shuffled)) == read_blocks(pack_first(table))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.text(max_size=3)), max_size=20), st.integers(0, 20))
def test_chunks_and_slices_make_no_difference(keys: list[tuple[int, str]], cut: int) -> None:
    rows = [commit(partition, number, group=group) for number, (partition, group) in enumerate(keys)]
    table = pa.Table.from_pylist([*rows, commit(9, 99)], DECODED)
    chunked = pa.concat_tables([table.slice(0, cut), table.slice(cut)]).slice(0, len(rows))
    unpacked = [read_blocks(block) for block in pack_by_shard(chunked, SHARDS).values()]
    expected = [rows_of(left) for left, _ in packed(*rows).values()]
    assert [rows_of(left.to_pylist()) for left, _ in unpacked] == expected


def rows_of(rows: list[Row]) -> list[tuple[int, int, str]]:
    return [(row["source_partition"], row["source_offset"], row["group"]) for row in rows]


def test_block_of_a_slice_holds_only_the_slice() -> None:
    rows = [commit(2 * (number % 2), number, group=f"group {number}") for number in range(10_000)]
    sizes = [len(block) for block in pack_by_shard(pa.Table.from_pylist(rows, DECODED), SHARDS).values()]
    alone = len(pack_first(pa.Table.from_pylist(rows[::2], DECODED)))
    assert len(sizes) == 2
    assert max(sizes) < 1.1 * alone


# --- counters --------------------------------------------------------------------------------------------


def counted(*rows: Row) -> Totals:
    return count_records(pa.Table.from_pylist(list(rows), PACKED_RECORDS))


COUNTED = {
    "nothing": ([], Totals()),
    "a commit": ([commit(5, 1)], Totals(decoded=1)),
    "a tombstone": ([commit(5, 1, is_tombstone=True)], Totals(decoded=1, tombstones=1)),
    "malformed bytes": ([failed(5, 1, "malformed")], Totals(malformed=1)),
    "a malformed key of a tombstone": ([failed(5, 1, "malformed", is_tombstone=True)], Totals(malformed=1)),
}


@pytest.mark.parametrize(("rows", "totals"), COUNTED.values(), ids=COUNTED.keys())
def test_records_are_counted_by_what_became_of_them(rows: list[Row], totals: Totals) -> None:
    assert counted(*rows) == totals


def test_unknown_records_are_counted_by_type_and_version_with_first_and_last() -> None:
    totals = counted(
        failed(5, 1, "unknown_type", record_type=99, value_version=None),
        failed(5, 4, "unsupported_version", record_type=1, value_version=9),
        failed(5, 6, "unknown_type", record_type=99, value_version=None),
        failed(5, 8, "unknown_type", record_type=99, value_version=0),
        failed(5, 9, "malformed"),
    )
    assert totals.malformed == 1
    assert totals.unknown == (unknown(1, 9, 1, 4, 4), unknown(99, 0, 1, 8, 8), unknown(99, None, 2, 1, 6))


def test_unknown_records_of_several_partitions_are_counted_together() -> None:
    totals = counted(
        failed(4, 70, "unknown_type", record_type=99, value_version=None),
        failed(5, 1, "unknown_type", record_type=98, value_version=None),
        failed(5, 6, "unknown_type", record_type=99, value_version=None),
    )
    [first, second] = totals.unknown
    assert (first.record_type, first.count, first.first, first.last) == (
        98,
        1,
        Position(5, 1),
        Position(5, 1),
    )
    assert (second.count, second.first, second.last) == (2, Position(4, 70), Position(5, 6))


def test_counters_of_blocks_can_be_added() -> None:
    rows = [failed(5, number, "unknown_type", record_type=99, value_version=None) for number in range(4)]
    rows += [failed(5, number, "unknown_type", record_type=99, value_version=0) for number in range(4, 6)]
    assert counted(*rows[:1]) + counted(*rows[1:]) == counted(*rows)


def unknown(record_type: int, value_version: int | None, count: int, first: int, last: int) -> UnknownRecords:
    return UnknownRecords(
        record_type=record_type,
        value_version=value_version,
        count=count,
        first=Position(5, first),
        last=Position(5, last),
    )
