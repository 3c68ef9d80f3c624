"""What stands in the cells of a table for people: one line of printable text, and never nothing."""

import re
from collections.abc import Iterator
from datetime import date
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as t
from rich.cells import cell_len

from streaming.cli.plain_values import plain_values
from streaming.common.escapes import json_text, printable
from streaming.common.times import as_clock

Cells = list[list[str]]
"""The cells of some rows, column by column."""

_ISO: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")

_ROWS_AT_ONCE: Final = 10_000


def parts_of(rows: pa.Table) -> Iterator[pa.Table]:
    """Give rows a part at a time: as Python's values, all of them would take far more memory."""
    for part in rows.to_batches(max_chunksize=_ROWS_AT_ONCE):
        yield pa.Table.from_batches([part])


class CellTexts:
    """The cells of rows as texts, a part of the rows at a time, as often as they are asked for.

    `today` (UTC): moments are shortened, those of that day to the time of day; None: they are in full.
    """

    def __init__(self, rows: pa.Table, *, today: date | None = None) -> None:
        self._rows = rows
        self._today = None if today is None else today.isoformat()
        self._only_part = list(self._parts()) if len(rows) <= _ROWS_AT_ONCE else None

    def __iter__(self) -> Iterator[Cells]:
        return self._parts() if self._only_part is None else iter(self._only_part)

    def _parts(self) -> Iterator[Cells]:
        for part in parts_of(self._rows):
            yield list(map(self._texts, part.columns))

    def _texts(self, column: pa.ChunkedArray) -> list[str]:
        values = plain_values(column)
        if self._today is not None and t.is_timestamp(column.type):
            return ["-" if value is None else shortened(value, self._today) for value in values]
        if t.is_integer(column.type) or t.is_timestamp(column.type):
            return ["-" if value is None else str(value) for value in values]
        if t.is_string(column.type):  # few of which differ, as a rule
            texts = {value: text_of(value) for value in set(values)}
            return [texts[value] for value in values]
        return list(map(text_of, values))


def text_of(value: Any) -> str:
    """Write a value as `plain_values` gives it; null and an empty list are `-`.

    >>> text_of(None), text_of(True), text_of(["a", " "])
    ('-', 'true', 'a, " "')
    """
    match value:
        case None:
            return "-"
        case str():
            return printable(value)
        case bool():
            return json_text(value)
        case list():
            return ", ".join(map(text_of, value)) or "-"
        case {"member_id": str(member_id), "client_host": str(host)}:
            return f"{printable(member_id)}{printable(host)}"
        case dict() | tuple():
            return json_text(value)
        case _:
            return str(value)


def shortened(moment: str, today: str) -> str:
    """Shorten a moment (ISO 8601) to the minute, or to the time of day if it is of `today` (both UTC).

    >>> shortened("2026-11-22T14:03:05.123Z", "2026-11-22"), shortened("2026-11-20T14:03:05Z", "2026-11-22")
    ('14:03:05', '2026-11-20 14:03')
    """
    if not _ISO.match(moment):  # out of range of any calendar, which is what it says
        return moment
    return moment[11:19] if moment.startswith(today) else f"{moment[:10]} {moment[11:16]}"


def span_of(seconds: float, *, is_at_least: bool) -> str | None:
    """Write a duration, with a sign where it may be longer; None where that says nothing.

    >>> span_of(93_784.5, is_at_least=False), span_of(29.2, is_at_least=True), span_of(0, is_at_least=True)
    ('1d 02:03:04', '>= 00:00:29', None)
    """
    if is_at_least and seconds < 1:
        return None
    return f"{'>= ' if is_at_least else ''}{as_clock(int(seconds * 1_000))}"


def since_of(moment: str, today: date | None, *, is_at_least: bool) -> str:
    """Write the moment (ISO 8601) since when something is so, with a sign where it may be since earlier.

    >>> since_of("2026-11-22T14:03:05.000Z", date(2026, 11, 22), is_at_least=True)
    '<= 14:03:05'
    """
    text = moment if today is None else shortened(moment, today.isoformat())
    return f"{'<= ' if is_at_least else ''}{text}"


def size_of(text: str) -> int:
    """Return how many columns of a terminal a text takes: two for a wide character, none for a combining one.

    >>> size_of("e\\u0301"), size_of("日本")
    (1, 4)
    """
    return cell_len(text)


def sizes_of(texts: list[str]) -> list[int]:
    """Return the size of each text."""
    if all(map(str.isascii, texts)):
        return list(map(len, texts))
    sizes = {text: size_of(text) for text in set(texts)}  # few of which differ, as a rule
    return [sizes[text] for text in texts]


def is_empty(column: pa.ChunkedArray) -> bool:
    """Tell whether a column says nothing: all of it is null, empty text or an empty list."""
    if column.null_count == len(column):
        return True
    if t.is_string(column.type):
        return not pc.max(pc.binary_length(column)).as_py()
    if t.is_list(column.type):
        return not pc.max(pc.list_value_length(column)).as_py()
    return False
