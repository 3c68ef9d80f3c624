"""Who is behind, one row per group or topic, and positions to put back."""

from typing import Any

import pyarrow as pa
from sampled_logs import SAMPLES, sample, timed

from streaming.lag.log_ranges import LAG
from streaming.lag.restoring import (
    BEYOND_END,
    LOG_UNKNOWN,
    NEWER_UNREADABLE,
    RECREATED,
    RESTORED,
    START_PASSED,
    UNREADABLE,
    restored,
)
from streaming.lag.summary import LAG_BY, lag_by, worst_positions
from streaming.model.schemas import KEY, OFFSETS, TIMESTAMP

ROWS = pa.schema([*KEY, *LAG])


def row(key: str, lag: int | None, seconds: float | None, at: int | None = 9, *, least: bool = False) -> Any:
    group, topic, partition = key.split()
    place = {"group": group, "topic": topic, "partition": int(partition)}
    return {
        **place,
        "offset_as_of_ends": 0,
        "log_end_offset": lag,
        "lag": lag,
        "lag_seconds": seconds,
        "lag_is_at_least": least,
        "ends_as_of": at,
    }


POSITIONS = timed(
    [
        row("a t 0", 5, 1.5),
        row("a t 1", 7, 2.5, 4),
        row("a u 0", -3, 0.0),
        row("b t 0", 1, 900.0, least=True),
        row("b t 1", None, None),
        row("c u 1", None, None, None),
        row("d u 1", 0, 0.0),
    ],
    ROWS,
)


def test_a_sum_that_no_number_holds_is_the_largest_one() -> None:
    most = 2**63 - 1
    rows = timed([row("a t 0", most, 1.0), row("a t 1", most, 1.0), row("b t 0", 2**62, 1.0)], ROWS)
    assert lag_by(rows, "group")["lag"].to_pylist() == [most, 2**62]


def test_the_worst_position_of_a_group_in_two_offsets_partitions_is_its_first_row() -> None:
    rows = timed([row("a t 0", 5, 1.0), row("a t 0", 5, 1.0), row("b t 0", 0, 0.0)], ROWS)
    rows = rows.append_column("committed_offset", pa.array([10, 20, 30]))
    rows = rows.append_column("topic_id", pa.nulls(3, pa.string()))
    found = worst_positions(lag_by(rows, "group"), "group", rows)
    assert found["committed_offset"].to_pylist() == [10, None]


def test_groups_come_by_the_time_that_they_are_behind() -> None:
    found = lag_by(POSITIONS, "group")
    assert found.schema == LAG_BY["group"]
    names = ["group", "lag", "lag_seconds", "lag_is_at_least", "worst_topic", "worst_partition"]
    assert [tuple(one.values()) for one in found.select(names).to_pylist()] == [
        ("b", 1, 900.0, True, "t", 0),
        ("a", 12, 2.5, False, "t", 1),
        ("d", 0, 0.0, False, "u", 1),
        ("c", None, None, True, "u", 1),
    ]
    counts = ["partitions", "partitions_behind", "partitions_unknown", "partitions_beyond_end"]
    assert [tuple(one.values()) for one in found.select(counts).to_pylist()] == [
        (2, 1, 1, 0),
        (3, 2, 0, 1),
        (1, 0, 0, 0),
        (1, 0, 1, 0),
    ]
    assert found["ends_as_of"].cast(pa.int64()).to_pylist() == [9_000, 4_000, 9_000, None]


def test_topics_over_all_groups() -> None:
    found = lag_by(POSITIONS, "topic")
    assert found.schema == LAG_BY["topic"]
    names = ["topic", "worst_group", "worst_partition", "lag", "partitions"]
    assert [tuple(one.values()) for one in found.select(names).to_pylist()] == [
        ("t", "b", 0, 13, 4),
        ("u", "d", 1, 0, 3),
    ]


def test_nobody_is_behind() -> None:
    assert lag_by(POSITIONS.slice(0, 0), "group").schema == LAG_BY["group"]


# --- positions to put back -------------------------------------------------------------------------------

OVER_TIME = pa.schema(
    [("topic", pa.string()), ("topic_id", pa.string()), ("first_at", TIMESTAMP), ("last_at", TIMESTAMP)]
)


def offset(partition: int, committed: int | None, topic: str = "t", **changed: Any) -> Any:
    none = dict.fromkeys(OFFSETS.names)
    times = {"commit_timestamp": 50, "source_timestamp": 50}
    key = {"group": "g", "topic": topic, "partition": partition}
    return {**none, **key, **times, "committed_offset": committed, **changed}


def test_positions_are_put_back_with_what_became_of_their_logs() -> None:
    offsets = timed(
        [
            offset(0, 30),
            offset(1, 30),
            offset(2, 30),
            offset(3, None),
            offset(4, 30),
            offset(0, 5, "anew"),
            offset(0, 100),
            offset(0, 20),
            {**offset(0, 21), "unreadable_source_offset": 7},
        ],
        OFFSETS,
    )
    ends = [(0, 20, 100), (1, 31, 100), (2, 0, 29)]
    newest = [{**sample(90, end), "partition": number, "log_start": start} for number, start, end in ends]
    newest.append({**sample(90, 9), "topic": "anew"})
    seen = [
        dict(zip(OVER_TIME.names, one, strict=True)) for one in (("anew", "a", 1, 60), ("anew", "b", 70, 90))
    ]
    samples, over_time = timed(newest, SAMPLES), timed(seen, OVER_TIME)
    found = restored(offsets, samples, over_time, max_age_ms=10, now=100)
    assert found.schema == RESTORED
    assert found["committed_offset"].to_pylist() == [30, 30, 30, None, 30, 5, 100, 20, 21]
    told = [None, START_PASSED, BEYOND_END, UNREADABLE, LOG_UNKNOWN, RECREATED, None, None, NEWER_UNREADABLE]
    assert found["warning"].to_pylist() == told
    assert found["log_start_offset"].to_pylist() == [20, 31, 0, None, None, 0, 20, 20, 20]
    later = restored(offsets, samples, over_time, max_age_ms=10, now=101)
    unknown = [LOG_UNKNOWN] * 2
    assert later["warning"].to_pylist() == [
        *[*unknown, LOG_UNKNOWN, UNREADABLE, LOG_UNKNOWN, RECREATED],
        *[*unknown, NEWER_UNREADABLE],
    ]
    assert later["log_end_offset"].null_count == len(later)
    assert later["ends_as_of"].equals(found["ends_as_of"])
    assert found["ends_as_of"].null_count == 2  # those that were never sampled
