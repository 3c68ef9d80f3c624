"""Members are listed, and whose partitions are: ids of topics get the names that samples know."""

from typing import Any

import pytest
from log_end_rows import of_topic, rows_of
from table_batches import append, group, offset

from streaming.model.progress import PartitionProgress
from streaming.queries.lag import LagQueries
from streaming.queries.members import in_text
from streaming.queries.offsets import OffsetQueries
from streaming.tables.tables import Tables

IDENTITY = {"group_instance_id": None, "client_id": "app", "client_host": "/10.0.0.1"}


def assigned(topic: str | None, topic_id: str | None, *partitions: int) -> dict[str, Any]:
    return {"topic": topic, "topic_id": topic_id, "partitions": partitions}


CLASSIC = [
    {**IDENTITY, "member_id": "b", "assignment": [assigned("orders", None, 2, 10)]},
    {**IDENTITY, "member_id": "a", "assignment": []},
    {**IDENTITY, "member_id": "c"},
]
CONSUMER = [
    {
        **IDENTITY,
        "member_id": "m",
        "group_instance_id": "i",
        "member_epoch": 6,
        "is_classic": False,
        "assignment": [assigned(None, "id-1", 1), assigned(None, "id-9", 1)],
        "target_assignment": [assigned(None, "id-1", 0, 1)],
    }
]


@pytest.fixture
def queries(tables: Tables) -> OffsetQueries:
    """A classic and a consumer group, with offsets."""
    append(
        tables,
        {
            "billing": group(members=CLASSIC),
            ("billing", "orders", 2): offset(committed_offset=5),
            ("billing", "orders", 3): offset(committed_offset=6),
            "newer": group(type="consumer", members=CONSUMER, assignment_epoch=7),
            ("newer", "orders", 1): offset(committed_offset=7),
        },
        partitions={3: PartitionProgress(position=12, loaded=True)},
    )
    return OffsetQueries(tables)


def test_members_are_listed_with_what_they_have(queries: OffsetQueries) -> None:
    rows = queries.list_members().rows.to_pylist()
    assert [(row["group"], row["consumer_id"], row["partition_count"]) for row in rows] == [
        ("billing", "a", 0),
        ("billing", "b", 2),
        ("billing", "c", None),
        ("newer", "m", 2),
    ]
    assert [in_text(row["current_assignment"]) for row in rows] == [
        "",
        "orders:2,10",
        None,
        "id-1:1;id-9:1",
    ]
    names = ("host", "client_id", "group_instance_id", "current_epoch", "target_epoch", "upgraded")
    assert [rows[-1][name] for name in names] == ["/10.0.0.1", "app", "i", 6, 7, True]
    assert [rows[0][name] for name in names] == ["/10.0.0.1", "app", None, None, None, None]
    assert [row["group"] for row in queries.list_members(["newer"]).rows.to_pylist()] == ["newer"]


def test_ids_get_the_names_that_samples_of_log_ends_know(queries: OffsetQueries) -> None:
    queries.tables.append_log_ends(
        rows_of([of_topic(500, "former", "id-0"), of_topic(900, "orders", "id-1")])
    )
    [row] = queries.list_members(["newer"]).rows.to_pylist()
    assert in_text(row["current_assignment"]) == "id-9:1;orders:1"
    assert in_text(row["target_assignment"]) == "orders:0,1"
    [member] = queries.describe_groups(["newer"]).groups["newer"].members
    assert member.assignment is not None
    assert [(one.topic, one.topic_id, one.partitions) for one in member.assignment] == [
        ("orders", "id-1", (1,)),
        (None, "id-9", (1,)),
    ]


def test_partitions_have_the_member_that_they_are_assigned_to(queries: OffsetQueries) -> None:
    def owners() -> dict[tuple[str, int], tuple[str | None, ...]]:
        rows = LagQueries(queries.tables).list_offsets(with_owners=True).rows.to_pylist()
        return {
            (row["group"], row["partition"]): (row["consumer_id"], row["host"], row["client_id"])
            for row in rows
            if row["committed_offset"] is not None
        }

    nobody = (None, None, None)
    of_classic = {("billing", 2): ("b", "/10.0.0.1", "app"), ("billing", 3): nobody}
    assert owners() == of_classic | {("newer", 1): nobody}, "the name of the topic is not known"
    queries.tables.append_log_ends(rows_of([of_topic(900, "orders", "id-1")]))
    assert owners() == of_classic | {("newer", 1): ("m", "/10.0.0.1", "app")}


def test_offsets_of_groups_without_members_have_no_owners(tables: Tables) -> None:
    loaded = {3: PartitionProgress(position=12, loaded=True)}
    append(tables, {"g": group(), ("g", "orders", 2): offset()}, partitions=loaded)
    queries = LagQueries(tables)
    assert queries.list_offsets(with_owners=True).rows["consumer_id"].to_pylist() == [None]
    rows = queries.list_offsets([], with_owners=True).rows
    assert (len(rows), rows.column_names[-3:]) == (0, ["consumer_id", "host", "client_id"])
