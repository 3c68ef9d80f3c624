"""`/offset`: the life of one committed offset, between the start and the end of the log."""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from streaming.common.times import DAY_MS, HOUR_MS, iso
from streaming.common.topics import TopicPartitions, of_topics
from streaming.lag.samples import MAX_SAMPLE_AGE_MS
from streaming.queries.as_of import AsOf
from streaming.serve.page import cells
from streaming.serve.page.asked import Asked, AskedTables, NotFoundError
from streaming.serve.page.assessed import position_rows
from streaming.serve.page.charts import Band, Chart, Line, Mark, lines
from streaming.serve.page.columns import committed_as_of_ends, count_column
from streaming.serve.page.listing import Column, Listing, Row, listing, python_rows
from streaming.serve.page.view import Document, Page
from streaming.serve.page.views.group import find_group, group_of, not_there
from streaming.serve.page.views.group_history import readable_since, state_bands, who

SPANS: Final = {"hour": HOUR_MS, "day": DAY_MS, "week": 7 * DAY_MS}
_MOMENTS: Final = 240
_MARKS: Final = 20
_STEPS: Final = 500


def page(asked: Asked) -> Page:
    group, topic, partition = _key(asked)
    own = _only(topic, partition)
    found = find_group(asked, own)  # it may be gone: its history is not
    row = _row_of(found.positions, topic, partition)
    if row is None:
        document(asked)  # raises `NotFoundError` where there is no file either
    return Page(
        title="Offset",
        template="offset.html",
        about=found.about,
        lag_at=found.lag_at,
        is_live=asked.as_of is None,
        context={
            "group": group,
            "topic": topic,
            "partition": partition,
            "row": row,
            "committed": None if row is None else committed_as_of_ends(row),
            "is_loading": found.about.is_loading and found.row is None,
            "owner": found.owners().get((topic, partition)),
            "history": asked.url(
                "/offset/history",
                group=group,
                topic=topic,
                partition=partition,
                as_of=asked.past,
                span=asked.text("span") or None,
            ),
            "group_link": asked.url("/group", group=group, as_of=asked.past),
            "topic_link": asked.url("/topic", topic=topic),
            "moment": found.about.moment,
        },
    )


def is_held(asked: Asked) -> bool:
    """Return whether `page` is made from memory, without waiting: the assessment has the offset."""
    (group, topic, partition), assessed = _key(asked), asked.cluster.served.refresher.newest
    snapshot, bare = assessed.snapshot, assessed.uncommitted
    place, own = snapshot.groups.place(group), snapshot.topics.place(topic, partition)
    if place is None or own is None or (snapshot.loading and snapshot.is_among(group, snapshot.loading)):
        return False
    return bool(
        (snapshot.offsets.of(place).place == own).any()
        or ((bare.groups == place) & (bare.places == own)).any()
    )


def history(asked: Asked) -> Page:
    """Return the life of the offset: a chart, and its steps."""
    group, topic, partition = _key(asked)
    span = asked.word("span", tuple(SPANS), "day")
    own = _only(topic, partition)

    def ask(tables: AskedTables) -> Page:
        end = tables.at.moment
        start = tables.start(end - SPANS[span])
        hours = tables.at.commits_by_hour([group], own, since=start)
        wanted, start = start, readable_since(hours, start, end)
        steps = tables.lag.list_history([group], own, since=start, is_timed=False)
        every_ms = max(1, (end - start) // _MOMENTS)
        series = tables.lag.lag_over_time(
            [group], own, since=start, until=end, every_ms=every_ms, is_timed=False
        )
        if not (len(steps.rows) or len(series.rows) or _is_known(tables, group, own, steps.as_of)):
            raise NotFoundError(
                f"group {group!r}, topic {topic!r}, partition {partition}: expected an offset that was "
                f"committed within the last {span}, found none as of {iso(end, 'seconds')}. See Removed."
            )
        return Page(
            title="History of an offset",
            template="offset-history.html",
            about=series.as_of,
            is_live=False,
            context={
                "group": group,
                "span": span,
                "spans": list(SPANS),
                "chart": _chart(tables, group, _expires_at(asked), series.rows, steps.rows, start),
                "why_no_lag": series.as_of.why_no_lag,
                "cut_at": start if start > wanted else None,
                "steps": _steps(asked, tables, steps.rows, group, own, start),
                "back": asked.url(
                    "/offset",
                    group=group,
                    topic=topic,
                    partition=partition,
                    as_of=asked.past,
                ),
            },
        )

    return asked.ask(ask, about=group, topics=own)


def _expires_at(asked: Asked) -> int | None:
    """Return when the offset expires as it is now (ms); None: never, or unknown, or the page is about the
    past."""
    group, topic, partition = _key(asked)
    place = asked.assessment.snapshot.groups.place(group)
    if asked.as_of is not None or place is None:
        return None
    row = _row_of(position_rows(asked.assessment, place), topic, partition)
    return None if row is None else row["expires_at"]


def _row_of(positions: pa.Table, topic: str, partition: int) -> Row | None:
    mask = pc.and_(pc.equal(positions["topic"], topic), pc.equal(positions["partition"], partition))
    return next(iter(python_rows(positions.filter(mask))), None)


def document(asked: Asked) -> Document:
    """Return the rows of `offsetlake history GROUP --topic T:P --since`."""
    group, topic, partition = _key(asked)
    span = asked.word("span", tuple(SPANS), "day")
    own = _only(topic, partition)

    def ask(tables: AskedTables) -> Document:
        answer = tables.lag.list_history([group], own, since=tables.at.moment - SPANS[span])
        if not len(answer.rows) and answer.as_of.is_loading:
            raise NotFoundError(not_there(group, answer.as_of))
        if not len(answer.rows) and not _is_known(tables, group, own, answer.as_of):
            raise NotFoundError(
                f"group {group!r}: topic partition '{topic}:{partition}' is not there: it has no committed "
                "offset, had none in the history, and is not assigned to a member."
            )
        return Document(rows=answer.rows, about=answer.as_of, errors=answer.errors)

    return asked.ask(ask, about=group, topics=own)


def _is_known(tables: AskedTables, group: str, own: list[TopicPartitions], about: AsOf) -> bool:
    """Return whether there is an offset, or was one in the history, or its partition is assigned to a member,
    as far as its offsets partition was read."""
    if about.is_loading:
        return False
    kept = of_topics(tables.at.keys([group], among="history"), own)
    return len(kept) > 0 or len(tables.lag.list_offsets([group], own, with_owners=True).rows) > 0


def _key(asked: Asked) -> tuple[str, str, int]:
    topics = asked.snapshot.topics.names
    return (
        group_of(asked),
        asked.name("topic", lambda: list(topics.places)),
        asked.number("partition", 0, least=-(2**31), most=2**31 - 1),
    )


def _only(topic: str, partition: int) -> list[TopicPartitions]:
    return [TopicPartitions(topic, frozenset({partition}))]


def _chart(
    tables: AskedTables,
    group: str,
    expires: int | None,
    series: pa.Table,
    steps: pa.Table,
    start: int,
) -> Chart | None:
    """Return the offset between log start and log end: at regular moments, and at each of the last steps.

    Log start and log end come from the samples alone: regular moments and steps know them at other times.
    """
    last = python_rows(steps.slice(max(0, len(steps) - _STEPS)))
    points = sorted([*python_rows(series), *({**step, "at": step["batch_time"]} for step in last)], key=_at)
    if not points:
        return None
    times = [point["at"] for point in points]
    bands = [
        Band(label="group without members", kind="none", start=one.start, end=one.end)
        for one in state_bands(tables, group, start)
        if one.label == "Empty"
    ]
    marks = [
        Mark(label=step["event"], kind=step["event"], at=step["batch_time"])
        for step in last
        if step["event"] in ("rewind", "removed")
    ][-_MARKS:]
    is_near = expires is not None and expires - times[-1] <= times[-1] - times[0]
    if is_near and expires is not None:
        marks.append(Mark(label="predicted expiry", kind="expiry", at=expires))
    committed = [point["committed_offset"] for point in points]
    starts, ends = _log_range(tables, points[0]["topic"], points[0]["partition"], times)
    return lines(
        times,
        [
            Line(label="log end offset", kind="end", values=ends),
            Line(label="committed offset", kind="committed", values=committed),
            Line(label="log start offset", kind="start", values=starts),
        ],
        unit="offsets",
        bands=bands,
        marks=marks,
        until=expires if is_near else None,
    )


def _at(point: Row) -> int:
    at: int = point["at"]
    return at


def _log_range(
    tables: AskedTables, topic: str, partition: int, times: list[int]
) -> tuple[list[float | None], list[float | None]]:
    """Return the log start offset as of the newest sample before each moment, and the log end offset, which
    grows steadily from one sample to the next; None: unknown."""
    samples = tables.at.ends_between([topic], since=times[0], until=times[-1])
    own = samples.filter(pc.and_(pc.equal(samples["partition"], partition), pc.is_valid(samples["log_end"])))
    rows = sorted(python_rows(own), key=lambda row: row["sampled_at"])
    if not rows:
        return [None] * len(times), [None] * len(times)
    at, moments = np.array([row["sampled_at"] for row in rows]), np.array(times)
    places = np.searchsorted(at, moments, side="right") - 1
    until = np.append(at[1:], moments[-1])[places]
    is_known = (places >= 0) & (until - at[places] <= MAX_SAMPLE_AGE_MS)
    first = rows[0]["log_end"]  # subtracted, since doubles are exact up to 2^53 only
    grown = np.interp(moments, at, [row["log_end"] - first for row in rows])
    return (
        [rows[place]["log_start"] if place >= 0 else None for place in places.tolist()],
        [
            first + round(end) if known else None
            for end, known in zip(grown.tolist(), is_known.tolist(), strict=True)
        ],
    )


def _steps(
    asked: Asked,
    tables: AskedTables,
    rows: pa.Table,
    group: str,
    own: list[TopicPartitions],
    since: int,
) -> Listing:
    """Return the steps, the newest first."""
    has_rewinds = "rewind" in pc.unique(rows["event"]).to_pylist()
    rewinds = python_rows(tables.lag.rewinds([group], own, since=since).rows) if has_rewinds else []
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
        count_column("Committed offset", "committed_offset"),
        Column(head="Step", cell=step, is_number=True),
        Column(head="Event", cell=event),
        count_column("Commits", "commits"),
        count_column("Lag", "lag"),
        Column(head="Metadata", cell=lambda row: cells.small(row["metadata"])),
    ]
    newest_first = rows.take(pa.array(np.arange(len(rows))[::-1]))
    return listing(asked, newest_first, columns, empty="No commit in this time.", is_sortable=False)
