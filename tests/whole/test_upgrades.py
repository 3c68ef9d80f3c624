"""Upgrades: files of older formats are read and gone on from, those of newer ones refused with what to do."""

import json
import shutil
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import PyFileSystem
from table_batches import (
    QUERY,
    Batch,
    append,
    as_read,
    changes_of,
    completed,
    offset,
    replay,
)
from version_files import (
    AUDIT,
    BAD_KEY,
    BAD_VALUE,
    BILLING,
    FIRST,
    HIDDEN,
    IN_SECOND_BATCH,
    SECOND,
    THIRD,
    bad_record,
    write_state,
    write_tables,
)

from streaming.brokers.facts import TopicFacts
from streaming.cli.main import cli
from streaming.job.pairing import bound, check_checkpoint
from streaming.maintenance.trimming import note_day
from streaming.model.errors import MisuseError, OffsetlakeError
from streaming.model.progress import Progress
from streaming.model.schemas import CHANGES, COMMITS, QUARANTINE_IN_BATCH, TABLES_FORMAT
from streaming.queries.queries import OffsetQueries
from streaming.queries.sql import run_sql
from streaming.settings.reading import read_settings
from streaming.spark.checkpoint import Checkpoint
from streaming.state.stored import STATE_FORMAT, Values
from streaming.tables.commits import PROGRESS_KEY
from streaming.tables.feed import noted_day
from streaming.tables.formats import _columns_of, mend_bounds
from streaming.tables.rows import change_rows, quarantine_rows
from streaming.tables.select import is_one_of
from streaming.tables.tables import Tables, TablesTooNewError

DATA = Path(__file__).parents[1] / "data"
KEPT = sorted(path.name for path in DATA.glob("version-*"))
PRESENT = "present"
NAMES = ("changes", "offsets", "groups", "quarantine", "alerts", "log_ends")


@pytest.fixture(params=[*KEPT, PRESENT])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the files of a format, or those that this release writes."""
    target = tmp_path / "kept"
    if request.param == PRESENT:
        write_tables(target / "tables")
        write_state(target / "state")
    else:
        shutil.copytree(DATA / request.param, target)
    return target


def as_of_third_batch() -> Batch:
    return completed(replay([FIRST, SECOND, THIRD]))


def format_of(tables: Tables, name: str) -> str | None:
    return tables.delta(name).metadata().configuration.get("offsetlake.format")


def test_files_of_every_format_but_the_present_are_kept() -> None:
    assert [f"version-{number}" for number in range(1, TABLES_FORMAT)] == KEPT


def test_tables_are_read_before_and_after_they_are_brought_to_the_present_format(kept: Path) -> None:
    tables = Tables(str(kept / "tables"))
    for _ in ("before", "after"):
        assert as_read(tables) == as_of_third_batch()
        assert tables.progress().partitions[3].position == 12
        [bad] = tables.read_quarantine().to_pylist()
        assert (bad["key"], bad["value"], bad["at_byte"]) == (BAD_KEY, BAD_VALUE, 2)
        tables.create()
    assert {format_of(tables, name) for name in NAMES} == {str(TABLES_FORMAT)}


def test_tables_are_appended_to_and_folded_after_an_upgrade(kept: Path) -> None:
    tables = Tables(str(kept / "tables"))
    tables.create()
    fourth: Batch = {AUDIT: None, BILLING: offset(committed_offset=8)}
    append(tables, fourth, live=as_of_third_batch())
    record = bad_record() | {"key_length": 700, "value_length": 800, "source_offset": 19}
    rows = pa.Table.from_pylist([record], QUARANTINE_IN_BATCH)
    tables.append_quarantine(quarantine_rows(rows, sequence=4, batch_time=4_000)[0], tables.progress())
    expected = completed(replay([FIRST, SECOND, THIRD, fourth]))
    assert as_read(tables) == expected
    tables.fold()
    assert as_read(tables) == expected
    assert [row["value_length"] for row in tables.read_quarantine().to_pylist()] == [None, 800]


@pytest.fixture
def lacking(tmp_path: Path) -> Tables:
    """Tables of the present format, with `changes` as they were before commits were counted."""
    write_tables(tmp_path / "now")
    now, tables = Tables(str(tmp_path / "now")), Tables(str(tmp_path / "then"))
    shutil.copytree(tmp_path / "now", tmp_path / "then", ignore=shutil.ignore_patterns("changes"))
    changes = now.delta("changes")
    former = pa.schema([field for field in CHANGES if field.name != "commits"])
    table = DeltaTable.create(
        f"{tables.root}/changes",
        former,
        partition_by=["day"],
        configuration=changes.metadata().configuration,
        raise_if_key_not_exists=False,
    )
    commit = CommitProperties(custom_metadata={PROGRESS_KEY: now.progress().to_json()})
    rows = changes.to_pyarrow_table().select(former.names).cast(former)
    write_deltalake(table, rows, mode="append", commit_properties=commit)
    return tables


def test_a_column_that_no_job_has_added_yet_is_read_as_null(lacking: Tables) -> None:
    assert "commits" not in pa.schema(lacking.delta("changes").schema().to_arrow()).names
    for _ in ("before", "after"):
        assert as_read(lacking) == as_of_third_batch()
        assert lacking.read_changes()["commits"].null_count == len(lacking.read_changes()) == 6
        steps = OffsetQueries(lacking).list_history("billing").rows
        assert steps["commits"].to_pylist() == [None] * len(steps)
        assert len(steps) == 4
        [asked] = run_sql(
            lacking, 'SELECT sum("commits") AS n, count(*) AS "rows" FROM changes'
        ).rows.to_pylist()
        assert asked == {"n": None, "rows": len(lacking.delta("changes").to_pyarrow_table())}
        live = run_sql(lacking, "SELECT committed_offset FROM live_offsets ORDER BY 1").rows
        assert live["committed_offset"].to_pylist() == [2, 3]
        described = run_sql(lacking, "DESCRIBE changes").rows.to_pylist()
        assert {"column_name": "commits", "data_type": "int32"} in described
        lacking.create()
    assert "commits" in pa.schema(lacking.delta("changes").schema().to_arrow()).names


def test_the_log_is_cleaned_and_days_are_noted_before_tables_are_upgraded(lacking: Tables) -> None:
    progress = lacking.progress()
    changes = lacking.delta("changes")
    changes.alter.set_table_properties({"other": "commit"}, raise_if_not_exists=False)
    lacking.restate_progress()
    note_day(lacking.delta("changes"), "noted", date(1970, 1, 3))
    assert noted_day(lacking.delta("changes"), "noted") == date(1970, 1, 3)
    assert lacking.progress() == progress
    assert as_read(lacking) == as_of_third_batch()


def test_commits_are_counted_once_tables_are_upgraded(lacking: Tables) -> None:
    lacking.create()
    lacking.fold()
    rows = changes_of({AUDIT: offset(committed_offset=9)}, as_of_third_batch())
    counted = rows.set_column(rows.schema.get_field_index("commits"), COMMITS, pa.array([5], COMMITS.type))
    after = replace(lacking.progress(), batch_id=3, sequence=4, batch_time=4_000, heartbeat=4_000)
    lacking.append_changes(change_rows(counted, sequence=4, batch_time=4_000)[0], after, is_batch=True)
    assert OffsetQueries(lacking).list_history("audit").rows["commits"].to_pylist() == [None, 5]


def test_an_upgrade_is_done_once(kept: Path) -> None:
    tables = Tables(str(kept / "tables"))
    tables.create()
    versions = [tables.delta(name).version() for name in NAMES]
    tables.create()
    assert [tables.delta(name).version() for name in NAMES] == versions


def test_state_is_read_and_gone_on_from(kept: Path) -> None:
    values = Values(*[(kept / "state" / name).read_bytes() for name in ("entries", "entries_recent")])
    layers = values.layers()
    committed = {
        (row["group"], row["topic"], row["partition"]): row["committed_offset"]
        for row in layers.table.to_pylist()
    }
    assert (committed[BILLING], committed[AUDIT], len(committed)) == (3, 2, 62)
    unchanged = layers.updated(np.zeros(len(layers.table), bool), layers.table.slice(0, 0))
    assert values.updated(unchanged).layers().table.equals(layers.table)


# --- bounds that hide --------------------------------------------------------------------------------------


@pytest.fixture
def hidden(tmp_path: Path) -> Tables:
    """Tables of format 2 in which bounds of long texts are missing, and those beyond U+FFFF misread."""
    shutil.copytree(DATA / "version-2" / "hidden", tmp_path / "hidden")
    return Tables(str(tmp_path / "hidden"))


def actions(table: DeltaTable) -> list[dict[str, Any]]:
    """Return what the newest commit does."""
    log = Path(table.table_uri.removeprefix("file://")) / "_delta_log" / f"{table.version():020}.json"
    return [json.loads(line) for line in log.read_text().splitlines()]


def paths(table: DeltaTable) -> list[str]:
    return sorted(table.file_uris())


@pytest.mark.parametrize("name", HIDDEN, ids=ascii)
def test_questions_find_every_group_before_tables_are_upgraded(hidden: Tables, name: str) -> None:
    topics = {row["topic"] for row in hidden.read([name]).offsets.to_pylist()}
    assert topics == {name[:249], "later"} if name in IN_SECOND_BATCH else {name[:249]}
    assert [row["group"] for row in hidden.read([name]).groups.to_pylist()] == [name]
    assert {row["topic"] for row in OffsetQueries(hidden).list_history(name, []).rows.to_pylist()} == topics
    for table in ("live_offsets", "offsets", "changes"):
        asked = (
            f"SELECT DISTINCT metadata FROM {table} WHERE {is_one_of('group', [name])} AND topic <> 'later'"
        )
        asked = asked.replace("metadata FROM changes", "\"after\"['metadata'] AS metadata FROM changes")
        assert run_sql(hidden, asked).rows.to_pylist() == [{"metadata": "m" * 300}]


@pytest.mark.parametrize("name", HIDDEN, ids=ascii)
def test_other_engines_find_every_group_once_tables_are_upgraded(hidden: Tables, name: str) -> None:
    hidden.create()
    for table in ("changes", "offsets", "groups"):
        delta = hidden.delta(table)
        rows = delta.to_pyarrow_table(columns=["group"], filters=[("group", "==", name)])
        everything = delta.to_pyarrow_table(columns=["group"])["group"].to_pylist()
        assert rows.num_rows == everything.count(name) > 0
    assert as_read(hidden, [name]) == as_read(Tables(str(DATA / "version-2" / "hidden")), [name])


def test_only_doubtful_bounds_are_written_anew(hidden: Tables) -> None:
    fine: Batch = {("fine", "orders", 0): offset(committed_offset=1)}
    append(hidden, fine)
    table = hidden.delta("changes")
    before = paths(table)
    progress = hidden.progress()
    assert mend_bounds(table, DeltaStorageHandler(table.table_uri)) == 2
    table.update_incremental()
    added = [action["add"] for action in actions(table) if "add" in action]
    assert [(file["dataChange"], json.loads(file["stats"])["nullCount"]["group"]) for file in added] == [
        (False, 1),
        (False, 1),
    ]
    assert (paths(table), hidden.progress()) == (before, progress)


def test_an_upgrade_that_was_cut_is_gone_on_with(hidden: Tables) -> None:
    live = as_read(hidden)
    table = hidden.delta("offsets")
    mend_bounds(table, DeltaStorageHandler(table.table_uri))
    for _ in range(2):
        hidden.create()
        assert as_read(hidden) == live
    assert format_of(hidden, "offsets") == str(TABLES_FORMAT)


def test_a_file_that_is_compacted_meanwhile_does_not_come_back(hidden: Tables) -> None:
    table = hidden.delta("changes")
    hidden.delta("changes").optimize.compact()
    with pytest.raises(CommitFailedError):
        mend_bounds(table, DeltaStorageHandler(table.table_uri))
    assert len(paths(hidden.delta("changes"))) == 1


def test_an_upgrade_leaves_files_past_versions_and_checkpoints_as_they_are(hidden: Tables) -> None:
    old = hidden.delta("offsets")
    version, rows = old.version(), old.to_pyarrow_table().sort_by("group")
    hidden.create()
    table = hidden.delta("offsets")
    assert table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True) == []
    table.create_checkpoint()
    for at in (None, version):
        read = DeltaTable(table.table_uri, version=at)
        assert read.to_pyarrow_table().sort_by("group").equals(rows)
        assert paths(read) == paths(old)
    assert DeltaTable(table.table_uri).to_pyarrow_table(filters=[("group", "==", HIDDEN[1])]).num_rows == 1


def test_columns_that_files_lack_have_bounds_of_nulls(tmp_path: Path) -> None:
    shutil.copytree(DATA / "version-1", tmp_path / "kept")
    Tables(str(tmp_path / "kept" / "tables")).create()
    table = DeltaTable(tmp_path / "kept" / "tables" / "quarantine")
    mended = _columns_of(
        table,
        PyFileSystem(DeltaStorageHandler(table.table_uri)),
        ["reason", "key_length"],
        pa.table(table.get_add_actions(flatten=True))["path"][0].as_py(),
    )
    assert mended.to_pydict() == {"reason": [bad_record()["reason"]], "key_length": [None]}


# --- newer formats ---------------------------------------------------------------------------------------


def of_the_future(tables: Tables, name: str) -> None:
    newer = {"offsetlake.format": str(TABLES_FORMAT + 1)}
    DeltaTable(f"{tables.root}/{name}").alter.set_table_properties(newer, raise_if_not_exists=False)


@pytest.mark.parametrize("name", NAMES)
def test_the_job_refuses_a_table_of_a_newer_format(tmp_path: Path, name: str) -> None:
    tables = Tables(str(tmp_path))
    tables.create()
    of_the_future(tables, name)
    found = f"{name}: expected .* format {TABLES_FORMAT} or older, found format {TABLES_FORMAT + 1}"
    with pytest.raises(TablesTooNewError, match=found):
        tables.create()


@pytest.mark.parametrize(
    ("table", "command"),
    [
        ("changes", ["status"]),
        ("changes", ["offsets"]),
        ("offsets", ["offsets", "--group", "billing"]),
        ("groups", ["groups"]),
        ("quarantine", ["sql", "SELECT 1"]),
        ("changes", ["maintain"]),
        ("alerts", ["alerts"]),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_commands_refuse_a_table_of_a_newer_format(tmp_path: Path, table: str, command: list[str]) -> None:
    tables = Tables(str(tmp_path))
    write_tables(tmp_path)
    of_the_future(tables, table)
    result = CliRunner().invoke(cli, [*command, "--table-root", str(tmp_path)])
    assert isinstance(result.exception, TablesTooNewError)
    assert result.exception.exit_code == 2
    assert "use that release or a newer one" in str(result.exception)


def test_progress_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    document = json.loads(Progress().to_json())
    with pytest.raises(MisuseError, match="A newer offsetlake wrote these tables"):
        Progress.from_json(json.dumps(document | {"format": document["format"] + 1}))


def test_state_value_of_a_newer_format_is_refused(kept: Path) -> None:
    data = (kept / "state" / "entries").read_bytes()
    with pa.ipc.open_stream(data) as stream:
        table = stream.read_all()
    sink = pa.BufferOutputStream()
    newer = table.replace_schema_metadata({"offsetlake.format": str(STATE_FORMAT + 1)})
    with pa.ipc.new_stream(sink, newer.schema) as writer:
        writer.write_table(newer)
    with pytest.raises(OffsetlakeError, match="A newer offsetlake wrote this checkpoint"):
        Values(sink.getvalue().to_pybytes()).layers()


class CheckpointOf(Checkpoint):
    """The checkpoint of a query, as far as the checks at start look at it."""

    def __init__(self, query_id: str | None) -> None:
        self.path = "file:/checkpoint/0"
        self._query_id = query_id

    def query_id(self) -> str | None:
        return self._query_id

    def has_batches(self) -> bool:
        return self._query_id is not None


@pytest.mark.parametrize(
    ("found", "advice"),
    [
        (STATE_FORMAT - 1, "`offsetlake rebuild` creates a new"),
        (STATE_FORMAT + 1, "newer offsetlake wrote it"),
    ],
)
def test_a_checkpoint_of_another_layout_is_refused_at_start(found: int, advice: str) -> None:
    progress = Progress(query_id=QUERY, state_format=found)
    with pytest.raises(MisuseError, match=f"expected state of format {STATE_FORMAT}, found .*{advice}"):
        check_checkpoint(progress, CheckpointOf(QUERY), read_settings())


def test_a_checkpoint_of_the_first_release_is_refused_with_what_to_do() -> None:
    """Its values of the state say nothing of further pieces."""
    progress = Progress(query_id=QUERY, state_format=1)
    with pytest.raises(MisuseError, match=r"of format 2, found format 1\. `offsetlake rebuild`"):
        check_checkpoint(progress, CheckpointOf(QUERY), read_settings())


def test_what_the_job_begins_has_the_present_state_format() -> None:
    begun = bound(Progress(state_format=0), read_settings(), TopicFacts("cluster", 1))
    assert begun.state_format == STATE_FORMAT
    check_checkpoint(replace(begun, query_id=QUERY), CheckpointOf(QUERY), read_settings())
