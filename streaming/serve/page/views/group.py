"""`/group`: one group now or at a past moment."""

from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa
from markupsafe import Markup

from streaming.assessment.assess import Facts
from streaming.common.arrays import no_rows
from streaming.common.times import iso
from streaming.common.topics import TopicPartitions
from streaming.lag.health import GROUP_HEALTH, group_health
from streaming.lag.summary import lag_by
from streaming.queries.as_of import LOAD_IN_PROGRESS, AsOf
from streaming.queries.bound.leftovers import IDLE_MS
from streaming.queries.bound.offsets import sorted_by
from streaming.queries.leftovers import LEFTOVERS
from streaming.queries.members import in_text, with_topic_names
from streaming.serve.assessment.assessment import retention_ms_of
from streaming.serve.page import cells
from streaming.serve.page.asked import Asked, AskedTables, NotFoundError
from streaming.serve.page.assessed import POSITION_ROWS, loaded_groups, position_rows
from streaming.serve.page.columns import committed_as_of_ends, count_column, position_cell
from streaming.serve.page.commands import commands_of
from streaming.serve.page.found import GroupFound, group_row_of
from streaming.serve.page.left_over import leftover_rows
from streaming.serve.page.listing import Column, Listing, Row, listing, python_rows
from streaming.serve.page.notes import NOT_SUBSCRIBED, RECREATED
from streaming.serve.page.view import Document, Page

_MEMBERS: Final = 50


def page(asked: Asked) -> Page:
    found = group_found(asked)
    health = python_rows(_health(found.positions))
    lag = python_rows(lag_by(found.positions, "group"))
    return Page(
        title="Group",
        template="group.html",
        about=found.about,
        lag_at=found.lag_at,
        is_live=asked.as_of is None,
        context={
            "group": found.group,
            "row": found.row,
            "health": health[0] if health else None,
            "lag": lag[0] if lag else None,
            "offsets": _offsets(asked, found),
            "members": _members(asked, found),
            "commands": commands_of(asked, found, _leftovers(asked, found)),
            "moment": found.about.moment,
            "starts_at": _starts_at(asked),
        },
    )


def _leftovers(asked: Asked, found: GroupFound) -> pa.Table:
    """Return the left-over offsets of a group now; none if it is shown as of a past moment."""
    if found.about.is_past:
        return no_rows(LEFTOVERS)
    current = asked.assessment
    place = current.snapshot.groups.place(found.group)
    return no_rows(LEFTOVERS) if place is None else leftover_rows(current, IDLE_MS, place)


def group_found(asked: Asked) -> GroupFound:
    """Return the group that an address names; raises `NotFoundError`."""
    found = find_group(asked)
    if found.row is None and not len(found.positions):
        raise NotFoundError(not_there(found.group, found.about, lambda _: found.appears))
    return found


def find_group(asked: Asked, topics: Sequence[TopicPartitions] = ()) -> GroupFound:
    """Return the group that an address names, without a row and positions if there is none; its positions
    include all positions of `topics` (none: all)."""
    return _from_memory(asked) if asked.as_of is None else _from_tables(asked, topics)


def is_held(asked: Asked) -> bool:
    """Return whether the group is shown from memory, without waiting: it is no newer than the assessment."""
    group, assessed = group_of(asked), asked.cluster.served.refresher.newest.snapshot
    return assessed.groups.place(group) is not None or asked.snapshot.groups.place(group) is None


def _from_memory(asked: Asked) -> GroupFound:
    """Return the group from the snapshot in memory and its assessment, or from the tables if it is newer."""
    group, assessed = group_of(asked), asked.assessment
    place = assessed.snapshot.groups.place(group)
    if place is None and asked.snapshot.groups.place(group) is not None:
        return _from_tables(asked)
    if place is not None and not loaded_groups(assessed.snapshot)[place]:
        place = None
    return GroupFound(
        group=group,
        positions=no_rows(POSITION_ROWS) if place is None else position_rows(assessed, place),
        row=None if place is None else group_row_of(assessed.snapshot, place),
        about=AsOf.of(
            [group], asked.snapshot.progress, now=asked.now, within_ms=asked.about.completeness.within_ms
        ),
        lag_at=assessed.moment,
    )


def _from_tables(asked: Asked, topics: Sequence[TopicPartitions] = ()) -> GroupFound:
    """Return the group as of the moment asked for, with its positions of some topics (none: all)."""
    group = group_of(asked)

    def ask(tables: AskedTables) -> GroupFound:
        retention_ms = retention_ms_of(tables.at.progress, tables.settings.expiry)
        facts = Facts(
            lag=True, lag_time=True, log_start=True, health=True, recreated_topic=True, expiry=retention_ms
        )
        answer = tables.lag.assessed(facts, [group], topics)
        moment = answer.as_of.moment
        groups = with_topic_names(answer.as_of.of_loaded(tables.at.groups([group])), tables.at, moment)
        row = next(iter(groups.to_pylist()), None)
        appears = None
        if row is None and not len(answer.rows):
            appears = tables.offsets.appears(group)
        return GroupFound(
            group=group,
            positions=_as_positions(answer.rows),
            row=row,
            about=answer.as_of,
            appears=appears,
        )

    return asked.ask(ask, about=group, held_as=("group", group, *topics))


def _as_positions(rows: pa.Table) -> pa.Table:
    """Return assessed offsets in the form of `POSITION_ROWS`, by topic and partition."""
    columns = [
        rows[field.name].cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(len(rows), field.type)
        for field in POSITION_ROWS
    ]
    return sorted_by(pa.table(columns, schema=POSITION_ROWS), "topic", "partition")


def _health(positions: pa.Table) -> pa.Table:
    """Return the health of the group, from its positions."""
    more = [field for field in GROUP_HEALTH if field.name not in positions.column_names]
    for field in more:
        if not field.name.startswith("partitions"):
            positions = positions.append_column(field, pa.nulls(len(positions), field.type))
    return group_health(positions)


def _starts_at(asked: Asked) -> int:
    """Return the first moment (ms) of the past that the tables can keep; they may have less."""
    return max(0, asked.now - asked.cluster.settings.tables.history_ms)


def document(asked: Asked) -> Document:
    """Return the rows of `offsetlake offsets --group`."""
    group = group_of(asked)

    def ask(tables: AskedTables) -> Document:
        answer = tables.lag.list_offsets([group], with_former=True, with_owners=True)
        if not len(answer.rows) and not is_live(tables, group, answer.as_of):
            raise NotFoundError(not_there(group, answer.as_of, tables.offsets.appears))
        return Document(rows=answer.rows, about=answer.as_of, errors=answer.errors)

    return asked.ask(ask)


def is_live(tables: AskedTables, group: str, about: AsOf) -> bool:
    """Return whether the group, or an offset of it, is there, as far as its offsets partition was read."""
    return not about.is_loading and len(tables.at.keys([group], among="live")) > 0


def group_of(asked: Asked) -> str:
    return asked.name("group", lambda: list(asked.snapshot.groups.names.places))


def not_there(group: str, about: AsOf, appears: Callable[[str], int | None] = lambda _: None) -> str:
    """Return a sentence about a group that is not there; `appears` returns when (ms) it appears later."""
    if about.is_loading:
        return f"group {group!r}: {LOAD_IN_PROGRESS}: its offsets partition is still being read."
    if not about.is_past:
        return (
            f"group {group!r} is not there. Its offsets may have been removed: see Removed; or search under "
            "Groups."
        )
    at = appears(group)
    later = "it does not appear later" if at is None else f"it appears at {iso(at)}"
    return f"group {group!r} was not there as of {iso(about.moment, 'seconds')}: {later}."


# --- offsets and members ---------------------------------------------------------------------------------


def _offsets(asked: Asked, found: GroupFound) -> Listing:
    subscribed, moment = found.subscribed, found.about.moment
    owners = found.owners()

    def offset(row: Row) -> Markup:
        shown = position_cell(asked, row, as_of=asked.past)
        if row["of_recreated_topic"]:
            return shown + cells.mark(RECREATED)
        if subscribed is not None and row["topic"] not in subscribed:
            return shown + cells.mark(NOT_SUBSCRIBED)
        return shown

    def committed(row: Row) -> Markup:
        return cells.count(committed_as_of_ends(row))

    def lag_time(row: Row) -> Markup:
        if row["lag_seconds"] is None and row["lag_seconds_reason"]:
            return cells.mark(row["lag_seconds_reason"])
        return cells.span(row["lag_seconds"], is_at_least=bool(row["lag_is_at_least"]))

    def health(row: Row) -> Markup:
        return cells.pill(row["status"]) + cells.small(row["reason"])

    def expires(row: Row) -> Markup:
        return cells.expires(row["expires_at"], row["rule"], moment)

    def owner(row: Row) -> Markup:
        client, host = owners.get((row["topic"], row["partition"]), (None, None))
        return cells.small(client) + cells.small(host)

    def number(head: str, of: str) -> Column:
        return Column(head=head, cell=lambda row: cells.count(row[of]), sort=of, is_number=True)

    columns = [
        Column(head="Topic and partition", cell=offset, sort="topic"),
        Column(head="Committed offset", cell=committed, is_number=True),
        number("Log end offset", "log_end_offset"),
        count_column("Lag", "lag", sort="lag"),
        Column(head="Lag time", cell=lag_time, sort="lag_seconds", is_number=True, is_first_high=True),
        Column(
            head="Last commit",
            cell=lambda row: cells.ago(row["commit_timestamp"], moment),
            sort="commit_timestamp",
            is_number=True,
        ),
        Column(head="Health", cell=health, sort="status"),
        Column(head="Expires", cell=expires),
        Column(head="Owner", cell=owner),
    ]
    empty = "The group has no committed offset, and no partition is assigned to its members."
    return listing(asked, found.positions, columns, empty=empty)


def _members(asked: Asked, found: GroupFound) -> Listing:
    def owned(row: Row) -> Markup:
        return cells.small(in_text(row["current_assignment"]))

    columns = [
        Column(head="Member", cell=lambda row: cells.name(row["consumer_id"])),
        Column(head="Instance", cell=lambda row: cells.small(row["group_instance_id"])),
        Column(head="Client", cell=lambda row: cells.name(row["client_id"])),
        Column(head="Host", cell=lambda row: cells.name(row["host"])),
        count_column("Partitions", "partition_count"),
        Column(head="Assignment", cell=owned),
    ]
    is_known = found.row is not None
    empty = "The group has no members." if is_known else "The members of the group are not known."
    return listing(
        asked, found.members, columns, empty=empty, parameter="members", size=_MEMBERS, is_sortable=False
    )
