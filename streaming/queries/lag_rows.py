"""What is read for questions about lag, on one snapshot; and the positions that commits are added to."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.assessment.assess import Facts, Terms, assess
from streaming.assessment.owners import with_assigned
from streaming.common.arrays import Index, from_mask, from_numbers, no_rows, to_mask, to_numbers
from streaming.common.keys import key_codes, numbered
from streaming.lag.health import group_health
from streaming.lag.pauses import Waits
from streaming.lag.positions import habits_by
from streaming.lag.rules import HealthRules
from streaming.lag.runs import COMMITS
from streaming.model.schemas import GROUPS, OFFSETS, TIMESTAMP
from streaming.queries.completeness import AsOf
from streaming.settings.model import HealthSettings
from streaming.tables.progress_rows import HistoryGoneError
from streaming.tables.snapshot import Snapshot

HEALTH: Final = Facts(lag=True, health=True)

_SAMPLES_AT_ONCE: Final = 1_000_000  # 200 MB


def view(
    name: str, at: Snapshot, about: AsOf, *, health: HealthSettings | None = None, is_empty: bool = False
) -> pa.Table:
    """Return what `LagQueries` answers about all groups under the name of a view: `lag`, which are offsets
    and assigned partitions without one, with all that is known of them, or `health`; with `is_empty` just its
    columns."""
    offsets, own = (no_rows(OFFSETS), no_rows(GROUPS)) if is_empty else positions(at, about, None)
    if name == "lag":
        return assess(at, offsets, Facts(lag=True, former_topic=True), moment=about.moment)
    terms = Terms(rules=HealthRules() if health is None else HealthRules.of(health))
    return group_health(assess(at, offsets, HEALTH, moment=about.moment, terms=terms, groups=own))


def positions(at: Snapshot, about: AsOf, groups: Sequence[str] | None) -> tuple[pa.Table, pa.Table]:
    """Read the committed offsets of groups (None: all) and the partitions that their members have without
    one, as far as has been read; return them, and the groups."""
    own = about.of_loaded(at.groups(groups))
    return with_assigned(about.of_loaded(at.offsets(groups)), own, at, about.moment), own


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


def base_commits(at: Snapshot, groups: Sequence[str] | None, moment: int) -> pa.Table:
    """Read the positions of groups at a moment (ms) as commits (schema `COMMITS`); none if history starts
    later."""
    try:
        offsets = at.as_of(moment).offsets(groups)
    except HistoryGoneError:
        return COMMITS.empty_table()
    is_readable = pc.is_null(offsets["unreadable_source_offset"])
    columns = [
        *(offsets[field.name] for field in list(COMMITS)[:3]),
        pc.if_else(is_readable, offsets["committed_offset"], pa.scalar(None, pa.int64())),
        offsets["commit_timestamp"],
        pa.nulls(len(offsets), TIMESTAMP),
        from_mask(np.zeros(len(offsets), np.bool_)),
    ]
    return pa.table(columns, COMMITS.names).cast(COMMITS)


def habits_in(
    at: Snapshot, rules: HealthRules, max_age_ms: int, *, until: int
) -> Callable[[pa.Table], Waits]:
    """Return how to ask a snapshot how long records usually wait, as of a moment (ms)."""
    habits = habits_by(rules, max_age_ms)
    return lambda positions: habits.read(at, positions, moment=until)


def numbered_rows(rows: pa.Table) -> pa.Table:
    """Append the numbers of n rows, from 0 on."""
    return rows.append_column("number", from_numbers(np.arange(len(rows))))


def far_behind(rows: pa.Table, *, min_lag: int | None, min_seconds: float | None) -> pa.Table:
    """Return the rows (with lag and lag_seconds) that are known to be so far behind; None: however far."""
    for column, least in ("lag", min_lag), ("lag_seconds", min_seconds):
        if least is not None:
            rows = rows.filter(from_mask(to_mask(pc.greater_equal(rows[column], least))))
    return rows
