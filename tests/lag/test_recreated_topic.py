"""Which committed offsets belong to a recreated topic of the same name."""

from typing import Any

import pyarrow as pa
import pytest
from sampled_logs import timed

from streaming.lag.recreated_topic import contradictions, is_of_other_log, of_recreated_topic
from streaming.model.schemas import TIMESTAMP

OFFSETS = pa.schema(
    [
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("commit_timestamp", TIMESTAMP),
        ("source_timestamp", TIMESTAMP),
    ]
)
OVER_TIME = pa.schema(
    [("topic", pa.string()), ("topic_id", pa.string()), ("first_at", TIMESTAMP), ("last_at", TIMESTAMP)]
)


def over_time(*rows: tuple[str, str | None, int, int]) -> pa.Table:
    return timed([dict(zip(OVER_TIME.names, row, strict=True)) for row in rows], OVER_TIME)


def committed(*rows: tuple[str, str | None, int | None, int | None]) -> pa.Table:
    return timed([dict(zip(OFFSETS.names, row, strict=True)) for row in rows], OFFSETS)


SEEN = over_time(
    ("t", "old", 100, 200),
    ("t", "new", 300, 400),
    ("t", "oldest", 10, 90),
    ("only", "id", 100, 400),
    ("n", None, 1, 9),
)

CASES: dict[str, tuple[tuple[str, str | None, int | None, int | None], bool | None]] = {
    "its own id is that of the present topic": (("t", "new", 50, 50), False),
    "its own id is that of the former one": (("t", "old", 350, 350), True),
    "its own id is that of the one before": (("t", "oldest", 350, 350), True),
    "its own id was never seen, and is older": (("t", "lost", 350, 350), True),
    "its own id may be of a topic that the next sample finds": (("t", "newest", 400, 400), None),
    "without an id: when the recreated topic was seen": (("t", None, 200, 200), True),
    "without an id: between the two": (("t", None, 201, 201), None),
    "without an id: just before the present one was seen": (("t", None, 299, 299), None),
    "without an id: when the present topic was seen": (("t", None, 300, 300), False),
    "without an id: after it was last seen": (("t", None, 500, 500), False),
    "two times that contradict each other": (("t", None, 150, 350), None),
    "without times": (("t", None, None, None), None),
    "one time is enough": (("t", None, None, 150), True),
    "of one topic ever seen: since then": (("only", None, 100, 100), False),
    "of one topic ever seen: before": (("only", None, 99, 99), None),
    "of a topic that was never sampled": (("u", "id", 100, 100), None),
    "of a topic without an id": (("n", None, 5, 5), None),
}


@pytest.mark.parametrize(("row", "expected"), CASES.values(), ids=CASES.keys())
def test_an_offset_of_a_recreated_topic_is_known_by_its_id_or_its_time(
    row: tuple[str, str | None, int | None, int | None], expected: bool | None
) -> None:
    assert of_recreated_topic(committed(row), SEEN).to_pylist() == [expected]


def test_all_at_once() -> None:
    rows = committed(*(row for row, _ in CASES.values()))
    found = of_recreated_topic(rows, SEEN)
    assert found.to_pylist() == [expected for _, expected in CASES.values()]
    found.validate(full=True)
    nothing: list[Any] = [None] * len(CASES)
    assert of_recreated_topic(rows, over_time()).to_pylist() == nothing
    assert of_recreated_topic(committed(), SEEN).to_pylist() == []


def test_contradictions_are_ids_that_their_topic_did_not_have_then() -> None:
    rows = committed(
        ("t", "old", 150, 150),
        ("t", "old", 350, 350),
        ("t", "x", 350, 350),
        ("t", "old", 250, 250),
        ("t", None, 1, 1),
    )
    found = contradictions(rows, SEEN)
    assert found.select(["topic_id", "seen_topic_id"]).to_pylist() == [
        {"topic_id": "old", "seen_topic_id": "new"},
        {"topic_id": "x", "seen_topic_id": "new"},
    ]
    assert len(contradictions(rows.slice(0, 1), SEEN)) == 0


MOVES = pa.schema(
    [
        ("topic", pa.string()),
        ("topic_id_before", pa.string()),
        ("topic_id", pa.string()),
        ("before_at", TIMESTAMP),
        ("committed_at", TIMESTAMP),
    ]
)
MOVE_CASES: dict[str, tuple[tuple[str, str | None, str | None, int, int], bool]] = {
    "two ids": (("t", "old", "new", 310, 320), True),
    "two ids of a topic that was never sampled": (("u", "a", "b", 1, 2), True),
    "one id, though the topic was recreated in that time": (("t", "new", "new", 150, 350), False),
    "no id, and the topic was recreated in that time": (("t", None, None, 150, 350), True),
    "one of the two has none, and the topic was recreated in that time": (("t", "old", None, 150, 350), True),
    "no id, perhaps after the new topic came": (("t", None, None, 250, 260), True),
    "no id, and all of it in the present topic": (("t", None, None, 301, 350), False),
    "no id, and all of it in the former one": (("t", None, None, 110, 199), False),
    "no id, of one topic ever seen": (("only", None, None, 50, 500), False),
    "no id, of a topic that was never sampled": (("u", None, None, 1, 2), False),
}


@pytest.mark.parametrize(("row", "expected"), MOVE_CASES.values(), ids=MOVE_CASES.keys())
def test_a_commit_is_of_another_log_by_its_id_or_its_time(
    row: tuple[str, str | None, str | None, int, int], expected: bool
) -> None:
    moves = timed([dict(zip(MOVES.names, row, strict=True))], MOVES)
    assert is_of_other_log(moves, SEEN).tolist() == [expected]


def test_commits_of_other_logs_all_at_once() -> None:
    rows = [dict(zip(MOVES.names, row, strict=True)) for row, _ in MOVE_CASES.values()]
    assert is_of_other_log(timed(rows, MOVES), SEEN).tolist() == [found for _, found in MOVE_CASES.values()]
    assert is_of_other_log(timed([], MOVES), SEEN).tolist() == []
