"""Members of every type of group on a real broker, and what the broker says about its groups.

One Java process does what confluent-kafka cannot: consumers that subscribe by expression, share and streams
members, and Kafka's own Admin and describe requests.
"""

import base64
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from java_lines import JavaLines, start_java_lines

from streaming.demo.broker_offsets import OffsetKey
from streaming.tables.tables import Tables

# Members react within half a second instead of five.
QUICK: Final[dict[str, str | int]] = {
    **{
        f"group.{kind}.{setting}": value
        for kind in ("consumer", "share", "streams")
        for setting, value in {
            "heartbeat.interval.ms": 500,
            "min.heartbeat.interval.ms": 500,
            "assignment.interval.ms": 0,
        }.items()
    },
    "group.streams.initial.rebalance.delay.ms": 0,
}

OURS: Final = {"epoch": "generation_or_epoch", "described_state": "state", "assignor": "protocol"}
"""Names of ours for what the broker answers under another name."""

DEFAULT_ASSIGNOR: Final = "uniform"  # the first of `group.consumer.assignors`


class GroupActors:
    """The running Java process; see `start_group_actors`."""

    def __init__(self, java: JavaLines) -> None:
        self._java = java

    def join(self, name: str, kind: str, group: str, *topics: str, **more: Any) -> None:
        """Start a member: `kind` is classic, consumer, share, streams, or raw (of protocol type connect).

        `regex` stands for topics; `config` holds client settings. A raw member has joined when this returns,
        for others ask `groups`.
        """
        wish = {"name": name, "kind": kind, "group": group, "topics": topics, **more}
        self._java.ask({"join": wish})

    def leave(self, name: str) -> None:
        """Let a member leave its group."""
        self._java.ask({"leave": name})

    def delete(self, groups: Sequence[str]) -> None:
        """Delete groups without members."""
        self._java.ask({"delete": groups})

    def groups(self) -> dict[str, dict[str, Any]]:
        """Return what the broker lists and describes, by group; members in the order of their ids.

        An assignor that nobody asked for is None: the log does not tell the broker's own choice.
        """
        groups: dict[str, dict[str, Any]] = self._java.ask({"groups": {}})["groups"]
        for group in groups.values():
            group["members"].sort(key=lambda member: member["member_id"])
            if group.get("assignor") == DEFAULT_ASSIGNOR:
                group["assignor"] = None
        return groups


@contextmanager
def start_group_actors(jars: Path, bootstrap: str) -> Iterator[GroupActors]:
    """Run the Java program until the end of the block; then its members leave."""
    with start_java_lines("GroupActors", [jars], bootstrap) as java:
        yield GroupActors(java)


def assert_tables_say(tables: Tables, answers: dict[str, dict[str, Any]]) -> None:
    """Compare the `groups` table with the broker's answers, group by group and field by field."""
    rows = {row["group"]: row for row in tables.read().groups.to_pylist()}
    assert sorted(rows) == sorted(answers)
    differences = {
        (name, field): (ours, answer)
        for name, group in answers.items()
        for field, answer in group.items()
        if (ours := as_answered(rows[name][OURS.get(field, field)], answer)) != in_order(answer)
    }
    assert not differences, differences


def without_forgotten(
    answers: dict[str, dict[str, Any]], offsets: Iterable[OffsetKey]
) -> dict[str, dict[str, Any]]:
    """Leave out the simple groups without offsets, which a broker lists from memory until it restarts or
    cleans up: their last offset was deleted, or came by a transaction that was aborted. The log has none."""
    kept = {key.group for key in offsets}
    return {name: group for name, group in answers.items() if name in kept or not is_simple(group)}


def is_simple(group: dict[str, Any]) -> bool:
    """Tell whether a group, as the broker describes it, never had members."""
    return (group["type"], group["protocol_type"]) == ("classic", "")


def as_answered(ours: Any, answer: Any) -> Any:
    """Reduce what the tables say to what was answered: bytes as base64, no fields that were not answered, and
    none of what the broker alone can know (the name of a topic that the log names by its id)."""
    if isinstance(ours, bytes):
        return base64.b64encode(ours).decode()
    if not isinstance(answer, list) or ours is None:
        return ours
    answered = [one if isinstance(one, dict) else None for one in in_order(answer)]
    return [
        one
        if told is None
        else {name: as_answered(one[name], told[name]) for name in told}
        | ({"topic": told["topic"]} if "topic" in told and one["topic"] is None else {})
        for one, told in zip_longest(in_order(ours), answered)
    ]


def in_order(answer: Any) -> Any:
    """Bring lists into an order that does not depend on who made them."""
    if isinstance(answer, dict):
        return {name: in_order(one) for name, one in answer.items()}
    if not isinstance(answer, list):
        return answer
    keys = ("member_id", "topic_id", "topic", "subtopology", "task_type")

    def key(one: Any) -> list[str]:
        return [str(one.get(name)) for name in keys] if isinstance(one, dict) else [str(one).zfill(9)]

    return sorted(map(in_order, answer), key=key)
