"""A real broker as the other side: it understands our requests of every version, and its answers are read.

What is read of an answer is written again to the same bytes.
"""

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka_clients import create_topics
from kafka_versions import DEFAULT, KafkaVersion
from message_strategies import SIZE_BYTES
from raw_requests import offset_commit

from decoders.messages import APIS, read_response, request_bytes, response_bytes
from streaming.demo.broker_offsets import CommittedOffset
from streaming.demo.local_broker import LocalBroker

pytestmark = pytest.mark.broker

API_VERSIONS, METADATA, OFFSET_FETCH = 18, 3, 9
GROUP, TOPIC = "messages-of-a-broker", "messages-of-a-broker"
NO_ID = "A" * 22

Exchange = Callable[[bytes], bytes]

_TOPIC = {"name": TOPIC, "partitionIndexes": [0]}
_COMMIT = {"partitionIndex": 0, "committedOffset": 5, "committedLeaderEpoch": 0, "committedMetadata": "né"}
BODIES: dict[str, dict[str, Any]] = {
    "ApiVersions": {"clientSoftwareName": "tests", "clientSoftwareVersion": "1"},
    "Metadata": {"topics": [{"name": TOPIC}], "allowAutoTopicCreation": False},
    "DescribeCluster": {"includeClusterAuthorizedOperations": True},
    "DescribeTopicPartitions": {"topics": [{"name": TOPIC}, {"name": "no such topic"}]},
    "DescribeConfigs": {
        "resources": [
            {"resourceType": 2, "resourceName": TOPIC, "configurationKeys": None},
            {"resourceType": 4, "resourceName": "1", "configurationKeys": ["offsets.retention.minutes"]},
        ],
        "includeSynonyms": True,
        "includeDocumentation": True,
    },
    "FindCoordinator": {"key": GROUP, "coordinatorKeys": [GROUP, "another"]},
    "ListGroups": {"statesFilter": ["Empty"], "typesFilter": ["classic"]},
    "DescribeGroups": {"groups": [GROUP, "no such group"], "includeAuthorizedOperations": True},
    "ConsumerGroupDescribe": {"groupIds": [GROUP]},
    "ShareGroupDescribe": {"groupIds": [GROUP]},
    "DeleteGroups": {"groupsNames": ["no such group"]},
    "OffsetFetch": {
        "groupId": GROUP,
        "topics": [_TOPIC],
        "groups": [{"groupId": GROUP, "topics": [_TOPIC]}, {"groupId": "", "topics": None}],
    },
    "ListOffsets": {"topics": [{"name": TOPIC, "partitions": [{"partitionIndex": 0, "timestamp": -1}]}]},
    "OffsetCommit": {"groupId": GROUP, "topics": [{"name": TOPIC, "partitions": [_COMMIT]}]},
    "OffsetDelete": {"groupId": GROUP, "topics": [{"name": TOPIC, "partitions": [{"partitionIndex": 7}]}]},
    "SaslHandshake": {"mechanism": "PLAIN"},
    "SaslAuthenticate": {"authBytes": b"\0user\0password"},
}


@pytest.fixture(scope="module")
def exchange(broker: LocalBroker) -> Iterator[Exchange]:
    """Send a request and return the frame of the response."""
    create_topics(broker.bootstrap_servers, {TOPIC: 1})
    offset_commit(
        broker.bootstrap_servers, GROUP, {(TOPIC, 0): CommittedOffset(4)}
    )  # waits for a coordinator
    host, port = broker.bootstrap_servers.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        stream = connection.makefile("rb")

        def ask(request: bytes) -> bytes:
            connection.sendall(request)
            return stream.read(int.from_bytes(stream.read(SIZE_BYTES)))

        yield ask


@pytest.fixture(scope="module")
def newest(exchange: Exchange) -> dict[int, int]:
    """The newest version of every API that the broker knows."""
    frame = exchange(request_bytes(API_VERSIONS, 0, 1, "tests", {}))
    apis = read_response(API_VERSIONS, 0, frame).body["apiKeys"]
    return {api["apiKey"]: api["maxVersion"] for api in apis}


@pytest.mark.parametrize(
    "api", sorted(APIS.values(), key=lambda api: api.name != "OffsetCommit"), ids=lambda api: api.name
)
def test_requests_are_understood_and_responses_read(
    api: Any, exchange: Exchange, newest: dict[int, int], kafka_version: KafkaVersion
) -> None:
    versions = [version for version in api.versions if version <= newest.get(api.key, -1)]
    assert versions or kafka_version.name != DEFAULT
    for version in versions:
        frame = exchange(request_bytes(api.key, version, 77 + version, "tests", BODIES[api.name]))
        response = read_response(api.key, version, frame)
        assert response.correlation_id == 77 + version
        assert response_bytes(api.key, version, *response) == len(frame).to_bytes(SIZE_BYTES) + frame


def test_answers_say_what_is_true(exchange: Exchange) -> None:
    def ask(name: str, version: int) -> dict[str, Any]:
        [key] = [api.key for api in APIS.values() if api.name == name]
        return read_response(key, version, exchange(request_bytes(key, version, 1, "", BODIES[name]))).body

    [topic] = ask("Metadata", 12)["topics"]
    assert (topic["name"], topic["errorCode"], len(topic["partitions"])) == (TOPIC, 0, 1)
    assert topic["topicId"] != NO_ID
    assert {one["key"] for one in ask("FindCoordinator", 4)["coordinators"]} == {GROUP, "another"}
    committed = {"partitions": [{"partitionIndex": 0, "errorCode": 0}], "name": TOPIC}
    assert ask("OffsetCommit", 9)["topics"] == [committed]
    [group, nameless] = ask("OffsetFetch", 8)["groups"]
    [partition] = group["topics"][0]["partitions"]
    assert (partition["committedOffset"], partition["metadata"], nameless["groupId"]) == (5, "né", "")


def test_a_version_that_the_broker_does_not_know_is_answered_in_version_0(exchange: Exchange) -> None:
    request = request_bytes(API_VERSIONS, 4, 1, "tests", BODIES["ApiVersions"])
    frame = exchange(request[:6] + (99).to_bytes(2) + request[8:])
    assert read_response(API_VERSIONS, 0, frame).body["errorCode"] == 35
