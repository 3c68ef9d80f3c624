"""The possible originators of rewinds, as text for the history."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.times import to_ms
from streaming.lag.rewinds import brief_words_of
from streaming.queries.bound.lag import SnapshotLagQueries


def with_by(queries: SnapshotLagQueries, rewinds: pa.Table) -> pa.Table:
    """Append the column `by` (string) to n rewinds (schema `HISTORY`, and more): who may have committed, in
    the words of `brief_words_of`; null: unknown."""
    if not len(rewinds):
        return rewinds.append_column("by", pa.nulls(0, pa.string()))
    times, groups = pc.min_max(rewinds["batch_time"]), pc.unique(rewinds["group"]).to_pylist()
    since, until = to_ms(times["min"].as_py()), to_ms(times["max"].as_py())
    found = queries.rewinds(groups, since=since, until=until).rows.to_pylist()
    by = {_key(row): brief_words_of(row["was_empty"], row["members"]) for row in found}
    return rewinds.append_column(
        "by", pa.array([by.get(_key(row)) for row in rewinds.to_pylist()], pa.string())
    )


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["group"], row["topic"], row["partition"], row["sequence"]
