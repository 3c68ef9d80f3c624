"""Same frame, same answer: a real broker and the listener over tables of its topic say the same."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from java_lines import JavaLines, start_java_lines
from kafka_versions import KafkaVersion
from kafka_world import World, kafka_world
from listening import Client, Listening, listening
from same_answers import comparable, differences, requests

from decoders.messages import APIS
from streaming.jvm.jars import ensure_jars

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@pytest.fixture(scope="module")
def world(
    kafka_version: KafkaVersion, java_jars: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    with kafka_world(kafka_version, java_jars, tmp_path_factory.mktemp("world")) as made:
        yield made


@pytest.fixture(scope="module")
def door(world: World) -> Iterator[Listening]:
    with listening(world.tables) as running:
        yield running


def topic_ids(client: Client) -> dict[str, str]:
    topics = client.ask(3, 12, {"topics": [{"name": "orders"}, {"name": "payments"}]})["topics"]
    return {topic["name"]: topic["topicId"] for topic in topics}


def test_every_request_is_answered_as_by_the_broker(world: World, door: Listening) -> None:
    different = set[str]()
    with Client(world.bootstrap) as broker, Client(door.bootstrap) as ours:
        for api_key, version, body in requests(world.groups, topic_ids(broker)):
            name = APIS[api_key].name
            expected, found = (comparable(name, one.ask(api_key, version, body)) for one in (broker, ours))
            different |= {f"{name} {version}: {one}" for one in differences(expected, found)}
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
    ["--describe", "--group", "consumer"],
    ["--describe", "--group", "simple", "--offsets"],
    ["--describe", "--all-groups", "--members"],
    ["--describe", "--all-groups", "--members", "--verbose"],
    ["--describe", "--all-groups", "--state"],
    ["--describe", "--group", "classic", "--state", "--verbose"],
    ["--describe", "--group", "nope"],
    ["--describe", "--group", "share"],
    ["--reset-offsets", "--group", "simple", "--topic", "orders:0", "--to-earliest", "--dry-run"],
    ["--reset-offsets", "--group", "simple", "--topic", "orders:0", "--shift-by", "-2", "--dry-run"],
    ["--reset-offsets", "--group", "simple", "--all-topics", "--to-latest", "--dry-run"],
    ["--reset-offsets", "--group", "nope", "--topic", "orders", "--to-earliest", "--dry-run"],
]
REFUSED = [
    ["--delete", "--group", "simple"],
    ["--delete-offsets", "--group", "simple", "--topic", "orders"],
    ["--reset-offsets", "--group", "simple", "--topic", "orders:0", "--to-earliest", "--execute"],
]


@pytest.fixture(scope="module")
def tool() -> Iterator[JavaLines]:
    jars = Path(f"{ensure_jars('tools')}/*:{ensure_jars('broker')}")
    with start_java_lines("ConsumerGroups", jars) as java:
        yield java


def lines_of(tool: JavaLines, bootstrap: str, arguments: list[str]) -> tuple[int, list[str]]:
    """Return the exit code and what is printed, in an order of its own and without what differs: where we
    listen, the assignor that nobody asked for, and stack traces."""
    ran = tool.ask({"run": ["--bootstrap-server", bootstrap, *arguments]})
    told = ran["out"].replace(bootstrap, "HOST:PORT").replace(" uniform ", " - ")
    lines = [" ".join(line.split()) for line in told.splitlines() if not line.startswith("\tat ")]
    return ran["code"], sorted(line for line in lines if line)


@pytest.mark.parametrize("arguments", ALIKE, ids=" ".join)
def test_the_command_prints_the_same(
    world: World, door: Listening, tool: JavaLines, arguments: list[str]
) -> None:
    expected, found = (lines_of(tool, one, arguments) for one in (world.bootstrap, door.bootstrap))
    assert found == expected
    assert expected[1]


@pytest.mark.parametrize("arguments", REFUSED, ids=" ".join)
def test_the_command_is_refused_what_would_change_something(
    world: World, door: Listening, tool: JavaLines, arguments: list[str]
) -> None:
    before = lines_of(tool, world.bootstrap, ["--describe", "--group", "simple"])
    _, printed = lines_of(tool, door.bootstrap, arguments)
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


def test_librdkafka_sees_the_same(world: World, door: Listening) -> None:
    expected, found = seen_by_librdkafka(world.bootstrap), seen_by_librdkafka(door.bootstrap)
    assert found == expected
    admin = AdminClient({"bootstrap.servers": door.bootstrap, "log_level": 0})
    with pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
        admin.delete_consumer_groups(["simple"])["simple"].result(10)


# --- without brokers ---------------------------------------------------------------------------------------


def test_while_brokers_do_not_answer_all_of_it_is_answered(
    world: World, door: Listening, tool: JavaLines
) -> None:
    asked = [["--describe", "--all-groups"], ["--describe", "--all-groups", "--members"], ["--list"]]
    before = [lines_of(tool, door.bootstrap, one) for one in asked]
    seen = seen_by_librdkafka(door.bootstrap)
    os.kill(world.broker.pid, signal.SIGSTOP)  # for less than a session of its members
    try:
        assert [lines_of(tool, door.bootstrap, one) for one in asked] == before
        assert seen_by_librdkafka(door.bootstrap) == seen
    finally:
        os.kill(world.broker.pid, signal.SIGCONT)
