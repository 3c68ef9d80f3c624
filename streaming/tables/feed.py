"""What `changes` tells as a feed: the steps of positions, the offsets that were removed, all rows in order.

Maintenance drops what is older than the history that is kept, day by day, and notes the first whole day.
"""

from collections.abc import Sequence
from datetime import date
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from streaming.common.keys import KEY_NAMES
from streaming.common.times import DAY_MS, day_of, start_of
from streaming.model.schemas import CHANGES, KEY, OFFSETS, TIMESTAMP
from streaming.tables.formats import is_of_groups
from streaming.tables.select import is_one_of, names, select, written_after

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

DROPS: Final = pa.schema(
    [
        *KEY,
        OFFSETS.field("committed_offset"),  # the last one; null = never readable
        *(CHANGES.field(name) for name in ("source_partition", "source_offset", "source_timestamp")),
        CHANGES.field("sequence"),
    ]
)
"""What is read of removed offsets, with the place of the tombstone."""

REMOVALS: Final = pa.schema(
    [
        *KEY,
        pa.field("removed_offset", pa.int64()),  # the last before it went; null = it was never readable
        pa.field("removed_at", TIMESTAMP),  # of the record that removed it
        CHANGES.field("cause"),  # one of `causes.CAUSES`
        CHANGES.field("sequence"),  # of the batch: which of two removals came later, whatever the clocks say
    ]
)
"""What is read of removed offsets for people."""

_STEPS_READ: Final = pa.schema(
    [
        *[field for field in HISTORY if field.name not in ("step", "event")],
        ("earlier", pa.int64()),
        ("is_first", pa.bool_()),
        ("is_removed", pa.bool_()),
    ]
)


# --- the steps of positions ------------------------------------------------------------------------------


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
    ).cast(_STEPS_READ)
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


# --- the offsets that were removed -----------------------------------------------------------------------


def drops_between(changes: DeltaTable, cause: str, *, after: int, up_to: int) -> pa.Table:
    """Read the offsets (schema `DROPS`) that were removed for a cause in a range of sequences, the last
    first."""
    keys = names(KEY_NAMES)
    rows = select(
        f"""
        SELECT {keys}, "before"['committed_offset'] AS "committed_offset",
            "source_partition", "source_offset", "source_timestamp", "sequence"
        FROM changes
        WHERE "sequence" > {after} AND "sequence" <= {up_to} AND "kind" = 'offset' AND "op" = 'remove'
            AND {is_one_of("cause", [cause])}
        ORDER BY "sequence" DESC, {keys}
        """,
        changes=changes,
    )
    return rows.cast(DROPS)


def removals_of(changes: DeltaTable, groups: Sequence[str] | None, *, up_to: int) -> pa.Table:
    """Read the offsets (schema `REMOVALS`) that were removed up to a sequence.

    Those of all groups or of the named ones, in no order. Left out are tombstones of offsets that were not
    held: what they removed is not known.
    """
    conditions = [
        f""""sequence" <= {up_to} AND "kind" = 'offset' AND "op" = 'remove' AND "before" IS NOT NULL""",
        "true" if groups is None else is_of_groups(changes, groups),
    ]
    rows = select(
        f"""
        SELECT {names(KEY_NAMES)}, "before"['committed_offset'] AS "removed_offset",
            "source_timestamp" AS "removed_at", "cause", "sequence"
        FROM changes WHERE {" AND ".join(conditions)}
        """,
        changes=changes,
    )
    return rows.cast(REMOVALS)


# --- all rows --------------------------------------------------------------------------------------------


def rows_in_order(table: DeltaTable, schema: pa.Schema, condition: str = "true") -> pa.Table:
    """Read the rows of `changes` or `quarantine` that fulfil a condition: batch by batch, in their order.

    Columns of the schema that a table of an older format lacks are null.
    """
    held = [field.name for field in table.schema().fields if field.name in schema.names]
    rows = select(
        f"""
        SELECT {names(held)} FROM log WHERE {condition}
        ORDER BY "sequence", "source_partition", "source_offset"
        """,
        log=table,
    )
    columns = [
        rows[field.name] if field.name in held else pa.nulls(len(rows), field.type) for field in schema
    ]
    return pa.table(columns, schema.names).cast(schema)


# --- since when changes are whole ------------------------------------------------------------------------


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
