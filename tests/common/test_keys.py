"""Keys are numbered by all that they are, also what stands after a NUL."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from streaming.common.keys import key_codes, numbered

NAMES = st.text(alphabet="ab\0", max_size=3)
KEYS = st.lists(st.tuples(NAMES, NAMES, st.integers(-1, 1)), max_size=12)


def columns(keys: list[tuple[str, str, int]], cut: int) -> list[pa.ChunkedArray]:
    """The keys as columns of two chunks."""
    kinds = pa.string(), pa.string(), pa.int32()
    values = list(zip(*keys, strict=True)) or [(), (), ()]
    return [
        pa.chunked_array([column[:cut], column[cut:]], kind)
        for column, kind in zip(values, kinds, strict=True)
    ]


@given(KEYS, st.integers(0, 12))
def test_equal_keys_and_no_others_have_equal_numbers(keys: list[tuple[str, str, int]], cut: int) -> None:
    first = list(dict.fromkeys(keys))
    assert key_codes(columns(keys, cut)).tolist() == [first.index(key) for key in keys]


@given(st.lists(NAMES, max_size=12), st.integers(0, 12))
def test_values_are_numbered_in_the_order_in_which_they_come(names: list[str], cut: int) -> None:
    codes, values = numbered(pa.chunked_array([names[:cut], names[cut:]], pa.string()))
    assert values.to_pylist() == list(dict.fromkeys(names))
    assert values.take(pa.array(codes)).to_pylist() == names


def test_an_array_and_a_column_without_chunks_are_numbered_too() -> None:
    assert numbered(pa.array(["b", "a", "b"]).slice(1))[0].tolist() == [0, 1]
    codes, values = numbered(pa.chunked_array([], pa.string()))
    assert (codes.tolist(), values) == ([], pa.array([], pa.string()))
