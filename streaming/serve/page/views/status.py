"""`/status`: how far each offsets partition was read, the counters, and failures of reading the tables."""

from streaming.queries.status import partitions, totals
from streaming.serve.page import cells
from streaming.serve.page.asked import Asked
from streaming.serve.page.assessed import loaded_groups, loaded_offsets
from streaming.serve.page.columns import count_column
from streaming.serve.page.listing import Column, listing, python_rows
from streaming.serve.page.view import Document, Page


def page(asked: Asked) -> Page:
    progress = asked.snapshot.progress
    return Page(
        title="Status",
        template="status.html",
        about=asked.about,
        context={
            "found": listing(asked, partitions(asked.about), _columns(asked), empty=_EMPTY, sort="partition"),
            "counters": [row for row in python_rows(totals(progress)) if row["count"]],
            "progress": progress,
            "root": asked.cluster.tables.root,
            "groups": int(loaded_groups(asked.snapshot).sum()),
            "offsets": loaded_offsets(asked.snapshot),
            "ends_at": asked.snapshot.topics.ends.newest_at,
        },
    )


def document(asked: Asked) -> Document:
    return Document(rows=partitions(asked.about), about=asked.about)


def _columns(asked: Asked) -> list[Column]:
    return [
        Column(head="Offsets partition", cell=lambda row: str(row["partition"]), sort="partition"),
        Column(head="State", cell=lambda row: cells.pill(row["state"]), sort="state"),
        count_column("Position", "position", sort="position"),
        count_column("Last stable offset", "last_stable_offset", sort="last_stable_offset"),
        count_column("High watermark", "high_watermark", sort="high_watermark"),
        count_column("Behind", "behind", sort="behind"),
        Column(
            head="Open transaction since",
            cell=lambda row: cells.moment(row["open_transaction_since"], asked.now),
            sort="open_transaction_since",
        ),
    ]


_EMPTY = "Nothing has been read yet. Is offsetlake run running?"
