"""Many offsets are evaluated in parts, of which only the rows that rules select are in memory together: with
the same results as all rows at once."""

import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from weakref import ref

import pyarrow as pa
import pytest
from alert_tables import DAY, EMPTY, HOUR, LAG_RULES_ON, RETENTION, SIMPLE, START, Lake, alert_settings
from new_tables import new_tables

from streaming.alerts import evaluation, rules
from streaming.alerts.episodes import Episode
from streaming.alerts.evaluation import Evaluator
from streaming.alerts.rules import (
    JOB_BEHIND,
    LAG_SECONDS,
    OFFSET_BELOW_LOG_START,
    PARTITION_STALLED,
    RETENTION_UNKNOWN,
    UNKNOWN_RECORD_VERSION,
)
from streaming.alerts.rules.view import RuleContext
from streaming.alerts.table import AlertsConflictError, AlertTable
from streaming.brokers.facts import LogRange
from streaming.common.times import MINUTE_MS as M
from streaming.expiry.causes import EXPIRED
from streaming.lag.habits import Habits
from streaming.settings.model import HealthSettings
from streaming.tables import folding
from streaming.tables.snapshot import LiveRows, Snapshot
from streaming.tables.tables import Tables

ALL_ON = alert_settings(
    **LAG_RULES_ON,
    groups=[
        {"pattern": "sum-*", "treat": "summarize"},
        {"pattern": "skip-*", "treat": "exclude"},
        {"pattern": "own-*", "lag_seconds": "20m", "group_stopped": "off", "warning": "3d"},
    ],
)
HEALTH = HealthSettings(window_ms=10 * M, min_commits=2, min_lag=1)
GROUPS = ["", *(f"{kind}-{number}" for kind in ("app", "sum", "own", "skip") for number in range(6))]
MANY, FEW = 1_000_000, 40  # rows at once
PLACES = [(topic, number) for topic in ("orders", "users") for number in range(2)]
MEMBER = {"member_id": "m", "group_instance_id": None, "client_id": "app", "client_host": "/10.0.0.1"}


def having(places: Iterable[tuple[str, int]]) -> dict[str, Any]:
    """A group whose one member has these partitions."""
    assigned = [{"topic": topic, "topic_id": None, "partitions": [number]} for topic, number in places]
    members = [MEMBER | {"assignment": assigned}]
    topics = sorted({topic for topic, _ in places})
    return EMPTY | {"state": "Stable", "members": members, "subscribed_topics": topics}


@dataclass
class Compared:
    """Two evaluators of the same tables with alerts of their own: one reads all at once, one in parts."""

    lake: Lake
    evaluators: Mapping[int, Evaluator]

    @classmethod
    def of(cls, lake: Lake, starts: Mapping[tuple[str, int], int], root: Path) -> "Compared":
        def ask(partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], LogRange]:
            return {one: LogRange(starts[one], 2**40) for one in partitions if one in starts}

        def evaluator(tables: Tables) -> Evaluator:
            return Evaluator(
                tables,
                AlertTable(tables),
                ALL_ON,
                receivers=["log"],
                ask_log_ranges=ask,
                health=HEALTH,
                clock=lambda: lake.now,
            )

        return cls(lake, {MANY: evaluator(lake.tables), FEW: evaluator(_with_own_alerts(lake.tables, root))})

    def evaluate(self, monkeypatch: pytest.MonkeyPatch) -> list[Episode]:
        found = []
        for most, evaluator in self.evaluators.items():
            monkeypatch.setattr(folding, "_ROWS_OF_A_PART", most)
            changed = evaluator.evaluate()
            found.append(
                (sorted(changed, key=lambda one: (one.rule, one.finding.subject)), evaluator.offsets)
            )
        assert found[0] == found[1]
        return found[0][0]


def _with_own_alerts(tables: Tables, root: Path) -> Tables:
    own = new_tables(root)
    for folder in root.iterdir():
        if folder.name != "alerts":
            shutil.rmtree(folder)
            folder.symlink_to(Path(tables.root) / folder.name)
    return own


@dataclass
class World:
    """Groups that commit, stop, stall, go back, or lose their offsets, at random."""

    lake: Lake
    random: Random

    def __post_init__(self) -> None:
        self.starts = dict.fromkeys(PLACES, 0)
        self.topic_ids = dict.fromkeys(["orders", "users"], "id")
        self.held = {(group, place): self.end() for group in GROUPS for place in PLACES if self.often(0.6)}
        self.ways = {group: self.way() for group in GROUPS}

    def often(self, share: float) -> bool:
        return self.random.random() < share

    def way(self) -> str:
        return self.random.choice(["runs", "runs", "runs", "stands", "stops", "late", "beyond"])

    def end(self) -> int:
        """A record a second."""
        return (self.lake.now - START) // 1_000 + 10_000

    def pass_minutes(self) -> None:
        self.lake.now += 3 * M
        for group in GROUPS:
            if self.often(0.08):
                self.ways[group] = self.way()
        moved = [key for key in self.held if self.ways[key[0]] != "stops" and self.often(0.7)]
        for key in moved:
            self.held[key] = self.committed(*key)
        rows = []
        for (group, place), offset in self.held.items():
            if (group, place) in moved:
                kept = self.lake.now - (RETENTION - self.random.randrange(3 * DAY) if self.often(0.02) else 0)
                value = {"committed_offset": offset, "metadata": "", "commit_timestamp": kept}
                rows.append(self.lake._change("offset", group, place, value, self.lake.now))
        for group in self.random.sample(GROUPS, 3):
            value = self.random.choice([EMPTY, SIMPLE, having(PLACES), having(PLACES[:2])])
            rows.append(self.lake._change("group", group, (None, None), value, self.lake.now))
        self.lake._append(rows, 0)
        if self.often(0.95):
            for topic_id in {*self.topic_ids.values()}:
                ends = {place: self.end() for place in PLACES if self.topic_ids[place[0]] == topic_id}
                self.lake.sample(ends, topic_id=topic_id)

    def committed(self, group: str, place: tuple[str, int]) -> int:
        behind = {"late": 1_500, "beyond": -50}.get(self.ways[group], 10)
        if self.often(0.01):
            behind = 5_000
        return self.held[group, place] if self.ways[group] == "stands" else self.end() - behind

    def change(self) -> None:
        """Let something happen that is not a commit."""
        if self.often(0.5):
            self.starts[self.random.choice(PLACES)] = self.end() - self.random.choice([10_000, 1_000, 5])
        if self.often(0.2):
            self.topic_ids["users"] += "-anew"
        if self.often(0.5) and self.held:
            group, place = self.random.choice(list(self.held))
            del self.held[group, place]
            self.lake.drop(group, place, cause=self.random.choice([EXPIRED, "deleted"]))
        if self.often(0.4):
            self.lake.tables.fold()
        if self.often(0.05):
            self.lake.pass_time(DAY + HOUR)


OF_THE_JOB = (JOB_BEHIND, PARTITION_STALLED, RETENTION_UNKNOWN, UNKNOWN_RECORD_VERSION)
OF_ROWS = {rule.id for rule in rules.RULES if rule not in OF_THE_JOB}


@pytest.mark.parametrize("steps", [5, pytest.param(22, marks=pytest.mark.more)])
def test_an_evaluation_in_parts_finds_what_one_of_all_rows_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    told = set[tuple[str, bool]]()
    lake = Lake(tmp_path / "lake")
    world = World(lake, Random(0))
    compared = Compared.of(lake, world.starts, tmp_path / "in parts")
    for _ in range(steps):
        world.pass_minutes()
        world.change()
        changed = compared.evaluate(monkeypatch)
        told |= {(one.rule, one.finding.pattern is not None) for one in changed}
    if steps < 22:
        assert len({rule for rule, _ in told}) > len(OF_ROWS) / 2
        return
    assert {rule for rule, _ in told} >= OF_ROWS
    assert {rule for rule, is_summary in told if is_summary} >= {LAG_SECONDS.id, OFFSET_BELOW_LOG_START.id}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Twenty groups with twelve offsets each, committed now, half of them folded."""
    lake = Lake(tmp_path)
    places = [("orders", number) for number in range(12)]
    for number in range(20):
        lake.commit(f"g{number}", *places, offset=9_990)
        if number == 9:
            lake.tables.fold()
    return lake


def test_rules_get_only_the_rows_that_they_select(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def judge(view: RuleContext) -> Any:
        assert view.lag is not None
        given.append([len(rows) for rows in (view.offsets, view.groups, view.lag.offsets)])
        return rules.judge(view)

    monkeypatch.setattr(evaluation, "judge", judge)
    lake.commit("old", at=lake.now - RETENTION + HOUR)
    lake.sample({("orders", number): 10_000 for number in range(12)})
    for most in (MANY, FEW):
        monkeypatch.setattr(folding, "_ROWS_OF_A_PART", most)
        evaluator = lake.evaluator(ALL_ON)
        assert len(evaluator.evaluate()) == (most == MANY)
        assert evaluator.offsets == 241
    assert given == [[241, 21, 241], [1, 1, 0]]


def test_a_part_is_no_longer_held_when_the_next_one_is_read(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, parts = list[ref[pa.Table]](), Snapshot.parts

    def one_at_a_time(at: Snapshot) -> list[Callable[[], LiveRows]]:
        def noted(read: Callable[[], LiveRows]) -> LiveRows:
            assert [table() for table in held] == [None] * len(held)
            live = read()
            held.extend([ref(live.offsets), ref(live.groups)])
            return live

        return [partial(noted, read) for read in parts(at)]

    lake.retention = None  # else the rules get other tables, with the columns of expiry
    lake.heartbeat()
    monkeypatch.setattr(folding, "_ROWS_OF_A_PART", FEW)
    monkeypatch.setattr(Snapshot, "parts", one_at_a_time)
    lake.evaluate(ALL_ON)
    assert len(held) > 4


def test_usual_pauses_are_looked_up_once_in_each_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, asked, read = Lake(tmp_path), list[int](), Habits.read

    def counted(habits: Habits, at: Any, positions: pa.Table, *, moment: int) -> Any:
        asked.append(len(positions))
        return read(habits, at, positions, moment=moment)

    monkeypatch.setattr(Habits, "read", counted)
    monkeypatch.setattr(folding, "_ROWS_OF_A_PART", 8)
    for minutes in (-21, -17, -13):
        for number in range(8):
            lake.commit(f"g{number}", offset=1_000 + minutes, at=START + minutes * M)
    lake.sample({("orders", 0): lambda moment: moment // 1_000}, at=range(START - 30 * M, START + 1, 2 * M))
    evaluator = lake.evaluator(ALL_ON)
    evaluator.evaluate()
    assert len(asked) > 1
    assert sum(asked) == 8
    lake.pass_time(M)
    lake.sample({("orders", 0): lambda moment: moment // 1_000})
    evaluator.evaluate()
    assert sum(asked) == 8


def test_an_episode_opened_by_another_evaluation_meanwhile_is_a_conflict(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows that keep it open may not have been selected."""
    lake.commit("old", at=lake.now - RETENTION + HOUR)
    other, reads = lake.evaluator(), Snapshot.parts

    def meanwhile(at: Snapshot) -> list[Callable[[], LiveRows]]:
        monkeypatch.setattr(Snapshot, "parts", reads)
        other.evaluate()
        return reads(at)

    lake.evaluate()
    lake.pass_time(RETENTION - HOUR)
    monkeypatch.setattr(Snapshot, "parts", meanwhile)
    with pytest.raises(AlertsConflictError):
        lake.evaluate()
