"""The past through the listener: what a broker answered at some moments, asked for later."""

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kafka_clients as kafka
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from consumer_groups_tool import lines_of
from java_lines import JavaLines, start_java_lines
from kafka_versions import VERSIONS, Feature
from listening import Client, Listening, listening
from maintenance_rounds import KEPT
from replayed_tables import Replaying
from same_answers import comparable, differences, requests

from decoders.messages import APIS
from streaming.common.times import iso, now_ms
from streaming.demo.local_broker import LocalBroker, free_ports
from streaming.jvm.jars import ensure_jars
from streaming.maintenance.maintenance import maintain
from streaming.serve.kafka.listener import cluster_id_as_of
from streaming.serve.kafka.moments import Moments
from streaming.tables.tables import Tables

pytestmark = [pytest.mark.broker, pytest.mark.slow]

A, B = "past-a", "past-b"
SIMPLE, MEMBERS, GONE = "past-simple", "past-members", "past-gone"
GROUPS = [SIMPLE, MEMBERS, GONE]
OFFSETS_PARTITIONS = 8

BEFORE = 1_700_000_000_000
"""A time (ms) at which no topic had a record or sample."""

COMMANDS = [
    ["--describe", *(word for group in (SIMPLE, MEMBERS) for word in ("--group", group))],
    ["--describe", "--group", MEMBERS, "--members", "--verbose"],
    ["--describe", "--group", MEMBERS, "--state"],
    ["--describe", "--group", GONE],
    ["--reset-offsets", "--group", SIMPLE, "--topic", A, "--to-latest", "--dry-run"],
]

Answers = list[tuple[int, int, dict[str, Any], dict[str, Any]]]
"""API, version, request and answer of each."""


@dataclass
class Recorded:
    """What clients were told by the broker at a moment (ms)."""

    moment: int
    answers: Answers
    printed: list[tuple[int, list[str]]]
    seen: dict[str, Any]
    java: dict[str, dict[str, Any]]
    """Answers to Admin, by its release."""


@dataclass
class World:
    tables: Tables
    recorded: list[Recorded] = field(default_factory=list)


def raw_answers(client: Client, topics: dict[str, str]) -> Answers:
    """Return the answers to every request, as far as they are about our groups."""
    return [(*asked, own_answer(client, *asked)) for asked in requests(GROUPS, topics)]


def own_answer(client: Client, api_key: int, version: int, body: dict[str, Any]) -> dict[str, Any]:
    return _own(comparable(APIS[api_key].name, client.ask(api_key, version, body)))


def _own(answer: dict[str, Any]) -> dict[str, Any]:
    listed = answer.get("groups", [])
    if not any("protocolType" in one and "members" not in one for one in listed):
        return answer
    return {**answer, "groups": [one for one in listed if one["groupId"] in GROUPS]}


def printed_by(tool: JavaLines, bootstrap: str, *more: str) -> list[tuple[int, list[str]]]:
    return [lines_of(tool, bootstrap, [*command, *more]) for command in COMMANDS]


def seen_by_librdkafka(bootstrap: str, client_id: str = "rdkafka") -> dict[str, Any]:
    """Return what confluent-kafka lists, describes and fetches; it is asked until nothing is loading."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "client.id": client_id})
    kafka.wait_until(lambda: not admin.list_consumer_groups().result(10).errors, "the groups to be listed")
    listed = admin.list_consumer_groups().result(10).valid
    [described] = admin.describe_consumer_groups([MEMBERS]).values()
    fetched = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(SIMPLE)])
    [end] = admin.list_offsets({TopicPartition(A, 0): OffsetSpec.latest()}).values()
    return {
        "groups": sorted((one.group_id, one.state.name) for one in listed if one.group_id in GROUPS),
        "members": sorted((one.member_id, one.host) for one in described.result(10).members),
        "offsets": sorted(
            (one.topic, one.partition, one.offset) for one in fetched[SIMPLE].result(10).topic_partitions
        ),
        "end": end.result(10).offset,
    }


JAVA_RELEASES = ("4.3.1", "4.4.0")


@pytest.fixture(scope="module")
def admins() -> Iterator[Mapping[str, JavaLines]]:
    """Java's Admin, by its release."""
    with ExitStack() as programs:
        yield {
            release: programs.enter_context(
                start_java_lines("AdminAnswers", [ensure_jars(VERSIONS[release].jars)])
            )
            for release in JAVA_RELEASES
        }


def seen_by_java(admin: JavaLines, bootstrap: str, timestamp: int, client_id: str = "java") -> dict[str, Any]:
    return admin.ask(
        {
            "bootstrap": bootstrap,
            "client_id": client_id,
            "groups": GROUPS,
            "topic": A,
            "timestamp": timestamp,
        }
    )


@pytest.fixture(scope="module")
def world(
    broker: LocalBroker,
    consumer_groups: JavaLines,
    admins: Mapping[str, JavaLines],
    tmp_path_factory: pytest.TempPathFactory,
) -> World:
    """Tables that a broker was copied to at three moments, between which everything changed, and that were
    folded and compacted since; and what the broker answered at each."""
    bootstrap = broker.bootstrap_servers
    made = World(Tables(str(tmp_path_factory.mktemp("past") / "tables")))
    made.tables.create()
    replaying = Replaying(made.tables, bootstrap, OFFSETS_PARTITIONS)
    kafka.create_topics(bootstrap, {A: 2, B: 1})
    with Client(bootstrap) as client:
        asked = client.ask(3, 12, {"topics": [{"name": A}, {"name": B}]})["topics"]
    topics = {topic["name"]: topic["topicId"] for topic in asked}

    def record() -> None:
        replaying.go_on()
        with Client(bootstrap) as client:
            answers = raw_answers(client, topics)
        printed, seen = printed_by(consumer_groups, bootstrap), seen_by_librdkafka(bootstrap)
        first = made.recorded[0].moment if made.recorded else BEFORE
        java = {release: seen_by_java(admin, bootstrap, first) for release, admin in admins.items()}
        made.recorded.append(Recorded(now_ms(), answers, printed, seen, java))
        time.sleep(0.002)

    with ExitStack() as members:
        kafka.produce_raw(bootstrap, A, [(b"k", b"v")] * 10)
        kafka.produce_raw(bootstrap, B, [(b"k", b"v")] * 4)
        kafka.commit_offsets(bootstrap, SIMPLE, {(A, 0): 3, (B, 0): 1})
        members.enter_context(kafka.member(bootstrap, MEMBERS, A))
        record()
        kafka.produce_raw(bootstrap, A, [(b"k", b"v")] * 5)
        kafka.commit_offsets(bootstrap, SIMPLE, {(A, 0): 12})
        kafka.delete_offsets(bootstrap, SIMPLE, [(B, 0)])
        kafka.commit_offsets(bootstrap, GONE, {(A, 1): 0})
        record()
    made.tables.fold()
    kafka.delete_group(bootstrap, GONE)
    kafka.commit_offsets(bootstrap, SIMPLE, {(A, 0): 1})
    record()
    kafka.commit_offsets(bootstrap, SIMPLE, {(A, 0): 2, (A, 1): 0})
    replaying.go_on()
    maintain(made.tables, KEPT, clock=now_ms)
    return made


@pytest.fixture(scope="module")
def endpoint(world: World) -> Iterator[Listening]:
    with listening(world.tables, moments=Moments()) as running:
        yield running


def assert_same(client: Client, expected: Answers) -> None:
    different = set[str]()
    for api_key, version, body, answer in expected:
        found = own_answer(client, api_key, version, body)
        about = f"{APIS[api_key].name} {version}"
        different |= {f"{about}: {one}, asked {body}" for one in differences(answer, found)}
    assert different == set()


def settled(client: Client) -> None:
    """Ask until the snapshot was read."""
    kafka.wait_until(lambda: client.ask(16, 4, {})["errorCode"] != 14, "the snapshot")


@pytest.mark.needs(Feature.DESCRIBE_GROUPS_6)
@pytest.mark.parametrize("number", range(3))
def test_every_request_is_answered_as_by_the_broker_then(
    world: World, endpoint: Listening, number: int
) -> None:
    then = world.recorded[number]
    with Client(endpoint.bootstrap, client_id=f"as-of={then.moment}") as client:
        settled(client)
        assert_same(client, then.answers)
    others = [one.answers for one in world.recorded if one is not then]
    assert then.answers not in others


@pytest.mark.parametrize("number", [0, *(pytest.param(number, marks=pytest.mark.more) for number in (1, 2))])
def test_clients_see_what_they_saw_then(
    world: World, endpoint: Listening, consumer_groups: JavaLines, tmp_path: Path, number: int
) -> None:
    then = world.recorded[number]
    client_id = f"as-of={iso(then.moment)}"
    file = tmp_path / "client.properties"
    file.write_text(f"client.id={client_id}\n")
    assert printed_by(consumer_groups, endpoint.bootstrap, "--command-config", str(file)) == then.printed
    assert seen_by_librdkafka(endpoint.bootstrap, client_id) == then.seen


def test_a_listener_of_a_moment_answers_every_client_from_it(
    world: World, consumer_groups: JavaLines
) -> None:
    then = world.recorded[1]
    with listening(world.tables, moments=Moments(iso(then.moment))) as running:
        assert printed_by(consumer_groups, running.bootstrap) == then.printed
        assert seen_by_librdkafka(running.bootstrap) == then.seen
        assert running.said == []


@pytest.mark.parametrize("release", JAVA_RELEASES)
def test_java_sees_what_it_saw_then(
    world: World, endpoint: Listening, admins: Mapping[str, JavaLines], release: str
) -> None:
    [first, *_] = world.recorded
    for then in world.recorded:
        expected = dict(then.java[release])
        if then is first:  # nothing was sampled before
            timestamp, expected["listOffsets timestamp"] = BEFORE, None
        else:
            timestamp = first.moment
        with listening(world.tables, moments=Moments(iso(then.moment))) as fixed:
            for place, client_id in ((endpoint, f"as-of={then.moment}"), (fixed, "java")):
                found = seen_by_java(admins[release], place.bootstrap, timestamp, client_id)
                if then is first:
                    assert found["listOffsets timestamp"]["failed"] == "UnsupportedVersionException"
                    found["listOffsets timestamp"] = None
                assert found == expected
    assert [one.java[release]["listOffsets latest"] for one in world.recorded] == [10, 15, 15]
    assert [one.java[release]["listOffsets timestamp"] for one in world.recorded] == [0, 10, 10]
    described = [one.java[release]["describeConsumerGroups"][MEMBERS] for one in world.recorded]
    assert [one[0] for one in described] == ["STABLE", "STABLE", "EMPTY"]


@pytest.mark.parametrize("release", JAVA_RELEASES)
def test_a_refused_moment_ends_java_before_its_timeout(
    endpoint: Listening, admins: Mapping[str, JavaLines], release: str
) -> None:
    found = seen_by_java(admins[release], endpoint.bootstrap, BEFORE, "as-of=soon")
    of_groups = found.pop("describeConsumerGroups")
    assert {group: one["failed"] for group, one in of_groups.items()} == dict.fromkeys(
        GROUPS, "InvalidRequestException"
    )
    for one in of_groups.values():
        assert "client.id as-of=: expected a time, found 'soon'" in one["message"]
    assert {question: one["failed"] for question, one in found.items()} == {
        "listGroups": "InvalidRequestException",
        "listConsumerGroups": "InvalidRequestException",
        "listConsumerGroupOffsets": "InvalidRequestException",
        "listOffsets latest": "TopicAuthorizationException",
        "listOffsets timestamp": "TopicAuthorizationException",
    }


def test_each_moment_is_a_cluster_of_its_own(world: World, endpoint: Listening) -> None:
    with Client(endpoint.bootstrap) as client:
        ids = {client.ask(60, 0, {})["clusterId"]}
        for then in world.recorded:
            client.client_id = f"as-of={then.moment}"
            found = client.ask(60, 0, {})["clusterId"]
            assert client.ask(3, 12, {"topics": []})["clusterId"] == found
            assert found == cluster_id_as_of("AAAAAAAAAAAAAAAAAAAAAQ", then.moment)
            ids.add(found)
    assert len(ids) == 4


def test_a_refused_moment_ends_clients_with_the_reason(
    endpoint: Listening, consumer_groups: JavaLines, tmp_path: Path
) -> None:
    why = "client.id as-of=: expected a time, found 'soon'"
    file = tmp_path / "client.properties"
    file.write_text("client.id=as-of=soon\n")
    more = ["--command-config", str(file)]
    for command in (["--describe", "--group", SIMPLE], ["--describe", "--group", MEMBERS, "--state"]):
        _, lines = lines_of(consumer_groups, endpoint.bootstrap, [*command, *more])
        assert any(line.startswith("Error: ") for line in lines)
        assert why in str(lines)
    _, lines = lines_of(consumer_groups, endpoint.bootstrap, ["--list", *more])
    assert "InvalidRequestException" in str(lines)
    assert [sentence for sentence in endpoint.said if why in sentence]


def test_a_refused_moment_ends_librdkafka(endpoint: Listening) -> None:
    admin = AdminClient({"bootstrap.servers": endpoint.bootstrap, "client.id": "as-of=soon", "log_level": 0})
    [error] = admin.list_consumer_groups().result(10).errors
    assert error.code() == KafkaError.INVALID_REQUEST
    asked = [ConsumerGroupTopicPartitions(SIMPLE)]
    futures = [
        admin.list_consumer_group_offsets(asked)[SIMPLE],
        *admin.describe_consumer_groups([SIMPLE]).values(),
    ]
    for future in futures:
        with pytest.raises(KafkaException) as raised:
            future.result(10)
        assert raised.value.args[0].code() == KafkaError.INVALID_REQUEST
    assert "expected a time, found 'soon'" in str(raised.value)
    [end] = admin.list_offsets({TopicPartition(A, 0): OffsetSpec.latest()}).values()
    with pytest.raises(KafkaException, match="No leaders found"):
        end.result(10)


@pytest.mark.more
def test_serve_answers_from_the_same_moments_when_it_was_restarted(world: World, tmp_path: Path) -> None:
    moments = [one.moment for one in world.recorded]
    ports = free_ports(2)
    settings = tmp_path / "settings.toml"
    settings.write_text(
        f"[serve]\nas_of_clients = true\n"
        f'[[serve.kafka]]\nlisten = "127.0.0.1:{ports[0]}"\nas_of = "{iso(moments[0])}"\n'
        f'[[serve.kafka]]\nlisten = "127.0.0.1:{ports[1]}"\n'
    )
    command = [sys.executable, "-m", "streaming.cli", "serve", "--no-http", "--config", str(settings)]
    command += ["--table-root", world.tables.root]
    ids = list[set[str]]()
    for _ in range(2):
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stderr is not None
                lines = [process.stderr.readline() for _ in range(2)]
                assert (
                    f"answering Kafka's clients on 127.0.0.1:{ports[0]} as of {iso(moments[0])}" in lines[0]
                )
                assert f"answering Kafka's clients on 127.0.0.1:{ports[1]}\n" in lines[1]
                with Client(f"127.0.0.1:{ports[0]}") as first, Client(f"127.0.0.1:{ports[1]}") as second:
                    second.client_id = f"as-of={moments[1]}"
                    for client, then in ((first, world.recorded[0]), (second, world.recorded[1])):
                        settled(client)
                        assert_same(client, [one for one in then.answers if one[0] in (9, 15, 2)])
                    ids.append({client.ask(60, 0, {})["clusterId"] for client in (first, second)})
                process.terminate()
                assert process.wait(10) == 0
            finally:
                process.kill()
    assert len(ids[0]) == 2
    assert ids[0] == ids[1]
