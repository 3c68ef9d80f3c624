"""Same frame, same answer: a real broker and the listener over tables of its topic say the same."""

import os
import signal
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from authorized import PROTOCOL, let_see, sign_in
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from consumer_groups_tool import lines_of
from java_lines import JavaLines
from kafka_versions import Feature, KafkaVersion
from kafka_world import PARTITIONS, World, kafka_world
from listening import Client, Listening, listening
from new_tables import new_tables
from odd_requests import Asked, odd_requests
from replayed_tables import replay_broker
from same_answers import MEANT, OURS, comparable, differences, meaning, requests
from seen_by import Seen, principal, seen_by
from table_batches import Batch, append, group, offset

from decoders.messages import APIS
from streaming.common.times import now_ms
from streaming.model.progress import PartitionProgress
from streaming.tables.tables import Tables

pytestmark = [pytest.mark.broker, pytest.mark.slow]

AS_THE_NEWEST = pytest.mark.needs(Feature.DESCRIBE_GROUPS_6)
"""Of what older brokers say in older versions only: the listener answers as the newest release does."""
WITH_CONSUMERS = pytest.mark.needs(Feature.CONSUMER_PROTOCOL)


@pytest.fixture(scope="module")
def world(
    kafka_version: KafkaVersion, java_jars: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    with kafka_world(kafka_version, java_jars, tmp_path_factory.mktemp("world")) as made:
        yield made


@pytest.fixture(scope="module")
def endpoint(world: World) -> Iterator[Listening]:
    with listening(world.tables) as running:
        yield running


def topic_ids(client: Client) -> dict[str, str]:
    topics = client.ask(3, 12, {"topics": [{"name": "orders"}, {"name": "payments"}]})["topics"]
    return {topic["name"]: topic["topicId"] for topic in topics}


@pytest.fixture
def endpoint_with_empty_id(world: World, tmp_path: Path) -> Iterator[Listening]:
    """An endpoint behind which there is a group whose id is empty, as at the broker meanwhile."""
    with world.with_empty_id(tmp_path) as tables, listening(tables) as running:
        yield running


@AS_THE_NEWEST
def test_every_request_is_answered_as_by_the_broker(world: World, endpoint_with_empty_id: Listening) -> None:
    with Client(world.bootstrap) as broker, Client(endpoint_with_empty_id.bootstrap) as ours:
        assert_same(broker, ours, requests([*world.groups, ""], topic_ids(broker)))


@AS_THE_NEWEST
def test_odd_requests_are_answered_as_by_the_broker(world: World, endpoint: Listening) -> None:
    with Client(world.bootstrap) as broker, Client(endpoint.bootstrap) as ours:
        assert_same(broker, ours, odd_requests(world.groups, topic_ids(broker)))


def test_a_client_of_another_cluster_is_sent_away_as_by_the_broker(world: World, endpoint: Listening) -> None:
    for bootstrap in (world.bootstrap, endpoint.bootstrap):
        with Client(bootstrap) as client:
            newest = {api["apiKey"]: api["maxVersion"] for api in client.ask(18, 0, {})["apiKeys"]}
            if newest[18] < 5:
                pytest.skip("this broker has no ApiVersions 5, in which clients state their cluster")
            own = client.ask(60, 0, {})["clusterId"]
            errors = [
                client.ask(18, 5, meaning(own if cluster_id == OURS else cluster_id, node_id))["errorCode"]
                for cluster_id, node_id, _ in MEANT
            ]
        assert errors == [error for *_, error in MEANT]


# --- users who may describe some groups and topics ---------------------------------------------------------

SEES = {
    "some": (["c*", "simple", "range"], ["orders"]),
    "payments": (["c*", "share", "nope"], ["payments", "no*"]),
    "none": ([], []),
    "all": (["*"], ["*"]),
}
"""Patterns of groups and of topics, by the user's name at the broker."""


@AS_THE_NEWEST
@pytest.mark.parametrize("user", SEES)
def test_a_user_sees_as_much_as_of_a_broker_with_the_same_rights(world: World, user: str) -> None:
    let_see(world.bootstrap, user, *SEES[user])
    ours = seen_by(principal(*SEES[user]), world.tables)
    with Client(world.bootstrap) as first, Client(world.broker.bootstrap_servers_of(PROTOCOL)) as broker:
        ids = topic_ids(first)
        asked = chain(
            requests([*world.groups, ""], ids), odd_requests(world.groups, ids), requests_of_users(user)
        )
        assert_same(sign_in(broker, user), ours, asked)


def requests_of_users(user: str) -> Asked:
    """Name requests whose answers depend on rights."""
    names = ["orders", "payments", "nope", "no/topic", "simple", "share", ""]
    resources = [
        {"resourceType": kind, "resourceName": name, "configurationKeys": []}
        for kind in (2, 32)
        for name in names
    ]
    for version in APIS[32].versions:
        yield 32, version, {"resources": resources}
    if user == "all":  # this one may see topics of the broker, and change something there
        return
    for version in APIS[3].versions:
        yield 3, version, {"topics": None if version else [], "allowAutoTopicCreation": False}
    for limit in (1, 2, 2_000):
        yield 75, 0, {"topics": [], "responsePartitionLimit": limit}
        yield 75, 0, {"topics": [{"name": name} for name in names], "responsePartitionLimit": limit}
    partition = {"partitionIndex": 0, "committedOffset": 1, "committedMetadata": ""}
    topics = [{"name": "orders", "partitions": [partition]}]
    for name in ("simple", "share", "nope"):
        yield 47, 0, {"groupId": name, "topics": topics}
        for version in range(2, 10):
            yield 8, version, {"groupId": name, "topics": topics}
    for version in range(3):
        yield 42, version, {"groupsNames": ["simple", "share", "nope"]}


def assert_same(broker: Client, ours: Client | Seen, asked: Asked) -> None:
    """Both are asked the same, and both say the same."""
    different = set[str]()
    for api_key, version, body in asked:
        name = APIS[api_key].name
        expected, found = (comparable(name, one.ask(api_key, version, body)) for one in (broker, ours))
        different |= {f"{name} {version}: {one}, asked {body}" for one in differences(expected, found)}
    print(*sorted(different), sep="\n")
    assert different == set()


# --- Kafka's own command -----------------------------------------------------------------------------------

ALIKE = [
    ["--list"],
    ["--list", "--state"],
    ["--list", "--type"],
    ["--list", "--state", "stable", "--type", "consumer"],
    ["--describe", "--all-groups"],
    ["--describe", "--all-groups", "--verbose"],
    ["--describe", "--group", "simple", "--offsets"],
    ["--describe", "--all-groups", "--members"],
    ["--describe", "--all-groups", "--members", "--verbose"],
    ["--describe", "--all-groups", "--state"],
    ["--describe", "--group", "classic", "--state", "--verbose"],
    ["--reset-offsets", "--group", "simple", "--topic", "orders:0", "--to-earliest", "--dry-run"],
    ["--reset-offsets", "--group", "simple", "--topic", "orders:0", "--shift-by", "-2", "--dry-run"],
    ["--reset-offsets", "--group", "simple", "--all-topics", "--to-latest", "--dry-run"],
    ["--reset-offsets", "--group", "nope", "--topic", "orders", "--to-earliest", "--dry-run"],
]
FAILING = [["--describe", "--group", name] for name in ("nope", "share")]
"""What is an error, of a broker too."""
OF_A_CONSUMER = [["--describe", "--group", "consumer"]]
REFUSED = [
    ["--delete", "--group", "simple"],
    ["--delete-offsets", "--group", "simple", "--topic", "orders"],
    ["--reset-offsets", "--group", "simple", "--topic", "orders:0", "--to-earliest", "--execute"],
]


@pytest.fixture(scope="module")
def tool(consumer_groups: JavaLines) -> JavaLines:
    return consumer_groups


@pytest.mark.parametrize(
    "arguments",
    [
        *ALIKE,
        *(pytest.param(one, marks=AS_THE_NEWEST) for one in FAILING),
        *(pytest.param(one, marks=WITH_CONSUMERS) for one in OF_A_CONSUMER),
    ],
    ids=" ".join,
)
def test_the_command_prints_the_same(
    world: World, endpoint: Listening, tool: JavaLines, arguments: list[str]
) -> None:
    expected, found = (lines_of(tool, one, arguments) for one in (world.bootstrap, endpoint.bootstrap))
    assert found == expected
    assert expected[1]
    assert any(line.startswith("Error: ") for line in found[1]) == (arguments in FAILING)


@AS_THE_NEWEST
@pytest.mark.parametrize(
    "arguments",
    [pytest.param(["--list"], marks=pytest.mark.more), ["--describe", "--all-groups"]],
    ids=" ".join,
)
def test_the_command_prints_the_same_where_there_is_a_group_without_a_name(
    world: World, endpoint_with_empty_id: Listening, tool: JavaLines, arguments: list[str]
) -> None:
    bootstraps = (world.bootstrap, endpoint_with_empty_id.bootstrap)
    expected, found = (lines_of(tool, one, arguments) for one in bootstraps)
    assert found == expected
    assert ("InvalidGroupIdException" in str(found)) == ("--describe" in arguments)


def test_partitions_that_a_group_never_committed_are_described(
    endpoint: Listening, world: World, tool: JavaLines, tmp_path: Path
) -> None:
    assert described(tool, endpoint, "classic orders") == [[*"0-", "20", "-"], [*"1-", "10", "-"]]
    tables = Tables(str(tmp_path))  # in which the ends of logs are not known either
    tables.create()
    replay_broker(tables, world.bootstrap, PARTITIONS, samples=False)
    with listening(tables) as unsampled:
        assert described(tool, unsampled, "classic orders") == [[*"0---"], [*"1---"]]


@pytest.mark.more
def test_partitions_that_no_group_ever_committed_are_described(
    world: World, tool: JavaLines, tmp_path: Path, kafka_version: KafkaVersion
) -> None:
    has_consumers = kafka_version.has(Feature.CONSUMER_PROTOCOL)
    kinds = ["classic", "consumer"] if has_consumers else ["classic"]
    with world.with_readers_of_empty(tmp_path, kinds) as tables, listening(tables) as endpoint:
        for kind in kinds:
            assert described(tool, endpoint, f"reader-{kind} empty") == [[*"0-0-"]]


def test_a_topic_whose_name_is_not_known_keeps_no_group_from_being_described(
    tool: JavaLines, tmp_path: Path
) -> None:
    tables = new_tables(tmp_path)
    topic_id = "AAAAAAAAAAEAAAAAAAAAAg"
    has = {"assignment": [{"topic_id": topic_id, "partitions": [0, 2]}]}
    member = {"member_id": "m", "client_id": "c", "client_host": "/h", "member_epoch": 3, **has}
    batch: Batch = {
        "reads-unknown": group(source_partition=0, type="consumer", members=[member]),
        "other": group(source_partition=0, members=[]),
        ("other", "orders", 0): offset(source_partition=0, committed_offset=7),
    }
    append(tables, batch, partitions={0: PartitionProgress(position=10, loaded=True)}, now=now_ms())
    with listening(tables) as endpoint:
        assert described(tool, endpoint, "other orders") == [[*"07--"]]
        assert described(tool, endpoint, f"reads-unknown {topic_id}") == [[*"0---"], [*"2---"]]


def described(tool: JavaLines, endpoint: Listening, begin: str) -> list[list[str]]:
    """Return partition, offset, log end and lag of the lines that begin so, of all groups."""
    code, lines = lines_of(tool, endpoint.bootstrap, ["--describe", "--all-groups"])
    assert code == 0
    assert not any(line.startswith("Error: ") for line in lines), lines
    return [line.split()[2:6] for line in lines if line.startswith(begin)]


@pytest.mark.parametrize("arguments", REFUSED, ids=" ".join)
def test_the_command_is_refused_what_would_change_something(
    world: World, endpoint: Listening, tool: JavaLines, arguments: list[str]
) -> None:
    before = lines_of(tool, world.bootstrap, ["--describe", "--group", "simple"])
    _, printed = lines_of(tool, endpoint.bootstrap, arguments)
    assert "GroupAuthorizationException" in str(printed) or "Not authorized" in str(printed)
    assert lines_of(tool, world.bootstrap, ["--describe", "--group", "simple"]) == before


# --- librdkafka --------------------------------------------------------------------------------------------


def seen_by_librdkafka(bootstrap: str) -> dict[str, Any]:
    """Return what confluent-kafka lists, describes and fetches."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    listed = admin.list_consumer_groups().result(10)
    assert listed.errors == []
    described = admin.describe_consumer_groups(["classic", "consumer", "simple"])
    end = TopicPartition("orders", 0)
    [latest] = admin.list_offsets({end: OffsetSpec.latest()}).values()
    fetched = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("simple")])
    return {
        "groups": sorted((one.group_id, one.state.name, one.type.name) for one in listed.valid),
        "members": {
            name: sorted(
                (
                    member.member_id,
                    member.client_id,
                    member.host,
                    sorted((one.topic, one.partition) for one in member.assignment.topic_partitions),
                )
                for member in future.result(10).members
            )
            for name, future in described.items()
        },
        "offsets": sorted(
            (one.topic, one.partition, one.offset, one.metadata)
            for one in fetched["simple"].result(10).topic_partitions
        ),
        "end": latest.result(10).offset,
    }


def test_librdkafka_sees_the_same(world: World, endpoint: Listening) -> None:
    expected, found = seen_by_librdkafka(world.bootstrap), seen_by_librdkafka(endpoint.bootstrap)
    assert found == expected
    admin = AdminClient({"bootstrap.servers": endpoint.bootstrap, "log_level": 0})
    with pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
        admin.delete_consumer_groups(["simple"])["simple"].result(10)


# --- without brokers ---------------------------------------------------------------------------------------


def test_while_brokers_do_not_answer_all_of_it_is_answered(
    world: World, endpoint: Listening, tool: JavaLines
) -> None:
    asked = [["--describe", "--all-groups"], ["--describe", "--all-groups", "--members"], ["--list"]]
    before = [lines_of(tool, endpoint.bootstrap, one) for one in asked]
    seen = seen_by_librdkafka(endpoint.bootstrap)
    os.kill(world.broker.pid, signal.SIGSTOP)  # for less than a session of its members
    try:
        assert [lines_of(tool, endpoint.bootstrap, one) for one in asked] == before
        assert seen_by_librdkafka(endpoint.bootstrap) == seen
    finally:
        os.kill(world.broker.pid, signal.SIGCONT)
