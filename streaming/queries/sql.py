"""Read-only SQL queries on the tables, from one snapshot."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from functools import partial
from tempfile import TemporaryDirectory
from typing import Final

import pyarrow as pa
from deltalake import QueryBuilder

from streaming.common.arrays import no_rows
from streaming.common.times import to_ms
from streaming.model.errors import MisuseError
from streaming.model.suggestions import did_you_mean, nearest
from streaming.queries.answers import Answer
from streaming.queries.as_of import AsOf
from streaming.queries.scans import Scanned
from streaming.settings.model import HealthSettings
from streaming.tables.folding import KEYS, KINDS, ROWS, Value, fold_mark, value_column, value_columns
from streaming.tables.select import QueryFailedError, execute, in_one_line, names, rows_of
from streaming.tables.snapshot import PresentSnapshot, Snapshot, refuse_future
from streaming.tables.tables import Tables

COMPUTED: Final = ("lag", "health")
"""Views that are computed when a statement names them: see `lag_rows.view`."""

OTHER_TABLES: Final = ("quarantine", "alerts", "log_ends")
"""Further tables besides `changes`, `offsets` and `groups`, if they exist."""

_CONTAINS: Final = {
    "offsets": "committed offsets without the newest changes (up to the last fold)",
    "groups": "groups without the newest changes (up to the last fold)",
    "changes": "every change of an offset or a group",
    "quarantine": "records that could not be decoded",
    "alerts": "alerts, open and closed",
    "log_ends": "log end offsets of topic partitions over time",
    "live_offsets": "committed offsets, as of the last batch or of --as-of",
    "live_groups": "groups, as of the last batch or of --as-of",
    "lag": "committed offsets and assigned partitions, with log ends and lag",
    "health": "health of groups, as of the last batch or of --as-of",
}

MEMORY_MB: Final = 1024
"""Memory that a query may take to sort, group and join, and again for its result."""

_OF_PROCESS: Final = 4
"""Multiple of that memory which the process may take besides the tables: functions are not accounted for."""

Bound = Callable[[], AbstractContextManager[None]]
Bounds = Callable[[int], AbstractContextManager[None]]

_MOST_CHARACTERS: Final = 1_000_000
_MOST_WORDS: Final = 2_000
"""The engine recurses for each operator of a chain, and a stack overflow ends the process: this is a third of
the limit, with the 8 MB of the main thread."""

_TOKEN: Final = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?(?:\*/|\Z))"""
    r"""|(?P<literal>[eE]'(?:[^'\\]|\\.|'')*(?:'|\Z)|'(?:[^']|'')*(?:'|\Z)|\d[\w.]*"""
    r"""|\$(?P<tag>\w*)\$.*?(?:\$(?P=tag)\$|\Z))"""
    r"""|(?P<name>\w[\w$#@]*|"(?:[^"]|"")*(?:"|\Z)|`[^`]*(?:`|\Z))|\S""",
    re.DOTALL,
)

_SHOW_TABLES: Final = re.compile(r"\s*SHOW\s+TABLES\s*", re.IGNORECASE)
_DESCRIBE: Final = re.compile(
    r"\s*(?:DESC(?:RIBE)?(?:\s+TABLE)?|SHOW\s+COLUMNS\s+(?:FROM|IN))\s+\"?(?P<name>\w+)\"?\s*", re.IGNORECASE
)

_NO_CODE: Final = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"", re.DOTALL)
_NESTED: Final = re.compile(r"\([^()]*\)")
_READS: Final = re.compile(r"[\s(]*(?:SELECT|WITH|VALUES|FROM)\b", re.IGNORECASE)
_WRITES: Final = re.compile(
    r"(?:(?:^|;|\bEXPLAIN\b|\bANALYZE\b)\s*(?P<first>ALTER|CALL|COPY|CREATE|DELETE|DROP|GRANT|INSERT|LOAD|MERGE"
    r"|OPTIMIZE|REPLACE|RESET|REVOKE|SET|TRUNCATE|UPDATE|VACUUM)|\)\s*(?P<after_with>DELETE|INSERT|MERGE|UPDATE))\b",
    re.IGNORECASE,
)
_KEYWORDS: Final = re.compile(r"\b(?:group(?!\s+by\b)|partition(?!\s+by\b))\b", re.IGNORECASE)
_UNKNOWN_TABLE: Final = re.compile(r"table 'datafusion\.public\.(?P<name>[^']*)' not found")
_LINE: Final = re.compile(r"(?<=at Line: )\d+")


def _boundless(_more_bytes: int) -> AbstractContextManager[None]:
    return nullcontext()


def run_sql(
    tables: Tables,
    text: str,
    as_of: datetime | None = None,
    *,
    health: HealthSettings | None = None,
    memory_mb: int = MEMORY_MB,
    bounded: Bounds = _boundless,
) -> Answer:
    """Run one query, or `SHOW TABLES`, `DESCRIBE table`, `SHOW COLUMNS FROM table`.

    Raises `MisuseError` for anything else, and for a query that cannot be planned; `QueryFailedError` if it
    takes more than `memory_mb` to sort, group and join, or for its result. Values created by functions count
    for neither (`repeat('x', 1000000000)`): when memory ends, the engine ends the process. The query is
    planned and run within `bounded`, whose argument is how many more bytes than now the process may take.

    Besides the tables there are the views `live_offsets` and `live_groups`: `offsets` and `groups` as if
    everything were folded, which the other commands show; or as of a past moment, which does not apply to the
    tables themselves. `lag` and `health` are the answers of `LagQueries` about all groups, with these
    settings, as of the same moment; they are computed when a statement names them.
    """
    text = text.rstrip().rstrip(";")  # a trailing semicolon is common
    _refuse_long(text)
    moment = to_ms(as_of)

    def question(present: PresentSnapshot) -> Answer:
        at = present if moment is None else refuse_future(present.as_of(moment))
        with _temporary_folder() as folder:
            views = _ComputedViews(QueryBuilder(), folder, at, AsOf.at(None, at), health)
            within = partial(bounded, _OF_PROCESS * memory_mb << 20)
            return Answer(_run(views, present, text, memory_mb, within), views.about)

    return tables.ask_now(question)


@contextmanager
def _temporary_folder() -> Iterator[str]:
    """Yield a new folder, removed afterwards; raises `QueryFailedError`."""
    with _naming("a temporary folder (TMPDIR)"):
        folder = TemporaryDirectory(prefix="offsetlake-sql-")
    with folder as name:
        yield name


@contextmanager
def _naming(place: str) -> Iterator[None]:
    """Replace errors of writing temporary files by errors that name their place."""
    try:
        yield
    except OSError as error:
        raise QueryFailedError(
            f"sql: expected to write {place}, found: {in_one_line(error)}. "
            "Free some space there, or choose another folder (TMPDIR)."
        ) from error


def _run(
    views: "_ComputedViews", present: PresentSnapshot, text: str, memory_mb: int, bounded: Bound
) -> pa.Table:
    builder = views.builder
    execute(builder, f"SET datafusion.runtime.memory_limit = '{memory_mb}M'")
    others = {name: table for name in OTHER_TABLES if (table := present.other(name)) is not None}
    registered = {**present.bases, "changes": present.changes, **others}
    for name, table in registered.items():
        builder.register(name, table)
    for name, base in present.bases.items():
        live = _live(name, fold_mark(base), views.at.progress.sequence)
        execute(builder, f"CREATE VIEW live_{name} AS {live}")
    known = [*registered, *(f"live_{name}" for name in present.bases), *COMPUTED]
    if _SHOW_TABLES.fullmatch(text):
        return pa.table({"table_name": known, "contains": [_CONTAINS[name] for name in known]})
    if asked := _DESCRIBE.fullmatch(text):
        return _columns(views, asked["name"].lower(), known)
    plans = _plans_of_a_query(views, text, known, bounded)
    views.compute(*plans)
    with bounded():
        return _within(memory_mb, builder, text)


def _within(memory_mb: int, builder: QueryBuilder, text: str) -> pa.Table:
    """Run a query; raises `QueryFailedError` if it or its result takes more memory."""
    try:
        rows = rows_of(builder, text, most_bytes=memory_mb << 20)
    except QueryFailedError as error:
        if "Resources exhausted" not in str(error):
            raise
        raise _too_large(
            f"a query that sorts, groups and joins within at most {memory_mb} MiB of memory"
        ) from error
    if rows is None:
        raise _too_large(f"an answer of at most {memory_mb} MiB")
    return rows


def _too_large(expected: str) -> QueryFailedError:
    return QueryFailedError(
        f"sql: expected {expected}, found that it takes more. Ask for fewer rows (WHERE, LIMIT) or "
        "columns, or read the tables with another engine (docs/reading.md)."
    )


def _refuse_long(text: str) -> None:
    """Raise `MisuseError` for a statement that would end the process instead of being rejected by the
    engine."""
    if len(text) > _MOST_CHARACTERS:
        raise MisuseError(
            f"sql: expected at most {_MOST_CHARACTERS:,} characters, found {len(text):,}. "
            "Put long lists of names into conditions (LIKE), or divide the query."
        )
    if (words := count_words(text)) > _MOST_WORDS:
        found = f"{words:,}" if words < 10**9 else "far more"
        raise MisuseError(
            f"sql: expected a query of at most {_MOST_WORDS:,} words and signs, found {found}; names that "
            "WITH gives count as what they stand for, further literals of a list do not count. "
            "Write chains of OR as IN (...), or divide the query."
        )


def count_words(text: str) -> int:
    """Count the words and signs of a statement, without further literals of lists: the engine's planning
    effort.

    A name defined in WITH counts as much as its definition, wherever it is used.

    >>> count_words("SELECT 1 + 1"), count_words("SELECT a IN (1, 2, 3, 4)"), count_words("'a+b' -- + 1")
    (4, 6, 1)
    >>> count_words("WITH t AS (SELECT 1 + 1) SELECT t.a FROM t") - count_words("SELECT t.a FROM t")
    12
    """
    sizes: dict[str, int] = {}  # of the definitions of names
    # of each open parenthesis: the name it defines, the name before it, the size before it
    outer: list[tuple[str, str, int]] = []
    size, name, last, weight = 0, "", "", 1
    for token in _TOKEN.finditer(text):
        sign = token[0]
        if token["comment"]:
            continue
        if token["literal"] and last == ",":
            size -= 1
        elif sign == "(":
            explained = name if last.upper() in ("AS", "MATERIALIZED") else ""
            outer.append((explained, name, size + 1))
            size = 0
        elif sign == ")" and outer:
            explained, name, before = outer.pop()
            if explained:
                sizes[explained] = max(size, sizes.get(explained, 0))
            size += before + 1
        elif token["name"]:
            if sign.upper() not in ("AS", "NOT", "MATERIALIZED"):
                name = sign.strip('"`').lower()
            weight = max(1, sizes.get(name, 1))
            size += weight
        elif sign == "." and last:
            size -= weight - 2  # the name of a table before a column
            weight = 1
        else:
            size += 1
        last = sign
    return size + sum(before for _, _, before in outer)


class _ComputedViews:
    """Views of one moment, computed as far as a statement reads them, and passed to the engine as files. They
    are empty while the engine plans the statement.

    `about` is the state of the tables that an answer reflects, with the time of the log ends if a view has
    them.
    """

    def __init__(
        self, builder: QueryBuilder, folder: str, at: Snapshot, about: AsOf, health: HealthSettings | None
    ) -> None:
        self.builder, self.at, self.about = builder, at, about
        self._folder, self._health = folder, health
        self._added: set[str] = set()

    def add(self, name: str) -> bool:
        """Register the columns of a view with the engine; return whether it was missing."""
        if name in self._added or name not in COMPUTED:
            return False
        # late: statements without views do not wait for it
        from streaming.queries.lag_rows import view_schema

        self._write(name, "columns", no_rows(view_schema(name)))
        self._added.add(name)
        return True

    def compute(self, logical: str, physical: str) -> None:
        """Compute the columns and groups of the added views that a statement with these plans reads."""
        for name in sorted(self._added):
            from streaming.lag.samples import MAX_SAMPLE_AGE_MS
            from streaming.queries.lag_rows import facts_of, view

            scanned = Scanned.of(name, logical, physical)
            rows = view(name, self.at, self.about, scanned, health=self._health)
            execute(self.builder, f"DROP TABLE {name}")
            self._write(name, "rows", rows)
            if facts_of(name, scanned).lag:
                self.about = self.about.with_sampled_ends(rows, MAX_SAMPLE_AGE_MS)

    def _write(self, name: str, kind: str, rows: pa.Table) -> None:
        file = f"{self._folder}/{name}-{kind}.arrow"
        with _naming(f"temporary files in {self._folder}"), pa.ipc.new_file(file, rows.schema) as written:
            written.write_table(rows)
        place = file.replace("'", "''")
        execute(self.builder, f"CREATE EXTERNAL TABLE {name} STORED AS ARROW LOCATION '{place}'")


def _columns(views: _ComputedViews, name: str, known: list[str]) -> pa.Table:
    if name not in known:
        raise MisuseError(f"sql: {_unknown_table(name, known)}")
    views.add(name)
    schema = execute(views.builder, f"SELECT * FROM {name} LIMIT 0").schema
    types = [str(field.type).replace("_view", "").replace("element: ", "") for field in schema]
    return pa.table({"column_name": schema.names, "data_type": types})


def _plans_of_a_query(views: _ComputedViews, text: str, known: list[str], bounded: Bound) -> tuple[str, str]:
    """Return the logical and the physical plan of a statement without running it, adding views that it names.

    Raises `MisuseError` unless it is one query that can be planned.
    """
    try:  # only a query is valid in parentheses: COPY would write files
        with bounded():
            views.builder.execute(f"EXPLAIN SELECT 1 WHERE EXISTS (\n{text}\n)").read_all()
            plans = pa.table(views.builder.execute(f"EXPLAIN\n{text}").read_all())
    except Exception as error:  # delta-rs raises just this
        said = in_one_line(error)
        if (lacking := _UNKNOWN_TABLE.search(said)) and views.add(lacking["name"]):
            return _plans_of_a_query(views, text, known, bounded)
        raise MisuseError(f"sql: {_refusal(text, said, known)}") from error
    logical, *physical = plans["plan"].to_pylist()
    return logical, "\n".join(physical)


def _refusal(text: str, error: str, known: list[str]) -> str:
    """Return the error message for a query; for mistakes in the query itself, the engine's message."""
    code = _NO_CODE.sub(lambda found: " " if found[0][0] in "-/" else "''", text).strip()
    outer = _without_nested(code)
    if written := _WRITES.search(outer):
        verb = written["first"] or written["after_with"]
        return f"read-only: expected one query (SELECT ...), found {verb.upper()}. Nothing has been changed."
    if found := _UNKNOWN_TABLE.search(error):
        return _unknown_table(found["name"], known)
    if "RecursionLimitExceeded" in error:
        return "expected less nesting of parentheses, functions and subqueries: " + error + "."
    if not code:
        return "expected one query (SELECT ...), found an empty text."
    if ";" in code:
        return "expected one query (SELECT ...), found several statements."
    said = _LINE.sub(lambda line: str(int(line[0]) - 1), error)  # our EXPLAIN adds a line
    begin = "" if _READS.match(code) else "expected one query (SELECT ...), found: "
    end = "" if said.endswith("?") else "."
    return f"{begin}{said}{end}{_hint(code, said)}"


def _without_nested(code: str) -> str:
    while code != (outer := _NESTED.sub(" ) ", code)):
        code = outer
    return code


def _hint(code: str, said: str) -> str:
    if "ParserError" in said and _KEYWORDS.search(code):
        return ' Put "group" and "partition" in double quotes: they are SQL keywords.'
    return ""


def _unknown_table(name: str, known: list[str]) -> str:
    return f"unknown table {name!r}.{did_you_mean(nearest(name, known))} Tables: {', '.join(known)}."


def _live(name: str, mark: int, sequence: int) -> str:
    """Return the query for the live rows as of a sequence, from a folded table and its mark: of each key the
    last change above the mark wins, or the value before the first undone one."""
    value: Value = "before" if sequence < mark else "after"
    direction = "ASC" if value == "before" else "DESC"
    low, high = sorted((mark, sequence))
    keys, columns = names(KEYS[name]), names(ROWS[name].names)
    changed = f"""changes WHERE "kind" = '{KINDS[name]}' AND "sequence" > {low} AND "sequence" <= {high}"""
    order = f'"sequence" {direction}, "source_partition" DESC'
    ranked = f'SELECT *, row_number() OVER (PARTITION BY {keys} ORDER BY {order}) AS "rank" FROM {changed}'
    values = value_columns(name, value)
    return f"""
        SELECT {columns} FROM {name} LEFT ANTI JOIN (SELECT DISTINCT {keys} FROM {changed}) USING ({keys})
        UNION ALL
        SELECT {values} FROM ({ranked}) WHERE "rank" = 1 AND "{value_column(name, value)}" IS NOT NULL
        """
