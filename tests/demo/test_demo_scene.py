"""What the demo tells of groups and offsets between two looks at real tables."""

from dataclasses import replace
from pathlib import Path

import pytest
from lag_tables import LagTables
from new_tables import new_tables
from table_batches import Batch, append, group, heartbeat, offset

from streaming.common.escapes import printable
from streaming.common.times import clock, now_ms
from streaming.demo.broker_offsets import CommittedOffset, OffsetKey
from streaming.demo.demo import _lags, demo_settings
from streaming.demo.layout import offset_lines
from streaming.demo.scene import LiveGroup, Scene
from streaming.model.progress import PartitionProgress
from streaming.tables.tables import Tables

NOW = 1_700_000_000_000
BEFORE: Batch = {
    "billing": group(),
    ("billing", "orders", 0): offset(committed_offset=10),
    ("billing", "orders", 1): offset(committed_offset=20),
    "replay": group(state="Empty"),
    ("replay", "clicks", 0): offset(committed_offset=30, metadata="note\0"),
    ("replay", "clicks", 2): offset(committed_offset=40),
}


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    tables = new_tables(tmp_path)
    append(tables, BEFORE, now=NOW)
    return tables


@pytest.fixture
def first(tables: Tables) -> Scene:
    return Scene().after(tables.read(), NOW)


def sentences_after(tables: Tables, first: Scene, batch: Batch) -> list[str]:
    append(tables, batch, live=BEFORE, now=NOW + 1_000)
    scene = first.after(tables.read(), NOW + 1_000)
    assert scene.events[: len(first.events)] == first.events
    assert {event.seen_at for event in scene.events[len(first.events) :]} <= {NOW + 1_000}
    return [event.sentence for event in scene.events[len(first.events) :]]


def test_the_first_look_takes_in_all_groups_and_offsets(first: Scene) -> None:
    assert first.as_of == NOW
    assert first.groups == {
        "billing": LiveGroup("classic", "Stable"),
        "replay": LiveGroup("classic", "Empty"),
    }
    assert first.offsets[OffsetKey("replay", "clicks", 0)] == CommittedOffset(30, metadata="note")
    assert len(first.offsets) == 4
    assert set(first.changes.values()) == {None}
    assert [event.sentence for event in first.events] == ["group billing appeared", "group replay appeared"]


def test_offsets_that_move_on_are_no_event(tables: Tables, first: Scene) -> None:
    append(tables, {("billing", "orders", 1): offset(committed_offset=25)}, live=BEFORE, now=NOW + 1_000)
    scene = first.after(tables.read(), NOW + 1_000)
    assert scene.events == first.events
    assert scene.changes[OffsetKey("billing", "orders", 1)] == 5
    assert scene.changes[OffsetKey("billing", "orders", 0)] == 0


def test_a_rewind_is_reported_with_its_first_partition(tables: Tables, first: Scene) -> None:
    batch: Batch = {("replay", "clicks", 2): offset(committed_offset=1)}
    assert sentences_after(tables, first, batch) == ["replay rewound clicks:2 from 40 to 1"]


def test_a_rewind_of_several_partitions_is_one_event(tables: Tables, first: Scene) -> None:
    batch: Batch = {("replay", "clicks", part): offset(committed_offset=0) for part in (0, 2)}
    told = ["replay rewound clicks:0 from 30 to 0, and 1 more partition"]
    assert sentences_after(tables, first, batch) == told


def test_a_group_that_is_deleted_vanishes_with_its_offsets(tables: Tables, first: Scene) -> None:
    batch: Batch = {"billing": None, ("billing", "orders", 0): None, ("billing", "orders", 1): None}
    told = ["group billing vanished", "offsets of billing removed: orders:0, 1"]
    assert sentences_after(tables, first, batch) == told


def test_an_offset_that_is_removed_alone_is_an_event(tables: Tables, first: Scene) -> None:
    batch: Batch = {("billing", "orders", 1): None}
    assert sentences_after(tables, first, batch) == ["offsets of billing removed: orders:1"]


def test_a_broker_that_does_not_answer_is_reported_once_and_its_end(tables: Tables, first: Scene) -> None:
    partitions = {0: PartitionProgress(loaded=True), 1: PartitionProgress(loaded=True)}
    silent = {number: one.without_answer(NOW + 1_000 * number) for number, one in partitions.items()}
    scene = first
    for second, state in enumerate([partitions, silent, {0: partitions[0], 1: silent[1]}, partitions]):
        heartbeat(tables, NOW + 1_000 * second, partitions=state)
        scene = scene.after(tables.read(), NOW + 1_000 * second)
    told = [(event.seen_at - NOW, event.sentence) for event in scene.events[len(first.events) :]]
    since = f"the broker does not answer since {clock(NOW)}: the tables do not change"
    assert told == [(1_000, since), (3_000, "the broker answers again")]


def test_a_name_cannot_act_on_the_terminal(tables: Tables, first: Scene) -> None:
    batch: Batch = {"a\x1b[2J\n": group(), "": group()}
    assert sentences_after(tables, first, batch) == ['group "" appeared', "group a\\x1b[2J\\n appeared"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [("", '""'), (" ", '" "'), ("\n", '"\\n"'), ("a b", "a b"), ("a ", '"a "'), (" a", '" a"')],
)
def test_a_name_whose_begin_or_end_would_not_be_seen_is_quoted(name: str, shown: str) -> None:
    assert printable(name) == shown


def test_lag_is_that_of_the_last_samples(tmp_path: Path) -> None:
    world = LagTables(tmp_path, now_ms() - 3_000)
    settings, rows = demo_settings("localhost:1", tmp_path, tmp_path / "spark.log"), world.tables.read()
    lags = _lags(replace(settings, tables=replace(settings.tables, root=str(tmp_path))), rows)
    assert {key.group: lag for key, lag in lags.items()} == {"live": 30, "dead": 1_230, "old": 5_100}
    lines = [line.plain.split() for line in offset_lines(Scene().after(rows, world.now, lags))]
    assert lines[0][4:] == ["LAG", "CHANGE"]
    assert [line[4:] for line in lines[1:]] == [["1230", "new"], ["30", "new"], ["new"], ["5100", "new"]]
