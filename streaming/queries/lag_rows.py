"""What is read for questions about lag: the positions that commits are added to."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import from_mask, to_mask
from streaming.lag.runs import COMMITS
from streaming.tables.progress_rows import HistoryGoneError
from streaming.tables.tables import Tables


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


def far_behind(rows: pa.Table, *, min_lag: int | None, min_seconds: float | None) -> pa.Table:
    """Return the rows (with lag and lag_seconds) that are known to be so far behind; None: however far."""
    for column, least in ("lag", min_lag), ("lag_seconds", min_seconds):
        if least is not None:
            rows = rows.filter(from_mask(to_mask(pc.greater_equal(rows[column], least))))
    return rows
