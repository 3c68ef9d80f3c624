"""Rows as JSON and CSV for programs, in parts.

JSON is one array of objects, one per line; CSV has a header line. Both use the column names of the tables,
and the values of `plain_values`. No text in CSV is a formula, and NUL is escaped in it (`csv_lines`).
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

import pyarrow as pa

from streaming.common.csv_lines import csv_line, csv_text, harmless
from streaming.common.escapes import json_text
from streaming.common.plain_values import is_numeric, plain_values

ROWS_AT_ONCE: Final = 10_000


def parts_of(rows: pa.Table) -> Iterator[pa.Table]:
    """Yield rows in parts: as Python values, all of them would take far more memory."""
    for part in rows.to_batches(max_chunksize=ROWS_AT_ONCE):
        yield pa.Table.from_batches([part])


def json_pieces(rows: pa.Table) -> Iterator[str]:
    """Yield the text of a JSON array of objects, one row a line."""
    objects = (dict(zip(rows.column_names, row, strict=True)) for row in _rows(rows))
    yield "["
    for number, row in enumerate(objects):
        yield (",\n " if number else "") + json_text(row)
    yield "]\n"


def document_pieces(about: Mapping[str, Any], rows: pa.Table) -> Iterator[str]:
    """Yield the text of a JSON object: the members `about` the rows, and their array as `rows`."""
    yield "{"
    for name, value in about.items():
        yield f"{json_text(name)}: {json_text(value)}, "
    yield '"rows": '
    yield from json_pieces(rows)
    yield "}\n"


def csv_pieces(rows: pa.Table) -> Iterator[str]:
    """Yield lines of CSV, without line ends."""
    head = map(harmless, rows.column_names)
    return map(csv_line, chain([head], _rows(rows, _harmless_values)))


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
