"""Kafka's own `kafka-consumer-groups`, and what it prints of members."""

import subprocess
from collections.abc import Iterable
from typing import NamedTuple

from streaming.jvm.jars import ensure_jars
from streaming.jvm.java import find_java


class PrintedMember(NamedTuple):
    """A line of `--describe --members --verbose`; assignments are sets of `topic:partition`."""

    group: str
    consumer_id: str
    group_instance_id: str
    host: str
    client_id: str
    partition_count: int
    current_epoch: str
    current_assignment: frozenset[str]
    target_epoch: str
    target_assignment: frozenset[str]
    upgraded: str


def consumer_groups(bootstrap: str, *arguments: str) -> str:
    """Run Kafka's own tool; return what it prints on both outputs."""
    path = ":".join(f"{ensure_jars(name)}/*" for name in ("tools", "broker"))
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    command = [str(find_java()), "-cp", path, tool, "--bootstrap-server", bootstrap, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def printed_members(bootstrap: str, groups: Iterable[str]) -> set[PrintedMember]:
    """Return the members of some groups of consumers, as the tool prints them."""
    members, head = set(), list[str]()
    named = [word for group in groups for word in ("--group", group)]
    out = consumer_groups(bootstrap, "--describe", "--members", "--verbose", *named)
    for words in map(str.split, out.splitlines()):
        if "CONSUMER-ID" in words:
            head = words
        elif len(words) == len(head) > 0:
            row = dict(zip(head, words, strict=True))
            members.add(
                PrintedMember(
                    row["GROUP"],
                    row["CONSUMER-ID"],
                    row.get("GROUP-INSTANCE-ID", "-"),
                    row["HOST"],
                    row["CLIENT-ID"],
                    int(row["#PARTITIONS"]),
                    row["CURRENT-EPOCH"],
                    partitions_in(row["CURRENT-ASSIGNMENT"]),
                    row["TARGET-EPOCH"],
                    partitions_in(row["TARGET-ASSIGNMENT"]),
                    row.get("UPGRADED", "-"),
                )
            )
    return members


def partitions_in(text: str) -> frozenset[str]:
    """Divide `t:0,1;u:2`, or `-`, into its partitions."""
    topics = [] if text == "-" else [part.rsplit(":", 1) for part in text.split(";")]
    return frozenset(f"{topic}:{number}" for topic, numbers in topics for number in numbers.split(","))
