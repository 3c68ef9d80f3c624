"""Lag and health of offsets with topic ids, around the moment at which their topic is recreated: as of each
moment, and along the way."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from log_end_rows import Sample, of_topic, rows_of
from new_tables import new_tables
from table_batches import Batch, append, heartbeat, offset

from streaming.common.times import MINUTE_MS, from_ms
from streaming.model.progress import PartitionProgress
from streaming.queries.lag import LagQueries

T0 = 1_700_000_000_000 // MINUTE_MS * MINUTE_MS
M, S = MINUTE_MS, 1_000
FORMER, PRESENT = "former", "present"
RECREATED = 6
"""The minute of the last sample of the former topic."""


def at(minutes: float) -> datetime:
    return from_ms(T0 + int(minutes * M))


def tables_of(root: Path, first_at: float, *, first_sample: int = RECREATED + 1) -> LagQueries:
    """A record a second, in a topic that is recreated after six minutes. `goes` commits every minute, 10 s
    behind, and to the present topic from the minute `first_at` on; `stays` commits to the former one alone.
    Minute `first_sample` is the first with a sample of the present topic."""
    tables = new_tables(root)
    sampled = [*range(-15, RECREATED + 1), *range(first_sample, 16)]
    topics = {minute: FORMER if minute <= RECREATED else PRESENT for minute in sampled}
    ids = [of_topic(T0 + minute * M, "t", topics[minute]) for minute in (-15, RECREATED, first_sample)]
    ends = [Sample(T0 + n * M, "t", 0, end_at(n), topic_id) for n, topic_id in topics.items()]
    tables.append_log_ends(rows_of([*ids, *ends]))
    minutes = [
        *range(-15, RECREATED + 1),
        *(first_at + number for number in range(16) if first_at + number < 16),
    ]
    live: Batch = {}
    for place, minute in enumerate(minutes):
        now, is_former = T0 + int(minute * M), minute <= RECREATED
        times = {"commit_timestamp": now, "source_timestamp": now, "source_offset": place}
        committed = max(0, end_at(minute) - 10)
        row = offset(committed_offset=committed, topic_id=FORMER if is_former else PRESENT, **times)
        batch: Batch = dict.fromkeys([("goes", "t", 0), *([("stays", "t", 0)] * is_former)], row)
        done = PartitionProgress(position=place, loaded=True)
        append(tables, batch, live=live, now=now, partitions={3: done})
        live |= batch
    heartbeat(tables, T0 + 16 * M)
    return LagQueries(tables)


def end_at(minute: float) -> int:
    return 10_000 + int(60 * minute) if minute <= RECREATED else int(60 * (minute - RECREATED))


def lags(rows: Any, name: str = "lag") -> Mapping[str, Any]:
    return {row["group"]: row[name] for row in rows.to_pylist()}


def test_the_offset_of_the_former_topic_is_not_held_against_the_present_end(tmp_path: Path) -> None:
    queries = tables_of(tmp_path, RECREATED + 1.2)
    for minute in 7.1, 7.3, 7.9:  # before and after the commit that follows the sample
        rows = queries.list_offsets(as_of=at(minute)).rows
        assert lags(rows) == {"goes": None, "stays": None}
        assert lags(rows, "offset_as_of_ends") == {"goes": None, "stays": None}
        assert lags(rows, "log_end_offset") == {"goes": 60 if minute > 7.2 else None, "stays": None}
    assert lags(queries.list_offsets(as_of=at(8.1)).rows) == {
        "goes": end_at(8) - end_at(7.2) + 10,
        "stays": None,
    }


def test_health_over_time_does_not_know_the_end_of_the_former_topic(tmp_path: Path) -> None:
    queries = tables_of(tmp_path, RECREATED + 1.2)
    changes = queries.health_changes(None, since=at(0), until=at(15)).rows
    for name, recovered in ("goes", ["OK"]), ("stays", []):
        own = [row for row in changes.to_pylist() if row["group"] == name]
        assert [row["status"] for row in own] == ["OK", "UNKNOWN", *recovered]
        assert own[1]["reason"] == "log end unknown"
    for minute in range(16):
        held = {row["group"]: row["status"] for row in changes.to_pylist() if row["at"] <= at(minute)}
        assert held == lags(queries.health(as_of=at(minute)).rows, "status")
