"""The changes of a group in memory answer every question as the tables do."""

import tempfile
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from new_tables import new_tables
from table_batches import BATCHES, Batch, append, group, in_one_partition, offset, replay

from streaming.maintenance.trimming import note_day
from streaming.tables.held import HeldChanges, HeldRewinds
from streaming.tables.progress_rows import HISTORY_TRANSACTION, HistoryGoneError
from streaming.tables.snapshot import Snapshot
from streaming.tables.tables import Tables

EVERY: dict[str, Callable[[Snapshot, str], object]] = {
    "offsets": lambda at, name: rows(at.offsets([name])),
    "offsets before": lambda at, name: rows(at.offsets_written_by(2_500, [name])),
    "groups": lambda at, name: rows(at.groups([name])),
    "groups before": lambda at, name: rows(at.groups_before([name], until=2_500)),
    "groups over time": lambda at, name: rows(at.groups_over_time([name], since=1_500, until=9_000)),
    "keys": lambda at, name: rows(at.keys([name], among="history")),
    "history": lambda at, name: rows(at.history([name])),
    "some history": lambda at, name: rows(at.history([name], since=2_000, events=["rewind", "removed"])),
    "commits": lambda at, name: rows(at.commits([name], since=1_500)),
    "commit pieces": lambda at, name: sorted(
        row for some in at.commit_pieces([name], since=1_500) for row in rows(some)
    ),
    "pauses": lambda at, name: rows(at.pauses([name], since=0, longer_than_ms=1)),
    "rewinds": lambda at, name: rows(at.rewinds([name], since=0)),
    "group steps": lambda at, name: rows(at.group_steps([name])),
    "removals": lambda at, name: rows(at.removals([name])),
    "first set": lambda at, name: at.first_set(name, after=1_500),
}
"""What a snapshot can be asked about one group."""


def rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def answers(at: Snapshot, name: str) -> dict[str, object]:
    found = {question: ask(at, name) for question, ask in EVERY.items()}
    try:
        found["earlier"] = rows(at.as_of(2_000).offsets([name]))
    except HistoryGoneError as error:
        found["earlier"] = str(error)
    return found


def held(tables: Tables, name: str, changes: HeldChanges, as_of: int | None = None) -> dict[str, object]:
    def ask(at: Snapshot) -> dict[str, object]:
        at.hold(name, changes)
        return answers(at, name)

    return tables.ask(ask, as_of=as_of)


def read(tables: Tables, name: str, as_of: int | None = None) -> dict[str, object]:
    return tables.ask(lambda at: answers(at, name), as_of=as_of)


@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(batches=st.lists(BATCHES, min_size=2, max_size=4), most_bytes=st.sampled_from([1, 10**7]))
def test_changes_in_memory_answer_as_the_tables_do_while_these_grow(
    batches: list[Batch], most_bytes: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tables, changes = new_tables(tmp_path_factory.mktemp("tables")), HeldChanges(most_bytes)
    written: list[Batch] = []
    names = sorted({key if isinstance(key, str) else key[0] for batch in batches for key in batch})[:2]
    for number, batch in enumerate(map(in_one_partition, batches)):
        append(tables, batch, live=replay(written))
        written.append(batch)
        if number % 2:
            tables.fold()
        for name in names:
            assert held(tables, name, changes) == read(tables, name)
    for name in names:
        found = held(tables, name, changes)
        assert found == read(tables, name)
        assert found["commit pieces"] == found["commits"]
        assert held(tables, name, changes, as_of=1_999) == read(tables, name, as_of=1_999)


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    made = new_tables(tmp_path / "tables")
    append(made, {("g", "t", 0): offset(committed_offset=5), "g": group()})
    append(
        made, {("g", "t", 0): offset(committed_offset=3)}, live={("g", "t", 0): offset(committed_offset=5)}
    )
    return made


def test_only_newer_changes_are_read_again(tables: Tables) -> None:
    changes, files = HeldChanges(), list(Path(tables.root, "changes").rglob("*.parquet"))
    before = held(tables, "g", changes)["history"]
    for file in files:
        file.unlink()
    append(tables, {("g", "t", 1): offset()})
    after = tables.ask(lambda at: (at.hold("g", changes), rows(at.history(["g"])))[1])
    assert isinstance(before, list)
    assert len(before) == 2
    assert len(after) == 3
    assert set(before) < set(after)


@pytest.mark.parametrize("is_folded", [False, True])
@pytest.mark.parametrize(
    ("moment", "committed"), [(999, []), (1_000, [5]), (1_499, [5]), (1_500, [8]), (2_000, [8])]
)
def test_offsets_written_by_a_moment_include_batches_after_the_clock_was_set_back(
    moment: int, committed: list[int], is_folded: bool, tables: Tables
) -> None:
    live: Batch = {("g", "t", 0): offset(committed_offset=3)}
    append(tables, {("g", "t", 0): offset(committed_offset=8)}, live=live, now=1_500)
    append(tables, {("other", "t", 0): offset()}, now=1_600)
    if is_folded:
        tables.fold()

    def ask(at: Snapshot, changes: HeldChanges | None = None) -> list[int]:
        if changes is not None:
            at.hold("g", changes)
        return at.offsets_written_by(moment, ["g"])["committed_offset"].to_pylist()

    assert tables.ask(ask) == committed
    assert tables.ask(lambda at: ask(at, HeldChanges())) == committed


def test_other_groups_and_all_groups_are_read_from_the_tables(tables: Tables) -> None:
    append(tables, {("other", "t", 0): offset()})

    def ask(at: Snapshot) -> list[int]:
        at.hold("g", HeldChanges())
        return [len(at.history(names)) for names in (["g"], ["other"], ["g", "other"], None, [])]

    assert tables.ask(ask) == [2, 1, 3, 3, 0]


def test_a_group_with_too_many_changes_is_read_from_the_tables(tables: Tables) -> None:
    changes = HeldChanges(most_bytes=1_000)

    for _ in range(2):
        assert tables.ask_now(lambda at: changes.of(at.changes, "g", 2)) is None
        assert held(tables, "g", changes) == read(tables, "g")
    append(tables, {("other", "t", 0): offset()})
    assert tables.ask_now(lambda at: changes.of(at.changes, "other", 3)) is not None


def test_dropped_history_is_not_held_any_longer(tables: Tables) -> None:
    changes = HeldChanges()
    assert len(tables.ask(lambda at: (at.hold("g", changes), at.history(["g"]))[1])) == 2
    delta = tables.delta("changes")
    delta.delete('"sequence" = 1')
    note_day(tables.delta("changes"), HISTORY_TRANSACTION, date(1970, 1, 2))
    assert len(tables.ask(lambda at: (at.hold("g", changes), at.history(["g"]))[1])) == 1


def test_recent_rewinds_equal_those_of_the_tables_while_these_grow(tables: Tables) -> None:
    recent, live = HeldRewinds(), {("g", "t", 0): offset(committed_offset=3)}
    for number, since in enumerate([0, 1_500, 1_500, 3_500, 0]):
        found, read = tables.ask(
            lambda at, since=since: (at.recent_rewinds(recent, since=since), at.rewinds(since=since))  # type: ignore[misc]
        )
        assert found.equals(read)
        assert tables.ask(lambda at: at.recent_rewinds(recent, since=0), as_of=2_000).num_rows == 1
        lower: Batch = {("g", "t", 0): offset(committed_offset=2 - number)}
        append(tables, lower, live=live)
        live = lower


def test_without_a_place_for_temporary_files_the_tables_are_read(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    assert held(tables, "g", HeldChanges()) == read(tables, "g")
