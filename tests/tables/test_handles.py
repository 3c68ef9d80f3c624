"""Tables that stay open between commits are the tables on disk at each commit."""

import shutil
from pathlib import Path

import pytest
from table_batches import append, as_read, offset

from streaming.tables import handles
from streaming.tables.commits import ProgressMissingError
from streaming.tables.handles import TableHandles
from streaming.tables.snapshot import Snapshot
from streaming.tables.tables import Tables, TablesMissingError

KEY = ("g", "t", 0)


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    tables = Tables(str(tmp_path / "tables"), handles=TableHandles())
    tables.create()
    append(tables, {KEY: offset(committed_offset=1)})
    return tables


def taken(tables: Tables) -> object:
    assert tables.handles is not None
    return tables.handles.taken(f"{tables.root}/changes")


def test_the_next_commit_uses_the_table_that_the_last_one_opened(tables: Tables) -> None:
    first = taken(tables)
    assert first is not None
    assert taken(tables) is None, "it belongs to one caller at a time"
    append(tables, {KEY: offset(committed_offset=2)})
    assert taken(tables) is not first, "opened again, as the first one was not put back"


def test_commits_of_others_are_in_it(tables: Tables) -> None:
    """Also where maintenance has deleted the log up to a checkpoint."""
    other = Tables(tables.root)
    for committed in range(2, 45):
        append(other, {KEY: offset(committed_offset=committed)})
    for commit in sorted(Path(tables.root, "changes", "_delta_log").glob("*.json"))[:35]:
        commit.unlink()
    table = taken(tables)
    assert table is not None
    assert table.version() == other.delta("changes").version()
    assert sorted(table.file_uris()) == sorted(other.delta("changes").file_uris())
    append(tables, {KEY: offset(committed_offset=45)})
    assert as_read(tables) == as_read(other)


def test_tables_that_were_deleted_are_missing(tables: Tables) -> None:
    shutil.rmtree(tables.root)
    with pytest.raises(TablesMissingError):
        append(tables, {KEY: offset(committed_offset=2)})
    assert not Path(tables.root, "changes", "_delta_log").exists()


def test_after_an_error_they_are_opened(tables: Tables) -> None:
    append(tables, {KEY: offset(committed_offset=2)})
    shutil.rmtree(tables.root)
    Tables(tables.root).create()
    with pytest.raises(ProgressMissingError):
        append(tables, {KEY: offset(committed_offset=3)})
    append(tables, {KEY: offset(committed_offset=3)})
    assert tables.delta("changes").version() == 1
    assert as_read(tables) == as_read(Tables(tables.root))


def test_after_a_suspension_they_are_opened(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a table that was created again meanwhile, with more commits, would be mixed with the former."""
    now = handles.time()
    for later in (now + 61, now - 61):  # the clock may have been set back
        append(tables, {KEY: offset(committed_offset=2)})
        monkeypatch.setattr(handles, "time", lambda later=later: later)
        assert taken(tables) is None
        monkeypatch.undo()


def test_an_answer_puts_all_tables_back_that_it_opened(tables: Tables) -> None:
    tables.fold()
    assert tables.handles is not None
    for committed in (2, 3):
        append(tables, {KEY: offset(committed_offset=committed)})
        assert as_read(tables) == as_read(Tables(tables.root))
        for name in ("changes", "offsets", "groups"):
            assert tables.handles.taken(f"{tables.root}/{name}") is not None, name
            assert tables.handles.taken(f"{tables.root}/{name}") is None, name
        as_read(tables)
        tables.fold()


def test_an_answer_that_fails_keeps_none(tables: Tables) -> None:
    def question(at: Snapshot) -> None:
        at.offsets()
        raise KeyError

    with pytest.raises(KeyError):
        tables.ask(question)
    assert tables.handles is not None
    assert tables.handles.taken(f"{tables.root}/offsets") is None
