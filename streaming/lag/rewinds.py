"""Rewinds: committed offsets that went back, and who can have committed them.

The log does not name the client that commits, but it records the members of the group at that time. A broker
accepts commits from outside of a group only while the group has no members (Kafka 4.3:
`OffsetMetadataManager.validateOffsetCommit`): from a tool, or from consumers that assign partitions
themselves.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import Index, Mask, from_mask, numbers_or, spread, to_mask
from streaming.common.keys import KEY_NAMES, key_codes
from streaming.common.pieces import take
from streaming.common.timestamps import to_milliseconds
from streaming.lag.recreated_topic import is_of_other_log
from streaming.lag.samples import NONE
from streaming.model.schemas import MEMBER_IDENTITY

_PLACED: Final = pa.schema(
    [
        ("group", pa.string()),
        ("source_partition", pa.int32()),
        ("source_offset", pa.int64()),  # null, as for simple groups: before every commit
        ("sequence", pa.int64()),  # of the batch
    ]
)

NO_MEMBERS: Final = "while no member was there"
"""The commit came from a tool, or from consumers that assign partitions themselves."""

Members = list[dict[str, str | None]] | None

WHO: Final = pa.schema(
    [
        ("was_empty", pa.bool_()),  # the group had no members; null: not known
        ("members", pa.list_(MEMBER_IDENTITY)),  # members at that time; null: none, or not known
    ]
)
"""The clients that can have made a commit."""


def with_who(commits: pa.Table, steps: pa.Table) -> pa.Table:
    """Append the columns `WHO` to n commits (group, source_partition, source_offset and sequence).

    `steps` are states of the groups, each valid from one of their records on: rows with these columns
    (source_offset null: before any commit), state (null: the group did not exist) and members, in any order.
    The tables keep only the last step of each batch. So the members are not known where no step precedes the
    commit, and where a step follows it in the same batch.
    """
    count = len(commits)
    names = _PLACED.names
    both = pa.concat_tables([steps.select(names).cast(_PLACED), commits.select(names).cast(_PLACED)])
    codes = key_codes([both["group"], both["source_partition"]])
    offsets, sequences = numbers_or(both["source_offset"], NONE), numbers_or(both["sequence"], NONE)
    is_commit = np.arange(len(both)) >= len(steps)
    order = np.lexsort((is_commit, offsets, codes))
    place = np.empty(len(both), np.int64)
    place[order] = np.arange(len(both))
    before = _step_before(codes, is_commit, order)[place[len(steps) :]]
    after = _step_before(codes, is_commit, order[::-1])[::-1][place[len(steps) :]]
    own = sequences[len(steps) :]
    is_merged = (after != NONE) & (np.append(sequences, NONE)[after] == own)
    is_known = (before != NONE) & ~is_merged
    found = take(steps.select(["state", "members"]), np.where(is_known, before, NONE))
    states = found["state"]
    lengths = numbers_or(pc.list_value_length(found["members"]), 0)
    is_empty = ~to_mask(states.is_valid()) | (lengths == 0)
    members = take(found.select(["members"]), np.where(is_known & ~is_empty, np.arange(count), NONE))
    empty = from_mask(is_empty, is_known)
    return commits.append_column(WHO.field("was_empty"), empty).append_column(
        WHO.field("members"), members["members"]
    )


def lasting(
    rewinds: pa.Table, commits: pa.Table, over_time: pa.Table, *, read_until: Index, after_ms: int
) -> tuple[pa.Table, pa.Table]:
    """Divide n rewinds into those that last, and those of which this is not known yet.

    `rewinds` are in the order of the log, with the columns that `with_who` needs, `KEY`, committed_offset,
    committed_at, written_at, offset_before, before_at, and the topic ids that `is_of_other_log` needs.
    `commits` (schema `COMMITTED`) are the later commits of their groups. `read_until` (n ms) are the moments
    up to which all commits are known. They and written_at are by the clock of the job, committed_at is by the
    clock of the coordinator, which may differ.

    Neither part has rewinds that were made up for within `after_ms`, because consumers that take over
    partitions repeat some offsets, nor those of a topic that was recreated in between (`over_time`: the ids
    that topics were seen with). The rewinds of a group keep their order: one that follows an undecided one
    waits, too.
    """
    at, written_at = _committed_at(rewinds), numbers_or(to_milliseconds(rewinds["written_at"]), 0)
    back_at = _back_at(rewinds, commits)
    is_short = (back_at != NONE) & (back_at - at < after_ms)
    is_open = (back_at == NONE) & (read_until - written_at < after_ms)
    groups = key_codes([rewinds["group"]])
    numbers = np.arange(len(rewinds))
    first_open = np.full((groups.max() if len(groups) else -1) + 1, len(rewinds), np.int64)
    np.minimum.at(first_open, groups[is_open], numbers[is_open])
    waits = numbers >= first_open[groups]
    lasts = ~is_short & ~waits & ~is_of_other_log(rewinds, over_time)
    return take(rewinds, np.flatnonzero(lasts)), take(rewinds, np.flatnonzero(waits))


def _back_at(rewinds: pa.Table, commits: pa.Table) -> Index:
    """Return when (ms) n positions first reached again their offset before the rewind, or `NONE`."""
    own_keys = rewinds.select(KEY_NAMES)
    keys = pa.concat_tables([commits.select(KEY_NAMES).cast(own_keys.schema), own_keys])
    codes = key_codes(keys.columns)
    sequences = numbers_or(commits["sequence"], NONE)
    order = np.lexsort((sequences, codes[: len(commits)]))
    span = int(max(sequences.max(initial=0), numbers_or(rewinds["sequence"], 0).max(initial=0))) + 2
    ranked = (codes[: len(commits)] * span + sequences)[order]
    own = codes[len(commits) :]
    starts = np.searchsorted(ranked, own * span + numbers_or(rewinds["sequence"], 0), side="right")
    lengths = np.searchsorted(ranked, (own + 1) * span) - starts
    of_rewind, place = spread(starts, lengths)
    later = order[place]
    offsets = numbers_or(commits["committed_offset"], NONE)[later]
    is_back = offsets >= numbers_or(rewinds["offset_before"], 0)[of_rewind]
    found = np.full(len(rewinds), NONE, np.int64)
    at = _committed_at(commits)[later]
    found[of_rewind[is_back][::-1]] = at[is_back][::-1]  # reversed: the first is written last
    return found


def _committed_at(rows: pa.Table) -> Index:
    """Return when (ms) n commits were made, at the latest when their batch was written."""
    committed_at, written_at = (
        numbers_or(to_milliseconds(rows[name]), 0) for name in ("committed_at", "written_at")
    )
    at: Index = np.minimum(committed_at, written_at)
    return at


def brief_words_of(was_empty: bool | None, members: Members, *, most: int | None = None) -> str | None:
    """Return `NO_MEMBERS`, or the members that can have committed, `most` of them at most; None: not known.

    >>> brief_words_of(False, [{"client_id": "app-2", "client_host": "/10.0.0.2"}])
    'app-2/10.0.0.2'
    """
    return NO_MEMBERS if was_empty else ", ".join(_named(members, most)) or None


def _named(members: Members, most: int | None) -> list[str]:
    """Return members in the notation of Kafka's logs, sorted; beyond `most`, only how many more."""
    named = sorted(f"{member['client_id']}{member['client_host']}" for member in members or [])
    others = named[len(named) if most is None else most :]
    return [*named[:most], *([f"{len(others)} more"] if others else [])]


def words_of(was_empty: bool | None, members: Members, *, most: int | None = None) -> str:
    """Return a clause that names who can have committed, with `most` members at most.

    >>> words_of(True, None)
    'while no member was there: by a tool, or a consumer that assigns partitions itself'
    >>> words_of(False, [{"client_id": "app-1", "client_host": "/10.0.0.1"}])
    'by one of the members of that moment: app-1/10.0.0.1'
    >>> words_of(None, None)
    'it is not known who was a member then'
    """
    if was_empty:
        return f"{NO_MEMBERS}: by a tool, or a consumer that assigns partitions itself"
    if was_empty is None or members is None:
        return "it is not known who was a member then"
    return f"by one of the members of that moment: {', '.join(_named(members, most))}"


def _step_before(codes: Index, is_commit: Mask, order: Index) -> Index:
    """Return for each row, in the given order, the number of the nearest step before it in its group, or
    `NONE`."""
    numbers = np.arange(len(order))
    nearest = np.maximum.accumulate(np.where(is_commit[order], NONE, numbers))
    step = np.where(nearest == NONE, NONE, order[nearest])
    is_own = codes[step] == codes[order]
    own: Index = np.where((step != NONE) & is_own, step, NONE)
    return own
