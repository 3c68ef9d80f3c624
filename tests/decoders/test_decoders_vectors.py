"""Known bytes and what they mean, through both readers, fed in several ways."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from record_strategies import Outcome, Record, column_rows, outcome_of, table_row

from decoders import (
    DecodeError,
    ErrorKind,
    decode_assignment,
    decode_columns,
    decode_document,
    decode_subscription,
    subscribed_topics,
)

VECTORS = Path(__file__).parents[1] / "vectors"


def load(name: str) -> list[Any]:
    return json.loads((VECTORS / f"{name}.json").read_text())


def record_of(vector: dict[str, Any]) -> Record:
    key, value = (None if text is None else bytes.fromhex(text) for text in (vector["key"], vector["value"]))
    return key, value


def expected_outcome(vector: dict[str, Any]) -> Outcome:
    if "document" in vector:
        return vector["document"]
    error = vector["error"]
    return DecodeError(
        ErrorKind(error["kind"]), error["reason"], field=error["field"], at_byte=error["at_byte"]
    )


ALL = [pytest.param(vector, id=vector["name"]) for vector in load("records") + load("errors")]
WHOLE = [pytest.param(vector, id=vector["name"]) for vector in load("records")]

Decode = Callable[[bytes | None, bytes | None], dict[str, Any]]


def decode_in_rows(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    return table_row(key, value, outcome_of(key, value))


def decode_in_a_column(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    return column_rows([(key, value)])[0]


@pytest.fixture(params=[decode_in_rows, decode_in_a_column], ids=["row reader", "column reader"])
def decode(request: pytest.FixtureRequest) -> Decode:
    return request.param


@pytest.mark.parametrize("vector", ALL)
def test_record_means_what_the_vector_says(vector: dict[str, Any], decode: Decode) -> None:
    key, value = record_of(vector)
    assert decode(key, value) == table_row(key, value, expected_outcome(vector))


@pytest.mark.parametrize("vector", WHOLE)
def test_value_cut_at_any_byte_is_malformed(vector: dict[str, Any], decode: Decode) -> None:
    key, value = record_of(vector)
    whole = len(value or b"") - ("bytes after" in vector["name"])
    for size in range(whole):
        row = decode(key, (value or b"")[:size])
        assert row["error_kind"] == "malformed"
        assert (row["group"], row["committed_offset"], row["document"]) == ("g", None, None)
        assert 0 <= row["at_byte"] <= size


@pytest.mark.parametrize("vector", WHOLE)
def test_key_cut_at_any_byte_is_malformed(vector: dict[str, Any], decode: Decode) -> None:
    key, value = record_of(vector)
    assert key is not None
    for size in range(len(key) - ("bytes after" in vector["name"])):
        row = decode(key[:size], value)
        assert row["error_kind"] == "malformed"
        assert (row["group"], row["topic"], row["partition"]) == (None, None, None)
        assert 0 <= row["at_byte"] <= size


@pytest.mark.parametrize("vector", WHOLE)
def test_bytes_after_the_last_field_are_ignored(vector: dict[str, Any], decode: Decode) -> None:
    key, value = record_of(vector)
    assert key is not None
    assert decode(key + b"\0", value and value + b"\0") == decode(key, value)


# --- the whole set as one column, in every form that Arrow has for it ------------------------------------

RECORDS = [record_of(vector) for vector in load("records") + load("errors")]
ROWS = [
    table_row(*record_of(vector), expected_outcome(vector)) for vector in load("records") + load("errors")
]
KEYS = [key for key, _ in RECORDS]
VALUES = [value for _, value in RECORDS]


def in_one_array(data: list[bytes | None]) -> pa.Array:
    return pa.array(data, pa.binary())


def in_a_slice(data: list[bytes | None]) -> pa.Array:
    return pa.array([b"before", None, b"", *data, b"after"], pa.binary()).slice(3, len(data))


def in_two_chunks(data: list[bytes | None]) -> pa.ChunkedArray:
    cut = len(data) // 3
    return pa.chunked_array([pa.array(data[:cut], pa.binary()), pa.array(data[cut:], pa.binary())])


def in_many_chunks(data: list[bytes | None]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array([row], pa.large_binary()) for row in data])


def in_large_binary(data: list[bytes | None]) -> pa.Array:
    return pa.array(data, pa.large_binary())


FORMS = [in_one_array, in_a_slice, in_two_chunks, in_many_chunks, in_large_binary]


@pytest.mark.parametrize("values_form", FORMS)
@pytest.mark.parametrize("keys_form", FORMS)
def test_form_of_the_columns_does_not_matter(keys_form: Any, values_form: Any) -> None:
    assert decode_columns(keys_form(KEYS), values_form(VALUES)).to_pylist() == ROWS


def test_order_of_the_rows_is_kept() -> None:
    table = decode_columns(in_one_array(KEYS[::-1]), in_one_array(VALUES[::-1]))
    assert table.to_pylist() == ROWS[::-1]


def test_blocks_join_without_a_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decoders.columns.decode.BLOCK_ROWS", 7)
    assert decode_columns(in_one_array(KEYS), in_one_array(VALUES)).to_pylist() == ROWS


def test_many_bytes_are_decoded_in_small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    keys, values = in_one_array(KEYS), in_one_array(VALUES)
    monkeypatch.setattr("decoders.columns.decode.SMALL_BLOCK_ROWS", 3)
    monkeypatch.setattr("decoders.columns.decode.FEW_BYTES", keys.nbytes + values.nbytes)
    assert decode_columns(keys, values)["group"].num_chunks == 1
    monkeypatch.setattr("decoders.columns.decode.FEW_BYTES", keys.nbytes + values.nbytes - 1)
    assert decode_columns(keys, values)["group"].num_chunks == -(-len(KEYS) // 3)
    assert decode_columns(keys, values).to_pylist() == ROWS


def test_bytes_behind_nulls_are_not_read() -> None:
    keys = in_one_array(KEYS)
    hidden = pa.Array.from_buffers(pa.binary(), len(KEYS), [pa.py_buffer(bytes(8)), *keys.buffers()[1:]])
    rows = decode_columns(hidden, hidden).to_pylist()
    assert {row["reason"] for row in rows} == {"key: expected 2 bytes for type at byte 0, found null"}
    assert all(row["is_tombstone"] and row["value_version"] is None for row in rows)


@pytest.mark.parametrize("empty", [pa.array([], pa.binary()), pa.chunked_array([], pa.binary())])
def test_no_rows_give_an_empty_table(empty: Any) -> None:
    table = decode_columns(empty, empty)
    assert (table.num_rows, table.schema) == (0, decode_columns(pa.array([b""]), pa.array([b""])).schema)


def test_as_many_keys_as_values_are_needed() -> None:
    with pytest.raises(ValueError, match="2 keys and 1 values"):
        decode_columns(pa.array([b"", b""]), pa.array([b""]))


# --- the consumer protocol inside classic groups ---------------------------------------------------------


@pytest.mark.parametrize("vector", load("consumer_protocol"), ids=lambda vector: vector["name"])
def test_consumer_protocol_means_what_the_vector_says(vector: dict[str, Any]) -> None:
    decode = {"subscription": decode_subscription, "assignment": decode_assignment}[vector["message"]]
    assert decode(bytes.fromhex(vector["data"])) == vector["document"]


SUBSCRIPTION = bytes.fromhex(load("consumer_protocol")[0]["data"])


def test_subscribed_topics_are_read_whatever_the_version_says() -> None:
    for version in (0, 1, 3, 99, -1):
        assert subscribed_topics(version.to_bytes(2, signed=True) + SUBSCRIPTION[2:]) == ["t"]


def test_subscribed_topics_need_only_the_oldest_layout() -> None:
    oldest = SUBSCRIPTION[:13]
    assert subscribed_topics(oldest) == ["t"]
    for size in range(len(oldest)):
        assert subscribed_topics(oldest[:size]) is None


def test_newer_subscription_is_read_with_the_newest_layout() -> None:
    newer = b"\0\x09" + SUBSCRIPTION[2:] + b"what version 9 adds"
    assert decode_subscription(newer)["data"] == decode_subscription(SUBSCRIPTION)["data"]


def test_negative_version_of_a_subscription_is_refused() -> None:
    with pytest.raises(
        DecodeError, match="subscription: expected a version of 0 or more at byte 0, found -1"
    ):
        decode_subscription(b"\xff\xff" + SUBSCRIPTION[2:])


def test_broken_assignment_says_where() -> None:
    with pytest.raises(DecodeError) as caught:
        decode_assignment(bytes.fromhex("0000 00000001 0001 74 00000002 00000000"))
    assert (caught.value.field, caught.value.at_byte) == ("assignedPartitions[0].partitions[1]", 17)


def test_document_of_a_bad_record_is_an_error_with_its_place() -> None:
    with pytest.raises(DecodeError) as caught:
        decode_document(bytes.fromhex("000100016700017400000003"), b"\0\3")
    assert (caught.value.kind, caught.value.field, caught.value.at_byte) == ("malformed", "offset", 2)
