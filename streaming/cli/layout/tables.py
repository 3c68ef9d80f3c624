"""Formats rows as a table for people: uncut for pipes and `--wide`, brief for a terminal."""

from collections.abc import Iterator, Sequence
from datetime import date
from itertools import chain
from math import inf
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as t

from streaming.cli.layout.cells import CellTexts, is_empty, since_of, span_of
from streaming.cli.layout.forms import ColumnPlace, Form
from streaming.cli.layout.lines import (
    Column,
    count_sizes,
    fitting_widths,
    folded,
    full_widths,
    lines_of,
)
from streaming.common.arrays import from_mask, from_texts
from streaming.common.plain_values import plain_values

_SECONDS: Final = "lag_seconds"
_IS_AT_LEAST: Final = "lag_is_at_least"
_SINCE: Final = "since"
_SINCE_IS_AT_LEAST: Final = "since_is_at_least"
_SHORT: Final = "times are UTC; --utc shows them in full"

_LONG: Final = 1 / 3
"""A cell longer than this part of a line does not exclude its column of an SQL query."""


def uncut_lines(rows: pa.Table, form: Form) -> Iterator[str]:
    """Return lines with all columns in full width, and full timestamps."""
    rows = _with_since(_spanned(rows, form), form)
    places = form.places(rows.column_names)
    seen = rows.select([place.number for place in places])
    texts = CellTexts(seen)
    columns = _columns(seen.schema, places, texts, form)
    return lines_of(columns, full_widths(columns), texts, blocks=_blocks(seen, form))


def brief_lines(rows: pa.Table, form: Form, *, room: int, today: date | None) -> Iterator[str]:
    """Return lines with the important columns that fit into `room`, and a note about what was left out or
    shortened.

    `today` (UTC): timestamps are shortened, those of that day to the time of day; None: they are in full.
    """
    rows = _with_since(_spanned(rows, form), form, today)
    empty = {number for number, column in enumerate(rows.columns) if not form.is_own and is_empty(column)}
    places = form.places(rows.column_names, empty)
    ranked = [place for place in places if place.rank is not None]
    seen = _counted(rows, form).select([place.number for place in ranked])
    texts = CellTexts(seen, today=today)
    columns = _columns(seen.schema, ranked, texts, form, is_brief=True)
    widths = fitting_widths(columns, room, up_to=room * _LONG if form.is_own else inf)
    whole = {ranked[number].number for number in widths if not ranked[number].is_counted}
    hidden = [place.head for place in places if place.number not in whole | empty]
    is_shortened = today is not None and any(_has_moments(seen, number) for number in widths)
    lines = lines_of(columns, widths, texts, room=room, blocks=_blocks(seen, form))
    return chain(lines, _note(hidden, room, is_shortened=is_shortened))


def _spanned(rows: pa.Table, form: Form) -> pa.Table:
    """Replace seconds of lag by formatted durations, with a sign if they are lower bounds."""
    if form.is_own or _SECONDS not in rows.column_names:
        return rows
    values = zip(rows[_SECONDS].to_pylist(), rows[_IS_AT_LEAST].to_pylist(), strict=True)
    texts = [None if one is None else span_of(one, is_at_least=bool(flag)) for one, flag in values]
    return rows.set_column(rows.column_names.index(_SECONDS), _SECONDS, _texts(texts))


def _with_since(rows: pa.Table, form: Form, today: date | None = None) -> pa.Table:
    """Replace the time since when groups lag by text, with a sign if it may be earlier."""
    if form.is_own or _SINCE_IS_AT_LEAST not in rows.column_names:
        return rows
    values = zip(plain_values(rows[_SINCE]), rows[_SINCE_IS_AT_LEAST].to_pylist(), strict=True)
    texts = [None if moment is None else since_of(moment, today, is_at_least=flag) for moment, flag in values]
    return rows.set_column(rows.column_names.index(_SINCE), _SINCE, _texts(texts))


def _texts(texts: list[str | None]) -> pa.Array:
    """Return n texts; `pa.array` would import pandas."""
    is_there = from_mask(np.array([text is not None for text in texts], np.bool_))
    return pc.if_else(is_there, from_texts([text or "" for text in texts]), pa.nulls(len(texts), pa.string()))


def _counted(rows: pa.Table, form: Form) -> pa.Table:
    for name in form.counted:
        lengths = pc.list_value_length(rows[name])
        rows = rows.set_column(rows.column_names.index(name), name, lengths)
    return rows


def _columns(
    schema: pa.Schema, places: Sequence[ColumnPlace], texts: CellTexts, form: Form, *, is_brief: bool = False
) -> list[Column]:
    """Return the columns of a table (`places`, with cells `texts`) for the layout."""
    return [
        Column(
            head=place.brief_head if is_brief else place.head,
            sizes=sizes,
            rank=place.rank or 0,
            is_rigid=t.is_primitive(of) or name in (_SECONDS, _SINCE),
            to_the_right=t.is_integer(of) or name == _SECONDS,
            is_prose=name in form.prose,
        )
        for place, name, of, sizes in zip(
            places, schema.names, schema.types, count_sizes(len(places), texts), strict=True
        )
    ]


def _blocks(seen: pa.Table, form: Form) -> int | None:
    return None if form.blocks is None else seen.column_names.index(form.blocks)


def _has_moments(seen: pa.Table, number: int) -> bool:
    column = seen.column(number)
    is_moment = t.is_timestamp(column.type) or seen.column_names[number] == _SINCE
    return bool(is_moment) and column.null_count < len(column)


def _note(hidden: Sequence[str], room: int, *, is_shortened: bool) -> list[str]:
    """Return a note about the differences from the output to a pipe, wrapped to `room`."""
    parts = [_SHORT] if is_shortened else []
    parts += [f"--wide also shows {', '.join(hidden)}"] if hidden else []
    return folded("; ".join(parts), room) if parts else []
