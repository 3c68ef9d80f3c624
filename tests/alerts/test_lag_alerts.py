"""Rules about lag and progress on real tables: they open and close when they should, over restarts of groups,
brokers and the job, and never for what is not known."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from alert_tables import DAY, HOUR, LAG_RULES_ON, SIMPLE, START, Lake, alert_settings

from streaming.alerts.episodes import Episode
from streaming.alerts.messages import summary
from streaming.alerts.rules import (
    GROUP_REWOUND,
    GROUP_STALLED,
    GROUP_STOPPED,
    JOB_BEHIND,
    LAG_SECONDS,
    OFFSET_BEYOND_LOG_END,
    OFFSET_OF_RECREATED_TOPIC,
)
from streaming.common.times import MINUTE_MS as M
from streaming.model.errors import MisuseError
from streaming.model.progress import PartitionEnds
from streaming.settings.model import AlertSettings, HealthSettings
from streaming.tables.snapshot import Snapshot

PLACE = ("orders", 0)
MEMBER = {"member_id": "m", "group_instance_id": None, "client_id": "app-1", "client_host": "/10.0.0.1"}
WITH_MEMBERS = SIMPLE | {"protocol_type": "consumer", "state": "Stable", "members": [MEMBER]}
ALL_ON = alert_settings(**LAG_RULES_ON)


def end_at(moment: int) -> int:
    """A record a second."""
    return (moment - START) // 1_000 + 10_000


@dataclass
class World:
    """A lake whose job samples the log every minute, as it has done for half an hour, and evaluates."""

    lake: Lake
    settings: AlertSettings = ALL_ON
    told: list[tuple[str, str | None, bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        moments = range(self.lake.now - 30 * M, self.lake.now + 1, 2 * M)
        self.lake.sample({PLACE: end_at}, at=moments)
        self.restart()

    def restart(self) -> None:
        self.evaluator = self.lake.evaluator(self.settings)

    def sample(self) -> None:
        self.lake.sample({PLACE: end_at})

    def commit(self, group: str, behind: int = 30, at: int | None = None, **value: Any) -> None:
        """Commit a position that is so many seconds behind."""
        moment = self.lake.now if at is None else at
        self.lake.commit(group, PLACE, offset=end_at(moment) - behind, at=moment, **value)

    def pass_minutes(
        self, count: int, *groups: str, step: int = 1, behind: int = 30, samples: bool = True
    ) -> list[Episode]:
        """Let the job run on: every minute (or few) groups commit, ends are sampled, the rules evaluated."""
        changed = []
        for _ in range(0, count, step):
            self.lake.now += step * M
            for group in groups:
                self.commit(group, behind)
            self.lake.heartbeat()
            if samples:
                self.sample()
            changed += self.evaluate()
        return changed

    def evaluate(self) -> list[Episode]:
        changed = self.evaluator.evaluate()
        self.told += [(one.rule, one.finding.group, one.is_open) for one in changed]
        return changed

    def evaluate_twice(self) -> list[Episode]:
        """Evaluate, and again after the time for which a rewind must last."""
        first = self.evaluate()
        self.lake.pass_time(2 * M)
        return first + self.evaluate()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture
def world(lake: Lake) -> World:
    """Group g commits until now, group dead has not for 13 minutes: its lag is 13.5 minutes."""
    world = World(lake)
    for group, last in {"dead": -13, "g": 0}.items():
        for minutes in (-8, -4, 0):
            world.commit(group, at=START + (last + minutes) * M)
    return world


def rules_of(episodes: Iterable[Episode]) -> list[tuple[str, bool]]:
    return [(one.rule, one.is_open) for one in episodes]


OPENED = [(GROUP_STOPPED.id, "dead", True), (LAG_SECONDS.id, "dead", True)]
CLOSED = [(GROUP_STOPPED.id, "dead", False), (LAG_SECONDS.id, "dead", False)]


def test_group_that_stops_is_reported_once_and_until_it_commits(world: World) -> None:
    world.settings = alert_settings(group_stopped="on")
    world.restart()
    for minutes in (-15, -11, -7):
        world.commit("late", at=START + minutes * M)
    (opened,) = world.evaluate()
    assert (opened.rule, opened.finding.group, opened.is_open) == (GROUP_STOPPED.id, "dead", True)
    assert opened.finding.facts == {
        "offsets": 1,
        "committed_offset": 9_190,
        "last_commit_at": "2023-11-14T22:00:20.000Z",
    }
    assert 'group "dead": records are waiting' in summary(opened)
    assert world.evaluate() == []  # nothing is new
    assert world.pass_minutes(3, "g") == []
    (late,) = world.pass_minutes(2, "g")
    assert (late.finding.group, late.opened_at - START) == ("late", 4 * M)
    assert rules_of(world.pass_minutes(1, "g", "dead")) == [(GROUP_STOPPED.id, False)]
    assert world.pass_minutes(2, "g", "dead") == []


def test_groups_are_judged_by_the_settings_of_health(world: World) -> None:
    lax = HealthSettings(window_ms=10 * M, min_commits=3, min_lag=10_000)
    assert world.lake.evaluator(world.settings, health=lax).evaluate() == []
    assert (GROUP_STOPPED.id, True) in rules_of(world.lake.evaluator(world.settings).evaluate())


@pytest.mark.more
def test_rolling_restart_of_a_group_is_told_by_no_rule(lake: Lake) -> None:
    world = World(lake)
    for minutes in (-8, -4, 0):
        world.commit("g", at=START + minutes * M)
    for _ in range(2):
        world.pass_minutes(1, "g")
        world.lake.set_group("g")  # its members have left
        world.pass_minutes(2)
        world.commit("g", behind=170)  # others take over, a little before where it was
        world.evaluate()
        world.lake.now += 30_000
        world.commit("g", behind=0)
        world.lake.now += 30_000
    world.pass_minutes(3, "g")
    assert world.told == []


@pytest.mark.more
@pytest.mark.parametrize(
    "minutes", [[3], pytest.param([4, 5, 6], marks=pytest.mark.more)], ids=["short", "long"]
)
def test_restart_of_the_brokers_opens_and_closes_nothing(world: World, minutes: list[int]) -> None:
    world.evaluate()
    assert sorted(world.told) == OPENED
    for some in minutes:  # nothing is read, sampled, produced or committed
        world.lake.now += some * M
        world.evaluate()
    world.pass_minutes(1)  # g needs longer to come back than producers
    world.pass_minutes(12, "g", step=3)
    assert [one for one in world.told[2:] if one[0] != JOB_BEHIND.id] == []
    world.pass_minutes(1, "g", "dead")
    assert sorted(one for one in world.told[2:] if one[0] != JOB_BEHIND.id) == CLOSED
    assert len(world.told) == (4 if minutes == [3] else 6)


@pytest.mark.more
def test_restart_of_the_job_opens_and_closes_nothing(world: World) -> None:
    world.evaluate()
    world.lake.now += 12 * M
    world.restart()
    assert rules_of(world.evaluate()) == [(JOB_BEHIND.id, True)]
    unread = {0: PartitionEnds(10_000, 10_000)}
    world.lake.heartbeat(unread)  # it starts, and has not read anything yet
    world.sample()
    assert world.evaluate() == []
    for minutes in (4, 8):
        world.commit("g", at=START + minutes * M)
        world.lake.heartbeat(unread)
    world.lake.now += 30_000
    world.lake.reach(10_000)
    assert rules_of(world.evaluate()) == [(JOB_BEHIND.id, False)]
    assert world.pass_minutes(12, "g", step=3) == []


@pytest.mark.more
def test_group_that_stands_still_is_reported_until_it_moves(lake: Lake) -> None:
    world = World(lake, alert_settings(groups=[{"pattern": "sta*", "group_stalled": "on"}]))
    for minutes, offset in {-14: 8_000, -11: 9_000, -8: 9_000, -5: 9_000, -2: 9_000}.items():
        for group in ("stands", "other"):  # of which nobody asked
            lake.commit(group, PLACE, offset=offset, at=START + minutes * M)
    (opened,) = world.pass_minutes(1)
    assert (opened.rule, opened.finding.group) == (GROUP_STALLED.id, "stands")
    assert (opened.finding.facts, opened.is_open) == ({"offsets": 1, "committed_offset": 9_000}, True)
    lake.commit("stands", PLACE, offset=9_000)
    assert world.pass_minutes(1) == []
    assert rules_of(world.pass_minutes(3, "stands")) == [(GROUP_STALLED.id, False)]


def test_lag_time_is_reported_over_the_threshold_of_the_group_and_closes_below_half_of_it(
    world: World,
) -> None:
    world.settings = alert_settings(
        group_rewound="off", lag_seconds="1h", groups=[{"pattern": "g", "lag_seconds": "5m"}]
    )
    world.restart()
    assert world.pass_minutes(1, "g", behind=240) == []
    (opened,) = world.pass_minutes(2, "g", behind=360)
    assert (opened.rule, opened.finding.group) == (LAG_SECONDS.id, "g")
    assert abs(opened.finding.facts["lag_seconds"] - 360) <= 60
    assert world.pass_minutes(2, "g", behind=240) == []  # about the threshold: neither told nor written
    assert world.pass_minutes(2, "g", behind=400) == []
    assert world.lake.episodes() == [opened]
    assert rules_of(world.pass_minutes(2, "g", behind=60)) == [(LAG_SECONDS.id, False)]


@pytest.mark.parametrize(("behind", "is_at_least"), [(600, False), (2_400, True)])
def test_lag_time_that_may_be_longer_is_told_as_at_least(lake: Lake, behind: int, is_at_least: bool) -> None:
    """Samples go back for half an hour."""
    world = World(lake, alert_settings(lag_seconds="5m"))
    (opened,) = world.pass_minutes(2, "g", behind=behind)
    assert ("and at least " in summary(opened)) is is_at_least


def test_ends_that_are_not_known_close_nothing_and_open_nothing(world: World) -> None:
    world.evaluate()
    told = list(world.told)
    world.pass_minutes(9, samples=False, step=3)
    world.commit("dead")
    world.pass_minutes(1, samples=False)
    assert world.told == told
    world.pass_minutes(1, "g", "dead", behind=0)
    assert sorted(world.told[2:]) == CLOSED


def test_rules_that_are_switched_off_close_what_they_opened(world: World) -> None:
    world.evaluate()
    world.settings = alert_settings()
    world.restart()
    assert sorted(rules_of(world.pass_minutes(1))) == [(GROUP_STOPPED.id, False), (LAG_SECONDS.id, False)]


@pytest.mark.parametrize("clock", [pytest.param(-2 * M, marks=pytest.mark.more), 0, 3 * HOUR])
def test_offset_beyond_the_end_of_its_log(lake: Lake, clock: int) -> None:
    """Whatever the coordinator's clock says."""
    world = World(lake)
    lake.pass_time(1_000)
    lake.commit("g", PLACE, offset=15_000, at=lake.now + clock)
    assert world.evaluate() == []  # the newest sample is older
    lake.pass_time(3_000)
    world.sample()
    (opened,) = world.evaluate()
    assert (opened.rule, opened.finding.group) == (OFFSET_BEYOND_LOG_END.id, "g")
    assert opened.finding.facts["committed_offset"] == 15_000
    lake.commit("g", PLACE, offset=16_000)
    assert world.pass_minutes(2) == []
    assert (OFFSET_BEYOND_LOG_END.id, False) in rules_of(world.pass_minutes(1, "g"))


def with_recreated_topic(lake: Lake) -> tuple[World, Episode]:
    """A group with members and one without have offsets of the former topic; the alert about it."""
    world = World(lake, alert_settings(offset_of_recreated_topic="on", group_rewound="off"))
    world.commit("g", group_value=WITH_MEMBERS)
    world.commit("gone")
    lake.pass_time(1_000)
    world.sample()  # the former one was still there
    for _ in range(2):
        lake.pass_time(M)
        lake.sample({PLACE: 5}, topic_id="new")
    (opened,) = world.evaluate()
    return world, opened


def test_offset_of_a_recreated_topic_is_reported_of_groups_with_members(lake: Lake) -> None:
    world, opened = with_recreated_topic(lake)
    assert (opened.rule, opened.finding.group) == (OFFSET_OF_RECREATED_TOPIC.id, "g")
    for value in ({}, {"state": "Stable", "members": [MEMBER]}):  # its members restart
        lake.pass_time(M)
        lake.set_group("g", **value)
        lake.sample({PLACE: 5}, topic_id="new")
        assert world.evaluate() == []
    lake.commit("g", PLACE, offset=3, group_value=WITH_MEMBERS)
    lake.pass_time(M)
    lake.sample({PLACE: 7}, topic_id="new")
    assert rules_of(world.evaluate()) == [(OFFSET_OF_RECREATED_TOPIC.id, False)]


def test_offset_of_a_recreated_topic_is_known_by_topic_ids_however_old_the_samples_are(lake: Lake) -> None:
    world, opened = with_recreated_topic(lake)
    lake.set_group("g")
    for _ in range(9):  # no sample is newer than five minutes for the last four of these
        lake.pass_time(M)
        lake.heartbeat()
        assert world.evaluate() == []
    lake.pass_time(6 * M)
    lake.heartbeat()
    (closed,) = world.evaluate()
    assert (closed.id, closed.is_open) == (opened.id, False)


# --- group_rewound ---------------------------------------------------------------------------------------


def test_group_that_goes_back_is_told_by_default_with_who_can_have_done_it(lake: Lake) -> None:
    world = World(lake, alert_settings())
    lake.commit("g", PLACE, ("orders", 1), offset=500)
    lake.pass_time(M)
    assert world.evaluate() == []
    lake.commit("g", PLACE, ("orders", 1), offset=200, group_value=None)
    assert world.evaluate() == []  # not yet
    lake.pass_time(M)
    (opened,) = world.evaluate()
    assert (opened.rule, opened.finding.severity) == (GROUP_REWOUND.id, "warning")
    facts = opened.finding.facts
    assert (facts["offsets"], facts["offset_before"], facts["committed_offset"]) == (2, 500, 200)
    assert "while no member was there" in summary(opened)
    lake.pass_time(HOUR)
    lake.commit("g", PLACE, offset=900)
    lake.set_group("g", state="Stable", members=[MEMBER])
    lake.commit("g", PLACE, offset=100, group_value=None)
    (more,) = world.evaluate_twice()
    assert (more.id, more.revision, more.finding.facts["offsets"]) == (opened.id, 1, 3)
    assert "app-1/10.0.0.1" not in summary(more)
    assert more.finding.facts["went_back_at"] == facts["went_back_at"]
    lake.pass_time(DAY)
    assert rules_of(world.evaluate()) == [(GROUP_REWOUND.id, False)]


@pytest.mark.more
def test_what_happened_first_is_reported_after_it_was_repaired_by_hand(lake: Lake) -> None:
    """It went back to the begin; when that was seen, a tool put it where it had been before, which is further
    back than it had come meanwhile."""
    world = World(lake, alert_settings())
    lake.commit("g", PLACE, offset=500)
    lake.pass_time(M)
    lake.commit("g", PLACE, offset=10)
    (opened,) = world.evaluate_twice()
    assert "from 500 to 10" in summary(opened)
    lake.commit("g", PLACE, offset=9_000)
    lake.pass_time(HOUR)
    lake.commit("g", PLACE, offset=500, group_value=None)
    (repaired,) = world.evaluate_twice()
    text = "moved back; the furthest is orders-0, from 500 to 10 at"
    assert (text in summary(opened), text in summary(repaired)) == (True, True)
    assert "while no member was there" not in summary(repaired)
    assert (repaired.finding.facts["offsets"], repaired.id) == (2, opened.id)
    lake.pass_time(2 * DAY)
    world.evaluate()
    lake.commit("g", PLACE, offset=20)
    (again,) = world.evaluate_twice()
    assert "from 500 to 20" in summary(again)  # another incident


def test_small_step_back_and_a_replay_of_the_same_offset_are_no_rewind(lake: Lake) -> None:
    world = World(lake, alert_settings())
    lake.commit("g", offset=500)
    lake.pass_time(M)
    lake.commit("g", offset=450)
    world.evaluate()
    lake.pass_time(30_000)
    lake.commit("g", offset=500)
    lake.commit("g", offset=500)
    assert world.evaluate_twice() == []


def test_one_that_comes_back_later_is_a_rewind(lake: Lake) -> None:
    world = World(lake, alert_settings())
    lake.commit("g", offset=500)
    lake.commit("g", offset=450)
    lake.pass_time(2 * M)
    lake.commit("g", offset=600)
    assert rules_of(world.evaluate()) == [(GROUP_REWOUND.id, True)]


def test_rewind_is_reported_once_whoever_evaluates_and_when(lake: Lake) -> None:
    lake.commit("g", PLACE, ("orders", 1), offset=500)
    lake.commit("other", offset=500)
    lake.pass_time(2 * M)
    lake.commit("other", offset=300)
    lake.pass_time(M)
    lake.commit("g", PLACE, offset=200)
    (opened,) = lake.evaluate()  # of g it is not known yet
    assert lake.evaluate() == []
    lake.pass_time(40_000)
    assert (opened.finding.group, opened.finding.facts["offsets"]) == ("other", 1)
    lake.commit("other", ("orders", 7), offset=2)
    lake.pass_time(30_000)
    lake.commit("other", ("orders", 7), offset=1)
    (second,) = lake.evaluate()
    assert (second.finding.group, second.finding.facts["offsets"]) == ("g", 1)
    lake.pass_time(M)
    (more,) = lake.evaluate()
    assert (more.id, more.finding.facts["offsets"]) == (opened.id, 2)
    assert lake.evaluate() == []


def test_each_rewind_of_a_batch_counts_when_it_is_decided(lake: Lake) -> None:
    """The job read a batch late: one offset was back after two minutes, the other may still come back."""
    both = (PLACE, ("orders", 1))
    lake.commit("g", *both, offset=500)
    lake.pass_time(5 * M)
    lake.commit("g", *both, offset=200, at=lake.now - 2 * M)
    lake.commit("g", PLACE, offset=500)
    (opened,) = lake.evaluate()
    assert opened.finding.facts["offsets"] == 1
    lake.pass_time(M)
    (more,) = lake.evaluate()
    assert (more.id, more.finding.facts["offsets"]) == (opened.id, 2)
    assert lake.evaluate() == []


def test_rewinds_of_history_of_groups_left_out_and_of_topics_recreated_are_not_told(tmp_path: Path) -> None:
    lake = Lake(tmp_path, first_ends={0: PartitionEnds(5, 5)})
    settings = alert_settings(groups=[{"pattern": "quiet", "group_rewound": "off"}])
    for offset in (500, 200):
        lake.commit("old", offset=offset)
    lake.commit("anew", offset=500)
    for group in ("quiet", "loud"):
        lake.commit(group, ("orders-2", 1), offset=500)
    lake.sample({PLACE: 600, ("orders-2", 1): 500})
    lake.pass_time(M)
    lake.sample({PLACE: 5}, topic_id="new")
    for group in ("quiet", "loud"):
        lake.commit(group, ("orders-2", 1), offset=5)
    lake.commit("anew", offset=5)
    lake.pass_time(2 * M)
    assert [one.finding.group for one in lake.evaluate(settings)] == ["loud"]


def test_ids_of_commits_say_whether_the_topic_was_recreated(lake: Lake) -> None:
    lake.sample({PLACE: 600})
    lake.commit("other log", offset=500, topic_id="first")
    lake.commit("same log", offset=500, topic_id="second")
    lake.pass_time(M)
    lake.commit("other log", offset=5, topic_id="second")
    lake.commit("same log", offset=5, topic_id="second")
    lake.sample({PLACE: 5}, topic_id="second")  # by time alone neither would be told
    lake.pass_time(2 * M)
    assert [one.finding.group for one in lake.evaluate()] == ["same log"]


def test_rewind_waits_for_a_partition_that_is_not_current(lake: Lake) -> None:
    lake.commit("g", offset=500)
    evaluator = lake.evaluator()
    lake.held_back = {0}
    lake.commit("g", offset=100)
    for _ in range(2):
        lake.pass_time(M)
        assert GROUP_REWOUND.id not in [one.rule for one in evaluator.evaluate()]
    lake.held_back = set()
    lake.pass_time(M)
    assert (GROUP_REWOUND.id, True) in rules_of(evaluator.evaluate())


# --- cost, and settings ----------------------------------------------------------------------------------

READS = ("newest_ends", "offset_times", "ends_between", "commits", "rewinds", "topics_over_time", "drops")


def test_what_is_off_or_at_rest_reads_nothing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []

    def count(name: str) -> None:
        read = getattr(Snapshot, name)

        def counted(at: Snapshot, *args: Any, **of: Any) -> Any:
            reads.append(name)
            return read(at, *args, **of)

        monkeypatch.setattr(Snapshot, name, counted)

    for name in READS:
        count(name)
    world = World(lake, alert_settings())
    world.commit("g")
    world.evaluate()
    assert sorted(reads) == ["drops", "rewinds"]
    world.pass_minutes(3)
    assert len(reads) == 2
    world.settings = ALL_ON
    world.restart()
    world.evaluate()
    assert "newest_ends" in reads
    reads.clear()
    for _ in range(3):
        world.lake.pass_time(30_000)
        world.evaluate()
    assert reads == []  # no sample since


def test_rules_for_groups_that_are_excluded_are_refused() -> None:
    groups = [{"pattern": "x", "treat": "exclude", "group_stopped": "on"}]
    with pytest.raises(MisuseError, match="'x' excludes its groups from alerts, and yet sets group_stopped"):
        alert_settings(groups=groups)


@pytest.mark.parametrize(("given", "held"), [("off", 0), ("10m", 600_000)])
def test_lag_time_is_a_duration_or_off(given: str, held: int) -> None:
    assert alert_settings(lag_seconds=given).lag_seconds_ms == held


def test_lag_time_of_zero_is_refused() -> None:
    with pytest.raises(MisuseError, match="lag_seconds: expected a duration above 0"):
        alert_settings(lag_seconds="0s")


# --- partitions that nothing was ever committed for ------------------------------------------------------


def having(*partitions: int, **member: Any) -> dict[str, Any]:
    """A group whose one member has partitions of the topic."""
    assigned = [{"topic": "orders", "topic_id": None, "partitions": list(partitions)}]
    return WITH_MEMBERS | {"members": [MEMBER | member | {"assignment": assigned}]}


@pytest.fixture
def stuck(lake: Lake) -> World:
    """The member of g has got its partition now."""
    world = World(lake, alert_settings(group_stopped="on"))
    lake.set_group("g", **having(0))
    return world


@pytest.mark.more
def test_a_partition_without_commits_is_reported_once_until_something_is_committed(stuck: World) -> None:
    assert stuck.pass_minutes(10) == []
    (opened,) = stuck.pass_minutes(8)
    assert (opened.rule, opened.finding.group, opened.opened_at - START) == (GROUP_STOPPED.id, "g", 11 * M)
    assert (opened.finding.topic, opened.finding.partition) == PLACE
    assert opened.finding.facts == {
        "offsets": 1,
        "assigned_since": "2023-11-14T22:13:20.000Z",
        "member": "app-1/10.0.0.1",
        "waiting": 10_000 + 11 * 60,
    }
    assert summary(opened) == (
        'group "g": records are waiting in 1 partition without any commit: orders-0 has '
        "been assigned since 2023-11-14T22:13:20.000Z or longer, now to app-1/10.0.0.1; when this was "
        "noticed 10660 records waited"
    )
    stuck.commit("g", group_value=None)
    assert rules_of(stuck.pass_minutes(1)) == [(GROUP_STOPPED.id, False)]


@pytest.mark.more
def test_it_closes_when_no_member_has_the_partition(stuck: World) -> None:
    assert rules_of(stuck.pass_minutes(15)) == [(GROUP_STOPPED.id, True)]
    stuck.lake.set_group("g", **having(0, client_id="app-2"))
    assert stuck.pass_minutes(4) == []  # it is not known yet whether that one does better
    stuck.lake.set_group("g")
    assert rules_of(stuck.pass_minutes(1)) == [(GROUP_STOPPED.id, False)]


@pytest.mark.more
def test_it_is_not_told_of_what_is_not_known_or_not_certain(stuck: World) -> None:
    stuck.lake.set_group("nameless", **having(0, client_id=None, client_host=None))
    stuck.lake.set_group("unsampled", **having(1))
    stuck.lake.sample({("orders", 2): 500}, at=range(START - 20 * M, START, M))
    for _ in range(15):
        stuck.lake.set_group("latest", **having(2)) if stuck.lake.now == START else None
        stuck.lake.sample({("orders", 2): 500})
        stuck.pass_minutes(1)
    told = {one.finding.group: summary(one) for one in stuck.lake.episodes(GROUP_STOPPED.id)}
    assert set(told) == {"g", "nameless"}
    assert "now to a member of unknown name;" in told["nameless"]


@pytest.mark.more
def test_a_gap_of_samples_opens_nothing_about_it(stuck: World) -> None:
    assert stuck.pass_minutes(5) == []
    assert stuck.pass_minutes(7, samples=False) == []
    assert stuck.pass_minutes(9) == []
    assert rules_of(stuck.pass_minutes(3)) == [(GROUP_STOPPED.id, True)]


@pytest.mark.more
def test_other_rules_say_nothing_of_it(stuck: World) -> None:
    stuck.settings = ALL_ON
    stuck.restart()
    assert rules_of(stuck.pass_minutes(15)) == [(GROUP_STOPPED.id, True)]
    stuck.commit("g", behind=-500, group_value=None)
    assert rules_of(stuck.pass_minutes(2)) == [(GROUP_STOPPED.id, False), (OFFSET_BEYOND_LOG_END.id, True)]
    stuck.lake.drop("g", PLACE, cause="removed")
    again = rules_of(stuck.pass_minutes(1))
    assert again == [(GROUP_STOPPED.id, True), (OFFSET_BEYOND_LOG_END.id, False)]
