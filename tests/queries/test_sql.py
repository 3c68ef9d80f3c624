"""SQL over the tables: nothing but queries, and the `live_` views say what the commands say."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lag_tables import LagTables
from new_tables import new_tables
from table_batches import BATCHES, Batch, append, group, in_one_partition, offset, replay

from streaming.common.times import MINUTE_MS, from_ms, now_ms
from streaming.model.errors import MisuseError
from streaming.queries import lag_rows
from streaming.queries.lag import LagQueries
from streaming.queries.sql import count_words, run_sql
from streaming.settings.model import HealthSettings
from streaming.tables.select import QueryFailedError
from streaming.tables.tables import Tables

NAMES = [
    *["offsets", "groups", "changes", "quarantine", "alerts", "log_ends"],
    *["live_offsets", "live_groups", "lag", "health"],
]
LIVE: Batch = {("g", "t", 0): offset(), ("g", "t", 1): offset(), "g": group()}


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    made = new_tables(tmp_path / "tables")
    append(made, LIVE)
    return made


def test_a_query_sees_every_table(tables: Tables) -> None:
    for name in NAMES:
        assert run_sql(tables, f"SELECT count(*) AS n FROM {name}").rows.column_names == ["n"]


def test_live_views_are_ahead_of_the_folded_tables(tables: Tables) -> None:
    counts = "SELECT (SELECT count(*) FROM offsets) AS folded, (SELECT count(*) FROM live_offsets) AS live"
    assert run_sql(tables, counts).rows.to_pylist() == [{"folded": 0, "live": 2}]
    tables.fold()
    append(tables, {("g", "t", 1): None})
    assert run_sql(tables, counts).rows.to_pylist() == [{"folded": 2, "live": 1}]


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(history=st.lists(st.tuples(BATCHES, st.booleans()), max_size=4))
def test_live_views_hold_what_the_tables_read_now_and_at_a_past_moment(
    history: list[tuple[Batch, bool]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    tables = new_tables(tmp_path_factory.mktemp("tables"))
    batches: list[Batch] = []
    for batch, folds in history:
        kept = in_one_partition(batch)
        append(tables, kept, live=replay(batches))
        batches.append(kept)
        if folds:
            tables.fold()
    for moment in (None, (len(history) + 1) // 2 * 1_000):
        read = tables.read(as_of=moment)
        for name, rows in (("offsets", read.offsets), ("groups", read.groups)):
            answer = run_sql(
                tables, f"SELECT * FROM live_{name}", None if moment is None else from_ms(moment)
            )
            assert answer.as_of.progress == read.progress
            found = answer.rows.cast(rows.schema)
            assert sorted(map(str, found.to_pylist())) == sorted(map(str, rows.to_pylist()))


def test_the_order_of_a_query_is_kept_and_comments_are_no_harm(tables: Tables) -> None:
    query = 'WITH o AS (SELECT * FROM live_offsets) SELECT "partition" FROM o ORDER BY 1 DESC -- sorted'
    assert run_sql(tables, query).rows["partition"].to_pylist() == [1, 0]


def test_a_query_may_end_with_a_semicolon(tables: Tables) -> None:
    assert run_sql(tables, "SELECT 1 AS one; \n").rows.to_pylist() == [{"one": 1}]


def test_columns_of_a_join_may_have_one_name(tables: Tables) -> None:
    query = 'SELECT o."group", g."group" FROM live_offsets o JOIN live_groups g ON o."group" = g."group"'
    assert len(run_sql(tables, query).rows) == 2


# --- the computed views ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> LagTables:
    return LagTables(tmp_path_factory.mktemp("lag"), now_ms() - 5_000)


@pytest.mark.parametrize("minutes", [None, 4])
def test_lag_and_health_are_those_of_the_commands_now_and_at_a_past_moment(
    world: LagTables, minutes: int | None
) -> None:
    moment = None if minutes is None else from_ms(world.start + minutes * MINUTE_MS + 30_000)
    client = LagQueries(world.tables)
    offsets = client.list_offsets(as_of=moment, with_former=True).rows
    order = 'ORDER BY "group", "topic", "partition"'
    answer = run_sql(world.tables, f"SELECT * FROM lag {order}", moment)
    assert answer.rows.cast(offsets.schema).equals(offsets)
    last = world.start + minutes * MINUTE_MS if minutes else world.now
    assert answer.as_of.log_ends_at == last
    named = ["group", "status", "reason", "lag"]
    health = client.health(as_of=moment).rows.select(named).sort_by("group")
    answer = run_sql(
        world.tables, f"SELECT {', '.join(map(repr_name, named))} FROM health ORDER BY 1", moment
    )
    assert answer.rows.cast(health.schema).equals(health)


def repr_name(name: str) -> str:
    return f'"{name}"'


def test_views_can_be_joined_with_each_other_and_with_tables(world: LagTables) -> None:
    query = """
        SELECT h.status, max(l.lag) AS lag, count(o.partition) AS n FROM health h
        JOIN lag l ON l."group" = h."group" JOIN live_offsets o ON o."group" = l."group"
        WHERE h.status = 'STOPPED' GROUP BY 1"""
    assert run_sql(world.tables, query).rows.to_pylist() == [{"status": "STOPPED", "lag": 1230, "n": 1}]


def test_health_goes_by_the_settings(world: LagTables) -> None:
    lax = HealthSettings(window_ms=MINUTE_MS, min_commits=3, min_lag=5_000)
    query = "SELECT status FROM health WHERE \"group\" = 'dead'"
    assert run_sql(world.tables, query).rows["status"].to_pylist() == ["STOPPED"]
    assert run_sql(world.tables, query, health=lax).rows["status"].to_pylist() == ["OK"]


@pytest.mark.parametrize(
    "query",
    [
        'SELECT lag("partition") OVER (ORDER BY "partition") FROM live_offsets',
        "WITH lag AS (SELECT 1 AS one) SELECT * FROM lag",
        "SELECT 'FROM lag' AS lag FROM offsets, live_groups -- FROM health",
        "SHOW TABLES",
    ],
)
def test_only_statements_that_name_a_view_have_it_computed(
    world: LagTables, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(lag_rows, "view")
    run_sql(world.tables, query)
    with pytest.raises(ImportError):
        run_sql(world.tables, "SELECT 1 FROM lag")


NO_QUERY = "expected one query (SELECT ...), found "
READ_ONLY = f"read-only: {NO_QUERY}"
KEYWORDS = 'Put "group" and "partition" in double quotes'
NO_QUERIES = {
    "": f"{NO_QUERY}an empty text.",
    "-- nothing": f"{NO_QUERY}an empty text.",
    "SELEC 1": f"{NO_QUERY[:-1]}: ",
    "SELECT": "an expression",
    "SELECT 1; SELECT 2": f"{NO_QUERY}several statements.",
    "SELECT 1) OR EXISTS (SELECT 2": "end of statement",
    "COPY (SELECT 1) TO '{file}'": f"{READ_ONLY}COPY.",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{file}'": f"{READ_ONLY}COPY.",
    "ANALYZE COPY (SELECT 1) TO '{file}'": f"{READ_ONLY}COPY.",
    "CREATE VIEW v AS SELECT 1": f"{READ_ONLY}CREATE.",
    "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '{file}'": f"{READ_ONLY}CREATE.",
    "DROP TABLE offsets": f"{READ_ONLY}DROP.",
    " -- all\n delete FROM offsets": f"{READ_ONLY}DELETE.",
    "UPDATE offsets SET committed_offset = 0": f"{READ_ONLY}UPDATE.",
    "INSERT INTO quarantine SELECT * FROM quarantine": f"{READ_ONLY}INSERT.",
    "WITH q AS (SELECT (1)) INSERT INTO quarantine SELECT * FROM quarantine": f"{READ_ONLY}INSERT.",
    "SELECT 1; DELETE FROM offsets": f"{READ_ONLY}DELETE.",
    "SET datafusion.execution.batch_size = 1": f"{READ_ONLY}SET.",
    "SELECT update FROM offsets": "No field named update",
    "SELECT '; DELETE FROM x', committed_ofset FROM offsets": "Did you mean 'offsets.committed_offset'?",
    "SELECT 1 FROM offset": "unknown table 'offset'. Did you mean offsets or live_offsets? Tables: ",
    "SELECT topic,\n  1, group FROM offsets": f'found: group at Line: 2, Column: 6"). {KEYWORDS}',
    "SELECT lags FROM lag": "No field named lags",
    "SELECT 1 FROM lag, healthy": "unknown table 'healthy'. Did you mean health?",
    "DELETE FROM lag": f"{READ_ONLY}DELETE.",
    "DESCRIBE offset": "unknown table 'offset'. Did you mean offsets",
}


@pytest.mark.parametrize(("text", "message"), NO_QUERIES.items())
def test_anything_but_a_query_is_refused(tables: Tables, tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "written.csv"
    versions = [tables.delta(name).version() for name in tables.existing()]
    with pytest.raises(MisuseError, match=r"^sql: ") as raised:
        run_sql(tables, text.format(file=file))
    assert message in str(raised.value)
    assert not file.exists()
    assert [tables.delta(name).version() for name in tables.existing()] == versions


@pytest.mark.parametrize(
    "source",
    [
        *(
            "'{file}'",
            '"{file}"',
            "`{file}`",
            "read_csv('{file}')",
            "read_json('{file}')",
            "read_text('{file}')",
        ),
        *("read_parquet('{file}')", "parquet_metadata('{file}')", "'file://{file}'", "{file}"),
    ],
)
def test_files_cannot_be_read(tables: Tables, tmp_path: Path, source: str) -> None:
    file = tmp_path / "read.csv"
    file.write_text("s3cr3t,b\n1,2\n")
    with pytest.raises(MisuseError, match=r"^sql: ") as raised:
        run_sql(tables, f"SELECT * FROM {source.format(file=file)}")
    assert "s3cr3t" not in str(raised.value)


# --- limits ----------------------------------------------------------------------------------------------

CHAINS = {
    "{}": [("SELECT ", "1", "+"), ("SELECT true WHERE ", "1 = 1", " OR "), ("", "SELECT 1", " UNION ALL ")],
    "WITH big AS ({}) SELECT * FROM big": [("SELECT ", "1", "||"), ("", "SELECT 1", " EXCEPT ")],
}
TOO_LONG = "expected a query of at most 2,000 words and signs"


@pytest.mark.parametrize("around", CHAINS)
@pytest.mark.parametrize("words", [2_500, 60_000])
def test_a_query_that_would_end_the_process_is_refused(tables: Tables, around: str, words: int) -> None:
    for begun, part, sign in CHAINS[around]:
        times = words // len(f"{part} {sign}".split())
        with pytest.raises(MisuseError, match=TOO_LONG):
            run_sql(tables, around.format(begun + sign.join([part] * times)))


def test_the_longest_chains_that_are_taken_do_not_end_the_process(tables: Tables) -> None:
    for text, rows in (
        (" UNION ".join(["SELECT 1"] * 660), 1),
        ("SELECT 1" + "::int" * 660, 1),
        ("SELECT 1 WHERE " + " OR ".join(["1 = 1"] * 490), 1),
    ):
        assert len(run_sql(tables, text).rows) == rows


def test_names_that_grow_by_each_other_are_refused(tables: Tables) -> None:
    """Each of the names stands for two of the one before: the last for 2 to the power of 40 (n)."""
    for form in (
        "t{0} AS (SELECT x.a FROM t{1} x, t{1} y)",
        't{0} (a) AS (SELECT x.a FROM "T{1}" x, t{1} y)',
    ):
        named = [form.format(number, number - 1) for number in range(1, 40)]
        with pytest.raises(MisuseError, match=TOO_LONG):
            run_sql(tables, f"WITH t0 AS (SELECT 1 AS a), {', '.join(named)} SELECT count(*) FROM t39")


def test_lists_comments_and_columns_of_a_name_do_not_count(tables: Tables) -> None:
    groups = ", ".join(f"'group {number}, and + more'" for number in range(600))
    columns = ", ".join(f"o.topic AS c{number}" for number in range(10))
    query = f"""
        WITH o AS (SELECT * FROM live_offsets WHERE "group" NOT IN ({groups}))
        SELECT {columns} FROM o -- {"a + " * 3_000}
        /* {"a + " * 3_000} */"""
    assert len(run_sql(tables, query).rows) == 2


@pytest.mark.parametrize(
    "quoted", ["E'\\'' || {} || ''", "$$'$$ || {} || ''", "a$b$ || {} || a$b$", "`'` || {} || ''"]
)
def test_quotes_of_other_kinds_hide_nothing(tables: Tables, quoted: str) -> None:
    with pytest.raises(MisuseError, match=TOO_LONG):
        run_sql(tables, f"SELECT {quoted.format('||'.join(['1'] * 2_000))}")


@pytest.mark.parametrize(("begun", "words"), [("/*", 0), ("$a$", 1), ("'", 1), ('"', 1), ("`", 1), ("E'", 1)])
def test_quotes_that_do_not_end_are_read_once(begun: str, words: int) -> None:
    """Not again from each sign on, which takes minutes of such a text."""
    assert count_words(f"{begun}{'/* $b ' * 150_000}") == words


def test_nesting_and_length_are_limited(tables: Tables) -> None:
    for text in ("(" * 900 + "1" + ")" * 900, "abs(" * 60 + "1" + ")" * 60, "- " * 900 + "1"):
        with pytest.raises(MisuseError, match="expected less nesting"):
            run_sql(tables, f"SELECT {text}")
    with pytest.raises(MisuseError, match="expected at most 1,000,000 characters, found 1,000,010"):
        run_sql(tables, f"SELECT '{'x' * 1_000_001}'")


BILLIONS = "generate_series(1, 2000000000)"


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (f"SELECT value FROM {BILLIONS}", "an answer of at most 32 MiB"),
        (f"SELECT value FROM {BILLIONS} ORDER BY value % 1000 LIMIT 10000000", "at most 32 MiB of memory"),
        (f"SELECT array_agg(value) FROM {BILLIONS}", "at most 32 MiB of memory"),
        (f"SELECT 1 FROM {BILLIONS} a, {BILLIONS} b WHERE a.value = b.value", "at most 32 MiB of memory"),
    ],
)
def test_memory_is_limited(tables: Tables, query: str, found: str) -> None:
    with pytest.raises(QueryFailedError, match=r"^sql: expected ") as raised:
        run_sql(tables, query, memory_mb=32)
    assert found in str(raised.value)
    assert "LIMIT" in str(raised.value)


def test_tables_and_views_can_be_listed(tables: Tables) -> None:
    rows = run_sql(tables, "show tables;").rows.to_pylist()
    assert [row["table_name"] for row in rows] == NAMES
    assert all(row["contains"] for row in rows)


@pytest.mark.parametrize("name", NAMES)
def test_columns_of_tables_and_views_can_be_described(tables: Tables, name: str) -> None:
    columns = run_sql(tables, f"SELECT * FROM {name}").rows.column_names
    for question in (f"DESCRIBE {name}", f'desc "{name}"', f"SHOW COLUMNS FROM {name.upper()};"):
        rows = run_sql(tables, question).rows.to_pylist()
        assert [row["column_name"] for row in rows] == columns
    assert "string" in {row["data_type"] for row in rows}
