"""The declarations: consistent, complete, and enough: what is added to them is read, shown and built."""

import json
import subprocess
import sys
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pytest
from construct import Default, Struct
from hypothesis import given
from hypothesis import strategies as st
from record_strategies import column_rows, outcome_of, table_row, values_of

from decoders import RECORD_TYPES, RecordType, decode_columns, decode_document
from decoders.columns.plan import plan_of
from decoders.formats.consumer_protocol import ASSIGNMENT_VERSIONS, SUBSCRIPTION_VERSIONS
from decoders.formats.group_parts import GROUP_KEY
from decoders.formats.java_values import ZERO_UUID
from decoders.formats.offset_commits import OFFSET_COMMIT_VALUES
from decoders.formats.wire import (
    COMPACT_NULLABLE_STRING,
    COMPACT_STRING,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    FlexibleStruct,
    compact_array,
)
from decoders.rows.reference import Message

KEYS = [pytest.param(kind.key, id=kind.name) for kind in RECORD_TYPES.values()]
VALUES = [
    pytest.param(value, id=f"{kind.name} v{version}")
    for kind in RECORD_TYPES.values()
    for version, value in kind.values.items()
]
EMBEDDED = [
    pytest.param(value, id=f"{name} v{version}")
    for name, versions in (("subscription", SUBSCRIPTION_VERSIONS), ("assignment", ASSIGNMENT_VERSIONS))
    for version, value in versions.items()
]


def with_defaults(declaration: Struct, message: Message) -> Message:
    """The message as it is parsed: a tagged field that was left out has its default."""
    tags = declaration.tags.values() if isinstance(declaration, FlexibleStruct) else ()
    return {field.name: field.subcon.value for field in tags} | message


@pytest.mark.parametrize("declaration", [*KEYS, *VALUES, *EMBEDDED])
@given(data=st.data())
def test_what_is_built_is_read(declaration: Struct, data: st.DataObject) -> None:
    message = data.draw(values_of(declaration))
    parsed = declaration.parse(declaration.build(message))
    assert declaration.build(parsed) == declaration.build(with_defaults(declaration, parsed))
    for field in declaration.subcons:
        assert without_nested_tags(parsed[field.name]) == without_nested_tags(message[field.name])


def without_nested_tags(value: Any) -> Any:
    """The value without what only some of its structs have: tagged fields, and construct's own entries."""
    if isinstance(value, list):
        return [without_nested_tags(element) for element in value]
    if isinstance(value, dict):
        kept = {name: part for name, part in value.items() if name not in ("_io", "assignmentEpochs")}
        return {name: without_nested_tags(part) for name, part in kept.items()}
    return value


@pytest.mark.parametrize("key", KEYS)
def test_every_key_begins_with_the_group(key: Struct) -> None:
    first = key.subcons[0]
    assert first.name in ("group", "groupId")
    assert first.subcon is STRING


def test_every_number_is_in_the_table_once_but_18() -> None:
    assert list(RECORD_TYPES) == [*range(18), *range(19, 24)]
    assert [kind.number for kind in RECORD_TYPES.values()] == list(RECORD_TYPES)
    assert len({kind.name for kind in RECORD_TYPES.values()}) == len(RECORD_TYPES)


def test_versions_are_counted_from_0() -> None:
    for kind in RECORD_TYPES.values():
        assert list(kind.values) == list(range(len(kind.values)))


def test_every_tagged_field_has_a_default() -> None:
    for parameter in VALUES:
        (declaration,) = parameter.values
        for field in getattr(declaration, "tags", {}).values():
            assert isinstance(field.subcon, Default)


def test_names_in_messages_are_those_of_the_records() -> None:
    assert RECORD_TYPES[1].value_subject == "offset-commit value"
    assert RECORD_TYPES[21].key_subject == "streams-group-target-assignment-member key"


def test_decoders_know_nothing_of_spark_kafka_or_tables() -> None:
    check = "import decoders, sys; print(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert not {"pyspark", "confluent_kafka", "deltalake", "streaming"} & set(done.stdout.split())


# --- one declaration and one line in the table are enough ------------------------------------------------

COMMIT_V5 = FlexibleStruct(
    "offset" / INT64,
    "leaderEpoch" / Default(INT32, -1),
    "committedBy" / COMPACT_NULLABLE_STRING,
    "metadata" / COMPACT_STRING,
    "commitTimestamp" / INT64,
    tags={0: "topicId" / Default(UUID, ZERO_UUID), 1: "producerEpoch" / Default(INT16, -1)},
)
NEW_TYPE_VALUE = FlexibleStruct(
    "epoch" / INT32,
    "parts" / compact_array(FlexibleStruct("name" / COMPACT_STRING, tags={5: "weight" / Default(INT64, 0)})),
)
EXTENDED = MappingProxyType(
    {
        **RECORD_TYPES,
        1: RecordType(
            1, "OffsetCommit", RECORD_TYPES[1].key, {**OFFSET_COMMIT_VALUES, 5: COMMIT_V5}, tabular=True
        ),
        40: RecordType(40, "NewGroupThing", GROUP_KEY, {0: NEW_TYPE_VALUE}),
    }
)
COMMIT_KEY = INT16.build(1) + RECORD_TYPES[1].key.build({"group": "g", "topic": "t", "partition": 3})
COMMIT = {"offset": 42, "leaderEpoch": -1, "metadata": "m", "commitTimestamp": 1000}


def test_columns_of_a_new_version_follow_from_its_declaration() -> None:
    value = INT16.build(5) + COMMIT_V5.build(COMMIT | {"committedBy": "é", "producerEpoch": 8})
    (row,) = column_rows([(COMMIT_KEY, value)], record_types=EXTENDED)
    assert (row["committed_by"], row["producer_epoch"], row["topic_id"]) == ("é", 8, None)
    assert (row["committed_offset"], row["leader_epoch"], row["value_version"]) == (42, None, 5)


def test_new_columns_stand_where_the_bytes_have_them_and_tags_last() -> None:
    names = plan_of(EXTENDED).schema.names
    assert names[names.index("committed_offset") : names.index("document")] == [
        "committed_offset",
        "leader_epoch",
        "committed_by",
        "metadata",
        "commit_timestamp",
        "expire_timestamp",
        "topic_id",
        "producer_epoch",
    ]


def test_older_versions_are_read_beside_a_new_one() -> None:
    batch = [
        (COMMIT_KEY, INT16.build(version) + value.build(COMMIT | {"expireTimestamp": 5, "committedBy": None}))
        for version, value in EXTENDED[1].values.items()
    ]
    rows = column_rows(batch, record_types=EXTENDED)
    assert [row["value_version"] for row in rows] == [0, 1, 2, 3, 4, 5]
    for (key, value), row in zip(batch, rows, strict=True):
        outcome = outcome_of(key, value, record_types=EXTENDED)
        assert row == table_row(key, value, outcome, EXTENDED)


def test_document_of_a_new_version_follows_from_its_declaration() -> None:
    value = INT16.build(5) + COMMIT_V5.build(COMMIT | {"committedBy": None, "producerEpoch": 8})
    document = decode_document(COMMIT_KEY, value, record_types=EXTENDED)
    assert document["value"] == {
        "version": 5,
        "data": {
            "offset": 42,
            "leaderEpoch": -1,
            "committedBy": None,
            "metadata": "m",
            "commitTimestamp": 1000,
            "producerEpoch": 8,
        },
    }


def test_document_of_a_new_type_follows_from_its_declaration() -> None:
    key = INT16.build(40) + GROUP_KEY.build({"groupId": "g"})
    message = {"epoch": 1, "parts": [{"name": "a"}, {"name": "b", "weight": 2}]}
    value = INT16.build(0) + NEW_TYPE_VALUE.build(message)
    document = decode_document(key, value, record_types=EXTENDED)
    assert document == {
        "key": {"type": 40, "data": {"groupId": "g"}},
        "value": {"version": 0, "data": message},
    }
    (row,) = column_rows([(key, value)], record_types=EXTENDED)
    assert (row["group"], json.loads(row["document"])) == ("g", document)


def test_what_is_not_in_the_table_is_named_with_the_highest_that_is() -> None:
    outcomes = [
        str(outcome_of(COMMIT_KEY, b"\0\6", record_types=EXTENDED)),
        str(outcome_of(b"\0\x63", None, record_types=EXTENDED)),
    ]
    assert outcomes == [
        "offset-commit value: expected a known version (the highest is 5) at byte 0, found 6",
        "key: expected a known record type (the highest is 40) at byte 0, found 99",
    ]


def test_field_without_a_column_is_refused_in_a_tabular_type() -> None:
    nested = FlexibleStruct("offset" / INT64, "parts" / compact_array(INT32))
    table = {1: RecordType(1, "OffsetCommit", RECORD_TYPES[1].key, {0: nested}, tabular=True)}
    with pytest.raises(TypeError, match="cannot be a column"):
        decode_columns(pa.array([b""]), pa.array([b""]), record_types=table)
