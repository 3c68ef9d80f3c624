"""Lists of a page: columns, sorting on the server, and paging."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from streaming.common.arrays import Index, from_texts, numbers_or, to_mask
from streaming.common.pieces import take
from streaming.common.timestamps import to_milliseconds
from streaming.queries.names import is_pattern, matching
from streaming.serve.page.asked import PAGE_ROWS, Asked
from streaming.serve.page.cells import terms

Row = dict[str, Any]
"""A row as Python values; times are in ms."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a list: its head, the cell of a row, and the name in the address by which the list is
    sorted (None: it cannot be). `is_first_high`: the first click puts the highest value first. `about` says
    what the column is (empty: its head does)."""

    head: str
    cell: Callable[[Row], Markup | str]
    sort: str | None = None
    is_number: bool = False
    is_first_high: bool = False
    about: str = ""


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The rows of one page of a list, as cells, with links to other pages and other orders.

    `empty` says what to do if there are no rows, `notes` what the heads and the words of the rows mean.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Markup | str]]
    total: int
    empty: str
    page: int = 1
    pages: int = 1
    sort: str = ""
    is_falling: bool = False
    asked: Asked | None = None
    parameter: str = "page"
    is_sortable: bool = True
    notes: Sequence[tuple[str, str]] = ()

    def order_link(self, column: Column) -> str:
        """Return a link to the list sorted by a column, the other way round if it is already."""
        assert self.asked is not None
        is_falling = not self.is_falling if column.sort == self.sort else column.is_first_high
        return self.asked.here(
            sort=column.sort, order="falling" if is_falling else "rising", **{self.parameter: None}
        )

    def page_link(self, number: int) -> str:
        assert self.asked is not None
        return self.asked.here(**{self.parameter: number})


def listing(
    asked: Asked,
    rows: pa.Table,
    columns: Sequence[Column],
    *,
    empty: str,
    sort: str = "",
    is_falling: bool = False,
    parameter: str = "page",
    size: int = PAGE_ROWS,
    is_sortable: bool = True,
) -> Listing:
    """Return one page of rows, sorted by the column that the address names, or by `sort` (empty: not)."""
    by, falls = order_of(asked, columns if is_sortable else [], sort=sort, is_falling=is_falling)
    places = ordered(rows, by, is_falling=falls)
    pages = max(1, ceil(len(rows) / size))
    page = min(asked.number(parameter, 1, least=1), pages)
    shown = take(rows, places[(page - 1) * size : page * size])
    own = [[column.cell(row) for column in columns] for row in python_rows(shown)]
    heads = [(column.head, column.about) for column in columns if column.about]
    return Listing(
        columns=columns,
        rows=own,
        notes=[*heads, *terms(cell for row in own for cell in row)],
        total=len(rows),
        empty=empty,
        page=page,
        pages=pages,
        sort=by,
        is_falling=falls,
        asked=asked,
        parameter=parameter,
        is_sortable=is_sortable,
    )


def order_of(
    asked: Asked, columns: Sequence[Column], *, sort: str = "", is_falling: bool = False
) -> tuple[str, bool]:
    """Return the column that the address names, one of those that can be sorted, or `sort`, and whether it is
    falling."""
    known = [column.sort for column in columns if column.sort]
    by = asked.word("sort", known, sort) if known else sort
    order = asked.word("order", ("rising", "falling"))
    return by, order == "falling" if order else is_falling if by == sort else False


def having(rows: pa.Table, name: str, text: str) -> pa.Table:
    """Return the rows whose name contains a text, in any case, or matches a pattern with `*` and `?`."""
    if not text:
        return rows
    if is_pattern(text):
        names = matching(text, rows[name].to_pylist())
        return rows.filter(pc.is_in(rows[name], value_set=from_texts(names)))
    return rows.filter(pc.match_substring(rows[name], text, ignore_case=True))


def ordered(rows: pa.Table, by: str, *, is_falling: bool) -> Index:
    """Return the places of n rows sorted by a column (empty: as they are).

    Null values come last in both orders; equal ones stay in their order.
    """
    if not by:
        return np.arange(len(rows))
    column, is_known = rows[by], to_mask(rows[by].is_valid())
    if pa.types.is_floating(column.type):
        values = column.to_numpy()
        is_known &= ~np.isnan(values)
        values = -values if is_falling else values
    else:
        if pa.types.is_string(column.type):
            column = pc.rank(column.combine_chunks(), "ascending", tiebreaker="dense")
        elif pa.types.is_timestamp(column.type):
            column = to_milliseconds(column)
        values = numbers_or(column, 0)
        values = ~values if is_falling else values  # the negative of the least one has no int64
    return np.lexsort((np.where(is_known, values, 0), ~is_known))


def python_rows(rows: pa.Table) -> list[Row]:
    """Return rows as Python values, times in ms; of few rows only."""
    columns = {
        name: (to_milliseconds(rows[name]) if pa.types.is_timestamp(rows[name].type) else rows[name])
        for name in rows.column_names
    }
    values = [column.to_pylist() for column in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]
