"""When reading on from where the tables are is not enough."""

import re
from dataclasses import replace

import pytest

from streaming.brokers.facts import LogRange
from streaming.job.topic.reasons import TopicNow, missed_tombstones, reason_to_rebuild
from streaming.model.progress import PartitionEnds, PartitionProgress, Progress

HOUR = 3_600_000
DAY = 24 * HOUR


def read_to_the_end(position: int, at: int) -> PartitionProgress:
    return PartitionProgress().at(position).with_ends(PartitionEnds(position, position), at)


PROGRESS = Progress(
    topic="__consumer_offsets",
    topic_id="id",
    partitions={0: read_to_the_end(100, at=DAY), 1: read_to_the_end(0, at=DAY)},
)
TOPIC = TopicNow(
    cluster_id="cluster",
    partition_count=2,
    topic_id="id",
    ranges={0: LogRange(0, 100), 1: LogRange(0, 0)},
    delete_retention_ms=DAY,
    now=2 * DAY,
)


def behind(progress: Progress, partition: int, end: int, now: int) -> Progress:
    return progress.with_ends({partition: PartitionEnds(end, end)}, now)


def test_nothing_new_in_the_topic_is_no_reason() -> None:
    assert reason_to_rebuild(PROGRESS, replace(TOPIC, now=90 * DAY)) is None
    assert reason_to_rebuild(Progress(), TOPIC) is None


def test_a_reason_that_the_tables_have_stays_also_for_tables_that_a_rebuild_fills() -> None:
    progress = PROGRESS.with_reason_to_rebuild("the clock jumped", DAY).with_reason_to_rebuild("other", DAY)
    assert reason_to_rebuild(progress, TOPIC) == "the clock jumped"


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        (replace(TOPIC, partition_count=3), "has 3 partitions, and had 2 when"),
        (replace(TOPIC, topic_id="other"), "was deleted and recreated"),
        (replace(TOPIC, ranges={0: LogRange(0, 99)}), "partition 0 .* ends at offset 99, .* up to 100"),
        (replace(TOPIC, ranges={0: LogRange(101, 200)}), "partition 0 .* begins at offset 101"),
    ],
)
def test_another_topic_or_range_is_a_reason(topic: TopicNow, reason: str) -> None:
    assert re.search(reason, reason_to_rebuild(PROGRESS, topic) or "")


@pytest.mark.parametrize(
    "topic",
    [
        replace(TOPIC, topic_id=None),
        replace(TOPIC, ranges={}),
        replace(TOPIC, ranges={0: LogRange(100, 100), 1: LogRange(5, 9)}),
    ],
    ids=["the brokers do not say the id", "no leader answers", "all that was read is deleted"],
)
def test_what_is_no_reason(topic: TopicNow) -> None:
    assert reason_to_rebuild(PROGRESS, topic) is None


def test_a_partition_without_a_leader_is_judged_when_it_has_one_again() -> None:
    away = behind(PROGRESS, 0, 101, DAY)
    late = replace(TOPIC, now=90 * DAY)
    assert reason_to_rebuild(away, late) is not None
    assert reason_to_rebuild(away, replace(late, ranges={1: late.ranges[1]})) is None


def test_being_away_for_longer_than_tombstones_are_kept_is_a_reason_where_something_was_written() -> None:
    assert reason_to_rebuild(behind(PROGRESS, 0, 101, 2 * DAY), TOPIC) is None
    late = replace(TOPIC, now=2 * DAY + 1)
    reason = reason_to_rebuild(behind(PROGRESS, 0, 101, 2 * DAY + 1), late) or ""
    assert "partition 0" in reason
    assert "last read to its end at 1970-01-02T00:00:00Z" in reason


def test_a_first_reading_that_takes_too_long_is_a_reason() -> None:
    began = Progress(topic="t").with_ends({0: PartitionEnds(50, 50)}, DAY)
    slow = began.with_positions({0: 20}).with_ends({0: PartitionEnds(60, 60)}, 2 * DAY)
    topic = replace(TOPIC, partition_count=1, ranges={0: LogRange(0, 60)})
    assert reason_to_rebuild(slow, topic) is None
    assert reason_to_rebuild(slow, replace(topic, now=2 * DAY + 1)) is not None


def test_the_ends_that_the_brokers_say_now_count() -> None:
    late = replace(TOPIC, now=2 * DAY + 1)
    assert reason_to_rebuild(PROGRESS, replace(late, ends={0: PartitionEnds(100, 100)})) is None
    assert reason_to_rebuild(PROGRESS, replace(late, ends={0: PartitionEnds(101, 101)})) is not None


def test_of_two_times_for_which_tombstones_are_kept_the_shorter_counts() -> None:
    """It was raised while the job was away: what was in force before may have taken some."""
    away = behind(replace(PROGRESS, tombstones_kept_ms=DAY), 0, 101, 3 * DAY)
    raised = replace(TOPIC, delete_retention_ms=7 * DAY, now=3 * DAY)
    assert reason_to_rebuild(away, raised) is not None
    assert reason_to_rebuild(replace(away, tombstones_kept_ms=None), raised) is None
    lowered = replace(TOPIC, delete_retention_ms=HOUR, now=DAY + 2 * HOUR)
    assert reason_to_rebuild(behind(away, 0, 102, DAY + 2 * HOUR), lowered) is not None


def missed(position: int, *, now: int, progress: Progress = PROGRESS) -> str | None:
    return missed_tombstones(progress, {0: position, 1: 0}, delete_retention_ms=DAY, now=now)


def test_a_batch_after_a_pause_longer_than_tombstones_are_kept_may_lack_some() -> None:
    assert missed(101, now=2 * DAY) is None
    assert "partition 0 of topic __consumer_offsets was last read to its end" in (
        missed(101, now=2 * DAY + 1) or ""
    )
    assert missed(100, now=9 * DAY) is None, "nothing was read"


def test_ends_that_were_seen_after_a_pause_do_not_hide_it() -> None:
    """A heartbeat comes before the batch that reads the backlog, and others between its portions."""
    seen = PROGRESS.with_ends({0: PartitionEnds(150, 150)}, 3 * DAY)
    assert missed(150, now=3 * DAY, progress=seen) is not None
    halfway = seen.with_positions({0: 120}).with_ends({0: PartitionEnds(160, 160)}, 3 * DAY)
    assert missed(160, now=3 * DAY, progress=halfway) is not None
    there = halfway.with_positions({0: 150})
    assert missed(160, now=3 * DAY, progress=there) is None, "all of before is known to be read"
