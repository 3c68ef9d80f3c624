"""Command lines to copy for one group: for Kafka's own tools, and for `offsetlake`."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from streaming.common.times import iso
from streaming.queries.removal_lines import UnquotableError, removal_lines, shell_word
from streaming.serve.page.asked import Asked
from streaming.serve.page.found import GroupFound

_TOOL = "kafka-consumer-groups"


@dataclass(frozen=True)
class Command:
    """A command line (or several) and its purpose."""

    purpose: str
    lines: str


def commands_of(asked: Asked, found: GroupFound, leftovers: pa.Table) -> list[Command]:
    """Return the commands for a group; `leftovers` are its left-over offsets (schema `LEFTOVERS`). There are
    none for a name that no shell word can hold."""
    try:
        return list(_commands(asked, found, leftovers))
    except UnquotableError:
        return []


def _commands(asked: Asked, found: GroupFound, leftovers: pa.Table) -> Iterator[Command]:
    servers = asked.cluster.settings.source.bootstrap_servers
    tool, name = f"{_TOOL} --bootstrap-server {shell_word(servers)}", shell_word(found.group)
    root = shell_word(asked.cluster.tables.root)
    yield Command("Describe the group as the broker sees it", f"{tool} --describe --group {name}")
    if asked.as_of is not None:
        then = iso(asked.as_of)
        yield Command(
            f"Go back to the offsets of {then} (stop the consumers first; then repeat with --execute)",
            f"offsetlake restore --group {name} --as-of {then} --table-root {root} > back.csv\n"
            f"{tool} --group {name} --reset-offsets --from-file back.csv --dry-run",
        )
    elif len(leftovers):
        lines = removal_lines(
            leftovers,
            bootstrap_servers=servers,
            complete=found.about.completeness.complete,
            are_whole_groups=True,
        )
        if lines.lines:
            yield Command("Remove its left-over offsets", "\n".join(lines.lines))
