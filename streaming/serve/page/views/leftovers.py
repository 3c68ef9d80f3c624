"""`/leftovers`: offsets that nobody uses any more, and the command lines that remove them."""

import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from streaming.common.times import parse_duration_ms
from streaming.queries.bound.leftovers import IDLE_MS, leftovers
from streaming.queries.leftovers import REASONS
from streaming.queries.removal_lines import removal_lines
from streaming.serve.page import cells
from streaming.serve.page.asked import Asked, AskedTables
from streaming.serve.page.left_over import leftover_rows
from streaming.serve.page.listing import Column, Row, listing
from streaming.serve.page.view import Document, Page
from streaming.serve.page.views.groups import having

_MOST_LINES = 400


def page(asked: Asked) -> Page:
    rows = all_leftovers(asked, _idle_ms(asked))
    chosen = _chosen(asked, rows)
    lines = removal_lines(
        chosen.slice(0, _MOST_LINES),
        bootstrap_servers=asked.cluster.settings.source.bootstrap_servers,
        complete=asked.about.completeness.complete,
        are_whole_groups=not asked.text("reason"),
    )
    return Page(
        title="Leftovers",
        template="leftovers.html",
        about=asked.about,
        lag_at=asked.assessment.moment,
        is_live=False,
        context={
            "found": listing(asked, chosen, _columns(asked), empty=_EMPTY),
            "in_all": len(rows),
            "partitions": pc.sum(pc.list_value_length(rows["partitions"])).as_py() or 0,
            "reasons": [reason for reason in REASONS if reason in set(rows["reason"].to_pylist())],
            "idle": asked.text("idle") or "14d",
            "lines": "\n".join(lines.lines),
            "remarks": list(lines.remarks()),
            "is_cut": len(chosen) > _MOST_LINES,
        },
    )


def document(asked: Asked) -> Document:
    """Return the rows of `offsetlake leftovers`."""

    def ask(tables: AskedTables) -> Document:
        found = leftovers(tables.at, settings=tables.settings.expiry, idle_ms=_idle_ms(asked))
        return Document(rows=_chosen(asked, found.rows), about=found.about, remarks=found.all_remarks())

    return asked.ask(ask)


def all_leftovers(asked: Asked, idle_ms: int = IDLE_MS) -> pa.Table:
    """Return the left-over offsets of all groups (schema `LEFTOVERS`); remembered for the usual time only."""
    if idle_ms == IDLE_MS:
        return asked.remembered(leftover_rows, idle_ms)
    return leftover_rows(asked.assessment.as_of(asked.now), idle_ms)


def _idle_ms(asked: Asked) -> int:
    return parse_duration_ms(asked.text("idle"), name="idle") if asked.text("idle") else IDLE_MS


def _chosen(asked: Asked, rows: pa.Table) -> pa.Table:
    rows = having(rows, "group", asked.text("q"))
    if reason := asked.word("reason", REASONS):
        rows = rows.filter(pc.equal(rows["reason"], reason))
    return rows


def _columns(asked: Asked) -> list[Column]:
    def group(row: Row) -> Markup:
        return cells.link(row["group"], asked.url("/group", group=row["group"]))

    def topic(row: Row) -> Markup:
        return cells.link(row["topic"], asked.url("/topic", topic=row["topic"]))

    def reason(row: Row) -> Markup:
        since = row["idle_since"]
        words = cells.or_nothing(row["reason"])
        return words if since is None else words + Markup(" since ") + cells.moment(since, asked.now)

    def expires(row: Row) -> Markup:
        return cells.expires(row["expires_at"], row["rule"], asked.now)

    return [
        Column(head="Group", cell=group, sort="group"),
        Column(head="Topic", cell=topic, sort="topic"),
        Column(head="Partitions", cell=lambda row: cells.count(len(row["partitions"])), is_number=True),
        Column(head="Reason", cell=reason, sort="reason"),
        Column(
            head="Last commit",
            cell=lambda row: cells.ago(row["last_commit"], asked.now),
            sort="last_commit",
            is_number=True,
        ),
        Column(
            head="Expires",
            cell=expires,
            sort="expires_at",
            about="When the broker drops the first of them by itself.",
        ),
    ]


_EMPTY = (
    "Nothing is left over: every group with members uses its topics, and the others have committed lately."
)
