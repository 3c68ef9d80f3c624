"""Since when groups lag, as samples tell: by cases, and held against a loop over commits and samples."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from log_end_rows import Sample, of_topic, rows_of
from new_tables import new_tables
from table_batches import Batch, append, heartbeat, offset

from streaming.common.times import HOUR_MS, MINUTE_MS, from_ms, to_ms
from streaming.lag import lagging
from streaming.lag.health_rules import HealthRules
from streaming.model.progress import PartitionProgress
from streaming.queries.lag import LagQueries
from streaming.tables.snapshot import Snapshot

S, M = 1_000, MINUTE_MS
T0 = 1_700_000_000_000 // M * M
END = T0 + 20 * M
Since = tuple[int, bool] | None


def fixed(_: int) -> int:
    return 100


def rising(begin: int) -> Callable[[int], int]:
    """100 records, and one more a second from a moment on."""
    return lambda at: 100 + max(0, at - T0 - begin) // S


@dataclass(frozen=True)
class Case:
    """What a group committed when, as the tables have it, where its log ended, and since when it lags (ms
    after T0; whether at least)."""

    commits: list[tuple[int, int | None]]
    since: Since
    end_at: Callable[[int], int] = fixed
    sampled: list[tuple[int, int]] = field(default_factory=lambda: [(0, 20 * M)])
    anew_at: int | None = None


CASES = {
    "caught up": Case([(0, 100)], None),
    "stopped": Case([(0, 100)], (5 * M + 10 * S, False), rising(5 * M)),
    "never caught up": Case([(-M, 40)], (0, True)),
    "goes on, behind": Case(
        [(M * n, max(100, 60 * n - 130)) for n in range(20)], (3 * M + 10 * S, False), rising(3 * M)
    ),
    "caught up between": Case(
        [(0, 100), (8 * M + 5 * S, 10**6), (9 * M, 400), (11 * M, 100 + 8 * 60)], (9 * M, False), rising(M)
    ),
    "caught up late": Case([(0, 100), (19 * M + 45 * S, 100 + 60 * 20)], None, rising(M)),
    "went back": Case([(0, 100), (9 * M - S, 10)], (9 * M, False)),
    "first committed behind": Case([(4 * M - S, 10)], (4 * M, True)),
    "not sampled for a time": Case([(0, 100)], (13 * M, True), rising(2 * M), [(0, 6 * M), (13 * M, 20 * M)]),
    "sampled a little late": Case(
        [(0, 100)], (2 * M + 10 * S, False), rising(2 * M), [(0, 6 * M), (10 * M, 20 * M)]
    ),
    "removed, and again": Case([(0, 10), (5 * M - S, None), (7 * M - S, 20)], (7 * M, True)),
    "recreated": Case([(0, 10)], (7 * M, True), anew_at=7 * M),
    "caught up, and recreated": Case([(0, 100)], None, anew_at=7 * M),
    "beyond the end": Case([(0, 100), (3 * M, 200)], None),
}


class World:
    """The groups of the cases; partition n of the topic of its name has that of one, sampled every 10 s."""

    def __init__(self, root: Path, cases: dict[str, Case]) -> None:
        self.tables, self.cases = new_tables(root), cases
        moments = sorted({at for case in cases.values() for at, _ in case.commits})
        live: Batch = {}
        for number, at in enumerate(moments):
            batch: Batch = {
                (name, name, 0): None
                if committed is None
                else offset(committed_offset=committed, source_offset=10 * number, **self._times(at))
                for name, case in cases.items()
                for moment, committed in case.commits
                if moment == at
            }
            done = {3: PartitionProgress(position=10 * number + 9, loaded=True)}
            append(self.tables, batch, live=live, now=T0 + at, partitions=done)
            live |= batch
        heartbeat(self.tables, END)
        self.tables.append_log_ends(rows_of([one for name in cases for one in self.samples(name)]))

    @staticmethod
    def _times(at: int) -> dict[str, int]:
        return {"commit_timestamp": T0 + at, "source_timestamp": T0 + at}

    def samples(self, name: str) -> list[Sample]:
        case = self.cases[name]
        found = []
        for first, last in case.sampled:
            step = 10 * S if first >= 0 else M
            for at in range(T0 + first, T0 + last + 1, step):
                is_new = case.anew_at is not None and at >= T0 + case.anew_at
                found.append(Sample(at, name, 0, case.end_at(at), "new" if is_new else "old"))
        if case.anew_at is not None:
            found += [of_topic(T0, name, "old"), of_topic(T0 + case.anew_at, name, "new")]
        return found

    def since(self, name: str, **named: Any) -> Since:
        queries = LagQueries(self.tables, **named)
        row = queries.list_lag([name], as_of=from_ms(END)).rows.to_pylist()[0]
        since, is_at_least = row["since"], row["since_is_at_least"]
        assert (since is None) == (is_at_least is None)
        return None if since is None else (to_ms(since) - T0, is_at_least)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("lagging"), CASES)


@pytest.mark.parametrize("name", CASES)
def test_since_when_a_group_lags(world: World, name: str) -> None:
    assert world.since(name) == CASES[name].since


def plainly(world: World, name: str, moment: int) -> Since:
    """Go back from sample to sample while each found the group behind."""
    case, since, told = world.cases[name], None, False
    samples = [one for one in world.samples(name) if one.partition == 0 and one.at <= moment]
    for sample in reversed(samples):
        then = [committed for at, committed in case.commits if T0 + at <= sample.at]
        if since is not None and (
            since - sample.at > 5 * M
            or sample.topic_id != samples[-1].topic_id
            or not then
            or then[-1] is None
        ):
            break
        if not then or then[-1] is None or (sample.end or 0) - then[-1] <= 1:
            told = True
            break
        since = sample.at
    return None if since is None else (since - T0, not told)


@pytest.mark.parametrize("minute", [1, 4, 8, 9, 12, 16, 20])
def test_at_any_moment_it_is_what_a_loop_finds(world: World, minute: int) -> None:
    moment = T0 + minute * M + 7 * S
    rows = LagQueries(world.tables).list_lag(as_of=from_ms(moment)).rows.to_pylist()
    for row in rows:
        since = row["since"]
        found = None if since is None else (to_ms(since) - T0, row["since_is_at_least"])
        expected = None if row["lag"] is None else plainly(world, row["group"], moment)
        assert (row["group"], found) == (row["group"], expected)


def test_so_little_lag_is_none(world: World) -> None:
    few = HealthRules(window_ms=10 * M, min_commits=3, min_lag=60)
    assert world.since("stopped", rules=few) == (6 * M + 10 * S, False)
    many = HealthRules(window_ms=10 * M, min_commits=3, min_lag=5_000)
    assert world.since("stopped", rules=many) is None


# --- how far back it is looked -----------------------------------------------------------------------------

LONG = {
    "since long": Case([(-6 * HOUR_MS, 0)], (-5 * HOUR_MS, True), sampled=[(-5 * HOUR_MS, -1), (0, 20 * M)]),
    "since longer": Case(
        [(-12 * HOUR_MS, 0), (-2 * HOUR_MS, 10)],
        (-11 * HOUR_MS, True),
        sampled=[(-11 * HOUR_MS, -1), (0, 20 * M)],
    ),
    "shortly": CASES["stopped"],
    "well": CASES["caught up"],
}


def test_older_samples_are_read_for_those_that_lag_for_so_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, LONG)
    asked: list[tuple[Any, int]] = []
    ends_between = Snapshot.ends_between

    def told(self: Snapshot, topics: Any, *, since: int, **named: Any) -> Any:
        asked.append((topics, (END - since) // HOUR_MS))
        return ends_between(self, topics, since=since, **named)

    monkeypatch.setattr(Snapshot, "ends_between", told)
    assert {name: world.since(name) for name in LONG} == {name: case.since for name, case in LONG.items()}
    long, longer = ["since long"], ["since longer"]
    assert asked == [(long, 1), (long, 8), (longer, 1), (longer, 8), (longer, 72), (["shortly"], 1)]
    monkeypatch.setattr(lagging, "_MOST_ROWS", 1)
    assert world.since("since long") == (-40 * M, True)
