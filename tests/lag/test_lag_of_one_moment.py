"""The lag that is shown of groups that stay behind, against the true one: whatever the phase of samples,
batches and commits."""

import random
from datetime import datetime
from pathlib import Path

import pytest
from log_end_rows import Sample, rows_of
from new_tables import new_tables
from table_batches import Batch, append, heartbeat, offset

from streaming.common.times import HOUR_MS, MINUTE_MS, from_ms, to_ms
from streaming.model.progress import PartitionProgress
from streaming.queries.lag import LagQueries

T0 = 1_700_000_000_000 // MINUTE_MS * MINUTE_MS
S, RATE = 1_000, 20  # records a second
BEHIND = {"2s": 2 * S, "10s": 10 * S, "30s": 30 * S, "90s": 90 * S, "hours": 3 * HOUR_MS}
TRIGGER, UNTIL = 5 * S, 150 * S


def steady(moment: int) -> int:
    return RATE * (moment - T0 + 4 * HOUR_MS) // S


def bursts(moment: int) -> int:
    """All records of 20 s come at once."""
    return steady(moment // (20 * S) * (20 * S))


@pytest.mark.parametrize(
    ("every", "end_at"),
    [
        (10 * S, steady),
        pytest.param(60 * S, steady, marks=pytest.mark.more),
        pytest.param(10 * S, bursts, marks=pytest.mark.more),
    ],
)
def test_the_lag_is_that_of_the_moment_that_is_stated(tmp_path: Path, every: int, end_at: object) -> None:
    """Within what comes between a commit and its batch; never less, and so never 0 for who is behind."""
    assert callable(end_at)
    chance = random.Random(every)
    tables = new_tables(tmp_path)
    live: Batch = {}
    phase = chance.randrange(every)
    samples = [T0 + at for at in range(-every - phase, UNTIL, every)]
    for number, written_at in enumerate(range(T0 - every, T0 + UNTIL, TRIGGER)):
        batch: Batch = {}
        for name, behind in BEHIND.items():
            committed_at = written_at - chance.randrange(TRIGGER)
            times = {"commit_timestamp": committed_at, "source_timestamp": committed_at}
            held = end_at(committed_at - behind)
            batch[name, "t", 0] = offset(committed_offset=held, source_offset=10 * number, **times)
        done = {3: PartitionProgress(position=10 * number + 9, loaded=True)}
        append(tables, batch, live=live, now=written_at, partitions=done)
        live |= batch
    heartbeat(tables, T0 + UNTIL)
    tables.append_log_ends(rows_of([Sample(at, "t", 0, end_at(at)) for at in samples]))
    queries = LagQueries(tables)
    most = RATE * (2 * TRIGGER + (20 * S if end_at is bursts else 0)) // S

    def check(row: dict[str, object], moment: datetime) -> None:
        stated, name = row["ends_as_of"], str(row["group"])
        assert isinstance(stated, datetime)
        assert 0 <= to_ms(moment) - to_ms(stated) < every
        lag, true = row["lag"], end_at(to_ms(stated)) - end_at(to_ms(stated) - BEHIND[name])
        assert isinstance(lag, int)
        assert row["log_end_offset"] == lag + row["offset_as_of_ends"]  # type: ignore[operator]
        assert true <= lag <= true + most
        assert lag > 0 or end_at is bursts

    for moment in (from_ms(T0 + at) for at in chance.sample(range(UNTIL), 5)):
        for row in queries.list_offsets(as_of=moment).rows.to_pylist():
            check(row, moment)
    series = queries.lag_over_time(None, since=from_ms(T0), until=from_ms(T0 + UNTIL - 1), every_ms=7 * S)
    for row in series.rows.to_pylist():
        check(row, row["at"])
    assert end_at is bursts or len({row["lag"] for row in series.rows.to_pylist()}) > len(BEHIND)
    known = []
    for row in queries.list_history(since=from_ms(T0 + TRIGGER)).rows.to_pylist():
        at, held = to_ms(row["batch_time"]), row["committed_offset"]
        known.append(row["lag"] is not None)
        if known[-1]:
            assert (row["ends_as_of"], row["offset_as_of_ends"]) == (row["batch_time"], held)
            assert row["log_end_offset"] == held + row["lag"]
            apart = 1 if end_at is steady else RATE * (20 + every // S)
            assert abs(row["lag"] - (end_at(at) - held)) <= apart
            behind = (row["lag_seconds"] or 0) * S - BEHIND[str(row["group"])]
            assert end_at is bursts or row["lag_is_at_least"] or -S <= behind <= 2 * TRIGGER
    assert known.count(False) <= 2 * len(BEHIND)  # after the last sample
    assert len(known) > 100
