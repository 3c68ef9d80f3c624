"""Shell lines for `kafka-consumer-groups` that remove left-over offsets (pure).

Nothing here runs the lines. Brokers check each request again: they delete no group with members, no
offsets of topics to which a group subscribes, and none of topics that they lack (Kafka 4.3:
`KafkaApis.handleOffsetDeleteRequest`, `ClassicGroup.validateOffsetDelete`, `validateDeleteGroup`).
"""

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import from_numbers, to_mask, where
from streaming.common.escapes import printable
from streaming.common.times import iso
from streaming.common.timestamps import to_milliseconds
from streaming.model.errors import MisuseError
from streaming.queries.leftovers import IDLE, RECREATED

_TOOL: Final = "kafka-consumer-groups"
_TOPIC: Final = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
"""The names that brokers allow for topics (Kafka 4.3: `Topic.validate`)."""

_PLAIN: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.")
"""Bytes that mean themselves to `printf` and within quotes."""

_MOST_NAMED: Final = 5


class UnquotableError(MisuseError):
    """No word of a shell has the text; the message says why."""


@dataclass(frozen=True, kw_only=True)
class RemovalLines:
    """Lines of a POSIX shell, without line ends: for each group a comment, a line that describes the group,
    and lines that remove its offsets, or comments that say why there is none.

    `refused` is the number of rows without such a line. `left_out` are the groups without any lines, because
    their offsets partition is not completely known.
    """

    lines: tuple[str, ...]
    refused: int
    left_out: tuple[str, ...]

    def remarks(self) -> Iterator[str]:
        """Yield what the lines leave out."""
        if self.left_out:
            named = ", ".join(map(repr, self.left_out[:_MOST_NAMED]))
            more = f" and {len(self.left_out) - _MOST_NAMED} more" if len(self.left_out) > _MOST_NAMED else ""
            yield f"no lines for groups whose offsets partition is not completely known: {named}{more}"
        if self.refused:
            yield f"{self.refused} topics of groups have no line that removes them: comments say why"


def removal_lines(
    rows: pa.Table,
    *,
    bootstrap_servers: str,
    command_config: str | None = None,
    complete: Collection[int],
    are_whole_groups: bool,
) -> RemovalLines:
    """Return the lines that remove n left-over offsets by group and topic (schema `LEFTOVERS`, sorted).

    `complete` are the completely known offsets partitions (`Completeness.complete`).
    `are_whole_groups`: all topics of each group were asked for, so an idle group may be deleted as a whole;
    else only the offsets in the rows are. `command_config` is the file of client settings for the tool.
    """
    options = ["--bootstrap-server", bootstrap_servers]
    options += [] if command_config is None else ["--command-config", command_config]
    tool = " ".join([_TOOL, *map(shell_word, options)])
    known = from_numbers(np.array(sorted(complete), np.int32))
    is_known = to_mask(pc.is_in(rows["source_partition"], value_set=known))
    lines, refused = list[str](), 0
    for group, own in groupby(_plain(where(rows, is_known)), lambda row: row["group"]):
        found, lacking = _of_group(tool, str(group), list(own), are_whole_groups)
        lines += found
        refused += lacking
    left_out = dict.fromkeys(where(rows, ~is_known)["group"].to_pylist())
    return RemovalLines(lines=tuple(lines), refused=refused, left_out=tuple(left_out))


def shell_word(text: str) -> str:
    """Return a word that a POSIX shell reads as this text; only printable characters.

    Other characters are written as bytes in octal, for `printf`. Raises `UnquotableError`.

    >>> shell_word("billing"), shell_word("it's"), shell_word("a\\tb")
    ('billing', '\\'it\\'"\\'"\\'s\\'', '"$(printf \\'a\\\\011b\\')"')
    """
    if text.isprintable():
        return shlex.quote(text)
    if "\0" in text:
        raise UnquotableError("no argument of a program can hold NUL")
    if text.endswith("\n"):
        raise UnquotableError("a shell drops line ends at the end of what it reads")
    octal = "".join(chr(byte) if byte in _PLAIN else f"\\{byte:03o}" for byte in text.encode())
    return f"\"$(printf '{octal}')\""


def _of_group(
    tool: str, group: str, rows: Sequence[Mapping[str, Any]], is_whole: bool
) -> tuple[list[str], int]:
    """Return the lines of one group, and the number of rows without a line."""
    title = [f"# group {printable(group)}: {said}" for said in _reasons(rows)]
    try:
        named = f"--group {shell_word(group)}"
    except UnquotableError as error:
        return [*title, f"# no line: {error}"], len(rows)
    if rows[0]["type"] == "streams":
        return [*title, "# no line: a streams group; kafka-streams-groups describes and deletes these"], len(
            rows
        )
    title.append(f"{tool} --describe {named}")
    if is_whole and rows[0]["reason"] == IDLE:
        return [*title, f"{tool} --delete {named}"], 0
    refusals = [_refusal(row) for row in rows]
    lines = [
        f"# no line for topic {printable(row['topic'])}: {why}"
        if why
        else f"{tool} --delete-offsets {named} --topic {row['topic']}:{','.join(map(str, row['partitions']))}"
        for row, why in zip(rows, refusals, strict=True)
    ]
    return [*title, *lines], len(rows) - refusals.count(None)


def _reasons(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the reasons of a group, each with its topics."""
    for reason in dict.fromkeys(row["reason"] for row in rows):
        own = [row for row in rows if row["reason"] == reason]
        since = f" since {iso(own[0]['idle_since'])}" if reason == IDLE else ""
        yield f"{reason}{since}: {', '.join(printable(row['topic']) for row in own)}"


def _refusal(row: Mapping[str, Any]) -> str | None:
    """Return why no line can remove the offsets of a row; None: one can."""
    if not _TOPIC.fullmatch(row["topic"]):
        return "brokers have no topic of such a name, and delete only offsets of topics that they have"
    if row["of_deleted_topic"]:
        return "brokers delete only offsets of topics that they have"
    if row["reason"] == RECREATED and row["member_count"] != 0:
        return "the group has members: brokers delete no offsets of topics that they read"
    return None


def _plain(rows: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield rows as plain values, idle_since in ms."""
    names = ("group", "topic", "partitions", "reason", "member_count", "type", "of_deleted_topic")
    moments = to_milliseconds(rows["idle_since"]).to_pylist()
    for row, moment in zip(rows.select(names).to_pylist(), moments, strict=True):
        yield {**row, "idle_since": moment}
