"""Lag and health, asked of real tables: as they are now, as they were, and along the way."""

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from log_end_rows import Sample, gone, of_topic, rows_of
from new_tables import new_tables
from sampled_logs import Log, sample, timed
from table_batches import Batch, append, group, heartbeat, offset

from streaming.common.times import DAY_MS, MINUTE_MS, day_of, from_ms, now_ms, to_ms
from streaming.common.topics import TopicPartitions
from streaming.lag.health import GROUP_HEALTH
from streaming.lag.log_ranges import LAG
from streaming.lag.restoring import LOG_UNKNOWN, RECREATED, START_PASSED
from streaming.lag.samples import MAX_SAMPLE_AGE_MS
from streaming.model.errors import MisuseError
from streaming.model.progress import PartitionProgress
from streaming.model.schemas import LOG_ENDS, OFFSETS
from streaming.queries import lag_rows
from streaming.queries.bound import lag
from streaming.queries.lag import LagQueries
from streaming.tables.feed import HISTORY
from streaming.tables.snapshot import Snapshot
from streaming.tables.tables import Tables

T0 = 1_700_000_000_000 // MINUTE_MS * MINUTE_MS
M, S = MINUTE_MS, 1_000
LOG = Log(range(T0 - 60 * M, T0 + 60 * M, S), topic="t")  # a record a second
MEMBER = {"member_id": "m", "group_instance_id": None, "client_id": "app", "client_host": "/10.0.0.1"}
LAST = 25


def at(minutes: float) -> datetime:
    return from_ms(T0 + int(minutes * M))


def append_ends(tables: Tables, minutes: range, log: Log = LOG) -> None:
    rows = log.samples(T0 + minute * M for minute in minutes)
    tables.append_log_ends(
        timed([{**row, "error": None, "day": day_of(row["sampled_at"])} for row in rows], LOG_ENDS)
    )


@pytest.fixture(scope="module")
def queries(tmp_path_factory: pytest.TempPathFactory) -> LagQueries:
    """Groups `live`, 10 or 30 s behind, and `dead`, which stops after 10 minutes; `back` is set back after
    15, when it has no members, and after 20 by one of them. Each has the first partition of topic t."""
    tables = new_tables(tmp_path_factory.mktemp("tables"))
    live: Batch = {}
    for minute in range(LAST + 1):
        now = T0 + minute * M
        behind = 30 if minute % 5 == 0 else 10
        batch: Batch = {}

        def commit(name: str, committed: int, place: int, now: int = now, batch: Batch = batch) -> None:
            times = {"commit_timestamp": now, "source_timestamp": now}
            batch[name, "t", 0] = offset(committed_offset=committed, source_offset=place, **times)

        commit("live", LOG.end_at(now - behind * S), 100 * minute)
        if minute <= 10:
            commit("dead", LOG.end_at(now - behind * S), 100 * minute + 1)
        if minute in (0, 16):
            batch["back"] = group(members=[MEMBER], source_offset=100 * minute)
        if minute == 14:
            batch["back"] = group(state="Empty", members=[], source_offset=100 * minute)
        if minute not in (14, 16):
            commit("back", 500 if minute == 15 else 400 if minute == 20 else 3_000 + minute, 100 * minute + 5)
        done = PartitionProgress(position=100 * minute, loaded=True, last_stable_offset=100 * minute)
        append(tables, batch, live=live, now=now, partitions={3: replace(done, high_watermark=100 * minute)})
        live |= batch
    heartbeat(tables, T0 + (LAST + 1) * M)
    append_ends(tables, range(-30, LAST + 2))
    return LagQueries(tables)


def test_offsets_have_the_lag_of_their_moment(queries: LagQueries) -> None:
    answer = queries.list_offsets(["live", "dead"], as_of=at(20.5))
    more = [*LAG.names, "lag_seconds_reason"]
    assert answer.rows.schema.names == [*OFFSETS.names[:4], *more, *OFFSETS.names[4:]]
    rows = answer.rows.select(["group", "lag", "lag_seconds", "lag_is_at_least"]).to_pylist()
    assert [(row["group"], row["lag"], row["lag_is_at_least"]) for row in rows] == [
        ("dead", 630, False),
        ("live", 30, False),
    ]
    assert [row["lag_seconds"] for row in rows] == pytest.approx([629.0, 29.0], abs=1.1)
    assert answer.rows["ends_as_of"].to_pylist() == [at(20)] * 2
    assert queries.list_offsets([], as_of=at(20.5)).rows.num_rows == 0


def test_old_samples_say_nothing(queries: LagQueries) -> None:
    rows = queries.list_offsets(["live"]).rows  # now, years later
    assert rows.select(["lag", "lag_seconds", "log_end_offset"]).to_pylist() == [
        {"lag": None, "lag_seconds": None, "log_end_offset": None}
    ]
    assert rows["ends_as_of"].to_pylist() == [at(LAST + 1)]


def test_who_is_behind_comes_first(queries: LagQueries) -> None:
    ranked = queries.list_lag(as_of=at(20.5)).rows["group"].to_pylist()
    assert ranked == ["back", "dead", "live"]
    far = queries.list_lag(as_of=at(20.5), min_seconds=600)
    assert far.rows["group"].to_pylist() == ["back", "dead"]
    assert queries.list_lag(as_of=at(20.5), min_lag=700).rows["group"].to_pylist() == ["back"]
    by_topic = queries.list_lag(["live", "dead"], as_of=at(20.5), by="topic").rows.to_pylist()
    assert [(row["topic"], row["worst_group"], row["lag"]) for row in by_topic] == [("t", "dead", 660)]
    with pytest.raises(MisuseError, match="expected group or topic, found 'x'"):
        queries.list_lag(by="x")  # type: ignore[arg-type]


def test_history_has_the_lag_of_every_step(queries: LagQueries) -> None:
    answer = queries.list_history("dead", as_of=at(20.5))
    steps = queries.tables.ask(lambda snapshot: snapshot.history(["dead"]), as_of=to_ms(at(20.5)))
    assert answer.rows.select(HISTORY.names).equals(steps)
    assert answer.rows["lag"].to_pylist() == [30, 10, 10, 10, 10] * 2 + [30]
    assert answer.rows["lag_seconds"].to_pylist() == pytest.approx(
        [29.0, 9.0, 9.0, 9.0, 9.0] * 2 + [29.0], abs=1.1
    )
    assert queries.list_history("nobody", as_of=at(20.5)).rows.num_rows == 0


def test_history_of_many_partitions_is_read_part_by_part_and_not_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = new_tables(tmp_path)
    live: Batch = {}
    names = ["b", "nul\0a", "a", "ä"]
    logs = {
        name: Log(range(T0 - M * (1 + place), T0 + 9 * M, S), topic=name) for place, name in enumerate(names)
    }
    for minute in range(1, 5):
        batch: Batch = {
            (f"g{place}", name, 0): offset(committed_offset=7 * minute, source_offset=10 * minute + place)
            for place, name in enumerate(names)
        }
        append(tables, batch, live=live, now=T0 + minute * M)
        live |= batch
    for log in logs.values():
        append_ends(tables, range(6), log)
    queries = LagQueries(tables)
    whole = queries.list_history(as_of=at(5))
    assert [row["lag"] for row in whole.rows.to_pylist()] == [
        logs[row["topic"]].end_at(T0 + row["sequence"] * M) - row["committed_offset"]
        for row in tables.ask(lambda snapshot: snapshot.history(), as_of=to_ms(at(5))).to_pylist()
    ]
    monkeypatch.setattr(lag_rows, "_SAMPLES_AT_ONCE", 1)
    assert len(lag_rows.parts_by_topic(whole.rows, minutes=4)[0]) == 4
    assert queries.list_history(as_of=at(5)).rows.equals(whole.rows)
    monkeypatch.setattr(lag, "MOST_SAMPLES", 15)
    less = queries.list_history(as_of=at(5))
    assert less.rows.schema == whole.rows.schema
    assert less.rows["lag"].null_count == len(whole.rows) == 16
    assert less.as_of.why_no_lag is not None
    assert "would be read for it; name groups or topics" in less.as_of.why_no_lag
    assert queries.list_history(["g0"], as_of=at(5)).as_of.why_no_lag is None


def test_a_series_has_the_lag_at_regular_moments(queries: LagQueries) -> None:
    answer = queries.lag_over_time(["dead", "live"], since=at(5), until=at(20), every_ms=5 * M)
    rows = answer.rows.select(["at", "group", "lag"]).to_pylist()
    assert [(row["at"], row["group"], row["lag"]) for row in rows] == [
        (at(minute), name, lag)
        for minute, dead in ((5, 30), (10, 30), (15, 330), (20, 630))
        for name, lag in (("dead", dead), ("live", 30))
    ]
    before = queries.lag_over_time(["dead"], since=at(-9), until=at(1), every_ms=5 * M)
    assert before.rows["at"].to_pylist() == [at(1)]
    assert queries.lag_over_time(["nobody"], since=at(1), until=at(2), every_ms=M).rows.num_rows == 0
    with pytest.raises(MisuseError, match="expected a time after"):
        queries.lag_over_time(["dead"], since=at(5), until=at(4), every_ms=M)
    with pytest.raises(MisuseError, match="expected at most 100000 moments"):
        queries.lag_over_time(["dead"], since=at(5), until=at(20), every_ms=1)
    with pytest.raises(MisuseError, match="found one every 0 ms"):
        queries.lag_over_time(["dead"], since=at(5), until=at(5.001), every_ms=0)


def test_a_series_that_would_be_too_large_is_refused(
    queries: LagQueries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag, "_MOST_ROWS", 8)
    answer = queries.lag_over_time(["dead", "live"], since=at(5), until=at(20), every_ms=5 * M)
    assert answer.rows.num_rows == 8
    with pytest.raises(MisuseError, match="expected at most 8 rows, found 2 positions at 5 moments"):
        queries.lag_over_time(["dead", "live"], since=at(5), until=at(21), every_ms=5 * M)


def test_health_is_that_of_the_moment(queries: LagQueries) -> None:
    answer = queries.health(["live", "dead"], as_of=at(21.5))
    assert answer.rows.schema == GROUP_HEALTH
    found = {row["group"]: row for row in answer.rows.to_pylist()}
    assert {name: row["status"] for name, row in found.items()} == {"live": "OK", "dead": "STOPPED"}
    assert found["dead"]["since"] == at(10)
    earlier = queries.health(["live", "dead"], as_of=at(12)).rows.to_pylist()
    assert {row["group"]: row["status"] for row in earlier} == {"live": "OK", "dead": "OK"}
    assert queries.health(as_of=at(17.5)).rows.to_pylist()[0]["status"] != "REWOUND"  # it is back
    set_back = queries.health(["back"], as_of=at(21.5)).rows.to_pylist()[0]
    assert (set_back["status"], set_back["rewound_to"]) == ("OK", None)  # and again


def test_health_is_not_known_while_the_job_is_silent(queries: LagQueries) -> None:
    assert queries.health(["dead"]).rows["reason"].to_pylist() == ["newer commits may be unread"]


def test_every_change_of_status_has_a_row(queries: LagQueries) -> None:
    rows = queries.health_changes(["dead", "live"], since=at(5), until=at(25)).rows.to_pylist()
    found = [(row["group"], row["status"], row["status_before"]) for row in rows]
    assert sorted(found[:2]) == [("dead", "OK", None), ("live", "OK", None)]
    assert found[2:] == [("dead", "STOPPED", "OK")]
    assert (rows[2]["at"], rows[2]["since"]) == (at(21), at(10))


def test_rewinds_say_who_can_have_done_them(queries: LagQueries) -> None:
    rows = queries.rewinds(None, since=at(1)).rows.to_pylist()
    members = [one["members"] and [member["client_id"] for member in one["members"]] for one in rows]
    assert [(row["group"], row["committed_at"], row["was_empty"]) for row in rows] == [
        ("back", at(15), True),
        ("back", at(20), False),
    ]
    assert members == [None, ["app"]]
    topics = [TopicPartitions("u")]
    assert queries.rewinds(["back"], topics, since=at(1)).rows.num_rows == 0


OTHER_LOG = {
    "ids_differ": ("a", "b", [], "commit"),
    "ids_are_equal": ("a", "a", ["a", "b"], "rewind"),
    "samples_saw_another": (None, None, ["a", "b"], "commit"),
    "samples_saw_the_same": (None, None, ["a", "a"], "rewind"),
}


@pytest.mark.parametrize(("before", "after", "seen", "event"), OTHER_LOG.values(), ids=OTHER_LOG)
def test_a_topic_recreated_is_no_rewind(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    before: str | None,
    after: str | None,
    seen: list[str],
    event: str,
) -> None:
    tables = new_tables(tmp_path)
    done = {3: PartitionProgress(position=9, loaded=True)}
    live: Batch = {}
    for minute, committed, topic_id in ((0, 500, before), (4, 5, after)):
        now = T0 + minute * M
        times = {"commit_timestamp": now, "source_timestamp": now, "source_offset": minute}
        batch: Batch = {("g", "t", 0): offset(committed_offset=committed, topic_id=topic_id, **times)}
        append(tables, batch, live=live, now=now, partitions=done)
        live |= batch
    ends = [of_topic(T0 + (1 + number) * M, "t", topic_id) for number, topic_id in enumerate(seen)]
    if ends:
        tables.append_log_ends(rows_of(ends))
    heartbeat(tables, T0 + 5 * M)
    queries = LagQueries(tables)

    def events(*asked: str) -> list[str]:
        return queries.list_history(["g"], events=asked).rows["event"].to_pylist()

    assert events() == ["first", event]
    for asked in ("commit", "rewind"):
        assert events(asked) == ([event] if asked == event else [])
    asked_of = list[object]()
    read = Snapshot.topics_over_time

    def reading(self: Snapshot, topics: Collection[str] | None, *, as_of: int) -> pa.Table:
        asked_of.append(topics)
        return read(self, topics, as_of=as_of)

    monkeypatch.setattr(Snapshot, "topics_over_time", reading)
    assert queries.rewinds(["g"], since=at(-1)).rows.num_rows == (event == "rewind")
    assert len(asked_of) == (before is None)  # ids that are known decide


def test_a_time_until_now_ends_later_only_if_the_clock_of_the_job_is_ahead(tmp_path: Path) -> None:
    tables = new_tables(tmp_path)
    append(tables, {("g", "t", 0): offset()}, now=T0)

    def end(now: int, opened: int) -> int:
        return tables.ask(lambda at: lag.SnapshotLagQueries(at).end(now), now=opened)

    assert end(T0 - M, T0 - S) == T0
    assert end(T0 - M, T0) == T0 - M
    assert end(T0 + M, T0 + M) == T0 + M


def test_positions_of_a_past_moment_can_be_put_back(queries: LagQueries) -> None:
    patient = replace(queries, max_age_ms=100 * 365 * DAY_MS)
    rows = patient.restore(["dead", "back"], as_of=at(5.5)).rows.to_pylist()
    assert [(row["group"], row["committed_offset"], row["warning"]) for row in rows] == [
        ("back", 3_005, None),
        ("dead", LOG.end_at(T0 + 5 * M - 30 * S), None),
    ]
    rows = queries.restore(["dead"], as_of=at(5.5)).rows.to_pylist()  # now, years after the last sample
    assert [(row["log_end_offset"], row["ends_as_of"], row["warning"]) for row in rows] == [
        (None, at(LAST + 1), LOG_UNKNOWN)
    ]


def test_samples_of_a_clock_that_was_ahead_say_nothing_yet(tmp_path: pytest.TempPathFactory) -> None:
    now = now_ms()
    tables = new_tables(tmp_path)
    times = {"commit_timestamp": now - 10 * M, "source_timestamp": now - 10 * M}
    done = {3: PartitionProgress(position=1, loaded=True)}
    append(tables, {("g", "t", 0): offset(committed_offset=50, **times)}, now=now - 10 * M, partitions=done)
    heartbeat(tables, now - S)
    ahead = [of_topic(now + DAY_MS, "t", "of-then"), Sample(now + DAY_MS, "t", 0, 100, "of-then")]
    own = [of_topic(now - 20 * M, "t", "own"), Sample(now - S, "t", 0, 10_000, "own", 9_000)]
    tables.append_log_ends(rows_of([*ahead, *own]))
    queries = LagQueries(tables)
    [row] = queries.restore(["g"], as_of=from_ms(now - M)).rows.to_pylist()
    assert (row["log_start_offset"], row["log_end_offset"], row["warning"]) == (9_000, 10_000, START_PASSED)
    [row] = queries.list_offsets(["g"], with_former=True).rows.to_pylist()
    assert (row["lag"], row["ends_as_of"], row["of_recreated_topic"]) == (9_950, from_ms(now - S), False)


@pytest.mark.parametrize(
    "clock", [-180 * M, 15 * S, *(pytest.param(clock, marks=pytest.mark.more) for clock in (-15 * S, 0))]
)
def test_lag_goes_by_the_clock_of_the_job_not_by_those_of_brokers(
    tmp_path: pytest.TempPathFactory, clock: int
) -> None:
    """Group `up` keeps up and commits more often than ends are sampled; `beyond` is set beyond the end."""
    tables = new_tables(tmp_path)
    live: Batch = {}
    for number, minutes in enumerate([-1, -0.3, 0.2, 0.3, 0.7, 1.2, 1.3]):
        now = T0 + int(minutes * M)
        times = {"commit_timestamp": now + clock, "source_timestamp": now + clock, "source_offset": number}
        batch: Batch = {("up", "t", 0): offset(committed_offset=LOG.end_at(now), **times)}
        if minutes == 0.3:
            batch["beyond", "t", 0] = offset(committed_offset=LOG.end_at(now) + 1_000, **times)
        done = {3: PartitionProgress(position=number + 1, loaded=True)}
        append(tables, batch, live=live, now=now, partitions=done)
        live |= batch
    append_ends(tables, range(-2, 3))
    queries = LagQueries(tables)

    def lags(rows: pa.Table, name: str) -> list[int | None]:
        found: list[int | None] = rows.filter(pc.equal(rows["group"], name))["lag"].to_pylist()
        return found

    moments = (-0.2, 0.25, 0.5, 0.8, 0.999, 1.25, 1.9)
    shown = [queries.list_offsets(as_of=at(moment)).rows for moment in moments]
    up = [lag for rows in shown for lag in lags(rows, "up")]
    assert up == [0, 18, 18, 18, 18, 18, 18]  # a sample comes 18 s after the last commit before it
    end = LOG.end_at(T0 + int(0.3 * M)) + 1_000
    beyond = [lags(rows, "beyond") for rows in shown]
    assert beyond == [[], [], [None], [None], [None], [LOG.end_at(T0 + M) - end], [LOG.end_at(T0 + M) - end]]
    history = queries.list_history(["up"], since=at(-2)).rows
    assert history["lag"].to_pylist() == [0] * 7  # as of each commit
    for start in -0.2, 0.25, 0.8:
        series = queries.lag_over_time(["up"], since=at(start), until=at(1.9), every_ms=6 * S).rows
        assert {18} <= set(series["lag"].to_pylist()) <= {0, 18}
    series = queries.lag_over_time(["beyond"], since=at(0.8), until=at(1.2), every_ms=int(0.4 * M)).rows
    assert series["lag"].to_pylist() == [None, LOG.end_at(T0 + M) - end]
    changes = queries.health_changes(["up"], since=at(0), until=at(1.9)).rows
    expected = (
        "OK" if abs(clock) < MAX_SAMPLE_AGE_MS else "UNKNOWN"
    )  # whether it was caught up goes by brokers' clocks
    assert set(changes["status"].to_pylist()) == {expected}


def test_a_topic_recreated_is_reported(tmp_path: pytest.TempPathFactory) -> None:
    tables = new_tables(tmp_path)
    done = {3: PartitionProgress(position=1, loaded=True)}
    times = {"commit_timestamp": T0, "source_timestamp": T0}
    batch: Batch = {
        ("g", "t", 0): offset(committed_offset=900, **times),
        ("h", "t", 0): offset(committed_offset=901, topic_id="new", **times),
    }
    append(tables, batch, now=T0, partitions=done)
    append_ends(tables, range(-5, 5))
    anew = [sample(T0 + minute * M, 10, Log((), topic_id="new")) for minute in range(7, 12)]
    for topic_id, minutes in ("id", (-5, 5)), ("new", (7, 11)):  # the sampler says so about topics themselves
        of_topic = {**anew[0], "topic_id": topic_id, "partition": None, "log_start": None, "log_end": None}
        anew += [{**of_topic, "sampled_at": T0 + minute * M} for minute in minutes]
    tables.append_log_ends(
        timed([{**row, "error": None, "day": day_of(row["sampled_at"])} for row in anew], LOG_ENDS)
    )
    for minute in range(1, 12):
        heartbeat(tables, T0 + minute * M)
    queries = LagQueries(tables)
    rows = queries.list_offsets(as_of=at(10.5), with_former=True).rows.to_pylist()
    assert [(row["lag"], row["of_recreated_topic"]) for row in rows] == [(-890, True), (-891, False)]
    before = queries.list_offsets(["g"], as_of=at(1.5), with_former=True).rows.to_pylist()
    assert [(row["lag"], row["of_recreated_topic"]) for row in before] == [(LOG.end_at(T0 + M) - 900, False)]
    assert queries.health(as_of=at(10.5)).rows["reason"].to_pylist() == ["beyond the log end"] * 2
    assert queries.restore(["g"], as_of=at(0.5)).rows["warning"].to_pylist() == [RECREATED]
    assert queries.topic_contradictions(as_of=at(10.5)).rows["seen_topic_id"].to_pylist() == ["id"]


def test_a_series_knows_when_a_topic_was_gone_or_lost_partitions(tmp_path: pytest.TempPathFactory) -> None:
    tables = new_tables(tmp_path)
    times = {"commit_timestamp": T0, "source_timestamp": T0}
    keys = [("g", topic, number) for topic, number in (("a", 0), ("b", 0), ("b", 5), ("c", 0), ("c", 1))]
    batch: Batch = {key: offset(committed_offset=1, **times) for key in keys}
    batch["h", "a", 0] = offset(committed_offset=4, **times)
    append(tables, batch, now=T0, partitions={3: PartitionProgress(position=1, loaded=True)})
    ids = {"a": "a-1", "b": "b-1", "c": None}
    tables.append_log_ends(rows_of([Sample(T0, *key[1:], 4, ids[key[1]]) for key in keys]))
    anew = [of_topic(T0 + M, "b", "b-2"), Sample(T0 + M, "c", 0, 5, None)]
    tables.append_log_ends(rows_of([gone(T0 + M, "a"), *anew]))
    again = [Sample(T0 + 2 * M, "a", 0, 4, "a-1"), Sample(T0 + 2 * M, "b", 0, 3, "b-2")]
    tables.append_log_ends(rows_of([*again, gone(T0 + 2 * M, "c")]))
    for minute in range(1, 4):
        heartbeat(tables, T0 + minute * M)
    queries = LagQueries(tables)
    series = queries.lag_over_time(["g"], since=at(0), until=at(3), every_ms=M).rows
    lags = [series.filter(pc.equal(series["at"], at(n)))["lag"].to_pylist() for n in range(4)]
    assert lags == [
        [3, 3, 3, 3, 3],
        [None, None, None, 4, 3],
        [3, 2, None, None, None],  # b has no partition 5 any more
        [3, 2, None, None, None],
    ]
    assert lags == [queries.list_offsets(["g"], as_of=at(n)).rows["lag"].to_pylist() for n in range(4)]
    changes = queries.health_changes(["h"], since=at(0), until=at(3)).rows
    assert [tuple(row.values()) for row in changes.select(["at", "reason"]).to_pylist()] == [
        (at(0), "caught up"),
        (at(1), "log end unknown"),
        (at(2), "caught up"),
    ]


def test_samples_count_for_as_long_as_they_may(tmp_path: pytest.TempPathFactory) -> None:
    tables = new_tables(tmp_path)
    times = {"commit_timestamp": T0, "source_timestamp": T0}
    batch: Batch = {("g", topic, 0): offset(committed_offset=1, **times) for topic in ("t", "u")}
    append(tables, batch, now=T0, partitions={3: PartitionProgress(position=1, loaded=True)})
    tables.append_log_ends(rows_of([Sample(T0, "t", 0, 10), Sample(T0, "u", 0, 10)]))
    tables.append_log_ends(rows_of([Sample(T0 + 30 * M, "u", 0, 20)]))
    for minute in range(1, 31):
        heartbeat(tables, T0 + minute * M)
    patient = LagQueries(tables, max_age_ms=60 * M)
    assert patient.list_offsets(as_of=at(30)).rows["lag"].to_pylist() == [9, 19]
    series = patient.lag_over_time(None, since=at(29), until=at(30), every_ms=M)
    assert series.rows["lag"].to_pylist() == [9, 9, 9, 19]
    assert LagQueries(tables).list_offsets(as_of=at(30)).rows["lag"].to_pylist() == [None, 19]


def test_tables_without_samples_know_no_lag(tmp_path: pytest.TempPathFactory) -> None:
    tables = new_tables(tmp_path)
    append(tables, {("g", "t", 0): offset()}, now=T0, partitions={3: PartitionProgress(loaded=True)})
    queries = LagQueries(tables)
    assert queries.list_offsets(["g"]).rows["lag"].to_pylist() == [None]
    assert queries.list_lag().rows["lag_is_at_least"].to_pylist() == [True]
    assert queries.health().rows["status"].to_pylist() == ["UNKNOWN"]
    assert queries.list_history("g").rows["lag"].to_pylist() == [None]
    assert isinstance(queries.list_offsets().rows, pa.Table)
