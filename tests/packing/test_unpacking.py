"""Blocks are read a few offsets partitions at a time, however the records are divided into blocks."""

from io import BytesIO

import pyarrow as pa
import pytest
from blocks_read import read_blocks
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.model.schemas import PACKED_RECORDS
from streaming.model.totals import Position, Totals, UnknownRecords
from streaming.packing import unpacking
from streaming.packing.codec import pack
from streaming.packing.unpacking import PackedBlocks

Place = tuple[int, int]

tasks = st.lists(
    st.tuples(st.lists(st.integers(0, 12), max_size=4), st.lists(st.integers(1, 8), max_size=8)), max_size=3
)
"""Of each task: how many records its offsets partitions have, and how many go into one block."""


def blocks_of(read: list[tuple[list[int], list[int]]]) -> list[bytes]:
    """Pack the records of tasks that read their offsets partitions one after the other."""
    blocks, first = list[bytes](), 0
    for counts, sizes in read:
        places = [(first + number, offset) for number, count in enumerate(counts) for offset in range(count)]
        first += len(counts)
        for size in [*sizes, len(places)]:
            some, places = places[:size], places[size:]
            blocks += [pack(records_at(some), Totals(decoded=len(some)))]
    return blocks


def records_at(places: list[Place]) -> pa.Table:
    rows = [{"source_partition": partition, "source_offset": offset} for partition, offset in places]
    return pa.Table.from_pylist(rows, PACKED_RECORDS)


def places_of(records: pa.Table) -> list[Place]:
    columns = (records[name].to_pylist() for name in ("source_partition", "source_offset"))
    return list(zip(*columns, strict=True))


@settings(deadline=None)
@given(tasks, st.integers(1, 20), st.randoms(use_true_random=False))
def test_each_offsets_partition_is_in_one_slice_and_whole(
    read: list[tuple[list[int], list[int]]], most: int, random: object
) -> None:
    blocks = blocks_of(read) or [pack(records_at([]), Totals())]
    random.shuffle(blocks)  # type: ignore[attr-defined] # tasks answer in any order
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unpacking, "SLICE_RECORDS", most)
        slices = [places_of(records) for records in PackedBlocks(blocks, BytesIO()).slices()]
    counts = [count for own, _ in read for count in own]
    everything = [(partition, offset) for partition, count in enumerate(counts) for offset in range(count)]
    assert sorted(place for places in slices for place in places) == everything
    in_slices = [{partition for partition, _ in places} for places in slices]
    assert sum(map(len, in_slices)) == len(set[int]().union(*in_slices))
    assert PackedBlocks(blocks, BytesIO()).totals == Totals(decoded=len(everything))


def test_no_more_is_held_than_blocks_of_a_few_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "SLICE_RECORDS", 10)
    blocks = blocks_of([([8] * 50, [5] * 80)])
    assert max(len(records) for records in PackedBlocks(blocks, BytesIO()).slices()) <= 10 + 2 * 5 + 8


def test_an_offsets_partition_of_many_blocks_is_put_together_once(monkeypatch: pytest.MonkeyPatch) -> None:
    divided = list[int]()
    divide = unpacking._divided

    def noted(records: pa.Table, follower: int) -> tuple[pa.Table, pa.Table]:
        divided.append(len(records))
        return divide(records, follower)

    monkeypatch.setattr(unpacking, "SLICE_RECORDS", 10)
    monkeypatch.setattr(unpacking, "_divided", noted)
    blocks = blocks_of([([3, 400, 3], [5] * 100)])
    assert sorted(map(len, PackedBlocks(blocks, BytesIO()).slices())) == [3, 3, 400]
    assert sum(divided) < 2 * 406


def test_the_first_unknown_record_of_an_offsets_partition_stays_the_first() -> None:
    """Tasks read partitions in any order: here 2 before 1, so the lowest block holds the end of 2."""
    blocks = [pack(records_at(places), unknown_at(places)) for places in ([(2, 0), (2, 1)], [(1, 0), (2, 2)])]
    [unknown] = PackedBlocks(blocks, BytesIO()).totals.unknown
    assert (unknown.first, unknown.count) == (Position(2, 0), 4)


def unknown_at(places: list[Place]) -> Totals:
    """What is counted of records that are all of one unknown type."""
    first, last = (Position(*place) for place in (min(places), max(places)))
    kind = UnknownRecords(record_type=99, value_version=0, count=len(places), first=first, last=last)
    return Totals(unknown=(kind,))


def test_records_that_were_all_dropped_leave_one_empty_slice() -> None:
    records, totals = read_blocks(pack(records_at([]), Totals(wrong_partition=3)))
    assert (len(records), totals.wrong_partition) == (0, 3)
    assert records.schema == PACKED_RECORDS
