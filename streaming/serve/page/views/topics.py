"""`/topics` and `/topic`: topics with the groups that read them, and topics that nobody reads."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from streaming.common.arrays import from_numbers
from streaming.common.topics import TopicPartitions
from streaming.serve.page import cells
from streaming.serve.page.asked import Asked, AskedTables, NotAssessedError, NotFoundError
from streaming.serve.page.assessed import group_rows, group_topic_rows, topic_rows
from streaming.serve.page.columns import (
    count_column,
    group_column,
    lag_columns,
    last_commit_column,
)
from streaming.serve.page.listing import Column, Listing, Row, having, listing, python_rows
from streaming.serve.page.notes import DELETED, RECREATED_AT
from streaming.serve.page.view import Document, Page

READERS: Final = ("none", "recreated")
"""The filter of topics: those that no running group reads, and those that were recreated after commits."""


def page(asked: Asked) -> Page:
    rows = asked.remembered(topic_rows)
    return Page(
        title="Topics",
        template="topics.html",
        about=asked.about,
        lag_at=asked.assessment.moment,
        context={
            "found": listing(asked, _chosen(asked), _columns(asked), empty=_empty(rows), sort="topic"),
            "in_all": len(rows),
            "unread": _count(pc.equal(rows["groups_with_members"], 0)),
            "recreated": _count(pc.greater(rows["offsets_of_recreated_topic"], 0)),
        },
    )


def document(asked: Asked) -> Document:
    names = _chosen(asked)["topic"].combine_chunks()

    def ask(tables: AskedTables) -> Document:
        answer = tables.lag.list_lag(None, by="topic")
        rows = answer.rows.filter(pc.is_in(answer.rows["topic"], value_set=names))
        return Document(rows=rows, about=answer.as_of)

    return asked.ask(ask)


def one(asked: Asked) -> Page:
    """Return the page of one topic."""
    topic = _topic(asked)
    topics = asked.assessment.snapshot.topics
    place = topics.names.place(topic)
    if place is None:
        raise NotAssessedError(
            "This topic is new: its lag has not been computed yet. Reload in some seconds."
        )
    return Page(
        title="Topic",
        template="topic.html",
        about=asked.about,
        lag_at=asked.assessment.moment,
        context={
            "topic": topic,
            "topic_id": topics.id_of(place),
            "partitions": int(topics.starts[place + 1] - topics.starts[place]),
            "found": _groups_of(asked, topic, place),
            "gone": next((_gone(row, asked.now) for row in _rows_of(asked, topic)), ""),
        },
    )


def _rows_of(asked: Asked, topic: str) -> list[Row]:
    rows = asked.remembered(topic_rows)
    return python_rows(rows.filter(pc.equal(rows["topic"], topic)))


def one_document(asked: Asked) -> Document:
    topic = _topic(asked)

    def ask(tables: AskedTables) -> Document:
        answer = tables.lag.list_offsets(None, [TopicPartitions(topic)], with_former=True, with_owners=True)
        return Document(rows=answer.rows, about=answer.as_of)

    return asked.ask(ask)


def _topic(asked: Asked) -> str:
    """Return the topic that an address names; raises `NotFoundError`."""
    names = asked.snapshot.topics.names
    topic = asked.name("topic", lambda: list(names.places))
    if names.place(topic) is None:
        raise NotFoundError(
            f"topic {topic!r} is not there: no group has committed offsets of it, or been assigned it. "
            "Search for it under Topics."
        )
    return topic


def _columns(asked: Asked) -> list[Column]:
    def topic(row: Row) -> Markup:
        return cells.link(row["topic"], asked.url("/topic", topic=row["topic"])) + _gone(row, asked.now)

    return [
        Column(head="Topic", cell=topic, sort="topic"),
        count_column("Partitions", "partitions", sort="partitions"),
        count_column("Groups", "groups", sort="groups", about="Groups with a committed offset of the topic."),
        count_column(
            "With members",
            "groups_with_members",
            sort="groups_with_members",
            about="Groups with members that read the topic now.",
        ),
        *lag_columns(),
        last_commit_column(asked),
        count_column(
            "Of a recreated topic",
            "offsets_of_recreated_topic",
            sort="offsets_of_recreated_topic",
            about="Offsets that were committed before the topic was deleted and created again.",
        ),
    ]


def _gone(row: Row, now: int) -> Markup:
    """Return marks of a topic (schema `TOPIC_ROWS`) that is deleted, or was recreated after commits, with the
    time as of which that is known."""
    marks = Markup("")
    if row["gone_at"] is not None:
        marks += cells.mark(DELETED) + Markup(" ") + cells.moment(row["gone_at"], now)
    if row["offsets_of_recreated_topic"]:
        marks += cells.mark(RECREATED_AT)
        if row["recreated_at"] is not None:
            marks += Markup(" ") + cells.moment(row["recreated_at"], now)
    return Markup('<small class="gone">{}</small>').format(marks) if marks else marks


def _groups_of(asked: Asked, topic: str, place: int) -> Listing:
    places, own = group_topic_rows(asked.assessment, place)
    names = asked.assessment.snapshot.groups.names.texts.cast(pa.string()).take(from_numbers(places))
    rows = pa.table({"group": names, **{name: own[name] for name in own.column_names}})
    rows = rows.join(
        asked.remembered(group_rows).select(["group", "state", "members", "status"]),
        "group",
        join_type="inner",
    )

    columns = [
        group_column(asked, sort="group"),
        Column(head="State", cell=lambda row: cells.pill(row["state"]), sort="state"),
        Column(head="Members", cell=lambda row: cells.count(row["members"]), sort="members", is_number=True),
        count_column("Partitions", "partitions"),
        *lag_columns(),
        last_commit_column(asked),
    ]
    empty = "No group has a committed offset of this topic, or is assigned a partition of it."
    return listing(asked, rows.sort_by("group"), columns, empty=empty, sort="group")


def _chosen(asked: Asked) -> pa.Table:
    rows = having(asked.remembered(topic_rows), "topic", asked.text("q"))
    match asked.word("readers", READERS):
        case "none":
            rows = rows.filter(pc.equal(rows["groups_with_members"], 0))
        case "recreated":
            rows = rows.filter(pc.greater(rows["offsets_of_recreated_topic"], 0))
    return rows


def _count(mask: pa.ChunkedArray) -> int:
    return int(pc.sum(mask).as_py() or 0)


def _empty(rows: pa.Table) -> str:
    if len(rows):
        return "No topic matches. Remove a filter, or search for less."
    return "No group has committed an offset yet."
