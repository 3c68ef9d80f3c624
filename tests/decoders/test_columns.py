"""The column reader agrees with the row reader, row by row, whatever the bytes."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_strategies import (
    Record,
    arbitrary_records,
    column_rows,
    damaged_records,
    outcome_of,
    records,
    table_row,
    with_plain_escapes,
)

from decoders import RECORD_SCHEMA, decode_columns
from decoders.columns.messages import MAX_TAG_PASSES
from decoders.formats.wire import INT16, INT64, UUID, VARINT

COMMIT_KEY = bytes.fromhex("000100016700017400000003")
COMMIT_V4 = bytes.fromhex("0004000000000000002affffffff026d00000000000003e8")  # up to its tags
TOPIC_ID = bytes.fromhex("00000000000000010000000000000002")


def assert_readers_agree(batch: list[Record]) -> None:
    rows = [with_plain_escapes(row) for row in column_rows(batch)]
    assert rows == [table_row(key, value, outcome_of(key, value)) for key, value in batch]


@given(st.lists(records(), max_size=8))
def test_valid_records(batch: list[Record]) -> None:
    assert_readers_agree(batch)
    assert all(row["error_kind"] is None for row in column_rows(batch))


@given(st.lists(records(type_ids=(0, 1)), max_size=16))
def test_valid_offset_commits(batch: list[Record]) -> None:
    assert_readers_agree(batch)
    assert all(row["error_kind"] is None for row in column_rows(batch))


@given(st.lists(damaged_records(), max_size=8))
def test_damaged_records(batch: list[Record]) -> None:
    assert_readers_agree(batch)


@given(st.lists(arbitrary_records(), max_size=16))
def test_arbitrary_bytes(batch: list[Record]) -> None:
    assert_readers_agree(batch)


def tag(number: int, content: bytes) -> bytes:
    return VARINT.build(number) + VARINT.build(len(content)) + content


def topic_id_of(tags: list[bytes]) -> str | None:
    value = COMMIT_V4 + VARINT.build(len(tags)) + b"".join(tags)
    assert_readers_agree([(COMMIT_KEY, value), (COMMIT_KEY, COMMIT_V4 + b"\0"), (COMMIT_KEY, value)])
    row, *_ = column_rows([(COMMIT_KEY, value)])
    assert row["error_kind"] is None
    return row["topic_id"]


@pytest.mark.parametrize("others", [0, 1, MAX_TAG_PASSES - 1, MAX_TAG_PASSES, MAX_TAG_PASSES + 1, 500])
def test_tag_is_found_among_unknown_ones(others: int) -> None:
    unknown = [tag(100 + number, b"?" * number) for number in range(others)]
    expected = UUID.parse(TOPIC_ID)
    assert topic_id_of([tag(0, TOPIC_ID), *unknown]) == expected
    assert topic_id_of([*unknown, tag(0, TOPIC_ID)]) == expected
    assert topic_id_of(unknown) is None


@pytest.mark.parametrize("others", [0, MAX_TAG_PASSES])
def test_last_of_repeated_tags_wins(others: int) -> None:
    unknown = [tag(1, b"")] * others
    assert topic_id_of([tag(0, TOPIC_ID), *unknown, tag(0, TOPIC_ID[::-1])]) == UUID.parse(TOPIC_ID[::-1])
    assert topic_id_of([tag(0, TOPIC_ID), *unknown, tag(0, bytes(16))]) is None


def test_declared_size_of_a_known_tag_is_not_looked_at() -> None:
    assert topic_id_of([b"\0\0" + TOPIC_ID]) == UUID.parse(TOPIC_ID)


def test_tag_count_over_31_bits_is_none_as_in_java() -> None:
    value = COMMIT_V4 + bytes.fromhex("ffffffff0f")
    assert column_rows([(COMMIT_KEY, value)])[0]["error_kind"] is None


def test_hostile_tag_count_ends_early() -> None:
    value = COMMIT_V4 + VARINT.build(2**31 - 1) + b"\1\0" * 50_000
    assert column_rows([(COMMIT_KEY, value)])[0]["at_byte"] == len(COMMIT_V4) + 5


@pytest.mark.parametrize(
    ("bytes_", "text"),
    [
        (b"\xed\xa0\x80", "\ufffd"),
        (b"\xed\xa0", "\ufffd"),
        (b"\xed\xa0A", "\ufffdA"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"\xf0\x9f\x98\x80", "\N{GRINNING FACE}"),
        (b"\xf0\x9f\x98", "\ufffd"),
        (b"\0", "\0"),
    ],
)
def test_text_is_read_as_java_reads_it_beside_sound_text(bytes_: bytes, text: str) -> None:
    def value(metadata: bytes) -> bytes:
        return bytes(10) + INT16.build(len(metadata)) + metadata + bytes(8)

    batch = [(COMMIT_KEY, value(metadata)) for metadata in (b"plain", bytes_, b"", "é".encode())]
    assert [row["metadata"] for row in column_rows(batch)] == ["plain", text, "", "é"]
    assert_readers_agree(batch)


def test_none_is_null_and_minus_one_elsewhere_is_a_value() -> None:
    value = INT16.build(1) + INT64.build(-1) + INT16.build(0) + INT64.build(-1) + INT64.build(-1)
    (row,) = column_rows([(COMMIT_KEY, value)])
    assert (row["committed_offset"], row["metadata"], row["commit_timestamp"]) == (-1, "", -1)
    assert row["expire_timestamp"] is None


def test_schema_is_the_contract() -> None:
    assert {field.name: str(field.type) for field in RECORD_SCHEMA} == {
        "record_type": "int16",
        "value_version": "int16",
        "is_tombstone": "bool",
        "group": "string",
        "topic": "string",
        "partition": "int32",
        "committed_offset": "int64",
        "leader_epoch": "int32",
        "metadata": "string",
        "commit_timestamp": "int64",
        "expire_timestamp": "int64",
        "topic_id": "string",
        "document": "string",
        "error_kind": "string",
        "reason": "string",
        "field": "string",
        "at_byte": "int32",
    }


def test_types_of_the_table_are_those_of_the_schema() -> None:
    table = decode_columns(pa.array([COMMIT_KEY, None]), pa.array([None, None], pa.binary()))
    assert table.schema == RECORD_SCHEMA
