"""`/expiring`: the offsets that brokers will drop next, on a time line and as a list."""

from typing import Final

import numpy as np
import pyarrow as pa

from streaming.common.arrays import to_numbers
from streaming.common.times import DAY_MS, HOUR_MS
from streaming.common.timestamps import to_milliseconds
from streaming.queries.expiring import expiring
from streaming.serve.page import cells
from streaming.serve.page.asked import Asked, AskedTables
from streaming.serve.page.assessed import expiring_rows, unknown_expiries
from streaming.serve.page.charts import Chart, bars
from streaming.serve.page.columns import count_column, group_column, position_column
from streaming.serve.page.listing import Column, having, listing
from streaming.serve.page.view import Document, Page

WITHIN: Final = {"day": DAY_MS, "week": 7 * DAY_MS}
_STEPS: Final = {"day": HOUR_MS, "week": 6 * HOUR_MS}


def page(asked: Asked) -> Page:
    span = asked.word("within", tuple(WITHIN), "day")
    rows = _within(having(asked.remembered(expiring_rows), "group", asked.text("q")), asked.now, span)
    counted = {name: len(_within(asked.remembered(expiring_rows), asked.now, name)) for name in WITHIN}
    return Page(
        title="Expiring",
        template="expiring.html",
        about=asked.about,
        lag_at=asked.assessment.moment,
        context={
            "found": listing(asked, rows, _columns(asked), empty=_empty(asked, span)),
            "within": span,
            "counted": counted,
            "chart": _chart(rows, asked.now, span),
            "unknown": asked.remembered(unknown_expiries),
            "retention_ms": asked.retention_ms,
        },
    )


def document(asked: Asked) -> Document:
    within_ms = WITHIN[asked.word("within", tuple(WITHIN), "day")]

    def ask(tables: AskedTables) -> Document:
        found = expiring(tables.at, settings=tables.settings.expiry, within_ms=within_ms)
        rows = having(found.rows, "group", asked.text("q"))
        return Document(rows=rows, about=found.about, remarks=found.all_remarks())

    return asked.ask(ask)


def _within(rows: pa.Table, now: int, span: str) -> pa.Table:
    """Return the rows, soonest first, that expire within a span."""
    moments = to_numbers(to_milliseconds(rows["expires_at"]))
    return rows.slice(0, int(np.searchsorted(moments, now + WITHIN[span], side="right")))


def _chart(rows: pa.Table, now: int, span: str) -> Chart:
    step = _STEPS[span]
    moments = np.maximum(to_numbers(to_milliseconds(rows["expires_at"])), now)
    counts = np.bincount((moments - now) // step, minlength=WITHIN[span] // step)
    starts = [now + number * step for number in range(len(counts))]
    return bars(starts, counts.tolist(), step=step, unit="offsets")


def _columns(asked: Asked) -> list[Column]:
    return [
        Column(head="Expires", cell=lambda row: cells.expiry(row["expires_at"], asked.now)),
        Column(head="At", cell=lambda row: cells.moment(row["expires_at"], asked.now)),
        group_column(asked),
        position_column(asked),
        count_column("Committed offset", "committed_offset"),
        Column(head="Rule", cell=lambda row: cells.term(row["rule"])),
    ]


def _empty(asked: Asked, span: str) -> str:
    if asked.retention_ms is None:
        return ""  # the page says so above
    return f"No offset expires within a {span}, if groups stay as they are."
