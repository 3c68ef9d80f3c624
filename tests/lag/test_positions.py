"""Health of positions, for which more is read step by step: as if all were judged anew at each step."""

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from sampled_logs import SAMPLES, timed

from streaming.common.keys import KEY_NAMES
from streaming.common.times import DAY_MS, MINUTE_MS
from streaming.lag.health import PARTITION_HEALTH, partition_health
from streaming.lag.log_ends import LAG
from streaming.lag.positions import MAX_AGE_MS, with_health
from streaming.lag.rules import TOO_FEW_COMMITS, HealthRules
from streaming.lag.runs import COMMITS
from streaming.model.schemas import KEY, TIMESTAMP

NOW = 1_700_000_000_000
COMMITTED = pa.schema([*COMMITS, ("sequence", pa.int64())])
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
            if since <= row["committed_at"] <= (NOW if until is None else until)
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
        raise AssertionError("not asked for")

    def crossings(self, positions: pa.Table, *, as_of: int) -> pa.Table:
        raise AssertionError("not asked for")


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
        known = {"log_end_offset": 100_000, "lag": lag, "lag_seconds": 1.0, "lag_is_at_least": False}
        own = {"committed_offset": offset, "commit_timestamp": at, "ends_as_of": NOW}
        positions.append({**key, **own, **known})
        times = [at - n * pace - chance.randint(0, 30_000) * min(n, 1) for n in range(chance.randint(1, 30))]
        commits += [
            {
                **key,
                "committed_offset": offset - n * step if chance.random() > 0.02 else None,
                "committed_at": moment,
                "is_removed": chance.random() < 0.02,
                "sequence": moment // 1_000,
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
            held.ends_between(None, since=since, until=NOW, within_ms=MAX_AGE_MS),
            now=NOW,
            max_age_ms=MAX_AGE_MS,
            rules=rules,
        )
        is_open = pc.or_(pc.invert(rows["pace_is_known"]), pc.equal(rows["reason"], TOO_FEW_COMMITS))
        is_behind = pc.greater(rows["lag"], rules.min_lag)
        is_open = pc.and_(pc.and_(is_open, is_behind), pa.scalar(reach != reaches[-1]))
        found.append(rows.filter(pc.invert(is_open)))
        pending = pending.filter(is_open)
    return pa.concat_tables(found)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("min_commits", [1, 3])
def test_health_step_by_step_equals_that_of_all_positions_judged_anew(seed: int, min_commits: int) -> None:
    positions, held = world(seed)
    rules = replace(HealthRules(), min_commits=min_commits, long_silence_ms=DAY_MS)
    found = with_health(held, positions, moment=NOW, max_age_ms=MAX_AGE_MS, rules=rules)
    assert found.select(POSITIONS.names).equals(positions)
    asked = ["group", *PARTITION_HEALTH.names]
    is_behind = pc.greater(positions["lag"], rules.min_lag)  # what is not is told from itself alone
    expected = judged_anew(held, positions.filter(is_behind), rules).select(asked).sort_by("group")
    assert found.filter(is_behind).select(asked).sort_by("group").to_pylist() == expected.to_pylist()
    assert len(set(expected["reason"].to_pylist())) > 3
    assert set(found.filter(pc.invert(is_behind))["status"].to_pylist()) == {"OK"}
    assert found.schema.names[: len(KEY_NAMES)] == KEY_NAMES
