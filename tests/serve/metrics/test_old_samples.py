"""Samples of log ends that are too old export no lag, and lag over an outage of sampling is marked."""

from dataclasses import replace
from typing import Any

import pytest
from log_end_rows import Sample, rows_of
from metrics_read import Maker, Read, by
from table_batches import append, group, heartbeat, offset

from streaming.common.times import MINUTE_MS, now_ms
from streaming.lag.health_rules import STATUSES, UNKNOWN
from streaming.lag.samples import MAX_SAMPLE_AGE_MS
from streaming.model.progress import PartitionProgress, Reached
from streaming.queries.lag import LagQueries
from streaming.queries.sql import run_sql
from streaming.tables.tables import Tables

NOW = now_ms()
GROUP = "offsetlake_group"
LEVELS = ("group", "group_topic", "group_topic_partition")


@pytest.fixture(autouse=True)
def _now() -> None:
    """Let the tests begin now, however long ago this module was imported."""
    global NOW
    NOW = now_ms()


def commit(tables: Tables, at: int, offsets: dict[tuple[str, str, int], int]) -> None:
    values = {"commit_timestamp": at, "source_timestamp": at, "source_partition": 0}
    batch: Any = {key: offset(committed_offset=committed, **values) for key, committed in offsets.items()}
    append(tables, batch, now=at)


def sample(tables: Tables, ends: dict[int, int], *partitions: int) -> None:
    """Sample logs of the topic `t` at some moments (ms)."""
    samples = [
        Sample(at, "t", partition, end, None) for at, end in ends.items() for partition in partitions or (0,)
    ]
    tables.append_log_ends(rows_of(samples))


def live(tables: Tables, at: int) -> None:
    """Let the job say that it has read everything up to a moment (ms)."""
    reached = Reached(as_of=at)
    heartbeat(tables, at, partitions={0: PartitionProgress(loaded=True, stable=reached, whole=reached)})


def lags(told: Read) -> dict[str, list[float]]:
    """The series of lag of groups, by their names."""
    return {
        name: list(series.values())
        for name, series in told.items()
        if name.startswith(f"{GROUP}_") and "_lag" in name
    }


@pytest.fixture
def sampled(tables: Tables) -> Tables:
    """Groups `even`, at the end, and `behind`; their partitions were sampled 4 and 1 minutes ago."""
    keys = {(name, "t", number): at for name, at in (("even", 100), ("behind", 90)) for number in (0, 1)}
    commit(tables, NOW - 20 * MINUTE_MS, keys)
    sample(tables, {NOW - minutes * MINUTE_MS: end for minutes, end in ((12, 80), (8, 95), (4, 100))}, 0, 1)
    sample(tables, {NOW - MINUTE_MS: 100}, 1)
    live(tables, NOW)
    return tables


@pytest.mark.parametrize("is_renewed", [True, False], ids=["renewed", "not renewed"])
def test_no_lag_is_reported_of_samples_that_are_too_old_by_now(sampled: Tables, is_renewed: bool) -> None:
    maker = Maker(sampled, NOW, granularity="partition")
    before = maker.source()
    assert by(maker.read(source=before)[f"{GROUP}_lag"], "group") == {"even": 0, "behind": 20}

    def later(age_ms: int) -> Read:
        """What is told once the older samples have an age."""
        maker.now = NOW - 4 * MINUTE_MS + age_ms
        live(sampled, maker.now)
        now = maker.source()
        return maker.read(source=now if is_renewed else replace(now, assessment=before.assessment))

    told = later(MAX_SAMPLE_AGE_MS)
    assert by(told[f"{GROUP}_topic_partition_lag"], "group", "partition") == {
        ("even", "0"): 0,
        ("even", "1"): 0,
        ("behind", "0"): 10,
        ("behind", "1"): 10,
    }
    assert f"{GROUP}_lag_at_least" not in told
    told = later(MAX_SAMPLE_AGE_MS + 1)
    for name in ("lag", "lag_seconds"):
        series = by(told[f"{GROUP}_topic_partition_{name}"], "group", "partition")
        assert set(series) == {("even", "1"), ("behind", "1")}
    assert by(told[f"{GROUP}_lag"], "group") == {"even": 0, "behind": 10}
    assert by(told[f"{GROUP}_lag_max"], "group") == {"even": 0, "behind": 10}
    for level in LEVELS[:2]:  # the lag of the other partition may be anything
        assert by(told[f"offsetlake_{level}_lag_at_least"], "group") == {"even": 1, "behind": 1}
    assert f"{GROUP}_topic_partition_lag_at_least" not in told
    assert by(told[f"{GROUP}_status"], "group") == {"even": UNKNOWN, "behind": UNKNOWN}
    told = later(MAX_SAMPLE_AGE_MS + 3 * MINUTE_MS + 1)
    assert lags(told) == {}
    assert by(told[f"{GROUP}_topic_partition_committed_offset"], "group", "partition")["even", "0"] == 100
    assert set(told[f"{GROUP}_status"].values()) == {STATUSES.index("UNKNOWN")}


@pytest.mark.parametrize("is_renewed", [True, False], ids=["renewed", "not renewed"])
def test_a_partition_without_a_commit_has_no_status_of_samples_that_are_too_old_by_now(
    sampled: Tables, is_renewed: bool
) -> None:
    assigned = [{"topic": "t", "topic_id": None, "partitions": [0]}]
    member = {"member_id": "m", "client_id": "c", "client_host": "/h", "assignment": assigned}
    since = NOW - 20 * MINUTE_MS
    append(sampled, {"idle": group(source_partition=0, members=[member], source_timestamp=since)}, now=NOW)
    live(sampled, NOW)
    maker = Maker(sampled, NOW)
    before = maker.source()
    for age_ms, status in ((MAX_SAMPLE_AGE_MS, "WARNING"), (MAX_SAMPLE_AGE_MS + 1, "UNKNOWN")):
        maker.now = NOW - 4 * MINUTE_MS + age_ms
        live(sampled, maker.now)
        now = maker.source()
        told = maker.read(source=now if is_renewed else replace(now, assessment=before.assessment))
        assert by(told[f"{GROUP}_status"], "group")["idle"] == STATUSES.index(status), age_ms


@pytest.mark.parametrize("gap_ms", [MAX_SAMPLE_AGE_MS, MAX_SAMPLE_AGE_MS + 1], ids=["no outage", "outage"])
def test_lag_time_over_an_outage_of_sampling_is_marked_in_every_view(tables: Tables, gap_ms: int) -> None:
    is_outage = gap_ms > MAX_SAMPLE_AGE_MS
    commit(tables, NOW - 30 * MINUTE_MS, {("g", "t", 0): 90})
    since = NOW - 10 * MINUTE_MS  # the end goes past the offset in the gap before
    sample(tables, {since - gap_ms: 50, since: 100, since + MAX_SAMPLE_AGE_MS: 110, NOW - 1: 120})
    live(tables, NOW)
    told = Maker(tables, NOW, granularity="partition").read()
    for level in LEVELS:
        [seconds] = told[f"offsetlake_{level}_lag_seconds"].values()
        assert (seconds == 599.999) is is_outage  # that it has waited in the gap is told without an outage
        assert (f"offsetlake_{level}_lag_at_least" in told) is is_outage, level
    queries = LagQueries(tables)
    answered = {
        "offsets": queries.list_offsets().rows,
        "lag": queries.list_lag().rows,
        "health": queries.health().rows,
        "sql": run_sql(tables, "SELECT * FROM lag").rows,
    }
    for name, rows in answered.items():
        assert rows["lag_is_at_least"].to_pylist() == [is_outage], name
