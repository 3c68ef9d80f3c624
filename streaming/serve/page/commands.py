"""Command lines to copy for one group: for Kafka's own tools, and for `offsetlake`."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow.compute as pc

from streaming.common.times import iso
from streaming.serve.page.asked import Asked
from streaming.serve.page.found import GroupFound

_TOOL = "kafka-consumer-groups"


@dataclass(frozen=True)
class Command:
    """A command line (or several) and its purpose."""

    purpose: str
    lines: str


def commands_of(asked: Asked, found: GroupFound) -> list[Command]:
    """Return the commands for a group; none for a name that a shell line cannot hold."""
    if not found.group.isprintable():
        return []
    return list(_commands(asked, found))


def _commands(asked: Asked, found: GroupFound) -> Iterator[Command]:
    servers = shlex.quote(asked.cluster.settings.source.bootstrap_servers)
    tool, name = f"{_TOOL} --bootstrap-server {servers}", shlex.quote(found.group)
    root = shlex.quote(asked.cluster.tables.root)
    yield Command("Describe the group as the broker sees it", f"{tool} --describe --group {name}")
    if asked.as_of is not None:
        then = iso(asked.as_of, "seconds")
        yield Command(
            f"Go back to the offsets of {then} (stop the consumers first; then repeat with --execute)",
            f"offsetlake restore --group {name} --as-of {then} --table-root {root} "
            "--output reset-csv > back.csv\n"
            f"{tool} --group {name} --reset-offsets --from-file back.csv --dry-run",
        )
    if found.about.shortcomings() or found.about.silence():
        return
    left = _left_topics(found)
    for topic in left[:5]:
        yield Command(
            "Delete the offsets of a topic that the group no longer subscribes to",
            f"{tool} --group {name} --delete-offsets --topic {shlex.quote(topic)}",
        )


def _left_topics(found: GroupFound) -> list[str]:
    if found.subscribed is None:
        return []
    held = pc.unique(found.positions["topic"]).to_pylist()
    return sorted(topic for topic in held if topic not in found.subscribed and topic.isprintable())
