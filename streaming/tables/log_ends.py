"""STAND-IN until the branch `ends` is merged: its functions, slow and plain. To be dropped at the merge."""

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable

from streaming.common.times import to_ms
from streaming.model.schemas import LOG_ENDS, TIMESTAMP
from streaming.tables.select import select

NEWEST_ENDS: Final = pa.schema(
    [LOG_ENDS.field(n) for n in ("topic", "topic_id", "partition", "sampled_at", "log_start", "log_end")]
)
CROSSINGS: Final = pa.schema(
    [("below_at", TIMESTAMP), ("below_end", pa.int64()), ("above_at", TIMESTAMP), ("above_end", pa.int64())]
)
TOPICS_OVER_TIME: Final = pa.schema(
    [("topic", pa.string()), ("topic_id", pa.string()), ("first_at", TIMESTAMP), ("last_at", TIMESTAMP)]
)


def _rows(table: DeltaTable, as_of: int | None) -> list[dict[str, Any]]:
    rows = select('SELECT * FROM log_ends ORDER BY "sampled_at"', log_ends=table).to_pylist()
    return [row for row in rows if as_of is None or to_ms(row["sampled_at"]) <= as_of]


def newest_ends(table: DeltaTable, topics: Sequence[str] | None, *, as_of: int | None) -> pa.Table:
    """Return the newest samples."""
    found: dict[Any, dict[str, Any]] = {}
    for row in _rows(table, as_of):
        if row["log_end"] is not None and (topics is None or row["topic"] in topics):
            found[row["topic"], row["partition"]] = row
    return (
        pa.Table.from_pylist(list(found.values()), NEWEST_ENDS)
        if found
        else pa.Table.from_batches([], NEWEST_ENDS)
    )


def crossings(table: DeltaTable, positions: pa.Table, *, as_of: int | None) -> pa.Table:
    """Return between which samples positions were passed."""
    rows = [row for row in _rows(table, as_of) if row["log_end"] is not None]
    newest = {(row["topic"], row["partition"]): row["topic_id"] for row in rows}
    found: list[Any] = []
    for position in positions.to_pylist() if rows else []:
        key = (position["topic"], position["partition"])
        own = [row for row in rows if (row["topic"], row["partition"]) == key]
        own = [row for row in own if row["topic_id"] == newest[key]]
        committed = position["committed_offset"]
        below = [row for row in own if committed is not None and row["log_end"] <= committed]
        above = [row for row in own if committed is not None and row["log_end"] > committed]
        above = [row for row in above if not below or row["sampled_at"] > below[-1]["sampled_at"]]
        found.append(
            {
                "below_at": below[-1]["sampled_at"] if below else None,
                "below_end": below[-1]["log_end"] if below else None,
                "above_at": above[0]["sampled_at"] if above else None,
                "above_end": above[0]["log_end"] if above else None,
            }
        )
    if not rows:
        return pa.table([pa.nulls(len(positions), field.type) for field in CROSSINGS], schema=CROSSINGS)
    return pa.Table.from_pylist(found, CROSSINGS)


def topics_over_time(table: DeltaTable, topics: Sequence[str] | None) -> pa.Table:
    """Return when topics of a name were seen."""
    found: dict[Any, dict[str, Any]] = {}
    for row in _rows(table, None):
        if row["topic_id"] is not None and (topics is None or row["topic"] in topics):
            one = {"topic": row["topic"], "topic_id": row["topic_id"], "first_at": row["sampled_at"]}
            found.setdefault((row["topic"], row["topic_id"]), one)["last_at"] = row["sampled_at"]
    return pa.Table.from_pylist(list(found.values()), TOPICS_OVER_TIME)
