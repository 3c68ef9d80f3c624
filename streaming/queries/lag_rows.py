"""What is read for questions about lag, on one snapshot; and the positions that commits are added to."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import Index, from_mask, from_numbers, no_rows, to_mask, to_numbers
from streaming.common.keys import KEY_NAMES, key_codes, numbered
from streaming.common.timestamps import to_timestamps
from streaming.lag.former_topic import with_former_topic
from streaming.lag.health import group_health
from streaming.lag.pauses import Waits
from streaming.lag.positions import (
    MAX_AGE_MS,
    habits_by,
    offsets_with_lag,
    topics_in,
    with_currency,
    with_health,
    written_since,
)
from streaming.lag.rules import HealthRules
from streaming.lag.runs import COMMITS
from streaming.lag.samples import NONE
from streaming.model.schemas import OFFSETS
from streaming.queries.completeness import AsOf
from streaming.settings.model import HealthSettings
from streaming.tables.progress_rows import HistoryGoneError
from streaming.tables.snapshot import Snapshot
from streaming.tables.tables import Tables

_SAMPLES_AT_ONCE: Final = 1_000_000  # 200 MB


def with_former(at: Snapshot, offsets: pa.Table, *, moment: int) -> pa.Table:
    """Append to offsets, as they were at a moment (ms), whether they are `of_former_topic`."""
    return with_former_topic(offsets, at.topics_over_time(topics_in(offsets), as_of=moment))


def offsets_with_health(
    at: Snapshot, offsets: pa.Table, *, moment: int, max_age_ms: int, rules: HealthRules
) -> pa.Table:
    """Add the columns `LAG` and `PARTITION_HEALTH` to offsets, as they were at a moment (ms); in no order."""
    rows = offsets_with_lag(at, offsets, moment=moment, max_age_ms=max_age_ms)
    rows = with_currency(rows, at.progress, is_observed=at.gap is None, moment=moment, max_age_ms=max_age_ms)
    return with_health(at, rows, moment=moment, max_age_ms=max_age_ms, rules=rules)


def view(
    name: str, at: Snapshot, about: AsOf, *, health: HealthSettings | None = None, is_empty: bool = False
) -> pa.Table:
    """Return what `LagQueries` answers about all groups under the name of a view: `lag`, which are offsets
    with all that is known of them, or `health`; with `is_empty` just its columns."""
    offsets = no_rows(OFFSETS) if is_empty else about.of_loaded(at.offsets())
    moment = about.moment
    if name == "lag":
        rows = offsets_with_lag(at, offsets, moment=moment, max_age_ms=MAX_AGE_MS)
        return with_former(at, rows, moment=moment)
    rules = HealthRules() if health is None else HealthRules.of(health)
    return group_health(offsets_with_health(at, offsets, moment=moment, max_age_ms=MAX_AGE_MS, rules=rules))


def parts_by_topic(rows: pa.Table, *, minutes: int) -> tuple[list[Index], int]:
    """Divide n rows (with topic and partition; n > 0) into parts, whose samples over so many minutes need
    not be in memory at once: numbers of rows, those of a topic in one part, topics that are neighbours
    together. Return them, and about how many samples there are in all."""
    codes, topics = numbered(rows["topic"])
    _, firsts = np.unique(key_codes([rows["topic"], rows["partition"]]), return_index=True)
    samples = np.bincount(codes[firsts], minlength=len(topics)) * minutes
    order = to_numbers(pc.sort_indices(topics).cast(pa.int64()))
    part = np.empty(len(topics), np.int64)
    part[order] = np.cumsum(samples[order]) // _SAMPLES_AT_ONCE
    of_row = part[codes]
    return [np.flatnonzero(of_row == number) for number in np.unique(of_row)], int(samples.sum())


def base_commits(tables: Tables, groups: Sequence[str] | None, moment: int, *, within_ms: int) -> pa.Table:
    """Read the positions of groups at a moment (ms) as commits (schema `COMMITS`); none if history starts
    later. When they were written is known of the time just before (ms)."""

    def question(at: Snapshot) -> tuple[pa.Table, Index]:
        offsets = at.offsets(groups)
        return offsets, written_since(at, offsets.select(KEY_NAMES), moment - within_ms)

    try:
        offsets, written_at = tables.ask(question, as_of=moment, bases=["offsets"])
    except HistoryGoneError:
        return COMMITS.empty_table()
    is_readable = pc.is_null(offsets["unreadable_source_offset"])
    columns = [
        *(offsets[field.name] for field in list(COMMITS)[:3]),
        pc.if_else(is_readable, offsets["committed_offset"], pa.scalar(None, pa.int64())),
        offsets["commit_timestamp"],
        to_timestamps(from_numbers(written_at, written_at != NONE)),
        from_mask(np.zeros(len(offsets), np.bool_)),
    ]
    return pa.table(columns, COMMITS.names).cast(COMMITS)


def habits_in(
    tables: Tables, rules: HealthRules, max_age_ms: int, *, until: int
) -> Callable[[pa.Table], Waits]:
    """Return how to ask the tables for how long records usually wait, as of a moment (ms)."""
    habits = habits_by(rules, max_age_ms)
    return lambda positions: tables.ask(lambda at: habits.read(at, positions, moment=until), bases=[])


def numbered_rows(rows: pa.Table) -> pa.Table:
    """Append the numbers of n rows, from 0 on."""
    return rows.append_column("number", from_numbers(np.arange(len(rows))))


def far_behind(rows: pa.Table, *, min_lag: int | None, min_seconds: float | None) -> pa.Table:
    """Return the rows (with lag and lag_seconds) that are known to be so far behind; None: however far."""
    for column, least in ("lag", min_lag), ("lag_seconds", min_seconds):
        if least is not None:
            rows = rows.filter(from_mask(to_mask(pc.greater_equal(rows[column], least))))
    return rows
