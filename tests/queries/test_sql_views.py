"""The views `lag` and `health` of SQL: only what a statement reads of them is read and worked out."""

import resource
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lag_tables import LagTables

from streaming.common.times import now_ms
from streaming.queries import sql
from streaming.queries.scans import Scanned
from streaming.queries.sql import run_sql
from streaming.tables.select import QueryFailedError
from streaming.tables.snapshot import Snapshot

READS = ("newest_ends", "offset_times", "topics_over_time", "commits", "ends_between", "pauses", "groups")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> LagTables:
    return LagTables(tmp_path_factory.mktemp("views"), now_ms() - 5_000)


def test_a_temporary_folder_without_room_is_named(
    world: LagTables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, before[1]))
    try:
        with pytest.raises(QueryFailedError, match=f"temporary files in {tmp_path}/offsetlake-sql-"):
            run_sql(world.tables, "SELECT * FROM lag")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not any(tmp_path.iterdir())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(QueryFailedError, match="expected to write a temporary folder"):
        run_sql(world.tables, "SELECT * FROM lag")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """What is read, by the methods of snapshots, and of which groups."""
    found: dict[str, list[Any]] = {}

    def told(name: str) -> None:
        read = getattr(Snapshot, name)

        def method(self: Snapshot, *args: Any, **named: Any) -> Any:
            found.setdefault(name, []).append(args[0] if args else None)
            return read(self, *args, **named)

        monkeypatch.setattr(Snapshot, name, method)

    for name in (*READS, "offsets"):
        told(name)
    return found


LAG = {"newest_ends", "commits"}
READ_BY = {
    "SELECT count(*) FROM lag": set(),
    'SELECT "group", metadata, "partition" FROM lag ORDER BY topic': set(),
    "SELECT DISTINCT topic AS lag_seconds FROM lag": set(),
    "SELECT 1 WHERE EXISTS (SELECT * FROM lag)": set(),
    'SELECT "group", lag FROM lag': LAG,
    "SELECT count(*) FROM lag WHERE lag > 10": LAG,
    'SELECT x."LAG" FROM (SELECT lag AS "LAG", lag_seconds FROM lag) x': LAG,
    "SELECT log_end_offset FROM lag AS of_recreated_topic": LAG,
    "SELECT topic FROM lag ORDER BY lag_seconds": LAG | {"offset_times"},
    "SELECT l.lag FROM lag l JOIN lag m USING (topic) WHERE m.lag_is_at_least": LAG | {"offset_times"},
    "SELECT of_recreated_topic FROM lag": {"topics_over_time"},
    "SELECT * FROM lag": LAG | {"offset_times", "topics_over_time"},
    "WITH l AS (SELECT * FROM lag) SELECT l.* FROM l": LAG | {"offset_times", "topics_over_time"},
}


@pytest.mark.parametrize("query", READ_BY)
def test_columns_that_nobody_names_are_not_worked_out(
    world: LagTables, reads: dict[str, list[Any]], query: str
) -> None:
    answer = run_sql(world.tables, query)
    assert set(reads) - {"offsets", "groups"} == READ_BY[query]
    assert reads["offsets"] == reads["groups"] == [None]
    assert (answer.as_of.log_ends_at is not None) == ("newest_ends" in READ_BY[query])


def test_lag_in_time_is_not_worked_out_for_a_status(world: LagTables, reads: dict[str, list[Any]]) -> None:
    one = "FROM health WHERE \"group\" = 'live'"  # of groups that stopped it is asked how they pause
    run_sql(world.tables, f"SELECT status, reason, lag {one}")
    assert "commits" in reads
    assert "offset_times" not in reads
    run_sql(world.tables, f"SELECT status, reason, lag_seconds {one}")
    assert "offset_times" in reads


GROUPS = {
    "SELECT lag FROM lag WHERE \"group\" = 'live'": ["live"],
    "SELECT sum(lag) FROM lag AS l WHERE lag > 0 AND 'live' = l.\"group\" AND topic <> 'x'": ["live"],
    "SELECT lag FROM lag WHERE \"group\" IN ('live', 'dead')": ["dead", "live"],
    "SELECT lag FROM lag WHERE topic IN ('a', 'b', 'c', 'orders') AND \"group\" IN "
    "('live', 'dead', 'it''s', 'd', '')": ["", "d", "dead", "it's", "live"],
    "SELECT lag FROM lag WHERE (\"group\" = 'live' OR \"group\" = 'old') AND lag_seconds > 0": [
        "live",
        "old",
    ],
    "SELECT a.lag FROM lag a, lag b WHERE a.\"group\" = 'live' AND b.\"group\" = 'dead'": ["dead", "live"],
    "SELECT status FROM health WHERE \"group\" = 'dead'": ["dead"],
    "SELECT lag FROM lag WHERE \"group\" = 'live' OR lag > 0": None,
    "SELECT lag FROM lag WHERE \"group\" NOT IN ('live', 'dead', 'a', 'b', 'c')": None,
    "SELECT lag FROM lag WHERE \"group\" LIKE 'li%'": None,
    "SELECT lag FROM lag WHERE coalesce(lag > 0, \"group\" = 'live')": None,
    "SELECT a.lag FROM lag a, lag b WHERE a.\"group\" = 'live'": None,
    'SELECT lag FROM lag WHERE "group" = \'a"b\'': None,
    'SELECT lag, rank() OVER (ORDER BY lag) FROM lag WHERE lag > (SELECT max(lag) FROM lag WHERE "group" = '
    "'live')": None,
}


@pytest.mark.parametrize("query", GROUPS)
def test_groups_that_a_condition_names_are_read_alone(
    world: LagTables, reads: dict[str, list[Any]], query: str
) -> None:
    run_sql(world.tables, query)
    assert reads["offsets"] == [GROUPS[query]]


@pytest.mark.parametrize(
    "name",
    ['a"), lag.lag = Int64(3', 'a") OR lag.group = Utf8("b', 'a"), lag.group = Utf8("b', "a\nb", "a'b"],
)
@pytest.mark.parametrize(
    "written", ["{quoted}", "left({quoted} || 'x', {length})", "replace({marked}, 'Q', chr(34))"]
)
def test_a_name_that_looks_like_a_condition_is_none(
    world: LagTables, reads: dict[str, list[Any]], name: str, written: str
) -> None:
    quoted, marked = (f"'{text.replace(chr(39), chr(39) * 2)}'" for text in (name, name.replace('"', "Q")))
    condition = written.format(quoted=quoted, marked=marked, length=len(name))
    run_sql(world.tables, f'SELECT lag FROM lag WHERE "group" = {condition}')
    assert reads["offsets"] in ([None], [[name]])


def test_what_looks_like_a_scan_only_adds() -> None:
    scan = 'TableScan: lag projection=[group, lag], partial_filters=[lag.group = Utf8("a")]'
    plan = f'Filter: lag.topic = Utf8("\n  TableScan: lag projection=[topic], full_filters=[]")\n    {scan}'
    assert Scanned.of("lag", scan, "") == Scanned(frozenset({"group", "lag"}), frozenset({"a"}))
    assert Scanned.of("lag", plan, "") == Scanned(frozenset({"topic", "group", "lag"}), None)
    assert Scanned.of("lag", scan, 'FilterExec: group@0 = "') == Scanned(frozenset({"group", "lag"}), None)
    for other in ("EmptyRelation: rows=0", "TableScan: lags projection=[group]", "TableScan: lag", ""):
        assert Scanned.of("lag", other, "") == Scanned()
    named = "TableScan: datafusion.public.lag projection=[lag], fetch=1"
    assert Scanned.of("lag", named, "") == Scanned(frozenset({"lag"}), None)


SAME = [
    *READ_BY,
    *GROUPS,
    "SELECT * FROM health",
    "SELECT count(*) FROM health",
    'SELECT "group", reason, since, commits FROM health ORDER BY lag_seconds DESC LIMIT 1',
    'SELECT l.* FROM lag l JOIN health h ON l."group" = h."group" WHERE h.status = \'STOPPED\'',
    "SELECT h.status, max(l.lag_seconds) FROM health h NATURAL JOIN lag l GROUP BY ALL",
    'SELECT "group" FROM lag EXCEPT SELECT "group" FROM health WHERE status = \'OK\'',
    "SELECT lag FROM lag LIMIT 0",
    "SELECT lag FROM lag WHERE false UNION ALL SELECT committed_offset FROM live_offsets",
    'SELECT "group", lag, sum(lag) OVER (PARTITION BY topic ORDER BY lag, "group") FROM lag',
    "SELECT lag_seconds FROM lag l WHERE EXISTS (SELECT 1 FROM lag m WHERE m.lag > l.lag)",
    "WITH lag AS (SELECT lag_seconds AS lag FROM lag) SELECT sum(lag) FROM lag",
    "SELECT (SELECT max(lag_seconds) FROM lag), count(DISTINCT metadata) FROM lag",
    "WITH RECURSIVE r AS (SELECT lag FROM lag UNION ALL SELECT lag - 1000 FROM r WHERE lag > 1000) "
    "SELECT count(*), sum(lag) FROM r",
    "SELECT * FROM (VALUES ('live'), ('old')) AS v(g), LATERAL (SELECT lag FROM lag WHERE \"group\" = g)",
    "SELECT topic FROM datafusion.public.lag WHERE lag IS NULL",
    "SELECT max(lag) FILTER (WHERE \"group\" = 'live'), min(lag_is_at_least) FROM lag",
    "SELECT named_struct('a', lag, 'b', lag_seconds)['a'] FROM lag",
    'SELECT "group" FROM lag GROUP BY 1 HAVING max(lag_seconds) > 5',
    "SELECT * EXCLUDE (lag_seconds) FROM lag",
]


def compared(answer: pa.Table) -> list[str]:
    return sorted(map(str, answer.to_pylist()))


@pytest.mark.parametrize(
    "query",
    [query if query in SAME[::3] else pytest.param(query, marks=pytest.mark.more) for query in SAME],
)
def test_answers_are_those_of_whole_views(
    world: LagTables, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    found = run_sql(world.tables, query)
    monkeypatch.setattr(sql, "Scanned", _Everything)
    whole = run_sql(world.tables, query)
    assert found.rows.schema == whole.rows.schema
    assert compared(found.rows) == compared(whole.rows)


class _Everything:
    of = staticmethod(lambda *_: Scanned())
