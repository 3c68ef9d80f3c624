"""Progress: positions only grow, loaded stays true, assessment still is stalling; JSON keeps it all."""

import json
from dataclasses import replace
from functools import reduce
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from totals_strategies import COUNTS, TOTALS

from streaming.model.completeness import Completeness
from streaming.model.errors import OtherFormatError
from streaming.model.progress import (
    PROGRESS_FORMAT,
    PartitionEnds,
    PartitionProgress,
    Progress,
    Retention,
)

NOW = 1_700_000_000_000
LATER = NOW + 30_000


def ends(last_stable_offset: int, high_watermark: int | None = None) -> PartitionEnds:
    return PartitionEnds(last_stable_offset, high_watermark or last_stable_offset)


# --- one partition ---------------------------------------------------------------------------------------


def test_position_never_goes_back() -> None:
    assert PartitionProgress().at(5).at(3).position == 5


def test_partition_is_loaded_once_it_reaches_the_end_it_had_at_first() -> None:
    first = PartitionProgress().with_ends(ends(5), NOW)
    assert not first.at(4).loaded
    assert first.at(5).loaded
    assert first.with_ends(ends(9), NOW).at(5).loaded
    assert first.at(5).with_ends(ends(9), NOW).at(6).loaded


def test_empty_partition_is_loaded_when_its_end_is_known() -> None:
    assert not PartitionProgress().at(0).loaded
    assert PartitionProgress().with_ends(ends(0), NOW).loaded


HELD_BACK: dict[str, tuple[list[tuple[PartitionEnds, int]], int | None]] = {
    "no transaction": ([(ends(5), NOW)], None),
    "open transaction": ([(ends(5, 6), NOW)], NOW),
    "stands still": ([(ends(5, 6), NOW), (ends(5, 9), LATER)], NOW),
    "moved on": ([(ends(5, 6), NOW), (ends(7, 9), LATER)], LATER),
    "ended": ([(ends(5, 6), NOW), (ends(6, 6), LATER)], None),
    "began after an idle time": ([(ends(5, 5), NOW), (ends(5, 6), LATER)], LATER),
}


@pytest.mark.parametrize(("seen", "since"), HELD_BACK.values(), ids=HELD_BACK.keys())
def test_open_transaction_since_the_last_stable_offset_stands_still(
    seen: list[tuple[PartitionEnds, int]], since: int | None
) -> None:
    partition = reduce(lambda known, end: known.with_ends(*end), seen, PartitionProgress())
    assert partition.open_transaction_since == since


def shown(partition: PartitionProgress) -> tuple[int, int | None, int | None]:
    return partition.position, partition.last_stable_offset, partition.high_watermark


def test_what_was_read_proves_that_the_ends_lie_no_lower() -> None:
    partition = PartitionProgress().with_ends(ends(5, 6), NOW)
    assert shown(partition.at(5)) == (5, 5, 6)
    assert shown(partition.at(6)) == (6, 6, 6)
    assert shown(partition.at(9)) == (9, 9, 9)
    assert shown(PartitionProgress().at(9)) == (9, None, None)


def test_ends_that_a_batch_overtook_while_brokers_were_asked_are_no_lower_either() -> None:
    partition = PartitionProgress().with_ends(ends(5), NOW).at(9).with_ends(ends(7, 8), LATER)
    assert shown(partition) == (9, 9, 9)
    assert (partition.open_transaction_since, partition.stable.as_of) == (None, LATER)


def test_transaction_that_ended_holds_nothing_back_and_the_next_one_from_then_on() -> None:
    held_back = PartitionProgress().with_ends(ends(5, 9), NOW)
    assert held_back.at(5, LATER).open_transaction_since == NOW
    assert held_back.at(9, LATER).open_transaction_since is None
    moved = held_back.at(7, LATER)
    assert moved.open_transaction_since == LATER
    assert moved.with_ends(ends(7, 12), LATER + 1).open_transaction_since == LATER
    assert moved.with_ends(ends(8, 12), LATER + 1).open_transaction_since == LATER + 1


def test_a_partition_that_is_written_to_all_the_time_is_never_called_behind() -> None:
    """As a job does: a batch every 5 s, a heartbeat every 10 s, 100 commits a second, a look every second."""
    partition, end, states = PartitionProgress().with_ends(ends(0), NOW), 0, set()
    for second in range(1, 300):
        now, end = NOW + 1_000 * second, 100 * second
        if second % 10 == 3:
            partition = partition.with_ends(ends(end), now)
        if second % 5 == 0:
            partition = partition.at(end - 50, now)
        position, stable, high = shown(partition)
        assert position <= (stable or 0) <= (high or 0)
        progress = Progress(partitions={0: partition}, heartbeat=now)
        states.add(Completeness(progress=progress, moment=now, within_ms=25_000).state(0))
    assert states == {"current"}


REACHED: dict[str, tuple[PartitionProgress, int | None, int | None]] = {
    "nothing known": (PartitionProgress(), None, None),
    "on the way": (PartitionProgress().with_ends(ends(5), NOW).at(4), None, None),
    "at the end that was seen": (PartitionProgress().with_ends(ends(5), NOW).at(5), NOW, NOW),
    "idle at the end": (PartitionProgress().at(5).with_ends(ends(5), LATER), LATER, LATER),
    "past an older end": (
        PartitionProgress().with_ends(ends(5), NOW).with_ends(ends(9), LATER).at(8),
        NOW,
        NOW,
    ),
    "a newer end is no older target": (
        PartitionProgress().with_ends(ends(5), NOW).at(5).with_ends(ends(9), LATER).at(8),
        NOW,
        NOW,
    ),
    "behind a transaction": (PartitionProgress().at(5).with_ends(ends(5, 9), LATER), LATER, None),
    "behind one of several": (
        PartitionProgress().at(5).with_ends(ends(5, 9), NOW).with_ends(ends(7, 12), LATER).at(7),
        LATER,
        None,
    ),
    "after a transaction": (PartitionProgress().at(5).with_ends(ends(5, 9), NOW).at(10), NOW, NOW),
}


@pytest.mark.parametrize(("partition", "stable", "whole"), REACHED.values(), ids=REACHED.keys())
def test_up_to_when_everything_is_read(
    partition: PartitionProgress, stable: int | None, whole: int | None
) -> None:
    assert (partition.stable.as_of, partition.whole.as_of) == (stable, whole)


# --- all partitions --------------------------------------------------------------------------------------


def test_partitions_that_are_not_mentioned_stay_as_they_are() -> None:
    progress = Progress().with_positions({0: 5, 1: 7}).with_ends({0: ends(5)}, NOW).with_positions({1: 8})
    assert {number: partition.position for number, partition in progress.partitions.items()} == {0: 5, 1: 8}
    assert [partition.loaded for partition in progress.partitions.values()] == [True, False]


RETENTIONS = st.builds(
    Retention,
    retention_ms=COUNTS,
    check_interval_ms=COUNTS,
    source=st.sampled_from(["broker", "setting"]),
    read_at=COUNTS,
    known_since=COUNTS,
)
PROGRESS = st.builds(
    Progress,
    query_id=st.none() | st.text(max_size=3),
    batch_id=st.integers(-1),
    sequence=COUNTS,
    batch_time=st.none() | COUNTS,
    heartbeat=COUNTS,
    topic=st.text(max_size=3),
    cluster_id=st.none() | st.text(max_size=3),
    partitions=st.dictionaries(
        st.integers(0, 49),
        st.builds(PartitionProgress, position=COUNTS, load_target=st.none() | COUNTS, loaded=st.booleans()),
        max_size=3,
    ),
    totals=TOTALS,
    retention=st.none() | RETENTIONS,
    batch_ms=st.none() | COUNTS,
)


@settings(deadline=None)
@given(PROGRESS)
def test_document_keeps_the_progress(progress: Progress) -> None:
    assert Progress.from_json(progress.to_json()) == progress


@pytest.mark.parametrize(
    ("found", "advice"),
    [(PROGRESS_FORMAT + 1, "A newer offsetlake"), (PROGRESS_FORMAT - 1, "new table root")],
)
def test_document_of_another_format_is_refused(found: int, advice: str) -> None:
    document: dict[str, Any] = json.loads(Progress().to_json())
    with pytest.raises(
        OtherFormatError, match=f"expected format {PROGRESS_FORMAT}, found format {found}.* {advice}"
    ):
        Progress.from_json(json.dumps({**document, "format": found}))


# --- retention -------------------------------------------------------------------------------------------


def reading(at: int, retention_ms: int = 60_000) -> Retention:
    return Retention(
        retention_ms=retention_ms, check_interval_ms=5_000, source="broker", read_at=at, known_since=at
    )


def test_retention_is_known_since_the_first_reading_of_the_same_values() -> None:
    progress = reduce(Progress.with_retention, [reading(1), None, reading(2)], Progress())
    assert progress.retention == replace(reading(2), known_since=1)
    assert progress.with_retention(reading(3, retention_ms=1)).retention == reading(3, retention_ms=1)


def test_what_waits_is_counted_where_the_end_is_known() -> None:
    progress = Progress().with_ends({0: PartitionEnds(10, 30), 1: PartitionEnds(5, 5)}, NOW)
    assert progress.waiting == 15  # behind an open transaction nothing can be read
    assert progress.with_positions({0: 4, 1: 9}, NOW).waiting == 6
    assert Progress(partitions={0: PartitionProgress(position=3)}).waiting == 0
