"""Left-over offsets: what is left over, why, and that what is not known is no reason."""

from typing import Any

import pyarrow as pa
import pytest
from hostile_names import NAMES
from log_end_rows import Sample, gone, of_topic, rows_of
from table_batches import Batch, append, group, offset

from streaming.common.times import DAY_MS, HOUR_MS, LAST_MS
from streaming.common.topics import TopicPartitions
from streaming.lag.recreated_topic import OF_RECREATED_TOPIC
from streaming.model.progress import PartitionProgress, Retention
from streaming.queries.bound.leftovers import list_leftovers
from streaming.queries.expiring import Listing
from streaming.queries.leftovers import (
    DELETED,
    IDLE,
    LEFT_OVER,
    LEFTOVERS,
    RECREATED,
    UNSUBSCRIBED,
    by_topic,
    left_over,
)
from streaming.serve.assessment.rows import group_rows, offset_rows
from streaming.serve.memory.tailer import Tailer
from streaming.settings.reading import read_settings
from streaming.tables.tables import Tables

NOW = 1_800_000_000_000
OLD, NEW = NOW - 30 * DAY_MS, NOW - HOUR_MS
RETENTION = Retention(
    retention_ms=40 * DAY_MS, check_interval_ms=1, source="broker", read_at=0, known_since=0
)
SETTINGS = read_settings().expiry

Row = dict[str, Any]


def at(moment: int, **more: Any) -> Row:
    return offset(commit_timestamp=moment, **more)


def member(*assigned: Row) -> Row:
    return {"member_id": "m", "client_id": "c", "client_host": "/h", "assignment": list(assigned)}


def of(topic: str | None, topic_id: str | None = None) -> Row:
    return {"topic": topic, "topic_id": topic_id, "partitions": [0]}


def running(*topics: str, members: list[Row] | None = None, **more: Any) -> Row:
    """A group with members that subscribe to topics."""
    return group(subscribed_topics=list(topics), members=members or [member()]) | more


def empty(changed_at: int | None = None, **more: Any) -> Row:
    return group(state="Empty", state_timestamp=changed_at, subscribed_topics=[]) | more


def written(
    tables: Tables, batch: Batch, *samples: Sample, retention: Retention | None = RETENTION
) -> Tables:
    done = PartitionProgress(position=12, loaded=True)
    append(tables, batch, now=NOW, records_at=OLD, partitions={3: done}, retention=retention)
    if samples:
        tables.append_log_ends(rows_of(samples))
    return tables


def asked(tables: Tables, *groups: str, topics: str = "", **more: Any) -> Listing:
    of_topics = [TopicPartitions.parse(topics, name="")] if topics else []
    return list_leftovers(tables, groups, of_topics, settings=SETTINGS, now=NOW, **more)


def reasons(tables: Tables, **more: Any) -> dict[tuple[str, str], str]:
    rows = asked(tables, **more).rows.to_pylist()
    return {(row["group"], row["topic"]): row["reason"] for row in rows}


# --- topics without subscription -------------------------------------------------------------------------


def test_a_topic_that_a_group_with_members_left_is_left_over(tables: Tables) -> None:
    batch: Batch = {
        "g": running("orders"),
        **{("g", topic, number): at(NEW) for topic in ("orders", "clicks") for number in (10, 2)},
    }
    [row] = asked(written(tables, batch)).rows.to_pylist()
    assert (row["group"], row["topic"], row["partitions"]) == ("g", "clicks", [2, 10])
    assert (row["reason"], row["rule"]) == (UNSUBSCRIBED, "classic not subscribed")
    assert (row["member_count"], row["type"], row["idle_since"]) == (1, "classic", None)
    assert row["last_commit"].timestamp() * 1_000 == NEW
    assert row["expires_at"].timestamp() * 1_000 == NEW + 40 * DAY_MS


@pytest.mark.parametrize(
    "unknown",
    [
        group(members=[member()], subscribed_topics=None),
        running(type="consumer", members=[member() | {"subscribed_regex": "x.*"}]),
        group(members=None, subscribed_topics=["orders"]),
        running("orders", type="consumer", members=[member(of(None, "never sampled"))]),
    ],
    ids=["subscriptions", "an expression that is not resolved", "members", "the name of an assigned topic"],
)
def test_what_is_not_known_of_a_subscription_is_no_reason(tables: Tables, unknown: Row) -> None:
    assert reasons(written(tables, {"g": unknown, ("g", "clicks", 0): at(OLD)})) == {}


def test_a_topic_that_a_member_still_has_is_not_left_over(tables: Tables) -> None:
    batch: Batch = {
        "named": running("orders", members=[member(), member(of("clicks"))]),
        "by id": running("orders", type="consumer", members=[member(of(None, "id-c"))]),
        "tasks": running("orders", type="streams", members=[member(of(None) | {"subtopology": "0"})]),
        **{(name, "clicks", 0): at(NEW) for name in ("named", "by id", "tasks")},
    }
    ends = [of_topic(NEW, "clicks", "id-c"), of_topic(NEW, "orders", "id-o")]
    assert reasons(written(tables, batch, *ends)) == {("tasks", "clicks"): UNSUBSCRIBED}


def test_topics_that_match_an_expression_are_subscribed(tables: Tables) -> None:
    batch: Batch = {"g": running("orders", type="consumer", members=[member() | {"subscribed_regex": "o.*"}])}
    batch |= {("g", "orders", 0): at(NEW), ("g", "clicks", 0): at(NEW)}
    assert reasons(written(tables, batch)) == {("g", "clicks"): UNSUBSCRIBED}


# --- groups without members ------------------------------------------------------------------------------


def test_a_group_without_members_is_left_over_with_all_of_its_topics_after_a_while(tables: Tables) -> None:
    batch: Batch = {
        "idle": empty(OLD),
        ("idle", "orders", 0): at(OLD),
        ("idle", "clicks", 0): at(OLD - DAY_MS),
        "simple": empty(protocol_type=""),
        ("simple", "orders", 0): at(OLD),
        "at work on one topic": empty(OLD),
        ("at work on one topic", "orders", 0): at(OLD),
        ("at work on one topic", "clicks", 0): at(NEW),
        "stopped just now": empty(NEW),
        ("stopped just now", "orders", 0): at(OLD),
        "with members": running("orders"),
        ("with members", "orders", 0): at(OLD),
    }
    written(tables, batch)
    idle = {("idle", "clicks"), ("idle", "orders"), ("simple", "orders")}
    assert reasons(tables) == dict.fromkeys(idle, IDLE)
    assert reasons(tables, idle_ms=30 * DAY_MS) == dict.fromkeys(idle, IDLE)
    assert reasons(tables, idle_ms=30 * DAY_MS + 1) == {}
    rows = asked(tables, "idle").rows.to_pylist()
    assert [row["idle_since"].timestamp() * 1_000 for row in rows] == [OLD, OLD]
    assert [row["last_commit"].timestamp() * 1_000 for row in rows] == [OLD - DAY_MS, OLD]
    assert list(reasons(tables, topics="clicks:0")) == [("idle", "clicks")]


@pytest.mark.parametrize("changed", [{"commit_timestamp": LAST_MS}, {"commit_timestamp": NOW + 1}])
def test_a_commit_in_the_future_is_no_old_one(tables: Tables, changed: Row) -> None:
    assert reasons(written(tables, {"g": empty(OLD), ("g", "t", 0): at(OLD) | changed})) == {}


@pytest.mark.parametrize("changed", [{"commit_timestamp": -1}, {"unreadable_source_offset": 99}, {}])
@pytest.mark.parametrize(("recorded", "is_idle"), [(OLD, True), (NEW, False), (None, False), (-1, False)])
def test_the_time_of_a_record_counts_where_that_of_its_commit_is_not_known(
    changed: Row, recorded: int | None, is_idle: bool
) -> None:
    row = {"group": "g", "topic": "t", "partition": 0, "source_partition": 3} | changed
    row = {"commit_timestamp": OLD if changed.get("unreadable_source_offset") else None} | row
    offsets = table([row | {"source_timestamp": recorded}], LEFT_OVER)
    groups = pa.Table.from_pylist([{"group": "g", **BARE, "members": []}], GROUP_COLUMNS)
    found = left_over(offsets, groups, named=NO_NAMES, moment=NOW, idle_ms=14 * DAY_MS)
    assert bool(len(found)) == is_idle


BARE: Row = {"type": "classic", "state_timestamp": None, "source_timestamp": None, "subscribed_topics": []}
NO_NAMES = pa.table({"topic_id": pa.array([], pa.string()), "topic": pa.array([], pa.string())})
GROUP_COLUMNS = pa.schema(
    [
        ("group", pa.string()),
        ("type", pa.string()),
        ("state_timestamp", pa.int64()),
        ("source_timestamp", pa.int64()),
        ("members", pa.list_(pa.struct([("assignment", pa.list_(pa.null()))]))),
        ("subscribed_topics", pa.list_(pa.string())),
    ]
)


def table(rows: list[Row], schema: pa.Schema) -> pa.Table:
    """Return rows whose times are given in ms."""
    in_ms = pa.schema(
        [field.with_type(pa.int64()) if pa.types.is_timestamp(field.type) else field for field in schema]
    )
    made = pa.Table.from_pylist(rows, in_ms)
    columns = [
        column.cast(pa.timestamp("ms", tz="UTC")) if pa.types.is_timestamp(field.type) else column
        for field, column in zip(schema, made.columns, strict=True)
    ]
    return pa.table(columns, schema.names).cast(schema)


def test_nothing_is_left_over_of_a_group_of_which_nothing_is_known() -> None:
    offsets = table([{"group": "g", "topic": "t", "partition": 0, "of_recreated_topic": True}], LEFT_OVER)
    groups = pa.Table.from_pylist([{"group": "other", **BARE, "members": []}], GROUP_COLUMNS)
    for known in (groups, groups.slice(0, 0)):
        found = left_over(offsets, known, named=NO_NAMES, deleted=["t"], moment=NOW, idle_ms=1)
        assert (len(found), found.schema) == (0, LEFT_OVER)


# --- topics that were deleted or recreated ---------------------------------------------------------------


def test_offsets_of_deleted_and_recreated_topics_are_left_over(tables: Tables) -> None:
    topics = ("deleted", "recreated", "back", "there")
    batch: Batch = {"g": running(*topics)}
    batch |= {("g", topic, number): at(OLD) for topic in topics for number in (0, 1)}
    batch["g", "recreated", 1] = at(NEW)
    samples = [of_topic(OLD + 1, topic, f"{topic}-1") for topic in topics]
    samples += [gone(OLD + DAY_MS, "deleted"), gone(OLD + DAY_MS, "recreated"), gone(OLD + DAY_MS, "back")]
    samples += [of_topic(OLD + 2 * DAY_MS, "recreated", "recreated-2"), of_topic(NEW, "back", "back-1")]
    written(tables, batch, *samples)
    assert reasons(tables) == {("g", "deleted"): DELETED, ("g", "recreated"): RECREATED}
    rows = {row["topic"]: row["partitions"] for row in asked(tables).rows.to_pylist()}
    assert rows == {"deleted": [0, 1], "recreated": [0]}


# --- rows ------------------------------------------------------------------------------------------------


def test_rows_are_sorted_by_group_and_topic_whatever_their_names(tables: Tables) -> None:
    batch: Batch = {name: empty(OLD) for name in NAMES}
    batch |= {(name, topic, 0): at(OLD) for name in NAMES for topic in (name, "t")}
    listing = asked(written(tables, batch))
    keys = [(row["group"], row["topic"]) for row in listing.rows.to_pylist()]
    assert keys == sorted({(name, topic) for name in NAMES for topic in (name, "t")})
    assert listing.rows.schema == LEFTOVERS


def test_the_first_offset_to_expire_counts(tables: Tables) -> None:
    batch: Batch = {"g": running("orders", type="consumer")}
    batch |= {("g", "t", number): at(NEW - number) for number in range(3)}
    batch["g", "t", 3] = at(NEW, unreadable_source_offset=99)
    [row] = asked(written(tables, batch)).rows.to_pylist()
    assert (row["rule"], row["partitions"]) == ("consumer not subscribed", [0, 1, 2, 3])
    assert row["expires_at"].timestamp() * 1_000 == NEW - 2 + 40 * DAY_MS


def test_without_a_known_retention_expiry_is_not_known(tables: Tables) -> None:
    written(tables, {"g": empty(OLD), ("g", "t", 0): at(OLD)}, retention=None)
    listing = asked(tables)
    [row] = listing.rows.to_pylist()
    assert (row["expires_at"], row["rule"]) == (None, None)
    [remark] = listing.all_remarks()
    assert remark.startswith("when the brokers will drop these offsets is not known: ")


def test_offsets_that_are_still_being_read_are_left_out(tables: Tables) -> None:
    batch: Batch = {"g": empty(OLD), ("g", "t", 0): at(OLD)}
    append(tables, batch, now=NOW, partitions={3: PartitionProgress(position=1, loaded=False)})
    listing = asked(tables)
    assert (len(listing.rows), listing.about.is_loading) == (0, True)


def test_rows_of_a_snapshot_in_memory_give_the_same(tables: Tables) -> None:
    batch: Batch = {
        "g": running("orders"),
        "h": empty(OLD),
        "k": running("a", members=[member(of("clicks"))]),
    }
    batch |= {(name, topic, 0): at(OLD) for name in ("g", "h", "k") for topic in ("orders", "clicks")}
    tailer = Tailer(written(tables, batch))
    assert tailer.poll()
    offsets, groups = offset_rows(tailer.current), group_rows(tailer.current)
    offsets = offsets.append_column(OF_RECREATED_TOPIC, pa.nulls(len(offsets), pa.bool_()))
    rows = by_topic(left_over(offsets, groups, named=NO_NAMES, moment=NOW, idle_ms=14 * DAY_MS))
    expiry = ["expires_at", "rule"]
    assert rows.drop_columns(expiry).equals(asked(tables).rows.drop_columns(expiry))
    assert len(rows) == 4
