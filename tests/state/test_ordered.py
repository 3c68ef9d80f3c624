"""The rows of a base are in an order in which those of some keys are found."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.packing import codec
from streaming.state.layers import LayerChange, Layers
from streaming.state.ordered import ORDER, Ranges, in_order, is_ordered
from streaming.state.stored import Values

SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("topic", pa.string()),
        ("group", pa.string()),
        ("value", pa.int64()),
        ("source_partition", pa.int32()),
    ]
)
Key = tuple[str, int, str, int]

KEYS = st.tuples(
    st.sampled_from(["g", "g\0", "", "ü-😀"]),
    st.sampled_from([0, 3]),
    st.sampled_from(["t", "t\0"]),
    st.sampled_from([0, 1, 2, 2**31 - 1]),
)


def to_table(keys: list[Key], value: int = 0) -> pa.Table:
    columns = dict(zip(ORDER, zip(*keys, strict=True), strict=True)) if keys else dict.fromkeys(ORDER, ())
    columns["value"] = (value,) * len(keys)
    return pa.table(
        [pa.array(columns[name], SCHEMA.field(name).type) for name in SCHEMA.names], schema=SCHEMA
    )


def keys_of(rows: pa.Table) -> list[Key]:
    return [tuple(row[name] for name in ORDER) for row in rows.select(ORDER).to_pylist()]


@given(first=st.lists(KEYS, unique=True, max_size=40), batches=st.lists(st.sets(KEYS), max_size=3))
def test_each_rewritten_base_with_dictionaries_is_ordered(first: list[Key], batches: list[set[Key]]) -> None:
    layers, expected = Layers.of(to_table(first)).rewritten(), dict.fromkeys(first, 0)
    for number, batch in enumerate(batches, start=1):
        held = keys_of(layers.table)
        stale = [place for place, key in enumerate(held) if key in batch or place % 5 == number]
        layers = layers.after([LayerChange(np.array(stale, np.int64), to_table(sorted(batch), number))])
        gone = {held[place] for place in stale}
        expected = {key: value for key, value in expected.items() if key not in gone}
        expected |= dict.fromkeys(batch, number)
        layers = layers.rewritten()
        table = layers.table
        assert dict(zip(keys_of(table), table["value"].to_pylist(), strict=True)) == expected
        assert table.schema == SCHEMA
        [base] = layers.bases
        if is_ordered(base):
            assert in_order(base).tolist() == [*range(len(expected))]


@given(
    keys=st.lists(KEYS, unique=True, min_size=10, max_size=40),
    wanted=st.lists(KEYS, min_size=1),
    replaced=st.sets(st.integers(0, 9)),
    cut=st.integers(0, 9),
)
def test_rows_are_found_by_group_and_by_key(
    keys: list[Key], wanted: list[Key], replaced: set[int], cut: int
) -> None:
    [base] = Layers.of(to_table(keys)).rewritten().bases
    if not is_ordered(base):
        return
    base = pa.concat_tables([base.slice(0, cut), base.slice(cut)])  # chunks, as in a file of many bytes
    held = keys_of(Layers((base,), SCHEMA.empty_table()).table)
    asked = to_table([*wanted, ("another", 0, "t", 0), ("g", 1, "t", 0), ("g", 0, "another", 0)])
    partitions, placed = (asked[name].to_numpy() for name in ("partition", "source_partition"))
    ranges = Ranges.of(base, asked["group"], placed)
    found = ranges.places(np.arange(len(asked)), asked["topic"], partitions)
    assert [held[place] if place >= 0 else None for place in found] == [
        key if key in held else None for key in keys_of(asked)
    ]
    first = ranges.first(np.array(sorted(replaced), np.int64))
    for key, start, stop, place in zip(keys_of(asked), ranges.start, ranges.stop, first, strict=True):
        own = [number for number, other in enumerate(held) if other[:2] == key[:2]]
        assert [*range(start, stop)] == own
        assert place == next((number for number in own if number not in replaced), -1)


@pytest.mark.parametrize("odd", [-1, 2**31 - 1])
def test_rows_with_numbers_of_many_bits_are_ordered(odd: int) -> None:
    groups = [f"group {number}" for number in range(40)]
    keys = [(group, placed, "t", number) for number in (odd, 0) for placed in (2**30, 0) for group in groups]
    [base] = Layers.of(to_table(keys)).rewritten().bases
    assert is_ordered(base)
    rows = keys_of(Layers((base,), SCHEMA.empty_table()).table)
    assert rows == sorted(keys, key=lambda key: (groups.index(key[0]), *key[1:]))


def test_a_base_that_is_read_from_many_record_batches_is_ordered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "_WRITTEN_ROWS", 7)
    keys = [(f"g{number % 9}", number % 3, f"t{number % 5}", number) for number in range(100)]
    written = Values.of(Layers.of(to_table(keys)))
    data = written.bases[0].data
    assert data is not None
    [base] = Values.read([data], written.recent).layers().bases
    assert is_ordered(base)
    assert in_order(base).tolist() == [*range(100)]
