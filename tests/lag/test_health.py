"""The health of groups: Burrow's rules, its known false alarms, and what cannot be known."""

from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sampled_logs import SAMPLES, Log, sample, sample_table
from watched_groups import MAX_AGE_MS, Key, World, judged_plainly

from streaming.common.arrays import from_numbers, from_texts
from streaming.common.times import HOUR_MS, MINUTE_MS
from streaming.lag.health import GROUP_HEALTH, PARTITION_HEALTH, health, partition_health
from streaming.lag.health_over_time import STATUS_CHANGES, status_changes
from streaming.lag.health_rules import REASONS, STATUSES, HealthRules
from streaming.lag.log_ranges import LAG
from streaming.lag.runs import COMMITS
from streaming.lag.samples import Samples
from streaming.model.schemas import TIMESTAMP

S, M, H = 1_000, MINUTE_MS, HOUR_MS
START = 10 * H
STEADY = Log(range(0, 24 * H, S))  # a record a second
IDLE = Log(())


def judge(world: World, now: int, rules: HealthRules | None = None) -> dict[str, Any]:
    positions, commits, samples = world.tables(now)
    rows = health(positions, commits, samples, now=now, max_age_ms=MAX_AGE_MS, rules=rules)
    assert rows.schema == GROUP_HEALTH
    rows.validate(full=True)
    (row,) = rows.to_pylist()
    found: dict[str, Any] = row
    return found


def status(world: World, now: int, rules: HealthRules | None = None) -> str:
    found: str = judge(world, now, rules)["status"]
    return found


def consumer(
    log: Log, since: int, until: int, *, every: int, behind: int = 0
) -> list[tuple[int | None, int]]:
    """A consumer that commits regularly, always so many records behind."""
    return [(max(0, log.end_at(at) - behind), at) for at in range(since, until, every)]


def steady(log: Log = STEADY, *, until: int = START, every: int = 5 * S, behind: int = 0) -> World:
    """Two hours of it, with a sample a minute until four hours later."""
    begin = START - 2 * H
    world = World().sampled(log, begin - 2 * M + 7 * S, START + 4 * H)
    return world.committed(consumer(log, begin, until, every=every, behind=behind))


# --- each rule -------------------------------------------------------------------------------------------


def test_ok_where_the_group_is_caught_up() -> None:
    found = judge(steady(), START)
    assert (found["status"], found["lag"]) == ("OK", 2)  # it commits every 5 s, and each end is 2 s younger


def test_ok_of_a_group_that_is_always_a_little_behind() -> None:
    """What it is behind comes within less than the samples can tell."""
    assert status(steady(behind=20), START) == "OK"


def test_warning_where_the_lag_grows() -> None:
    slow = [((at - START + 3 * H) // (2 * S), at) for at in range(START - H, START, 5 * S)]
    world = World().sampled(STEADY, START - 2 * H, START).committed(slow)
    found = judge(world, START)
    assert (found["status"], found["reason"]) == ("WARNING", "lag never fell")
    assert found["commits"] == 121


def test_ok_where_a_group_is_far_behind_and_catches_up() -> None:
    fast = [((at - START + 2 * H) * 3 // (2 * S), at) for at in range(START - H, START, 5 * S)]
    world = World().sampled(STEADY, START - 2 * H, START).committed(fast)
    assert judge(world, START)["reason"] == "catching up"


def test_stalled_where_commits_stay_at_one_offset_while_records_wait() -> None:
    world = steady(until=START - 30 * M).committed([(500, at) for at in range(START - 30 * M, START, 5 * S)])
    world.commits = [row for row in world.commits if row[1] == 500]
    found = judge(world, START)
    assert found["status"] == "STALLED"
    assert found["since"].timestamp() * S == START - 30 * M
    assert (found["first_offset"], found["last_offset"]) == (500, 500)


def test_stopped_where_nothing_is_committed_while_records_wait() -> None:
    found = judge(steady(), START + 11 * M)
    assert (found["status"], found["reason"]) == ("STOPPED", "no commits, records waiting")
    assert found["since"].timestamp() * S == START - 5 * S
    assert found["last_offset"] == STEADY.end_at(START - 5 * S)


def test_rewound_where_an_offset_went_back_and_did_not_return() -> None:
    world = steady().committed([(20_000, START), (20_000, START + 30 * S)])
    found = judge(world, START + 2 * M)
    assert (found["status"], found["topic"], found["partition"]) == ("REWOUND", "t", 0)
    assert found["since"].timestamp() * S == START
    assert (found["rewound_from"], found["rewound_to"]) == (STEADY.end_at(START - 5 * S), 20_000)


def test_a_rewind_that_was_caught_up_is_ok() -> None:
    world = steady().committed([(20_000, START), (STEADY.end_at(START + M), START + M)])
    assert status(world, START + 2 * M) == "OK"


def test_the_lag_that_markers_of_transactions_leave_is_no_alarm() -> None:
    """A consumer that commits by hand stands before the marker for ever."""
    log = Log([1 * H])
    world = World().sampled(log, 1 * H - M, START).committed([(0, 1 * H + S)])
    assert judge(world, START)["lag"] == 1
    assert status(world, START) == "OK"
    assert status(world, START, HealthRules(min_lag=0, min_commits=1)) == "STOPPED"


def test_a_lag_of_a_marker_at_a_commit_of_the_window_counts_as_caught_up() -> None:
    """So it is by the sample before each commit; later ones find more, and more."""
    log = Log([START - H] * 101 + [START - 5 * M] * 500 + [START - 3 * M] * 500)
    world = World().sampled(log, START - H + M, START)
    world.committed([(100 - max(0, n - 20), START - 25 * M + n * M) for n in (*range(20), 20, 21, 22)])
    world.commits = [(key, 100, *times) for key, _, *times in world.commits]
    found = judge(world, START - M)
    assert (found["lag"], found["status"], found["reason"]) == (1_001, "OK", "caught up recently")
    assert judge(world, START - M, HealthRules(min_lag=0))["status"] == "STALLED"


# --- where Burrow is known to be wrong ------------------------------------------------------------------


@pytest.mark.parametrize("after", [5 * S, M, 9 * M])
def test_slow_topics_are_not_stopped_when_a_record_comes(after: int) -> None:
    """Burrow 38, 123, 128, 140: few records an hour, and a client that commits when there is something new.
    Its last commits took seconds, its silence takes an hour: to Burrow it has stopped as soon as a record
    comes."""
    burst = [START + n * S for n in range(12)]
    log = Log([*burst, *(START + H + n for n in range(5))])
    world = World().sampled(log, START - H, START + 2 * H)
    world.committed([(number + 1, at + 100) for number, at in enumerate(burst)])
    now = START + H + after
    assert world.tables(now)[0]["lag"].to_pylist() == [1 if after < M else 5]
    assert status(world, now) == "OK"


def test_slow_topics_whose_batches_take_long_are_not_stopped() -> None:
    """Every half hour some records come, that take the consumer a quarter of an hour."""
    batches = [START + n * 30 * M for n in range(5)]
    log = Log([at + n for at in batches for n in range(5)])
    world = World().sampled(log, START - H, START + 4 * H)
    world.committed([(5 * (n + 1), at + 15 * M) for n, at in enumerate(batches[:4])])
    for minute in range(30):
        assert status(world, batches[3] + 15 * M + minute * M) == "OK"
    assert status(world, batches[4] + 40 * M) in {"OK", "UNKNOWN"}
    assert status(world, batches[4] + 90 * M) == "STOPPED"


def test_a_consumer_that_runs_once_an_hour_is_not_stopped_between_its_runs() -> None:
    world = World().sampled(STEADY, START - 6 * H, START + 4 * H)
    for hour in range(-5, 0):
        run = START + hour * H
        world.committed([(STEADY.end_at(run) - 300 + n * 10, run + n * S) for n in range(31)])
    for minute in range(0, 59, 7):
        assert status(world, START - H + minute * M) != "STOPPED"
    assert status(world, START + 2 * H) == "STOPPED"


def test_commits_quicker_than_the_samples_do_not_hide_a_growing_lag() -> None:
    """Burrow 303: between two looks at the log ends the lag of quick commits falls, whatever it does."""
    slow = [((at - START + 3 * H) // (2 * S), at) for at in range(START - H, START, 200)]
    for offset in (0, 7 * S, 31 * S, 59 * S):
        world = World().sampled(STEADY, START - 2 * H + offset, START).committed(slow)
        assert status(world, START) == "WARNING"


def test_commits_quicker_than_the_samples_are_no_stall() -> None:
    """Burrow 303: ten equal commits in ten seconds, before the log ends are looked at again."""
    log = Log([START - H] * 500)
    world = World().sampled(log, START - H + M, START)
    world.committed([(100 + n // 10, START - 5 * M + n * S) for n in range(300)])
    assert status(world, START) == "OK"
    short = World().sampled(log, START - H + M, START)
    short.committed([(100, START - 20 * S + n * S) for n in range(20)])
    assert judge(short, START)["reason"] == "too few commits"


def test_no_rewind_at_a_brokers_deploy() -> None:
    """Burrow 150: as the coordinator moves, consumers start from their last commits and repeat some; and the
    clocks of two brokers order their commits in another way than the log."""
    world = steady(until=START, behind=30)
    again = STEADY.end_at(START - 60 * S) - 30
    world.committed([(again, START + 3 * S), (again + 40, START + 20 * S)])
    world.committed(consumer(STEADY, START + 45 * S, START + H, every=5 * S, behind=30))
    world.committed([(STEADY.end_at(START + H) - 30, START + H)], clock=-20 * S)
    world.committed(consumer(STEADY, START + H + 5 * S, START + 2 * H, every=5 * S, behind=30))
    found = {
        status(world, now)
        for now in [*range(START - M, START + 3 * M, 7 * S), *range(START + H - M, START + H + 3 * M, 7 * S)]
    }
    assert found <= {"OK", "UNKNOWN"}


@pytest.mark.parametrize(
    "clock", [-3 * H, 0, 15 * S, *(pytest.param(clock, marks=pytest.mark.more) for clock in (-15 * S, 3 * H))]
)
def test_brokers_clocks_make_no_negative_lag(clock: int) -> None:
    """Of a consumer that keeps up and commits every 5 s, while ends are sampled every minute."""
    world = World().sampled(STEADY, START - M, START + 30 * M)
    world.committed(consumer(STEADY, START, START + 30 * M, every=5 * S), clock=clock)
    found = [judge(world, now) for now in range(START + 10 * M, START + 20 * M, 13 * S)]
    assert {row["status"] for row in found} == {"OK"}
    assert {row["lag"] for row in found} == {0}  # the ends are sampled when it commits
    _, commits, samples = world.tables(START + 30 * M)
    moments = np.arange(START + 10 * M, START + 30 * M, M + 5 * S)
    changes, _ = status_changes(commits, samples, moments=moments, max_age_ms=MAX_AGE_MS)
    assert set(changes["status"].to_pylist()) == {"OK"}


@pytest.mark.parametrize("clock", [-3 * H, -15 * S, 0, 15 * S, 3 * H])
def test_a_position_beyond_the_end_is_reported_with_the_next_sample(clock: int) -> None:
    world = World().sampled(STEADY, START - M, START + 30 * M)
    world.committed([(STEADY.end_at(START) + 5_000, START)], clock=clock)
    told = [judge(world, START + after)["reason"] for after in (0, M - 1, M, 20 * M)]
    assert told == ["beyond the log end"] * 4
    world.committed([(STEADY.end_at(START) + 6_000, START + S)], clock=clock)
    world.committed([(STEADY.end_at(START) + 6_000, START + n * 7 * S) for n in range(1, 50)], clock=clock)
    told = [judge(world, START + after)["reason"] for after in (S, M - 1, M, 5 * M, 20 * M)]
    assert told == ["beyond the log end"] * 5
    _, commits, samples = world.tables(START + 20 * M)
    moments = np.arange(START + M, START + 20 * M, 7 * S)
    changes, _ = status_changes(commits, samples, moments=moments, max_age_ms=MAX_AGE_MS)
    assert changes["reason"].to_pylist() == ["beyond the log end"]


def test_status_is_not_frozen_while_a_group_is_stopped() -> None:
    """Burrow 287: without a commit nothing is looked at again."""
    world = steady()
    seen = [judge(world, START + minutes * M) for minutes in (0, 2, 15, 60, 200)]
    assert [row["status"] for row in seen] == ["OK", "OK", "STOPPED", "STOPPED", "STOPPED"]
    lags = [row["lag"] for row in seen[1:]]
    assert lags == sorted(set(lags))
    times = [row["lag_seconds"] for row in seen[1:]]
    assert times == sorted(set(times))


def test_a_group_that_is_back_is_not_stopped_any_more() -> None:
    world = steady().committed(consumer(STEADY, START + 20 * M, START + H, every=5 * S))
    assert status(world, START + 20 * M - S) == "STOPPED"
    assert {status(world, START + 20 * M + n * S) for n in range(0, 600, 20)} <= {"OK", "WARNING"}
    assert status(world, START + 31 * M) == "OK"


def test_a_rolling_restart_is_no_stop() -> None:
    """Of a group that is behind all the time: for nine minutes nothing is committed."""
    world = steady(behind=500).committed(consumer(STEADY, START + 9 * M, START + H, every=5 * S, behind=500))
    found = {status(world, now) for now in range(START, START + 30 * M, 37 * S)}
    assert "STOPPED" not in found


# --- what cannot be known --------------------------------------------------------------------------------


def test_unknown_without_a_log_end() -> None:
    world = World().committed([(5, START)])
    assert judge(world, START)["reason"] == "log end unknown"


def test_unknown_where_samples_are_old() -> None:
    world = steady()
    world.samples = [row for row in world.samples if row["sampled_at"] < START]
    assert status(world, START + 4 * M) == "OK"
    assert judge(world, START + 2 * H)["reason"] == "log end unknown"


def test_unknown_where_too_few_commits_tell_the_pace() -> None:
    world = (
        World()
        .sampled(STEADY, START - H, START + 48 * H, every=4 * M)
        .committed([(5, START), (6, START + S)])
    )
    assert judge(world, START + 12 * H)["reason"] == "too few commits"
    assert status(world, START + 25 * H) == "STOPPED"  # whatever its pace was


def test_unknown_where_samples_begin_after_the_silence() -> None:
    world = steady()
    world.samples = [row for row in world.samples if row["sampled_at"] > START + H]
    found = [judge(world, START + H + minutes * M)["reason"] for minutes in (2, 9, 12)]
    assert found[:2] == ["log end was unknown at the last commit"] * 2
    assert found[2] == "no commits, records waiting"


def test_unknown_where_the_lag_was_not_known_at_every_commit() -> None:
    world = steady(behind=5_000)
    world.samples = [row for row in world.samples if row["sampled_at"] > START - 4 * M]
    assert judge(world, START)["reason"] == "lag was not known at every commit"


def test_unknown_where_the_newest_commit_was_not_readable() -> None:
    world = steady(behind=5_000).committed([(None, START)])
    assert status(world, START + S) == "UNKNOWN"
    positions, commits, samples = steady(behind=5_000).tables(START)
    unreadable = positions.append_column("unreadable_source_offset", pa.array([7], pa.int64()))
    found = health(unreadable, commits.slice(0, 0), samples, now=START, max_age_ms=MAX_AGE_MS)
    assert found["reason"].to_pylist() == ["newest commit could not be read"]


def test_unknown_where_newer_commits_may_not_have_been_read() -> None:
    positions, commits, samples = steady().tables(START + H)
    for is_current, expected in ((True, "STOPPED"), (False, "UNKNOWN")):
        rows = positions.append_column("is_current", pa.array([is_current]))
        found = health(rows, commits, samples, now=START + H, max_age_ms=MAX_AGE_MS)
        assert found["status"].to_pylist() == [expected]


def test_unknown_beyond_the_end_of_the_log() -> None:
    """A topic recreated: there is no progress to speak of."""
    world = steady(until=START)
    anew = [sample(START + minute * M, 3, Log((), topic_id="new")) for minute in range(1, 20)]
    world.samples = [row for row in world.samples if row["sampled_at"] <= START] + anew
    found = judge(world, START + 15 * M)
    assert (found["status"], found["reason"]) == ("UNKNOWN", "beyond the log end")
    assert found["lag"] < 0


@pytest.mark.parametrize(("until", "expected"), [(START, "STALLED"), (START - H, "STOPPED")])
def test_a_position_that_is_too_far_behind_for_a_number_is_not_caught_up(until: int, expected: str) -> None:
    world = World().sampled(STEADY, START - 2 * H, START)
    world.committed([(-(2**63), at) for at in range(START - 2 * H, until, 30 * S)])
    assert judge(world, START)["status"] == expected
    _, commits, samples = world.tables(START)
    found, _ = status_changes(commits, samples, moments=np.array([START]), max_age_ms=MAX_AGE_MS)
    assert found.select(["status", "lag"]).to_pylist() == [{"status": expected, "lag": 2**63 - 1}]


def test_the_end_of_a_recreated_topic_makes_no_stop() -> None:
    """The log of the new one was not beyond the position ten minutes ago: it was not there."""
    world = World().sampled(STEADY, START - 2 * H, START - 5 * M)
    world.committed(consumer(STEADY, START - 2 * H, START - H, every=5 * S)).committed([(10, START - H + S)])
    world.samples += [sample(START - 3 * M + n * M, 500, Log((), topic_id="new")) for n in range(4)]
    assert judge(world, START)["reason"] == "log end was unknown at the last commit"


def test_a_gap_in_the_commits_of_a_key_begins_a_new_piece() -> None:
    """It was removed or not readable in between: what came before says nothing."""
    world = steady(until=START - 8 * M).committed([(None, START - 8 * M)])
    world.committed([(50, START - 7 * M + n * S) for n in range(400)])
    assert judge(world, START - 4 * M)["reason"] == "commits span too short a time"
    assert judge(world, START)["reason"] == "commits do not advance"


# --- groups ----------------------------------------------------------------------------------------------


def test_a_group_takes_its_worst_partition() -> None:
    world = steady()
    for partition, behind in ((1, 3_000), (2, 9_000)):
        other = Log(STEADY.produced, partition=partition)
        world.sampled(other, START - 3 * H, START + H)
        world.committed([(behind, START - H + n * 5 * S) for n in range(800)], ("g", "t", partition))
    other = Log(STEADY.produced, topic="u")
    world.sampled(other, START - 3 * H, START + H)
    world.committed(consumer(other, START - H, START, every=5 * S), ("fine", "u", 0))
    positions, commits, samples = world.tables(START)
    found = health(positions, commits, samples, now=START, max_age_ms=MAX_AGE_MS).to_pylist()
    assert [(row["group"], row["status"], row["topic"], row["partition"]) for row in found] == [
        ("g", "STALLED", "t", 1),
        ("fine", "OK", "u", 0),
    ]
    assert [(row["partitions"], row["partitions_not_ok"]) for row in found] == [(3, 2), (1, 0)]


def test_no_positions_are_no_groups() -> None:
    positions, commits, samples = steady().tables(START)
    none = health(positions.slice(0, 0), commits.slice(0, 0), samples, now=START, max_age_ms=MAX_AGE_MS)
    assert (none.num_rows, none.schema) == (0, GROUP_HEALTH)
    assert health(positions, commits, samples.slice(0, 0), now=START, max_age_ms=MAX_AGE_MS).num_rows == 1


def test_every_reason_has_a_status() -> None:
    assert {STATUSES[number] for _, number in REASONS} == set(STATUSES)


@pytest.mark.parametrize("most", [10, 2**63 - 1])
def test_ends_between_samples_are_on_a_line_and_rounded_up(most: int) -> None:
    samples = Samples.of(sample_table([sample(START, 0), sample(START + M, most)]))
    moments = np.array([START, START + 1, START + 20 * S, START + M - 1, START + M])
    before, after = np.zeros(5, np.int64), np.array([0, 1, 1, 1, 1])
    found, is_known = samples.ends_between(before, after, moments, MAX_AGE_MS)
    assert is_known.all()
    assert found.tolist() == [-(-most * passed // M) for passed in (0, 1, 20 * S, M - 1, M)]


def test_ends_between_samples_of_two_logs_are_not_known() -> None:
    rows = [sample(START + n * M, end, Log((), topic_id=name)) for n, (end, name) in enumerate(LOGS)]
    samples = Samples.of(sample_table(rows))
    before = np.arange(len(LOGS) - 1)
    _, is_known = samples.ends_between(before, before + 1, samples.at[:-1] + S, MAX_AGE_MS)
    assert is_known.tolist() == [True, False, True, True, False]  # the last one fell
    _, is_known = samples.ends_between(before, before + 1, samples.at[:-1] + S, M - S - 1)
    assert not is_known.any()


LOGS = [(5, "a"), (6, "a"), (7, "b"), (8, None), (9, "b"), (3, "b")]


# --- against plain loops ---------------------------------------------------------------------------------

RULES = HealthRules(window_ms=10 * M, min_commits=3, min_lag=1, rewind_after_ms=M, long_silence_ms=3 * H)


def random_world(random: Random, *, clocks_differ: bool = False) -> tuple[World, list[Key]]:
    """Consumers of every kind: quick, slow, in bursts, silent, stuck, set back, with gaps; and samples with
    gaps."""
    world, keys = World(), list[Key]()
    for partition in range(3):
        times, now = list[int](), START
        while now < START + 5 * H:
            now += random.choice([S, 20 * S, 20 * S, 5 * M])
            times += [now] * random.choice([1, 1, 30])
        log = Log(times, partition=partition)
        moments = [at for at in range(START, START + 5 * H, M) if random.random() < 0.97]
        gap = random.randrange(START, START + 6 * H)
        world.samples += log.samples(at for at in moments if not gap <= at <= gap + 20 * M)
        for group in "gh":
            key = (group, "t", partition)
            keys.append(key)
            at, offset = START + random.randrange(H), 0
            while at < START + 5 * H:
                every = random.choice([5 * S, 40 * S, 10 * M, 25 * M])
                kind = random.choice(["follow", "stay", "slow", "back", "none", "follow"])
                for _ in range(random.randrange(1, 25)):
                    end = log.end_at(at)
                    steps = {"follow": end - offset, "slow": (end - offset) // 3, "stay": 0, "none": 0}
                    offset += steps.get(kind, -random.randrange(offset + 1) if random.random() < 0.2 else 1)
                    is_unreadable = kind == "none" and random.random() < 0.1
                    clock = -clocks_differ * random.randrange(40 * S)
                    world.committed([(None if is_unreadable else offset, at)], key, clock=clock)
                    at += every
                at += random.choice([0, 0, 30 * M, H])
    return world, keys


@pytest.mark.parametrize("seed", range(15))
def test_rules_are_those_of_plain_loops(seed: int) -> None:
    random = Random(seed)
    world, keys = random_world(random, clocks_differ=seed % 2 == 1)
    for now in sorted(random.sample(range(START + H + 1, START + 5 * H), 12)):
        positions, commits, samples = world.tables(now)
        rows = partition_health(positions, commits, samples, now=now, max_age_ms=MAX_AGE_MS, rules=RULES)
        assert rows.schema.names[-len(PARTITION_HEALTH) :] == PARTITION_HEALTH.names
        found = {(row["group"], row["topic"], row["partition"]): row["status"] for row in rows.to_pylist()}
        expected = {key: judged_plainly(world, key, now, RULES) for key in keys if key in found}
        assert found == expected


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.more) for seed in (2, 3))])
def test_changes_of_status_are_those_of_judging_every_moment(seed: int) -> None:
    random = Random(seed)
    world, _ = random_world(random)
    moments = list(range(START + H + 7 * S, START + 5 * H, 3 * M + 11 * S))
    held: dict[str, str] = {}
    expected = []
    for now in moments:
        positions, commits, samples = world.tables(now)
        rows = health(positions, commits, samples, now=now, max_age_ms=MAX_AGE_MS, rules=RULES)
        for row in sorted(rows.to_pylist(), key=lambda one: str(one["group"])):
            if held.get(row["group"]) != row["status"]:
                expected.append((now, row["group"], row["status"], held.get(row["group"]), row["since"]))
                held[row["group"]] = row["status"]
    _, commits, samples = world.tables(moments[-1])
    found, _ = status_changes(commits, samples, moments=np.array(moments), max_age_ms=MAX_AGE_MS, rules=RULES)
    assert found.schema == STATUS_CHANGES
    found = [
        (int(row["at"].timestamp() * S), row["group"], row["status"], row["status_before"], row["since"])
        for row in found.to_pylist()
    ]
    by_time = sorted(found, key=lambda row: (row[0], row[1]))
    assert [row[:4] for row in by_time] == [row[:4] for row in expected]
    assert len(found) > 5


def test_the_status_of_a_removed_position_stands_until_there_is_another() -> None:
    rows = [(5, START), (None, START + 5 * M), (700, START + 30 * M)]
    commits = pa.table(
        [
            ["g"] * 3,
            ["t"] * 3,
            pa.array([0] * 3, pa.int32()),
            pa.array([offset for offset, _ in rows], pa.int64()),
            *[pa.array([at * 1_000 for _, at in rows], pa.int64()).cast(TIMESTAMP)] * 2,
            [False, True, False],
            pa.nulls(3, pa.string()),
        ],
        schema=COMMITS,
    )
    samples = sample_table([])
    moments = np.arange(START, START + H, M)
    changes, judged = status_changes(commits, samples, moments=moments, max_age_ms=MAX_AGE_MS)
    assert (changes["status"].to_pylist(), len(judged)) == (["UNKNOWN"], 1)
    for some, own in ((commits.slice(0, 2), moments[10:]), (commits.slice(0, 0), moments)):
        none = status_changes(some, samples, moments=own, max_age_ms=MAX_AGE_MS)
        assert list(map(len, none)) == [0, 0]


# --- size ------------------------------------------------------------------------------------------------


def test_the_groups_of_two_hundred_thousand_positions_are_judged() -> None:
    groups, partitions, each = 20_000, 10, 10
    count, now = groups * partitions, START
    names = from_texts([f"group-{number:05}" for number in range(groups)])
    key = [
        names.take(from_numbers(np.arange(count) // partitions)),
        from_texts(["orders"]).take(from_numbers(np.zeros(count, np.int64))),
        from_numbers((np.arange(count) % partitions).astype(np.int32)),
    ]
    offsets = np.arange(count) * 7 % 5_000
    positions = pa.table(
        [
            *key,
            *[from_numbers(offsets)] * 2,
            from_numbers(np.full(count, 10_000)),
            from_numbers(10_000 - offsets),
            from_numbers((10_000 - offsets) / 3),
            pa.repeat(False, count),
            pa.repeat(now * 1_000, count).cast(TIMESTAMP),
            pa.repeat(now * 1_000 - 5_000_000, count).cast(TIMESTAMP),
        ],
        [*COMMITS.names[:4], *LAG.names, "commit_timestamp"],
    )
    older = np.repeat(np.arange(each)[::-1], count)
    commits = pa.table(
        [
            *(pa.chunked_array([column] * each) for column in key),
            from_numbers(np.tile(offsets, each) - older),
            *[from_numbers((now - 5 * S - older * 70 * S) * 1_000).cast(TIMESTAMP)] * 2,
            pa.repeat(False, count * each),
            pa.nulls(count * each, pa.string()),
        ],
        schema=COMMITS,
    )
    moments = np.arange(now - 20 * M, now, M)
    samples = pa.table(
        [
            pa.repeat("orders", len(moments) * partitions),
            pa.repeat("id", len(moments) * partitions),
            from_numbers(np.tile(np.arange(partitions, dtype=np.int32), len(moments))),
            from_numbers(np.repeat(moments, partitions) * 1_000).cast(TIMESTAMP),
            from_numbers(np.zeros(len(moments) * partitions, np.int64)),
            from_numbers(10_000 - (now - np.repeat(moments, partitions)) // (60 * S)),
        ],
        schema=SAMPLES,
    )
    found = health(positions, commits, samples, now=now, max_age_ms=MAX_AGE_MS)
    assert found["status"].value_counts().to_pylist() == [{"values": "OK", "counts": groups}]
