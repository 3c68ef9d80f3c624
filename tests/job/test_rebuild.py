"""When the tables no longer follow from the topic, and what changes once it was read anew."""

import re
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.brokers.facts import LogRange
from streaming.common import pieces
from streaming.expiry.causes import GONE_WHILE_AWAY
from streaming.job import rebuild
from streaming.job.rebuild import TopicNow, differences, missed_tombstones, not_in, reason_to_rebuild
from streaming.model.progress import PartitionEnds, PartitionProgress, Progress
from streaming.model.schemas import CHANGES, GROUPS, OFFSETS, QUARANTINE

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


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        (replace(TOPIC, partition_count=3), "has 3 partitions, and had 2 when"),
        (replace(TOPIC, topic_id="other"), "was deleted and created anew"),
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
    late = replace(TOPIC, ranges={}, now=2 * DAY + 1)
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


# --- differences ---


def offset(group: str, committed: int, **changed: Any) -> dict[str, Any]:
    row = {"group": group, "topic": "t", "partition": 0, "committed_offset": committed, "metadata": ""}
    return {**row, "source_partition": 1, "source_offset": 10 + committed, **changed}


def offsets(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), OFFSETS)


def changes(name: str, before: pa.Table, after: pa.Table) -> pa.Table:
    return differences(name, before, after, sequence=7, batch_time=DAY)


def test_what_went_what_came_and_what_is_other() -> None:
    before = offsets(offset("gone", 1), offset("moved", 2), offset("same", 3, leader_epoch=4))
    after = offsets(offset("new", 5), offset("same", 3, leader_epoch=4), offset("moved", 6))
    found = {row["group"]: row for row in changes("offsets", before, after).to_pylist()}
    assert found.keys() == {"gone", "moved", "new"}
    gone, moved, new = found["gone"], found["moved"], found["new"]
    assert (gone["kind"], gone["op"], gone["cause"]) == ("offset", "remove", GONE_WHILE_AWAY)
    assert gone["before"]["committed_offset"] == 1
    assert gone["after"] is None
    assert gone["source_offset"] is None
    assert gone["source_timestamp"] == gone["batch_time"]
    assert gone["source_partition"] == 1
    assert (moved["op"], moved["cause"]) == ("set", None)
    assert (moved["before"]["committed_offset"], moved["after"]["committed_offset"]) == (2, 6)
    assert moved["source_offset"] == 16
    assert (new["op"], new["before"]) == ("set", None)
    assert {row["sequence"] for row in found.values()} == {7}


def test_a_null_that_became_a_value_is_a_difference_and_two_nulls_are_none() -> None:
    before = offsets(offset("a", 1, leader_epoch=None), offset("b", 1, topic_id=None))
    after = offsets(offset("a", 1, leader_epoch=0), offset("b", 1, topic_id=None))
    assert changes("offsets", before, after)["group"].to_pylist() == ["a"]


def test_groups_differ_by_their_members_too() -> None:
    member = {"member_id": "m", "group_instance_id": None, "client_id": "c", "client_host": "/h"}
    row = {"group": "g", "type": "classic", "state": "Stable", "members": [member], "source_partition": 0}
    before = pa.Table.from_pylist([row, {**row, "group": "same"}], GROUPS)
    after = pa.Table.from_pylist([{**row, "members": []}, {**row, "group": "same"}], GROUPS)
    found = changes("groups", before, after)
    assert found.select(["kind", "op", "group", "topic", "cause"]).to_pylist() == [
        {"kind": "group", "op": "set", "group": "g", "topic": None, "cause": None}
    ]


NAMES = st.text(alphabet="a\0", max_size=3)  # many that are alike up to a NUL
KEYS = st.tuples(NAMES, NAMES, st.integers(0, 1))
STATES = st.dictionaries(KEYS, st.integers(0, 2), max_size=12)


@given(STATES, STATES)
def test_the_differences_turn_one_table_into_the_other(
    before: dict[tuple[str, str, int], int], after: dict[tuple[str, str, int], int]
) -> None:
    def table(state: dict[tuple[str, str, int], int]) -> pa.Table:
        return offsets(*(offset(g, value, topic=t, partition=p) for (g, t, p), value in state.items()))

    state = dict(before)
    found = changes("offsets", table(before), table(after))
    assert found.schema == CHANGES
    for row in found.to_pylist():
        key = row["group"], row["topic"], row["partition"]
        assert (row["before"] or {}).get("committed_offset") == state.get(key)
        state.pop(key, None)
        if row["op"] == "set":
            state[key] = row["after"]["committed_offset"]
    assert state == after


@given(st.dictionaries(NAMES, st.integers(0, 2)), st.dictionaries(NAMES, st.integers(0, 2)))
def test_the_differences_turn_groups_into_others(before: dict[str, int], after: dict[str, int]) -> None:
    def table(state: dict[str, int]) -> pa.Table:
        rows = [{"group": name, "generation_or_epoch": epoch} for name, epoch in state.items()]
        return pa.Table.from_pylist(rows, GROUPS)

    state = dict(before)
    for row in changes("groups", table(before), table(after)).to_pylist():
        assert (row["before"] or {}).get("generation_or_epoch") == state.pop(row["group"], None)
        if row["op"] == "set":
            state[row["group"]] = row["after"]["generation_or_epoch"]
    assert state == after


def test_what_is_too_large_for_one_array_is_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "ARRAY_BYTES", 4_000)
    monkeypatch.setattr(pieces, "PIECE_BYTES", 2_000)
    monkeypatch.setattr(rebuild, "_COMPARED_ROWS", 3)
    before = offsets(*(offset(f"g{n}", n, metadata=f"{n:400}") for n in range(20)))
    after = offsets(*(offset(f"g{n}", n, metadata=f"{n + n % 2:400}") for n in range(3, 25)))
    found = changes("offsets", before, after)
    assert found["group"].to_pylist() == [
        *(f"g{n}" for n in range(3)),
        *(f"g{n}" for n in range(3, 20) if n % 2),
        *(f"g{n}" for n in range(20, 25)),
    ]
    assert [row["after"]["metadata"].strip() for row in found.to_pylist()[3:5]] == ["4", "6"]
    assert max(chunk.nbytes for name in ("before", "after") for chunk in found[name].chunks) < 4_000


def quarantined(*places: tuple[int, int]) -> pa.Table:
    rows = [{"source_partition": partition, "source_offset": offset} for partition, offset in places]
    return pa.Table.from_pylist(rows, QUARANTINE)


def test_quarantined_records_that_are_there_already_are_left_out_and_the_rest_keeps_its_order() -> None:
    found = quarantined((1, 7), (0, 7), (0, 3), (1, 3), (0, 9))
    assert not_in(found, quarantined((0, 7), (1, 3), (2, 9))).equals(quarantined((1, 7), (0, 3), (0, 9)))
    assert not_in(found, quarantined()).equals(found)
    assert len(not_in(found, found)) == len(not_in(quarantined(), found)) == 0
