"""Questions in SQL to the tables, read only, on one snapshot of each."""

from datetime import datetime
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from streaming.common.times import to_ms
from streaming.model.errors import MisuseError
from streaming.queries.answers import Answer
from streaming.queries.completeness import AsOf
from streaming.tables.folding import KEYS, KINDS, ROWS, Value, fold_mark, value_columns
from streaming.tables.formats import as_held
from streaming.tables.select import execute, in_one_line, names
from streaming.tables.snapshot import Snapshot
from streaming.tables.tables import Tables, TablesMissingError

OTHER_TABLES: Final = ("quarantine", "alerts")
"""Tables that can be asked beside `changes`, `offsets` and `groups`, where they exist."""


def run_sql(tables: Tables, text: str, as_of: datetime | None = None) -> Answer:
    """Answer one query; raises `MisuseError` for anything else, and for a query that cannot be planned.

    Beside the tables there are `live_offsets` and `live_groups`: `offsets` and `groups` as they would be if
    everything were folded, which is what the other commands show; or as they were at a past moment, to which
    the tables themselves do not go back.
    """
    text = text.rstrip().rstrip(";")  # as many write it
    moment = to_ms(as_of)
    others = {name: table for name in OTHER_TABLES if (table := _table(tables, name)) is not None}
    rows, progress, gap = tables.ask(lambda at: (_run(at, others, text), at.progress, at.gap), as_of=moment)
    return Answer(rows, AsOf.of(None, progress, gap, moment))


def _run(at: Snapshot, others: dict[str, DeltaTable], text: str) -> pa.Table:
    builder = QueryBuilder()
    for name, table in {**at.bases, "changes": at.changes, **others}.items():
        _register(builder, name, table)
    for name, base in at.bases.items():
        execute(builder, f"CREATE VIEW live_{name} AS {_live(name, fold_mark(base), at.progress.sequence)}")
    try:  # only a query can stand in parentheses: COPY would write files. Planning it runs nothing.
        builder.execute(f"EXPLAIN SELECT 1 WHERE EXISTS (\n{text}\n)").read_all()
        builder.execute(f"EXPLAIN {text}").read_all()
    except Exception as error:  # delta-rs raises just this
        known = ", ".join([*at.bases, "changes", *others, *(f"live_{name}" for name in at.bases)])
        raise MisuseError(
            f"sql: expected one query (SELECT ...), found an error: {in_one_line(error)}. "
            f"Tables: {known}; docs/tables.md has their columns. "
            'Put "group" and "partition" in double quotes.'
        ) from error
    return execute(builder, text)


def _register(builder: QueryBuilder, name: str, table: DeltaTable) -> None:
    """Make a table known under its name; in older formats as a view that finds every text."""
    if (query := as_held(table, f"{name}_as_written")) is None:
        builder.register(name, table)
    else:
        builder.register(f"{name}_as_written", table)
        execute(builder, f"CREATE VIEW {name} AS {query}")


def _live(name: str, mark: int, sequence: int) -> str:
    """Write the query for what was live at a sequence, from a folded table that contains all up to its mark:
    of each key the last change above the mark wins, or what was before the first one that is undone."""
    value: Value = "before" if sequence < mark else "after"
    direction = "ASC" if value == "before" else "DESC"
    low, high = sorted((mark, sequence))
    keys, columns = names(KEYS[name]), names(ROWS[name].names)
    changed = f"""changes WHERE "kind" = '{KINDS[name]}' AND "sequence" > {low} AND "sequence" <= {high}"""
    order = f'"sequence" {direction}, "source_partition" DESC'
    ranked = f'SELECT *, row_number() OVER (PARTITION BY {keys} ORDER BY {order}) AS "rank" FROM {changed}'
    return f"""
        SELECT {columns} FROM {name} LEFT ANTI JOIN (SELECT DISTINCT {keys} FROM {changed}) USING ({keys})
        UNION ALL
        SELECT {value_columns(name, value)} FROM ({ranked}) WHERE "rank" = 1 AND "{value}" IS NOT NULL
        """


def _table(tables: Tables, name: str) -> DeltaTable | None:
    try:
        return tables.delta(name)
    except TablesMissingError:
        return None
