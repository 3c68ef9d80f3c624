"""Prints rows as a table for people, as JSON or as CSV.

JSON is one array of objects, one on a line; CSV has a header line, nothing for null and "" for empty text.
Both use the column names of the tables, and values as `plain_values` gives them. Text from the log is data:
control characters are shown, never sent to a terminal. Only CSV for a pipe or a file holds them as they are.
"""

import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO

import pyarrow as pa
from rich.cells import cell_len

if TYPE_CHECKING:  # most of rich is loaded for terminals only
    from rich.table import Table

from streaming.cli.plain_values import plain_values, refuse_repeated, refuse_unprintable
from streaming.common.escapes import json_text, shown

Format = Literal["table", "json", "csv"]
FORMATS: Final[tuple[Format, ...]] = ("table", "json", "csv")

_ROWS_AT_ONCE: Final = 10_000


def print_rows(rows: pa.Table, output: Format, out: TextIO | None = None) -> None:
    """Print rows in the given format, on standard output unless `out` is given.

    Raises `MisuseError`, before anything is printed, for columns that have no form in it.
    """
    out = out or sys.stdout
    _refuse_unprintable(rows, output)
    _PRINTERS[output](rows, out)


def print_document(about: dict[str, Any], rows: pa.Table, out: TextIO | None = None) -> None:
    """Print one JSON object: the members `about` the rows, and as `rows` their array, a part at a time.

    Raises as `print_rows`.
    """
    out = out or sys.stdout
    _refuse_unprintable(rows, "json")
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


def with_kafka_titles(rows: pa.Table) -> pa.Table:
    """Name the columns as the tools of Kafka head theirs: `committed_offset` is CURRENT-OFFSET.

    >>> with_kafka_titles(pa.table({"log_end_offset": [1]})).column_names
    ['LOG-END-OFFSET']
    """
    names = ["current_offset" if name == "committed_offset" else name for name in rows.column_names]
    return rows.rename_columns([name.upper().replace("_", "-") for name in names])


def people_table(rows: pa.Table) -> "Table":
    """Return the rows as a rich table; numbers stand to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for field in rows.schema:
        justify: Literal["left", "right"] = "right" if pa.types.is_integer(field.type) else "left"
        table.add_column(Text(shown(field.name)), justify=justify, overflow="fold")
    for row in _rows(rows):
        table.add_row(*(Text(_for_people(value)) for value in row))
    return table


def printable(text: str) -> str:
    """Show control characters as escapes; the empty text as two quotes.

    >>> printable("a\\x1b[2J")
    'a\\\\x1b[2J'
    """
    return shown(text) if text else '""'


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
            return str(value)


def _rows(rows: pa.Table) -> Iterator[tuple[Any, ...]]:
    """Give the rows, a part of them at a time: as Python's values they take far more memory."""
    for part in rows.to_batches(max_chunksize=_ROWS_AT_ONCE):
        yield from zip(*_columns(pa.Table.from_batches([part])), strict=True)


def _columns(rows: pa.Table) -> list[list[Any]]:
    """Give columns of values that JSON has."""
    return [plain_values(column) for column in rows.columns]


def _print_table(rows: pa.Table, out: TextIO) -> None:
    if not out.isatty():
        out.writelines(_aligned_lines(rows))
        return
    from rich.console import Console

    console = Console(file=out, highlight=False)
    with console.capture() as text:  # rich would end the process when the reader has gone
        console.print(people_table(rows))
    out.write(text.get())


def _aligned_lines(rows: pa.Table) -> Iterator[str]:
    """Lay the table out for a pipe, which has no width: nothing is folded, and many rows are no burden."""
    columns = [
        _aligned([shown(field.name), *map(_for_people, column)], to_the_right=pa.types.is_integer(field.type))
        for field, column in zip(rows.schema, _columns(rows), strict=True)
    ]
    return ("  ".join(line).rstrip() + "\n" for line in zip(*columns, strict=True))


def _aligned(cells: list[str], *, to_the_right: bool) -> list[str]:
    widths = list(map(cell_len, cells))
    widest = max(widths)
    blanks = [" " * (widest - width) for width in widths]
    pairs = zip(blanks, cells, strict=True) if to_the_right else zip(cells, blanks, strict=True)
    return [first + second for first, second in pairs]


def _print_json(rows: pa.Table, out: TextIO) -> None:
    objects = (dict(zip(rows.column_names, row, strict=True)) for row in _rows(rows))
    out.write("[")
    out.writelines((",\n " if number else "") + json_text(row) for number, row in enumerate(objects))
    out.write("]\n")


def _print_csv(rows: pa.Table, out: TextIO) -> None:
    lines = map(csv_line, chain([rows.column_names], _rows(rows)))
    if out.isatty():
        lines = map(shown, lines)
    out.writelines(f"{line}\n" for line in lines)


def csv_line(values: Iterable[Any]) -> str:
    """Write a line of CSV, without its end: nothing for null, "" for empty text."""
    return ",".join(map(_csv_value, values))


def _csv_value(value: Any) -> str:
    """Write one value; the `csv` module would write null and the empty group id alike."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json_text(value)
    is_bare = text and not any(sign in text for sign in ',"\r\n')
    return text if is_bare else '"' + text.replace('"', '""') + '"'


_PRINTERS: Final = {"table": _print_table, "json": _print_json, "csv": _print_csv}
