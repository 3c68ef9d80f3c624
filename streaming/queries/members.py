"""The members of groups, one row each, and which partition is whose, as Kafka's own tools show them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.keys import KEY_NAMES, key_codes
from streaming.common.pieces import take
from streaming.model.schemas import ASSIGNED, GROUPS, KEY, MEMBER_IDENTITY
from streaming.tables.snapshot import Snapshot

MEMBERS: Final = pa.schema(
    [
        ("group", pa.string()),
        ("consumer_id", pa.string()),
        ("group_instance_id", pa.string()),  # null: not a static member
        ("host", pa.string()),
        ("client_id", pa.string()),
        ("partition_count", pa.int32()),  # how many the member has; null: not known
        ("current_epoch", pa.int32()),  # null: a classic group
        ("current_assignment", pa.list_(ASSIGNED)),  # null: not known
        ("target_epoch", pa.int32()),  # null: a classic group
        ("target_assignment", pa.list_(ASSIGNED)),  # null: a classic group, or not known
        ("upgraded", pa.bool_()),  # it speaks the consumer protocol; null: not a consumer group
        ("rack_id", pa.string()),  # null: none, or not known
    ]
)
"""What is told of members; the names are those of `kafka-consumer-groups --members --verbose`."""

OWNER: Final = pa.schema([("consumer_id", pa.string()), ("host", pa.string()), ("client_id", pa.string())])
"""Which member has a partition; null: none has, or it is not known which."""

_OWNED: Final = pa.schema([*KEY, *OWNER])
_OF_MEMBER: Final = ("member_id", "client_host", "client_id")

_BRIEFLY: Final = ["group", "consumer_id", "group_instance_id", "host", "client_id", "partition_count"]
_ASSIGNMENTS: Final = ("assignment", "target_assignment")


def with_topic_names(groups: pa.Table, at: Snapshot, moment: int) -> pa.Table:
    """Give n groups (schema `GROUPS`) the names of topics that the log has only the ids of.

    They are those that samples of log ends have seen under these ids up to a moment (ms); where none has, the
    name stays null.
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
    """Return members (schema `MEMBERS`) for people: what they have as text (`in_text`), or not at all."""
    if not verbose:
        return rows.select(_BRIEFLY)
    for name in ("current_assignment", "target_assignment"):
        words = [in_text(assignment) or None for assignment in rows[name].to_pylist()]
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, name, pa.array(words, pa.string()))
    return rows


def with_identities(groups: pa.Table) -> pa.Table:
    """Return groups (schema `GROUPS`) with no more of their members than who they are."""
    place, kind = groups.schema.get_field_index("members"), pa.list_(MEMBER_IDENTITY)
    return groups.set_column(place, "members", groups["members"].cast(kind))


def owned_partitions(groups: pa.Table, at: Snapshot, moment: int) -> pa.Table:
    """Return which partitions (columns `KEY_NAMES`) of groups (schema `GROUPS`) are whose (columns `OWNER`).

    Topics that the log has only the ids of have the names that `with_topic_names` gives; those without are
    left out.
    """
    of_group, members = _flat(groups["members"])
    of_member, topics = _flat(_child(members, "assignment"))
    of_topic, partitions = _flat(_child(topics, "partitions"))
    names = _child(topics, "topic")
    if names.null_count:
        names = pc.coalesce(names, _names_of(_child(topics, "topic_id"), at, moment))
    member = of_member.take(of_topic)
    owned = pa.table(
        [
            groups["group"].combine_chunks().take(of_group.take(member)),
            names.take(of_topic),
            partitions,
            *(_child(members, name).take(member) for name in _OF_MEMBER),
        ],
        schema=_OWNED,
    )
    return owned.filter(owned["topic"].is_valid())


def with_owners(offsets: pa.Table, owned: pa.Table) -> pa.Table:
    """Append to n partitions of groups whose they are (columns `OWNER`), as `owned_partitions` tells it."""
    codes = key_codes(pa.concat_tables([owned.select(KEY_NAMES), offsets.select(KEY_NAMES)]).columns)
    owner = np.full(codes.max(initial=-1) + 1, -1, np.int64)
    owner[codes[: len(owned)]] = np.arange(len(owned))
    found = take(owned.select(OWNER.names), owner[codes[len(owned) :]])
    for field in OWNER:
        offsets = offsets.append_column(field, found[field.name])
    return offsets


def _flat(lists: pa.ChunkedArray | pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the elements of n lists one after another, and of each the number of its list."""
    whole = lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists
    return pc.list_parent_indices(whole), pc.list_flatten(whole)


def _child(structs: pa.Array, name: str) -> pa.Array:
    return pc.struct_field(structs, name)


def _names_of(ids: pa.Array, at: Snapshot, moment: int) -> pa.Array:
    """Return the names of topics by their ids, null where samples up to a moment (ms) know none."""
    seen = at.topics_over_time(None, as_of=moment)
    known = pc.SetLookupOptions(seen["topic_id"].combine_chunks(), skip_nulls=True)
    found = pc.index_in(ids, options=known)
    return seen["topic"].combine_chunks().take(found)


def in_text(assignment: Sequence[Mapping[str, Any]] | None) -> str | None:
    """Write what a member has as `kafka-consumer-groups` does; None where it is not known.

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
