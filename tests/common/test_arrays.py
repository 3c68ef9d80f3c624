"""Numbers and texts between Arrow and numpy: as pyarrow's own conversions, slices and chunks included."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.common.arrays import from_mask, from_numbers, from_texts, numbers_or, to_mask, to_numbers

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.text(st.characters(codec="utf-8"))))
def test_texts_are_as_pyarrow_has_them(texts: list[str]) -> None:
    assert from_texts(texts).equals(pa.array(texts, pa.string()))


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64()])
@given(numbers=st.lists(INT32, max_size=5), start=st.integers(0, 5))
def test_numbers_go_there_and_back(kind: pa.DataType, numbers: list[int], start: int) -> None:
    array = pa.array(numbers, kind)
    chunked = pa.chunked_array([array, array.slice(start)], kind)
    assert to_numbers(array.slice(start)).tolist() == numbers[start:]
    assert to_numbers(chunked).tolist() == numbers + numbers[start:]
    assert from_numbers(to_numbers(array)).equals(array)


@given(st.lists(INT64))
def test_every_other_number_is_copied_in_order(numbers: list[int]) -> None:
    assert from_numbers(np.array(numbers, np.int64)[::2]).to_pylist() == numbers[::2]


def test_nothing_has_a_type() -> None:
    assert to_numbers(pa.chunked_array([], pa.int32())).dtype == np.int32


def test_null_is_no_number() -> None:
    with pytest.raises(ValueError, match="expected no null, found 1"):
        to_numbers(pa.array([1, None]))


@given(st.lists(st.none() | INT64))
def test_nulls_go_there_and_back(numbers: list[int | None]) -> None:
    array = pa.array(numbers, pa.int64())
    is_valid = to_mask(array.is_valid())
    assert is_valid.tolist() == [number is not None for number in numbers]
    back = from_numbers(numbers_or(array, 0), is_valid)
    assert (back.to_pylist(), back.null_count) == (numbers, array.null_count)
    fractions = from_numbers(numbers_or(array, 0).astype(np.float64), is_valid)
    assert fractions.equals(array.cast(pa.float64(), safe=False))


@given(st.lists(st.none() | st.booleans()), st.integers(0, 9))
def test_booleans_go_there_and_back(values: list[bool | None], start: int) -> None:
    array = pa.array(values, pa.bool_()).slice(start)
    is_valid = to_mask(array.is_valid())
    assert from_mask(to_mask(array), is_valid).to_pylist() == values[start:]
    assert from_mask(to_mask(array)).to_pylist() == [bool(value) for value in values[start:]]
