"""Offsets partitions of which the job has read nothing yet are loading, in every answer alike."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from table_batches import append, group, offset

from streaming.common.times import DAY_MS, MINUTE_MS, from_ms, now_ms
from streaming.model.progress import PartitionProgress, Reached
from streaming.model.schemas import CHANGES
from streaming.queries.expiring import list_expiring
from streaming.queries.lag import LagQueries
from streaming.queries.offsets import OffsetQueries
from streaming.queries.removed import list_removed
from streaming.queries.sql import run_sql
from streaming.settings.model import ExpirySettings
from streaming.tables.tables import Tables

NOW = now_ms()
SINCE = from_ms(NOW - MINUTE_MS)
EXPIRY = ExpirySettings(retention_ms=7 * DAY_MS, check_interval_ms=60_000, read_every_ms=60_000)
ANSWERS: dict[str, Callable[[Tables], tuple[Any, Any]]] = {
    "offsets": lambda tables: _answer(OffsetQueries(tables).list_offsets()),
    "groups": lambda tables: _answer(OffsetQueries(tables).list_groups()),
    "lag": lambda tables: _answer(LagQueries(tables).list_lag()),
    "health": lambda tables: _answer(LagQueries(tables).health()),
    "sql": lambda tables: _answer(run_sql(tables, "SELECT * FROM lag")),
    "status over time": lambda tables: _answer(LagQueries(tables).health_changes(None, since=SINCE)),
    "lag over time": lambda tables: _answer(
        LagQueries(tables).lag_over_time(None, since=SINCE, every_ms=MINUTE_MS)
    ),
    "removed": lambda tables: (
        (found := list_removed(tables, now=NOW)).rows["group"].to_pylist(),
        found.about,
    ),
    "expiring": lambda tables: (
        (found := list_expiring(tables, settings=EXPIRY, now=NOW)).rows["group"].to_pylist(),
        found.about,
    ),
}


def _answer(answer: Any) -> tuple[Any, Any]:
    return answer.rows["group"].to_pylist(), answer.as_of


@pytest.mark.parametrize("name", ANSWERS)
def test_partitions_of_which_nothing_is_known_are_loading(tables: Tables, name: str) -> None:
    reached = Reached(as_of=NOW)
    whole = PartitionProgress(loaded=True, stable=reached, whole=reached)
    batch: Any = {}
    for number in range(3):
        batch[f"g{number}"] = group(source_partition=number, state="Empty", state_timestamp=NOW)
        batch[f"g{number}", "t", 0] = offset(source_partition=number)
        batch[f"g{number}", "gone", 0] = offset(source_partition=number)
    gone: Any = {key: value for key, value in batch.items() if "gone" in key}
    append(tables, batch, now=NOW - MINUTE_MS, partitions={0: whole, 2: whole})
    append(tables, dict.fromkeys(gone), live=gone, now=NOW)
    progress = replace(tables.progress(), partitions={0: whole, 2: whole})
    tables.append_changes(CHANGES.empty_table(), progress, is_batch=False)
    groups, about = ANSWERS[name](tables)
    assert list(dict.fromkeys(groups)) == ["g0", "g2"]
    assert about.loading == [1]
