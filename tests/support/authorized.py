"""A broker that knows users and their rights, on a plain listener beside the one of the tests."""

import struct
from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclOperation,
    ResourcePatternType,
    ResourceType,
)
from listening import Client
from secured_broker import allow_only

PROTOCOL: Final = "SASL_PLAINTEXT"
PASSWORD: Final = "correct-horse"
USERS: Final = ("some", "payments", "all", "none")

_LISTENER: Final = f"listener.name.{PROTOCOL.lower()}"
_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_CREDENTIALS: Final = " ".join(f'user_{name}="{PASSWORD}"' for name in USERS)

WITH_USERS: Final[Mapping[str, str]] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",  # the tests
    f"{_LISTENER}.sasl.enabled.mechanisms": "PLAIN",
    f"{_LISTENER}.plain.sasl.jaas.config": f"{_MODULE} required {_CREDENTIALS};",
}
"""Settings of a broker whose listener `PROTOCOL` takes the users, who may do nothing yet."""


def let_see(bootstrap: str, user: str, groups: Sequence[str], topics: Sequence[str]) -> None:
    """Let a user describe groups and topics, given as names, or as prefixes followed by `*`."""
    patterns = [(ResourceType.GROUP, one) for one in groups] + [(ResourceType.TOPIC, one) for one in topics]
    operations = (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
    rights = [(kind, *_pattern(one), operation) for kind, one in patterns for operation in operations]
    cluster = (ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL, operations[1])
    allow_only(bootstrap, user, cluster, *rights)


def _pattern(text: str) -> tuple[str, ResourcePatternType]:
    if text == "*" or text[-1:] != "*":
        return text, ResourcePatternType.LITERAL  # `*` means all there
    return text[:-1], ResourcePatternType.PREFIXED


def sign_in(client: Client, user: str) -> Client:
    """Sign in to the broker by SASL PLAIN, and return the client."""
    handshake = struct.pack(">h5s", 5, b"PLAIN")
    token = f"\0{user}\0{PASSWORD}".encode()
    for api_key, version, body in ((17, 1, handshake), (36, 0, struct.pack(">i", len(token)) + token)):
        frame = struct.pack(">hhih", api_key, version, 0, -1) + body
        client.socket.sendall(struct.pack(">i", len(frame)) + frame)
        (error,) = struct.unpack_from(">h", client.frame(), 4)
        assert error == 0
    return client
