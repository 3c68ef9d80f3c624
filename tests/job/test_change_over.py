"""What changes in the live tables once the topic was read from its start."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from new_tables import new_tables

from streaming.common import pieces
from streaming.expiry.causes import GONE_WHILE_AWAY
from streaming.job import change_over
from streaming.job.change_over import differences, not_in
from streaming.model.progress import Progress, Retention
from streaming.model.schemas import CHANGES, GROUPS, OFFSETS, QUARANTINE

DAY = 86_400_000


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


RETENTION = Retention(retention_ms=7 * DAY, check_interval_ms=1, source="broker", read_at=1, known_since=1)


@pytest.mark.parametrize(
    ("found", "since"),
    [
        (None, 1),
        (replace(RETENTION, known_since=DAY), 1),
        (replace(RETENTION, retention_ms=1, known_since=DAY), DAY),
    ],
    ids=["not reported", "the same", "another one"],
)
def test_the_retention_that_the_tables_know_stays_known(
    tmp_path: Path, found: Retention | None, since: int
) -> None:
    live = new_tables(tmp_path)
    aside = live.aside()
    aside.create()
    for tables, retention in ((live, RETENTION), (aside, found)):
        progress = Progress(query_id="q", topic="t", retention=retention)
        tables.append_changes(CHANGES.empty_table(), progress, is_batch=False)
    after = change_over.change_over(live, aside, lambda _: {}).retention
    assert after is not None
    assert after.known_since == since
    assert live.progress().retention == after


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
        assert (row["group_before"] or {}).get("generation_or_epoch") == state.pop(row["group"], None)
        if row["op"] == "set":
            state[row["group"]] = row["group_after"]["generation_or_epoch"]
    assert state == after


def test_what_is_too_large_for_one_array_is_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "ARRAY_BYTES", 4_000)
    monkeypatch.setattr(pieces, "PIECE_BYTES", 2_000)
    monkeypatch.setattr(change_over, "_COMPARED_ROWS", 3)
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
