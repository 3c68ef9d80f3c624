"""Reads `changes` in order: steps of committed offsets, removed offsets, groups over time, all rows."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from streaming.common.arrays import to_numbers
from streaming.common.keys import KEY_NAMES
from streaming.common.pieces import joined, take
from streaming.common.timestamps import to_milliseconds
from streaming.common.topics import TopicPartitions
from streaming.model.schemas import CHANGES, COMMITS, GROUPS, KEY, MEMBER_IDENTITY, OFFSETS, PAUSES, TIMESTAMP
from streaming.tables.folding import value_columns
from streaming.tables.select import (
    Queryable,
    cast,
    is_of_topics,
    is_one_of,
    names,
    select,
    stream,
    written_after,
    written_until,
)

HISTORY: Final = pa.schema(
    [
        ("batch_time", TIMESTAMP),  # when the batch was written
        ("group", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("committed_offset", pa.int64()),  # null: removed, or never readable
        ("step", pa.int64()),  # from the committed offset before; null: one of the two is missing
        COMMITS,  # how many; null: unknown
        ("event", pa.string()),  # first, commit, rewind or removed
        ("cause", pa.string()),  # null: not removed
        ("metadata", pa.string()),
        ("commit_timestamp", TIMESTAMP),
        ("sequence", pa.int64()),  # of the batch
    ]
)

DROPS: Final = pa.schema(
    [
        *KEY,
        OFFSETS.field("committed_offset"),  # the last one; null: never readable
        *(CHANGES.field(name) for name in ("source_partition", "source_offset", "source_timestamp")),
        CHANGES.field("sequence"),
    ]
)
"""Removed offsets, with the position of the tombstone."""

OF_REMOVED: Final = ("topic_id", "unreadable_source_offset", "commit_timestamp", "source_timestamp")
"""Columns of the last commit before a removal, besides its offset: whether it can be restored."""

REMOVALS: Final = pa.schema(
    [
        *KEY,
        pa.field("removed_offset", pa.int64()),  # the last one before the removal; null: never readable
        pa.field("removed_at", TIMESTAMP),  # timestamp of the record that removed it
        CHANGES.field("cause"),  # one of `causes.CAUSES`
        CHANGES.field("sequence"),  # of the batch: orders two removals whatever the clocks do
        CHANGES.field("source_partition"),
        *(OFFSETS.field(name) for name in OF_REMOVED),
    ]
)
"""Removed offsets, for users, with what is known of their last commit."""

COMMITTED: Final = pa.schema(
    [
        *KEY,
        ("committed_offset", pa.int64()),  # null: removed, or unreadable
        ("committed_at", TIMESTAMP),  # by the coordinator's clock
        ("written_at", TIMESTAMP),  # of the batch, by the job's clock
        ("is_removed", pa.bool_()),
        ("topic_id", pa.string()),  # null, as topic_id_before: unknown, the log has only the topic's name
        ("offset_before", pa.int64()),  # null: there was none, or none was ever readable
        ("topic_id_before", pa.string()),
        *(CHANGES.field(name) for name in ("source_partition", "source_offset", "sequence")),
    ]
)

REWINDS: Final = pa.schema(
    [
        *KEY,
        ("committed_offset", pa.int64()),
        ("committed_at", TIMESTAMP),  # by the coordinator's clock; at most written_at
        ("offset_before", pa.int64()),
        ("before_at", TIMESTAMP),  # when offset_before was committed
        ("topic_id", pa.string()),  # this and the next: null: unknown, the log has only the topic's name
        ("topic_id_before", pa.string()),
        ("written_at", TIMESTAMP),  # of the batch
        *(CHANGES.field(name) for name in ("source_partition", "source_offset", "sequence")),
    ]
)
"""Commits of a lower offset than the one before."""

COMMITS_BY_HOUR: Final = pa.schema(
    [
        ("hour", TIMESTAMP),  # its start; hours without changes are left out
        ("commits", pa.int64()),  # null: unknown of all changes, as after a rebuild
        ("changes", pa.int64()),  # rows: several commits of one key in one batch are one change
    ]
)

GROUP_STEPS: Final = pa.schema(
    [
        KEY[0],
        *(CHANGES.field(name) for name in ("source_partition", "source_offset", "sequence")),
        GROUPS.field("state"),  # null: the group did not exist
        ("members", pa.list_(MEMBER_IDENTITY)),  # the same
    ]
)
"""States and members of groups over time; `source_offset` and `sequence` null: before the first kept change.
"""

GROUPS_OVER_TIME: Final = pa.schema([*GROUPS, ("written_at", TIMESTAMP)])
"""Groups from a moment on (`written_at`, by the job's clock); null: removed at that moment."""

ASSIGNED_PARTITIONS: Final = pa.schema(
    [KEY[1], ("topic_id", pa.string()), KEY[2]]  # the name or the id, whichever the log has
)
"""Topic partitions assigned to members of groups."""

EVENTS: Final = ("first", "commit", "rewind", "removed")
"""Kinds of steps: the first commit of a key, a commit forward or in place, a commit backwards, a removal. As
read, a commit to a recreated topic may be a `rewind`; `list_history` calls it `commit`."""

_STEPS_READ: Final = pa.schema(
    [*[field for field in HISTORY if field.name != "step"], ("earlier", pa.int64())]
)

_EVENT: Final = """
    CASE WHEN "op" = 'remove' THEN 'removed' WHEN "before" IS NULL THEN 'first'
        WHEN "after"['committed_offset'] < "before"['committed_offset'] THEN 'rewind' ELSE 'commit' END
    """


# --- the steps of positions ------------------------------------------------------------------------------


def read_steps(
    changes: Queryable,
    groups: Sequence[str] | None,
    topics: Sequence[TopicPartitions] = (),
    *,
    up_to: int,
    since: int | None = None,
    until: int | None = None,
    events: Sequence[str] = (),
) -> pa.Table:
    """Return the steps of the committed offsets of groups (None: all) and topics (none: all; schema
    `HISTORY`), in order, up to a sequence.

    `since` and `until` (ms, inclusive) limit the time, `events` the kinds of steps. Several commits of one
    key in one batch are one step, with the values of the last commit and their number.
    """
    was_held = """NOT ("op" = 'remove' AND "before" IS NULL)"""
    rows = select(
        f"""
        SELECT * FROM (
            SELECT "batch_time", "group", "topic", "partition",
                "after"['committed_offset'] AS "committed_offset", {_EVENT} AS "event",
                "{COMMITS.name}", "cause", "after"['metadata'] AS "metadata",
                "after"['commit_timestamp'] AS "commit_timestamp", "sequence",
                "before"['committed_offset'] AS "earlier"
            FROM changes WHERE {_of_offsets(groups, up_to, since, until, topics)} AND {was_held}
        ) AS steps
        WHERE {is_one_of("event", events) if events else "true"}
        ORDER BY "sequence", "group", "topic", "partition"
        """,
        changes=changes,
    )
    rows = rows.select(_STEPS_READ.names).cast(_STEPS_READ)
    step = pc.subtract(rows["committed_offset"], rows["earlier"])
    return rows.append_column("step", step).select(HISTORY.names).cast(HISTORY)


# --- commits and groups ----------------------------------------------------------------------------------


def commits_between(
    changes: Queryable,
    groups: Sequence[str] | None,
    topics: Sequence[TopicPartitions] = (),
    *,
    up_to: int,
    since: int,
    until: int | None = None,
    in_order: bool = True,
) -> pa.Table:
    """Read the commits between two moments (ms, inclusive), up to a sequence (schema `COMMITTED`, with the
    texts in dictionaries).

    The commits of a key are in the order of the log, unless `in_order` is false. Of one batch only the last
    commit of each key is included.
    """
    rows = cast(select(_commits_sql(groups, up_to, since, until, topics), changes=changes), COMMITTED)
    for place, field in enumerate(rows.schema):
        if pa.types.is_string(field.type):
            rows = rows.set_column(place, field.name, rows[field.name].dictionary_encode())
    return take(rows, np.argsort(to_numbers(rows["sequence"]), kind="stable")) if in_order else rows


def commit_pieces(
    changes: Queryable, groups: Sequence[str] | None, *, up_to: int, since: int, until: int | None = None
) -> Iterator[pa.Table]:
    """As `commits_between`, in no order, but yield the rows in tables of at most `_COMMITS_BYTES`."""
    some = stream(_commits_sql(groups, up_to, since, until), changes=changes)
    return joined((rows.cast(COMMITTED) for rows in some), _COMMITS_BYTES)


_COMMITS_BYTES: Final = 32 * 1024 * 1024


def _commits_sql(
    groups: Sequence[str] | None,
    up_to: int,
    since: int,
    until: int | None,
    topics: Sequence[TopicPartitions] = (),
) -> str:
    return f"""
        SELECT {names(KEY_NAMES)},
            CASE WHEN "after"['unreadable_source_offset'] IS NULL THEN "after"['committed_offset'] END
                AS "committed_offset",
            CASE WHEN "op" = 'set' THEN "after"['commit_timestamp'] ELSE "source_timestamp" END
                AS "committed_at",
            "batch_time" AS "written_at", "op" = 'remove' AS "is_removed", "after"['topic_id'] AS "topic_id",
            "before"['committed_offset'] AS "offset_before", "before"['topic_id'] AS "topic_id_before",
            "source_partition", "source_offset", "sequence"
        FROM changes WHERE {_of_offsets(groups, up_to, since, until, topics)}
        """


def commits_by_hour(
    changes: Queryable,
    groups: Sequence[str],
    topics: Sequence[TopicPartitions] = (),
    *,
    up_to: int,
    since: int,
) -> pa.Table:
    """Read the number of commits and changes of offsets in each hour (UTC) since a moment (ms), up to a
    sequence (schema `COMMITS_BY_HOUR`), in order."""
    rows = select(
        f"""
        SELECT date_bin(INTERVAL '1 hour', "batch_time") AS "hour", sum("{COMMITS.name}") AS "commits",
            count(*) AS "changes"
        FROM changes WHERE {_of_offsets(groups, up_to, since, topics=topics)}
        GROUP BY 1 ORDER BY 1
        """,
        changes=changes,
    )
    return rows.cast(COMMITS_BY_HOUR)


def pauses_since(
    changes: Queryable, groups: Sequence[str] | None, *, up_to: int, since: int, longer_than_ms: int
) -> pa.Table:
    """Read the commits since a moment (ms) that followed a pause longer than `longer_than_ms`, and the first
    commits of keys (schema `PAUSES`), in no order."""
    rows = select(
        f"""
        SELECT {names(KEY_NAMES)}, "after"['commit_timestamp'] AS "committed_at",
            "before"['commit_timestamp'] AS "before_at", "before"['committed_offset'] AS "offset_before"
        FROM changes WHERE {_of_offsets(groups, up_to, since)} AND "op" = 'set' AND ("before" IS NULL
            OR "after"['commit_timestamp'] > "before"['commit_timestamp']
                + INTERVAL '{longer_than_ms} milliseconds')
        """,
        changes=changes,
    )
    return rows.cast(PAUSES)


def _of_offsets(
    groups: Sequence[str] | None,
    up_to: int,
    since: int | None,
    until: int | None = None,
    topics: Sequence[TopicPartitions] = (),
) -> str:
    conditions = [
        f""""kind" = 'offset' AND "sequence" <= {up_to} AND {is_of_topics(topics)}""",
        *([] if groups is None else [is_one_of("group", groups)]),
        *([] if since is None else [written_after(since - 1)]),
        *([] if until is None else [written_until(until)]),
    ]
    return " AND ".join(conditions)


def rewinds_between(
    changes: Queryable,
    groups: Sequence[str] | None = None,
    topics: Sequence[TopicPartitions] = (),
    *,
    after: int,
    up_to: int,
    since: int,
    until: int | None = None,
) -> pa.Table:
    """Read the commits of lower offsets (schema `REWINDS`) in a range of sequences, of batches written
    between two moments (ms), in the order of the log. Of one batch only the last commit of each key counts.
    """
    rows = select(
        f"""
        SELECT {names(KEY_NAMES)}, "after"['committed_offset'] AS "committed_offset",
            least("after"['commit_timestamp'], "batch_time") AS "committed_at",
            "before"['committed_offset'] AS "offset_before", "before"['commit_timestamp'] AS "before_at",
            "after"['topic_id'] AS "topic_id", "before"['topic_id'] AS "topic_id_before",
            "batch_time" AS "written_at", "source_partition", "source_offset", "sequence"
        FROM changes
        WHERE "sequence" > {after} AND {_of_offsets(groups, up_to, since, until, topics)} AND "op" = 'set'
            AND "after"['committed_offset'] < "before"['committed_offset']
        ORDER BY "sequence", "source_offset"
        """,
        changes=changes,
    )
    return rows.cast(REWINDS)


def group_steps(changes: Queryable, groups: Sequence[str] | None, *, since: int, up_to: int) -> pa.Table:
    """Read the states and members of groups since the start of the whole history (ms; schema `GROUP_STEPS`),
    in no order; also those before the first change. Of earlier days, some changes may be left."""
    of_groups = "true" if groups is None else is_one_of("group", groups)
    chosen = f""""kind" = 'group' AND "sequence" <= {up_to} AND {written_after(since - 1)} AND {of_groups}"""

    def value(side: str) -> str:
        return f'"{side}"[\'state\'] AS "state", "{side}"[\'members\'] AS "members"'

    rows = select(
        f"""
        SELECT "group", "source_partition", "source_offset", "sequence", {value("group_after")} FROM changes
        WHERE {chosen}
        UNION ALL
        SELECT "group", "source_partition", CAST(NULL AS BIGINT) AS "source_offset",
            CAST(NULL AS BIGINT) AS "sequence", {value("group_before")} FROM (
            SELECT *, row_number() OVER (
                PARTITION BY "group", "source_partition" ORDER BY "sequence"
            ) AS "rank" FROM changes WHERE {chosen}
        ) WHERE "rank" = 1
        """,
        changes=changes,
    )
    return rows.cast(GROUP_STEPS)


def groups_between(
    changes: Queryable, groups: Sequence[str] | None, *, up_to: int, since: int, until: int
) -> pa.Table:
    """Read the groups after each change written between two moments (ms, inclusive), up to a sequence: rows
    of schema `GROUPS_OVER_TIME`, in the order of the log."""
    rows = select(
        f"""
        SELECT {value_columns("groups", "after")}, "batch_time" AS "written_at" FROM changes
        WHERE "kind" = 'group' AND "sequence" <= {up_to} AND {written_after(since - 1)}
            AND {written_until(until)} AND {"true" if groups is None else is_one_of("group", groups)}
        ORDER BY "sequence"
        """,
        changes=changes,
    )
    return rows.cast(GROUPS_OVER_TIME)


# --- removed offsets -------------------------------------------------------------------------------------


def drops_between(changes: DeltaTable, cause: str, *, after: int, up_to: int) -> pa.Table:
    """Read the offsets (schema `DROPS`) removed for a cause in a range of sequences, the last first."""
    keys = names(KEY_NAMES)
    rows = select(
        f"""
        SELECT {keys}, "before"['committed_offset'] AS "committed_offset",
            "source_partition", "source_offset", "source_timestamp", "sequence"
        FROM changes
        WHERE "sequence" > {after} AND "sequence" <= {up_to} AND "kind" = 'offset' AND "op" = 'remove'
            AND {is_one_of("cause", [cause])}
        ORDER BY "sequence" DESC, "source_timestamp" DESC NULLS LAST, "source_offset" DESC NULLS LAST, {keys}
        """,
        changes=changes,
    )
    return rows.cast(DROPS)


def removals_of(changes: Queryable, groups: Sequence[str] | None, *, up_to: int) -> pa.Table:
    """Read the offsets (schema `REMOVALS`) of groups (None: all) removed up to a sequence, in no order.

    Tombstones of offsets that the tables did not hold are left out: the removed value is unknown.
    """
    conditions = [
        f""""sequence" <= {up_to} AND "kind" = 'offset' AND "op" = 'remove' AND "before" IS NOT NULL""",
        "true" if groups is None else is_one_of("group", groups),
    ]
    of_commit = ", ".join(f""""before"['{name}'] AS {names([name])}""" for name in OF_REMOVED)
    rows = select(
        f"""
        SELECT {names(KEY_NAMES)}, "before"['committed_offset'] AS "removed_offset",
            "source_timestamp" AS "removed_at", "cause", "sequence", "source_partition",
            {of_commit}
        FROM changes WHERE {" AND ".join(conditions)}
        """,
        changes=changes,
    )
    return rows.cast(REMOVALS)


def keys_in(changes: Queryable, groups: Sequence[str] | None, *, up_to: int) -> pa.Table:
    """Read the distinct keys of groups (None: all) that changed up to a sequence (columns `KEY_NAMES`; for
    groups the last two are null)."""
    of_groups = "true" if groups is None else is_one_of("group", groups)
    rows = select(
        f"""
        SELECT DISTINCT {names(KEY_NAMES)} FROM changes
        WHERE "kind" IN ('offset', 'group') AND "sequence" <= {up_to} AND {of_groups}
        """,
        changes=changes,
    )
    return rows.cast(pa.schema(KEY))


def names_in(changes: Queryable, of: str, *, up_to: int) -> list[str]:
    """Read the distinct names in a column of changes (`of`: group or topic) up to a sequence."""
    rows = select(
        f"""
        SELECT DISTINCT "{of}" FROM changes
        WHERE "kind" IN ('offset', 'group') AND "{of}" IS NOT NULL AND "sequence" <= {up_to}
        """,
        changes=changes,
    )
    found: list[str] = rows[of].to_pylist()
    return found


def last_written(changes: Queryable, moment: int) -> int:
    """Return the highest sequence of changes written at or before a moment (ms); 0: there are none."""
    sql = f'SELECT max("sequence") AS "last" FROM changes WHERE {written_until(moment)}'
    return select(sql, changes=changes)["last"][0].as_py() or 0


def first_set(changes: Queryable, group: str, *, after: int) -> int | None:
    """Return when (ms) a group or an offset of it was first written after a moment (ms); None: not since."""
    first = select(
        f"""
        SELECT min("batch_time") AS "first" FROM changes
        WHERE "kind" IN ('offset', 'group') AND "op" = 'set' AND {is_one_of("group", [group])}
        AND {written_after(after)}
        """,
        changes=changes,
    )["first"]
    moment: int | None = to_milliseconds(first)[0].as_py()
    return moment


# --- commits and subscriptions ---------------------------------------------------------------------------


def partitions_in(offsets: DeltaTable) -> pa.Table:
    """Read the distinct topic partitions (columns topic, partition) of the folded table `offsets`."""
    return _partitions("offsets", offsets=offsets)


def partitions_committed(changes: DeltaTable, *, after: int, up_to: int) -> pa.Table:
    """Read the distinct topic partitions whose offsets were set in a range of sequences."""
    of = f""""kind" = 'offset' AND "op" = 'set' AND "sequence" > {after} AND "sequence" <= {up_to}"""
    return _partitions(f"changes WHERE {of}", changes=changes)


def topics_of(groups: DeltaTable) -> pa.Table:
    """Read the distinct topics (column topic) to which groups of the folded table `groups` subscribe."""
    return _topics(""""subscribed_topics" AS "topics" FROM groups""", groups=groups)


def topics_subscribed(changes: DeltaTable, *, after: int, up_to: int) -> pa.Table:
    """Read the distinct topics to which groups that changed in a range of sequences subscribe."""
    of = f""""kind" = 'group' AND "op" = 'set' AND "sequence" > {after} AND "sequence" <= {up_to}"""
    return _topics(
        f""""group_after"['subscribed_topics'] AS "topics" FROM changes WHERE {of}""", changes=changes
    )


def partitions_of_members(groups: DeltaTable) -> pa.Table:
    """Read the distinct topic partitions (schema `ASSIGNED_PARTITIONS`) assigned to members of groups of the
    folded table `groups`. Share groups are left out: they commit elsewhere."""
    return _assigned(""""members" FROM groups WHERE "type" <> 'share'""", groups=groups)


def partitions_assigned(changes: DeltaTable, *, after: int, up_to: int) -> pa.Table:
    """As `partitions_of_members`, of groups that changed in a range of sequences."""
    of = f""""kind" = 'group' AND "op" = 'set' AND "sequence" > {after} AND "sequence" <= {up_to}"""
    members = """"group_after"['members'] AS "members" FROM changes"""
    return _assigned(f"""{members} WHERE {of} AND "group_after"['type'] <> 'share'""", changes=changes)


def _assigned(members: str, **tables: DeltaTable) -> pa.Table:
    each = f'SELECT unnest("members") AS "member" FROM (SELECT {members}) AS held'
    topics = f"""SELECT unnest("member"['assignment']) AS "assigned" FROM ({each}) AS each"""
    rows = select(
        f"""
        SELECT DISTINCT "assigned"['topic'] AS "topic", "assigned"['topic_id'] AS "topic_id",
            unnest("assigned"['partitions']) AS "partition"
        FROM ({topics}) AS topics
        """,
        **tables,
    )
    return rows.cast(ASSIGNED_PARTITIONS)


def _partitions(source: str, **tables: DeltaTable) -> pa.Table:
    return select(f'SELECT DISTINCT "topic", "partition" FROM {source}', **tables).cast(pa.schema(KEY[1:]))


def _topics(lists: str, **tables: DeltaTable) -> pa.Table:
    each = f'SELECT unnest("topics") AS "topic" FROM (SELECT {lists}) AS held'
    rows = select(f'SELECT DISTINCT "topic" FROM ({each}) AS each', **tables)
    return rows.cast(pa.schema(KEY[1:2]))


# --- all rows --------------------------------------------------------------------------------------------


def rows_in_order(table: DeltaTable, schema: pa.Schema, condition: str = "true") -> pa.Table:
    """Read the rows of `changes` or `quarantine` that match a condition, ordered by batch and source
    position."""
    rows = select(
        f"""
        SELECT {names(schema.names)} FROM log WHERE {condition}
        ORDER BY "sequence", "source_partition", "source_offset"
        """,
        log=table,
    )
    return rows.cast(schema)
