"""The row reader and its fast sibling: the same documents, the same errors, for every type and any damage."""

import json

import pytest
from hypothesis import given
from record_strategies import Record, arbitrary_records, damaged_records, outcome_of, records

from decoders import DecodeError, ErrorKind, decode_document, document_parts
from decoders.formats.group_parts import GROUP_KEY
from decoders.formats.record_types import RECORD_TYPES
from decoders.formats.wire import INT16, INT32, INT64, VARINT
from decoders.rows.documents import UNREADABLE, document_text, reader_of
from decoders.rows.reference import parse_message

GROUP_KEY_17 = bytes.fromhex("0011000167")


def fast_outcome(key: bytes | None, value: bytes | None) -> object:
    try:
        return json.loads(document_text(key, value))
    except DecodeError as error:
        return error


def assert_same(record: Record) -> None:
    by_construct, by_derived_reader = outcome_of(*record), fast_outcome(*record)
    if isinstance(by_construct, DecodeError):
        assert isinstance(by_derived_reader, DecodeError)
        assert vars(by_derived_reader) == vars(by_construct)
    else:
        assert by_derived_reader == by_construct


@given(records())
def test_valid_records(record: Record) -> None:
    assert_same(record)
    assert not isinstance(outcome_of(*record), DecodeError)


@given(records())
def test_a_document_has_two_parts(record: Record) -> None:
    whole = decode_document(*record)
    key, value = document_parts(document_text(*record))
    assert key == whole["key"]["data"]
    assert (None if value is None else json.loads(value)) == (whole["value"] and whole["value"]["data"])


@given(records())
def test_derived_reader_needs_no_help_with_valid_records(record: Record) -> None:
    key, value = record
    assert key is not None
    kind = RECORD_TYPES[int.from_bytes(key[:2])]
    messages = [(kind.key, key)]
    if value is not None:
        messages.append((kind.values[int.from_bytes(value[:2])], value))
    for declaration, data in messages:
        text, stop = reader_of(declaration)(data, 2)
        assert json.loads(text) == parse_message(declaration, data, 2)
        assert stop == len(data)


def test_derived_reader_refuses_what_is_cut_anywhere() -> None:
    data = GROUP_KEY.build({"groupId": "group"})
    for size in range(len(data)):
        with pytest.raises(UNREADABLE):
            reader_of(GROUP_KEY)(data[:size], 0)


@given(damaged_records())
def test_damaged_records(record: Record) -> None:
    assert_same(record)


@given(arbitrary_records())
def test_arbitrary_bytes(record: Record) -> None:
    assert_same(record)


@given(records())
def test_tombstone_has_no_value(record: Record) -> None:
    key, _ = record
    document = decode_document(key, None)
    assert document["value"] is None
    assert set(document["key"]) == {"type", "data"}


def test_document_is_in_the_order_of_the_schema() -> None:
    tags = [(1, b"\1"), (0, INT32.build(5))]  # in descending order, the first one its default
    value = INT16.build(0) + INT32.build(1) + INT64.build(2) + VARINT.build(2)
    value += b"".join(VARINT.build(tag) + VARINT.build(len(content)) + content for tag, content in tags)
    assert document_text(GROUP_KEY_17, value) == (
        '{"key":{"type":17,"data":{"groupId":"g"}},'
        '"value":{"version":0,"data":{"epoch":1,"metadataHash":2,"validatedTopologyEpoch":5}}}'
    )


def test_explicit_null_of_a_tag_is_shown_and_its_default_is_not() -> None:
    declaration = RECORD_TYPES[17].values[0]
    message = {"epoch": 1, "metadataHash": 2}

    def shown(**tags: object) -> object:
        value = INT16.build(0) + declaration.build(message | tags)
        assert_same((GROUP_KEY_17, value))
        return decode_document(GROUP_KEY_17, value)["value"]["data"]

    assert shown(lastAssignmentConfigs=None) == message | {"lastAssignmentConfigs": None}
    assert shown(lastAssignmentConfigs=[]) == message
    assert shown() == message


def test_escapes_are_kafkas() -> None:
    key = INT16.build(2) + INT16.build(8) + b'\x1f"\\u001f'
    assert document_text(key, None) == (
        '{"key":{"type":2,"data":{"group":"' + r"\u001F\"\\u001f" + '"}},"value":null}'
    )


def test_error_is_a_value_error_with_its_facts() -> None:
    with pytest.raises(ValueError, match="found 18") as caught:
        decode_document(b"\0\x12", None)
    assert vars(caught.value) == {
        "kind": ErrorKind.UNKNOWN_TYPE,
        "reason": "key: expected a known record type (the highest is 23) at byte 0, found 18",
        "field": "type",
        "at_byte": 0,
    }


def test_huge_counts_are_refused_before_anything_is_made_of_them() -> None:
    value = bytes.fromhex("0000") + VARINT.build(2**31 - 1)
    with pytest.raises(DecodeError, match="expected 2147483646 bytes for topicPartitions at byte 7, found 0"):
        decode_document(bytes.fromhex("0007000167" + "00016d"), value)
