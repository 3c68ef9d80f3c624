"""The formats of the tables: which one a table has, and how an older one is upgraded.

Up to format 2 bounds of long texts are missing in the log, and delta-rs misreads those of characters beyond
U+FFFF in even planes. Other engines then do not find rows that are there. What is asked here finds them all
the same (`is_of_groups`, `as_held`); at the start of the job such bounds are rewritten (`upgrade`).

Columns that came later are null in older rows; where no job of this release has added them yet, they are read
as null (`columns_of`, `as_held`). Whoever names columns of a table in a query leaves it to one of the two.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Field
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction
from pyarrow.fs import PyFileSystem

from streaming.model.schemas import TABLES_FORMAT
from streaming.tables.files import CORES, bounded_columns, commit_files, statistics_text
from streaming.tables.select import is_one_of

FORMAT_PROPERTY: Final = "offsetlake.format"
"""The table property that says in which format a table is; those of the first have none."""

_WITH_TRUE_BOUNDS: Final = 3

_FORMER_LOG: Final[Mapping[str, str]] = {"delta.checkpointInterval": "100"}
"""Properties that earlier releases gave their tables, and this one gives another value."""


_SQL_TYPES: Final[Mapping[pa.DataType, str]] = {
    pa.bool_(): "BOOLEAN",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.date32(): "DATE",
}


def format_of(table: DeltaTable) -> int:
    """Return the format that a table has."""
    return int(table.metadata().configuration.get(FORMAT_PROPERTY, 1))


# --- asking tables of older formats ----------------------------------------------------------------------


def is_of_groups(table: DeltaTable, groups: Sequence[str]) -> str:
    """Write the condition that a row of a table is of one of these groups.

    Where bounds of names beyond U+FFFF may be misread, no file is passed over: bounds are not compared with
    what is computed.
    """
    if _has_true_bounds(table) or not any(map(_is_beyond_plane_0, groups)):
        return is_one_of("group", groups)
    return f"""("group" || '') {is_one_of("group", groups).removeprefix('"group" ')}"""


def columns_of(table: DeltaTable, fields: Iterable[pa.Field]) -> str:
    """Write columns for a query of a table: null are those that it lacks, being of an older format.

    For one that is read before a job of this release has written to it.
    """
    held = _held_names(table)
    return ", ".join(f'"{field.name}"' if field.name in held else _lacking(field) for field in fields)


def fields_of(table: DeltaTable, struct: str, fields: Iterable[pa.Field]) -> list[str]:
    """Write fields of a struct column for a query of a table, each as a column; null are those that it lacks,
    as for `columns_of`."""
    [kind] = [field.type for field in pa.schema(table.schema().to_arrow()) if field.name == struct]
    held = {field.name for field in kind}
    return [
        f'"{struct}"[\'{field.name}\'] AS "{field.name}"' if field.name in held else _lacking(field)
        for field in fields
    ]


def as_held(table: DeltaTable, name: str, schema: pa.Schema) -> str | None:
    """Write the query for all rows of a registered table with which it answers as the present format does.

    No file is passed over for its texts, and columns of the schema that it lacks are null. None where the
    table itself does so.
    """
    held = _held_names(table)
    lacking = [_lacking(field) for field in schema if field.name not in held]
    if _has_true_bounds(table) and not lacking:
        return None
    columns = [
        f"""("{field.name}" || '') AS "{field.name}\""""
        if pa.types.is_string(field.type) and not _has_true_bounds(table)
        else f'"{field.name}"'
        for field in pa.schema(table.schema().to_arrow())
    ]
    return f"SELECT {', '.join([*columns, *lacking])} FROM {name}"


def _held_names(table: DeltaTable) -> set[str]:
    return {field.name for field in table.schema().fields}


def _lacking(field: pa.Field) -> str:
    """Write a column that a table lacks; of a type, so that it can be reckoned with, if that has a name."""
    kind = _SQL_TYPES.get(field.type)
    return f'{"NULL" if kind is None else f"CAST(NULL AS {kind})"} AS "{field.name}"'


def _has_true_bounds(table: DeltaTable) -> bool:
    return format_of(table) >= _WITH_TRUE_BOUNDS


def _is_beyond_plane_0(text: str) -> bool:
    return max(text, default="") > "\uffff"


# --- bringing tables to the present format ---------------------------------------------------------------


def upgrade(table: DeltaTable, storage: DeltaStorageHandler, schema: pa.Schema) -> None:
    """Bring a table to the present format; `table` is then as of its newest commit.

    Columns and fields of structs that it lacks are added (null in its rows), doubtful bounds are rewritten,
    and last the format is noted: cut at any point it can be repeated. A change of any other kind takes a step
    of its own here. A table that has the format gets what came into it before the release.
    Raises `CommitFailedError` where another commit came first.
    """
    held = {column.name: column for column in table.schema().fields}
    wanted = [Field.from_arrow(column) for column in schema]
    if missing := [column for column in wanted if held.get(column.name) != column]:
        table.alter.add_columns(missing)  # of a struct that is there, or a list of them, its new fields
    if format_of(table) == TABLES_FORMAT:
        return
    if not _has_true_bounds(table) and mend_bounds(table, storage):
        table.update_incremental()
    table.alter.set_table_properties({FORMAT_PROPERTY: str(TABLES_FORMAT)}, raise_if_not_exists=False)


def renew_log(table: DeltaTable, log: Mapping[str, str]) -> None:
    """Keep the log of a table as these properties say, as far as it is kept as an earlier release said.

    What others have set stays. Raises `CommitFailedError` where another commit came first.
    """
    held = table.metadata().configuration
    if renewed := {name: log[name] for name, former in _FORMER_LOG.items() if held.get(name) == former}:
        table.alter.set_table_properties(renewed)


def mend_bounds(table: DeltaTable, storage: DeltaStorageHandler) -> int:
    """Rewrite the statistics of files with doubtful bounds, from what is in them; return how many.

    The files themselves stay: one commit adds them again, which replaces what the log says of each. It is
    made on top of the version that was read, as a file that is compacted meanwhile would come back.
    """
    listed = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    texts = [column for column in bounded_columns(table) if _is_text(table, column)]
    doubtful = [file for file in listed if any(_is_doubtful(file, column) for column in texts)]
    if doubtful:
        again = partial(_added_again, table, PyFileSystem(storage), bounded_columns(table))
        with ThreadPoolExecutor(CORES, "offsetlake-bounds") as cores:
            mended = list(cores.map(again, doubtful))
        commit_files(table, mended, [], CommitProperties(max_commit_retries=0))
    return len(doubtful)


def _is_text(table: DeltaTable, column: str) -> bool:
    return bool(pa.types.is_string(pa.schema(table.schema().to_arrow()).field(column).type))


def _is_doubtful(file: Mapping[str, Any], column: str) -> bool:
    """Tell whether a bound of a text column is missing, or has characters for which others may be meant."""
    rows, nulls = file["num_records"], file.get(f"null_count.{column}")
    if rows is not None and rows == nulls:
        return False
    bounds = [file.get(f"{bound}.{column}") for bound in ("min", "max")]
    return any(bound is None or _is_beyond_plane_0(bound) for bound in bounds)


def _added_again(
    table: DeltaTable, files: PyFileSystem, bounded: Sequence[str], file: Mapping[str, Any]
) -> AddAction:
    return AddAction(
        path=file["path"],
        size=file["size_bytes"],
        partition_values={
            column: str(file[f"partition.{column}"]) for column in table.metadata().partition_columns
        },
        modification_time=file["modification_time"],
        data_change=False,
        stats=statistics_text(_columns_of(table, files, bounded, file["path"]), bounded),
    )


def _columns_of(table: DeltaTable, files: PyFileSystem, names: Sequence[str], path: str) -> pa.Table:
    """Read columns of one file of a table; those that were added to the table later are null."""
    types = pa.schema(table.schema().to_arrow())
    with files.open_input_file(path) as source:
        file = pq.ParquetFile(source)
        held = file.read([name for name in names if name in file.schema_arrow.names])
    columns = [
        held[name].cast(types.field(name).type)
        if name in held.column_names
        else pa.nulls(len(held), types.field(name).type)
        for name in names
    ]
    return pa.table(columns, list(names))
