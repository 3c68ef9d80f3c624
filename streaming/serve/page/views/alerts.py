"""`/alerts`: open alerts and recently closed ones, with pending deliveries."""

from typing import Final

import pyarrow as pa
from markupsafe import Markup

from streaming.alerts.listing import describe_alerts, describe_evaluation, list_alerts
from streaming.queries.names import is_pattern
from streaming.serve.page import cells
from streaming.serve.page.asked import Asked
from streaming.serve.page.listing import Column, Row, listing
from streaming.serve.page.view import Document, Page

WHICH: Final = ("open", "all")


def page(asked: Asked) -> Page:
    rows, deliveries = _alerts(asked)
    return Page(
        title="Alerts",
        template="alerts.html",
        about=asked.about,
        context={
            "found": listing(asked, rows, _columns(asked), empty=_empty(asked)),
            "which": asked.word("which", WHICH, "open"),
            "deliveries": deliveries,
            "evaluated": describe_evaluation(asked.snapshot.progress, asked.now),
        },
    )


def document(asked: Asked) -> Document:
    return Document(rows=_alerts(asked)[0], about=asked.about)


def _alerts(asked: Asked) -> tuple[pa.Table, list[str]]:
    """Return the alerts of the table, and sentences about those that were not delivered."""
    is_all = asked.word("which", WHICH, "open") == "all"
    tables = asked.cluster.tables
    if not is_all and not asked.snapshot.undelivered:
        return asked.snapshot.alerts, []
    return list_alerts(tables, closed_too=is_all), describe_alerts(tables)[1:]


def _columns(asked: Asked) -> list[Column]:
    def about(row: Row) -> Markup | str:
        if row["group"] is not None:
            return cells.link(row["group"], asked.url("/group", group=row["group"]))
        if row["pattern"] is None:
            return cells.NOTHING
        if is_pattern(row["pattern"]) and "[" not in row["pattern"]:  # as in a search
            return cells.link(row["pattern"], asked.url("/groups", q=row["pattern"]))
        return cells.name(row["pattern"])

    def undelivered(row: Row) -> Markup | str:
        return cells.or_nothing(", ".join(row["undelivered"] or ()))

    return [
        Column(head="Severity", cell=lambda row: cells.pill(row["severity"])),
        Column(head="Rule", cell=lambda row: cells.or_nothing(row["rule"])),
        Column(head="Group", cell=about),
        Column(head="Summary", cell=lambda row: cells.sentence(row["summary"])),
        Column(head="Opened", cell=lambda row: cells.moment(row["opened_at"], asked.now)),
        Column(head="Closed", cell=lambda row: cells.moment(row["closed_at"], asked.now)),
        Column(head="Not delivered to", cell=undelivered),
    ]


def _empty(asked: Asked) -> str:
    if asked.snapshot.progress.alerts_evaluated_at is None:
        return "The job has not evaluated the rules yet."
    return "No alert is open." if asked.text("which") != "all" else "There was no alert."
