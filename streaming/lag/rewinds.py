"""Who can have set back a group: the log does not name who commits, but says who was a member then.

A broker takes commits from outside of a group only while it has no members (Kafka 4.3:
`OffsetMetadataManager.validateOffsetCommit`): from a tool, or from consumers that assign partitions
themselves.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import Index, Mask, from_mask, numbers_or, to_mask
from streaming.common.keys import key_codes
from streaming.common.pieces import take
from streaming.lag.samples import NONE
from streaming.model.schemas import MEMBER

_PLACED: Final = pa.schema(
    [
        ("group", pa.string()),
        ("source_partition", pa.int32()),
        ("source_offset", pa.int64()),  # null, as of simple groups: before every commit
        ("sequence", pa.int64()),  # of the batch
    ]
)

WHO: Final = pa.schema(
    [
        ("was_empty", pa.bool_()),  # no member was there; null: not known
        ("members", pa.list_(MEMBER)),  # those of that moment; null: not known
    ]
)
"""Who can have committed something."""


def with_who(commits: pa.Table, steps: pa.Table) -> pa.Table:
    """Append the columns `WHO` to n commits: rows with group, source_partition, source_offset and sequence.

    `steps` say how their groups were from a record of theirs on: rows with these columns (source_offset null:
    before any commit), state (null: the group was not there) and members, in any order. Not known is who was
    there where no step is before the commit, and where another one followed it in the same batch: of each
    batch the last step is kept.
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


def words_of(was_empty: bool | None, members: list[dict[str, str | None]] | None) -> str:
    """Say who can have committed.

    >>> words_of(True, None)
    'while no member was there: by a tool, or a consumer that assigns partitions itself'
    >>> words_of(False, [{"client_id": "app-1", "client_host": "/10.0.0.1"}])
    'by one of the members of that moment: app-1 at /10.0.0.1'
    >>> words_of(None, None)
    'it is not known who was a member then'
    """
    if was_empty:
        return "while no member was there: by a tool, or a consumer that assigns partitions itself"
    if was_empty is None or members is None:
        return "it is not known who was a member then"
    named = ", ".join(f"{member['client_id']} at {member['client_host']}" for member in members)
    return f"by one of the members of that moment: {named}"


def _step_before(codes: Index, is_commit: Mask, order: Index) -> Index:
    """Return for each row, in an order, the number of the nearest step before it in its group, or `NONE`."""
    numbers = np.arange(len(order))
    nearest = np.maximum.accumulate(np.where(is_commit[order], NONE, numbers))
    step = np.where(nearest == NONE, NONE, order[nearest])
    is_own = codes[step] == codes[order]
    own: Index = np.where((step != NONE) & is_own, step, NONE)
    return own
