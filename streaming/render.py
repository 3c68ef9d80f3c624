"""Prints rows as a table for people, as JSON or as CSV.

JSON is one array of objects, one on a line; CSV has a header line, nothing for null and "" for empty text.
Both use the column names of the tables and ISO 8601 UTC timestamps. Text from the log is data: in a table for
people control characters are shown, never sent to the terminal.
"""

import json
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO

import pyarrow as pa
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

Format = Literal["table", "json", "csv"]
FORMATS: Final[tuple[Format, ...]] = ("table", "json", "csv")

_UNBOUNDED_WIDTH: Final = 100_000


def print_rows(rows: pa.Table, output: Format, out: TextIO | None = None) -> None:
    """Print rows in the given format, on standard output unless `out` is given."""
    out = out or sys.stdout
    _PRINTERS[output](rows, out)


def people_table(rows: pa.Table) -> Table:
    """Return the rows as a rich table; numbers stand to the right."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for field in rows.schema:
        is_number = pa.types.is_integer(field.type)
        table.add_column(field.name, justify="right" if is_number else "left", overflow="fold")
    for row in rows.to_pylist():
        table.add_row(*(Text(_for_people(value)) for value in row.values()))
    return table


def printable(text: str) -> str:
    """Show control characters as escapes; the empty text as two quotes.

    >>> printable("a\\x1b[2J")
    'a\\\\x1b[2J'
    """
    if not text:
        return '""'
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _for_people(value: Any) -> str:
    match value:
        case None:
            return "-"
        case str():
            return printable(value)
        case list():
            return printable(", ".join(_for_people(item) for item in value)) if value else "-"
        case {"member_id": member_id, "client_host": host}:
            return f"{printable(member_id)}{printable(host)}"
        case _:
            return str(_plain(value))


def _plain(value: Any) -> Any:
    """Return the value as JSON has it: timestamps as ISO 8601 in UTC with milliseconds, bytes as hex."""
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case bytes():
            return value.hex()
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case _:
            return value


def _print_table(rows: pa.Table, out: TextIO) -> None:
    # a pipe has no width: lines must not be folded for whoever reads them
    width = None if out.isatty() else _UNBOUNDED_WIDTH
    console = Console(file=out, width=width, highlight=False, soft_wrap=not out.isatty())
    with console.capture() as text:  # rich would end the process when nobody reads what it writes
        console.print(people_table(rows))
    out.write(text.get())


def _print_json(rows: pa.Table, out: TextIO) -> None:
    objects = [json.dumps(_plain(row), ensure_ascii=False) for row in rows.to_pylist()]
    out.write("[" + ",\n ".join(objects) + "]\n")


def _print_csv(rows: pa.Table, out: TextIO) -> None:
    out.write(_csv_line(rows.column_names))
    out.writelines(_csv_line(row.values()) for row in rows.to_pylist())


def _csv_line(values: Iterable[Any]) -> str:
    return ",".join(map(_csv_value, values)) + "\n"


def _csv_value(value: Any) -> str:
    """Write one value; the `csv` module would write null and the empty group id alike."""
    if value is None:
        return ""
    plain = _plain(value)
    text = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
    is_bare = text and not set(text) & set('",\r\n')
    return text if is_bare else '"' + text.replace('"', '""') + '"'


_PRINTERS: Final = {"table": _print_table, "json": _print_json, "csv": _print_csv}
