"""Members have what the log says they have, under names or ids of topics; what it does not say is null."""

from typing import Any

import pytest
from group_records import (
    Record,
    classic,
    classic_member,
    consumer_current,
    consumer_member,
    packed,
    record,
    share_current,
    share_member,
    streams_current,
    streams_member,
)

from decoders.formats.consumer_protocol import ASSIGNMENT_VERSIONS, SUBSCRIPTION_VERSIONS
from streaming.state import members
from streaming.state.replay import Shard, replay

ID, OTHER_ID = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"
DETAILS = (
    "assignment",
    "assignment_bytes",
    "is_classic",
    "rack_id",
    "subscribed_regex",
    "subscribed_topics",
    "subscription_bytes",
    "target_assignment",
)


def assignment(**topics: list[int]) -> bytes:
    assigned = [{"topic": topic, "partitions": numbers} for topic, numbers in topics.items()]
    return b"\0\3" + ASSIGNMENT_VERSIONS[3].build({"assignedPartitions": assigned, "userData": b"kept"})


def subscription(rack: str | None, *topics: str) -> bytes:
    more = {"userData": None, "ownedPartitions": [], "generationId": 1, "rackId": rack}
    return b"\0\3" + SUBSCRIPTION_VERSIONS[3].build({"topics": topics, **more})


def member_of(*records: Record) -> dict[str, Any]:
    """The only member of the group that consists of these records."""
    _, changes = replay(Shard.empty(), packed(records))
    [change] = changes.to_pylist()
    [member] = change["group_after"]["members"]
    return {**member, "assignment_epoch": change["group_after"]["assignment_epoch"]}


def has(**of: Any) -> dict[str, Any]:
    return {"topic": None, "topic_id": None, "subtopology": None, "task_type": None} | of


def topics(*partitions: tuple[str, list[int]]) -> list[dict[str, Any]]:
    return [{"topicId": topic, "partitions": numbers} for topic, numbers in partitions]


def test_a_classic_member_has_what_its_bytes_say_and_the_bytes() -> None:
    says, gets = subscription("r1", "u", "t"), assignment(u=[7], t=[3, 1])
    member = member_of(record(2, classic(classic_member("m", subscription=says, assignment=gets))))
    assert member["assignment"] == [
        has(topic="t", partitions=[3, 1]),
        has(topic="u", partitions=[7]),
    ]
    assert (member["subscribed_topics"], member["rack_id"]) == (["t", "u"], "r1")
    assert (member["subscription_bytes"], member["assignment_bytes"]) == (says, gets)
    assert member["member_epoch"] is member["target_assignment"] is member["assignment_epoch"] is None


def test_a_classic_member_without_an_assignment_has_nothing() -> None:
    member = member_of(record(2, classic(classic_member("m", "t", assignment=b""))))
    assert (member["assignment"], member["assignment_bytes"]) == ([], b"")


@pytest.mark.parametrize("gets", [b"\0", b"\xff\xff\0\0\0\0", assignment(t=[1])[:-9]])
def test_what_cannot_be_read_is_not_known_and_its_bytes_are_kept(gets: bytes) -> None:
    member = member_of(record(2, classic(classic_member("m", "t", assignment=gets))))
    assert (member["assignment"], member["assignment_bytes"]) == (None, gets)
    assert member["subscribed_topics"] == ["t"]


def test_of_another_protocol_type_only_the_bytes_are_known() -> None:
    worker = classic_member("m", subscription=b"\1", assignment=assignment(t=[1]))
    member = member_of(record(2, classic(worker, protocol_type="connect", protocol="sessioned")))
    assert (member["assignment"], member["subscribed_topics"], member["rack_id"]) == (None, None, None)
    assert (member["subscription_bytes"], member["assignment_bytes"]) == (b"\1", assignment(t=[1]))


def consumer(*more: Record, **fields: Any) -> list[Record]:
    return [
        record(5, {**consumer_member("u", "t"), "rackId": "r1", **fields}, "m"),
        record(3, {"epoch": 4}),
        record(6, {"assignmentEpoch": 4}),
        record(7, {"topicPartitions": topics((ID, [0, 1]), (OTHER_ID, [5]))}, "m"),
        record(8, {**consumer_current(3), "assignedPartitions": topics((ID, [0]))}, "m"),
        *more,
    ]


def test_a_member_of_a_consumer_group_has_topics_by_id() -> None:
    member = member_of(*consumer(classicMemberMetadata=None))
    assert member["assignment"] == [has(topic_id=ID, partitions=[0])]
    assert member["target_assignment"] == [
        has(topic_id=ID, partitions=[0, 1]),
        has(topic_id=OTHER_ID, partitions=[5]),
    ]
    assert (member["member_epoch"], member["assignment_epoch"]) == (3, 4)
    assert (member["rack_id"], member["subscribed_topics"]) == ("r1", ["t", "u"])
    assert member["is_classic"] is False
    assert member["subscription_bytes"] is member["assignment_bytes"] is None


def test_names_that_stand_beside_ids_in_the_log_are_reported() -> None:
    named = {"topicId": ID, "topicName": "t", "numPartitions": 2, "partitionMetadata": []}
    member = member_of(*consumer(record(4, {"topics": [named]})))
    assert member["assignment"] == [has(topic="t", topic_id=ID, partitions=[0])]
    assert [one["topic"] for one in member["target_assignment"]] == ["t", None]


def test_a_member_that_speaks_the_classic_protocol_is_distinguished() -> None:
    old = {"sessionTimeoutMs": 10, "supportedProtocols": [{"name": "range", "metadata": b"\0\1"}]}
    assert member_of(*consumer(classicMemberMetadata=old))["is_classic"] is True


def test_a_member_of_a_share_group_has_topics_whose_names_come_with_their_state() -> None:
    current = {**share_current(2), "assignedPartitions": topics((ID, [0, 1]))}
    initialized = [{"topicId": ID, "topicName": "t", "partitions": [0, 1]}]
    state = {"initializingTopics": [], "initializedTopics": initialized, "deletingTopics": []}
    records = [
        record(10, share_member("t"), "m"),
        record(11, {"epoch": 2, "metadataHash": 0}),
        record(13, {"topicPartitions": topics((ID, [0, 1]))}, "m"),
        record(14, current, "m"),
    ]
    assert member_of(*records)["assignment"] == [has(topic_id=ID, partitions=[0, 1])]
    member = member_of(*records, record(15, state))
    assert (
        member["assignment"]
        == member["target_assignment"]
        == [has(topic="t", topic_id=ID, partitions=[0, 1])]
    )
    assert (member["member_epoch"], member["is_classic"]) == (2, None)


def test_a_member_of_a_streams_group_has_tasks() -> None:
    def tasks(*numbers: int) -> list[dict[str, Any]]:
        return [{"subtopologyId": "0", "partitions": numbers}]

    target = {"activeTasks": tasks(0, 1), "standbyTasks": [], "warmupTasks": tasks(2)}
    member = member_of(
        record(19, streams_member(), "m"),
        record(21, target, "m"),
        record(22, {**streams_current(5), "activeTasks": tasks(0)}, "m"),
    )
    assert member["assignment"] == [has(subtopology="0", task_type="active", partitions=[0])]
    assert member["target_assignment"] == [
        has(subtopology="0", task_type="active", partitions=[0, 1]),
        has(subtopology="0", task_type="warmup", partitions=[2]),
    ]
    assert (member["member_epoch"], member["subscribed_topics"]) == (5, None)


@pytest.mark.parametrize("records", [[record(2, classic(classic_member("m", "t")))], consumer()])
def test_of_a_group_that_is_too_large_only_who_is_in_it_is_reported(
    records: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = member_of(*records)
    shard, _ = replay(Shard.empty(), packed(records))
    size = sum(map(len, shard.group_records.table["value"].to_pylist()))
    monkeypatch.setattr(members, "IN_DETAIL_UP_TO", size)
    assert member_of(*records) == whole
    monkeypatch.setattr(members, "IN_DETAIL_UP_TO", size - 1)
    assert member_of(*records) == whole | dict.fromkeys(DETAILS)
