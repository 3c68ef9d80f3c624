"""Committed offsets in the format of `kafka-consumer-groups --reset-offsets --from-file` (Kafka 2.4 or
newer)."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from streaming.common.arrays import begins_run, from_numbers, from_texts
from streaming.common.csv_lines import csv_line
from streaming.common.keys import ranks
from streaming.common.pieces import take
from streaming.common.times import iso

if TYPE_CHECKING:
    from streaming.tables.snapshot import Snapshot

MOST_NAMED: Final = 5
"""Most groups with members, topics of groups, and positions of one topic that remarks name."""

_BY: Final = ["group", "topic", "warning"]


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
    for name in sorted(counts, key=str)[:MOST_NAMED]:
        members = "a member" if counts[name] == 1 else f"{counts[name]} members"
        yield (
            f"group {name!r} has {members} (as of {iso(answer.as_of.read_until, 'seconds')}): "
            "kafka-consumer-groups will refuse it until its consumers are stopped, or their sessions time out"
        )
    if len(counts) > MOST_NAMED:
        yield f"and {len(counts) - MOST_NAMED} more groups"


def doubts(positions: pa.Table, *, most: int | None = None) -> Iterator[str]:
    """Yield the warnings of positions (`KEY_NAMES`, committed_offset, and warning; null: none), grouped by
    group and topic; at most `most` of these."""
    doubtful = positions.filter(positions["warning"].is_valid())
    columns = [ranks(doubtful[name]) for name in _BY]
    rows = np.lexsort(columns[::-1])
    starts = np.flatnonzero(begins_run(*(column[rows] for column in columns)))
    counts = np.diff(starts, append=len(rows))
    told = counts[:most].sum()
    is_named = np.arange(told) - np.repeat(starts, counts)[:told] < MOST_NAMED
    named = take(doubtful.select([*_BY, "partition", "committed_offset"]), rows[:told][is_named]).to_pylist()
    for count, ((group, _, warning), own) in zip(counts, groupby(named, itemgetter(*_BY)), strict=False):
        more = f"; and {count - MOST_NAMED} more" if count > MOST_NAMED else ""
        yield f"group {group!r}: {'; '.join(map(_place, own))}{more}: {warning}"
    if others := len(rows) - told:
        yield f"and {others} more offsets"


def _place(row: dict[str, Any]) -> str:
    offset = row["committed_offset"]
    return f"{row['topic']}:{row['partition']}" + ("" if offset is None else f", offset {offset}")


def with_warning(positions: pa.Table, warning: str) -> pa.Table:
    """Append the column `warning`, the same for all positions."""
    same = np.zeros(len(positions), np.int64)
    return positions.append_column("warning", from_texts([warning]).take(from_numbers(same)))
