"""What the listener answers where a broker would not be asked: incomplete tables, unknown ends, refusals."""

import gc
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import kafka_clients as kafka
import pytest
from kafka_clients import wait_until
from listening import CLUSTER_ID, Client, Listening, listening
from log_end_rows import Sample, gone, of_topic, rows_of
from same_answers import MEANT, OURS, meaning
from table_batches import Batch, append, group, heartbeat, offset

from decoders.formats.java_values import ZERO_UUID
from decoders.messages import APIS, Columns, Request, response_bytes
from streaming.common.times import MINUTE_MS, now_ms
from streaming.lag.samples import MAX_SAMPLE_AGE_MS
from streaming.model.progress import PartitionProgress, Rebuild, Retention
from streaming.serve.kafka import apis
from streaming.serve.kafka.connection import Connection
from streaming.serve.kafka.errors import Error
from streaming.serve.kafka.view import Address, RequestContext
from streaming.serve.kafka.view import Client as Software
from streaming.tables.tables import Tables

LOADED = PartitionProgress(position=10, loaded=True)
LATEST, EARLIEST = -1, -2
TOPIC_ID = "AAAAAAAAAAEAAAAAAAAAAg"
OTHER_ID = "AAAAAAAAAAEAAAAAAAAAAw"
TOPICS_OF_PAST = ("steady", "trimmed", "recreated", "shorter", "regrown", "missed")
THIRD_ID = "AAAAAAAAAAEAAAAAAAAABA"
GONE_ID = "AAAAAAAAAAEAAAAAAAAABQ"


def fill(tables: Tables, batch: Batch, **changed: Any) -> None:
    progress = {"partitions": {0: LOADED}, "topic": "__consumer_offsets", "now": now_ms()}
    append(tables, batch, **{**progress, **changed})


def view_of(endpoint: Listening) -> RequestContext:
    """What an answer would be made from."""
    return RequestContext(
        snapshot=endpoint.tailer.current,
        now=now_ms(),
        within_ms=MINUTE_MS,
        address=Address("127.0.0.1", 1),
        cluster_id=CLUSTER_ID,
        client=Software(),
    )


def fetched(client: Client, *groups: str) -> dict[str, tuple[int, dict[tuple[str, int], int]]]:
    """Return by group the error, and the offsets by topic and partition."""
    answer = client.ask(9, 9, {"groups": [{"groupId": one, "topics": None} for one in groups]})
    return {
        one["groupId"]: (
            one["errorCode"],
            {
                (topic["name"], partition["partitionIndex"]): partition["committedOffset"]
                for topic in one["topics"]
                for partition in topic["partitions"]
            },
        )
        for one in answer["groups"]
    }


def errors_about(client: Client, name: str) -> dict[str, int]:
    """Return the errors of all that can be asked about a group."""
    asked = [{"name": "t", "partitionIndexes": [0]}]
    [oldest] = client.ask(9, 1, {"groupId": name, "topics": asked})["topics"]
    [newest] = client.ask(9, 9, {"groups": [{"groupId": name, "topics": asked}]})["groups"]
    [described] = client.ask(15, 6, {"groups": [name]})["groups"]
    [consumer] = client.ask(69, 1, {"groupIds": [name]})["groups"]
    [share] = client.ask(77, 1, {"groupIds": [name]})["groups"]
    return {
        "fetch 1": oldest["partitions"][0]["errorCode"],
        "fetch 7": client.ask(9, 7, {"groupId": name, "topics": asked})["errorCode"],
        "fetch 9": newest["errorCode"],
        "describe": described["errorCode"],
        "consumer": consumer["errorCode"],
        "share": share["errorCode"],
    }


def settings_of(client: Client) -> dict[str, str]:
    asked = {"resourceType": 4, "resourceName": "1", "configurationKeys": None}
    [result] = client.ask(32, 4, {"resources": [asked]})["results"]
    return {entry["name"]: entry["value"] for entry in result["configs"]}


# --- what is not complete ----------------------------------------------------------------------------------


def test_before_anything_is_read_every_group_is_loading(tables: Tables) -> None:
    with listening(tables) as endpoint, Client(endpoint.bootstrap) as client:
        assert set(errors_about(client, "g").values()) == {Error.COORDINATOR_LOAD_IN_PROGRESS}
        assert client.ask(16, 5, {})["errorCode"] == Error.COORDINATOR_LOAD_IN_PROGRESS
        everything = client.ask(3, 13, {"topics": None})
        assert (everything["topics"], everything["errorCode"]) == ([], Error.LEADER_NOT_AVAILABLE)
        assert client.ask(3, 13, {"topics": []})["errorCode"] == Error.NONE  # as clients begin
        assert errors_about_topic(client, "t", TOPIC_ID) == {Error.LEADER_NOT_AVAILABLE}


def errors_about_topic(client: Client, name: str, topic_id: str) -> set[int]:
    """Return the errors of all that can be asked about a topic."""
    named: list[dict[str, Any]] = [{"name": name, "topicId": ZERO_UUID}, {"name": None, "topicId": topic_id}]
    metadata = [client.ask(3, 13, {"topics": [one]})["topics"][0] for one in named]
    metadata += [client.ask(3, version, {"topics": named[:1]})["topics"][0] for version in (0, 9, 12)]
    [described] = client.ask(75, 0, {"topics": [{"name": name}], "cursor": None})["topics"]
    end = {"name": name, "partitions": [{"partitionIndex": 0, "timestamp": LATEST}]}
    [ends] = client.ask(2, 10, {"topics": [end]})["topics"]
    resource = {"resourceType": 2, "resourceName": name, "configurationKeys": None}
    [settings] = client.ask(32, 4, {"resources": [resource]})["results"]
    return {one["errorCode"] for one in (*metadata, described, *ends["partitions"], settings)}


def test_a_topic_that_is_not_there_is_missing_once_all_is_read(tables: Tables) -> None:
    states = {0: LOADED, 1: replace(LOADED, loaded=False)}
    fill(tables, {("g", "t", 0): offset(source_partition=0, topic_id=TOPIC_ID)}, partitions=states)
    with listening(tables) as endpoint, Client(endpoint.bootstrap) as client:
        assert client.ask(3, 13, {"topics": [{"name": "t"}]})["topics"][0]["errorCode"] == Error.NONE
        assert errors_about_topic(client, "nope", ZERO_UUID) == {Error.LEADER_NOT_AVAILABLE}
        assert errors_about_topic(client, "no/topic", ZERO_UUID) == {
            Error.INVALID_TOPIC_EXCEPTION,
            Error.LEADER_NOT_AVAILABLE,
        }
        fill(tables, {}, partitions={0: LOADED, 1: LOADED})
        endpoint.tailer.poll()
        assert errors_about_topic(client, "nope", ZERO_UUID) == {
            Error.UNKNOWN_TOPIC_OR_PARTITION,
            Error.UNKNOWN_TOPIC_ID,
        }


def test_a_deleted_topic_without_commits_is_missing_whatever_is_asked(tables: Tables) -> None:
    fill(tables, {("g", "t", number): offset(source_partition=0) for number in range(2)})
    at = now_ms() - 2_000
    sampled = [Sample(at, "deleted", number, 10, TOPIC_ID) for number in range(2)]
    tables.append_log_ends(rows_of(sampled))
    with listening(tables) as endpoint, Client(endpoint.bootstrap) as client:
        assert errors_about_topic(client, "deleted", TOPIC_ID) == {Error.NONE}
        tables.append_log_ends(rows_of([gone(at + 1_000, "deleted")]))
        endpoint.tailer.poll()
        assert errors_about_topic(client, "deleted", TOPIC_ID) == {
            Error.UNKNOWN_TOPIC_OR_PARTITION,
            Error.UNKNOWN_TOPIC_ID,
        }
        at_a_time = [{"partitionIndex": number, "timestamp": at} for number in range(2)]
        [ends] = client.ask(2, 10, {"topics": [{"name": "deleted", "partitions": at_a_time}]})["topics"]
        assert {one["errorCode"] for one in ends["partitions"]} == {Error.UNKNOWN_TOPIC_OR_PARTITION}


def test_a_topic_that_groups_only_subscribe_to_is_missing_by_name_and_by_id(tables: Tables) -> None:
    fill(tables, {("g", "t", 0): offset(source_partition=0)})
    tables.append_log_ends(rows_of([of_topic(now_ms() - 1_000, "subscribed", TOPIC_ID)]))
    with listening(tables) as endpoint, Client(endpoint.bootstrap) as client:
        assert errors_about_topic(client, "subscribed", TOPIC_ID) == {
            Error.UNKNOWN_TOPIC_OR_PARTITION,
            Error.UNKNOWN_TOPIC_ID,
        }


def test_groups_of_an_offsets_partition_that_is_not_known_yet_are_loading(tables: Tables) -> None:
    names = {kafka.partition_of(name, 3): name for name in "abcdefgh"}
    held = {names[number]: group(source_partition=number) for number in (0, 2)}
    fill(tables, held, partitions={0: LOADED, 1: None, 2: LOADED})
    with listening(tables) as endpoint, Client(endpoint.bootstrap) as client:
        assert set(errors_about(client, names[1]).values()) == {Error.COORDINATOR_LOAD_IN_PROGRESS}
        assert errors_about(client, names[2])["describe"] == Error.NONE
        listed = client.ask(16, 5, {})
        assert listed["errorCode"] == Error.COORDINATOR_LOAD_IN_PROGRESS
        assert {one["groupId"] for one in listed["groups"]} == held.keys()
        assert settings_of(client)["offsetlake.loading.partitions"] == "1"
        fill(tables, {}, partitions=dict.fromkeys(range(3), LOADED))
        endpoint.tailer.poll()
        assert errors_about(client, names[1])["describe"] == Error.GROUP_ID_NOT_FOUND


def test_groups_of_partitions_that_are_not_read_to_their_end_are_loading(tables: Tables) -> None:
    names = {kafka.partition_of(name, 2): name for name in "abcd"}
    loaded, loading = names[0], names[1]
    states = {0: LOADED, 1: replace(LOADED, loaded=False)}
    fill(tables, {loaded: group(source_partition=0), loading: group(source_partition=1)}, partitions=states)
    with listening(tables) as endpoint, Client(endpoint.bootstrap) as client:
        assert errors_about(client, loaded)["describe"] == Error.NONE
        assert set(errors_about(client, loading).values()) == {Error.COORDINATOR_LOAD_IN_PROGRESS}
        listed = client.ask(16, 5, {})
        assert listed["errorCode"] == Error.COORDINATOR_LOAD_IN_PROGRESS
        assert [one["groupId"] for one in listed["groups"]] == [loaded]
        assert settings_of(client)["offsetlake.loading.partitions"] == "1"


def test_an_old_heartbeat_makes_groups_unavailable_until_there_is_a_new_one(tables: Tables) -> None:
    now = now_ms()
    fill(tables, {"g": group(source_partition=0)}, now=now - MINUTE_MS)
    with listening(tables, within_ms=MINUTE_MS - 5_000) as endpoint, Client(endpoint.bootstrap) as client:
        assert set(errors_about(client, "g").values()) == {Error.COORDINATOR_NOT_AVAILABLE}
        assert client.ask(16, 5, {})["errorCode"] == Error.COORDINATOR_NOT_AVAILABLE
        heartbeat(tables, now)
        endpoint.tailer.poll()
        assert errors_about(client, "g")["fetch 9"] == Error.NONE
        heartbeat(tables, now + 2 * MINUTE_MS)  # a clock is wrong
        endpoint.tailer.poll()
        assert errors_about(client, "g")["fetch 9"] == Error.COORDINATOR_NOT_AVAILABLE


def test_an_old_heartbeat_makes_unknown_topics_unavailable_until_there_is_a_new_one(tables: Tables) -> None:
    now = now_ms()
    fill(tables, {("g", "t", 0): offset(source_partition=0)}, now=now - MINUTE_MS)
    with listening(tables, within_ms=MINUTE_MS - 5_000) as endpoint, Client(endpoint.bootstrap) as client:
        assert client.ask(3, 12, {"topics": [{"name": "t"}]})["topics"][0]["errorCode"] == Error.NONE
        assert errors_about_topic(client, "nope", ZERO_UUID) == {Error.LEADER_NOT_AVAILABLE}
        heartbeat(tables, now)
        endpoint.tailer.poll()
        assert errors_about_topic(client, "nope", ZERO_UUID) == {
            Error.UNKNOWN_TOPIC_OR_PARTITION,
            Error.UNKNOWN_TOPIC_ID,
        }


def test_while_tables_are_rebuilt_they_are_answered_as_before(tables: Tables) -> None:
    fill(
        tables,
        {("g", "t", 0): offset(source_partition=0), "g": group(source_partition=0)},
        rebuild=Rebuild(since=now_ms() - 5_000, reason="the topic was recreated"),
    )
    with listening(tables) as endpoint, Client(endpoint.bootstrap) as client:
        assert fetched(client, "g") == {"g": (Error.NONE, {("t", 0): 7})}
        told = settings_of(client)
        assert told["offsetlake.rebuilding.since"] != ""
        assert told["offsetlake.read.until"] != ""


def test_a_question_of_a_member_weighs_as_much_as_its_group_has_members(tables: Tables) -> None:
    members = [{"member_id": f"m{number}", "member_epoch": 1} for number in range(500)]
    fill(tables, {"g": group(source_partition=0, type="consumer", members=members)})
    asked = {"groupId": "g", "memberId": "m", "memberEpoch": 1, "topics": []}
    with listening(tables) as endpoint:
        seen = view_of(endpoint)
        nobody = {**asked, "memberId": None, "memberEpoch": -1}
        weights = [apis.offsets.offsets_weight({"groups": [one]}, seen) for one in (asked, nobody)]
    assert weights[0] > apis.MANY > weights[1]


# --- offsets -----------------------------------------------------------------------------------------------


def test_an_offset_that_was_never_readable_is_an_error_where_it_is_asked_for(tables: Tables) -> None:
    unreadable = offset(committed_offset=None, unreadable_source_offset=9, source_partition=0)
    fill(tables, {("g", "t", 0): offset(source_partition=0), ("g", "t", 1): unreadable})
    with listening(tables) as endpoint, Client(endpoint.bootstrap) as client:
        assert fetched(client, "g") == {"g": (Error.NONE, {("t", 0): 7})}
        asked = {"groupId": "g", "topics": [{"name": "t", "partitionIndexes": [1, 0, 2]}]}
        [topic] = client.ask(9, 7, asked)["topics"]
        answers = [
            (one["partitionIndex"], one["committedOffset"], one["errorCode"]) for one in topic["partitions"]
        ]
        assert answers == [(1, -1, Error.UNKNOWN_SERVER_ERROR), (0, 7, Error.NONE), (2, -1, Error.NONE)]


def test_an_offset_whose_newer_commit_is_unreadable_is_an_error_and_not_the_old_one(tables: Tables) -> None:
    newer = offset(committed_offset=7, unreadable_source_offset=9, source_partition=0)
    fill(tables, {("g", "t", 0): newer, ("g", "t", 1): offset(source_partition=0)})
    with listening(tables) as endpoint, Client(endpoint.bootstrap) as client:
        assert fetched(client, "g", "no")["g"] == (Error.NONE, {("t", 1): 7})
        many = apis.offsets.answer_many_offsets(
            {"groups": [{"groupId": "g", "topics": None}]}, view_of(endpoint)
        )
        held = many["groups"].fields["topics"].fields["partitions"].fields
        topics = held["partitionIndex"].tolist()
        assert topics == [1]
        asked = {"groupId": "g", "topics": [{"name": "t", "partitionIndexes": [0]}]}
        [[one]] = (topic["partitions"] for topic in client.ask(9, 7, asked)["topics"])
        assert (one["committedOffset"], one["errorCode"]) == (-1, Error.UNKNOWN_SERVER_ERROR)


@pytest.mark.parametrize("version", range(2, 11))
def test_many_offsets_are_written_as_few_are(tables: Tables, version: int) -> None:
    names = ["a", "", "b\0", "gone", "grüße 🐢"]
    batch: Batch = {
        (name, topic, number): offset(
            source_partition=0,
            committed_offset=None if number == 3 else 100 * number,
            unreadable_source_offset=4 if number == 3 else None,
            leader_epoch=None if number % 2 else number,
            metadata="m" * number,
            topic_id=TOPIC_ID if topic == "recreated" and number else None,
        )
        for name in names[:3]
        for topic in ("t", "u" * 200, "recreated", "deleted")
        for number in range(4)
    }
    fill(tables, {**batch, **{name: group(source_partition=0) for name in [*names[:3], names[4]]}})
    ids = {"t": TOPIC_ID, "u" * 200: OTHER_ID, "recreated": THIRD_ID}
    samples = [Sample(now_ms(), topic, 0, 10, topic_id) for topic, topic_id in ids.items()]
    tables.append_log_ends(rows_of([*samples, gone(now_ms(), "deleted")]))
    with listening(tables) as endpoint:
        seen = view_of(endpoint)
    asked: dict[str, Any] = {"groups": [{"groupId": name, "topics": None} for name in names]}
    asked = asked if version >= 8 else {"groupId": "a", "topics": None}
    many, few = (
        (
            apis.offsets.answer_many_offsets_by_ids(asked, seen),
            apis.offsets.answer_offsets_by_ids(asked, seen),
        )
        if version >= 10
        else (apis.offsets.answer_many_offsets(asked, seen), apis.offsets.answer_offsets(asked, seen))
    )
    assert any(isinstance(value, Columns) for value in many.values())
    pieces = apis.response_pieces(9, version, 1, many)
    assert b"".join(pieces) == response_bytes(9, version, 1, few)


# --- offsets by topic ids ----------------------------------------------------------------------------------


def fetched_by_ids(client: Client, *topic_ids: str) -> dict[tuple[str, int], tuple[int, int]]:
    """Return offset and error by topic id and partition of the group g: of partition 0 and 1 of some topics,
    or of all."""
    topics = [{"topicId": one, "partitionIndexes": [0, 1]} for one in topic_ids] or None
    [told] = client.ask(9, 10, {"groups": [{"groupId": "g", "topics": topics}]})["groups"]
    assert told["errorCode"] == Error.NONE
    return {
        (topic["topicId"], one["partitionIndex"]): (one["committedOffset"], one["errorCode"])
        for topic in told["topics"]
        for one in topic["partitions"]
    }


def newest_offset_fetch(client: Client) -> int:
    """Return the version of OffsetFetch that clients are offered."""
    [newest] = [api["maxVersion"] for api in client.ask(18, 0, {})["apiKeys"] if api["apiKey"] == 9]
    return int(newest)


def test_offsets_are_fetched_by_the_present_ids_of_their_topics(tables: Tables) -> None:
    unreadable = offset(unreadable_source_offset=9, source_partition=0, topic_id=OTHER_ID)
    batch: Batch = {
        ("g", "t", 0): offset(committed_offset=5, source_partition=0, topic_id=TOPIC_ID),
        ("g", "named", 0): offset(committed_offset=6, source_partition=0, topic_id=None),
        ("g", "named", 1): unreadable,
        ("g", "deleted", 0): offset(committed_offset=7, source_partition=0, topic_id=GONE_ID),
        ("g", "deleted", 1): offset(committed_offset=8, source_partition=0, topic_id=None),
    }
    fill(tables, batch)
    at = now_ms() - 2_000
    samples = [Sample(at, "t", 0, 10, TOPIC_ID), Sample(at, "named", 0, 10, THIRD_ID), gone(at, "deleted")]
    tables.append_log_ends(rows_of(samples))
    with listening(tables) as endpoint, Client(endpoint.bootstrap) as client:
        assert newest_offset_fetch(client) == 10
        assert fetched_by_ids(client) == {(TOPIC_ID, 0): (5, 0), (THIRD_ID, 0): (6, 0)}
        assert fetched_by_ids(client, TOPIC_ID, THIRD_ID, GONE_ID, ZERO_UUID) == {
            (TOPIC_ID, 0): (5, Error.NONE),
            (TOPIC_ID, 1): (-1, Error.NONE),
            (THIRD_ID, 0): (6, Error.NONE),
            (THIRD_ID, 1): (-1, Error.UNKNOWN_SERVER_ERROR),  # perhaps of this id
            **{
                (one, number): (-1, Error.UNKNOWN_TOPIC_ID)
                for one in (GONE_ID, ZERO_UUID)
                for number in (0, 1)
            },
        }


def test_an_offset_of_a_topic_that_was_recreated_is_not_an_offset_of_the_new_one(tables: Tables) -> None:
    held = {number: offset(committed_offset=5, source_partition=0, topic_id=TOPIC_ID) for number in (0, 1)}
    fill(tables, {("g", "t", number): one for number, one in held.items()})
    tables.append_log_ends(rows_of([Sample(now_ms() - 2_000, "t", 0, 10, OTHER_ID)]))
    newer = offset(committed_offset=1, source_partition=0, topic_id=OTHER_ID)
    with listening(tables) as endpoint, Client(endpoint.bootstrap) as client:
        for expected in ({}, {(OTHER_ID, 1): (1, 0)}):
            assert fetched_by_ids(client) == expected
            asked = fetched_by_ids(client, OTHER_ID, TOPIC_ID)
            assert asked == {
                **{(OTHER_ID, number): (-1, 0) for number in (0, 1)},
                **{(TOPIC_ID, number): (-1, Error.UNKNOWN_TOPIC_ID) for number in (0, 1)},
                **expected,
            }
            fill(tables, {("g", "t", 1): newer})
            endpoint.tailer.poll()


def test_while_the_id_of_a_committed_topic_is_unknown_offsets_are_not_fetched_by_ids(tables: Tables) -> None:
    fill(tables, {("g", "t", 0): offset(source_partition=0), ("g", "new", 0): offset(source_partition=0)})
    at = now_ms() - 2_000
    tables.append_log_ends(rows_of([Sample(at, "t", 0, 10, TOPIC_ID)]))
    everything = {"groups": [{"groupId": "g", "topics": None}]}
    with listening(tables) as endpoint:
        for sample, newest in ((None, 9), (Sample(at, "new", 0, 10, OTHER_ID), 10)):
            tables.append_log_ends(rows_of([sample] if sample else []))
            endpoint.tailer.poll()
            with Client(endpoint.bootstrap) as client:
                assert newest_offset_fetch(client) == newest
                assert len(client.ask(9, 9, everything)["groups"][0]["topics"]) == 2
                client.send(9, 10, everything)
                assert bool(client.frame()) == (newest == 10)


# --- members and assignors ---------------------------------------------------------------------------------


def described(client: Client, *names: str) -> dict[str, dict[str, Any]]:
    """Return what is said of groups of the consumer protocol, by their names."""
    return {one["groupId"]: one for one in client.ask(69, 1, {"groupIds": list(names)})["groups"]}


@pytest.mark.parametrize("assignment", ["assignment", "target_assignment"])
def test_a_topic_of_a_member_whose_name_is_not_known_has_its_id_for_a_name(
    tables: Tables, assignment: str
) -> None:
    assigned = {"topic_id": TOPIC_ID, "partitions": [0, 2]}
    member = {"member_id": "m", "member_epoch": 3, assignment: [assigned]}
    idle = {"member_id": "i", "member_epoch": 3, "assignment": [], "target_assignment": []}
    fill(tables, {"g": group(source_partition=0, type="consumer", members=[idle, member])})
    field = "assignment" if assignment == "assignment" else "targetAssignment"
    with listening(tables) as endpoint, Client(endpoint.bootstrap) as client:
        for name in (TOPIC_ID, "t"):
            found = described(client, "g")["g"]
            assert found["errorCode"] == Error.NONE
            assert found["members"][1][field]["topicPartitions"] == [
                {"topicId": TOPIC_ID, "topicName": name, "partitions": [0, 2]}
            ]
            [topic] = client.ask(3, 12, {"topics": None})["topics"]  # it can be asked about under this name
            assert topic["name"] == name
            assert [one["partitionIndex"] for one in topic["partitions"]] == [0, 1, 2]
            assert client.ask(3, 9, {"topics": [{"name": name}]})["topics"][0]["errorCode"] == Error.NONE
            tables.append_log_ends(rows_of([Sample(now_ms() - 1_000, "t", 0, 10, TOPIC_ID)]))
            endpoint.tailer.poll()
        [gone] = client.ask(3, 9, {"topics": [{"name": TOPIC_ID}]})["topics"]
        assert gone["errorCode"] == Error.UNKNOWN_TOPIC_OR_PARTITION


def test_a_share_group_is_described_with_its_members(tables: Tables) -> None:
    has = {"subscribed_topics": ["t", "u"], "assignment": [{"topic_id": TOPIC_ID, "partitions": [0, 2]}]}
    members = [
        {"member_id": "m", "client_id": "c", "client_host": "/h", "member_epoch": 3, "rack_id": "r", **has},
        {"member_id": "n", "client_id": "c", "client_host": "/h", "member_epoch": 2},  # nothing else is kept
    ]
    about = {"state": "Stable", "generation_or_epoch": 4, "assignment_epoch": 3}
    fill(
        tables,
        {
            "shared": group(source_partition=0, type="share", members=members, **about),
            "g": group(source_partition=0, type="consumer"),
        },
    )
    with listening(tables) as endpoint, Client(endpoint.bootstrap) as client:
        asked = {"groupIds": ["shared", "g", "nope", ""], "includeAuthorizedOperations": True}
        found, *others = client.ask(77, 1, asked)["groups"]
        [consumer] = client.ask(69, 1, {"groupIds": ["shared"]})["groups"]
    assert (found["errorCode"], found["groupState"], found["assignorName"]) == (0, "Stable", "")
    assert (found["groupEpoch"], found["assignmentEpoch"], found["authorizedOperations"]) == (4, 3, 1 << 8)
    assigned = [{"topicId": TOPIC_ID, "topicName": TOPIC_ID, "partitions": [0, 2]}]  # its name is not known
    assert [list(one.values()) for one in found["members"]] == [
        ["m", "r", 3, "c", "/h", ["t", "u"], {"topicPartitions": assigned}],
        ["n", None, 2, "c", "/h", [], {"topicPartitions": []}],
    ]
    assert [(one["errorCode"], one["errorMessage"]) for one in others] == [
        (Error.GROUP_ID_NOT_FOUND, "Group g is not a share group."),
        (Error.GROUP_ID_NOT_FOUND, "Group nope not found."),
        (Error.INVALID_GROUP_ID, None),
    ]
    assert consumer["errorMessage"] == "Group shared is not a consumer group."


@pytest.mark.parametrize("default", ["uniform", None])
def test_the_assignor_of_a_group_whose_members_chose_none_is_that_of_the_brokers(
    tables: Tables, default: str | None
) -> None:
    chosen = {"none": None, "empty": "", "range": "range"}
    told = Retention(
        **{"retention_ms": 60_000, "check_interval_ms": 5_000, "read_at": 0, "known_since": 0},
        source="broker",
        default_assignor=default,
    )
    groups: Batch = {
        name: group(source_partition=0, type="consumer", protocol=one) for name, one in chosen.items()
    }
    fill(tables, groups, retention=told)
    with listening(tables) as endpoint, Client(endpoint.bootstrap) as client:
        found = {name: one["assignorName"] for name, one in described(client, *chosen).items()}
        assert found == {"none": default or "", "empty": default or "", "range": "range"}
        fill(tables, {}, retention=None)  # nothing is known of the brokers
        endpoint.tailer.poll()
        assert described(client, "none")["none"]["assignorName"] == ""


# --- odd requests (test_same_answers has many more) --------------------------------------------------------


def test_what_a_broker_calls_invalid_is_invalid(ends: Tables) -> None:
    invalid = Error.INVALID_REQUEST
    with listening(ends) as endpoint, Client(endpoint.bootstrap) as client:
        for topic, number in (("nope", 0), ("", 0), ("known", -3), ("zzz", 1)):
            cursor = {"topicName": topic, "partitionIndex": number}
            [page] = client.ask(75, 0, {"topics": [{"name": "known"}], "cursor": cursor})["topics"]
            assert (page["errorCode"], page["partitions"]) == (invalid, [])
        resources = [
            {"resourceType": kind, "resourceName": "known", "configurationKeys": None} for kind in (2, 127)
        ]
        for asked, errors in ((resources, [invalid, invalid]), (resources[:1], [Error.NONE])):
            results = client.ask(32, 4, {"resources": asked})["results"]
            assert [one["errorCode"] for one in results] == errors


def test_filters_of_groups_are_read_as_brokers_read_them(tables: Tables) -> None:
    fill(tables, {"g": group(source_partition=0, state="Stable")})
    with listening(tables) as endpoint, Client(endpoint.bootstrap) as client:
        for field, wanted, is_found in (
            ("typesFilter", "CLASSIC", True),
            ("typesFilter", " classic ", False),
            ("statesFilter", "\0stable\t", True),
            ("statesFilter", "\xa0stable", False),
        ):
            groups = client.ask(16, 5, {field: [wanted]})["groups"]
            assert [one["groupId"] for one in groups] == ["g"] * is_found, wanted


# --- log ends ----------------------------------------------------------------------------------------------


@pytest.fixture
def ends(tables: Tables) -> Tables:
    """Committed offsets of topics whose ends are known, are less than a commit, and are not known."""
    now = now_ms()
    keys = {("known", 0): 5, ("late", 0): 12, ("gone", 0): 3}
    batch: Batch = {
        ("g", topic, number): offset(committed_offset=committed, source_partition=0, topic_id=TOPIC_ID)
        for (topic, number), committed in keys.items()
    }
    fill(tables, {**batch, "g": group(source_partition=0)})
    samples = [Sample(now - 1_000, topic, 0, 10, TOPIC_ID, 2) for topic in ("known", "late")]
    tables.append_log_ends(rows_of([*samples, gone(now - 1_000, "gone")]))
    return tables


def log_ends(client: Client, timestamp: int) -> dict[str, tuple[int, int]]:
    partitions = [{"partitionIndex": 0, "timestamp": timestamp}]
    topics = [{"name": name, "partitions": partitions} for name in ("known", "late", "gone", "nope")]
    answer = client.ask(2, 10, {"topics": topics})["topics"]
    return {
        one["name"]: (one["partitions"][0]["errorCode"], one["partitions"][0]["offset"]) for one in answer
    }


def leaders(client: Client) -> dict[str, tuple[int, list[int]]]:
    answer = client.ask(3, 12, {"topics": None})["topics"]
    return {
        one["name"]: (one["errorCode"], [part["leaderId"] for part in one["partitions"]]) for one in answer
    }


@pytest.mark.parametrize(
    "software",
    [
        ("apache-kafka-java", "4.3.1"),
        ("apache-kafka-java", "8.2.0-ccs"),  # of Confluent: Kafka's 4.2
        ("apache-kafka-java", "8.2.0-ccs-SNAPSHOT"),
        ("apache-kafka-java", "7.6.0-cex"),  # of somebody else
        ("librdkafka", "2.16.0"),
        None,
    ],
)
def test_a_partition_without_a_known_end_has_no_leader(
    ends: Tables, software: tuple[str, str] | None
) -> None:
    with listening(ends) as endpoint, Client(endpoint.bootstrap) as client:
        if software is not None:
            client.named(*software)
        assert leaders(client) == {"known": (0, [1]), "late": (0, [1]), "gone": (0, [-1])}
        assert log_ends(client, LATEST) == {
            "known": (Error.NONE, 10),
            "late": (Error.NONE, 12),  # no lag is negative
            "gone": (Error.NOT_LEADER_OR_FOLLOWER, -1),
            "nope": (Error.UNKNOWN_TOPIC_OR_PARTITION, -1),
        }
        assert log_ends(client, EARLIEST)["late"] == (Error.NONE, 2)


def test_an_end_that_was_sampled_long_ago_is_not_known(ends: Tables) -> None:
    clock = [now_ms()]
    with (
        listening(ends, within_ms=10**9, clock=lambda: clock[0]) as endpoint,
        Client(endpoint.bootstrap) as client,
    ):
        assert leaders(client)["known"] == (0, [1])
        clock[0] += MAX_SAMPLE_AGE_MS + 2_000
        assert fetched(client, "g")["g"][0] == Error.NONE
        assert leaders(client)["known"] == (0, [-1])
        for timestamp in (LATEST, EARLIEST):
            assert log_ends(client, timestamp)["known"] == (Error.NOT_LEADER_OR_FOLLOWER, -1)


def test_a_begin_that_is_not_known_is_an_error_that_is_not_tried_again(tables: Tables) -> None:
    fill(tables, {("g", "known", 0): offset(source_partition=0, topic_id=TOPIC_ID)})
    tables.append_log_ends(rows_of([Sample(now_ms() - 1_000, "known", 0, 10, TOPIC_ID, None)]))
    with listening(tables) as endpoint, Client(endpoint.bootstrap) as client:
        assert log_ends(client, LATEST)["known"] == (Error.NONE, 10)
        assert log_ends(client, EARLIEST)["known"] == (Error.UNSUPPORTED_VERSION, -1)


OF_CONFLUENT = [
    *("7.9.0-ccs", "8.0.0-ce", "8.1.0-0-ccs", "5.5.1-ccs"),
    *("7.6.0-ccs-SNAPSHOT", "7.6.0-ce-SNAPSHOT", "7.6.1-1-ccs", "7.6.0-ccs.1"),
]


@pytest.mark.parametrize(
    "version", ["3.9.2", "4.1.2", "2.8.2", *OF_CONFLUENT, "3.9.0.redhat-00003", "4", "x.y", "4.9999999999"]
)
def test_java_that_cannot_bear_a_partition_without_a_leader_gets_one(ends: Tables, version: str) -> None:
    with listening(ends) as endpoint, Client(endpoint.bootstrap) as client:
        client.named("apache-kafka-java", version)
        assert leaders(client)["gone"] == (0, [1])
        assert log_ends(client, LATEST)["gone"] == (Error.NONE, -1)


@pytest.mark.parametrize("timestamp", [0, 1_700_000_000_000, -3, -4, -5])
def test_other_moments_are_an_error_and_never_an_empty_log(ends: Tables, timestamp: int) -> None:
    with listening(ends) as endpoint, Client(endpoint.bootstrap) as client:
        answered = log_ends(client, timestamp)
        assert answered["known"] == answered["gone"] == (Error.UNSUPPORTED_VERSION, -1)


OTHER_ID = "AAAAAAAAAAEAAAAAAAAAAw"
TOPICS_OF_PAST = ("steady", "trimmed", "recreated", "shorter", "regrown", "missed")


@pytest.fixture
def past(tables: Tables) -> tuple[Tables, int]:
    """Tables with log ends of the last ten minutes, and the present moment (ms)."""
    now = now_ms()
    fill(
        tables,
        {("g", topic, 0): offset(committed_offset=1, source_partition=0) for topic in TOPICS_OF_PAST},
    )
    for minutes, end in ((10, 4), (5, 7), (0, 10)):
        at = now - minutes * MINUTE_MS - 1_000
        recreated = OTHER_ID if minutes else TOPIC_ID
        rows = [
            Sample(at, "steady", 0, end, TOPIC_ID, 0),
            Sample(at, "trimmed", 0, end, TOPIC_ID, 0 if minutes else 6),
            Sample(at, "recreated", 0, end, recreated, 0),
            Sample(at, "shorter", 0, 20 if minutes else 10, None, 0),
            Sample(at, "regrown", 0, end, None, 0),
            Sample(at, "missed", 0, end, TOPIC_ID, 0),
        ]
        tables.append_log_ends(rows_of(rows))
    tables.append_log_ends(rows_of([gone(now - 3 * MINUTE_MS, topic) for topic in ("regrown", "missed")]))
    return tables, now


def ends_at(client: Client, moments: dict[str, int], version: int = 10) -> dict[str, tuple[int, int, int]]:
    """Return by topic the error, the offset and the timestamp of its partition 0 at a moment."""
    topics = [
        {"name": name, "partitions": [{"partitionIndex": 0, "timestamp": at}]} for name, at in moments.items()
    ]
    found = {
        one["name"]: one["partitions"][0] for one in client.ask(2, version, {"topics": topics})["topics"]
    }
    return {name: (one["errorCode"], one["offset"], one["timestamp"]) for name, one in found.items()}


@pytest.mark.parametrize("version", [1, 6, 10])
def test_the_log_end_at_a_moment_is_that_of_the_last_sample_until_then(
    past: tuple[Tables, int], version: int
) -> None:
    tables, now = past
    ten, five, newest = (now - minutes * MINUTE_MS - 1_000 for minutes in (10, 5, 0))
    with listening(tables) as endpoint, Client(endpoint.bootstrap) as client:
        for moment, expected in (
            (ten, (Error.NONE, 4, ten)),
            (five - 1, (Error.NONE, 4, ten)),
            (five, (Error.NONE, 7, five)),
            (now, (Error.NONE, 10, newest)),
            (2**63 - 1, (Error.NONE, 10, newest)),
            (ten - 1, (Error.UNSUPPORTED_VERSION, -1, -1)),
            (0, (Error.UNSUPPORTED_VERSION, -1, -1)),
        ):
            assert ends_at(client, {"steady": moment}, version) == {"steady": expected}, moment


def test_a_moment_of_another_log_or_before_its_start_is_not_answered_with_its_end(
    past: tuple[Tables, int],
) -> None:
    tables, now = past
    moment = now - 6 * MINUTE_MS
    with listening(tables) as endpoint, Client(endpoint.bootstrap) as client:
        found = ends_at(client, dict.fromkeys((*TOPICS_OF_PAST, "nope"), moment))
        assert {name: one[:2] for name, one in found.items()} == {
            "steady": (Error.NONE, 4),
            "trimmed": (Error.NONE, 6),
            "recreated": (Error.UNSUPPORTED_VERSION, -1),
            "shorter": (Error.UNSUPPORTED_VERSION, -1),
            "regrown": (Error.UNSUPPORTED_VERSION, -1),  # it was gone since, and has no id
            "missed": (Error.NONE, 4),
            "nope": (Error.UNKNOWN_TOPIC_OR_PARTITION, -1),
        }


def test_many_moments_in_one_request_are_refused(past: tuple[Tables, int]) -> None:
    tables, now = past
    partitions = [{"partitionIndex": number, "timestamp": now - number} for number in range(11)]
    fill(tables, {("g", "steady", number): offset(source_partition=0) for number in range(1, 11)})
    tables.append_log_ends(
        rows_of([Sample(now - 500, "steady", number, 1, TOPIC_ID, 0) for number in range(1, 11)])
    )
    with listening(tables) as endpoint, Client(endpoint.bootstrap) as client:
        for count, error in ((10, Error.NONE), (11, Error.INVALID_REQUEST)):
            asked = [{"name": "steady", "partitions": partitions[:count]}]
            [topic] = client.ask(2, 10, {"topics": asked})["topics"]
            assert {one["errorCode"] for one in topic["partitions"]} == {error}


def test_moments_that_cannot_be_read_are_an_error_and_the_rest_is_answered(past: tuple[Tables, int]) -> None:
    tables, now = past
    with listening(tables) as endpoint, Client(endpoint.bootstrap) as client:
        for file in Path(tables.root, "log_ends").rglob("*.parquet"):
            file.unlink()
        moments = {"steady": now - MINUTE_MS, "trimmed": LATEST}
        found = ends_at(client, moments)
        assert found["steady"][:2] == (Error.UNKNOWN_SERVER_ERROR, -1)
        assert found["trimmed"][:2] == (Error.NONE, 10)
        assert any("log ends of the past cannot be read" in line for line in endpoint.said)


def test_a_partition_with_a_number_beyond_all_others_does_not_make_the_answer_huge(tables: Tables) -> None:
    highest = 2**31 - 1
    fill(tables, {("g", "t", number): offset(source_partition=0) for number in (0, 2, highest)})
    with listening(tables) as endpoint, Client(endpoint.bootstrap) as client:
        [topic] = client.ask(3, 12, {"topics": None})["topics"]
        assert [one["partitionIndex"] for one in topic["partitions"]] == [0, 2, highest]


# --- what is refused, and what closes the connection -------------------------------------------------------


def test_whatever_would_change_something_is_refused(ends: Tables) -> None:
    topics = [{"name": "known", "partitions": [{"partitionIndex": 0, "committedOffset": 1}]}]
    refused = Error.GROUP_AUTHORIZATION_FAILED
    with listening(ends) as endpoint, Client(endpoint.bootstrap) as client:
        for version in range(2, 11):
            with_metadata = [{**topics[0]["partitions"][0], "committedMetadata": None}]  # type: ignore[index]
            named = {"topicId": TOPIC_ID} if version >= 10 else {"name": "known"}
            asked = {"groupId": "g", "topics": [{**named, "partitions": with_metadata}]}
            [topic] = client.ask(8, version, asked)["topics"]
            assert {**topic, **named} == topic
            assert topic["partitions"] == [{"partitionIndex": 0, "errorCode": refused}]
        for version in range(4):
            answer = client.ask(42, version, {"groupsNames": ["g", "nope"]})
            assert [one["errorCode"] for one in answer["results"]] == [refused, refused]
        assert "only at the brokers" in answer["results"][0]["errorMessage"]
        assert client.ask(47, 0, {"groupId": "g", "topics": topics})["errorCode"] == refused
        assert fetched(client, "g")["g"][1]["known", 0] == 5


def test_transactions_and_share_groups_have_no_coordinator(ends: Tables) -> None:
    with listening(ends) as endpoint, Client(endpoint.bootstrap) as client:
        errors = [
            client.ask(10, 6, {"keyType": kind, "coordinatorKeys": ["x"]})["coordinators"][0]["errorCode"]
            for kind in (0, 1, 2, 7)
        ]
    invalid = Error.INVALID_REQUEST
    assert errors == [Error.NONE, Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, invalid, invalid]


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(ends: Tables) -> None:
    with listening(ends) as endpoint, Client(endpoint.bootstrap) as client:
        client.socket.sendall(bytes.fromhex("0000000b 0012 0006 00000007 ffff 00"))
        answer = apis_of(client.frame())
        assert answer == (7, Error.UNSUPPORTED_VERSION, [(18, 0, 5)])
        assert client.ask(18, 4, {"clientSoftwareName": "a", "clientSoftwareVersion": "1"})["apiKeys"]
        odd = {"clientSoftwareName": "a b", "clientSoftwareVersion": "1"}
        assert client.ask(18, 3, odd)["errorCode"] == Error.INVALID_REQUEST


@pytest.mark.parametrize(("cluster_id", "node_id", "error"), MEANT)
def test_a_client_of_another_cluster_or_node_is_sent_away(
    ends: Tables, cluster_id: str | None, node_id: int, error: int
) -> None:
    with listening(ends) as endpoint, Client(endpoint.bootstrap) as client:
        asked = meaning(CLUSTER_ID if cluster_id == OURS else cluster_id, node_id)
        answer = client.ask(18, 5, asked)
        assert (answer["errorCode"], bool(answer["apiKeys"])) == (error, error == Error.NONE)
        assert client.ask(18, 5, meaning(None, -1))["errorCode"] == Error.NONE  # on the same connection


def apis_of(frame: bytes) -> tuple[int, int, list[tuple[int, ...]]]:
    number, error, count = struct.unpack_from(">ihi", frame)
    return number, error, [struct.unpack_from(">hhh", frame, 10 + 6 * place) for place in range(count)]


@pytest.mark.parametrize(
    "request_hex",
    [
        "0000 0009 00000001 0000",  # Produce
        "0009 000b 00000001 0000 00 01 00 00",  # OffsetFetch 11, which there is not yet
        "0010 0006 00000001 0000 00",  # ListGroups of a version that there is not yet
        "0010 0004 00000001 0000 00 ff",  # a malformed one
        "ffff ffff",
        "",
    ],
)
def test_what_is_not_answered_closes_the_connection_and_no_other(ends: Tables, request_hex: str) -> None:
    frame = bytes.fromhex(request_hex)
    with (
        listening(ends) as endpoint,
        Client(endpoint.bootstrap) as client,
        Client(endpoint.bootstrap) as other,
    ):
        client.socket.sendall(len(frame).to_bytes(4, "big") + frame)
        assert client.frame() == b""
        assert other.ask(16, 4, {})["groups"]
        [said] = endpoint.said
        assert said.startswith(
            "a request cannot be read or is not supported, closing the connection: 127.0.0.1: "
        )


def connections_held() -> int:
    return sum(isinstance(one, Connection) for one in gc.get_objects())


@pytest.mark.parametrize("length", [10, 100_000, 4_000_000])
def test_a_malformed_request_leaves_nothing_to_the_garbage_collector(ends: Tables, length: int) -> None:
    """It may be large, and many of them may come before the next collection."""
    frame = bytes.fromhex("000f 0006 00000001 0000 00") + bytes(length)
    with listening(ends) as endpoint:
        gc.collect()
        gc.disable()
        try:
            before = connections_held()
            with Client(endpoint.bootstrap) as client:
                client.socket.sendall(len(frame).to_bytes(4, "big") + frame)
                assert client.frame() == b""
            wait_until(lambda: connections_held() == before, "the connection to be freed", timeout_s=5)
        finally:
            gc.enable()


def test_an_answer_is_kept_no_longer_than_what_it_is_made_from(tables: Tables) -> None:
    batch: Batch = {("g", "t", 0): offset(committed_offset=5, source_partition=0)}
    fill(tables, {**batch, "g": group(source_partition=0)})
    clock = [now_ms()]
    with listening(tables, clock=lambda: clock[0]) as endpoint, Client(endpoint.bootstrap) as client:
        for _ in range(3):  # each asks with a number of its own
            assert fetched(client, "g") == {"g": (0, {("t", 0): 5})}
        append(tables, {("g", "t", 0): offset(committed_offset=6, source_partition=0)}, now=clock[0])
        endpoint.tailer.poll()
        assert fetched(client, "g") == {"g": (0, {("t", 0): 6})}
        clock[0] += 200_000
        assert fetched(client, "g")["g"][0] == Error.COORDINATOR_NOT_AVAILABLE
        clock[0] -= 200_000
        assert fetched(client, "g") == {"g": (0, {("t", 0): 6})}


def test_clients_get_no_answers_that_were_kept_for_others(ends: Tables) -> None:
    with listening(ends) as endpoint, Client(endpoint.bootstrap) as one, Client(endpoint.bootstrap) as other:
        other.named("apache-kafka-java", "4.1.0")
        before, after = leaders(one), leaders(other)
        assert before != after
        assert (leaders(one), leaders(other)) == (before, after)


def test_no_more_answers_are_kept_than_there_is_room_for(
    ends: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apis, "_KEPT_BYTES", 3_000)
    with listening(ends) as endpoint, Client(endpoint.bootstrap) as client:
        assert endpoint.listener is not None
        for number in range(30):
            assert client.ask(15, 5, {"groups": [f"no-{number}"]})["groups"]
        assert 0 < len(endpoint.listener._kept._answers) < 10


def test_versions_that_are_offered_are_those_that_are_declared() -> None:
    assert {key: api.versions for key, api in APIS.items()} == apis.ADVERTISED


def test_an_answer_that_fails_closes_its_connection_and_is_reported_once(
    ends: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(request: Request, view: RequestContext) -> bytes:
        raise ZeroDivisionError("of a test")

    with listening(ends) as endpoint, Client(endpoint.bootstrap) as other:
        assert other.ask(16, 4, {})["groups"]
        with monkeypatch.context() as patch:
            patch.setattr("streaming.serve.kafka.connection.answer", fail)
            for _ in range(2):
                with Client(endpoint.bootstrap) as client:
                    client.send(16, 4, {"statesFilter": ["Stable"]})  # not what is known from before
                    assert client.frame() == b""
        assert other.ask(16, 4, {})["groups"]
        assert len(endpoint.said) == 1
        assert "ZeroDivisionError: of a test" in endpoint.said[0]


def test_the_table_of_apis_in_the_documentation_is_that_of_the_code() -> None:
    page = (Path(__file__).parents[3] / "docs" / "clients.md").read_text(encoding="utf-8")
    assert f"\n{apis.table()}\n" in page
