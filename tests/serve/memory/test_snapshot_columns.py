"""What memory_snapshots are made of: names in order, texts by slots, and tables of any release with any
names."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st
from memory_snapshots import (
    check_whole,
    groups_answered,
    groups_in,
    offsets_answered,
    offsets_in,
    whole,
)
from table_batches import GROUP_IDS, Batch, append, group, offset

from streaming.serve.memory import texts
from streaming.serve.memory.names import NONE, Coded, NameIndex, joined
from streaming.serve.memory.tailer import Tailer
from streaming.serve.memory.texts import TextStore
from streaming.tables.tables import Tables

DATA = Path(__file__).parents[2] / "data"
TEXTS = st.lists(st.none() | st.sampled_from(["", "a", "ä\0", "x" * 300]), max_size=6)


@given(st.lists(st.tuples(st.lists(GROUP_IDS, max_size=5), st.sets(st.integers(0, 20))), max_size=5))
def test_names_stay_in_order_and_tell_where_they_have_moved(steps: list[tuple[list[str], set[int]]]) -> None:
    names, held = NameIndex.none(), list[str]()
    for new, dropped in steps:
        is_kept = np.array([place not in dropped for place in range(len(held))], np.bool_)
        kept = [name for place, name in enumerate(held) if place not in dropped]
        changed, moved = names.changed(pa.array([*new, None], pa.string()), is_kept)
        expected = sorted({*kept, *new}, key=str.encode)
        assert changed.texts.to_pylist() == list(changed.places) == expected
        assert list(changed.places.values()) == list(range(len(expected)))
        assert [NONE if place in dropped else expected.index(name) for place, name in enumerate(held)] == [
            place if is_kept[old] else NONE for old, place in enumerate(moved.tolist())
        ]
        names, held = changed, expected
    assert names.places_of(pa.array([*held, "no such name"])).tolist() == [*range(len(held)), NONE]


@given(st.lists(TEXTS, max_size=4))
def test_texts_one_after_the_other_are_found_in_names(columns: list[list[str | None]]) -> None:
    coded = joined([Coded.of(pa.array(column, pa.string())) for column in columns])
    names, _ = NameIndex.none().changed(coded.texts)
    every = [text for column in columns for text in column]
    places = coded.places_in(names).tolist()
    assert [None if place == NONE else names.name(place) for place in places] == every


@given(st.lists(TEXTS, max_size=12), st.randoms())
def test_texts_are_found_by_their_slots_however_many_came_after(
    columns: list[list[str | None]], random: "np.random.Generator"
) -> None:
    held, slots = TextStore.none(), list[int]()
    for column in columns:
        held, own = held.with_more(pa.array(column, pa.string()))
        slots += own.tolist()
    every = [(text or "").encode() for column in columns for text in column]
    order = list(range(len(slots)))
    random.shuffle(order)
    asked = np.array([slots[row] for row in order], np.int32)
    assert held.at(asked).to_pylist() == [every[row] for row in order]
    left, slots_left = held.only(asked)
    assert left.at(slots_left).to_pylist() == [every[row] for row in order]
    assert len(left) == len({*asked.tolist(), 0})
    assert len(held.pieces) <= 5


def test_texts_that_nothing_refers_to_are_dropped(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "_SPARE_TEXTS", 4)
    tailer = Tailer(tables)
    assert tailer.poll()
    for number in range(15):
        append(tables, {("g", "t", 0): offset(metadata=f"number {number}"), "g": group()})
        assert tailer.poll()
        assert tailer.current.offsets_of("g").metadata.to_pylist() == [f"number {number}".encode()]
    assert len(tailer.current.offsets.columns.texts) < 12


LONG: Batch = {
    ("\0" * 32_767, "t" * 32_767, 2**31 - 1): offset(metadata="m" * 70_000, committed_offset=2**63 - 1),
    ("𠮷" * 8_191, "\U0010ffff", -(2**31)): offset(metadata="\0", leader_epoch=None, topic_id="i" * 22),
    ("", "", 0): offset(metadata=""),
    "": group(members=[{"member_id": "m\0", "client_id": "", "client_host": "/h"}]),
}


def test_names_and_metadata_of_any_length_and_characters(tables: Tables) -> None:
    append(tables, {"b": group()})
    tailer = Tailer(tables)
    assert tailer.poll()
    append(tables, LONG)
    assert tailer.poll()
    tables.fold()
    for snapshot in (tailer.current, whole(tables)):
        check_whole(snapshot)
        assert offsets_in(snapshot) == offsets_answered(tables)
        assert groups_in(snapshot) == groups_answered(tables)
        assert snapshot.offsets_of("\0" * 32_767).committed_offset.tolist() == [2**63 - 1]


def test_columns_that_the_table_of_groups_lacks_are_null(tables: Tables, tmp_path: Path) -> None:
    append(tables, {"g": group(protocol="range")})
    tables.fold()
    table = DeltaTable(f"{tables.root}/groups")
    rows = pa.table(table.to_pyarrow_table()).drop_columns(["protocol"])
    file = Path(table.file_uris()[0].removeprefix("file://"))
    pa.parquet.write_table(rows.drop_columns(["bucket"]), file)
    [row] = whole(tables).groups.rows.to_pylist()
    assert (row["protocol"], row["state"], row["source_offset"]) == (None, "Stable", 11)
