"""Prints rows as a table for people, as JSON or as CSV.

JSON is one array of objects, one per line; CSV has a header line. Both use the column names of the tables,
and the values of `plain_values`. Text from the log is data: its control characters are never sent to a
terminal. Only CSV for a pipe or a file contains them unchanged, except NUL; no text in it is a formula.
"""

import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from itertools import chain
from typing import Any, Final, TextIO

import pyarrow as pa
import pyarrow.compute as pc

from streaming.cli.csv_lines import csv_line, csv_text, harmless
from streaming.cli.layout.cells import parts_of
from streaming.cli.layout.forms import Form
from streaming.cli.layout.tables import brief_lines, uncut_lines
from streaming.cli.output import Format, for_programs
from streaming.cli.plain_values import is_numeric, plain_values, refuse_repeated, refuse_unprintable
from streaming.common.escapes import json_text, shown

_LEAST_ROOM: Final = 40
"""Columns of a terminal; a narrower one wraps lines itself."""


@dataclass(frozen=True)
class TableStyle:
    """The style of a table on a terminal; a pipe gets everything regardless.

    `is_wide`: as in a pipe. `today` (UTC): timestamps are shortened, those of that day to the time of day;
    None: they are in full.
    """

    is_wide: bool = False
    today: date | None = None


def print_rows(
    rows: pa.Table, output: Format, form: Form, view: TableStyle, out: TextIO | None = None
) -> None:
    """Print rows in a format, on standard output unless `out` is given.

    `form` has the columns of a table, `view` its style. Raises `MisuseError`, before printing anything, for
    columns that the format cannot represent.
    """
    out = out or sys.stdout
    _refuse_unprintable(rows, output)
    if output != "table":
        for_programs(out)
    match output:
        case "table":
            _print_table(rows, form, view, out)
        case "json":
            _print_json(rows, out)
        case "csv":
            _print_csv(rows, out)


def print_document(about: dict[str, Any], rows: pa.Table, out: TextIO | None = None) -> None:
    """Print one JSON object: the members `about` the rows, and their array as `rows`, in parts.

    Raises as `print_rows`.
    """
    out = out or sys.stdout
    _refuse_unprintable(rows, "json")
    for_programs(out)
    out.write("{")
    for name, value in about.items():
        out.write(f"{json_text(name)}: {json_text(value)}, ")
    out.write('"rows": ')
    _print_json(rows, out)
    out.write("}\n")


def _refuse_unprintable(rows: pa.Table, output: Format) -> None:
    refuse_unprintable(rows.schema)
    if output == "json":
        refuse_repeated(rows.column_names, "columns as JSON")


def _print_table(rows: pa.Table, form: Form, view: TableStyle, out: TextIO) -> None:
    rows = _of_one_moment(rows, form)
    if out.isatty() and not view.is_wide:
        room = max(_LEAST_ROOM, shutil.get_terminal_size().columns)
        lines = brief_lines(rows, form, room=room, today=view.today)
    else:
        lines = uncut_lines(rows, form)
    out.writelines(f"{line}\n" for line in lines)


def _of_one_moment(rows: pa.Table, form: Form) -> pa.Table:
    """Replace committed offsets by the offsets from which lag was counted, if known: people see
    LOG-END-OFFSET - CURRENT-OFFSET = LAG. Forms that show both columns, and programs, get both."""
    if "offset_as_of_ends" not in form.unseen or "offset_as_of_ends" not in rows.column_names:
        return rows
    shown = pc.coalesce(rows["offset_as_of_ends"], rows["committed_offset"])
    return rows.set_column(rows.column_names.index("committed_offset"), "committed_offset", shown)


def _print_json(rows: pa.Table, out: TextIO) -> None:
    objects = (dict(zip(rows.column_names, row, strict=True)) for row in _rows(rows))
    out.write("[")
    out.writelines((",\n " if number else "") + json_text(row) for number, row in enumerate(objects))
    out.write("]\n")


def _print_csv(rows: pa.Table, out: TextIO) -> None:
    head = map(harmless, rows.column_names)
    lines = map(csv_line, chain([head], _rows(rows, _harmless_values)))
    is_seen = out.isatty()
    out.writelines(f"{shown(line) if is_seen else line}\n" for line in lines)


def _harmless_values(column: pa.ChunkedArray) -> list[Any]:
    values = plain_values(column)
    if is_numeric(column.type):
        return values
    return [None if value is None else harmless(csv_text(value)) for value in values]


def _rows(
    rows: pa.Table, values_of: Callable[[pa.ChunkedArray], list[Any]] = plain_values
) -> Iterator[tuple[Any, ...]]:
    for part in parts_of(rows):
        yield from zip(*map(values_of, part.columns), strict=True)
