"""Kafka's own group coordinator as an oracle: a Java process that replays records without a broker."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from java_lines import JavaLines, start_java_lines


class GroupReplay:
    """The running Java process; see `start_group_replay`."""

    def __init__(self, java: JavaLines) -> None:
        self._java = java

    def groups(self, records: Sequence[tuple[bytes, bytes | None]]) -> dict[str, dict[str, Any]]:
        """Return what a coordinator that has loaded these keys and values lists and describes, by group.

        Raises `JavaError` where Kafka's replay gives up.
        """
        lines = [[key.hex(), None if value is None else value.hex()] for key, value in records]
        groups: dict[str, dict[str, Any]] = self._java.ask({"replay": lines})["groups"]
        return groups

    def partitions(self, groups: Sequence[str], count: int) -> list[int]:
        """Return the offsets partition of each group."""
        partitions: list[int] = self._java.ask({"partitions": groups, "count": count})["partitions"]
        return partitions


@contextmanager
def start_group_replay(jars: Path) -> Iterator[GroupReplay]:
    """Run the Java program until the end of the block."""
    with start_java_lines("GroupReplay", [jars]) as java:
        yield GroupReplay(java)
