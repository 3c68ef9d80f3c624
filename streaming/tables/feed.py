"""How the positions of a group moved: from `changes`, one step per micro-batch that moved them.

Maintenance drops what is older than the history that is kept, day by day, and notes the first whole day.
"""

from collections.abc import Sequence
from datetime import date
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from streaming.common.times import DAY_MS, day_of, start_of
from streaming.model.schemas import TIMESTAMP
from streaming.tables.formats import is_of_groups
from streaming.tables.select import select, written_after

HISTORY_TRANSACTION: Final = "offsetlake.history"
"""The application id under which `changes` notes the first day (days since 1970) that is whole."""

HISTORY: Final = pa.schema(
    [
        ("batch_time", TIMESTAMP),  # when the batch was written
        ("group", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("committed_offset", pa.int64()),  # null = removed, or never readable
        ("step", pa.int64()),  # from the position before; null = one of the two is not there
        ("event", pa.string()),  # first, commit, rewind or retired
        ("cause", pa.string()),  # why retired; null = not retired
        ("metadata", pa.string()),
        ("commit_timestamp", TIMESTAMP),
        ("sequence", pa.int64()),  # of the batch
    ]
)

_READ: Final = pa.schema(
    [
        *[field for field in HISTORY if field.name not in ("step", "event")],
        ("earlier", pa.int64()),
        ("is_first", pa.bool_()),
        ("is_removed", pa.bool_()),
    ]
)


def read_steps(
    changes: DeltaTable, groups: Sequence[str], *, up_to: int, since: int | None = None
) -> pa.Table:
    """Return the steps of the groups' positions (schema `HISTORY`), in order, up to a sequence.

    Those since a moment (ms), or all that are kept. Commits of one key that came within one batch are one
    step, that of the last of them.
    """
    rows = select(
        f"""
        SELECT "batch_time", "group", "topic", "partition", "after"['committed_offset'] AS "committed_offset",
            "cause", "after"['metadata'] AS "metadata", "after"['commit_timestamp'] AS "commit_timestamp",
            "sequence", "before"['committed_offset'] AS "earlier", "before" IS NULL AS "is_first",
            "op" = 'remove' AS "is_removed"
        FROM changes
        WHERE "kind" = 'offset' AND {is_of_groups(changes, groups)}
            AND "sequence" <= {up_to} AND {"true" if since is None else written_after(since - 1)}
        ORDER BY "sequence", "group", "topic", "partition"
        """,
        changes=changes,
    ).cast(_READ)
    rows = rows.filter(pc.invert(pc.and_(rows["is_first"], rows["is_removed"])))  # of what was not held
    step = pc.subtract(rows["committed_offset"], rows["earlier"])
    event = pc.case_when(
        pc.make_struct(rows["is_removed"], rows["is_first"], pc.fill_null(pc.less(step, 0), False)),
        "retired",
        "first",
        "rewind",
        "commit",
    )
    return rows.append_column("step", step).append_column("event", event).select(HISTORY.names).cast(HISTORY)


def history_start(changes: DeltaTable) -> date:
    """Return the first day of which all changes are still there (1970-01-01: none has ever been dropped)."""
    return noted_day(changes, HISTORY_TRANSACTION)


def noted_day(changes: DeltaTable, transaction: str) -> date:
    """Return the day that maintenance has noted under an application id; 1970-01-01 if none."""
    return day_of((changes.transaction_version(transaction) or 0) * DAY_MS)


def whole_since(changes: DeltaTable) -> int | None:
    """Return the moment (ms) before which changes have been dropped; None: the tables are younger."""
    start = start_of(history_start(changes))
    return start if (changes.metadata().created_time or 0) < start else None
