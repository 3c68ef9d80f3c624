"""Commits of lower offsets, held until it is known whether they are rewinds, by the rule of alerts and of
`history` (`streaming.lag.rewinds.lasting`).

A recreated topic starts at offset 0, and a group that goes on there has not rewound. Where commits carry no
topic ids, samples of log ends show that a topic was recreated.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.alerts.rules.view import not_history
from streaming.common.arrays import Index, Mask, from_mask, from_numbers, numbers_or, to_mask, to_numbers
from streaming.common.keys import KEY_NAMES, key_codes
from streaming.common.times import MINUTE_MS
from streaming.common.timestamps import to_milliseconds, to_timestamps
from streaming.lag.health_rules import HealthRules
from streaming.lag.rewinds import lasting
from streaming.model.completeness import read_until
from streaming.model.schemas import CHANGES, KEY, TIMESTAMP
from streaming.serve.memory.names import NONE
from streaming.serve.memory.snapshot import MemorySnapshot
from streaming.tables.tail.rows import field_of

_OF_COMMIT: Final = [
    *KEY,
    ("committed_offset", pa.int64()),
    ("committed_at", TIMESTAMP),
    ("written_at", TIMESTAMP),
    *(CHANGES.field(name) for name in ("source_partition", "source_offset", "sequence")),
]

COMMITTED: Final = pa.schema(_OF_COMMIT)
"""The columns of later commits of the same position."""

POSSIBLE_REWINDS: Final = pa.schema(
    [
        *_OF_COMMIT,
        ("offset_before", pa.int64()),
        ("before_at", TIMESTAMP),
        ("topic_id", pa.string()),
        ("topic_id_before", pa.string()),
    ]
)
"""The columns of a commit of a lower offset; `before_at` is the time of the commit before it."""

_LONGEST_WAIT_MS: Final = 3 * MINUTE_MS
"""After this time without a newer sample of its topic, a commit counts as a rewind."""

_MOST_WAITING: Final = 10_000
_LATEST: Final = 253_402_300_799_000  # ms; the end of the year 9999


def possible_rewinds(rows: pa.RecordBatch, is_set: Mask) -> pa.Table:
    """Return those of n changes of offsets (`is_set`: commits) that lower the offset (schema
    `POSSIBLE_REWINDS`)."""
    (old, was_known), (new, is_known) = (_offsets(rows[name]) for name in ("before", "after"))
    some = rows.filter(from_mask(is_set & was_known & is_known & (new < old)))
    before = some["before"]
    columns = _of_commits(some) | {
        "offset_before": field_of(before, "committed_offset", pa.int64()),
        "before_at": field_of(before, "commit_timestamp", TIMESTAMP),
        "topic_id": field_of(some["after"], "topic_id", pa.string()),
        "topic_id_before": field_of(before, "topic_id", pa.string()),
    }
    return pa.table(
        [columns[field.name].cast(field.type) for field in POSSIBLE_REWINDS], schema=POSSIBLE_REWINDS
    )


def commits_of(moves: pa.Table, rows: pa.RecordBatch, is_set: Mask) -> pa.Table:
    """Return the commits among n changes of offsets (`is_set`) to the positions of `moves` (schema
    `COMMITTED`)."""
    is_own = to_mask(pc.is_in(rows["group"].cast(pa.string()), value_set=pc.unique(moves["group"])))
    some = rows.filter(from_mask(is_set & is_own))
    columns = _of_commits(some)
    commits = pa.table([columns[field.name].cast(field.type) for field in COMMITTED], schema=COMMITTED)
    return of_positions(moves, commits)


def of_positions(moves: pa.Table, commits: pa.Table) -> pa.Table:
    """Return the commits to the positions of `moves`."""
    both = [pa.chunked_array([*moves[name].chunks, *commits[name].chunks]) for name in KEY_NAMES]
    codes = key_codes(both)
    return commits.filter(from_mask(np.isin(codes[len(moves) :], codes[: len(moves)])))


def settled(moves: pa.Table, commits: pa.Table, snapshot: MemorySnapshot) -> tuple[pa.Table, pa.Table]:
    """Divide n commits of lower offsets into rewinds and those still undecided (both `POSSIBLE_REWINDS`),
    given the later commits (`COMMITTED`) of their positions.

    In neither are commits into a recreated topic, commits soon followed by a higher offset, and those that
    the job found when it first started.
    """
    moves = not_history(moves, snapshot.progress)
    names = pc.unique(moves["topic"])
    sampled_at = snapshot.topics.sampled_at(names)[
        numbers_or(pc.index_in(moves["topic"], value_set=names), 0)
    ]
    at = numbers_or(to_milliseconds(moves["committed_at"]), 0)
    has_ids = to_mask(moves["topic_id"].is_valid()) & to_mask(moves["topic_id_before"].is_valid())
    is_sampled_later = (sampled_at == NONE) | (sampled_at > at)
    is_late = snapshot.progress.heartbeat - at > _LONGEST_WAIT_MS
    read_until = np.where(has_ids | is_sampled_later | is_late, _read_until(moves, snapshot), at)
    read_until[:-_MOST_WAITING] = _LATEST
    return lasting(
        moves,
        commits,
        snapshot.topics.ids_over_time(names),
        read_until=read_until,
        after_ms=HealthRules().rewind_after_ms,
    )


def _read_until(moves: pa.Table, snapshot: MemorySnapshot) -> Index:
    """Return the time (ms) up to which all commits of the offsets partition of each of n rows are known."""
    progress = snapshot.progress
    known = {number: read_until(one, progress) for number, one in progress.partitions.items()}
    return np.array(
        [known.get(number, progress.heartbeat) for number in to_numbers(moves["source_partition"]).tolist()],
        np.int64,
    )


def _of_commits(rows: pa.RecordBatch) -> dict[str, pa.Array]:
    """Return the columns of n commits; a commit is never later than the batch that wrote it."""
    after, written_at = rows["after"], field_of(rows, "batch_time", TIMESTAMP)
    times = field_of(after, "commit_timestamp", TIMESTAMP), written_at
    earlier = np.minimum(*(numbers_or(to_milliseconds(one), _LATEST) for one in times))
    return {
        **{
            field.name: field_of(rows, field.name, field.type)
            for field in COMMITTED
            if field.name not in _MADE
        },
        "committed_offset": field_of(after, "committed_offset", pa.int64()),
        "committed_at": to_timestamps(from_numbers(earlier)),
        "written_at": written_at,
    }


_MADE: Final = ("committed_offset", "committed_at", "written_at")


def _offsets(values: pa.StructArray) -> tuple[Index, Mask]:
    """Return n committed offsets, and which of them are known."""
    offsets = field_of(values, "committed_offset", pa.int64())
    return numbers_or(offsets, 0), to_mask(offsets.is_valid()) & to_mask(values.is_valid())
