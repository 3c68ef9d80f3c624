"""Warnings about positions of a reset file: a few lines, however many positions are doubtful."""

import tracemalloc

import numpy as np
import pyarrow as pa

from streaming.common.arrays import from_numbers, from_texts
from streaming.lag.restoring import LOG_UNKNOWN, NEGATIVE
from streaming.queries.reset_csv import doubts


def positions(*rows: tuple[str, str, int, int | None, str | None]) -> pa.Table:
    names = ["group", "topic", "partition", "committed_offset", "warning"]
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])


def test_doubts_are_grouped_and_the_first_places_are_named_in_the_order_of_the_rows() -> None:
    many = [("b", "t", number, number, LOG_UNKNOWN) for number in range(6, -1, -1)]
    others = [("a\0", "t", 0, -1, NEGATIVE), ("a", "t", 2, None, LOG_UNKNOWN), ("a", "t", 3, 5, None)]
    table = positions(*many, *others)
    places = "; ".join(f"t:{number}, offset {number}" for number in range(6, 1, -1))
    expected = [
        f"group 'a': t:2: {LOG_UNKNOWN}",
        f"group 'a\\x00': t:0, offset -1: {NEGATIVE}",
        f"group 'b': {places}; and 2 more: {LOG_UNKNOWN}",
    ]
    assert list(doubts(table)) == list(doubts(table, most=3)) == expected
    assert list(doubts(table, most=2)) == [*expected[:2], "and 7 more offsets"]
    assert list(doubts(table, most=0)) == ["and 9 more offsets"]
    assert list(doubts(table.slice(9))) == list(doubts(table.slice(9), most=5)) == []


def test_no_python_objects_are_made_of_positions_that_are_not_named() -> None:
    count = 20_000
    columns = {
        "group": from_texts([f"group-{number // 10}" for number in range(count)]),
        "topic": pa.repeat("topic", count),
        "partition": from_numbers(np.arange(count, dtype=np.int32) % 10),
        "committed_offset": from_numbers(np.arange(count)),
        "warning": pa.repeat(LOG_UNKNOWN, count),
    }
    table = pa.table(columns)
    tracemalloc.start()
    try:
        assert len(list(doubts(table, most=5))) == 6
        assert tracemalloc.get_traced_memory()[1] < 3_000_000
    finally:
        tracemalloc.stop()
