"""Columns that several lists have, by the names of their rows' columns."""

from markupsafe import Markup

from streaming.serve.page import cells
from streaming.serve.page.asked import Asked
from streaming.serve.page.listing import Column, Row


def group_column(asked: Asked, *, sort: str | None = None) -> Column:
    """Return the column of the group, as a link to its page."""

    def group(row: Row) -> Markup:
        return cells.link(row["group"], asked.url("/group", group=row["group"]))

    return Column(head="Group", cell=group, sort=sort)


def topic_column(asked: Asked) -> Column:
    """Return the column of the topic, as a link to its page."""

    def topic(row: Row) -> Markup:
        return cells.link(row["topic"], asked.url("/topic", topic=row["topic"]))

    return Column(head="Topic", cell=topic, sort="topic")


def position_column(asked: Asked) -> Column:
    """Return the column of topic and partition, as a link to the page of the offset."""
    return Column(head="Topic and partition", cell=lambda row: position_cell(asked, row))


def position_cell(asked: Asked, row: Row, *, as_of: str | None = None) -> Markup:
    """Return topic and partition of a row, as a link to the page of the offset."""
    key = {name: row[name] for name in ("group", "topic", "partition")}
    return cells.position(row["topic"], row["partition"], asked.url("/offset", **key, as_of=as_of))


def count_column(head: str, of: str, *, sort: str | None = None, about: str = "") -> Column:
    """Return the column of a number; if it can be sorted, the highest comes first."""
    return Column(
        head=head,
        cell=lambda row: cells.count(row[of]),
        sort=sort,
        is_number=True,
        is_first_high=sort is not None,
        about=about,
    )


def committed_as_of_ends(row: Row) -> int | None:
    """Return the committed offset that the lag of a row was counted from; the newest if there is none."""
    of_ends: int | None = row["offset_as_of_ends"]
    newest: int | None = row["committed_offset"]
    return newest if of_ends is None else of_ends


def last_commit_column(asked: Asked, *, is_first_high: bool = True) -> Column:
    return Column(
        head="Last commit",
        cell=lambda row: cells.ago(row["last_commit"], asked.now),
        sort="last_commit",
        is_number=True,
        is_first_high=is_first_high,
    )


def lag_columns() -> list[Column]:
    """Return the columns of a row with lag, lag_seconds and lag_is_at_least."""
    return [
        count_column("Lag", "lag", sort="lag", about="Records behind, over all partitions."),
        Column(
            head="Lag time",
            cell=lambda row: cells.span(row["lag_seconds"], is_at_least=bool(row["lag_is_at_least"])),
            sort="lag_seconds",
            is_number=True,
            is_first_high=True,
            about="Age of the first unread record, in the partition that is furthest behind.",
        ),
    ]
