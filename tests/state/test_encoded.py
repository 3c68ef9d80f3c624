"""Encoded columns: the same values as plain ones, in less memory."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.common.arrays import from_numbers
from streaming.state import encoded as module
from streaming.state.encoded import encoded, is_in, joined, plain

TEXTS = st.lists(st.sampled_from(["", "a", "a\0", "a\0b", "ü", "long " * 40, None]), max_size=30)
LIMITS = st.sampled_from([0, 20, 2**30])  # bytes of the texts that may become a dictionary


def texts(*parts: Sequence[str | None]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(part, pa.string()) for part in parts], pa.string())


def appended(column: pa.ChunkedArray, added: pa.ChunkedArray) -> pa.ChunkedArray:
    return encoded(joined([column, added], added.type))


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode more than 100 bytes in several pieces."""
    monkeypatch.setattr(module, "PIECE_BYTES", 100)


@given(first=TEXTS, second=TEXTS, changes=st.lists(st.tuples(TEXTS, st.integers(0, 5), LIMITS), max_size=5))
def test_values_are_those_of_a_plain_column(
    first: list[str | None], second: list[str | None], changes: list[tuple[list[str | None], int, int]]
) -> None:
    expected, column = [*first, *second], encoded(texts(first, second))
    for added, dropped, limit in changes:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "_MOST_BYTES", limit)
            column = appended(column.slice(dropped), texts(added))
        expected = [*expected[dropped:], *added]
        assert plain(column, pa.string()).to_pylist() == expected
        assert plain(column, pa.string()).type == pa.string()
        wanted = {"a", "a\0", "long " * 40, "other"}
        found = is_in(column, pa.array(sorted(wanted), pa.string()))
        assert found.tolist() == [text in wanted for text in expected]


@given(values=st.lists(st.none() | st.integers(-5, 5), max_size=9), added=st.lists(st.none(), max_size=3))
def test_numbers_stay_as_they_are_unless_all_are_null(
    values: list[int | None], added: list[int | None]
) -> None:
    column = pa.chunked_array([pa.array(values, pa.int64())])
    found = appended(encoded(column), pa.chunked_array([pa.array(added, pa.int64())]))
    assert plain(found, pa.int64()).to_pylist() == values + added
    assert pa.types.is_null(found.type) == (set(values + added) <= {None})


def test_repeated_texts_take_four_bytes_each_and_nulls_nothing() -> None:
    count, names = 10_000, pa.array([f"a group with a long name {number}" for number in range(10)])
    repeated = pa.chunked_array([names.take(from_numbers(np.arange(count) % 10))])
    assert encoded(repeated).nbytes < 4.1 * count < repeated.nbytes / 5
    assert encoded(texts([None] * count)).nbytes == 0


def test_different_texts_are_not_repeated_in_a_dictionary() -> None:
    different = texts([f"text {number}" for number in range(1_000)])
    assert encoded(different).equals(different)


def test_long_texts_are_not_hashed_even_if_they_are_repeated() -> None:
    long = texts(["a document of a group " * 40] * 50)
    assert encoded(long).type == pa.string()
    found = appended(encoded(texts(["short"] * 50)), long)
    assert found.type == pa.string()
    assert found.to_pylist() == ["short"] * 50 + long.to_pylist()


def test_a_dictionary_has_no_text_that_has_gone() -> None:
    column = encoded(texts(["gone"] * 10 + ["left", None] * 10))
    found = appended(column.slice(10), texts(["left", "new", "new"]))
    assert found.chunk(0).dictionary.to_pylist() == ["left", "new"]
    assert plain(found, pa.string()).to_pylist() == ["left", None] * 10 + ["left", "new", "new"]


def test_texts_of_which_all_are_gone_leave_nothing() -> None:
    column = encoded(texts(["a"] * 10))
    assert appended(column.slice(10), texts([])).nbytes == 0
    assert plain(appended(column.slice(10), texts(["b"])), pa.string()).to_pylist() == ["b"]


def test_decoding_more_than_one_array_can_hold_divides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE_BYTES", 1_000)
    column = plain(encoded(texts(["a long text, " * 10] * 50)), pa.string())
    assert len(column.chunks) > 5
    assert column.to_pylist() == ["a long text, " * 10] * 50
