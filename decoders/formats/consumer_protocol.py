"""The consumer protocol inside classic groups: subscriptions and assignments of members.

These are the bytes of `subscription` and `assignment` in a group's members, if the group's `protocolType` is
`consumer`; other protocol types store other data there. Each begins with an int16 version of its own. New
versions only append, so an unknown version is read with the newest known layout.

Source: `ConsumerProtocolSubscription.json` and `ConsumerProtocolAssignment.json` of Kafka's clients.
"""

import json
from collections.abc import Mapping
from typing import Final

from construct import Default, Struct

from decoders.errors import DecodeError, ErrorKind
from decoders.formats.faults import WireError
from decoders.formats.wire import INT32, NULLABLE_BYTES, NULLABLE_STRING, STRING, array
from decoders.rows.compiler import reader_of
from decoders.rows.reference import PREFIX_BYTES, Document, malformed, parse_message, read_prefix
from decoders.rows.source import UNREADABLE

_TOPIC_PARTITIONS: Final = Struct("topic" / STRING, "partitions" / array(INT32))

SUBSCRIPTION_VERSIONS: Final = {
    # 0.9.
    0: Struct("topics" / array(STRING), "userData" / NULLABLE_BYTES),
    # 2.4, KIP-429: the partitions that the member owns.
    1: Struct(
        "topics" / array(STRING),
        "userData" / NULLABLE_BYTES,
        "ownedPartitions" / array(_TOPIC_PARTITIONS),
    ),
    # KIP-792: the generation in which it owned them.
    2: Struct(
        "topics" / array(STRING),
        "userData" / NULLABLE_BYTES,
        "ownedPartitions" / array(_TOPIC_PARTITIONS),
        "generationId" / Default(INT32, -1),
    ),
    # KIP-881: the rack of the member.
    3: Struct(
        "topics" / array(STRING),
        "userData" / NULLABLE_BYTES,
        "ownedPartitions" / array(_TOPIC_PARTITIONS),
        "generationId" / Default(INT32, -1),
        "rackId" / NULLABLE_STRING,
    ),
}

_FIRST_WITH_RACK: Final = 3

_ASSIGNMENT: Final = Struct("assignedPartitions" / array(_TOPIC_PARTITIONS), "userData" / NULLABLE_BYTES)

# The versions follow those of the subscription; the layout never changed.
ASSIGNMENT_VERSIONS: Final = {0: _ASSIGNMENT, 1: _ASSIGNMENT, 2: _ASSIGNMENT, 3: _ASSIGNMENT}


def subscribed_topics(subscription: bytes) -> list[str] | None:
    """The topics of a subscription as the group coordinator sees them; None if it cannot read them.

    The coordinator reads the fields common to all versions (version 0) and ignores the version.
    """
    try:
        text, _ = reader_of(SUBSCRIPTION_VERSIONS[0])(subscription, PREFIX_BYTES)
    except UNREADABLE:
        return None
    topics: list[str] = json.loads(text)["topics"]
    return topics


def rack_of(subscription: bytes) -> str | None:
    """The rack in a member's subscription; None if it is unreadable or has none (before version 3, or
    null).
    """
    version = int.from_bytes(subscription[:PREFIX_BYTES], signed=True)
    if version < _FIRST_WITH_RACK:
        return None
    try:
        text, _ = reader_of(SUBSCRIPTION_VERSIONS[_FIRST_WITH_RACK])(subscription, PREFIX_BYTES)
    except UNREADABLE:
        return None
    rack: str | None = json.loads(text)["rackId"]
    return rack


def assigned_partitions(assignment: bytes) -> dict[str, list[int]] | None:
    """The partitions of an assignment by topic, as clients see them; None if they cannot read it.

    Empty bytes mean no partitions: members without partitions have such an assignment.
    """
    if not assignment:
        return {}
    try:
        text, _ = reader_of(_ASSIGNMENT)(assignment, PREFIX_BYTES)
    except UNREADABLE:
        return None
    if int.from_bytes(assignment[:PREFIX_BYTES], signed=True) < 0:
        return None
    assigned: dict[str, list[int]] = {}
    for topic in json.loads(text)["assignedPartitions"]:
        assigned.setdefault(topic["topic"], []).extend(topic["partitions"])
    return assigned


def decode_subscription(subscription: bytes) -> Document:
    """A whole subscription, `{"version": 3, "data": {...}}` as Kafka's JSON converter prints it.

    Raises `DecodeError`.
    """
    return _decode(subscription, "subscription", SUBSCRIPTION_VERSIONS)


def decode_assignment(assignment: bytes) -> Document:
    """A whole assignment, `{"version": 3, "data": {...}}`. Raises `DecodeError`, also for empty bytes."""
    return _decode(assignment, "assignment", ASSIGNMENT_VERSIONS)


def _decode(data: bytes, subject: str, versions: Mapping[int, Struct]) -> Document:
    version = read_prefix(data, subject, "version")
    if version < 0:
        reason = f"{subject}: expected a version of 0 or more at byte 0, found {version}"
        raise DecodeError(ErrorKind.UNSUPPORTED_VERSION, reason, field="version", at_byte=0)
    layout = versions[min(version, max(versions))]
    try:
        return {"version": version, "data": parse_message(layout, data, PREFIX_BYTES)}
    except WireError as error:
        raise malformed(subject, error.fault) from error
