"""Admin and consumers of Kafka 4.4 see the same at a broker and at the listener.

They ask for share groups, and for offsets by topic ids.
Only `make test-clients` runs this (it sets CLIENTS).
"""

import os
import subprocess
from pathlib import Path

import pytest
from java_programs import java_program
from kafka_versions import VERSIONS
from kafka_world import kafka_world
from listening import listening

from streaming.jvm.jars import ensure_jars

pytestmark = [
    pytest.mark.clients,
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.skipif("CLIENTS" not in os.environ, reason="`make test-clients` runs it"),
]

NEWEST = VERSIONS["4.4.0"]


def seen_from(bootstrap: str) -> dict[str, str]:
    """Return what the clients print, by question."""
    command = java_program("NewestClients", [ensure_jars(NEWEST.jars)], bootstrap)
    ran = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=120, check=True)
    return dict(line.split(": ", 1) for line in ran.stdout.splitlines())


def test_java_of_the_newest_release_sees_the_same(java_jars: Path, tmp_path: Path) -> None:
    with kafka_world(NEWEST, java_jars, tmp_path) as world, listening(world.tables) as endpoint:
        expected, found = seen_from(world.bootstrap), seen_from(endpoint.bootstrap)
        refused = "refusing a request: 127.0.0.1: DeleteGroups: GROUP_AUTHORIZATION_FAILED"
        assert endpoint.said == [refused]
    assert (expected.pop("delete"), found.pop("delete")) == (
        "GroupNotEmptyException",
        "GroupAuthorizationException",
    )
    assert found == expected
    assert expected.keys() == {"groups", "share", "classic", "consumer"}
    assert "orders-0=OffsetAndMetadata{offset=3" in expected["classic"]
    assert "share-1" in expected["share"]
