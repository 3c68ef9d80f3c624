"""Prints rows as a table for people, as JSON or as CSV.

JSON is one array of objects, one per line; CSV has a header line. Both use the column names of the tables,
and the values of `plain_values`. Text from the log is data: its control characters are never sent to a
terminal. Only CSV for a pipe or a file contains them unchanged, except NUL; no text in it is a formula.
"""

import shutil
import sys
from dataclasses import dataclass
from datetime import date
from typing import Any, Final, TextIO

import pyarrow as pa
import pyarrow.compute as pc

from streaming.cli.layout.forms import Form
from streaming.cli.layout.tables import brief_lines, uncut_lines
from streaming.cli.output import Format, for_programs
from streaming.common.escapes import shown
from streaming.common.plain_values import refuse_repeated, refuse_unprintable
from streaming.common.row_lines import csv_pieces, document_pieces, json_pieces

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
            out.writelines(json_pieces(rows))
        case "csv":
            _print_csv(rows, out)


def print_document(about: dict[str, Any], rows: pa.Table, out: TextIO | None = None) -> None:
    """Print one JSON object: the members `about` the rows, and their array as `rows`, in parts.

    Raises as `print_rows`.
    """
    out = out or sys.stdout
    _refuse_unprintable(rows, "json")
    for_programs(out)
    out.writelines(document_pieces(about, rows))


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


def _print_csv(rows: pa.Table, out: TextIO) -> None:
    is_seen = out.isatty()
    out.writelines(f"{shown(line) if is_seen else line}\n" for line in csv_pieces(rows))
