"""Alerts on real tables: each rule opens and closes its episodes when it should, and only then."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from alert_tables import DAY, EMPTY, HOUR, RETENTION, SIMPLE, START, Lake, alert_settings
from deltalake import DeltaTable

from streaming.alerts.episodes import Episode, Finding
from streaming.alerts.messages import summary
from streaming.alerts.rules import (
    EMPTY_GROUP_ID,
    JOB_BEHIND,
    OFFSET_BELOW_LOG_START,
    OFFSET_EXPIRED,
    OFFSET_EXPIRING,
    PARTITION_STALLED,
    RETENTION_UNKNOWN,
    RULES,
    UNKNOWN_RECORD_VERSION,
)
from streaming.alerts.table import AlertsConflictError, AlertState, AlertTable, Delivery
from streaming.brokers.facts import BrokerError, LogRange
from streaming.common.times import iso
from streaming.expiry.causes import EXPIRED, GONE_WHILE_AWAY
from streaming.model import schemas
from streaming.model.completeness import COMPLETE_WITHIN_MS
from streaming.model.progress import PartitionEnds, Rebuild
from streaming.model.totals import Position, Totals, UnknownRecords
from streaming.tables.snapshot import LiveRows, Snapshot


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def news(changed: Iterable[Episode]) -> list[tuple[str, str, str | None, bool]]:
    """What is told: rule, severity, group (or pattern) and whether it is open."""
    return [(e.rule, e.finding.severity, e.finding.pattern or e.finding.group, e.is_open) for e in changed]


def unknown(count: int) -> Totals:
    kind = UnknownRecords(
        record_type=2, value_version=9, count=count, first=Position(0, 1), last=Position(0, count)
    )
    return Totals(unknown=(kind,))


# --- offset_expiring -------------------------------------------------------------------------------------


def test_group_whose_offsets_expire_soon_is_one_alert_that_grows_worse(lake: Lake) -> None:
    partitions = [("orders", number) for number in range(500)]
    lake.commit("billing", *partitions)
    lake.pass_time(RETENTION - DAY - 1)
    assert lake.evaluate() == []
    lake.pass_time(1)
    (opened,) = lake.evaluate()
    assert (opened.rule, opened.finding.severity) == (OFFSET_EXPIRING.id, "warning")
    assert (opened.finding.group, opened.finding.facts["offsets"]) == ("billing", 500)
    assert (opened.finding.topic, opened.finding.partition) == ("orders", 0)
    assert opened.revision == 1
    assert lake.evaluate() == []
    lake.pass_time(22 * HOUR)
    (worse,) = lake.evaluate()
    assert (worse.id, worse.revision, worse.finding.severity) == (opened.id, 2, "critical")
    lake.commit("billing", *partitions)
    (closed,) = lake.evaluate()
    assert (closed.id, closed.revision, closed.closed_at) == (opened.id, 3, lake.now)
    assert lake.evaluate() == []
    assert len(lake.episodes()) == 1


def test_the_worst_partition_is_the_first_to_go(lake: Lake) -> None:
    lake.commit("billing", ("orders", 0))
    lake.commit("billing", ("orders", 1), at=START - HOUR, offset=77)
    lake.pass_time(RETENTION - DAY)
    (opened,) = lake.evaluate()
    assert (opened.finding.partition, opened.finding.facts["committed_offset"]) == (1, 77)
    assert opened.finding.facts["offsets"] == 2
    assert opened.finding.facts["expires_at"] == "2023-11-21T21:13:20.000Z"


def test_thresholds_are_a_part_of_the_time_for_which_an_offset_is_kept(lake: Lake) -> None:
    lake.commit("quick", expire_timestamp=START + HOUR)
    for minutes, severities in {29: [], 30: ["warning"], 44: [], 45: ["critical"]}.items():
        lake.pass_time(START + minutes * 60_000 - lake.now)
        assert [episode.finding.severity for episode in lake.evaluate()] == severities


def test_the_longest_thresholds_can_be_counted_with(lake: Lake) -> None:
    names = ("warning", "critical", "close_after", "behind_warning", "behind_critical")
    lake.commit("", at=START - RETENTION + HOUR)
    told = lake.evaluate(alert_settings(**dict.fromkeys(names, "36500d")))
    assert [(e.rule, e.finding.group) for e in told] == [(OFFSET_EXPIRING.id, ""), (EMPTY_GROUP_ID.id, "")]


def test_group_in_use_does_not_expire(lake: Lake) -> None:
    stable = EMPTY | {"state": "Stable", "subscribed_topics": ["orders"], "protocol": "range"}
    lake.commit("billing", group_value=stable)
    lake.pass_time(2 * RETENTION)
    assert lake.evaluate() == []
    lake.set_group("billing", state_timestamp=lake.now - RETENTION + HOUR)
    assert news(lake.evaluate()) == [(OFFSET_EXPIRING.id, "critical", "billing", True)]
    lake.set_group("billing", **{"state": "Stable", "subscribed_topics": ["orders"], "protocol": "range"})
    assert news(lake.evaluate()) == [(OFFSET_EXPIRING.id, "critical", "billing", False)]


def test_the_same_cause_opens_the_same_episode_again(lake: Lake) -> None:
    lake.commit("billing")
    lake.pass_time(RETENTION - DAY)
    (opened,) = lake.evaluate()
    (closed,) = lake.evaluate(alert_settings(warning="3h"))  # and back again
    (again,) = lake.evaluate()
    assert [e.revision for e in (opened, closed, again)] == [1, 2, 3]
    assert again.id == opened.id
    assert [episode.is_open for episode in lake.episodes()] == [True]


def test_another_cause_is_another_episode(lake: Lake) -> None:
    for _ in range(2):
        lake.commit("billing")
        lake.evaluate()
        lake.pass_time(RETENTION - DAY)
        lake.evaluate()
    first, second = lake.episodes()
    assert first.id != second.id
    assert (first.is_open, second.is_open) == (False, True)


def test_nothing_is_said_of_expiry_while_it_is_not_known_how_long_offsets_are_kept(lake: Lake) -> None:
    lake.commit("billing")
    lake.pass_time(RETENTION - DAY)
    (opened,) = lake.evaluate()
    lake.retention = None
    lake.commit("billing")
    (unknown,) = lake.evaluate()
    assert (unknown.rule, unknown.finding.severity) == (RETENTION_UNKNOWN.id, "warning")
    assert "nothing warns of expiring offsets" in summary(unknown)
    assert lake.evaluate() == []
    assert lake.episodes(OFFSET_EXPIRING.id) == [opened]


def test_unknown_retention_is_said_once_it_could_be_asked_and_until_it_is_known(lake: Lake) -> None:
    known, lake.retention = lake.retention, None
    lake.heartbeat()
    lake.rebuild = Rebuild(since=lake.now, reason="test")
    lake.heartbeat()
    assert RETENTION_UNKNOWN.id not in [episode.rule for episode in lake.evaluate()]
    lake.rebuild = None
    lake.heartbeat()
    assert news(lake.evaluate()) == [(RETENTION_UNKNOWN.id, "warning", None, True)]
    lake.rebuild = Rebuild(since=lake.now, reason="test")
    lake.heartbeat()
    assert lake.evaluate() == []
    lake.rebuild = None
    lake.heartbeat()
    lake.retention = known
    lake.heartbeat()
    assert news(lake.evaluate()) == [(RETENTION_UNKNOWN.id, "warning", None, False)]


def test_offsets_of_topics_that_a_running_group_has_left_are_no_reason_to_start_it(lake: Lake) -> None:
    stable = EMPTY | {"state": "Stable", "subscribed_topics": ["orders"], "protocol": "range"}
    lake.commit("billing", ("orders", 0), ("former", 0), group_value=stable)
    lake.pass_time(RETENTION - HOUR)
    (opened,) = lake.evaluate()
    assert (opened.rule, opened.finding.severity) == (OFFSET_EXPIRING.id, "info")
    assert (opened.finding.topic, opened.finding.facts["offsets"]) == ("former", 1)
    assert "no longer subscribes to" in summary(opened)
    assert "unless" not in summary(opened)
    lake.set_group("billing", state_timestamp=lake.now - RETENTION + HOUR)  # and stops
    (worse,) = lake.evaluate()
    assert (worse.id, worse.finding.severity, worse.finding.facts["offsets"]) == (opened.id, "critical", 2)
    assert "unless the consumers start again" in summary(worse)


def test_severity_of_expiry_is_of_the_offset_that_expires_first(lake: Lake) -> None:
    """The first, with a retention time of its own of two hours, is critical for half an hour; both are of
    topics that the group no longer subscribes to."""
    stable = EMPTY | {"state": "Stable", "subscribed_topics": ["payments"], "protocol": "range"}
    lake.commit("billing", ("former", 0), group_value=stable)
    lake.pass_time(RETENTION - 3 * HOUR // 2)
    lake.commit("billing", group_value=None, expire_timestamp=lake.now + 2 * HOUR)
    lake.pass_time(HOUR)
    (opened,) = lake.evaluate()
    assert (opened.finding.topic, opened.finding.severity) == ("former", "info")
    lake.commit("billing", ("former", 0), group_value=None, at=lake.now - RETENTION + 5 * HOUR // 3)
    (worse,) = lake.evaluate()
    assert (worse.finding.topic, worse.finding.severity) == ("orders", "warning")
    lake.pass_time(HOUR // 2)
    (worst,) = lake.evaluate()
    assert (worst.id, worst.finding.severity, worst.finding.facts["offsets"]) == (opened.id, "critical", 2)


@pytest.mark.parametrize(
    ("group_value", "value", "remedy"),
    [
        (SIMPLE, {}, "the group commits again"),
        (SIMPLE, {"expire_timestamp": START + RETENTION}, "the consumers commit again"),
        (EMPTY | {"state_timestamp": START}, {}, "the consumers start again"),
        (EMPTY | {"state_timestamp": None}, {}, "the consumers start again"),
        (EMPTY | {"type": "consumer", "subscribed_topics": []}, {}, "the consumers start again"),
        (EMPTY | {"type": "streams", "subscribed_topics": []}, {}, "the consumers start again"),
    ],
    ids=["simple", "explicit", "classic empty", "since unknown", "consumer empty", "streams empty"],
)
def test_the_summary_of_expiry_says_what_prevents_it(
    lake: Lake, group_value: dict[str, Any], value: dict[str, Any], remedy: str
) -> None:
    lake.commit("billing", group_value=group_value, **value)
    lake.pass_time(RETENTION - HOUR)
    (opened,) = lake.evaluate()
    assert opened.finding.severity == "critical"
    assert f"will drop 1 committed offset unless {remedy}; " in summary(opened)


def test_one_offset_below_the_start_of_a_log_may_be_a_marker_of_a_transaction(lake: Lake) -> None:
    starts = {("orders", 0): 101, ("orders", 1): 100}

    def ask(places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], LogRange]:
        return {place: LogRange(starts[place], 1_000) for place in places}

    lake.commit("slow", *starts)
    (opened,) = lake.evaluate(ask_log_ranges=ask)
    assert (opened.rule, opened.finding.severity) == (OFFSET_BELOW_LOG_START.id, "info")
    assert "transaction marker" in summary(opened)
    assert "deleted unread records" not in summary(opened)
    starts["orders", 1] = 102
    (worse,) = lake.evaluate(ask_log_ranges=ask)
    assert (worse.finding.severity, worse.finding.facts["offsets"]) == ("warning", 2)
    assert "up to 2 unread records" in summary(worse)


# --- groups that are treated otherwise -------------------------------------------------------------------


def test_throw_away_groups_are_one_summary(lake: Lake) -> None:
    for number in range(3):
        lake.commit(f"console-consumer-{number}", ("orders", 0), ("orders", 1))
    lake.commit("billing")
    lake.pass_time(RETENTION - HOUR)
    changed = {episode.finding.subject: episode.finding for episode in lake.evaluate()}
    assert changed.keys() == {'group "billing"', 'groups "console-consumer-*"'}
    summary = changed['groups "console-consumer-*"']
    assert (summary.severity, summary.group, summary.pattern) == ("info", None, "console-consumer-*")
    assert (summary.facts["offsets"], summary.facts["groups"]) == (6, 3)


def test_pattern_excludes_groups_or_changes_their_thresholds(lake: Lake) -> None:
    settings = alert_settings(
        groups=[
            {"pattern": "test-*", "treat": "exclude"},
            {"pattern": "slow-[ab]", "warning": "72h", "critical": "36h"},
            {"pattern": "*", "warning": "3h"},
        ]
    )
    for group in ("test-1", "slow-a", "slow-c", "other", "console-consumer-1"):
        lake.commit(group)
    lake.pass_time(RETENTION - 36 * HOUR)
    assert news(lake.evaluate(settings)) == [(OFFSET_EXPIRING.id, "critical", "slow-a", True)]
    lake.pass_time(34 * HOUR)
    assert {episode.finding.group for episode in lake.evaluate(settings)} == {
        "slow-c",
        "other",
        "console-consumer-1",
    }


def test_groups_whose_names_look_alike_are_not_one(lake: Lake) -> None:
    names = ["", '""', "a\x1b", "a\\x1b", "a\\u001b", "grüße 🐢"]
    for name in names:
        lake.commit(name)
    lake.pass_time(RETENTION - HOUR)
    assert {episode.finding.group for episode in lake.evaluate()} == set(names)
    assert lake.evaluate() == []


# --- partitions that are not current ---------------------------------------------------------------------


def test_topic_full_of_old_commits_raises_no_false_alarm(tmp_path: Path) -> None:
    end = {0: PartitionEnds(10_000, 10_000)}
    lake = Lake(tmp_path, first_ends=end)
    for age_in_days in (30, 7, 6.5, 6.99):
        lake.commit("billing", at=round(START - age_in_days * DAY))
        lake.drop("old", cause=EXPIRED)
        assert lake.evaluate() == []
    lake.commit("billing", at=START)
    lake.reach(10_000)
    assert lake.evaluate() == []
    assert lake.episodes() == []


def test_after_a_downtime_alerts_are_held_and_job_behind_speaks(lake: Lake) -> None:
    lake.commit("held")
    lake.pass_time(RETENTION - DAY)
    assert news(lake.evaluate()) == [(OFFSET_EXPIRING.id, "warning", "held", True)]
    lake.commit("other", at=lake.now - RETENTION + DAY + HOUR)
    lake.now += 3 * HOUR  # nobody reads: `other` would be a warning, and `held` may have committed
    assert news(lake.evaluate()) == [(JOB_BEHIND.id, "critical", None, True)]
    lake.heartbeat({0: PartitionEnds(10_000, 10_000)})
    assert lake.evaluate() == []
    lake.commit("held")
    lake.reach(10_000)
    assert sorted(news(lake.evaluate())) == [
        (JOB_BEHIND.id, "critical", None, False),
        (OFFSET_EXPIRING.id, "warning", "held", False),
        (OFFSET_EXPIRING.id, "warning", "other", True),
    ]


def test_transaction_left_open_past_the_retention_is_one_alert_about_the_partition(lake: Lake) -> None:
    lake.commit("billing")
    lake.held_back = {0}
    lake.heartbeat()
    told = []
    for _ in range(8):
        lake.pass_time(DAY)
        told += news(lake.evaluate())
    assert told == [(PARTITION_STALLED.id, "warning", None, True)]
    lake.held_back = set()
    lake.commit("billing")
    assert news(lake.evaluate()) == [(PARTITION_STALLED.id, "warning", None, False)]


def test_transaction_that_was_open_before_the_job_began_is_not_overlooked(tmp_path: Path) -> None:
    lake = Lake(tmp_path, first_ends={0: PartitionEnds(2, 10)})
    lake.held_back = {0}
    lake.commit("billing", at=START - RETENTION + HOUR)
    assert lake.evaluate() == []  # it may have committed again, behind the transaction
    lake.pass_time(COMPLETE_WITHIN_MS + 1)
    assert news(lake.evaluate()) == [(PARTITION_STALLED.id, "warning", None, True)]


def test_while_the_tables_are_rebuilt_alerts_are_held(lake: Lake) -> None:
    lake.commit("held")
    lake.pass_time(RETENTION - DAY)
    assert news(lake.evaluate()) == [(OFFSET_EXPIRING.id, "warning", "held", True)]
    lake.rebuild = Rebuild(since=lake.now, reason="a test")
    lake.commit("held")
    lake.commit("other", at=lake.now - RETENTION + HOUR)
    assert lake.evaluate() == []


def test_the_death_of_the_job_is_not_taken_for_a_stalled_partition(lake: Lake) -> None:
    lake.held_back = {0}  # a transaction of a moment
    lake.heartbeat()
    lake.now += HOUR + 1
    assert news(lake.evaluate()) == [(JOB_BEHIND.id, "critical", None, True)]


def test_partition_that_is_written_to_all_the_time_is_judged(lake: Lake) -> None:
    lake.commit("billing")
    lake.now += RETENTION - HOUR
    for _ in range(3):  # never read to the newest end
        lake.now += 10_000
        lake.ends[0] += 1_000
        lake.heartbeat()
        lake.reach(lake.ends[0] - 500)
    assert lake.tables.progress().partitions[0].behind == 500
    assert news(lake.evaluate()) == [(OFFSET_EXPIRING.id, "critical", "billing", True)]


def test_groups_of_one_partition_do_not_wait_for_another(tmp_path: Path) -> None:
    lake = Lake(tmp_path, partitions=2)
    lake.commit("a", source_partition=0)
    lake.commit("b", source_partition=1)
    lake.commit("console-consumer-1", source_partition=1)
    lake.held_back = {0}
    lake.pass_time(RETENTION - HOUR)
    lake.pass_time(COMPLETE_WITHIN_MS)
    assert sorted(news(lake.evaluate())) == [
        (OFFSET_EXPIRING.id, "critical", "b", True),
        (OFFSET_EXPIRING.id, "info", "console-consumer-*", True),
        (PARTITION_STALLED.id, "warning", None, True),
    ]
    lake.commit("console-consumer-1", source_partition=1)
    assert lake.evaluate() == []  # of partition 0 nothing is known, so the summary stays as it is


# --- offset_expired --------------------------------------------------------------------------------------


def test_dropped_offsets_are_reported_once_per_group_and_counted(lake: Lake) -> None:
    lake.commit("billing", ("orders", 0), ("orders", 1), ("orders", 2))
    lake.drop("billing", ("orders", 0), ("orders", 1), cause=EXPIRED)
    (opened,) = lake.evaluate()
    assert (opened.rule, opened.finding.severity) == (OFFSET_EXPIRED.id, "critical")
    assert (opened.finding.facts["offsets"], opened.finding.facts["committed_offset"]) == (2, 100)
    at = opened.finding.facts["dropped_at"]
    assert f"has dropped 2 committed offsets, one of them (orders-1 at offset 100) at {at}; " in summary(
        opened
    )
    unknown = opened.finding.facts | {"committed_offset": None, "dropped_at": None}
    bare = replace(opened, finding=replace(opened.finding, facts=unknown))
    assert "has dropped 2 committed offsets, one of them (orders-1); consumers" in summary(bare)
    single = replace(opened, finding=replace(opened.finding, facts=opened.finding.facts | {"offsets": 1}))
    assert f"has dropped 1 committed offset (orders-1 at offset 100) at {at}; " in summary(single)
    assert lake.evaluate() == []
    lake.pass_time(20 * HOUR)
    lake.drop("billing", ("orders", 2), cause=EXPIRED)
    (more,) = lake.evaluate()
    assert (more.id, more.revision, more.finding.facts["offsets"]) == (opened.id, 1, 3)
    lake.pass_time(DAY - 1)
    lake.commit("billing")  # which does not undo it
    assert lake.evaluate() == []
    lake.pass_time(1)
    assert news(lake.evaluate()) == [(OFFSET_EXPIRED.id, "critical", "billing", False)]
    assert lake.evaluate() == []


def test_of_several_drops_the_last_is_reported(lake: Lake) -> None:
    lake.commit("billing", ("orders", 0), ("orders", 1))
    lake.drop("billing", ("orders", 0), cause=EXPIRED)
    lake.pass_time(HOUR)
    lake.drop("billing", ("orders", 1), cause=EXPIRED)
    (opened,) = lake.evaluate()
    assert (opened.finding.partition, opened.finding.facts["dropped_at"]) == (1, iso(lake.now))


def test_of_drops_in_one_batch_the_last_in_the_log_is_reported(lake: Lake) -> None:
    lake.commit("billing", *(("orders", number) for number in range(3)))
    lake.drop("billing", ("orders", 0), ("orders", 2), ("orders", 1), cause=EXPIRED)
    (opened,) = lake.evaluate()
    assert (opened.finding.partition, opened.finding.facts["offsets"]) == (1, 3)


@pytest.mark.parametrize("cause", ["deleted", "topic deleted (probable)", "gone while away", "unknown"])
def test_offsets_that_went_for_another_reason_are_no_alert(lake: Lake, cause: str) -> None:
    lake.commit("billing")
    lake.drop("billing", cause=cause)
    assert lake.evaluate() == []


def test_what_was_dropped_while_the_job_was_down_is_reported_however_late(lake: Lake) -> None:
    lake.commit("billing")
    lake.evaluate()
    lake.drop("billing", cause=EXPIRED)
    lake.pass_time(3 * DAY)
    assert news(lake.evaluate()) == [(OFFSET_EXPIRED.id, "critical", "billing", True)]


def test_what_a_rebuild_finds_expired_is_told_too(lake: Lake) -> None:
    lake.commit("billing")
    lake.drop("billing", cause=EXPIRED, source_offset=None)  # the log has nothing of it any more
    assert news(lake.evaluate()) == [(OFFSET_EXPIRED.id, "critical", "billing", True)]
    assert lake.evaluate() == []


def test_one_evaluator_and_one_that_starts_anew_each_time_tell_the_same(lake: Lake) -> None:
    lasting = lake.evaluator()
    for _ in range(2):
        lake.commit("billing")
        assert lasting.evaluate() == []
        lake.drop("billing", cause=EXPIRED)
        lake.commit("other")
        assert len(lasting.evaluate()) == 1
        assert lake.evaluate() == lasting.evaluate() == []
        lake.pass_time(DAY)
        assert [episode.is_open for episode in lasting.evaluate()] == [False]


def test_alerts_about_offsets_partitions_that_are_no_more_close(tmp_path: Path) -> None:
    lake = Lake(tmp_path, partitions=2)
    lake.commit("moved", source_partition=1, at=START - RETENTION + HOUR)
    lake.held_back = {1}
    assert news(lake.evaluate()) == [(OFFSET_EXPIRING.id, "critical", "moved", True)]
    lake.pass_time(60_000)
    lake.pass_time(COMPLETE_WITHIN_MS)
    assert news(lake.evaluate()) == [(PARTITION_STALLED.id, "warning", None, True)]
    lake.drop("moved", source_partition=1, cause=GONE_WHILE_AWAY)
    lake.forget_partition(1)
    assert sorted(news(lake.evaluate())) == [
        (OFFSET_EXPIRING.id, "critical", "moved", False),
        (PARTITION_STALLED.id, "warning", None, False),
    ]


# --- the other rules -------------------------------------------------------------------------------------


def test_offset_below_the_start_of_the_log(lake: Lake) -> None:
    starts = {("orders", 0): 500, ("orders", 1): 100, ("orders", 2): 101}
    asked = []

    def ask(places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], LogRange]:
        asked.append(sorted(places))
        return {place: LogRange(starts[place], 10_000) for place in asked[-1] if place in starts}

    lake.commit("slow", *starts)
    lake.commit("fine", ("orders", 1))
    (opened,) = lake.evaluate(ask_log_ranges=ask)
    assert asked == [sorted(starts)]
    assert (opened.rule, opened.finding.severity) == (OFFSET_BELOW_LOG_START.id, "warning")
    assert (opened.finding.group, opened.finding.partition) == ("slow", 0)
    assert (opened.finding.facts["offsets"], opened.finding.facts["offsets_gone"]) == (2, 400)
    assert lake.evaluate() == []  # without a broker: held
    del starts["orders", 0]  # its leader does not answer: held
    lake.commit("slow", ("orders", 2), offset=200)
    assert lake.evaluate(ask_log_ranges=ask) == []
    starts["orders", 0] = 500
    lake.commit("slow", ("orders", 0), offset=500)
    assert news(lake.evaluate(ask_log_ranges=ask)) == [(OFFSET_BELOW_LOG_START.id, "warning", "slow", False)]


def test_logs_are_asked_for_only_once_there_is_something_to_judge(lake: Lake) -> None:
    asked = []

    def ask(places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], LogRange]:
        asked.append(sorted(places))
        return {place: LogRange(500, 1_000) for place in asked[-1]}

    lake.commit("slow")
    assert news(lake.evaluate(ask_log_ranges=ask)) == [(OFFSET_BELOW_LOG_START.id, "warning", "slow", True)]
    lake.now += HOUR  # a downtime: the job starts, and has not read to the end yet
    restarted = lake.evaluator(ask_log_ranges=ask)
    assert news(restarted.evaluate()) == [(JOB_BEHIND.id, "warning", None, True)]
    lake.pass_time(30_000)
    assert news(restarted.evaluate()) == [(JOB_BEHIND.id, "warning", None, False)]
    assert asked == [[("orders", 0)]] * 2


def test_brokers_are_asked_at_their_own_pace_and_their_silence_is_said_once(
    lake: Lake, said: list[str]
) -> None:
    asked = []

    def ask(places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], LogRange]:
        asked.append(lake.now)
        if len(asked) < 3:
            raise BrokerError("asking: expected an answer, found none.")
        return {place: LogRange(500, 1_000) for place in places}

    lake.commit("slow")
    evaluator = lake.evaluator(ask_log_ranges=ask)
    told = []
    for _ in range(6):
        told += news(evaluator.evaluate())
        lake.pass_time(2 * 60_000)
    assert [(at - START) // 60_000 for at in asked] == [0, 6]
    assert (told, len(said)) == ([], 1)
    assert news(evaluator.evaluate()) == [(OFFSET_BELOW_LOG_START.id, "warning", "slow", True)]
    assert len(said) == 2


def test_unknown_records_are_reported_until_there_are_no_new_ones(lake: Lake) -> None:
    lake.add_totals(unknown(1))
    (opened,) = lake.evaluate()
    assert (opened.rule, opened.finding.severity) == (UNKNOWN_RECORD_VERSION.id, "warning")
    assert opened.finding.subject == "records of type 2, value version 9"
    lake.pass_time(20 * HOUR)
    lake.add_totals(unknown(1))
    (more,) = lake.evaluate()
    assert (more.id, more.revision, more.finding.facts["count"]) == (opened.id, 1, 2)
    lake.pass_time(DAY)
    assert news(lake.evaluate()) == [(UNKNOWN_RECORD_VERSION.id, "warning", None, False)]
    assert lake.evaluate() == []
    lake.add_totals(unknown(1))
    (again,) = lake.evaluate()
    assert again.id != opened.id


def test_unknown_records_are_reported_again_when_a_rebuild_has_counted_again(lake: Lake) -> None:
    lake.add_totals(unknown(5))
    (opened,) = lake.evaluate()
    lake.pass_time(DAY)
    assert news(lake.evaluate()) == [(UNKNOWN_RECORD_VERSION.id, "warning", None, False)]
    lake.count_anew()
    assert lake.evaluate() == []
    lake.add_totals(unknown(1))
    (again,) = lake.evaluate()
    assert (again.is_open, again.finding.facts["count"]) == (True, 1)
    assert again.id != opened.id
    lake.add_totals(unknown(1))
    (more,) = lake.evaluate()
    assert (more.id, more.revision, more.finding.facts["count"]) == (again.id, 1, 2)


def test_maintenance_keeps_what_rules_remember() -> None:
    remembering = [rule.id for rule in RULES if rule.remembers_closed]
    assert remembering == [schemas.UNKNOWN_RECORD_VERSION]


def test_empty_group_id_is_reported_while_it_receives_commits(lake: Lake) -> None:
    lake.commit("", ("orders", 0), ("orders", 1))
    assert news(lake.evaluate()) == [(EMPTY_GROUP_ID.id, "info", "", True)]
    lake.pass_time(DAY - 1)
    assert lake.evaluate() == []
    lake.pass_time(1)
    assert news(lake.evaluate()) == [(EMPTY_GROUP_ID.id, "info", "", False)]


def test_job_behind_grows_worse_and_ends(lake: Lake) -> None:
    lake.now += 300_000
    assert lake.evaluate() == []
    lake.now += 1
    assert news(lake.evaluate()) == [(JOB_BEHIND.id, "warning", None, True)]
    lake.now += HOUR
    assert news(lake.evaluate()) == [(JOB_BEHIND.id, "critical", None, True)]
    lake.heartbeat()
    assert news(lake.evaluate()) == [(JOB_BEHIND.id, "critical", None, False)]


def test_first_catch_up_that_takes_long_is_reported(tmp_path: Path) -> None:
    lake = Lake(tmp_path, first_ends={0: PartitionEnds(10_000, 10_000)})
    assert lake.evaluate() == []
    lake.now += 300_001
    lake.heartbeat({0: PartitionEnds(20_000, 20_000)})
    assert news(lake.evaluate()) == [(JOB_BEHIND.id, "warning", None, True)]


# --- the table -------------------------------------------------------------------------------------------


def version(lake: Lake) -> int:
    return DeltaTable(f"{lake.tables.root}/alerts").version()


def test_at_rest_rows_are_not_read_again_until_something_changes(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = []
    read = Snapshot.parts

    def counted(at: Snapshot) -> list[Callable[[], LiveRows]]:
        reads.append(at.progress.sequence)
        return read(at)

    monkeypatch.setattr(Snapshot, "parts", counted)
    evaluator = lake.evaluator()
    lake.commit("g1")
    for _ in range(4):
        lake.pass_time(1_000)
        assert evaluator.evaluate() == []
    assert len(reads) == 2  # the second time it is known that nothing changes
    lake.pass_time(RETENTION - 1_000)
    assert [episode.finding.group for episode in evaluator.evaluate()] == ["g1"]
    assert len(reads) == 2  # only time has passed
    assert lake.retention is not None
    lake.retention = replace(lake.retention, retention_ms=100 * RETENTION)
    lake.heartbeat()
    assert [episode.is_open for episode in evaluator.evaluate()] == [False]
    lake.commit("g2", at=lake.now - 100 * RETENTION + 1_000)
    lake.heartbeat()
    assert [episode.finding.group for episode in evaluator.evaluate()] == ["g2"]
    assert len(reads) == 4


def test_evaluation_that_changes_nothing_writes_nothing(lake: Lake) -> None:
    lake.commit("billing")
    lake.drop("billing", cause="deleted")
    before = version(lake)
    lake.evaluate()
    assert version(lake) == before
    lake.commit("billing", at=lake.now - RETENTION + HOUR)
    lake.evaluate()
    assert version(lake) == before + 1
    lake.evaluate()
    assert version(lake) == before + 1


def test_of_two_evaluations_at_once_one_is_refused_and_loses_nothing(lake: Lake) -> None:
    lake.commit("billing")
    lake.drop("billing", cause=EXPIRED)
    intruder = lake.evaluator()

    def ask(_: Iterable[tuple[str, int]]) -> dict[tuple[str, int], LogRange]:
        intruder.evaluate()
        return {}

    with pytest.raises(AlertsConflictError):
        lake.evaluate(ask_log_ranges=ask)
    assert lake.evaluate() == []
    assert [episode.revision for episode in lake.episodes()] == [1]


def test_commit_of_maintenance_between_reading_and_writing_is_no_conflict(lake: Lake) -> None:
    lake.commit("billing", at=lake.now - RETENTION + HOUR)
    lake.evaluate()
    lake.commit("billing")
    alerts, mark = AlertTable(lake.tables), lake.tables.progress().sequence
    attempts = []

    def change(state: AlertState) -> list[Episode]:
        attempts.append(state)
        if len(attempts) == 1:
            lake.tables.delta("alerts").optimize.compact()
            AlertTable(lake.tables).note(
                {told.episode.id: Delivery(receiver="log", revision=1) for told in state.episodes()}
            )
        (told,) = state.open_episodes()
        return [replace(told.episode, closed_at=lake.now, revision=2)]

    alerts.update(alerts.read(), change, mark=mark, receivers=[])
    (told,) = alerts.read().episodes()
    assert (len(attempts), told.episode.revision, told.to("log").revision) == (2, 2, 1)


def test_table_that_others_write_all_the_time_is_given_up_for_now(lake: Lake) -> None:
    mine, other = AlertTable(lake.tables), AlertTable(lake.tables)
    finding = Finding(severity="warning", subject="the job")

    def episode(name: str) -> Episode:
        return Episode(
            id=name, rule=JOB_BEHIND.id, revision=1, opened_at=START, updated_at=START, finding=finding
        )

    def change(_: object) -> list[Episode]:
        other.update(other.read(), lambda _: [episode("other")], mark=1, receivers=[])
        return [episode("mine")]

    with pytest.raises(AlertsConflictError, match="found other commits at 5 attempts"):
        mine.update(mine.read(), change, mark=2, receivers=[])
    assert [e.id for e in lake.episodes()] == ["other"]
    assert mine.read().mark == 1
