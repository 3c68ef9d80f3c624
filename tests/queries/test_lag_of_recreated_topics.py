"""Lag and health of offsets around the moment at which their topic is recreated: as of each moment, and over
time."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from log_end_rows import Sample, of_topic, rows_of
from new_tables import new_tables
from table_batches import Batch, append, heartbeat, offset

from streaming.common.times import MINUTE_MS, from_ms
from streaming.model.progress import PartitionProgress
from streaming.queries.lag import LagQueries

T0 = 1_700_000_000_000 // MINUTE_MS * MINUTE_MS
M, S = MINUTE_MS, 1_000
RECREATED, LAST = 6, 13
"""The minutes of the last sample of the former topic, and of the last of all."""


def at(minutes: float) -> datetime:
    return from_ms(T0 + int(minutes * M))


def end_at(minute: float) -> int:
    return 10_000 + int(60 * minute) if minute <= RECREATED else int(60 * (minute - RECREATED))


def tables_of(
    root: Path, first_at: float, *, since: int = -7, sampled_since: int = -7, have_ids: bool = True
) -> LagQueries:
    """A record a second, in a topic that is recreated after six minutes and sampled every minute. `goes`
    commits every minute, 10 s behind, and to the present topic from the minute `first_at` on; `stays` commits
    to the former one alone."""
    tables, topic_ids = new_tables(root), ("former", "present")
    samples = [
        Sample(T0 + minute * M, "t", 0, end_at(minute), topic_ids[minute > RECREATED])
        for minute in range(sampled_since, LAST + 1)
    ]
    of_topics = [of_topic(one.at, "t", str(one.topic_id)) for one in (samples[0], samples[-LAST + RECREATED])]
    tables.append_log_ends(rows_of([*of_topics, *samples]))
    live: Batch = {}
    for place, minute in enumerate(
        [*range(since, RECREATED), *(first_at + n for n in range(LAST - RECREATED))]
    ):
        now, is_present = T0 + int(minute * M), minute > RECREATED
        row = offset(
            committed_offset=max(0, end_at(minute) - 10),
            topic_id=topic_ids[is_present] if have_ids else None,
            commit_timestamp=now,
            source_timestamp=now,
            source_offset=place,
        )
        batch: Batch = {(name, "t", 0): row for name in ("goes", "stays")[: 1 if is_present else 2]}
        done = PartitionProgress(position=place, loaded=True)
        append(tables, batch, live=live, now=now, partitions={3: done})
        live |= batch
    heartbeat(tables, T0 + LAST * M)
    return LagQueries(tables)


@pytest.fixture(scope="module")
def queries(tmp_path_factory: pytest.TempPathFactory) -> LagQueries:
    return tables_of(tmp_path_factory.mktemp("tables"), RECREATED + 1.2)


def by_group(rows: Any, name: str = "lag") -> Mapping[str, Any]:
    return {row["group"]: row[name] for row in rows.to_pylist()}


def test_the_offset_of_the_former_topic_is_not_held_against_the_present_end(queries: LagQueries) -> None:
    for minute in 7.1, 7.3, 7.9:  # before and after the commit that follows the sample
        rows = queries.list_offsets(as_of=at(minute)).rows
        assert by_group(rows) == {"goes": None, "stays": None}
        assert by_group(rows, "offset_as_of_ends") == {"goes": None, "stays": None}
        assert by_group(rows, "log_end_offset") == {"goes": 60 if minute > 7.2 else None, "stays": None}
    rows = queries.list_offsets(as_of=at(8.1)).rows
    assert by_group(rows) == {"goes": end_at(8) - end_at(7.2) + 10, "stays": None}
    [row] = queries.list_lag(["goes"], as_of=at(8.1)).rows.to_pylist()
    assert (row["since"], row["since_is_at_least"]) == (at(8), True)


def test_health_over_time_does_not_know_the_end_of_the_former_topic(queries: LagQueries) -> None:
    changes = queries.health_changes(None, since=at(0), until=at(LAST)).rows.to_pylist()
    for name, later in ("goes", ["OK"]), ("stays", []):
        own = [row for row in changes if row["group"] == name]
        assert [row["status"] for row in own] == ["OK", "UNKNOWN", *later]
        assert own[1]["reason"] == "log end unknown"
    for minute in 0, 6, 7, 8, LAST:
        held = {row["group"]: row["status"] for row in changes if row["at"] <= at(minute)}
        assert held == by_group(queries.health(as_of=at(minute)).rows, "status")


def test_the_lag_time_before_the_recreation_is_known(queries: LagQueries) -> None:
    steps = queries.list_history(["goes"], since=at(0), until=at(5)).rows
    series = queries.lag_over_time(["goes"], since=at(0), until=at(LAST), every_ms=M).rows
    for times in steps["lag_seconds"], series.filter(pc.less_equal(series["at"], at(5)))["lag_seconds"]:
        assert times.to_pylist() == pytest.approx([9] * 6)
    assert steps["lag_is_at_least"].to_pylist() == [False] * 6


@pytest.mark.parametrize("have_ids", [True, False])
def test_a_first_commit_before_the_first_sample_is_no_rewind(tmp_path: Path, have_ids: bool) -> None:
    queries = tables_of(tmp_path, RECREATED + 0.2, since=4, sampled_since=RECREATED, have_ids=have_ids)
    found = [by_group(queries.health(["goes"], as_of=at(n)).rows, "status")["goes"] for n in (7.9, 8.5, 12.5)]
    assert found == ["UNKNOWN", "UNKNOWN", "OK"]
    changes = queries.health_changes(["goes"], since=at(6.5), until=at(12)).rows
    assert changes["status"].to_pylist() == ["UNKNOWN", "OK"]
