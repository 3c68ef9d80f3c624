"""Answers about much, about long names and about what hardly anyone asks for."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from listening import CLUSTER_ID, Client, listening
from table_batches import Batch, Row, append, group, offset

from streaming.common.times import MINUTE_MS, now_ms
from streaming.model.progress import PartitionProgress
from streaming.model.schemas import MEMBER
from streaming.serve.kafka import apis, cluster
from streaming.serve.kafka.errors import Error
from streaming.serve.kafka.view import Address, RequestContext
from streaming.serve.kafka.view import Client as Software
from streaming.serve.memory.snapshot import MemorySnapshot
from streaming.serve.memory.tailer import Tailer
from streaming.tables.tables import Tables

LOADED = PartitionProgress(position=10, loaded=True)
LATEST, EARLIEST = -1, -2
TOPIC_ID = "AAAAAAAAAAEAAAAAAAAAAg"


def fill(tables: Tables, batch: Batch, **changed: Any) -> None:
    progress = {"partitions": {0: LOADED}, "topic": "__consumer_offsets", "now": now_ms()}
    append(tables, batch, **{**progress, **changed})


def snapshot_of(tables: Tables) -> MemorySnapshot:
    tailer = Tailer(tables)
    tailer.poll()
    return tailer.current


def seen(snapshot: MemorySnapshot, client: Software | None = None) -> RequestContext:
    return RequestContext(
        snapshot=snapshot,
        now=now_ms(),
        within_ms=MINUTE_MS,
        address=Address("127.0.0.1", 1),
        cluster_id=CLUSTER_ID,
        client=client or Software(),
    )


# --- much --------------------------------------------------------------------------------------------------


class OfOneTopic(np.ndarray[Any, np.dtype[np.bool_]]):
    """A column that is not to be looked at as a whole."""

    def __and__(self, other: Any) -> Any:
        assert len(self) == 1
        return super().__and__(other)


def test_a_topic_is_shown_without_looking_at_all_others(tables: Tables) -> None:
    fill(tables, {("g", f"t{number}", 0): offset(source_partition=0) for number in range(9)})
    snapshot = snapshot_of(tables)
    snapshot = replace(snapshot, are_present=snapshot.are_present.view(OfOneTopic))
    answer = apis.cluster.answer_metadata({"topics": None}, seen(snapshot))
    assert len(answer["topics"]) == 9


def test_while_partitions_are_loading_no_group_takes_long(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = {number: replace(LOADED, loaded=number > 0) for number in range(50)}
    fill(tables, {"g": group(source_partition=3)}, partitions=states)
    snapshot = snapshot_of(tables)
    assert not snapshot.is_among("g", snapshot.loading)
    assert snapshot.is_among("polygenelubricants", snapshot.loading)  # its hash is the lowest that there is

    def many_at_once(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("streaming.queries.as_of.offsets_partitions", many_at_once)
    assert [snapshot.is_among(name, snapshot.loading) for name in ("g", "", "h", "polygenelubricants")] == [
        0,
        1,
        0,
        1,
    ]


# --- partitions that nobody has committed ------------------------------------------------------------------

OLD_JAVA, NEW_JAVA = Software("apache-kafka-java", "3.9.2"), Software("apache-kafka-java", "4.3.1")


def shown(view: RequestContext) -> dict[tuple[str, int], bool]:
    """Return of each partition in the answer to Metadata whether it has a leader."""
    return {
        (topic["name"], one["partitionIndex"]): one["leaderId"] != -1
        for topic in apis.cluster.answer_metadata({"topics": None}, view)["topics"]
        for one in topic["partitions"]
    }


def latest(view: RequestContext, topic: str, numbers: range) -> list[int]:
    """Return the errors of asking for the ends of partitions."""
    asked = [{"partitionIndex": number, "timestamp": LATEST} for number in numbers]
    answer = apis.list_offsets.answer_log_ends({"topics": [{"name": topic, "partitions": asked}]}, view)
    [answered] = answer["topics"]
    assert all(one.get("offset", -1) == -1 for one in answered["partitions"])
    return [one.get("errorCode", 0) for one in answered["partitions"]]


def test_a_partition_that_is_shown_is_known_when_its_end_is_asked_for(tables: Tables) -> None:
    fill(tables, {("g", "t", 2): offset(source_partition=0)})
    snapshot, unknown = snapshot_of(tables), Error.UNKNOWN_TOPIC_OR_PARTITION
    old, new = seen(snapshot, OLD_JAVA), seen(snapshot, NEW_JAVA)
    assert shown(old) == {("t", number): True for number in range(3)}
    assert shown(new) == {("t", number): False for number in range(3)}
    assert latest(old, "t", range(-1, 4)) == [unknown, 0, 0, 0, unknown]
    assert latest(new, "t", range(4)) == [*[Error.NOT_LEADER_OR_FOLLOWER] * 3, unknown]


def member(*assigned: Row, target: list[Row] | None = None) -> Row:
    told = dict.fromkeys(field.name for field in MEMBER) | {"member_id": "m", "assignment": list(assigned)}
    return told | {"client_id": "c", "client_host": "/h", "target_assignment": target}


def of_topic(name: str | None, *numbers: int, topic_id: str | None = None) -> Row:
    return {"topic": name, "topic_id": topic_id, "partitions": list(numbers)}


def test_partitions_of_members_are_shown_though_nobody_has_committed_them(tables: Tables) -> None:
    streams = of_topic(None, 7) | {"subtopology": "0", "task_type": "active"}
    members = [
        member(of_topic("assigned", 0, 1), of_topic("t", 1)),
        member(of_topic(None, 3, topic_id=TOPIC_ID), of_topic(None, 9, topic_id="unknown"), streams),
        member(target=[of_topic("target", 0)]),
    ]
    committed = offset(source_partition=0, topic_id=TOPIC_ID)
    classic = group(source_partition=0, members=members)
    fill(tables, {("g", "t", 0): committed, "g": classic, "h": group(source_partition=0)})
    tailer = Tailer(tables)
    tailer.poll()
    view = seen(tailer.current, NEW_JAVA)
    expected = [("assigned", 0), ("assigned", 1), ("target", 0), *[("t", number) for number in range(4)]]
    expected += [("unknown", number) for number in range(10)]  # as long as its name is not known
    assert shown(view) == dict.fromkeys(expected, False)
    assert latest(view, "assigned", range(3)) == [6, 6, Error.UNKNOWN_TOPIC_OR_PARTITION]
    pages = apis.cluster.answer_topic_partitions(
        {"topics": [], "cursor": None, "responsePartitionLimit": 2_000}, view
    )
    assert [topic["name"] for topic in pages["topics"]] == ["assigned", "t", "target", "unknown"]
    fill(tables, {"g": group(source_partition=0)}, live={"g": classic})  # its members have gone
    tailer.poll()
    assert shown(seen(tailer.current, NEW_JAVA)) == {("t", 0): False}


def test_groups_of_many_members_are_described_as_those_of_few(tables: Tables) -> None:
    counts = {"many": 600, "few": 2, "none": 0, "others": 300}
    batch: Batch = {
        name: group(
            source_partition=0, members=[{**member(), "member_id": f"{name}-{n}"} for n in range(count)]
        )
        for name, count in counts.items()
    }
    fill(tables, {**batch, ("simple", "t", 0): offset(source_partition=0)})
    names = ["many", "simple", "few", "nope", "none", "others", "many"]
    snapshot = snapshot_of(tables)
    rows = list(snapshot.rows_of(names))
    assert [None if row is None else len(row["members"]) for row in rows] == [600, None, 2, None, 0, 300, 600]
    assert rows == [snapshot.row_of(name) for name in names]
    for name, row in zip(names, rows, strict=True):
        members = () if row is None else row["members"]
        assert [one["member_id"] for one in members] == [f"{name}-{n}" for n in range(len(members))]


# --- what hardly anyone asks for ---------------------------------------------------------------------------


def test_a_member_without_a_name_is_unknown_however_much_is_asked_for(tables: Tables) -> None:
    batch: Batch = {("g", "t", number): offset(source_partition=0) for number in range(apis.MANY + 1)}
    fill(tables, {**batch, "g": group(source_partition=0, type="consumer")})
    asked = {"groupId": "g", "topics": None, "memberId": None, "memberEpoch": 0}
    with listening(tables) as endpoint, Client(endpoint.bootstrap) as client:
        [answered] = client.ask(9, 9, {"groups": [asked]})["groups"]
        assert (answered["errorCode"], answered["topics"]) == (Error.UNKNOWN_MEMBER_ID, [])


def test_a_page_is_found_without_making_all_topics(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [(f"t{topic:03}", number) for topic in range(200) for number in range(3)]
    fill(tables, {("g", *key): offset(source_partition=0) for key in keys})
    view, made = seen(snapshot_of(tables)), list[int]()
    make = cluster._partitions

    def partitions(*about: Any) -> list[dict[str, Any]]:
        made.append(len(found := make(*about)))
        return found

    monkeypatch.setattr(cluster, "_partitions", partitions)
    pages, cursor = list[tuple[str, int]](), None
    while not pages or cursor is not None:
        asked = {"topics": [], "cursor": cursor, "responsePartitionLimit": 7}
        answer = cluster.answer_topic_partitions(asked, view)
        for topic in answer["topics"]:
            pages += [(topic["name"], one["partitionIndex"]) for one in topic["partitions"]]
        cursor = answer["nextCursor"]
    assert pages == keys
    assert sum(made) < 2 * len(pages)


@pytest.mark.parametrize("limit", [0, -1, 1])
def test_a_page_has_a_partition_at_least(tables: Tables, limit: int) -> None:
    fill(tables, {("g", "t", number): offset(source_partition=0) for number in range(2)})
    asked = {"topics": [], "responsePartitionLimit": limit, "cursor": None}
    with listening(tables) as endpoint, Client(endpoint.bootstrap) as client:
        answer = client.ask(75, 0, asked)
        assert [len(topic["partitions"]) for topic in answer["topics"]] == [1]
        assert answer["nextCursor"] == {"topicName": "t", "partitionIndex": 1}


@pytest.mark.parametrize("version", ["9" * 5_000 + ".0", "4." + "9" * 5_000])
def test_a_client_may_say_that_it_is_of_any_version(tables: Tables, version: str) -> None:
    fill(tables, {("g", "t", 0): offset(source_partition=0)})
    with listening(tables) as endpoint, Client(endpoint.bootstrap) as client:
        client.named("apache-kafka-java", version)
        assert len(client.ask(3, 12, {"topics": None})["topics"]) == 1


def test_topics_that_are_not_there_weigh_something_too(tables: Tables) -> None:
    fill(tables, {("g", "t", 0): offset(source_partition=0)})
    topics = [{"name": "nope"}, {"name": "t"}, {"name": None}]
    assert apis.cluster.metadata_weight({"topics": topics}, seen(snapshot_of(tables))) == 4


@pytest.mark.parametrize("version", [10, 11])
def test_versions_that_look_for_names_alone_refuse_ids(tables: Tables, version: int) -> None:
    fill(tables, {("g", "t", 0): offset(source_partition=0)})
    asked = [{"name": None, "topicId": TOPIC_ID}, {"name": "t"}]
    with listening(tables) as endpoint, Client(endpoint.bootstrap) as client:
        topics = client.ask(3, version, {"topics": asked})["topics"]
        assert [(one["name"], one["errorCode"]) for one in topics] == [
            ("", Error.INVALID_REQUEST),
            ("t", Error.INVALID_REQUEST),
        ]
        [topic] = client.ask(3, version, {"topics": asked[1:]})["topics"]
        assert topic["errorCode"] == Error.NONE


# --- long names and texts ----------------------------------------------------------------------------------

LONG = "ä" * 16_383  # the longest there is has 32,767 bytes
TOO_LONG = "\ufffd" * 11_000  # bytes that were no text


def test_names_of_any_length_are_answered_about(tables: Tables) -> None:
    fill(tables, {LONG: group(source_partition=0, type="share")})
    resource = {"resourceType": 4, "resourceName": LONG, "configurationKeys": None}
    with listening(tables) as endpoint, Client(endpoint.bootstrap) as client:
        for name in (LONG, LONG[:-1]):
            [consumer] = client.ask(69, 1, {"groupIds": [name]})["groups"]
            [classic] = client.ask(15, 6, {"groups": [name]})["groups"]
            errors = (consumer["errorCode"], classic["errorCode"])
            assert errors == (Error.GROUP_ID_NOT_FOUND, Error.GROUP_ID_NOT_FOUND)
        [result] = client.ask(32, 4, {"resources": [resource]})["results"]
        assert result["errorCode"] == Error.INVALID_REQUEST


@pytest.mark.parametrize("count", [2, apis.MANY + 1])
def test_texts_that_no_answer_can_hold_do_not_spoil_it(tables: Tables, count: int) -> None:
    told = member() | {"client_id": TOO_LONG}
    batch: Batch = {("g", "t", number): offset(source_partition=0, metadata="m") for number in range(count)}
    batch |= {("g", "t", 1): offset(source_partition=0, metadata=TOO_LONG)}
    batch |= {TOO_LONG: group(source_partition=0), "g": group(source_partition=0, members=[told])}
    fill(tables, {**batch, "h": group(source_partition=0, protocol_type=TOO_LONG)})
    with listening(tables) as endpoint, Client(endpoint.bootstrap) as client:
        assert [one["groupId"] for one in client.ask(16, 5, {})["groups"]] == ["g"]
        groups = client.ask(15, 6, {"groups": ["g", "h"]})["groups"]
        assert [one["clientId"] for one in groups[0]["members"]] == [""]
        assert groups[1]["protocolType"] == ""
        [fetched] = client.ask(9, 9, {"groups": [{"groupId": "g", "topics": None}]})["groups"]
        held = [one["metadata"] for one in fetched["topics"][0]["partitions"]]
        assert held == ["m", "", *["m"] * (count - 2)]


@pytest.mark.parametrize("count", [2, apis.MANY + 1])
def test_names_of_topics_that_no_answer_can_hold_do_not_spoil_it(tables: Tables, count: int) -> None:
    batch: Batch = {
        ("g", name, number): offset(source_partition=0) for name in ("t", TOO_LONG) for number in range(count)
    }
    fill(tables, {**batch, "g": group(source_partition=0)})
    asked = {"groups": [{"groupId": "g", "topics": None}]}
    with listening(tables) as endpoint, Client(endpoint.bootstrap) as client:
        for version in (0, 1, 12):
            topics = client.ask(3, version, {"topics": [] if version == 0 else None})["topics"]
            assert [one["name"] for one in topics] == ["t"]
        assert [
            one["name"]
            for one in client.ask(75, 0, {"topics": [], "responsePartitionLimit": 2_000})["topics"]
        ] == ["t"]
        [fetched] = client.ask(9, 9, asked)["groups"]
        assert [(one["name"], len(one["partitions"])) for one in fetched["topics"]] == [("t", count)]


OF_CONSUMERS = ["group_instance_id", "rack_id", "subscribed_regex", "subscribed_topics", "topic"]


@pytest.mark.parametrize(
    ("kind", "field"), [("classic", "group_instance_id"), *(("consumer", field) for field in OF_CONSUMERS)]
)
def test_texts_of_members_that_no_answer_can_hold_do_not_spoil_it(
    tables: Tables, kind: str, field: str
) -> None:
    topic = {"topic_id": TOPIC_ID, "topic": TOO_LONG if field == "topic" else "t", "partitions": [0]}
    told = member() | {"assignment": [topic]}
    told |= {} if field == "topic" else {field: [TOO_LONG] if field == "subscribed_topics" else TOO_LONG}
    fill(tables, {name: group(source_partition=0, type=kind, members=[told]) for name in ("g", "h")})
    with listening(tables) as endpoint, Client(endpoint.bootstrap) as client:
        asked = (15, 6, {"groups": ["g", "h"]}) if kind == "classic" else (69, 1, {"groupIds": ["g", "h"]})
        found = client.ask(*asked)["groups"]
        assert [(one["errorCode"], len(one["members"])) for one in found] == [(Error.NONE, 1)] * 2
