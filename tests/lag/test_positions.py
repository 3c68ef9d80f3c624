"""Health of positions, for which more is read step by step: as if all were judged anew at each step."""

import random
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from sampled_logs import CROSSED, SAMPLES, Log, timed

from streaming.common.keys import KEY_NAMES
from streaming.common.times import DAY_MS, HOUR_MS, MINUTE_MS
from streaming.lag import health
from streaming.lag.health import PARTITION_HEALTH, partition_health
from streaming.lag.health_rules import TOO_FEW_COMMITS, HealthRules
from streaming.lag.log_ranges import LAG
from streaming.lag.positions import offsets_with_lag, with_health
from streaming.lag.runs import COMMITS
from streaming.lag.samples import MAX_SAMPLE_AGE_MS
from streaming.model.schemas import KEY, PAUSES, TIMESTAMP

NOW = 1_700_000_000_000
BEFORE = [("offset_before", pa.int64()), ("topic_id_before", pa.string())]
COMMITTED = pa.schema([*COMMITS, ("sequence", pa.int64()), *BEFORE])
OFFSETS = pa.schema([*KEY, ("committed_offset", pa.int64()), ("commit_timestamp", TIMESTAMP)])
POSITIONS = pa.schema([*KEY, ("committed_offset", pa.int64()), *LAG, ("commit_timestamp", TIMESTAMP)])


@dataclass(frozen=True)
class Held:
    """Commits and samples as the tables have them; commits in no order, unless asked for in order."""

    commits_held: list[dict[str, Any]]
    samples: list[dict[str, Any]]

    def commits(
        self,
        groups: Sequence[str] | None = None,
        *,
        since: int,
        until: int | None = None,
        in_order: bool = True,
    ) -> pa.Table:
        rows = [
            row
            for row in self.commits_held
            if since <= row["written_at"] <= (NOW if until is None else until)
            and (groups is None or row["group"] in groups)
        ]
        return timed(rows if in_order else random.Random(1).sample(rows, len(rows)), COMMITTED)

    def ends_between(
        self, topics: Collection[str] | None, *, since: int, until: int, within_ms: int
    ) -> pa.Table:
        own = [row for row in self.samples if topics is None or row["topic"] in topics]
        before = {row["topic"]: row for row in own if since - within_ms <= row["sampled_at"] <= since}
        return timed([*before.values(), *(row for row in own if since < row["sampled_at"] <= until)], SAMPLES)

    def newest_ends(self, topics: Collection[str] | None, *, as_of: int, within_ms: int) -> pa.Table:
        return self.ends_between(topics, since=as_of, until=as_of, within_ms=within_ms)

    def commit_pieces(
        self, groups: Sequence[str] | None = None, *, since: int, until: int | None = None
    ) -> Iterator[pa.Table]:
        rows = self.commits(groups, since=since, until=until, in_order=False)
        return (rows.slice(start, 7) for start in range(0, len(rows), 7))

    def pauses(self, groups: Sequence[str] | None = None, *, since: int, longer_than_ms: int) -> pa.Table:
        return PAUSES.empty_table()  # no history is kept

    def whole_since(self) -> int | None:
        return NOW

    def offset_times(self, positions: pa.Table, *, as_of: int) -> pa.Table:
        return pa.table([pa.nulls(len(positions), field.type) for field in CROSSED], schema=CROSSED)


def world(seed: int) -> tuple[pa.Table, Held]:
    """Make positions of some topics that were committed at all kinds of paces, and stopped or not."""
    chance = random.Random(seed)
    topics = ["a", "a\0", "b"]
    samples = [
        {
            "topic": topic,
            "topic_id": "id",
            "partition": 0,
            "sampled_at": NOW - minute * MINUTE_MS,
            "log_start": 0,
            "log_end": 100_000 - 10 * minute,
        }
        for minute in range(1_600, -1, -1)
        for topic in topics
        if not (topic == "b" and 300 < minute < 900)  # the brokers were away
    ]
    positions, commits = [], []
    for number in range(60):
        key = {"group": f"g-{number}", "topic": chance.choice(topics), "partition": 0}
        pace = chance.choice([1, 4, 25, 50, 300]) * MINUTE_MS
        at = NOW - chance.choice([0, 3, 15, 40, 200, 1_200, 4_000]) * MINUTE_MS
        offset, step = 100_000 - chance.choice([0, 50, 500, 20_000]), chance.choice([0, 10, 3])
        lag = max(0, 100_000 - offset)
        known = {
            "offset_as_of_ends": offset,
            "log_end_offset": 100_000,
            "lag": lag,
            "lag_seconds": 1.0,
            "lag_is_at_least": False,
        }
        own = {"committed_offset": offset, "commit_timestamp": at, "ends_as_of": NOW}
        positions.append({**key, **own, **known})
        times = [at - n * pace - chance.randint(0, 30_000) * min(n, 1) for n in range(chance.randint(1, 30))]
        commits += [
            {
                **key,
                "committed_offset": offset - n * step if chance.random() > 0.02 else None,
                "committed_at": moment,
                "written_at": moment,
                "is_removed": chance.random() < 0.02,
                "sequence": moment // 1_000,
                "topic_id": None,
                "offset_before": None,
                "topic_id_before": None,
            }
            for n, moment in enumerate(times)
        ]
    commits.sort(key=lambda row: row["sequence"])
    return timed(positions, POSITIONS), Held(commits, samples)


def judged_anew(held: Held, positions: pa.Table, rules: HealthRules) -> pa.Table:
    """Judge at each step all that is pending, from all that was committed since."""
    window = rules.window_ms
    pending, found = positions, []
    reaches = sorted({2 * window, 12 * window, rules.long_silence_ms + window})
    for reach in reaches:
        since = NOW - reach
        rows = partition_health(
            pending,
            held.commits(since=since),
            held.ends_between(None, since=since, until=NOW, within_ms=MAX_SAMPLE_AGE_MS),
            now=NOW,
            max_age_ms=MAX_SAMPLE_AGE_MS,
            rules=rules,
        )
        is_too_few = pc.is_in(rows["reason"], value_set=pa.array(TOO_FEW_COMMITS))
        is_open = pc.or_(pc.invert(rows["pace_is_known"]), is_too_few)
        is_behind = pc.greater(rows["lag"], rules.min_lag)
        is_open = pc.and_(pc.and_(is_open, is_behind), pa.scalar(reach != reaches[-1]))
        found.append(rows.filter(pc.invert(is_open)))
        pending = pending.filter(is_open)
    return pa.concat_tables(found)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("min_commits", [1, 3])
def test_health_step_by_step_equals_that_of_all_positions_judged_again(seed: int, min_commits: int) -> None:
    positions, held = world(seed)
    rules = replace(HealthRules(), min_commits=min_commits, long_silence_ms=DAY_MS)
    found = with_health(held, positions, moment=NOW, max_age_ms=MAX_SAMPLE_AGE_MS, rules=rules)
    assert found.select(POSITIONS.names).equals(positions)
    asked = ["group", *PARTITION_HEALTH.names]
    is_behind = pc.greater(positions["lag"], rules.min_lag)  # what is not is told from itself alone
    expected = judged_anew(held, positions.filter(is_behind), rules).select(asked).sort_by("group")
    assert found.filter(is_behind).select(asked).sort_by("group").to_pylist() == expected.to_pylist()
    assert len(set(expected["reason"].to_pylist())) > 3
    assert set(found.filter(pc.invert(is_behind))["status"].to_pylist()) == {"OK"}
    assert found.schema.names[: len(KEY_NAMES)] == KEY_NAMES


@pytest.mark.parametrize("seed", range(3))
def test_positions_judged_in_portions_are_judged_as_all_at_once(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    positions, held = world(seed)
    rules = replace(HealthRules(), long_silence_ms=DAY_MS)
    expected = with_health(held, positions, moment=NOW, max_age_ms=MAX_SAMPLE_AGE_MS, rules=rules)
    for at_once in 1, 40:
        monkeypatch.setattr(health, "_JUDGED_AT_ONCE", at_once)
        found = with_health(held, positions, moment=NOW, max_age_ms=MAX_SAMPLE_AGE_MS, rules=rules)
        assert found.equals(expected)
    assert "STOPPED" in found["status"].to_pylist()


# --- lag -------------------------------------------------------------------------------------------------


def tailer(chance: random.Random, clock: Callable[[], int]) -> tuple[pa.Table, Held]:
    """Groups that follow a log, or are behind or beyond its end, with commits up to now; the coordinator's
    clock is so far ahead (ms) of the job's."""
    log = Log(range(NOW - 20 * MINUTE_MS, NOW + MINUTE_MS, 1_000), topic="a\0")
    samples = log.samples(range(NOW - 10 * MINUTE_MS - 7_000, NOW, MINUTE_MS))
    positions, commits = [], []
    for number in range(40):
        key = {"group": f"g-{number}\0", "topic": log.topic, "partition": 0}
        every, off = chance.choice([5, 20, 90]) * 1_000, chance.choice([0, 0, 0, -50, 50])
        before = None
        for at in range(NOW - 9 * MINUTE_MS, NOW - chance.randrange(2 * every), every):
            own = {**key, "committed_offset": log.end_at(at) + off, "sequence": at // 1_000}
            written = own | {"written_at": at, "committed_at": at + clock(), "is_removed": False}
            commits.append(written | {"offset_before": before, "topic_id": None, "topic_id_before": None})
            before = own["committed_offset"]
        positions.append({**key, "committed_offset": own["committed_offset"], "commit_timestamp": None})
        positions[-1]["commit_timestamp"] = written["committed_at"]
    return timed(positions, OFFSETS), Held(commits, samples)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("skew", [0, 15_000, 8 * HOUR_MS])
def test_lag_does_not_depend_on_the_brokers_clocks(seed: int, skew: int) -> None:
    """Nor on the moment that is asked about, where more was written since: the job is ahead of it."""
    skews = random.Random(seed)
    for moment in NOW, NOW - 2_000:
        positions, plain = tailer(random.Random(seed), lambda: 0)
        expected = offsets_with_lag(plain, positions, moment=moment, max_age_ms=MAX_SAMPLE_AGE_MS).to_pylist()
        positions, held = tailer(random.Random(seed), lambda: skews.randint(-skew, skew))
        found = offsets_with_lag(held, positions, moment=moment, max_age_ms=MAX_SAMPLE_AGE_MS).to_pylist()
        assert [{name: row[name] for name in LAG.names} for row in found] == [
            {name: row[name] for name in LAG.names} for row in expected
        ]
        newest = plain.samples[-1]
        for row in found:
            own = [one for one in plain.commits_held if one["group"] == row["group"]]
            by_then = [one["committed_offset"] for one in own if one["written_at"] <= newest["sampled_at"]]
            assert (row["offset_as_of_ends"], row["log_end_offset"]) == (by_then[-1], newest["log_end"])
            assert row["lag"] == newest["log_end"] - by_then[-1]
        lags = {row["lag"] for row in found}
        assert min(lags) < 0 < max(lags)
        assert any(row["offset_as_of_ends"] < row["committed_offset"] for row in found)


def test_commits_are_read_back_to_the_oldest_sample_that_counts() -> None:
    positions, held = tailer(random.Random(1), lambda: 0)
    asked = list[tuple[Sequence[str] | None, int]]()

    @dataclass(frozen=True)
    class Noted(Held):
        def commits(self, groups: Sequence[str] | None = None, **moments: Any) -> pa.Table:
            asked.append((groups, moments["since"]))
            return super().commits(groups, **moments)

    noted = Noted(held.commits_held, held.samples)
    offsets_with_lag(noted, positions, moment=NOW, max_age_ms=MAX_SAMPLE_AGE_MS)
    [(groups, since)] = asked
    assert sorted(groups or ()) == sorted(positions["group"].to_pylist())
    assert since == held.samples[-1]["sampled_at"] + 1
    offsets_with_lag(noted, positions, moment=NOW + 10 * MAX_SAMPLE_AGE_MS, max_age_ms=MAX_SAMPLE_AGE_MS)
    assert len(asked) == 1  # no sample counts
