"""Lag in records and in seconds, against logs whose records came at known times."""

import time
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sampled_logs import CROSSED, LOG, SAMPLES, Log, newest_of, offset_times_of, sample, sample_table, timed

from streaming.common.arrays import from_numbers
from streaming.common.times import MINUTE_MS
from streaming.lag.lag_time import Ends, as_of_ends, with_lag
from streaming.lag.log_ranges import LAG
from streaming.lag.runs import COMMITS
from streaming.lag.samples import Samples
from streaming.model.schemas import TIMESTAMP

AGE = 5 * MINUTE_MS
OFFSETS = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("committed_offset", pa.int64()),
        ("commit_timestamp", TIMESTAMP),
    ]
)

KEYED = pa.schema([("group", pa.string()), *OFFSETS])


def commit(committed: int | None, at: int | None = 0, log: Log = LOG) -> dict[str, Any]:
    place = {"topic": log.topic, "partition": log.partition}
    return {**place, "committed_offset": committed, "commit_timestamp": at}


def counted(rows: pa.Table, newest: pa.Table, crossed: pa.Table, *, as_of: int, max_age_ms: int) -> pa.Table:
    """Add the lag of positions that have not moved since the newest samples."""
    ends = Ends.of(rows, newest, np.full(len(rows), as_of, np.int64), max_age_ms=max_age_ms)
    return with_lag(rows, ends, as_of_ends(rows, ends, rows.slice(0, 0)), crossed)


def lags(
    commits: list[dict[str, Any]], samples: list[dict[str, Any]], as_of: int, max_age_ms: int = AGE
) -> list[dict[str, Any]]:
    positions = [(row["topic"], row["partition"], row["committed_offset"]) for row in commits]
    crossed = offset_times_of(samples, positions, as_of)
    newest = sample_table(newest_of(samples, as_of))
    rows = counted(timed(commits, OFFSETS), newest, crossed, max_age_ms=max_age_ms, as_of=as_of)
    assert rows.schema.names == [*OFFSETS.names[:3], *LAG.names, "commit_timestamp"]
    assert rows.select(LAG.names).schema == LAG
    rows.validate(full=True)
    is_known = rows["lag"].is_valid()
    assert rows.filter(is_known)["offset_as_of_ends"].equals(rows.filter(is_known)["committed_offset"])
    return rows.select(LAG.names[1:5]).to_pylist()


def one(committed: int | None, samples: list[dict[str, Any]], as_of: int) -> list[Any]:
    return list(lags([commit(committed)], samples, as_of)[0].values())


SAMPLED = [sample(1_000_000, 10), sample(1_060_000, 20), sample(1_120_000, 20), sample(1_180_000, 50)]

KNOWN: dict[str, tuple[int, list[Any]]] = {
    "at the end": (50, [50, 0, 0.0, False]),
    "one record behind: it came just before the newest sample": (49, [50, 1, 0.0, False]),
    "half way between two samples": (34, [50, 16, 30.0, False]),
    "the first record of an interval came after the idle time before it": (20, [50, 30, 58.0, False]),
    "the last record of an interval came by its sample": (19, [50, 31, 120.0, False]),
    "at the end of the first sample": (10, [50, 40, 174.0, False]),
    "before the first sample": (9, [50, 41, 180.0, True]),
    "from the start": (0, [50, 50, 180.0, True]),
}


@pytest.mark.parametrize(("committed", "expected"), KNOWN.values(), ids=KNOWN.keys())
def test_the_moment_at_which_the_end_passed_lies_between_two_samples(
    committed: int, expected: list[Any]
) -> None:
    assert one(committed, SAMPLED, 1_190_000) == expected


def test_a_past_moment_knows_the_samples_up_to_it_alone() -> None:
    assert one(15, SAMPLED, 1_130_000) == [20, 5, 84.0, False]
    assert one(20, SAMPLED, 1_179_999) == [20, 0, 0.0, False]
    assert one(15, SAMPLED, 999_999) == [None] * 4


def test_a_position_beyond_the_end_has_a_negative_lag() -> None:
    assert one(60, SAMPLED, 1_190_000) == [50, -10, 0.0, False]
    assert one(60, SAMPLED, 1_180_001 + AGE) == [None] * 4


KEY = {"group": "g\0", "topic": "t", "partition": 0}
BEFORE = [("offset_before", pa.int64()), ("topic_id_before", pa.string())]
MOVES = pa.schema([*COMMITS, *BEFORE, ("sequence", pa.int64())])


def moved(*steps: tuple[int, int | None], key: dict[str, Any] = KEY) -> list[dict[str, Any]]:
    """Make changes written at times (ms), which had these offsets before them."""
    made = {"committed_offset": 7, "committed_at": 5, "is_removed": False}
    made |= {"topic_id": None, "topic_id_before": None}
    return [
        {**key, **made, "written_at": at, "offset_before": before, "sequence": 10 + number}
        for number, (at, before) in enumerate(steps)
    ]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([], 40),
        ([(1_180_000, 30)], 40),  # by the sample
        ([(1_180_001, 30)], 30),  # after it
        ([(1_180_001, 30), (1_185_000, 35)], 30),
        ([(1_170_000, 30), (1_185_000, 35)], 35),
        ([(1_180_001, None), (1_185_000, 35)], None),  # first committed after it
        ([(1_180_001, 50), (1_185_000, 60)], 50),  # it went back since
        ([(1_190_000, 30), (1_185_000, 35)], 30),  # the clock was set back
        ([(1_190_000, 20), (1_170_000, 30), (1_185_000, 35)], 20),
    ],
)
def test_an_end_is_held_against_the_offset_as_of_its_sample(
    steps: list[tuple[int, int | None]], expected: int | None
) -> None:
    rows = timed([{**KEY, **commit(40)}, {**KEY, **commit(40), "group": "g"}], KEYED)
    others = moved((1_189_000, 1), key={**KEY, "group": "g\0\0"})
    changes = [*moved(*steps), *others]
    Random(len(steps)).shuffle(changes)
    ends = Ends.of(rows, sample_table(newest_of(SAMPLED)), np.full(2, 1_190_000), max_age_ms=AGE)
    held = as_of_ends(rows, ends, timed(changes, MOVES))
    found = with_lag(rows, ends, held, offset_times_of(SAMPLED, [("t", 0, expected), ("t", 0, 40)]))
    assert found["committed_offset"].to_pylist() == [40, 40]
    assert found["offset_as_of_ends"].to_pylist() == [expected, 40]
    assert found["log_end_offset"].to_pylist() == [50, 50]
    assert found["lag"].to_pylist() == [None if expected is None else 50 - expected, 10]
    assert found["lag_seconds"][0].is_valid is (expected is not None)


def test_at_the_end_of_an_empty_log_nothing_waits() -> None:
    assert one(0, [sample(1_000_000, 0)], 1_010_000) == [0, 0, 0.0, False]
    assert one(7, [sample(1_000_000, 0)], 1_010_000) == [0, -7, 0.0, False]


def test_a_lag_that_no_number_holds_is_the_largest_one() -> None:
    assert one(-(2**63), SAMPLED, 1_180_000) == [50, 2**63 - 1, 180.0, True]
    assert one(-(2**63) + 51, SAMPLED, 1_180_000) == [50, 2**63 - 1, 180.0, True]
    assert one(-(2**63) + 52, SAMPLED, 1_180_000) == [50, 2**63 - 2, 180.0, True]
    assert one(2**63 - 1, SAMPLED, 1_180_000) == [50, 51 - 2**63, 0.0, False]


def test_nothing_is_known_without_a_committed_offset() -> None:
    assert one(None, SAMPLED, 1_190_000) == [50, None, None, None]


def test_old_samples_say_nothing_but_when_they_are_of() -> None:
    commits = timed([commit(1)], OFFSETS)
    newest, crossed = sample_table(newest_of(SAMPLED)), offset_times_of(SAMPLED, [("t", 0, 1)])
    for as_of, is_known in ((1_180_000 + AGE, True), (1_180_001 + AGE, False)):
        rows = counted(commits, newest, crossed, max_age_ms=AGE, as_of=as_of)
        assert rows["ends_as_of"].cast(pa.int64()).to_pylist() == [1_180_000_000]
        assert [rows[name][0].is_valid for name in LAG.names[1:5]] == [is_known] * 4


def test_topics_without_samples_are_not_known() -> None:
    other = Log((), topic="u")
    assert lags(
        [commit(1, log=other), commit(15), commit(2, log=Log((), partition=1))], SAMPLED, 1_190_000
    ) == [
        dict.fromkeys(LAG.names[1:5]),
        dict(zip(LAG.names[1:5], [50, 35, 144.0, False], strict=True)),
        dict.fromkeys(LAG.names[1:5]),
    ]
    assert lags([commit(1)], [], 5) == [dict.fromkeys(LAG.names[1:5])]
    assert lags([], SAMPLED, 1_190_000) == []


def test_names_that_are_alike_up_to_a_nul_are_two_topics() -> None:
    logs = [Log((), topic="t\0"), Log((), topic="t\0u"), Log((), topic="t")]
    samples = [sample(0, end, log) for end, log in enumerate(logs, 5)]
    assert [row["lag"] for row in lags([commit(1, log=log) for log in logs], samples, 0)] == [4, 5, 6]


def test_a_log_that_was_cut_back_has_the_lag_of_its_end_now() -> None:
    cut = [*SAMPLED, sample(1_240_000, 15)]
    assert one(30, cut, 1_240_000) == [15, -15, 0.0, False]
    assert one(12, cut, 1_240_000) == [15, 3, pytest.approx(222.0), False]


def test_a_crossing_that_is_not_known_leaves_the_time_open() -> None:
    crossed = timed([dict.fromkeys(CROSSED.names)], CROSSED)
    rows = counted(
        timed([commit(1)], OFFSETS),
        sample_table(newest_of(SAMPLED)),
        crossed,
        max_age_ms=AGE,
        as_of=1_180_000,
    )
    assert (rows["lag"].to_pylist(), rows["lag_seconds"].to_pylist()) == ([49], [None])


def test_numbers_of_any_size_are_exact_to_the_millisecond() -> None:
    far = 2**62
    samples = [sample(0, 0), sample(400 * 86_400_000, far), sample(400 * 86_400_000 + 7, far + 1)]
    assert one(far - 1, samples, 400 * 86_400_000 + 7)[2] == 0.007
    assert one(-(2**63), samples, 400 * 86_400_000 + 7)[2:] == [400 * 86_400 + 0.007, True]


# --- against the truth ----------------------------------------------------------------------------------


def bursts(random: Random, until: int) -> list[int]:
    """Make times of records: steady, in bursts, idle for long, many at one time."""
    times, now = list[int](), random.randrange(100_000)
    while now < until:
        pace = random.choice([0, 1, 50, 4_000, 90_000, 700_000])
        for _ in range(random.randrange(1, 60)):
            now += random.randrange(pace + 1)
            times.append(now)
        now += random.choice([1, 30_000, 1_000_000])
    return [moment for moment in times if moment <= until]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("max_gap", [10**9, 90_000])
def test_lag_time_is_the_age_of_the_record_within_one_sample_interval_or_at_least(
    seed: int, max_gap: int
) -> None:
    random = Random(seed)
    log = Log(bursts(random, 4_000_000))
    moments = sorted(random.sample(range(500_000, 4_000_000), 60))
    samples = log.samples(moments)
    in_gaps = 0
    for as_of in random.sample(range(moments[0], 4_000_000), 25):
        newest = max(moment for moment in moments if moment <= as_of)
        as_of = min(as_of, newest + max_gap)
        committed = [random.randrange(log.end_at(newest) + 1) for _ in range(40)]
        found = lags([commit(offset) for offset in committed], samples, as_of, max_age_ms=max_gap)
        for offset, row in zip(committed, found, strict=True):
            age = log.age(offset, newest)
            assert row["lag"] == log.end_at(newest) - offset
            passed = min((one for one in moments if log.end_at(one) > offset), default=newest)
            before = max((one for one in moments if log.end_at(one) <= offset), default=newest)
            if row["lag_is_at_least"]:
                assert before == newest or passed - before > max_gap
                assert row["lag_seconds"] == (newest - passed) / 1_000 <= age / 1_000
                in_gaps += before != newest
            else:
                assert passed - before <= max_gap or row["lag"] == 0
                assert abs(row["lag_seconds"] * 1_000 - age) <= max(0, passed - before) + 1e-6  # of float64
    assert (in_gaps > 0) == (max_gap < 10**9)


def test_what_came_while_nothing_was_sampled_waits_at_least_since_the_first_sample_after_it() -> None:
    """The job was down for eight hours; the records came a minute before it was back, or eight hours."""
    start = 8 * 3_600_000
    samples = [sample(0, 500), sample(start, 1_500), sample(start + MINUTE_MS, 1_500)]
    assert one(500, samples, start) == [1_500, 1_000, 0.0, True]
    assert one(500, samples, start + MINUTE_MS) == [1_500, 1_000, 60.0, True]
    assert one(500, [sample(0, 500), sample(AGE, 1_500)], AGE)[2:] == [pytest.approx(299.7), False]


@pytest.mark.parametrize("seed", range(5))
def test_along_a_history_every_row_has_the_lag_of_its_own_moment(seed: int) -> None:
    random = Random(seed)
    logs = [Log(bursts(random, 3_000_000), topic=topic) for topic in ("t", "u")]
    moments = sorted(random.sample(range(500_000, 3_000_000), 40))
    samples = [row for log in logs for row in log.samples(moments)]
    rows = []
    for _ in range(80):
        log, at = random.choice(logs), random.randrange(400_000, 3_000_000)
        rows.append({**commit(random.randrange(log.end_at(at) + 40), at, log), "batch_time": at})
    table = timed(rows, OFFSETS.append(pa.field("batch_time", TIMESTAMP)))
    crossed = offset_times_of(
        samples, [(row["topic"], row["partition"], row["committed_offset"]) for row in rows]
    )
    random.shuffle(samples)
    moments = np.array([row["batch_time"] for row in rows])
    ends = Ends.of(table, sample_table(samples), moments, max_age_ms=AGE)
    found = with_lag(table, ends, as_of_ends(table, ends, table.slice(0, 0)), crossed).select(LAG.names[1:5])
    for row, lag in zip(rows, found.to_pylist(), strict=True):
        kept = {name: row[name] for name in OFFSETS.names}
        assert lags([kept], samples, row["batch_time"]) == [lag]
    shown = [lag for lag in found["lag"].to_pylist() if lag is not None]
    assert min(shown) < 0 < max(shown)


def test_along_a_history_the_time_in_a_former_log_is_not_known() -> None:
    """The crossing is that of the topic recreated, after the row's moment."""
    samples = [sample(0, 90), sample(60_000, 100), sample(120_000, 8, Log((), topic_id="new"))]
    rows = timed([commit(95, 60_000), commit(5, 60_000), commit(5, 120_000)], OFFSETS)
    crossed = offset_times_of(samples, [("t", 0, 95), ("t", 0, 5), ("t", 0, 5)])
    moments = np.array([60_000, 60_000, 120_000])
    ends = Ends.of(rows, sample_table(samples), moments, max_age_ms=AGE)
    found = with_lag(rows, ends, as_of_ends(rows, ends, rows.slice(0, 0)), crossed)
    assert found["lag"].to_pylist() == [5, 95, 3]
    assert found["lag_seconds"].to_pylist() == [None, None, 0.0]


def test_a_million_offsets_take_less_than_a_third_of_a_second() -> None:
    count, places = 1_000_000, 10_000
    partitions = np.arange(count) % 100
    topics = pa.array([f"topic-{number}" for number in range(places // 100)])
    newest = pa.table(
        [
            topics.take(from_numbers(np.arange(places) // 100)),
            pa.nulls(places, pa.string()),
            from_numbers((np.arange(places) % 100).astype(np.int32)),
            pa.repeat(1_000_000_000, places).cast(TIMESTAMP),
            from_numbers(np.zeros(places, np.int64)),
            from_numbers(np.full(places, 1_000)),
        ],
        schema=SAMPLES,
    )
    rows = pa.table(
        [
            topics.take(from_numbers(np.arange(count) // 100 % 100)),
            from_numbers(partitions.astype(np.int32)),
            from_numbers(np.arange(count) % 1_000),
            pa.repeat(0, count).cast(TIMESTAMP),
        ],
        schema=OFFSETS,
    )
    times = [pa.repeat(at, count).cast(TIMESTAMP) for at in (400_000_000, 460_000_000)]
    ends = [from_numbers(np.arange(count) % 1_000 + step) for step in (-1, 1)]
    crossed = pa.table([times[0], ends[0], times[1], ends[1]], schema=CROSSED)
    took = []
    for _ in range(3):
        begin = time.process_time()
        found = counted(rows, newest, crossed, max_age_ms=AGE, as_of=1_010_000)
        took.append(time.process_time() - begin)
    assert found["lag_seconds"][0].as_py() == pytest.approx(540.0)
    assert min(took) < 0.3 * 2  # half of it, for slow machines
    print(f"1 M offsets: {min(took):.3f} s")


@pytest.mark.parametrize(
    ("minutes", "is_throughout"),
    [
        (range(-1, 11), True),
        ([-5, 0, 5, 10], True),
        ([-6, 0, 5, 10], False),  # too old where it begins
        ([1, 5, 10], False),  # begins later
        ([0, 4, 10], False),  # a gap
        ([0, 4, 8], True),
        ([0, 4], False),  # ends too early
        ([], False),
    ],
)
def test_logs_are_sampled_throughout_without_a_gap(minutes: Sequence[int], is_throughout: bool) -> None:
    minute = 60_000
    rows = [sample(at * minute, 7) for at in minutes]
    others = [sample(at * minute, 7, Log((), topic="other")) for at in range(-1, 11)]
    samples = Samples.of(sample_table([*rows, *others]))
    places = samples.places.codes_of(sample_table([sample(0, 0), sample(0, 0, Log((), topic="other"))]))
    found = samples.is_throughout(places, 0, 10 * minute, 5 * minute)
    assert found.tolist() == [is_throughout, True]


IDS = {
    ("new", "new"): True,
    ("new", "old"): False,
    ("new\0", "new"): False,
    (None, "old"): True,  # commits of older formats have none
    ("new", None): True,
}


@pytest.mark.parametrize(("committed", "sampled"), IDS, ids=str)
def test_an_end_of_another_topic_says_nothing(committed: str | None, sampled: str | None) -> None:
    row = commit(7, 1_000_000) | {"topic_id": committed}
    rows = timed([row], OFFSETS.append(pa.field("topic_id", pa.string())))
    samples = [sample(990_000, 1_000_000, Log((), topic_id=sampled))]
    crossed = offset_times_of(samples, [("t", 0, 7)])
    found = counted(rows, sample_table(samples), crossed, max_age_ms=AGE, as_of=1_010_000)
    is_known = [found[name][0].is_valid for name in LAG.names]
    assert is_known == [IDS[committed, sampled]] * 5 + [True]
