"""`/removed`: offsets that were removed, when and why, and the file to put them back."""

from typing import Final

import pyarrow.compute as pc

from streaming.common.keys import KEY_NAMES
from streaming.common.times import DAY_MS
from streaming.expiry.cause_names import CAUSES
from streaming.queries.removed import PRINTED, removed, restorable, without_last
from streaming.queries.reset_csv import MOST_NAMED, doubts, names_left_out
from streaming.serve.page import cells
from streaming.serve.page.asked import Asked, AskedTables
from streaming.serve.page.columns import count_column, group_column, position_column
from streaming.serve.page.listing import Column, having, listing
from streaming.serve.page.view import Document, Page

SINCE: Final = {"day": DAY_MS, "week": 7 * DAY_MS, "quarter": 90 * DAY_MS}


def page(asked: Asked) -> Page:
    found = _removed(asked)
    return Page(
        title="Removed",
        template="removed.html",
        about=found.about,
        is_live=False,
        remarks=found.remarks,
        context={
            "found": listing(asked, found.rows, _columns(asked), empty=_EMPTY),
            "since": asked.word("since", tuple(SINCE), "week"),
            "spans": list(SINCE),
            "causes": list(CAUSES),
            "cause": asked.text("cause"),
        },
    )


def document(asked: Asked) -> Document:
    return _removed(asked)


def _removed(asked: Asked) -> Document:
    since = asked.now - SINCE[asked.word("since", tuple(SINCE), "week")]

    def ask(tables: AskedTables) -> Document:
        tables.at.hold_samples(asked.cluster.held)
        found = removed(tables.at, since=since)
        of_any_cause = rows = having(found.rows, "group", asked.text("q"))
        if cause := asked.word("cause", CAUSES):
            rows = rows.filter(pc.equal(rows["cause"], cause))
        lost = tables.lag.to_restore(restorable(rows))
        outside = without_last(of_any_cause).join(rows.select(KEY_NAMES), KEY_NAMES, join_type="left semi")
        of_file = [
            *doubts(lost, most=MOST_NAMED),
            *names_left_out(lost, one_group=False),
            *doubts(outside, most=MOST_NAMED),
        ]
        remarks = [*found.all_remarks(), *(f"/removed.reset-csv: {one}" for one in of_file)]
        return Document(rows=rows.select(PRINTED.names), about=found.about, lost=lost, remarks=remarks)

    return asked.ask(ask)


def _columns(asked: Asked) -> list[Column]:
    return [
        Column(head="Removed", cell=lambda row: cells.moment(row["removed_at"], asked.now)),
        group_column(asked),
        position_column(asked),
        count_column("Last offset", "removed_offset"),
        count_column(
            "Committed since",
            "committed_offset",
            about="The offset that was committed after the removal: then nothing is lost.",
        ),
        Column(head="Cause", cell=lambda row: cells.or_nothing(row["cause"])),
    ]


_EMPTY: Final = "No offset was removed in this time."
