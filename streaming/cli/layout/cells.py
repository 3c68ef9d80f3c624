"""The texts in the cells of a table for people: one line of printable text, never empty."""

import re
from collections.abc import Iterator
from datetime import date
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as t
from rich.cells import cell_len

from streaming.common.escapes import json_text, printable
from streaming.common.plain_values import plain_values
from streaming.common.row_lines import ROWS_AT_ONCE, parts_of
from streaming.common.times import as_clock

Cells = list[list[str]]
"""The cells of some rows, column by column."""

_ISO: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")


class CellTexts:
    """The cells of rows as texts, in parts; can be iterated repeatedly.

    `today` (UTC): timestamps are shortened, those of that day to the time of day; None: they are in full.
    """

    def __init__(self, rows: pa.Table, *, today: date | None = None) -> None:
        self._rows = rows
        self._today = None if today is None else today.isoformat()
        self._only_part = list(self._parts()) if len(rows) <= ROWS_AT_ONCE else None

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
        if t.is_string(column.type):  # usually few distinct values
            texts = {value: text_of(value) for value in set(values)}
            return [texts[value] for value in values]
        return list(map(text_of, values))


def text_of(value: Any) -> str:
    """Format a value of `plain_values`; null and an empty list are `-`.

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
    """Shorten a timestamp (ISO 8601) to the minute, or to the time of day if it is on `today` (both UTC).

    >>> shortened("2026-11-22T14:03:05.123Z", "2026-11-22"), shortened("2026-11-20T14:03:05Z", "2026-11-22")
    ('14:03:05', '2026-11-20 14:03')
    """
    if not _ISO.match(moment):  # the text of a timestamp beyond all calendars
        return moment
    return moment[11:19] if moment.startswith(today) else f"{moment[:10]} {moment[11:16]}"


def span_of(seconds: float, *, is_at_least: bool) -> str | None:
    """Format a duration, with a sign if it may be longer; None for a lower bound below a second.

    >>> span_of(93_784.5, is_at_least=False), span_of(29.2, is_at_least=True), span_of(0, is_at_least=True)
    ('1d 02:03:04', '>= 00:00:29', None)
    """
    if is_at_least and seconds < 1:
        return None
    return f"{'>= ' if is_at_least else ''}{as_clock(int(seconds * 1_000))}"


def since_of(moment: str, today: date | None, *, is_at_least: bool) -> str:
    """Format the timestamp (ISO 8601) since when something holds, with a sign if it may be earlier.

    >>> since_of("2026-11-22T14:03:05.000Z", date(2026, 11, 22), is_at_least=True)
    '<= 14:03:05'
    """
    text = moment if today is None else shortened(moment, today.isoformat())
    return f"{'<= ' if is_at_least else ''}{text}"


def size_of(text: str) -> int:
    """Return the width of a text in terminal columns: two for a wide character, none for a combining one.

    >>> size_of("e\\u0301"), size_of("日本")
    (1, 4)
    """
    return cell_len(text)


def sizes_of(texts: list[str]) -> list[int]:
    if all(map(str.isascii, texts)):
        return list(map(len, texts))
    sizes = {text: size_of(text) for text in set(texts)}  # usually few distinct texts
    return [sizes[text] for text in texts]


def is_empty(column: pa.ChunkedArray) -> bool:
    """Whether all values of a column are null, empty texts or empty lists."""
    if column.null_count == len(column):
        return True
    if t.is_string(column.type):
        return not pc.max(pc.binary_length(column)).as_py()
    if t.is_list(column.type):
        return not pc.max(pc.list_value_length(column)).as_py()
    return False
