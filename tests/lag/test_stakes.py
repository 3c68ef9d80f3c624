"""Lag as Kafka's tools count it, and what a reset would read again or skip."""

from typing import Any

import pyarrow as pa
import pytest

from streaming.brokers.facts import LogRange
from streaming.common.times import from_ms
from streaming.lag.log_ranges import LAG, STAKES, partitions_in, with_log_ends, with_stakes

OFFSETS = pa.table(
    {
        "topic": ["t", "t", "u", "u"],
        "partition": pa.array([0, 0, 0, 1], pa.int32()),
        "committed_offset": pa.array([1, 2, 5, None], pa.int64()),
        "metadata": ["", "", "", ""],
    }
)


def test_partitions_are_named_once() -> None:
    assert sorted(partitions_in(OFFSETS)) == [("t", 0), ("u", 0), ("u", 1)]
    assert partitions_in(OFFSETS.slice(0, 0)) == []


def test_lag_is_known_where_the_log_end_and_the_committed_offset_are() -> None:
    rows = with_log_ends(OFFSETS, {("t", 0): 9, ("u", 1): 3}, 1_000)
    assert rows.column_names[2:] == ["committed_offset", *LAG.names, "metadata"]
    assert rows["log_end_offset"].to_pylist() == [9, 9, None, 3]
    assert rows["lag"].to_pylist() == [8, 7, None, None]
    assert rows["lag_is_at_least"].to_pylist() == [False, False, None, None]
    assert rows["ends_as_of"].to_pylist() == [from_ms(1_000), from_ms(1_000), None, from_ms(1_000)]
    assert rows["lag_seconds"].null_count == 4  # brokers do not say when an end was passed
    assert with_log_ends(OFFSETS, {})["lag"].to_pylist() == [None] * 4


@pytest.mark.parametrize(
    ("log", "first", "second"),
    [
        (LogRange(0, 10), (0, 10, 9, 1, 9), (0, 10, 8, 2, 8)),
        (LogRange(2, 10), (2, 10, 9, 0, 8), (2, 10, 8, 0, 8)),  # 1 is gone unread
        (LogRange(0, 1), (0, 1, 0, 1, 0), (0, 1, -1, 1, 0)),  # 2 is beyond the end
        (None, (None,) * 5, (None,) * 5),
    ],
)
def test_stakes_are_what_a_reset_would_read_again_or_skip(
    log: LogRange | None, first: tuple[Any, ...], second: tuple[Any, ...]
) -> None:
    found = with_stakes(OFFSETS.slice(0, 2), {} if log is None else {("t", 0): log})
    assert found.schema.names == [*OFFSETS.column_names, *STAKES.names]
    columns = found.select(STAKES.names).to_pydict().values()
    assert list(zip(*columns, strict=True)) == [first, second]


def test_both_count_the_same_lag() -> None:
    logs = {("t", 0): LogRange(0, 1), ("u", 0): LogRange(7, 9)}
    ends = {partition: log.latest for partition, log in logs.items()}
    assert with_stakes(OFFSETS, logs)["lag"].equals(with_log_ends(OFFSETS, ends)["lag"])
