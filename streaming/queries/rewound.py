"""Who can have set groups back, in words beside the steps of their history."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streaming.queries.lag import LagQueries

NOBODY_THERE = "while no member was there"
"""By a tool then, or by consumers that assign partitions themselves."""


def with_by(queries: LagQueries, rewinds: pa.Table) -> pa.Table:
    """Append the column `by` (string) to n steps back (schema `HISTORY`, and more): `NOBODY_THERE`, or the
    members of that moment as client id and host; null: not known."""
    if not len(rewinds):
        return rewinds.append_column("by", pa.nulls(0, pa.string()))
    times, groups = pc.min_max(rewinds["batch_time"]), pc.unique(rewinds["group"]).to_pylist()
    found = queries.rewinds(groups, since=times["min"].as_py(), until=times["max"].as_py()).rows.to_pylist()
    by = {_key(row): _said(row) for row in found}
    return rewinds.append_column(
        "by", pa.array([by.get(_key(row)) for row in rewinds.to_pylist()], pa.string())
    )


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["group"], row["topic"], row["partition"], row["sequence"]


def _said(row: dict[str, Any]) -> str | None:
    if row["was_empty"]:
        return NOBODY_THERE
    members = row["members"] or []
    return ", ".join(sorted(f"{one['client_id']}{one['client_host']}" for one in members)) or None
