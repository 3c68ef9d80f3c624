"""Same frame, same answer: a real broker and the listener over tables of its topic say the same."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka_versions import KafkaVersion
from kafka_world import World, kafka_world
from listening import Client, Listening, listening
from same_answers import comparable, differences, requests

from decoders.messages import APIS

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
