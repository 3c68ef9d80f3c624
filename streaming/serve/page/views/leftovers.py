"""`/leftovers`: offsets that nobody uses any more, and the command lines that remove them."""

import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from streaming.common.times import DAY_MS, parse_duration_ms
from streaming.queries.bound.leftovers import IDLE_MS, leftovers
from streaming.queries.leftovers import REASONS
from streaming.queries.removal_lines import removal_lines
from streaming.serve.page import cells
from streaming.serve.page.asked import Asked, AskedTables
from streaming.serve.page.columns import group_column, last_commit_column, topic_column
from streaming.serve.page.left_over import leftover_rows
from streaming.serve.page.listing import Column, Row, having, listing
from streaming.serve.page.view import Document, Page

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
            "idle": asked.text("idle") or f"{IDLE_MS // DAY_MS}d",
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
    return leftover_rows(asked.assessment, idle_ms)


def _idle_ms(asked: Asked) -> int:
    return parse_duration_ms(asked.text("idle"), name="idle") if asked.text("idle") else IDLE_MS


def _chosen(asked: Asked, rows: pa.Table) -> pa.Table:
    rows = having(rows, "group", asked.text("q"))
    if reason := asked.word("reason", REASONS):
        rows = rows.filter(pc.equal(rows["reason"], reason))
    return rows


def _columns(asked: Asked) -> list[Column]:
    def reason(row: Row) -> Markup:
        since = row["idle_since"]
        words = cells.or_nothing(row["reason"])
        return words if since is None else words + Markup(" since ") + cells.moment(since, asked.now)

    def expires(row: Row) -> Markup:
        return cells.expires(row["expires_at"], row["rule"], asked.now)

    return [
        group_column(asked, sort="group"),
        topic_column(asked),
        Column(head="Partitions", cell=lambda row: cells.count(len(row["partitions"])), is_number=True),
        Column(head="Reason", cell=reason, sort="reason"),
        last_commit_column(asked, is_first_high=False),
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
