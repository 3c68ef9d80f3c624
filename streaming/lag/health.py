"""The health of positions and groups: `streaming.lag.health_rules` applied to Arrow tables.

A group has the status of its worst partition.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import (
    Index,
    Mask,
    from_mask,
    from_numbers,
    from_texts,
    numbers_or,
    scaled,
    to_mask,
)
from streaming.common.keys import KEY_NAMES, Numbering, firsts, leading, numbered, ranks
from streaming.common.pieces import take
from streaming.common.timestamps import to_timestamps
from streaming.lag.habits import Waits
from streaming.lag.health_rules import (
    OK,
    REASONS,
    REWOUND,
    STALLED,
    STATUS_OF,
    STATUSES,
    STOPPED,
    WARNING,
    HealthRules,
    Judged,
    ends_before,
    judge,
    reasons_at_rest,
    waits_of,
)
from streaming.lag.log_ranges import LAG
from streaming.lag.runs import CommitRuns, Commits, within_reach
from streaming.lag.samples import NONE, Samples
from streaming.model.schemas import KEY, TIMESTAMP

_JUDGED_AT_ONCE: Final = 250_000
"""Positions and commits that are judged together: judging takes some 500 bytes of each."""

PARTITION_HEALTH: Final = pa.schema(
    [
        ("status", pa.string()),  # one of `STATUSES`
        ("reason", pa.string()),  # one of `REASONS`
        ("since", TIMESTAMP),  # when the status began, as far as known; null for OK and UNKNOWN
        ("commits", pa.int64()),  # number of commits in the window
        ("pace_is_known", pa.bool_()),  # there are enough commits to know how often the group commits
        ("first_offset", pa.int64()),  # of the window, as the next three
        ("first_at", TIMESTAMP),
        ("last_offset", pa.int64()),
        ("last_at", TIMESTAMP),
        ("rewound_from", pa.int64()),  # the offset before the rewind; null, as the next: there was none
        ("rewound_to", pa.int64()),
    ]
)
"""The columns that health adds to a position."""

GROUP_HEALTH: Final = pa.schema(
    [
        KEY[0],
        *list(PARTITION_HEALTH)[:2],
        *KEY[1:],  # the deciding partition: the one with the largest lag among those of the worst status
        pa.field("committed_offset", pa.int64()),
        *LAG,
        *list(PARTITION_HEALTH)[2:],
        ("partitions", pa.int64()),  # number of positions of the group
        ("partitions_not_ok", pa.int64()),  # number of positions whose status is not OK
    ]
)
"""The health of a group. The columns from topic to rewound_to are those of the deciding partition."""


def health(
    positions: pa.Table,
    commits: pa.Table,
    samples: pa.Table,
    *,
    now: int,
    max_age_ms: int,
    rules: HealthRules | None = None,
) -> pa.Table:
    """Return the status of each group at `now` (ms), the worst first (schema `GROUP_HEALTH`).

    Arguments as for `partition_health`.
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
    """Append the columns `PARTITION_HEALTH` at `now` (ms) to n positions.

    `positions` are the live offsets: the columns `KEY`, committed_offset, commit_timestamp, `LAG` and
    optionally unreadable_source_offset and is_current (false: newer commits may be unread). `commits` (schema
    `COMMITS`) hold, for each position with lag, the newest commit, the other commits of its window and one
    before the window; a position may have none, and then is judged by the commit in its own row. `samples`
    (topic, topic_id, partition, sampled_at, log_end) begin before these commits, and at least one window
    before `now`.
    """
    keys, codes = Numbering.of(positions, KEY_NAMES)
    found = Judging(positions, now=now, max_age_ms=max_age_ms, rules=rules or HealthRules()).facts(
        np.arange(len(positions)),
        [Commits.of(_rows_of(codes)[keys.codes_of(commits)], commits).by_key()],
        samples,
    )
    return with_columns(positions, found)


class Judging:
    """Judges positions (columns as for `partition_health`) at `now` (ms), in portions, because some need
    older commits than others. Positions are numbered in the order of their rows."""

    def __init__(self, positions: pa.Table, *, now: int, max_age_ms: int, rules: HealthRules) -> None:
        self._now, self._max_age_ms, self._rules = now, max_age_ms, rules
        place_of, codes = Numbering.of(positions, KEY_NAMES[1:])
        self._place, self._places = codes, take(positions.select(place_of.names), firsts(codes))
        self._own = _of_positions(positions)
        self._lags = numbers_or(positions["lag"], 0)
        self._is_lag_known = to_mask(positions["lag"].is_valid())
        self._is_current = np.ones(len(positions), np.bool_)
        if "is_current" in positions.schema.names:
            self._is_current = to_mask(positions["is_current"])

    def facts_at_rest(self, numbers: Index) -> pa.Table:
        """Return the same as `facts` for m positions that are not behind. These need no commits: lag and
        the newest commit decide."""
        own = self._own.where(numbers)
        reasons = reasons_at_rest(
            lags=from_numbers(self._lags[numbers], self._is_lag_known[numbers]),
            is_readable=own.is_readable,
            is_current=self._is_current[numbers],
            rules=self._rules,
        )
        offset = from_numbers(own.offsets, own.is_readable)
        at = to_timestamps(from_numbers(within_reach(own.at, self._now)))
        known = {
            "status": status_words(STATUS_OF[reasons]),
            "reason": reason_words(reasons),
            "commits": from_numbers(np.ones(len(numbers), np.int64)),
            "pace_is_known": from_mask(np.full(len(numbers), self._rules.min_commits <= 1)),
            **dict.fromkeys(("first_offset", "last_offset"), offset),
            **dict.fromkeys(("first_at", "last_at"), at),
        }
        columns = [known.get(field.name, pa.nulls(len(numbers), field.type)) for field in PARTITION_HEALTH]
        return pa.Table.from_arrays(columns, schema=PARTITION_HEALTH)

    def facts(
        self, numbers: Index, commits: Sequence[Commits], samples: pa.Table, waits: Waits | None = None
    ) -> pa.Table:
        """Return the columns `PARTITION_HEALTH` of m positions, given by their ascending numbers.

        `commits` carry the numbers of positions, and each is sorted by them (`Commits.by_key`); commits of
        positions not in `numbers` are ignored. `waits` (m) come from `Habits`; without them, the samples
        alone show since when records wait, and no pause is usual.
        """
        sampled = Samples.of(samples)
        counts = np.ones(len(numbers), np.int64)
        for some in commits:
            counts += np.bincount(some.keys, minlength=len(self._own.keys))[numbers]
        portions = np.cumsum(counts) // _JUDGED_AT_ONCE
        parts = np.split(np.arange(len(numbers)), np.flatnonzero(np.diff(portions)) + 1)
        found = [
            self._facts(numbers[part], commits, sampled, None if waits is None else waits.at(part))
            for part in parts
        ]
        return pa.concat_tables(found)

    def _facts(
        self, numbers: Index, commits: Sequence[Commits], sampled: Samples, waits: Waits | None
    ) -> pa.Table:
        among = np.full(len(self._own.keys), NONE, np.int64)
        among[numbers] = np.arange(len(numbers))
        first, last = numbers[[0, -1]] if len(numbers) else (0, NONE)
        among_these = (some.between(first, last).renumbered(among) for some in commits)
        held = Commits.joined(Commits.none(), *among_these)
        is_lacking = np.ones(len(numbers), np.bool_)
        is_lacking[held.keys] = False
        own = self._own.where(numbers[is_lacking]).renumbered(among)
        places = sampled.places.codes_of(self._places)[self._place[numbers]]
        runs = CommitRuns.of_keys(
            Commits.joined(held, own),
            places,
            sampled,
            until=self._now,
            max_age_ms=self._max_age_ms,
        )
        moments = np.full(len(numbers), self._now, np.int64)
        lasts = runs.starts[1:] - 1
        if waits is None:
            waits = waits_of(runs, lasts, sampled, places, moments, self._max_age_ms, self._rules)
        judged = judge(
            runs,
            lasts,
            moments,
            lags=from_numbers(self._lags[numbers], self._is_lag_known[numbers]),
            ends_before=ends_before(sampled, places, moments, self._rules),
            waits=waits,
            is_current=self._is_current[numbers],
            rules=self._rules,
        )
        return pa.Table.from_arrays(facts(runs, judged), schema=PARTITION_HEALTH)


def with_columns(rows: pa.Table, columns: pa.Table) -> pa.Table:
    for field, column in zip(columns.schema, columns.columns, strict=True):
        rows = rows.append_column(field, column)
    return rows


def given(health: pa.Table, reasons: Index) -> pa.Table:
    """Return the columns `PARTITION_HEALTH` of n positions with other reasons for some of them. `reasons`
    are n numbers of `REASONS` whose status is OK or UNKNOWN (`NONE`: keep the reason)."""
    is_some = reasons != NONE
    if not is_some.any():
        return health
    replaced = {"status": status_words(STATUS_OF[reasons]), "reason": reason_words(reasons)}
    replaced |= {name: pa.nulls(len(health), health.schema.field(name).type) for name in _OF_STATUS}
    columns = [
        pc.if_else(from_mask(is_some), replaced[name], health[name]) if name in replaced else health[name]
        for name in health.column_names
    ]
    return pa.table(columns, schema=health.schema)


_OF_STATUS: Final = ("since", "rewound_from", "rewound_to")


def has_stopped(rows: pa.Table) -> Mask:
    stopped: Mask = status_numbers(rows) == STOPPED
    return stopped


def status_numbers(rows: pa.Table) -> Index:
    """Return the statuses of n rows as indexes into `STATUSES` (n int64)."""
    return numbers_or(pc.index_in(rows["status"], value_set=from_texts(STATUSES)), NONE)


def status_words(statuses: Index) -> pa.Array:
    return from_texts(STATUSES).take(from_numbers(statuses))


def reason_words(reasons: Index) -> pa.Array:
    """Return n reasons in words from their numbers; an arbitrary one for `NONE`."""
    return from_texts([reason for reason, _ in REASONS]).take(from_numbers(np.maximum(reasons, 0)))


def group_health(rows: pa.Table) -> pa.Table:
    """Return the health of each group (schema `GROUP_HEALTH`), the worst first; of one status the longest
    lag time first. `rows` are positions with the columns of `partition_health`."""
    codes, groups = numbered(rows["group"])
    statuses = status_numbers(rows)
    worst = leading(
        codes,
        -statuses,
        -numbers_or(rows["lag"], NONE),
        numbers_or(rows["partition"], 0),
        ranks(rows["topic"]),
    )
    decides = take(rows, worst)
    counts = [np.bincount(own, minlength=len(groups)) for own in (codes, codes[statuses != OK])]
    for name, count in zip(("partitions", "partitions_not_ok"), counts, strict=True):
        decides = decides.append_column(name, from_numbers(count.astype(np.int64)))
    order = np.lexsort((ranks(groups), -scaled(decides["lag_seconds"], 1_000, NONE), -statuses[worst]))
    return take(decides.select(GROUP_HEALTH.names), order).cast(GROUP_HEALTH)


# --- columns of a judgement ------------------------------------------------------------------------------


def facts(runs: CommitRuns, judged: Judged) -> list[pa.Array]:
    """Return m judged positions as the columns `PARTITION_HEALTH`."""
    lasts, windows, turns = judged.lasts, judged.windows, judged.turns
    statuses = judged.statuses
    since_by_status = {
        WARNING: runs.at[windows],
        STOPPED: runs.at[lasts],
        STALLED: runs.at[runs.unmoved_since[lasts]],
        REWOUND: runs.at[turns],
    }
    since = np.select([statuses == status for status in since_by_status], list(since_by_status.values()))
    is_rewound = statuses == REWOUND
    return [
        status_words(statuses),
        reason_words(judged.reasons),
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


# --- keys ------------------------------------------------------------------------------------------------


def _of_positions(positions: pa.Table) -> Commits:
    """Return each position as a commit of its own: its newest one."""
    readable = to_mask(positions["committed_offset"].is_valid())
    if "unreadable_source_offset" in positions.schema.names:  # not null: the newest commit is unreadable
        readable &= ~to_mask(positions["unreadable_source_offset"].is_valid())
    own = positions.select(["committed_offset"]).append_column("committed_at", positions["commit_timestamp"])
    own = own.append_column("written_at", pa.nulls(len(positions), TIMESTAMP))  # not used
    own = own.append_column("is_removed", from_mask(np.zeros(len(positions), np.bool_)))
    own = own.append_column("topic_id", pa.nulls(len(positions), pa.string()))  # not used
    commits = Commits.of(np.arange(len(positions)), own)
    return replace(commits, offsets=np.where(readable, commits.offsets, 0), is_readable=readable)


def _rows_of(codes: Index) -> Index:
    """Return the row of each code, and `NONE` as the last value, so that the code `NONE` (-1) looks up
    `NONE`."""
    return np.append(firsts(codes), NONE)
