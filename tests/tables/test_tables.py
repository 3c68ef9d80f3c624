"""Real Delta tables in a folder: what is read equals a replay in plain dicts, whatever was folded when."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from table_batches import (
    BATCHES,
    EPOCH,
    GROUP_IDS,
    OFFSET,
    POSITION,
    QUERY,
    Batch,
    Key,
    append,
    as_read,
    completed,
    group,
    offset,
    replay,
    running,
)

from streaming.model.progress import PartitionEnds, Progress
from streaming.model.schemas import CHANGES, QUARANTINE_IN_BATCH
from streaming.model.totals import Totals
from streaming.tables.commits import ProgressMissingError, progress_of
from streaming.tables.handles import TableHandles
from streaming.tables.rows import quarantine_rows
from streaming.tables.storage_errors import TablesUnreachableError
from streaming.tables.tables import Tables, TablesMissingError


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    history=st.lists(st.tuples(BATCHES, st.booleans()), max_size=6),
    asked=st.lists(GROUP_IDS, max_size=2),
    handles=st.builds(TableHandles) | st.none(),
)
def test_read_equals_a_replay_of_the_changes_at_every_moment(
    history: list[tuple[Batch, bool]],
    asked: list[str],
    handles: TableHandles | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    tables = Tables(str(tmp_path_factory.mktemp("tables")), handles=handles)
    tables.create()
    assert as_read(tables) == {}
    for count, (batch, folds_after) in enumerate(history, start=1):
        append(tables, batch)
        expected = completed(replay([batch for batch, _ in history[:count]]))
        of_asked = {
            key: row for key, row in expected.items() if (key if isinstance(key, str) else key[0]) in asked
        }
        assert as_read(tables) == expected
        if folds_after:
            tables.fold()
            assert as_read(tables) == expected
            assert tables.unfolded_rows() == 0
        assert as_read(tables, asked) == of_asked


# --- batches and progress --------------------------------------------------------------------------------


def test_a_batch_and_its_progress_are_one_commit(tables: Tables) -> None:
    before = tables.delta("changes").version()
    written = append(tables, {("g", "t", 0): offset(), "g": group()})
    assert tables.delta("changes").version() == before + 1
    assert tables.progress() == written


def test_progress_of_new_tables_is_fresh(tables: Tables) -> None:
    assert tables.progress() == Progress()


def test_progress_without_rows_is_committed_too(tables: Tables) -> None:
    progress = Progress(topic="t", totals=Totals(decoded=3)).with_positions({0: 5})
    progress = progress.with_ends({0: PartitionEnds(5, 6)}, now=9)
    tables.append_changes(CHANGES.empty_table(), progress, is_batch=False)
    assert tables.progress() == progress
    assert tables.unfolded_rows() == 0


@pytest.mark.parametrize(
    ("query_id", "batch_id", "is_known"),
    [(QUERY, 0, True), (QUERY, 1, True), (QUERY, 2, False), ("another query", 0, False)],
)
def test_replay_of_a_batch_is_recognized(
    tables: Tables, query_id: str, batch_id: int, is_known: bool
) -> None:
    append(tables, {"g": group()})
    append(tables, {})
    assert tables.is_appended(query_id, batch_id) is is_known


def test_heartbeat_is_not_taken_for_its_batch(tables: Tables) -> None:
    tables.append_changes(CHANGES.empty_table(), Progress(query_id=QUERY, batch_id=0), is_batch=False)
    assert not tables.is_appended(QUERY, 0)


def test_quarantine_of_a_replayed_batch_is_written_once(tables: Tables) -> None:
    row = {
        "key": b"\0",
        "value": None,
        "reason": "cut short",
        "at_byte": 1,
        "error_kind": "malformed",
        **POSITION,
    }
    failed = pa.Table.from_pylist([row], QUARANTINE_IN_BATCH)
    rows, _ = quarantine_rows(failed, sequence=1, batch_time=0)
    for batch_id in (0, 0, 1):
        tables.append_quarantine(rows, Progress(query_id=QUERY, batch_id=batch_id))
    kept = tables.read_quarantine().to_pylist()
    assert [row["key"] for row in kept] == [b"\0", b"\0"]
    assert kept[0]["source_timestamp"] == EPOCH + timedelta(seconds=2)


def test_progress_belongs_to_the_version_that_was_opened(tables: Tables) -> None:
    first = append(tables, {"g": group()})
    opened = tables.delta("changes")
    append(tables, {"h": group()})
    assert progress_of(opened, tables.storage(opened)) == first


def test_commit_of_another_program_does_not_hide_the_progress(tables: Tables) -> None:
    written = append(tables, {"g": group()})
    tables.delta("changes").alter.set_table_description("seen by an administrator")
    assert tables.progress() == written


def test_progress_and_transactions_survive_a_cleaned_up_log(tables: Tables) -> None:
    forget_old_commits(tables)
    for number in range(3):
        written = append(tables, {"g": group(generation_or_epoch=number)})
    clean_up(tables)
    assert tables.progress() == written
    assert tables.is_appended(QUERY, written.batch_id)
    assert not tables.is_appended(QUERY, written.batch_id + 1)
    assert as_read(tables) == completed({"g": group(generation_or_epoch=2)})


def test_progress_that_was_cleaned_away_is_not_taken_for_a_fresh_start(tables: Tables) -> None:
    forget_old_commits(tables)
    append(tables, {"g": group()})
    tables.delta("changes").alter.set_table_description("seen by an administrator")
    clean_up(tables)
    with pytest.raises(ProgressMissingError, match="found none back to version 2"):
        tables.progress()


def forget_old_commits(tables: Tables) -> None:
    tables.delta("changes").alter.set_table_properties({"delta.logRetentionDuration": "interval 0 days"})


def clean_up(tables: Tables) -> None:
    changes = tables.delta("changes")
    changes.create_checkpoint()
    changes.cleanup_metadata()
    assert len(list(Path(tables.root, "changes", "_delta_log").glob("*.json"))) == 1


def test_changes_are_read_in_the_order_of_batches(tables: Tables) -> None:
    for number in range(3):
        append(tables, {"g": group(generation_or_epoch=number)})
    assert tables.read_changes()["sequence"].to_pylist() == [1, 2, 3]


def test_absent_value_is_not_a_value_of_nulls(tables: Tables) -> None:
    nothing_known = dict.fromkeys(OFFSET) | POSITION
    append(tables, {("g", "t", 0): nothing_known, ("g", "t", 1): None})
    values = {row["partition"]: row["after"] for row in tables.read_changes().to_pylist()}
    assert values[0] is not None
    assert values[0]["committed_offset"] is None
    assert values[1] is None


# --- folding ---------------------------------------------------------------------------------------------


def test_fold_is_idempotent(tables: Tables) -> None:
    append(tables, {("g", "t", 0): offset(), "g": group()})
    assert tables.fold() == 2
    versions = versions_of(tables)
    assert tables.fold() == 0
    assert versions_of(tables) == versions


def test_fold_goes_on_where_an_interrupted_one_stopped(tables: Tables, tmp_path: Path) -> None:
    live: Batch = {("g", "t", 0): offset(committed_offset=2), "g": group(state="Empty")}
    append(tables, {("g", "t", 0): offset(), "g": group(), "h": group()})
    tables.fold()
    append(tables, {**live, "h": None})
    shutil.copytree(tmp_path / "tables" / "groups", tmp_path / "groups before")
    tables.fold()
    shutil.rmtree(tmp_path / "tables" / "groups")  # as if it had ended after `offsets`
    shutil.copytree(tmp_path / "groups before", tmp_path / "tables" / "groups")
    assert as_read(tables) == completed(live)
    assert tables.unfolded_rows() == 3
    assert tables.fold() == 2
    assert as_read(tables) == completed(live)
    assert tables.unfolded_rows() == 0


@pytest.mark.parametrize("first", [{}, {"g": group()}], ids=["first fold", "later fold"])
def test_fold_of_changes_without_effect_is_noted(tables: Tables, first: Batch) -> None:
    append(tables, first)
    tables.fold()
    append(tables, {"never seen": None, ("never", "seen", 0): None})
    tables.fold()
    assert tables.unfolded_rows() == 0


def test_other_engines_read_the_last_fold(tables: Tables) -> None:
    append(tables, {("g", "t", 0): offset(), ("g", "t", 1): offset()})
    tables.fold()
    append(tables, {("g", "t", 0): offset(committed_offset=8), ("g", "t", 1): None})
    tables.fold()
    folded = DeltaTable(f"{tables.root}/offsets")
    found = pa.table(
        QueryBuilder().register("o", folded).execute('SELECT "partition", committed_offset FROM o').read_all()
    )
    assert found.to_pylist() == [{"partition": 0, "committed_offset": 8}]


def versions_of(tables: Tables) -> list[int]:
    return [tables.delta(name).version() for name in ("changes", "offsets", "groups")]


# --- readers beside the writer ---------------------------------------------------------------------------


def test_readers_beside_a_writer_see_whole_batches_only(tables: Tables) -> None:
    keys: list[Key] = [("a", "t", 0), ("b", "t", 0), ("c", "t", 0)]
    last = 12

    def write() -> None:
        for number in range(1, last + 1):
            batch: Batch = {key: offset(committed_offset=number) for key in keys}
            append(tables, {**batch, "g": group(generation_or_epoch=number)})
            if number % 3 == 0:
                tables.fold()

    seen = []
    with running(write) as is_running:
        while is_running():
            snapshot = tables.read()
            numbers = [*snapshot.offsets["committed_offset"].to_pylist()]
            numbers += snapshot.groups["generation_or_epoch"].to_pylist()
            assert numbers == [snapshot.progress.sequence] * (4 if numbers else 0)
            seen.append(snapshot.progress.sequence)
    assert seen == sorted(seen)
    assert tables.read().progress.sequence == last


# --- roots -----------------------------------------------------------------------------------------------


@pytest.fixture(
    params=["{}/lake", "{}/lake/", "file://{}/lake", "file://{}/lake/", "{}/two words", "{}/größe"]
)
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return request.param.format(tmp_path)


def test_root_is_a_folder_or_a_url_with_or_without_a_slash(root: str) -> None:
    tables = Tables(root)
    tables.create()
    append(tables, {"g": group()})
    tables.fold()
    append(tables, {"h": group()})
    assert as_read(Tables(root)).keys() == {"g", "h"}


def test_relative_root_is_below_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Tables("lake").create()
    assert Tables(str(tmp_path / "lake")).progress() == Progress()
    append(Tables("lake"), {"g": group()})
    assert as_read(Tables("lake")).keys() == {"g"}


def test_creating_tables_again_keeps_them(tables: Tables) -> None:
    append(tables, {"g": group()})
    tables.create()
    assert as_read(tables).keys() == {"g"}


@contextmanager
def another_user() -> Iterator[None]:
    """Be nobody, if this is root, whom no mode keeps away."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65_534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


def test_tables_that_only_others_may_read_are_not_called_missing(tables: Tables) -> None:
    Path(tables.root).chmod(0)
    try:
        with another_user(), pytest.raises(TablesUnreachableError, match=r"may read.*readable_by_group"):
            tables.read()
    finally:
        Path(tables.root).chmod(0o700)


def test_files_that_only_others_may_read_in_tables_that_all_may_are_not_called_damaged() -> None:
    """As where an earlier release has made the tables, and its files were for all."""
    folder = Path(tempfile.mkdtemp())  # that of pytest is closed to others as a whole
    try:
        folder.chmod(0o755)
        tables = Tables(str(folder / "lake"))
        tables.create()
        append(tables, {"g": group()})
        for made in (folder / "lake").rglob("*"):
            made.chmod(made.stat().st_mode | 0o555)
        (folder / "lake").chmod(0o755)
        newest = max(Path(tables.root, "changes", "_delta_log").glob("*.json"))
        newest.chmod(0)
        with another_user(), pytest.raises(TablesUnreachableError, match=r"may read.*readable_by_group"):
            Tables(tables.root).read()
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("name", ["lake", "lake/", "a plain file/lake"])
def test_missing_tables_are_a_clear_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "a plain file").touch()
    with pytest.raises(
        TablesMissingError, match=r"expected a Delta table at .*lake/changes, found none\. Check --table-root"
    ):
        Tables(str(tmp_path / name)).read()


def test_broken_table_is_a_clear_error(tables: Tables) -> None:
    for commit in Path(tables.root, "groups", "_delta_log").iterdir():
        commit.write_text("{")
    with pytest.raises(
        TablesUnreachableError, match=r"reading .*/groups: expected a Delta table, found: .*"
    ) as raised:
        tables.read()
    assert "\n" not in str(raised.value)


def test_tables_are_deleted_also_when_a_deletion_was_interrupted(tmp_path: Path) -> None:
    tables = Tables(str(tmp_path / "aside"))
    tables.delete()  # nothing there
    tables.create()
    (tmp_path / "aside" / "changes" / "_delta_log" / f"{0:020}.json").unlink()
    tables.delete()
    assert not any(path.is_file() for path in (tmp_path / "aside").rglob("*"))
