"""`/groups`: all groups, with search, filters, sorting and paging; groups of one kind in one line."""

import re
from collections import Counter
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from streaming.common.pieces import take
from streaming.lag.health_rules import STATUSES
from streaming.queries.answers import STATES, TYPES
from streaming.queries.names import is_pattern
from streaming.serve.assessment.assessment import Assessment
from streaming.serve.page import cells
from streaming.serve.page.asked import Asked
from streaming.serve.page.assessed import group_rows
from streaming.serve.page.columns import count_column, lag_columns, last_commit_column
from streaming.serve.page.listing import Column, Row, having, listing, order_of, ordered
from streaming.serve.page.notes import NOT_COMPLETE
from streaming.serve.page.view import Document, Page

_VARIABLE: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d{3,}", re.IGNORECASE)
_LEAST_ALIKE: Final = 20
_PATTERNS: Final = 5
_SORT: Final = "group"


def page(asked: Asked) -> Page:
    rows, found = asked.remembered(group_rows), chosen(asked, asked.text("q"))
    return Page(
        title="Groups",
        template="groups.html",
        about=asked.about,
        lag_at=asked.assessment.moment,
        context={
            "found": listing(asked, found, columns(asked), empty=_empty(asked, rows), sort=_SORT),
            "in_all": len(rows),
            "patterns": _alike(asked, found) if len(found) > _LEAST_ALIKE else [],
            "states": [state for state in STATES if state in _values(rows, "state")],
            "types": [kind for kind in TYPES if kind in _values(rows, "type")],
            "statuses": [status for status in STATUSES if status in _values(rows, "status")],
        },
    )


def document(asked: Asked) -> Document:
    """Return all chosen groups, in the order of the page."""
    rows = chosen(asked, asked.text("q"))
    by, is_falling = order_of(asked, columns(asked), sort=_SORT)
    return Document(rows=take(rows, ordered(rows, by, is_falling=is_falling)), about=asked.about)


def columns(asked: Asked) -> list[Column]:
    now = asked.now
    incomplete = asked.about.completeness.outdated

    def name(row: Row) -> Markup:
        link = cells.link(row["group"], asked.url("/group", group=row["group"]))
        return link + cells.mark(NOT_COMPLETE) if row["source_partition"] in incomplete else link

    return [
        Column(head="Group", cell=name, sort="group"),
        Column(head="State", cell=lambda row: cells.pill(row["state"]), sort="state"),
        Column(head="Type", cell=lambda row: cells.or_nothing(row["type"])),
        count_column("Members", "members", sort="members"),
        Column(head="Health", cell=lambda row: cells.pill(row["status"])),
        *lag_columns(),
        last_commit_column(asked),
        Column(
            head="First expiry",
            cell=lambda row: cells.expiry(row["first_expiry"], now),
            sort="first_expiry",
            is_number=True,
            about="When the broker will drop the first of its offsets, if the group stays as it is.",
        ),
    ]


def chosen(asked: Asked, search: str) -> pa.Table:
    """Return the groups (schema `GROUP_ROWS`) that a search and the filters of the address select."""
    rows = having(asked.remembered(group_rows), "group", search)
    for name, known in (("state", STATES), ("type", TYPES), ("status", STATUSES)):
        if word := asked.word(name, known):
            rows = rows.filter(pc.equal(rows[name], word))
    return rows


def _values(rows: pa.Table, name: str) -> set[str | None]:
    return set(pc.unique(rows[name]).to_pylist())


def _alike(asked: Asked, rows: pa.Table) -> list[tuple[str, int, str]]:
    """Return patterns that many groups match, such as `console-consumer-*`, with the number of groups that a
    search for each finds, and a link to that."""
    is_all = len(rows) == len(asked.remembered(group_rows))
    many = asked.remembered(_patterns_of_all) if is_all else _patterns(rows)
    return [
        (cells.name_text(pattern), len(chosen(asked, pattern)), asked.here(q=pattern, page=None))
        for pattern in many
        if pattern != asked.text("q") and not is_pattern(pattern.replace("*", ""))
    ]


def _patterns_of_all(assessment: Assessment) -> list[str]:
    return _patterns(group_rows(assessment))


def _patterns(rows: pa.Table) -> list[str]:
    """Return the most frequent patterns of many of these groups."""
    counts = Counter(_VARIABLE.sub("*", name) for name in rows["group"].to_pylist() if _VARIABLE.search(name))
    return [pattern for pattern, count in counts.most_common(_PATTERNS) if count >= _LEAST_ALIKE]


def _empty(asked: Asked, rows: pa.Table) -> str:
    if len(rows):
        return "No group matches. Remove a filter, or search for less."
    if asked.about.is_loading:
        return "The offsets topic is being read for the first time. Groups appear once it has been read."
    return "No group has committed anything yet. Start a consumer with a group id."
