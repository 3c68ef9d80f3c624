"""What lag and health are answered from, read from one snapshot: positions, commits, samples of log ends."""

from collections.abc import Collection, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import from_mask, to_mask
from streaming.common.times import MINUTE_MS
from streaming.lag.lag_time import with_lag
from streaming.lag.runs import COMMITS
from streaming.model.progress import PartitionProgress
from streaming.tables.log_ends import NEWEST_ENDS
from streaming.tables.progress_rows import HistoryGoneError
from streaming.tables.select import between, is_one_of, names, select
from streaming.tables.snapshot import Snapshot
from streaming.tables.tables import Tables

MAX_AGE_MS: Final = 5 * MINUTE_MS
"""Samples of log ends that are older say nothing of the lag."""

_MOST_NAMED: Final = 500  # topics in a query: of more, all are read


def topics_in(rows: pa.Table) -> list[str]:
    """Return the topics of rows, each once."""
    topics: list[str] = pc.unique(rows["topic"]).to_pylist()
    return topics


def offsets_with_lag(at: Snapshot, offsets: pa.Table, *, moment: int, max_age_ms: int) -> pa.Table:
    """Add the columns `LAG` to offsets (schema `OFFSETS`), as they were at a moment (ms)."""
    newest = at.newest_ends(topics_in(offsets), as_of=moment)
    crossed = at.crossings(offsets.select(["topic", "partition", "committed_offset"]), as_of=moment)
    return with_lag(offsets, newest, crossed, max_age_ms=max_age_ms, as_of=moment)


def with_currency(at: Snapshot, positions: pa.Table, *, moment: int, max_age_ms: int) -> pa.Table:
    """Append the column `is_current` to positions (with source_partition): false where newer commits may not
    have been read at a moment (ms), so that silence says nothing."""
    heartbeat = at.progress.heartbeat
    current = [
        number
        for number, partition in at.progress.partitions.items()
        if at.gap is None and _is_current(partition, heartbeat, moment, max_age_ms)
    ]
    found = pc.is_in(positions["source_partition"], value_set=pa.array(current, pa.int32()))
    return positions.append_column("is_current", found)


def _is_current(partition: PartitionProgress, heartbeat: int, moment: int, max_age_ms: int) -> bool:
    read_until = heartbeat if partition.stable.as_of is None else partition.stable.as_of
    is_held_back = partition.is_stalled(moment) or partition.unanswered_since is not None
    return partition.loaded and not is_held_back and moment - read_until <= max_age_ms


def ends_between(at: Snapshot, topics: Collection[str] | None, *, since: int, until: int) -> pa.Table:
    """Read the samples (schema `NEWEST_ENDS`) of topics (None: all) between two moments (ms), and the newest
    ones before. In no order."""
    wanted = None if topics is None or len(topics) > _MOST_NAMED else list(topics)
    if at.log_ends is None:
        return NEWEST_ENDS.empty_table()
    of_these = "true" if wanted is None else is_one_of("topic", wanted)
    rows = select(
        f"""
        SELECT {names(NEWEST_ENDS.names)} FROM log_ends
        WHERE "log_end" IS NOT NULL AND {between("sampled_at", since + 1, until)} AND {of_these}
        """,
        log_ends=at.log_ends,
    ).cast(NEWEST_ENDS)
    return pa.concat_tables([at.newest_ends(wanted, as_of=since), rows])


def base_commits(tables: Tables, groups: Sequence[str] | None, moment: int) -> pa.Table:
    """Read the positions of groups at a moment (ms) as commits (schema `COMMITS`); none if history starts
    later."""
    try:
        offsets = tables.ask(lambda at: at.offsets(groups), as_of=moment, bases=["offsets"])
    except HistoryGoneError:
        return COMMITS.empty_table()
    is_readable = pc.is_null(offsets["unreadable_since"])
    columns = [
        *(offsets[field.name] for field in list(COMMITS)[:3]),
        pc.if_else(is_readable, offsets["committed_offset"], pa.scalar(None, pa.int64())),
        offsets["commit_timestamp"],
        from_mask(np.zeros(len(offsets), np.bool_)),
    ]
    return pa.table(columns, COMMITS.names).cast(COMMITS)


def at_least(rows: pa.Table, column: str, least: float | None) -> pa.Table:
    """Return the rows whose value of a column is known and no less; without a least one all."""
    if least is None:
        return rows
    return rows.filter(from_mask(to_mask(pc.greater_equal(rows[column], least))))
