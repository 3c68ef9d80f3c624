"""Whether groups are well, and which of their positions tells: the rules applied to rows.

A group takes the status of its worst partition.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import Index, from_mask, from_numbers, from_texts, numbers_or, to_mask
from streaming.common.keys import KEY_NAMES, key_codes, numbered
from streaming.common.pieces import take
from streaming.common.timestamps import to_timestamps
from streaming.lag.log_ends import LAG
from streaming.lag.rules import (
    OK,
    REASONS,
    REWOUND,
    STALLED,
    STATUSES,
    STOPPED,
    WARNING,
    HealthRules,
    Judged,
    ends_before,
    judge,
)
from streaming.lag.runs import COMMITS, Runs
from streaming.lag.samples import NONE, Samples
from streaming.model.schemas import KEY, TIMESTAMP

PARTITION_HEALTH: Final = pa.schema(
    [
        ("status", pa.string()),  # one of `STATUSES`
        ("reason", pa.string()),  # one of `REASONS`
        ("since", TIMESTAMP),  # from when on that is known to be so; null for OK and UNKNOWN
        ("commits", pa.int64()),  # of the window
        ("pace_is_known", pa.bool_()),  # there are enough of them to tell how often it is committed
        ("first_offset", pa.int64()),  # of the window
        ("first_at", TIMESTAMP),
        ("last_offset", pa.int64()),
        ("last_at", TIMESTAMP),
        ("rewound_from", pa.int64()),  # the offset before it went back; null: it did not
        ("rewound_to", pa.int64()),
    ]
)
"""What is said of a position, beside its key and its lag."""

GROUP_HEALTH: Final = pa.schema(
    [
        KEY[0],
        *list(PARTITION_HEALTH)[:2],
        *KEY[1:],  # the partition that decides: the worst, and of these the one that is furthest behind
        pa.field("committed_offset", pa.int64()),
        *LAG,
        *list(PARTITION_HEALTH)[2:],
        ("partitions", pa.int64()),  # positions that the group has
        ("partitions_not_ok", pa.int64()),  # of these, those of any other status
    ]
)
"""What is said of a group: the facts are those of the partition that decides."""


def health(
    positions: pa.Table,
    commits: pa.Table,
    samples: pa.Table,
    *,
    now: int,
    max_age_ms: int,
    rules: HealthRules | None = None,
) -> pa.Table:
    """Return the status of each group (schema `GROUP_HEALTH`), the worst first, at a moment (ms).

    As `partition_health` has it of its positions.
    """
    rows = partition_health(positions, commits, samples, now=now, max_age_ms=max_age_ms, rules=rules)
    return group_health(rows)


def partition_health(
    positions: pa.Table,
    commits: pa.Table,
    samples: pa.Table,
    *,
    now: int,
    max_age_ms: int,
    rules: HealthRules | None = None,
) -> pa.Table:
    """Append the columns `PARTITION_HEALTH` to n positions, as they are at a moment (ms).

    `positions` are the live offsets: the columns `KEY`, committed_offset, commit_timestamp, `LAG` and, if
    known, unreadable_since and is_current (false: newer commits may not have been read). `commits` (schema
    `COMMITS`) are those up to the position itself, those of its window and one before that; a key may have
    none: of what is not behind no more than the position is looked at. `samples` (topic, topic_id,
    partition, sampled_at, log_end) begin before these commits, and no later than a window before now.
    """
    rules = rules or HealthRules()
    commits = pa.concat_tables(
        [commits.select(COMMITS.names).cast(COMMITS), _of_positions(positions, commits)]
    )
    sampled = Samples.of(samples)
    runs = Runs.of(commits, sampled, until=now, max_age_ms=max_age_ms)
    keys = _codes_of(positions, runs.keys)
    lasts = runs.starts[keys + 1] - 1
    current = positions["is_current"] if "is_current" in positions.schema.names else None
    places = sampled.places.codes_of(positions)
    moments = np.full(len(positions), now, np.int64)
    judged = judge(
        runs,
        lasts,
        moments,
        lags=positions["lag"],
        ends_before=ends_before(sampled, places, moments, rules),
        is_current=np.ones(len(positions), np.bool_) if current is None else to_mask(current),
        rules=rules,
    )
    for field, column in zip(PARTITION_HEALTH, facts(runs, judged), strict=True):
        positions = positions.append_column(field, column)
    return positions


def group_health(rows: pa.Table) -> pa.Table:
    """Return what is said of each group (schema `GROUP_HEALTH`), the worst first, from positions with the
    columns that `partition_health` appends."""
    codes, _ = numbered(rows["group"])
    statuses = _numbers_of(rows["status"])
    order = np.lexsort(
        (
            numbers_or(rows["partition"], 0),
            -numbers_or(rows["lag"], NONE),
            -_milliseconds(rows["lag_seconds"]),
            -statuses,
            codes,
        )
    )
    starts = np.searchsorted(codes[order], np.arange((codes.max() if len(codes) else -1) + 2))
    worst = order[starts[:-1]]
    not_ok = np.append(0, np.cumsum(statuses[order] != OK))[starts]
    decides = take(rows, worst)
    counts = [from_numbers(np.diff(starts)), from_numbers(np.diff(not_ok))]
    for name, count in zip(("partitions", "partitions_not_ok"), counts, strict=True):
        decides = decides.append_column(name, count)
    names = _text_ranks(decides["group"])
    order = np.lexsort((names, -_milliseconds(decides["lag_seconds"]), -statuses[worst]))
    return take(decides.select(GROUP_HEALTH.names), order).cast(GROUP_HEALTH)


# --- what is said ----------------------------------------------------------------------------------------


def facts(runs: Runs, judged: Judged) -> list[pa.Array]:
    """Return the columns `PARTITION_HEALTH` of m positions."""
    lasts, windows, turns = judged.lasts, judged.windows, judged.turns
    statuses = judged.statuses
    since_by_status = {
        WARNING: runs.at[windows],
        STOPPED: runs.at[lasts],
        STALLED: runs.at[runs.stands_since[lasts]],
        REWOUND: runs.at[turns],
    }
    since = np.select([statuses == status for status in since_by_status], list(since_by_status.values()))
    is_rewound = statuses == REWOUND
    return [
        _words(STATUSES, statuses),
        _words([reason for reason, _ in REASONS], judged.reasons),
        to_timestamps(from_numbers(since, np.isin(statuses, list(since_by_status)))),
        from_numbers(lasts - windows + 1),
        from_mask(judged.is_pace_known),
        from_numbers(runs.offsets[windows], runs.is_readable[windows]),
        to_timestamps(from_numbers(runs.at[windows])),
        from_numbers(runs.offsets[lasts], runs.is_readable[lasts]),
        to_timestamps(from_numbers(runs.at[lasts])),
        from_numbers(runs.offsets[np.maximum(turns - 1, 0)], is_rewound),
        from_numbers(runs.offsets[turns], is_rewound),
    ]


def _words(words: tuple[str, ...] | list[str], numbers: Index) -> pa.Array:
    return from_texts(words).take(from_numbers(numbers))


def _numbers_of(statuses: pa.ChunkedArray) -> Index:
    return numbers_or(pc.index_in(statuses, value_set=from_texts(STATUSES)), NONE)


def _milliseconds(seconds: pa.ChunkedArray) -> Index:
    """Return seconds as int64 milliseconds, -1 where they are null."""
    return numbers_or(pc.multiply(seconds, 1_000.0).cast(pa.int64(), safe=False), NONE)


def _text_ranks(texts: pa.ChunkedArray) -> Index:
    ranks = np.empty(len(texts), np.int64)
    ranks[numbers_or(pc.sort_indices(texts), NONE)] = np.arange(len(texts))
    return ranks


# --- keys ------------------------------------------------------------------------------------------------


def _of_positions(positions: pa.Table, commits: pa.Table) -> pa.Table:
    """Return commits (schema `COMMITS`) of the positions that have none among these: themselves."""
    is_there = _codes_of(positions, commits)
    lacking = positions.filter(from_mask(is_there == NONE))
    columns = [
        *(lacking[name] for name in KEY_NAMES),
        pc.if_else(_is_unreadable(lacking), pa.scalar(None, pa.int64()), lacking["committed_offset"]),
        lacking["commit_timestamp"],
        from_mask(np.zeros(len(lacking), np.bool_)),
    ]
    return pa.table(columns, COMMITS.names).cast(COMMITS)


def _is_unreadable(positions: pa.Table) -> pa.ChunkedArray | pa.Array:
    """Tell whether the newest commit of each position could not be read."""
    if "unreadable_since" in positions.schema.names:
        return pc.is_valid(positions["unreadable_since"])
    return from_mask(np.zeros(len(positions), np.bool_))


def _codes_of(rows: pa.Table, keys: pa.Table) -> Index:
    """Return the place of each row's key in a table of keys, `NONE` where it is not there."""
    both = pa.concat_tables([keys.select(KEY_NAMES), rows.select(KEY_NAMES)])
    codes = key_codes(both[name] for name in KEY_NAMES)
    places = np.full((codes.max() if len(codes) else -1) + 1, NONE, np.int64)
    places[codes[: len(keys)]] = np.arange(len(keys))
    found: Index = places[codes[len(keys) :]]
    return found
