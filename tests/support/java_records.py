"""Kafka's own record classes as an oracle: a Java process that encodes and decodes records.

`records_no_client_writes` are the versions that a 4.x broker reads and nothing writes any more.
"""

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from java_programs import java_program

_PROGRAM: Final = "InjectRecords"

Fields = Mapping[str, Any]


class KafkaRefusedError(Exception):
    """Kafka's own classes could not encode or decode what they were given; the text is theirs."""


@dataclass(frozen=True)
class JavaRecord:
    """A record as bytes, and as the document that Kafka's message formatter prints for it.

    `fields` is `{"key": {"type": .., "data": {..}}, "value": {"version": .., "data": {..}} or None}`; bytes
    are base64 in it. A value of None is a tombstone.
    """

    key: bytes
    value: bytes | None
    fields: dict[str, Any]

    @property
    def name(self) -> str:
        """Return the type and value version, for test ids: `type 1, value v3`."""
        value = self.fields["value"]
        version = "tombstone" if value is None else f"value v{value['version']}"
        return f"type {self.fields['key']['type']}, {version}"


class JavaRecords:
    """The running Java process; see `start_java_records`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def encode(self, record_type: int, key: Fields, version: int, value: Fields | None) -> JavaRecord:
        """Encode a record from Kafka's JSON names; a value of None makes a tombstone."""
        return self._ask({"encode": {"type": record_type, "key": key, "version": version, "value": value}})

    def decode(self, key: bytes, value: bytes | None) -> JavaRecord:
        """Decode a record as the group coordinator does; the bytes that come back are encoded anew."""
        return self._ask({"decode": {"key": key.hex(), "value": None if value is None else value.hex()}})

    def _ask(self, request: Mapping[str, Any]) -> JavaRecord:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"{_PROGRAM} ended with exit code {self._process.wait()}"
        answer = json.loads(line)
        if "error" in answer:
            raise KafkaRefusedError(answer["error"])
        value = None if answer["value"] is None else bytes.fromhex(answer["value"])
        return JavaRecord(bytes.fromhex(answer["key"]), value, answer["fields"])


@contextmanager
def start_java_records(jars: Path) -> Iterator[JavaRecords]:
    """Run the Java program until the end of the block."""
    command = java_program(_PROGRAM, [jars])
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    ) as process:
        yield JavaRecords(process)  # leaving the block closes its input, which ends it


def records_no_client_writes(java: JavaRecords, *, group: str, topic: str) -> list[JavaRecord]:
    """Return one record of each version that is no longer written, each of another partition or group.

    Key 0 with values v0 to v4, key 1 with v0 to v3 (v1 has an expireTimestamp), group values v0 to v2 and v4.
    """
    offsets = [
        java.encode(
            record_type,
            {"group": group, "topic": topic, "partition": 10 * record_type + version},
            version,
            offset_value(version, offset=100 * record_type + version),
        )
        for record_type, versions in ((0, range(5)), (1, range(4)))
        for version in versions
    ]
    groups = [
        java.encode(2, {"group": f"{group}-{version}"}, version, group_value(version))
        for version in (0, 1, 2, 4)
    ]
    return offsets + groups


def offset_value(version: int, *, offset: int) -> dict[str, Any]:
    """Return the fields of an OffsetCommitValue of this version, none at its default."""
    fields: dict[str, Any] = {
        "offset": offset,
        "metadata": "né ☃",
        "commitTimestamp": 1_700_000_000_000 + version,
    }
    if version == 1:
        fields["expireTimestamp"] = 1_800_000_000_000
    if version >= 3:
        fields["leaderEpoch"] = 7
    if version >= 4:
        fields["topicId"] = "AAAAAAAAAAAAAAAAAAAAKg"
    return fields


def group_value(version: int) -> dict[str, Any]:
    """Return the fields of a GroupMetadataValue of this version with one member, none at its default."""
    member: dict[str, Any] = {
        "memberId": "member-1",
        "clientId": "client",
        "clientHost": "/127.0.0.1",
        "sessionTimeout": 45_000,
        "subscription": "AAEAAAABAAZvcmRlcnP/////AAAAAA==",  # v1: topic "orders", nothing owned
        "assignment": "AAAAAAABAAZvcmRlcnMAAAABAAAAAP////8=",  # v0: partition 0 of "orders"
    }
    if version >= 1:
        member["rebalanceTimeout"] = 300_000
    if version >= 3:
        member["groupInstanceId"] = "instance-1"
    fields: dict[str, Any] = {
        "protocolType": "consumer",
        "generation": 3,
        "protocol": "range",
        "leader": "member-1",
        "members": [member],
    }
    if version >= 2:
        fields["currentStateTimestamp"] = 1_700_000_000_000
    return fields
