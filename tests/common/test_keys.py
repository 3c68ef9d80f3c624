"""Keys are numbered by all that they are, also what stands after a NUL."""

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.common import keys as common_keys
from streaming.common.keys import KEY_NAMES, Numbering, key_codes, leading, numbered

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


def test_values_of_a_dictionary_keep_its_order_and_those_without_a_row_get_no_number() -> None:
    chunks = [pa.array(names).dictionary_encode() for names in (["x", "b\0", "b", "b"], ["a", "b"])]
    column = pa.chunked_array([chunks[0].slice(2), chunks[1]])
    codes, values = numbered(column)
    assert (codes.tolist(), values.to_pylist()) == ([0, 0, 1, 0], ["b", "a"])
    codes, values = numbered(column.slice(0, 0))
    assert (len(codes), len(values), values.type) == (0, 0, pa.string())
    codes, values = numbered(pa.chunked_array([], column.type))
    assert (len(codes), len(values), values.type) == (0, 0, pa.string())
    with pytest.raises(ValueError, match="expected no null"):
        numbered(pa.array(["a", None]).dictionary_encode())


def test_an_array_and_a_column_without_chunks_are_numbered_too() -> None:
    assert numbered(pa.array(["b", "a", "b"]).slice(1))[0].tolist() == [0, 1]
    codes, values = numbered(pa.chunked_array([], pa.string()))
    assert (codes.tolist(), values) == ([], pa.array([], pa.string()))


def with_dictionaries(rows: pa.Table) -> pa.Table:
    """Return rows whose texts have a dictionary for every seven rows, as row groups have."""
    parts = [rows.slice(start, 7) for start in range(0, len(rows), 7)]
    columns = [
        pa.chunked_array(
            [part[name].combine_chunks().dictionary_encode() for part in parts],
            pa.dictionary(pa.int32(), pa.string()),
        )
        for name in KEY_NAMES[:2]
    ]
    return pa.table([*columns, rows["partition"]], KEY_NAMES)


def test_a_null_in_a_dictionary_is_no_known_key() -> None:
    numbering, _ = Numbering.of(pa.table({"group": ["b", "a"]}), ["group"])
    groups = pa.array(["a", None, "c", "b"]).dictionary_encode()
    assert numbering.codes_of(pa.table({"group": groups})).tolist() == [1, -1, -1, 0]


@pytest.mark.parametrize("table_size", [1, 2**23])
def test_keys_are_found_among_other_rows_by_the_number_they_have(
    table_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common_keys, "_TABLE_SIZE", table_size)
    chance = random.Random(3)

    def rows(count: int, names: str) -> pa.Table:
        texts = [[chance.choice(names) + "\0" * chance.randint(0, 1) for _ in range(count)] for _ in "gt"]
        numbers = pa.array([chance.choice([0, 1, 2**31 - 1]) for _ in range(count)], pa.int32())
        return pa.table([*(pa.array(column, pa.string()) for column in texts), numbers], KEY_NAMES)

    held, others = rows(60, "ab"), rows(200, "abc")
    numbering, codes = Numbering.of(held, KEY_NAMES)
    known = {tuple(row.values()): code for row, code in zip(held.to_pylist(), codes.tolist(), strict=True)}
    assert codes.tolist() == key_codes(held.columns).tolist()
    expected = [known.get(tuple(row.values()), -1) for row in others.to_pylist()]
    assert numbering.codes_of(others).tolist() == expected
    assert numbering.codes_of(with_dictionaries(others)).tolist() == expected
    assert {-1} < set(expected)
    nothing = rows(0, "a")
    assert numbering.codes_of(nothing).tolist() == Numbering.of(nothing, KEY_NAMES)[1].tolist() == []
    assert numbering.codes_of(with_dictionaries(nothing)).tolist() == []
    assert Numbering.of(nothing, KEY_NAMES)[0].codes_of(others).tolist() == [-1] * len(others)


def test_the_row_that_leads_is_the_first_in_order() -> None:
    chance = np.random.default_rng(5)
    codes = np.append(np.arange(7), chance.integers(0, 7, 200))
    columns = [chance.integers(-3, 3, len(codes)) for _ in range(3)]
    order = np.lexsort((np.arange(len(codes)), *columns[::-1], codes))
    starts = np.searchsorted(codes[order], np.arange(7))
    assert leading(codes, *columns).tolist() == order[starts].tolist()
    assert leading(np.empty(0, np.int64), np.empty(0, np.int64)).tolist() == []
