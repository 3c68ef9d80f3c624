"""Tables of more than 2 GiB of texts: rows are taken from them, and they are divided by bytes."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.common import pieces

VALUE = pa.struct([("text", pa.string()), ("texts", pa.list_(pa.struct([("t", pa.string())])))])
SCHEMA = pa.schema([("number", pa.int64()), ("text", pa.string()), ("value", VALUE)])

TEXTS = st.none() | st.text(max_size=5)
VALUES = st.none() | st.fixed_dictionaries(
    {
        "text": TEXTS,
        "texts": st.none() | st.lists(st.none() | st.fixed_dictionaries({"t": TEXTS}), max_size=3),
    }
)
ROWS = st.lists(
    st.fixed_dictionaries({"number": st.integers(0, 9), "text": TEXTS, "value": VALUES}), max_size=9
)


def table_of(rows: list[dict[str, Any]], cut: int) -> pa.Table:
    """The rows in two chunks, the first of which does not begin where its buffers do."""
    first = pa.Table.from_pylist([*rows[:1], *rows[:cut]], SCHEMA).slice(1 if rows else 0)
    return pa.concat_tables([first, pa.Table.from_pylist(rows[cut:], SCHEMA)])


def bytes_in(value: Any) -> int:
    match value:
        case str():
            return len(value.encode())
        case dict():
            return sum(map(bytes_in, value.values()))
        case list():
            return sum(map(bytes_in, value))
        case _:
            return 0


@pytest.fixture(scope="module", autouse=True, params=[None, 20], ids=["small tables", "large tables"])
def limits(request: pytest.FixtureRequest) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        if request.param:
            patch.setattr(pieces, "ARRAY_BYTES", 2 * request.param)
            patch.setattr(pieces, "PIECE_BYTES", request.param)
        yield request.param


@given(rows=ROWS, cut=st.integers(0, 9), data=st.data())
def test_rows_are_taken_by_number(rows: list[dict[str, Any]], cut: int, data: st.DataObject) -> None:
    table = table_of(rows, cut)
    numbers = data.draw(st.lists(st.integers(-1, len(rows) - 1), max_size=12))
    found = pieces.take(table, np.array(numbers, np.int64))
    assert found.schema == SCHEMA
    assert found.to_pylist() == [rows[n] if n >= 0 else dict.fromkeys(SCHEMA.names) for n in numbers]


@given(rows=ROWS, cut=st.integers(0, 9))
def test_pieces_are_the_table(rows: list[dict[str, Any]], cut: int) -> None:
    found = list(pieces.pieces(table_of(rows, cut)))
    assert [row for piece in found for row in piece.to_pylist()] == rows
    assert all(len(piece) for piece in found)


@given(rows=ROWS, cut=st.integers(0, 9))
def test_rows_are_weighed_by_their_texts(rows: list[dict[str, Any]], cut: int) -> None:
    weighed = pieces.row_bytes(table_of(rows, cut)).tolist()
    for row, weight in zip(rows, weighed, strict=True):
        lists = len((row["value"] or {}).get("texts") or ())
        assert 0 <= weight - bytes_in(row) <= 8 * (4 + lists)


@given(rows=ROWS, cut=st.integers(0, 9), most=st.integers(0, 200))
def test_dictionaries_are_weighed_as_plain_texts(rows: list[dict[str, Any]], cut: int, most: int) -> None:
    table = table_of(rows, cut).select(["text"])
    encoded = table.set_column(0, "text", table["text"].dictionary_encode())
    assert pieces.plain_bytes(table) == table.nbytes
    assert pieces.plain_bytes(encoded) >= sum(bytes_in(row["text"]) for row in rows)
    batches = [pa.Table.from_batches([batch]) for batch in encoded.to_batches()]
    found = [*pieces.joined(batches, most)]
    assert [row for one in found for row in one.to_pylist()] == table.to_pylist()
    for one in found:
        size = sum(bytes_in(row) for row in one.to_pylist())
        assert size <= most or one["text"].num_chunks == 1


def test_each_row_of_a_dictionary_weighs_as_much_as_its_text() -> None:
    encoded = pa.table({"text": pa.array([*["x" * 500] * 99, None]).dictionary_encode()})
    assert 99 * 500 <= pieces.plain_bytes(encoded) <= 101 * 508


def test_pieces_are_no_larger_than_they_may_be(limits: int | None) -> None:
    if limits is None:
        return
    rows = [{"text": "x" * length} for length in (0, 0, 0, 3, 12, 13, 0, 0, 0, 0, 40, 0)]
    table = pa.Table.from_pylist(rows, pa.schema([("text", pa.string())]))
    found = list(pieces.pieces(table))
    weights = [int(pieces.row_bytes(piece).sum()) for piece in found]
    assert all(weight <= limits or len(piece) == 1 for weight, piece in zip(weights, found, strict=True))
    assert all(
        one + int(pieces.row_bytes(after)[0]) > limits for one, after in zip(weights, found[1:], strict=False)
    )
    assert len(found) < len(rows)


def test_rows_are_taken_from_more_than_one_array_can_hold(limits: int | None) -> None:
    """4 KB of metadata in each of 600,000 rows; of which 1,000 are there, many times over."""
    if limits is not None:
        return
    chunk = pa.table({"metadata": [f"{n:04}".ljust(4096) for n in range(1_000)]})
    table = pa.concat_tables([chunk] * 600)
    assert table.nbytes > 2**31
    numbers = np.array([599_999, -1, 5, 300_007], np.int64)
    with pytest.raises(pa.ArrowInvalid, match="overflow"):  # else nothing of this is needed any more
        table.take(pa.array(numbers[:1]))
    found = pieces.take(table, numbers)["metadata"].to_pylist()
    assert [text and text[:4] for text in found] == ["0999", None, "0005", "0007"]
