"""Queries: rows are chosen by group, topic and partition, sorted, and say what is still being read."""

import re
from collections.abc import Callable, Iterable

import pyarrow as pa
import pytest

from streaming.errors import MisuseError
from streaming.progress import STALLED_AFTER_MS, PartitionEnds, Position, Progress, Totals, UnknownRecords
from streaming.queries import (
    STATUS,
    TOTALS,
    Answer,
    TopicPartitions,
    list_groups,
    list_offsets,
    status,
    totals,
)
from streaming.schemas import CHANGES_IN_BATCH, GROUPS, OFFSETS
from streaming.settings import OFFSETS_TOPIC
from streaming.table_rows import change_rows
from streaming.tables import Tables

NOW = 1_700_000_000_000
KEYS = [("b", "t", 0), ("b", "t", 10), ("b", "t", 9), ("", "u", 0), ("a", "u", 1), ("a", "t", 0)]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    made = Tables(str(tmp_path_factory.mktemp("tables")))
    made.create()
    rows = [{"kind": "offset", "group": g, "topic": t, "partition": p} for g, t, p in KEYS]
    rows += [{"kind": "group", "group": group} for group in ("b", "", "a")]
    changes = pa.Table.from_pylist(
        [{**row, "op": "set", "after": {"members": []}} for row in rows],
        CHANGES_IN_BATCH.append(pa.field("source_partition", pa.int32())),
    )
    progress = Progress(sequence=1).with_positions({0: 5, 1: 5, 2: 0})
    progress = progress.with_ends({0: PartitionEnds(5, 5), 1: PartitionEnds(9, 9)}, NOW)
    made.append_changes(change_rows(changes, sequence=1, batch_time=0)[0], progress, is_batch=False)
    return made


# --- offsets and groups ----------------------------------------------------------------------------------

ALL = [("", "u", 0), ("a", "t", 0), ("a", "u", 1), ("b", "t", 0), ("b", "t", 9), ("b", "t", 10)]
ASKED = {
    "everything": ([], [], ALL),
    "one group": (["a"], [], ALL[1:3]),
    "two groups": (["b", "a"], [], ALL[1:]),
    "the empty group id": ([""], [], ALL[:1]),
    "no such group": (["c"], [], []),
    "one topic": ([], ["u"], [ALL[0], ALL[2]]),
    "two topics": ([], ["u", "t"], ALL),
    "partitions of a topic": ([], ["t:0,10"], [ALL[1], ALL[3], ALL[5]]),
    "partitions of one topic, and another": ([], ["t:9", "u"], [ALL[0], ALL[2], ALL[4]]),
    "a topic of a group": (["a"], ["t"], [ALL[1]]),
    "no such partition": ([], ["t:7"], []),
}


@pytest.mark.parametrize(("groups", "topics", "expected"), ASKED.values(), ids=ASKED.keys())
def test_offsets_are_chosen_and_sorted_by_key(
    tables: Tables, groups: list[str], topics: list[str], expected: list[tuple[str, str, int]]
) -> None:
    answer = list_offsets(tables, groups, [TopicPartitions.parse(topic) for topic in topics])
    assert answer.rows.schema == OFFSETS
    columns = answer.rows.select(["group", "topic", "partition"]).to_pydict().values()
    assert list(zip(*columns, strict=True)) == expected


@pytest.mark.parametrize(("groups", "expected"), [([], ["", "a", "b"]), (["b", ""], ["", "b"]), (["c"], [])])
def test_groups_are_chosen_and_sorted_by_name(tables: Tables, groups: list[str], expected: list[str]) -> None:
    answer = list_groups(tables, groups)
    assert answer.rows.schema == GROUPS
    assert answer.rows["group"].to_pylist() == expected


def test_answer_names_the_partitions_that_are_still_being_read(tables: Tables) -> None:
    assert list_offsets(tables).loading_partitions == [1, 2]
    assert list_groups(tables).loading_partitions == [1, 2]


IN_PARTITION = {0: "c", 1: "a", 2: "b"}  # of three: "a".hashCode() is 97, and so on


def loading(topic: str, partitions: Iterable[int] = range(3), *groups: str) -> list[int]:
    """What is named of these partitions, of which only 0 was read to its end."""
    progress = Progress(topic=topic).with_positions(dict.fromkeys(partitions, 5))
    progress = progress.with_ends({0: PartitionEnds(5, 5)}, NOW)
    return Answer(pa.table({}), progress, groups).loading_partitions


def test_answer_names_only_partitions_that_the_groups_belong_to() -> None:
    named = {partition: loading(OFFSETS_TOPIC, range(3), group) for partition, group in IN_PARTITION.items()}
    assert named == {0: [], 1: [1], 2: [2]}
    assert loading(OFFSETS_TOPIC, range(3), "c", "b", "a") == [1, 2]
    assert loading(OFFSETS_TOPIC) == [1, 2]


def test_answer_names_all_partitions_when_those_of_the_groups_are_not_known() -> None:
    assert loading("copy", range(3), "c") == [1, 2]  # a copy may be spread in another way
    assert loading(OFFSETS_TOPIC, (0, 2), "c") == [2]  # one or more partitions did not answer yet


def test_answer_is_loading_before_anything_was_read_and_while_partitions_are_named() -> None:
    progress = Progress(topic=OFFSETS_TOPIC).with_positions({0: 5, 1: 0})
    progress = progress.with_ends({0: PartitionEnds(5, 5)}, NOW)
    assert Answer(pa.table({}), Progress(topic=OFFSETS_TOPIC), ["b"]).is_loading
    assert Answer(pa.table({}), progress).is_loading
    assert Answer(pa.table({}), progress, ["a"]).is_loading
    assert not Answer(pa.table({}), progress, ["b"]).is_loading


@pytest.mark.parametrize("ask", [list_offsets, list_groups])
def test_answer_knows_the_groups_that_were_asked_for(tables: Tables, ask: Callable[..., Answer]) -> None:
    assert list(ask(tables, ["a"]).groups) == ["a"]


# --- --topic ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "partitions"),
    [("orders", None), ("orders:0", {0}), ("orders:0,12,0", {0, 12}), ("orders:999999999", {999_999_999})],
)
def test_topic_is_asked_for_as_kafka_tools_do(text: str, partitions: set[int] | None) -> None:
    assert TopicPartitions.parse(text) == TopicPartitions("orders", partitions and frozenset(partitions))


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":0",
        "orders:",
        "orders:x",
        "orders:-1",
        "orders:0,",
        "orders:0;1",
        "orders:٣",
        "orders:9999999999",
    ],
)
def test_bad_topic_is_explained(text: str) -> None:
    with pytest.raises(MisuseError, match=re.escape(f"such as orders:0,1; found {text!r}")):
        TopicPartitions.parse(text)


# --- status and totals -----------------------------------------------------------------------------------


def test_status_has_a_row_per_partition_in_order() -> None:
    progress = Progress().with_positions({2: 4, 10: 7, 1: 9})
    progress = progress.with_ends({10: PartitionEnds(7, 8), 1: PartitionEnds(9, 9)}, NOW)
    rows = status(progress, NOW + STALLED_AFTER_MS)
    assert rows.schema == STATUS
    assert rows.select(["partition", "state", "behind", "loaded"]).to_pylist() == [
        {"partition": 1, "state": "current", "behind": 0, "loaded": True},
        {"partition": 2, "state": "loading", "behind": None, "loaded": False},
        {"partition": 10, "state": "stalled", "behind": 0, "loaded": True},
    ]
    assert rows["held_back_since"].cast(pa.int64()).to_pylist() == [None, None, NOW * 1_000]


def test_status_of_nothing_is_empty() -> None:
    assert status(Progress(), NOW).to_pylist() == []


def test_totals_have_a_row_per_counter_and_unknown_kind() -> None:
    unknown = UnknownRecords(
        record_type=99, value_version=None, count=5, first=Position(1, 2), last=Position(3, 4)
    )
    counted = Totals(decoded=4, tombstones=3, malformed=2, misplaced=6, clamped=1, unknown=(unknown,))
    rows = totals(Progress(totals=counted))
    assert rows.schema == TOTALS
    assert dict(zip(*rows.select(["counter", "count"]).to_pydict().values(), strict=True)) == {
        "decoded": 4,
        "tombstones": 3,
        "malformed": 2,
        "misplaced": 6,
        "clamped": 1,
        "unknown": 5,
    }
    assert list(rows.to_pylist()[-1].values()) == ["unknown", 5, 99, None, 1, 2, 3, 4]
