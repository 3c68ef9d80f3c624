"""Left-over committed offsets: those that nobody uses any more, by group and topic (pure).

`left_over` selects the offsets, `by_topic` makes one row of those of a group and topic. Both take rows of the
tables or of a snapshot in memory. What is not known is never a reason.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import (
    Index,
    Mask,
    begins_run,
    from_mask,
    from_numbers,
    from_texts,
    no_rows,
    numbers_or,
    to_mask,
    to_numbers,
    where,
)
from streaming.common.keys import numbered, ranks
from streaming.common.pieces import take
from streaming.common.timestamps import to_milliseconds, to_timestamps
from streaming.lag.recreated_topic import OF_RECREATED_TOPIC
from streaming.model.schemas import KEY, OFFSETS, SOURCE_PARTITION, TIMESTAMP

IDLE: Final = "no members, no commits"
"""The group has had no members and no commits for some time (column idle_since)."""

DELETED: Final = "topic deleted"
"""The topic does not exist."""

UNSUBSCRIBED: Final = "topic no longer subscribed"
"""The group has members, and none of them subscribes to the topic or has a partition of it."""

RECREATED: Final = "topic recreated"
"""The offset points into the log of a former topic of this name."""

REASONS: Final = (IDLE, DELETED, UNSUBSCRIBED, RECREATED)
"""The reasons; where several hold, the first one counts."""

NEEDED: Final = (
    *(field.name for field in KEY),
    *("committed_offset", "topic_id", "unreadable_source_offset", "expire_timestamp"),
    *("commit_timestamp", "source_timestamp", SOURCE_PARTITION.name),
)
"""The columns of offsets that left-over offsets and their expiry depend on."""

_WHY: Final = pa.schema(
    [
        ("reason", pa.string()),  # one of `REASONS`
        ("idle_since", TIMESTAMP),  # the last commit of the group, or its last change; null: another reason
        ("member_count", pa.int64()),  # null: not known
        ("type", pa.string()),  # of the group
        ("last_commit", TIMESTAMP),  # null: not known
        ("of_deleted_topic", pa.bool_()),  # also if another reason counts
    ]
)

LEFT_OVER: Final = pa.schema([*(OFFSETS.field(name) for name in NEEDED), OF_RECREATED_TOPIC, *_WHY])
"""Left-over offsets."""

LEFTOVERS: Final = pa.schema(
    [
        *KEY[:2],
        ("partitions", pa.list_(pa.int32())),  # those with left-over offsets, sorted
        *list(_WHY)[:2],
        _WHY.field("last_commit"),  # the newest of these offsets; null: none is known
        ("expires_at", TIMESTAMP),  # of the first offset to expire; null: none does, or not known (see rule)
        ("rule", pa.string()),  # the rule of expiry of that offset; null: the retention is not known
        *list(_WHY)[2:4],
        _WHY.field("of_deleted_topic"),
        SOURCE_PARTITION,
    ]
)
"""Left-over offsets by group and topic."""

_OF_FIRST: Final = (
    *("group", "topic", "reason", "idle_since", "member_count", "type", "of_deleted_topic"),
    SOURCE_PARTITION.name,
)
"""The columns that are the same in all rows of a group and topic."""

_EXPIRY: Final = pa.schema([LEFTOVERS.field(name) for name in ("expires_at", "rule")])
_UNKNOWN, _NEVER = -1, 2**63 - 1


def left_over(
    offsets: pa.Table,
    groups: pa.Table,
    *,
    named: pa.Table,
    deleted: Sequence[str] = (),
    moment: int,
    idle_ms: int,
) -> pa.Table:
    """Return the left-over ones of n committed offsets, in their order (schema `LEFT_OVER`).

    `offsets` have the columns `NEEDED` and of_recreated_topic, and are all offsets of their groups: the last
    commit of a group is the newest of these. If they have rule and expires_at, so has the result. `groups`
    have the schema `GROUPS`; nothing is known of missing ones. `named` are the topics by id (columns
    topic_id, topic), `deleted` topics that do not exist. A group is idle if nothing has happened in it for
    `idle_ms` before `moment` (ms).
    """
    if not len(offsets) or not len(groups):
        return no_rows(LEFT_OVER)
    rows = numbers_or(pc.index_in(offsets["group"], value_set=groups["group"].combine_chunks()), _UNKNOWN)
    commits = _last_commits(offsets)
    members = numbers_or(pc.list_value_length(groups["members"]), _UNKNOWN)
    active_at = _active_at(groups, rows, commits)
    is_idle = np.append((members == 0) & (active_at <= moment - idle_ms), False)
    is_of_deleted = to_mask(pc.is_in(offsets["topic"], value_set=from_texts(deleted)))
    cases = [
        is_idle[rows],
        is_of_deleted & (rows != _UNKNOWN),
        _is_unsubscribed(offsets, groups, rows, members > 0, named),
        to_mask(offsets[OF_RECREATED_TOPIC.name]) & (rows != _UNKNOWN),
    ]
    reasons = np.select(cases, list(range(len(REASONS))), _UNKNOWN)
    some = reasons != _UNKNOWN
    own, reasons = rows[some], reasons[some]
    is_of_idle = is_idle[own]
    why = [
        from_texts(REASONS).take(from_numbers(reasons)),
        _times(np.where(is_of_idle, active_at[own], _UNKNOWN)),
        from_numbers(members[own], members[own] != _UNKNOWN),
        take(groups.select(["type"]), own)["type"],
        _times(commits[some]),
        from_mask(is_of_deleted[some]),
    ]
    found = pa.table(
        [*where(offsets.select([*NEEDED, OF_RECREATED_TOPIC.name]), some).columns, *why], schema=LEFT_OVER
    )
    for field in _EXPIRY:
        if field.name in offsets.column_names:
            found = found.append_column(field, where(offsets.select([field.name]), some)[field.name])
    return found


def by_topic(rows: pa.Table) -> pa.Table:
    """Return one row per group and topic (schema `LEFTOVERS`), sorted by these.

    `rows` have the schema `LEFT_OVER`, and may have rule and expires_at, as `streaming.expiry.rules.expiry`
    appends them.
    """
    if not len(rows):
        return no_rows(LEFTOVERS)
    partitions = to_numbers(rows["partition"]).astype(np.int64)
    pairs = ranks(from_numbers(ranks(rows["group"]) << 32 | ranks(rows["topic"])))
    order = np.argsort(pairs << 32 | (partitions + 2**31))
    pairs = pairs[order]
    starts = np.flatnonzero(begins_run(pairs))
    commits = _moments(rows["last_commit"])[order]
    first, expiry = take(rows.select(_OF_FIRST), order[starts]), _soonest(rows, order, starts, pairs)
    columns = {
        **dict(zip(_OF_FIRST, first.columns, strict=True)),
        **dict(zip(expiry.column_names, expiry.columns, strict=True)),
        "partitions": _lists(partitions[order].astype(np.int32), starts),
        "last_commit": _times(np.maximum.reduceat(commits, starts)),
    }
    return pa.table([columns[name] for name in LEFTOVERS.names], schema=LEFTOVERS)


def each_partition(rows: pa.Table) -> pa.Table:
    """Return the keys (columns `KEY`) of the offsets that rows of `by_topic` stand for."""
    lists = rows["partitions"]
    own = take(rows.select(["group", "topic"]), numbers_or(pc.list_parent_indices(lists), _UNKNOWN))
    return own.append_column("partition", pc.list_flatten(lists))


# --- idle groups -----------------------------------------------------------------------------------------


def _last_commits(offsets: pa.Table) -> Index:
    """Return when (ms) n offsets were last committed; `_UNKNOWN`: not known.

    Where the newest commit could not be read, or has no time, that of its record counts.
    """
    committed = _moments(offsets["commit_timestamp"])
    is_read = to_mask(pc.is_null(offsets["unreadable_source_offset"])) & (committed != _UNKNOWN)
    if is_read.all():
        return committed
    return np.where(is_read, committed, _moments(offsets["source_timestamp"]))


def _active_at(groups: pa.Table, rows: Index, commits: Index) -> Index:
    """Return when (ms) anything last happened in g groups: the last commit, or the last change of its
    members; `_NEVER` where the time of some commit is not known. `rows` are the groups of n offsets."""
    changed = np.maximum(_moments(groups["state_timestamp"]), _moments(groups["source_timestamp"]))
    latest = np.append(changed, _UNKNOWN)  # the last one is for offsets without a group
    np.maximum.at(latest, rows, np.where(commits == _UNKNOWN, _NEVER, commits))
    active_at: Index = latest[:-1]
    return active_at


# --- subscriptions ---------------------------------------------------------------------------------------


def _is_unsubscribed(
    offsets: pa.Table, groups: pa.Table, rows: Index, has_members: Mask, named: pa.Table
) -> Mask:
    """Return for n offsets whether their group, which is one of the g with members, neither subscribes to
    the topic nor has a partition of it. `rows` are the groups of the offsets."""
    subscribed = groups["subscribed_topics"].combine_chunks()
    counts = numbers_or(pc.list_value_length(subscribed), _UNKNOWN)
    # without a topic, the regular expressions of a consumer group are not resolved yet
    is_open = (counts == 0) & to_mask(pc.equal(groups["type"], "consumer"))
    is_known = has_members & (counts != _UNKNOWN) & ~is_open
    of_assigned, assigned = _assigned_topics(groups, np.flatnonzero(is_known), named)
    is_unnamed = to_mask(pc.is_null(assigned))
    is_known[of_assigned[is_unnamed]] = False
    found = np.append(is_known, False)[rows]
    if not found.any():
        return found
    topics = where(offsets.select(["topic"]), found)
    held = [pc.list_flatten(subscribed), assigned.filter(from_mask(~is_unnamed))]
    codes, _ = numbered(pa.chunked_array([*held, *topics["topic"].chunks], pa.string()))
    of_subscribed = numbers_or(pc.list_parent_indices(subscribed), _UNKNOWN)
    used = np.concatenate([of_subscribed, of_assigned[~is_unnamed]])
    pairs = used << 32 | codes[: len(used)]
    asked = from_numbers(rows[found] << 32 | codes[len(used) :])
    found[found] = ~to_mask(pc.is_in(asked, value_set=from_numbers(pairs)))
    return found


def _assigned_topics(groups: pa.Table, some: Index, named: pa.Table) -> tuple[Index, pa.Array]:
    """Return the topics assigned to members of some groups, given by their rows, and the rows of these; a
    topic is null if the log has only its id, and `named` does not have that."""
    members = take(groups.select(["members"]), some)["members"]
    if not len(some):
        return some, pa.nulls(0, pa.string())
    of_member, each = _flat(members.combine_chunks())
    of_topic, assigned = _flat(pc.struct_field(each, "assignment"))
    names, ids = (pc.struct_field(assigned, name) for name in ("topic", "topic_id"))
    if names.null_count and len(named):
        known = pc.SetLookupOptions(named["topic_id"].combine_chunks(), skip_nulls=True)
        names = pc.coalesce(names, named["topic"].combine_chunks().take(pc.index_in(ids, options=known)))
    is_topic = to_mask(pc.is_valid(names)) | to_mask(pc.is_valid(ids))  # tasks of streams groups have neither
    return some[of_member[of_topic[is_topic]]], names.filter(from_mask(is_topic)).cast(pa.string())


def _flat(lists: pa.Array) -> tuple[Index, pa.Array]:
    """Return the elements of n lists, and the number of the list of each element."""
    return numbers_or(pc.list_parent_indices(lists), _UNKNOWN), pc.list_flatten(lists)


# --- rows ------------------------------------------------------------------------------------------------


def _soonest(rows: pa.Table, order: Index, starts: Index, pairs: Index) -> pa.Table:
    """Return when the first offset of each pair expires, null if none does, and the rule of that offset
    (columns expires_at, rule). `order` sorts n rows by pair (`pairs`, n), `starts` are the first of each."""
    if "rule" not in rows.column_names:
        return pa.table([pa.nulls(len(starts), field.type) for field in _EXPIRY], schema=_EXPIRY)
    expires_at = numbers_or(to_milliseconds(rows["expires_at"]), _NEVER)[order]
    least = np.minimum.reduceat(expires_at, starts)
    found = np.flatnonzero(expires_at == least[pairs])
    soonest = found[begins_run(pairs[found])]
    return take(rows.select(_EXPIRY.names), order[soonest])


def _lists(numbers: npt.NDArray[np.int32], starts: Index) -> pa.Array:
    """Return the runs of n numbers that begin at `starts` as lists."""
    bounds = np.append(starts, len(numbers)).astype(np.int32)
    return pa.ListArray.from_arrays(from_numbers(bounds), from_numbers(numbers))


def _moments(column: pa.ChunkedArray) -> Index:
    """Return n timestamps as ms; `_UNKNOWN` for null and for Kafka's -1."""
    return np.maximum(numbers_or(to_milliseconds(column), _UNKNOWN), _UNKNOWN)


def _times(milliseconds: Index) -> pa.Array:
    return to_timestamps(from_numbers(milliseconds, milliseconds != _UNKNOWN))
