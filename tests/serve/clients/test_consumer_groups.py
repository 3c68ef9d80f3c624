"""Kafka's own kafka-consumer-groups of three releases prints the same of a broker and of the listener.

Only `make test-clients` runs this (it sets CLIENTS); `make test` runs that of the newest release.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from consumer_groups_tool import RELEASES, lines_of, start_consumer_groups
from java_lines import JavaLines
from kafka_versions import KafkaVersion
from kafka_world import World, kafka_world
from listening import Listening, listening

pytestmark = [
    pytest.mark.clients,
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.skipif("CLIENTS" not in os.environ, reason="`make test-clients` runs it"),
]

ONE = ["--group", "simple", "--topic", "orders:0"]
ALL = ["--group", "simple", "--all-topics"]
RESETS = [
    *(["--to-earliest"], ["--to-latest"], ["--to-current"], ["--to-offset", "2"], ["--to-offset", "99999"]),
    *(["--shift-by", "-2"], ["--shift-by", "1"], ["--shift-by", "-99"]),
]
ALIKE = [
    *(
        ["--list"],
        ["--list", "--state"],
        ["--list", "--state", "Empty"],
        ["--list", "--state", "stable,empty"],
    ),
    *(["--describe", "--all-groups"], ["--describe", "--all-groups", "--offsets"]),
    *(["--describe", "--all-groups", "--members"], ["--describe", "--all-groups", "--members", "--verbose"]),
    *(["--describe", "--all-groups", "--state"], ["--describe", "--group", "classic", "--group", "simple"]),
    *(["--describe", "--group", group] for group in ("consumer", "classic", "static", "connect", "regex")),
    *(["--describe", "--group", group] for group in ("share", "streams", "transactional", "nope")),
    ["--describe", "--group", "nope", "--members"],
    ["--describe", "--group", "nope", "--state"],
    *(["--reset-offsets", *which, *to, "--dry-run"] for which in (ONE, ALL) for to in RESETS),
    *(["--reset-offsets", *which, *to, "--dry-run", "--export"] for which in (ONE, ALL) for to in RESETS[:4]),
    ["--reset-offsets", "--group", "classic", "--topic", "orders", "--to-earliest", "--dry-run"],
    ["--reset-offsets", "--group", "nope", "--topic", "orders", "--to-earliest", "--dry-run"],
    ["--reset-offsets", "--group", "simple", "--topic", "nope", "--to-earliest", "--dry-run"],
]
NEWER = [
    *(["--list", "--type"], ["--list", "--type", "consumer"], ["--list", "--type", "classic", "--state"]),
]
"""What 2.8.2 has no option for."""
NEWEST = [
    ["--describe", "--all-groups", "--verbose"],
    ["--describe", "--all-groups", "--state", "--verbose"],
    ["--describe", "--all-groups", "--offsets", "--verbose"],
]
"""What is an option of 4.3.1 alone, or needs it."""
REFUSED = [
    ["--delete", "--group", "simple"],
    ["--delete-offsets", "--group", "simple", "--topic", "orders"],
    ["--reset-offsets", *ONE, "--to-earliest", "--execute"],
    ["--reset-offsets", *ALL, "--to-latest", "--execute"],
]
AT_A_TIME = [["--to-datetime", "2026-01-01T00:00:00.000"], ["--by-duration", "PT1H"]]


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


@pytest.fixture(scope="module", params=list(RELEASES))
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def tool(release: str) -> Iterator[JavaLines]:
    with start_consumer_groups(release) as java:
        yield java


def is_an_error(release: str, arguments: list[str]) -> bool:
    """Tell whether the tool finds fault with what is asked for, at any cluster."""
    asked = set(arguments)
    if "--reset-offsets" in asked:
        return not asked.isdisjoint({"classic", "nope"}) and arguments[2:5] != ["nope", "--topic", "orders"]
    of_a_protocol_to_come = {"--all-groups", "consumer", "regex"} if release == "2.8.2" else set()
    faulty = {"nope", "share", "streams", "connect"} | of_a_protocol_to_come
    return "--describe" in asked and not asked.isdisjoint(faulty)


@pytest.mark.parametrize("arguments", [*ALIKE, *NEWER, *NEWEST], ids=" ".join)
def test_the_command_prints_the_same(
    world: World, endpoint: Listening, tool: JavaLines, release: str, arguments: list[str]
) -> None:
    if release == "2.8.2" and arguments in NEWER:
        pytest.skip("2.8.2 has no --type")
    expected, found = (lines_of(tool, one, arguments) for one in (world.bootstrap, endpoint.bootstrap))
    assert found == expected
    assert expected[1]
    assert any(line.startswith("Error: ") for line in found[1]) == is_an_error(release, arguments)


@pytest.mark.parametrize("arguments", REFUSED, ids=" ".join)
def test_the_command_is_refused_what_would_change_something(
    world: World, endpoint: Listening, tool: JavaLines, arguments: list[str]
) -> None:
    before = lines_of(tool, world.bootstrap, ["--describe", "--group", "simple"])
    _, printed = lines_of(tool, endpoint.bootstrap, arguments)
    assert "GroupAuthorizationException" in str(printed) or "Not authorized" in str(printed), printed
    assert lines_of(tool, world.bootstrap, ["--describe", "--group", "simple"]) == before


@pytest.mark.parametrize("to", AT_A_TIME, ids=" ".join)
def test_a_reset_to_a_time_fails_rather_than_planning_something_wrong(
    endpoint: Listening, tool: JavaLines, to: list[str]
) -> None:
    _, printed = lines_of(tool, endpoint.bootstrap, ["--reset-offsets", *ONE, *to, "--dry-run"])
    assert not any(line.startswith("simple orders") for line in printed)
    assert "UnsupportedVersionException" in str(printed), printed
