"""Clients of other languages and makers, unmodified, see the same at a broker and at the listener.

Only `make test-clients` runs this (it sets CLIENTS). What a machine lacks is skipped, with its reason.
"""

import json
import os
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import client_programs
import pytest
from client_programs import MissingError, Program
from kafka_clients import wait_until
from kafka_versions import KafkaVersion
from kafka_world import World, kafka_world
from listening import Listening, listening

from streaming.demo.local_broker import free_ports

pytestmark = [
    pytest.mark.clients,
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.skipif("CLIENTS" not in os.environ, reason="`make test-clients` runs it"),
    pytest.mark.timeout(900),  # the first time a client is downloaded and built
]


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


# --- libraries: what they list, describe, fetch, and the log ends ------------------------------------------

LIBRARIES: dict[str, Callable[[], Program]] = {
    "kafka-python": client_programs.kafka_python,
    "kafkajs": client_programs.kafkajs,
    "kadm": client_programs.kadm,
    "sarama": client_programs.sarama,
    "sarama as of 0.11": lambda: client_programs.sarama("0.11.0.0"),
    "sarama as of 3.6": lambda: client_programs.sarama("3.6.0"),
}


REFUSALS = ("uthoriz", "AUTHORIZ", "The version of API is not supported")
"""What clients say who may not; Sarama as of 0.11 has no such request."""


def seen_by(program: Program, bootstrap: str, groups: list[str]) -> tuple[dict[str, Any], str]:
    """Return what a client was told, and how it was refused to delete a group."""
    answers = json.loads(program.ask(bootstrap, groups))
    refused = answers.pop("refused")
    return comparable(answers), refused


def comparable(answer: Any) -> Any:
    """Return an answer without what the documentation says is different: topics of no group, and what the
    client may do."""
    if isinstance(answer, dict):
        kept = {name: one for name, one in answer.items() if name != "authorized_operations"}
        return {name: comparable(one) for name, one in kept.items() if not is_of_no_group(name)}
    if isinstance(answer, list):
        topics = [one.get("topic", "") if isinstance(one, dict) else "" for one in answer]
        return [
            comparable(one) for topic, one in zip(topics, answer, strict=True) if not is_of_no_group(topic)
        ]
    return answer


def is_of_no_group(topic: str) -> bool:
    return topic.partition(":")[0] == "empty" or topic.startswith("__")


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_sees_the_same(world: World, endpoint: Listening, library: str) -> None:
    try:
        program = LIBRARIES[library]()
    except MissingError as missing:
        pytest.skip(str(missing))
    expected, _ = seen_by(program, world.bootstrap, world.groups)
    found, refused = seen_by(program, endpoint.bootstrap, world.groups)
    for name in expected:
        assert found[name] == expected[name], name
    assert all(expected.values())
    assert "simple" in str(expected["listed"])
    assert "consumer-1" in str(expected["described"]) or "classic-1" in str(expected["described"])
    assert any(word in refused for word in REFUSALS), refused


# --- programs for people at a terminal ---------------------------------------------------------------------

TERMINALS: dict[str, Callable[[], Program]] = {
    "kafkatop": client_programs.kafkatop,
    "kaskade": client_programs.kaskade,
}


@pytest.mark.parametrize("terminal", TERMINALS)
def test_a_program_on_a_terminal_shows_the_same(world: World, endpoint: Listening, terminal: str) -> None:
    try:
        program = TERMINALS[terminal]()
    except MissingError as missing:
        pytest.skip(str(missing))
    expected, found = (
        comparable(json.loads(program.ask(place, []))) for place in (world.bootstrap, endpoint.bootstrap)
    )
    assert found == expected
    assert "orders" in str(found)


# --- autoscalers -------------------------------------------------------------------------------------------


@pytest.mark.timeout(4_000)
@pytest.mark.parametrize(("group", "topic"), [("simple", "orders"), ("classic", "payments")])
def test_kedas_scaler_finds_the_same_lag(world: World, endpoint: Listening, group: str, topic: str) -> None:
    try:
        program = client_programs.keda()
    except MissingError as missing:
        pytest.skip(str(missing))
    asked = [group, topic]
    expected, found = (
        json.loads(program.ask(place, asked)) for place in (world.bootstrap, endpoint.bootstrap)
    )
    assert found == expected
    assert found["lag"] > 0


# --- exporters: their metrics of groups and topics ---------------------------------------------------------


def metrics_of(command: list[str], port: int, environment: dict[str, str], telling: str) -> list[str]:
    """Run an exporter until it shows metrics of groups, and no others; return those that `telling` begins.

    kafka_exporter leaves one or the other out of a look, at any cluster.
    """
    url = f"http://127.0.0.1:{port}/metrics"
    looks: list[set[str]] = [set()]

    def shows_no_more() -> bool:
        assert process.poll() is None
        try:
            with urllib.request.urlopen(url, timeout=20) as answer:
                text = answer.read().decode()
        except OSError:
            return False
        looks.append(looks[-1] | {line for line in text.splitlines() if line.startswith(telling)})
        return len(looks) > 5 and looks[-1] == looks[-5] != set()

    with subprocess.Popen(
        command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            wait_until(shows_no_more, "metrics", timeout_s=60)
        finally:
            process.kill()
    return sorted(looks[-1])


def kminion(bootstrap: str) -> list[str]:
    program = client_programs.exporter("kminion", "KMINION")
    [port] = free_ports(1)
    environment = {
        "KAFKA_BROKERS": bootstrap,
        "MINION_CONSUMERGROUPS_SCRAPEMODE": "adminApi",
        "EXPORTER_HOST": "127.0.0.1",
        "EXPORTER_PORT": str(port),
    }
    return metrics_of([program], port, environment, "kminion_kafka_consumer_group_")


def kafka_exporter(bootstrap: str) -> list[str]:
    program = client_programs.exporter("kafka_exporter", "KAFKA_EXPORTER")
    [port] = free_ports(1)
    command = [program, f"--kafka.server={bootstrap}", f"--web.listen-address=127.0.0.1:{port}"]
    return metrics_of(command, port, {}, "kafka_consumergroup_")


@pytest.mark.parametrize("exporter", [kminion, kafka_exporter])
def test_an_exporter_shows_the_same(
    world: World, endpoint: Listening, exporter: Callable[[str], list[str]]
) -> None:
    try:
        expected, found = exporter(world.bootstrap), exporter(endpoint.bootstrap)
    except MissingError as missing:
        pytest.skip(str(missing))
    assert found == expected
    assert any("lag" in line and "simple" in line for line in expected)
