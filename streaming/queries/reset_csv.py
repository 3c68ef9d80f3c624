"""Committed offsets in the format of `kafka-consumer-groups --reset-offsets --from-file` (Kafka 2.4 or
newer)."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streaming.common.csv_lines import csv_line
from streaming.common.times import iso

if TYPE_CHECKING:
    from streaming.tables.snapshot import Snapshot

_MOST_NAMED: Final = 5
"""Most groups with members, and most positions of one topic, that are named."""


def is_one_group(asked: Sequence[str], found: Sequence[str] | None) -> bool:
    """Whether exactly one group was requested by name: the format for one group has no group column."""
    return len(asked) == 1 and found is not None and list(found) == list(asked)


def reset_lines(positions: pa.Table, *, one_group: bool) -> Iterator[str]:
    """Yield lines `group,topic,partition,offset` for rows with these, the offset from `committed_offset`; for
    one group without the group, as the tool expects with one `--group`.

    Rows without an offset, with a negative one, and with names that the file cannot hold, are left out.
    """
    for row in positions.select(["group", "topic", "partition", "committed_offset"]).to_pylist():
        group, offset = row.pop("group"), row["committed_offset"]
        names = [row["topic"], *([] if one_group else [group])]
        if offset is not None and offset >= 0 and not any(map(_unfit, names)):
            yield csv_line([*([] if one_group else [group]), *row.values()]) + "\n"


def names_left_out(positions: pa.Table, *, one_group: bool) -> list[str]:
    """Return a remark for each group and topic that is left out because the file cannot hold its name."""
    return [
        f"{kind} {name!r} is left out: the file cannot hold {unfit} in a name"
        for kind in (["topic"] if one_group else ["group", "topic"])
        for name in sorted(positions[kind].unique().to_pylist())
        if (unfit := _unfit(name))
    ]


def _unfit(name: str) -> str | None:
    """Return the characters in a name that the file cannot hold; None: it can.

    The tool (`ConsumerGroupCommand.parseResetPlan`) splits at line ends, also within quotes. It accepts NUL,
    but no shell can pass such a group to it, and many CSV readers stop there.
    """
    if "\r" in name or "\n" in name:
        return "a line end"
    return "NUL" if "\0" in name else None


def member_warnings(at: "Snapshot", positions: pa.Table) -> Iterator[str]:
    """Yield the groups of the rows (with `group`) that have members now: the tool refuses to reset them.

    (Kafka 4.3 `ConsumerGroupCommand.resetOffsets`: "Assignments can only be reset if the group is inactive".)
    """
    from streaming.queries.bound.offsets import SnapshotQueries

    answer = SnapshotQueries(at.newest()).describe_groups(positions["group"].unique().to_pylist())
    counts = {name: len(one.members) for name, one in answer.groups.items() if one.members}
    for name in sorted(counts, key=str)[:_MOST_NAMED]:
        members = "a member" if counts[name] == 1 else f"{counts[name]} members"
        yield (
            f"group {name!r} has {members} (as of {iso(answer.as_of.read_until, 'seconds')}): "
            "kafka-consumer-groups will refuse it until its consumers are stopped, or their sessions time out"
        )
    if len(counts) > _MOST_NAMED:
        yield f"and {len(counts) - _MOST_NAMED} more groups"


def doubts(positions: pa.Table, *, most: int | None = None) -> Iterator[str]:
    """Yield the warnings of positions (schema `RESTORED`), as `position_warnings` does."""
    return position_warnings(positions.filter(positions["warning"].is_valid()).to_pylist(), most=most)


def position_warnings(rows: Iterable[dict[str, Any]], *, most: int | None = None) -> Iterator[str]:
    """Yield the `warning` of positions, grouped by group and topic; at most `most` of these."""
    by = itemgetter("group", "topic", "warning")
    told = [(key, list(own)) for key, own in groupby(sorted(rows, key=by), by)]
    for (group, topic, warning), own in told[:most]:
        places = [_place(topic, row) for row in own]
        more = f"; and {len(places) - _MOST_NAMED} more" if len(places) > _MOST_NAMED else ""
        yield f"group {group!r}: {'; '.join(places[:_MOST_NAMED])}{more}: {warning}"
    if others := sum(len(own) for _, own in told[most:]) if most is not None else 0:
        yield f"and {others} more offsets"


def _place(topic: str, row: dict[str, Any]) -> str:
    offset = row["committed_offset"]
    return f"{topic}:{row['partition']}" + ("" if offset is None else f", offset {offset}")
