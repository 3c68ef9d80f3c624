"""Records of a megabyte that hold a million things: what they cost is bounded, and nothing is dropped."""

import base64
import re
import tracemalloc
from collections.abc import Callable
from typing import Any

import group_records
import pyarrow as pa
import pytest
from group_records import Record
from hypothesis import given
from hypothesis import strategies as st

import decoders
from decoders import decode_columns
from decoders.formats import wire
from decoders.formats.consumer_protocol import ASSIGNMENT_VERSIONS, SUBSCRIPTION_VERSIONS
from decoders.formats.faults import WireError
from decoders.formats.record_types import RECORD_TYPES
from decoders.formats.wire import INT16, UUID, VARINT
from decoders.rows.reference import MESSAGE_READS, MORE_MESSAGE_READS, SEARCH_READS, parse_message
from streaming.state import members
from streaming.state.replay import Shard, replay

MEGABYTE = 1_000_000


def key(record_type: int, **names: Any) -> bytes:
    return INT16.build(record_type) + RECORD_TYPES[record_type].key.build(names)


TOPIC = UUID.build("A" * 22) + b"\1\1\0"  # a topic id, an empty name, no partitions, no tags
SHARE_KEY = key(15, groupId="g")
SHARE_VALUE = INT16.build(0) + VARINT.build(40_001) + TOPIC * 39_999 + TOPIC[:-1]
"""A share group with 40,000 topics, of which the last is cut short."""

TASKS_KEY = key(22, groupId="g", memberId="m")
TASKS_VALUE = INT16.build(0) + bytes(9) + VARINT.build(300_001) + b"\1\1\0" * 299_999 + b"\1\1"
"""A streams member with 300,000 tasks of three bytes, of which the last is cut short."""


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What `construct` reads: the path of every value of fixed size and of every varint."""
    seen: list[str] = []
    read, parse = wire._read, wire.Varint._parse

    def counted_read(stream: Any, size: int, path: str) -> bytes:
        seen.append(path)
        return read(stream, size, path)

    def counted_varint(self: wire.Varint, stream: Any, context: Any, path: str) -> int:
        seen.append(path)
        return parse(self, stream, context, path)

    monkeypatch.setattr(wire, "_read", counted_read)
    monkeypatch.setattr(wire.Varint, "_parse", counted_varint)
    return seen


def decoded(*records: tuple[bytes, bytes]) -> list[dict[str, Any]]:
    keys, values = zip(*records, strict=True)
    table = decode_columns(pa.array(keys, pa.binary()), pa.array(values, pa.binary()))
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def cut(record: Record) -> tuple[bytes, bytes]:
    """A record without its last byte."""
    key, value = record
    assert value is not None
    return key, value[:-1]


# --- looking for what is wrong ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "field"),
    [
        ((SHARE_KEY, SHARE_VALUE), r"initializingTopics\[\d+\]\..*"),
        ((TASKS_KEY, TASKS_VALUE), r"activeTasks\[\d+\]\..*"),
    ],
    ids=["40,000 topics", "300,000 tasks"],
)
def test_one_record_is_searched_up_to_a_point_and_says_so(
    record: tuple[bytes, bytes], field: str, reads: list[str]
) -> None:
    [row] = decoded(record)
    assert len(reads) <= MESSAGE_READS + MORE_MESSAGE_READS + 1
    assert row["error_kind"] == "malformed"
    assert row["document"] is None
    assert row["group"] == "g"
    assert f"value: cannot be read; why was looked for up to {row['field']} at byte " in row["reason"]
    assert f"{row['at_byte']} of {len(record[1])}, not further" in row["reason"]
    assert re.fullmatch(field, row["field"])


def test_a_flood_is_searched_little_and_ordinary_records_beside_it_wholly(reads: list[str]) -> None:
    rows = decoded(*[(SHARE_KEY, SHARE_VALUE)] * 40, cut(classic(b"")))
    assert len(reads) <= SEARCH_READS + 41 * (MESSAGE_READS + 1)
    assert {row["error_kind"] for row in rows} == {"malformed"}
    assert rows[-1]["reason"].startswith(
        "group-metadata value: expected 4 bytes for members[0].assignment at"
    )


def test_large_fields_do_not_count(reads: list[str]) -> None:
    large = cut(classic(bytes(MEGABYTE)))
    [row] = decoded(large)
    assert (row["field"], row["at_byte"]) == ("members[0].assignment", len(large[1]) - 3)
    assert "looked for" not in row["reason"]


def test_a_section_of_a_million_tags_is_searched_up_to_a_point(reads: list[str]) -> None:
    commit_key = key(1, group="g", topic="t", partition=0)
    value = INT16.build(4) + bytes(12) + b"\1" + bytes(8) + VARINT.build(400_000) + b"\x09\0" * 399_999
    [row] = decoded((commit_key, value))
    assert len(reads) <= MESSAGE_READS + MORE_MESSAGE_READS + 1
    assert (row["error_kind"], row["field"], row["topic"]) == ("malformed", "tags", "t")


def test_more_elements_than_bytes_are_refused_before_any_is_made() -> None:
    value = INT16.build(0) + VARINT.build(MEGABYTE + 2) + b"\1" * MEGABYTE
    tracemalloc.start()
    [row] = decoded((key(16, groupId="g", regularExpression="r"), value))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert row["reason"].endswith(f"expected {MEGABYTE + 1} bytes for topics at byte 5, found {MEGABYTE}")
    assert peak < 6 * MEGABYTE  # the list alone would take eight


# --- subscriptions ---------------------------------------------------------------------------------------


def classic(*subscriptions: bytes, **more: Any) -> Record:
    """A record of a classic group whose members have these subscriptions."""
    members = [
        group_records.classic_member(f"m{number}", subscription=subscription)
        for number, subscription in enumerate(subscriptions)
    ]
    return group_records.record(2, group_records.classic(*members, **more))


def subscription(topics: list[str]) -> bytes:
    return INT16.build(0) + SUBSCRIPTION_VERSIONS[0].build({"topics": topics, "userData": None})


NAMES = [f"topic-{number:06}" for number in range(65_000)]


@pytest.fixture
def topics_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The size of every subscription that is read."""
    sizes: list[int] = []
    read: Callable[[bytes], list[str] | None] = decoders.subscribed_topics

    def counted(data: bytes) -> list[str] | None:
        sizes.append(len(data))
        return read(data)

    monkeypatch.setattr(decoders, "subscribed_topics", counted)
    members._long_subscription.cache_clear()
    members._short_subscription.cache_clear()
    return sizes


def replayed(*records: Record) -> dict[str, Any]:
    """Replay records of one classic group, each in a batch of its own; return the last change."""
    shard, changes = Shard.empty(), []
    for number, record in enumerate(records):
        shard, rows = replay(shard, group_records.packed([record], first_offset=number))
        changes += rows.to_pylist()
    last: dict[str, Any] = changes[-1]
    return last


def test_a_subscription_of_a_megabyte_is_decoded_and_is_read_once(topics_read: list[int]) -> None:
    large = subscription(NAMES)
    last = replayed(*(classic(large, generation=generation) for generation in range(1, 5)))
    assert last["group_after"]["subscribed_topics"] == last["group_before"]["subscribed_topics"] == NAMES
    assert topics_read == [len(large)]


def test_members_with_the_same_subscription_have_it_read_once(topics_read: list[int]) -> None:
    same, other = subscription(["a", "b"]), subscription(["c"])
    last = replayed(classic(*[same] * 500, other), classic(*[same] * 400, generation=2))
    assert last["group_before"]["subscribed_topics"] == ["a", "b", "c"]
    assert last["group_after"]["subscribed_topics"] == ["a", "b"]
    assert sorted(topics_read) == sorted([len(same), len(other)])


def test_a_subscription_that_cannot_be_read_is_remembered_too(topics_read: list[int]) -> None:
    broken = subscription(NAMES)[:-5]
    last = replayed(classic(broken), classic(broken, generation=2))
    assert last["group_after"]["subscribed_topics"] is None
    assert topics_read == [len(broken)]


def test_subscriptions_are_not_searched_for_what_is_wrong(reads: list[str]) -> None:
    assert decoders.subscribed_topics(subscription(NAMES)[:-5]) is None
    assert decoders.subscribed_topics(subscription(NAMES)) == NAMES
    assert reads == []


@given(st.one_of(st.binary(max_size=60), st.lists(st.text(max_size=5), max_size=4).map(subscription)))
def test_subscribed_topics_are_those_that_construct_reads(data: bytes) -> None:
    for stop in range(len(data) + 1):
        try:
            expected = parse_message(SUBSCRIPTION_VERSIONS[0], data[:stop], 2)["topics"] if stop > 1 else None
        except WireError:
            expected = None
        assert decoders.subscribed_topics(data[:stop]) == expected


def assignment(topics: dict[str, list[int]]) -> bytes:
    assigned = [{"topic": topic, "partitions": numbers} for topic, numbers in topics.items()]
    fields = {"assignedPartitions": assigned, "userData": None}
    return INT16.build(1) + ASSIGNMENT_VERSIONS[1].build(fields)


TOPICS = st.dictionaries(st.text(max_size=5), st.lists(st.integers(0, 2**31 - 1), max_size=3), max_size=3)


@given(st.one_of(st.binary(max_size=40), TOPICS.map(assignment)))
def test_assigned_partitions_are_those_that_construct_reads(data: bytes) -> None:
    for stop in range(len(data) + 1):
        try:
            found = decoders.decode_assignment(data[:stop])["data"]["assignedPartitions"]
            expected = {topic["topic"]: [] for topic in found} if stop else {}
            for topic in found:
                expected[topic["topic"]] += topic["partitions"]
        except decoders.DecodeError:
            expected = None if stop else {}
        assert decoders.assigned_partitions(data[:stop]) == expected


@given(st.one_of(st.binary(max_size=40), st.none() | st.text(max_size=5)), st.integers(-1, 5))
def test_racks_are_those_that_construct_reads(rack: bytes | str | None, version: int) -> None:
    fields = {"topics": ["t"], "userData": None, "ownedPartitions": [], "generationId": 1, "rackId": rack}
    data = rack if isinstance(rack, bytes) else SUBSCRIPTION_VERSIONS[3].build(fields)
    data = INT16.build(version) + data
    try:
        expected = decoders.decode_subscription(data)["data"].get("rackId")
    except decoders.DecodeError:
        expected = None
    assert decoders.rack_of(data) == expected


def test_few_long_subscriptions_are_remembered() -> None:
    for number in range(20):
        text = base64.b64encode(subscription([f"{number}", *NAMES[:1_000]])).decode()
        assert members._subscription_of(text) == ((f"{number}", *NAMES[:1_000]), None)
    assert members._long_subscription.cache_info().currsize <= 4
