"""Lists of pages: their order."""

import pyarrow as pa
import pytest

from streaming.serve.page.listing import ordered

ROWS = pa.table(
    {
        "text": pa.chunked_array([["b", None], ["a", "b"]]),
        "number": pa.array([2, None, 1, 2], pa.int64()),
        "seconds": pa.array([2.5, None, float("nan"), 0.5], pa.float64()),
        "at": pa.array([2, None, 1, 2], pa.timestamp("us", tz="UTC")),
        "unknown": pa.array([None] * 4, pa.string()),
    }
)


@pytest.mark.parametrize(
    ("by", "rising", "falling"),
    [
        ("text", [2, 0, 3, 1], [0, 3, 2, 1]),
        ("number", [2, 0, 3, 1], [0, 3, 2, 1]),
        ("seconds", [3, 0, 1, 2], [0, 3, 1, 2]),
        ("unknown", [0, 1, 2, 3], [0, 1, 2, 3]),
    ],
)
def test_null_comes_last_in_both_orders_and_equal_rows_stay_in_theirs(
    by: str, rising: list[int], falling: list[int]
) -> None:
    assert ordered(ROWS, by, is_falling=False).tolist() == rising
    assert ordered(ROWS, by, is_falling=True).tolist() == falling


def test_numbers_of_64_bits_are_compared_exactly() -> None:
    rows = pa.table({"lag": pa.array([2**63 - 1, 2**53 + 1, None, 2**53, -(2**63), 2**63 - 2], pa.int64())})
    assert ordered(rows, "lag", is_falling=False).tolist() == [4, 3, 1, 5, 0, 2]
    assert ordered(rows, "lag", is_falling=True).tolist() == [0, 5, 1, 3, 4, 2]


def test_no_rows_can_be_sorted() -> None:
    for by in ROWS.column_names:
        assert ordered(ROWS.slice(0, 0), by, is_falling=True).tolist() == []
