"""The members of groups, one row each, with their assignment in the format of Kafka's tools."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from streaming.model.schemas import ASSIGNED, GROUPS, MEMBER_IDENTITY
from streaming.tables.snapshot import Snapshot

MEMBERS: Final = pa.schema(
    [
        ("group", pa.string()),
        ("consumer_id", pa.string()),
        ("group_instance_id", pa.string()),  # null: not a static member
        ("host", pa.string()),
        ("client_id", pa.string()),
        ("partition_count", pa.int32()),  # of the member; null: unknown
        ("current_epoch", pa.int32()),  # null: a classic group
        ("current_assignment", pa.list_(ASSIGNED)),  # null: unknown
        ("target_epoch", pa.int32()),  # null: a classic group
        ("target_assignment", pa.list_(ASSIGNED)),  # null: a classic group, or unknown
        ("upgraded", pa.bool_()),  # it uses the consumer protocol; null: not a consumer group
        ("rack_id", pa.string()),  # null: none, or unknown
    ]
)
"""Columns are named as in `kafka-consumer-groups --members --verbose`."""

_BRIEFLY: Final = ["group", "consumer_id", "group_instance_id", "host", "client_id", "partition_count"]
_ASSIGNMENTS: Final = ("assignment", "target_assignment")


def with_topic_names(groups: pa.Table, at: Snapshot, moment: int) -> pa.Table:
    """Fill in the names of topics that n groups (schema `GROUPS`) have only the ids of.

    The names are those that samples of log ends have for these ids up to a moment (ms), else null.
    """
    members = groups["members"].to_pylist()
    unnamed = [topic for topic in _assigned(members) if topic["topic"] is None]
    if not unnamed:
        return groups
    seen = at.topics_over_time(None, as_of=moment)
    names = dict(zip(seen["topic_id"].to_pylist(), seen["topic"].to_pylist(), strict=True))
    for topic in unnamed:
        topic["topic"] = names.get(topic["topic_id"])
    field = GROUPS.field("members")
    return groups.set_column(groups.schema.get_field_index(field.name), field, pa.array(members, field.type))


def member_rows(groups: pa.Table) -> pa.Table:
    """Return the members (schema `MEMBERS`) of groups (schema `GROUPS`), in their order."""
    rows = [
        {
            "group": group["group"],
            "consumer_id": member["member_id"],
            "group_instance_id": member["group_instance_id"],
            "host": member["client_host"],
            "client_id": member["client_id"],
            "partition_count": _count(member["assignment"]),
            "current_epoch": member["member_epoch"],
            "current_assignment": member["assignment"],
            "target_epoch": group["assignment_epoch"],
            "target_assignment": member["target_assignment"],
            "upgraded": None if member["is_classic"] is None else not member["is_classic"],
            "rack_id": member["rack_id"],
        }
        for group in groups.select(["group", "members", "assignment_epoch"]).to_pylist()
        for member in group["members"]
    ]
    return pa.Table.from_pylist(rows, MEMBERS)


def in_words(rows: pa.Table, *, verbose: bool) -> pa.Table:
    """Return members (schema `MEMBERS`) for display: with assignments as text (`in_text`), or without
    them."""
    if not verbose:
        return rows.select(_BRIEFLY)
    for name in ("current_assignment", "target_assignment"):
        words = [in_text(assignment) or None for assignment in rows[name].to_pylist()]
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, name, pa.array(words, pa.string()))
    return rows


def with_identities(groups: pa.Table) -> pa.Table:
    """Return groups (schema `GROUPS`) with only the identity of their members."""
    place, kind = groups.schema.get_field_index("members"), pa.list_(MEMBER_IDENTITY)
    return groups.set_column(place, "members", groups["members"].cast(kind))


def in_text(assignment: Sequence[Mapping[str, Any]] | None) -> str | None:
    """Format an assignment as `kafka-consumer-groups` does; None if unknown.

    >>> in_text([{"topic": "t", "topic_id": None, "subtopology": None, "partitions": [10, 2]}])
    't:2,10'
    """
    if assignment is None:
        return None
    parts: dict[str, list[int]] = {}
    for one in assignment:
        name = one["subtopology"] or one["topic"] or one["topic_id"]
        parts.setdefault(str(name), []).extend(one["partitions"])
    return ";".join(f"{name}:{','.join(map(str, sorted(parts[name])))}" for name in sorted(parts))


def _assigned(members: Sequence[Sequence[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    return (
        topic
        for of_group in members
        for member in of_group
        for name in _ASSIGNMENTS
        for topic in member[name] or ()
        if topic["subtopology"] is None
    )


def _count(assignment: Sequence[Mapping[str, Any]] | None) -> int | None:
    return None if assignment is None else sum(len(one["partitions"]) for one in assignment)
