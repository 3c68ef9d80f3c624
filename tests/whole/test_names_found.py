"""Every name is found by every way of asking, whatever stands beside it and however files were written."""

import json
from collections.abc import Callable, Collection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote, urlsplit

import duckdb
import pyarrow.dataset as ds
import pytest
from alert_tables import RETENTION, Lake
from click.testing import CliRunner
from deltalake import DeltaTable
from hostile_names import NAMES
from hypothesis import given, settings
from hypothesis import strategies as st
from new_tables import new_tables
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem
from table_batches import Batch, append, group, live_on, offset

from streaming.cli.main import cli
from streaming.maintenance.compaction import SORTED_TRANSACTION, compact
from streaming.maintenance.maintenance import KeepTimes, maintain
from streaming.model.progress import PartitionProgress
from streaming.queries.lag import LagQueries
from streaming.queries.offsets import OffsetQueries
from streaming.tables.select import is_one_of, select
from streaming.tables.tables import Tables

DAY = 86_400_000
ENGINES = ("sql", "pyarrow", "pandas", "DuckDB")
OWN_READERS = ENGINES[:2]
"""Engines that read files in their own way; the others read them by pyarrow."""
Found = set[tuple[str, str | None]]
"""The groups and topics of the rows that an answer has; a row of a group has no topic."""


def metadata_of(name: str) -> str:
    return f"{name}\U0010ffff"


def offsets_of(names: list[str], topic: str, **changed: Any) -> Batch:
    return {(name, topic, 0): offset(metadata=metadata_of(name), **changed) for name in names}


def retention(**changed: int) -> KeepTimes:
    days = {
        "history_ms": 7,
        "keep_removed_ms": 90,
        "keep_quarantine_ms": 30,
        "keep_unused_files_ms": 0,
        "keep_log_ends_ms": 7,
    }
    return KeepTimes(**{name: count * DAY for name, count in days.items()} | changed)


# --- ways of asking --------------------------------------------------------------------------------------


def commanded(tables: Tables, *arguments: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(cli, [*arguments, "--table-root", tables.root, "--output", "json"])
    assert (result.exception, result.exit_code) == (None, 0)
    rows: list[dict[str, Any]] = json.loads(result.stdout)
    return rows


def found_in(rows: list[dict[str, Any]]) -> Found:
    return {(row["group"], row.get("topic")) for row in rows}


def by_python(tables: Tables, names: list[str]) -> dict[str, Found]:
    queries = OffsetQueries(tables)
    fetched = queries.fetch_offsets(dict.fromkeys(names)).groups
    return {
        "list_offsets": found_in(queries.list_offsets(names).rows.to_pylist()),
        "fetch_offsets": {(name, at.topic) for name in names for at in fetched[name].partitions},
        "describe_groups": found_in(queries.describe_groups(names).rows.to_pylist()),
    }


def by_command(tables: Tables, names: list[str]) -> dict[str, Found]:
    """Ask for several names, but `history` for the first of them: it takes one group."""
    asked = f"""SELECT "group", topic FROM live_offsets WHERE {is_one_of("group", names)}"""
    wanted = [word for name in names for word in ("--group", name)]
    return {
        "offsets --group": found_in(commanded(tables, "offsets", *wanted)),
        "groups --group": found_in(commanded(tables, "groups", *wanted)),
        "history --group": found_in(commanded(tables, "history", *wanted[:2])),
        "sql": found_in(commanded(tables, "sql", asked)),
    }


def by_engines(
    table: DeltaTable, column: str, value: str, engines: Collection[str] = OWN_READERS
) -> dict[str, Found]:
    """Ask engines that read a table of offsets or changes without us."""
    root = unquote(urlsplit(table.table_uri).path)
    data = table.to_pyarrow_dataset(filesystem=SubTreeFileSystem(root, LocalFileSystem()))  # docs/reading.md
    columns = ["group", "topic"]
    asked: dict[str, Callable[[], Found]] = {
        "sql": lambda: found_in(
            select(f"SELECT * FROM t WHERE {is_one_of(column, [value])}", t=table).to_pylist()
        ),
        "pyarrow": lambda: found_in(data.to_table(columns, filter=ds.field(column) == value).to_pylist()),
        "pandas": lambda: found_in(
            table.to_pandas(columns=columns, filters=[(column, "==", value)]).to_dict("records")
        ),
        "DuckDB": lambda: by_duckdb(data, column, value),
    }
    return {engine: asked[engine]() for engine in engines}


def by_duckdb(data: ds.Dataset, column: str, value: str) -> Found:
    asked = f'SELECT "group", topic FROM data WHERE "{column}" = $1'  # `data`: the argument
    return set(duckdb.execute(asked, [value]).fetchall())


# --- how files come about --------------------------------------------------------------------------------

TOGETHER, APART = "all in one file", "files of few"


def rows_dropped(tables: Tables, table: str, *, at: int, **kept_ms: int) -> int:
    """Do a round of maintenance; return how many rows of a table it has dropped."""
    reports = maintain(tables, retention(**kept_ms), clock=lambda: at)
    return next(report.rows_dropped for report in reports if report.table == table)


def written(root: Path) -> Tables:
    """All names in one file of `changes`, and then a few neighbours in a file: each close to its bounds."""
    tables = new_tables(root)
    groups: Batch = {name: group(protocol=name, subscribed_topics=[name]) for name in NAMES}
    append(tables, offsets_of(NAMES, TOGETHER) | groups, partitions={3: PartitionProgress(loaded=True)})
    for start in range(0, len(NAMES), 6):
        append(tables, offsets_of(sorted(NAMES)[start : start + 6], APART))
    return tables


def folded(root: Path) -> Tables:
    tables = written(root)
    tables.fold()
    return tables


def compacted(root: Path) -> Tables:
    """What is written and folded, after delta-rs has joined the files of `changes` into one."""
    tables = folded(root)
    assert compact(tables, "changes", lambda: True) == 1
    return tables


def by_day(root: Path) -> Tables:
    """What is written and folded, after its day has ended: `changes` is sorted."""
    tables = folded(root)
    maintain(tables, retention(), clock=lambda: 2 * DAY)
    assert tables.delta("changes").transaction_version(SORTED_TRANSACTION) == 1
    return tables


@pytest.fixture(
    scope="module", params=[written, pytest.param(by_day, marks=pytest.mark.more)], ids=["written", "by_day"]
)
def tables(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    made: Callable[[Path], Tables] = request.param
    return made(tmp_path_factory.mktemp("found") / "tables")


FEW = [NAMES[start::7] for start in range(7)]


def test_python_finds_every_name(tables: Tables) -> None:
    for names in FEW:
        wanted = {(name, topic) for name in names for topic in (TOGETHER, APART)}
        assert by_python(tables, names) == {
            "list_offsets": wanted,
            "fetch_offsets": wanted,
            "describe_groups": {(name, None) for name in names},
        }


@pytest.mark.more
def test_python_finds_the_history_of_every_name(tables: Tables) -> None:
    queries = LagQueries(tables)
    for name in NAMES:
        found = found_in(queries.list_history(name, []).rows.to_pylist())
        assert found == {(name, TOGETHER), (name, APART)}


def test_commands_find_every_name(tmp_path: Path) -> None:
    tables = folded(tmp_path)
    for names in FEW:
        wanted = {(name, topic) for name in names for topic in (TOGETHER, APART)}
        assert by_command(tables, names) == {
            "offsets --group": wanted,
            "groups --group": {(name, None) for name in names},
            "history --group": {(names[0], TOGETHER), (names[0], APART)},
            "sql": wanted,
        }


def test_other_engines_find_every_name_in_changes(tables: Tables) -> None:
    changes = tables.delta("changes")
    for name in NAMES:
        wanted = {(name, TOGETHER), (name, APART), (name, None)}
        assert by_engines(changes, "group", name) == dict.fromkeys(OWN_READERS, wanted)


@pytest.mark.more
def test_other_engines_find_every_name_in_changes_that_are_compacted(tmp_path: Path) -> None:
    changes = compacted(tmp_path).delta("changes")
    for name in NAMES:
        wanted = {(name, TOGETHER), (name, APART), (name, None)}
        assert by_engines(changes, "group", name) == dict.fromkeys(OWN_READERS, wanted)


@pytest.mark.more
@pytest.mark.parametrize("column", ["group", "metadata"])
def test_other_engines_find_every_text_of_folded_offsets(tmp_path: Path, column: str) -> None:
    offsets = folded(tmp_path).delta("offsets")
    for name in NAMES:
        wanted = {(name, TOGETHER), (name, APART)}
        value = metadata_of(name) if column == "metadata" else name
        assert by_engines(offsets, column, value, ENGINES) == dict.fromkeys(ENGINES, wanted)


@pytest.mark.more
def test_other_engines_find_every_folded_group(tmp_path: Path) -> None:
    groups = folded(tmp_path).delta("groups").to_pyarrow_dataset()
    for name in NAMES:
        assert groups.to_table(["group"], filter=ds.field("group") == name)["group"].to_pylist() == [name]


@pytest.mark.more
def test_other_engines_find_every_removed_offset_after_its_day_has_left_the_history(tmp_path: Path) -> None:
    tables = new_tables(tmp_path)
    held = offsets_of(NAMES, TOGETHER)
    append(tables, held)
    append(tables, dict.fromkeys(held), live=held)
    tables.fold()
    assert rows_dropped(tables, "changes", at=2 * DAY) == 0  # the day is sorted
    assert rows_dropped(tables, "changes", at=9 * DAY) == len(NAMES) + 2
    changes = tables.delta("changes")
    for name in NAMES:
        assert by_engines(changes, "group", name) == {engine: {(name, TOGETHER)} for engine in OWN_READERS}


@pytest.mark.more
def test_other_engines_find_every_alert_also_after_closed_ones_have_left(tmp_path: Path) -> None:
    names = [name for name in NAMES if name][::3]
    lake = Lake(tmp_path)
    for name in [*names, "closed"]:
        lake.commit(name, ("t", 0), at=lake.now - RETENTION + DAY)
    lake.evaluate()
    lake.commit("closed", ("t", 0))
    lake.pass_time(DAY)
    lake.evaluate()
    check_alerts(lake.tables, names)
    late = lake.now + 15 * DAY
    live_on(lake.tables, lake.now, late)
    assert rows_dropped(lake.tables, "alerts", at=late, keep_removed_ms=14 * DAY) == 1
    check_alerts(lake.tables, names)


def check_alerts(tables: Tables, names: list[str]) -> None:
    alerts = tables.delta("alerts")
    for name in names:
        assert by_engines(alerts, "group", name) == {engine: {(name, "t")} for engine in OWN_READERS}


# --- any names -------------------------------------------------------------------------------------------

PIECES = st.sampled_from(["a", "\0", "'", "\n", "\ud7ff", "\uffff", "🐢", "𠮷", "\U000e0041", "\U0010ffff"])
ANY_NAMES = st.lists(
    st.text(max_size=4)
    | st.lists(st.tuples(PIECES, st.sampled_from([1, 255, 257])), max_size=3).map(
        lambda pieces: "".join(text * times for text, times in pieces)
    ),
    min_size=1,
    max_size=4,
    unique=True,
)


@pytest.mark.more
@settings(max_examples=6, deadline=None)
@given(ANY_NAMES)
def test_any_names_are_found_beside_any_others(names: list[str]) -> None:
    with TemporaryDirectory() as root:
        tables = Tables(root)
        tables.create()
        append(tables, offsets_of(names, TOGETHER))
        tables.fold()
        for name in names:
            wanted = {(name, TOGETHER)}
            for table in ("changes", "offsets"):
                found = by_engines(tables.delta(table), "group", name, ENGINES)
                assert found == dict.fromkeys(ENGINES, wanted)
            assert found_in(tables.read([name]).offsets.to_pylist()) == wanted
