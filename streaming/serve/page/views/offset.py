"""`/offset`: the life of one committed offset, between the start and the end of the log."""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from streaming.assessment.assess import Facts
from streaming.common.times import DAY_MS, HOUR_MS, iso
from streaming.common.timestamps import to_milliseconds
from streaming.queries.names import TopicPartitions
from streaming.serve.assessment.assessment import retention_ms_of
from streaming.serve.page import cells
from streaming.serve.page.asked import Asked, AskedTables, NotFoundError
from streaming.serve.page.charts import Band, Chart, Line, Mark, lines
from streaming.serve.page.listing import Column, Listing, Row, listing, python_rows
from streaming.serve.page.view import Document, Page
from streaming.serve.page.views.group import group_of, state_bands, who

SPANS: Final = {"hour": HOUR_MS, "day": DAY_MS, "week": 7 * DAY_MS}
_MOMENTS: Final = 240
_MARKS: Final = 20


def page(asked: Asked) -> Page:
    group, topic, partition = _key(asked)
    span = asked.word("span", tuple(SPANS), "day")

    def ask(tables: AskedTables) -> Page:
        end, own = tables.at.moment, [TopicPartitions(topic, frozenset({partition}))]
        start = end - SPANS[span]
        facts = Facts(
            lag=True,
            lag_time=True,
            log_start=True,
            health=True,
            owner=True,
            expiry=retention_ms_of(tables.at.progress, tables.settings.expiry),
        )
        answer = tables.lag.assessed(facts, [group], own)
        steps = tables.lag.list_history([group], own, since=start)
        found = python_rows(answer.rows)
        if not found and not len(steps.rows):
            raise NotFoundError(
                f"group {group!r}, topic {topic!r}, partition {partition}: expected a committed offset, "
                f"found none as of {iso(end, 'seconds')}, and no change within the last {span}. See Removed."
            )
        series = tables.lag.lag_over_time(
            [group], own, since=start, until=end, every_ms=SPANS[span] // _MOMENTS
        )
        row = found[0] if found else None
        return Page(
            title="Offset",
            template="offset.html",
            about=answer.as_of,
            context={
                "group": group,
                "topic": topic,
                "partition": partition,
                "row": row,
                "group_link": asked.url("/group", group=group, as_of=asked.text("as_of") or None),
                "topic_link": asked.url("/topic", topic=topic),
                "span": span,
                "spans": list(SPANS),
                "chart": _chart(tables, group, row, series.rows, steps.rows, start),
                "why_no_lag": series.as_of.why_no_lag,
                "steps": _steps(asked, tables, steps.rows, group, own, start),
                "moment": end,
            },
        )

    return asked.ask(ask)


def document(asked: Asked) -> Document:
    """Return the rows of `offsetlake history GROUP --topic T:P --since`."""
    group, topic, partition = _key(asked)
    span = asked.word("span", tuple(SPANS), "day")

    def ask(tables: AskedTables) -> Document:
        own = [TopicPartitions(topic, frozenset({partition}))]
        answer = tables.lag.list_history([group], own, since=tables.at.moment - SPANS[span])
        return Document(rows=answer.rows, about=answer.as_of, errors=answer.errors)

    return asked.ask(ask)


def _key(asked: Asked) -> tuple[str, str, int]:
    topics = asked.snapshot.topics.names
    return (
        group_of(asked),
        asked.name("topic", lambda: list(topics.places)),
        asked.number("partition", 0, least=-(2**31)),
    )


def _chart(
    tables: AskedTables, group: str, row: Row | None, series: pa.Table, steps: pa.Table, start: int
) -> Chart | None:
    points = python_rows(series)
    if not points:
        return None
    topic, partition = points[0]["topic"], points[0]["partition"]
    times = [point["at"] for point in points]
    bands = [
        Band(label="group without members", kind="none", start=one.start, end=one.end)
        for one in state_bands(tables, group, start)
        if one.label == "Empty"
    ]
    expires = None if row is None else row.get("expires_at")
    back = steps.filter(pc.equal(steps["event"], "rewind"))["batch_time"]
    gone = steps.filter(pc.equal(steps["event"], "removed"))["batch_time"]
    marks = [Mark(label="rewind", kind="rewind", at=at) for at in _times(back)]
    marks += [Mark(label="removed", kind="removed", at=at) for at in _times(gone)]
    is_near = expires is not None and expires - times[-1] <= times[-1] - times[0]
    if is_near and expires is not None:
        marks.append(Mark(label="predicted expiry", kind="expiry", at=expires))
    return lines(
        times,
        [
            Line(label="log end offset", kind="end", values=[point["log_end_offset"] for point in points]),
            Line(
                label="committed offset",
                kind="committed",
                values=[point["committed_offset"] for point in points],
            ),
            Line(label="log start offset", kind="start", values=_log_starts(tables, topic, partition, times)),
        ],
        unit="offsets",
        bands=bands,
        marks=marks,
        until=expires if is_near else None,
    )


def _times(column: pa.ChunkedArray) -> list[int]:
    times: list[int] = to_milliseconds(column).to_pylist()
    return times[-_MARKS:]


def _log_starts(tables: AskedTables, topic: str, partition: int, times: list[int]) -> list[float | None]:
    """Return the log start offset as of the newest sample before each moment; None: unknown."""
    samples = tables.at.ends_between([topic], since=times[0], until=times[-1])
    own = samples.filter(pc.equal(samples["partition"], partition))
    rows = sorted(python_rows(own.select(["sampled_at", "log_start"])), key=lambda row: row["sampled_at"])
    moments = np.array([row["sampled_at"] for row in rows], np.int64)
    places = np.searchsorted(moments, np.array(times), side="right") - 1
    return [rows[place]["log_start"] if place >= 0 else None for place in places.tolist()]


def _steps(
    asked: Asked,
    tables: AskedTables,
    rows: pa.Table,
    group: str,
    own: list[TopicPartitions],
    since: int,
) -> Listing:
    """Return the steps, the newest first."""
    rewinds = python_rows(tables.lag.rewinds([group], own, since=since).rows)
    by_whom = {row["sequence"]: who(row) for row in rewinds}

    def event(row: Row) -> Markup:
        said = (
            cells.pill(row["event"])
            if row["event"] in ("rewind", "removed")
            else cells.or_nothing(row["event"])
        )
        return said + cells.small(row["cause"] or by_whom.get(row["sequence"]))

    def step(row: Row) -> Any:
        return cells.NOTHING if row["step"] is None else f"{row['step']:+,}"

    columns = [
        Column(head="Written", cell=lambda row: cells.moment(row["batch_time"], asked.now)),
        Column(
            head="Committed offset", cell=lambda row: cells.count(row["committed_offset"]), is_number=True
        ),
        Column(head="Step", cell=step, is_number=True),
        Column(head="Event", cell=event),
        Column(head="Commits", cell=lambda row: cells.count(row["commits"]), is_number=True),
        Column(head="Lag", cell=lambda row: cells.count(row["lag"]), is_number=True),
        Column(head="Metadata", cell=lambda row: cells.small(row["metadata"])),
    ]
    newest_first = rows.take(pa.array(np.arange(len(rows))[::-1]))
    return listing(asked, newest_first, columns, empty="No commit in this time.", is_sortable=False)
