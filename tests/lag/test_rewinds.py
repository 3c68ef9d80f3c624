"""Who can have set back a group: the members of that moment, or somebody else where there were none."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sampled_logs import timed

from streaming.lag.rewinds import WHO, lasting, with_who
from streaming.model.schemas import MEMBER_IDENTITY, TIMESTAMP

PLACED = [
    ("group", pa.string()),
    ("source_partition", pa.int32()),
    ("source_offset", pa.int64()),
    ("sequence", pa.int64()),
]
STEPS = pa.schema([*PLACED, ("state", pa.string()), ("members", pa.list_(MEMBER_IDENTITY))])


def member(name: str) -> dict[str, Any]:
    return {"member_id": f"{name}-1", "group_instance_id": None, "client_id": name, "client_host": "/h"}


def step(offset: int | None, sequence: int | None, *members: str, group: str = "g") -> dict[str, Any]:
    held = [member(name) for name in members]
    place = {"group": group, "source_partition": 3, "source_offset": offset, "sequence": sequence}
    return {**place, "state": "Stable" if members else "Empty", "members": held}


def gone(offset: int | None, sequence: int | None) -> dict[str, Any]:
    return {**step(offset, sequence), "state": None, "members": None}


def who(steps: list[dict[str, Any]], *commits: tuple[int, int], group: str = "g") -> list[Any]:
    rows = [
        {"group": group, "source_partition": 3, "source_offset": offset, "sequence": sequence}
        for offset, sequence in commits
    ]
    found = with_who(pa.Table.from_pylist(rows, pa.schema(PLACED)), pa.Table.from_pylist(steps, STEPS))
    assert found.schema.names == [*(name for name, _ in PLACED), *WHO.names]
    found.validate(full=True)
    return [
        (row["was_empty"], None if row["members"] is None else [one["client_id"] for one in row["members"]])
        for row in found.to_pylist()
    ]


def test_the_members_of_that_moment_can_have_committed() -> None:
    steps = [step(30, 3, "c"), step(10, 1, "a", "b"), step(20, 2)]
    assert who(steps, (15, 1), (25, 2), (35, 3)) == [(False, ["a", "b"]), (True, None), (False, ["c"])]


def test_while_no_member_was_there_it_was_somebody_else() -> None:
    assert who([gone(None, None)], (5, 1)) == [(True, None)]
    assert who([step(None, None)], (5, 1)) == [(True, None)]


def test_before_the_first_step_it_is_not_known() -> None:
    assert who([step(10, 1, "a")], (5, 1)) == [(None, None)]
    assert who([step(10, 2, "a")], (5, 1)) == [(None, None)]
    assert who([], (5, 1)) == [(None, None)]
    assert who([step(1, 1, "a", group="h")], (5, 1)) == [(None, None)]


def test_of_steps_within_the_batch_of_the_commit_some_may_be_missing() -> None:
    """Of a batch the last step is kept: one that followed the commit may hide one before it."""
    assert who([step(1, 1, "a"), step(10, 2)], (5, 2)) == [(None, None)]
    assert who([step(1, 1, "a"), step(10, 3)], (5, 2)) == [(False, ["a"])]
    assert who([step(1, 1, "a"), step(4, 2)], (5, 2)) == [(True, None)]


def test_nothing_was_committed() -> None:
    assert who([step(1, 1, "a")]) == []


# --- those that last -------------------------------------------------------------------------------------

M = 60_000


def moved(*rows: tuple[str, int, int, int, int | None], ahead: int = 0) -> pa.Table:
    """Commits of groups: sequence, time (ms), offset, and the offset before. The clock of their coordinator
    is ahead of the job's (ms)."""
    filled = [
        {
            "group": group,
            "topic": "t",
            "partition": 0,
            "committed_offset": offset,
            "committed_at": at + ahead,
            "written_at": at,
            "offset_before": before,
            "before_at": 0,
            "topic_id": None,
            "topic_id_before": None,
            "sequence": sequence,
        }
        for group, sequence, at, offset, before in rows
    ]
    names = ["group", "topic", "partition", "committed_offset", "offset_before", "sequence"]
    kinds = [pa.string(), pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.int64()]
    ids = [("topic_id", pa.string()), ("topic_id_before", pa.string())]
    times = [(name, TIMESTAMP) for name in ("committed_at", "written_at", "before_at")]
    return timed(filled, pa.schema([*zip(names, kinds, strict=True), *ids, *times]))


NO_TOPICS = pa.schema(
    [("topic", pa.string()), ("topic_id", pa.string()), ("first_at", TIMESTAMP), ("last_at", TIMESTAMP)]
).empty_table()


@pytest.mark.parametrize(
    ("later", "read_until", "told", "waiting"),
    [
        ([], M - 1, [], [2]),
        ([], M, [2], []),
        ([("g", 3, M - 1, 99, 50)], M, [2], []),  # not where it was yet
        ([("g", 3, M - 1, 100, 50)], M, [], []),
        ([("g", 3, M - 1, 100, 50), ("g", 4, M, 50, 100)], 5 * M, [], []),
        ([("g", 3, M, 100, 50)], M, [2], []),
        ([("h", 3, 1, 100, 50), ("g", 1, 1, 100, None)], M, [2], []),  # of another group, and of before
    ],
)
def test_a_rewind_lasts_if_it_is_not_made_up_for_soon(
    later: list[tuple[str, int, int, int, int | None]], read_until: int, told: list[int], waiting: list[int]
) -> None:
    rewinds = moved(("g", 2, 0, 50, 100))
    found = lasting(
        rewinds, moved(*later), NO_TOPICS, read_until=np.array([read_until], np.int64), after_ms=M
    )
    assert [rows["sequence"].to_pylist() for rows in found] == [told, waiting]


@pytest.mark.parametrize("ahead", [-2 * M, -M, M, 2 * M])
@pytest.mark.parametrize(
    ("later", "read_until", "told", "waiting"),
    [([], M - 1, [], [2]), ([], M, [2], []), ([("g", 3, M // 2, 100, 50)], 2 * M, [], [])],
    ids=["waits", "lasts", "made up for"],
)
def test_a_coordinator_with_another_time_makes_no_rewind_last(
    later: list[tuple[str, int, int, int, int | None]],
    read_until: int,
    told: list[int],
    waiting: list[int],
    ahead: int,
) -> None:
    rewinds, commits = moved(("g", 2, 0, 50, 100), ahead=ahead), moved(*later, ahead=ahead)
    found = lasting(rewinds, commits, NO_TOPICS, read_until=np.array([read_until], np.int64), after_ms=M)
    assert [rows["sequence"].to_pylist() for rows in found] == [told, waiting]


def test_rewinds_of_a_group_are_reported_in_their_order() -> None:
    rewinds = moved(("g", 2, 30_000, 50, 100), ("g", 3, 0, 40, 50), ("h", 4, 0, 40, 50))
    told, waiting = lasting(rewinds, moved(), NO_TOPICS, read_until=np.full(3, M, np.int64), after_ms=M)
    assert (told["sequence"].to_pylist(), waiting["sequence"].to_pylist()) == ([4], [2, 3])
