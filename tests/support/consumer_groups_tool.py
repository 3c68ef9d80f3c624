"""Kafka's own `kafka-consumer-groups` of several releases, and what it prints."""

import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from java_lines import JavaLines, start_java_lines

from streaming.jvm.jars import JarSet, ensure_jars
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


class Release(NamedTuple):
    """Where the tool of a release is."""

    jars: tuple[JarSet, ...]
    main: str


_TOOLS: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
RELEASES: Final[Mapping[str, Release]] = {
    "4.3.1": Release(("broker", "tools"), _TOOLS),
    "3.9.2": Release(("broker-3.9.2", "tools-3.9.2"), _TOOLS),
    "2.8.2": Release(("tools-2.8.2",), "kafka.admin.ConsumerGroupCommand"),
}


@contextmanager
def start_consumer_groups(release: str = "4.3.1") -> Iterator[JavaLines]:
    """Run the tool of a release many times in one process; see `lines_of`."""
    found = RELEASES[release]
    jars = [ensure_jars(one) for one in found.jars]
    with start_java_lines("ConsumerGroups", jars, found.main) as java:
        yield java


def lines_of(tool: JavaLines, bootstrap: str, arguments: Sequence[str]) -> tuple[int, list[str]]:
    """Return the exit code and what is printed, in an order of its own and without what differs: where we
    listen, and stack traces."""
    ran = tool.ask({"run": ["--bootstrap-server", bootstrap, *arguments]})
    told = ran["out"].replace(bootstrap, "HOST:PORT").splitlines()
    lines = [" ".join(line.split()) for line in told if not line.startswith("\t")]
    return ran["code"], sorted(line for line in lines if line)


def told_by(tool: JavaLines, bootstrap: str, *arguments: str) -> str:
    """Return what the tool prints on both outputs; it must succeed."""
    ran = tool.ask({"run": ["--bootstrap-server", bootstrap, *arguments]})
    assert ran["code"] == 0, ran["out"]
    told: str = ran["out"]
    return told


def consumer_groups(bootstrap: str, *arguments: str, timeout_s: float = 60) -> str:
    """Run Kafka's own tool in a process of its own; return what it prints on both outputs."""
    path = ":".join(f"{ensure_jars(name)}/*" for name in ("tools", "broker"))
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    command = [str(find_java()), "-cp", path, tool, "--bootstrap-server", bootstrap, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def printed_members(tool: JavaLines, bootstrap: str, groups: Iterable[str]) -> set[PrintedMember]:
    """Return the members of some groups of consumers, as the tool prints them."""
    members, head = set(), list[str]()
    named = [word for group in groups for word in ("--group", group)]
    out = told_by(tool, bootstrap, "--describe", "--members", "--verbose", *named)
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
