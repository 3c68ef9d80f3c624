"""Partitions that members of groups have and nothing is committed for are rows of every view of lag."""

from datetime import datetime
from typing import Any

import pytest
from log_end_rows import Sample, of_topic, rows_of
from new_tables import new_tables
from table_batches import Batch, append, group, heartbeat, offset

from streaming.assessment.owners import OWNER
from streaming.common.times import MINUTE_MS, from_ms, now_ms
from streaming.common.topics import TopicPartitions
from streaming.model.progress import PartitionProgress
from streaming.queries.lag import LagQueries
from streaming.queries.offsets import OffsetQueries
from streaming.queries.sql import run_sql
from streaming.tables.tables import Tables

M = MINUTE_MS
START = now_ms() - 50 * M
NOT_YET, THERE = "no committed offset yet", "no committed offset, log has records"
WAIT = "no committed offset, records waiting"
FOUND = {
    "empty": ("UNKNOWN", NOT_YET),
    "late": ("WARNING", THERE),
    "looping": ("STOPPED", WAIT),
    "passed": ("STOPPED", WAIT),
    "stuck": ("STOPPED", WAIT),
    "unsampled": ("UNKNOWN", "log end unknown"),
    "young": ("UNKNOWN", NOT_YET),
}


def at(minutes: float) -> datetime:
    return from_ms(START + int(minutes * M))


def owning(topic: str, now: int, member: str = "m", topic_id: str | None = None) -> dict[str, Any]:
    assigned = {"topic": None if topic_id else topic, "topic_id": topic_id, "partitions": [0, 1]}
    one = {"member_id": member, "client_id": "c", "client_host": "/h", "assignment": [assigned]}
    return group(members=[one], subscribed_topics=[topic], source_timestamp=now)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """A record a minute in `busy`, of which `stuck` has both partitions and one commit of partition 1;
    `looping` rebalances every minute; `passed` gets them after 5 minutes from `gone`, `young` after 25.
    `old` has records of before alone, of `bare` none are kept; `dark` is not sampled."""
    tables = new_tables(tmp_path_factory.mktemp("tables"))
    live: Batch = {}
    for minute in range(31):
        now = START + minute * M
        batch: Batch = {"looping": owning("busy", now, f"m{minute}", "id-busy")}
        if minute == 0:
            of = {"stuck": "busy", "late": "old", "empty": "bare", "unsampled": "dark", "other": "busy"}
            batch |= {name: owning(topic, now) for name, topic in of.items() if name != "other"}
            batch["stuck", "busy", 1] = offset(committed_offset=130, commit_timestamp=now)
        if minute in (5, 25):
            batch["passed" if minute == 5 else "young"] = owning("busy", now)
        place = 10 * minute
        read = PartitionProgress(position=place, loaded=True, last_stable_offset=place, high_watermark=place)
        append(tables, batch, live=live, now=now, partitions={3: read})
        live |= batch
    moments = range(START, START + 30 * M + 1, M)
    ends = {"busy": lambda n: (0, 100 + n), "old": lambda _: (0, 50), "bare": lambda _: (50, 50)}
    tables.append_log_ends(
        rows_of(
            Sample(now, topic, partition, end(n)[1], f"id-{topic}", end(n)[0])
            for n, now in enumerate(moments)
            for topic, end in ends.items()
            for partition in (0, 1)
        )
    )
    tables.append_log_ends(rows_of(of_topic(START, topic, f"id-{topic}") for topic in ends))
    heartbeat(tables, START + 30 * M)
    return tables


@pytest.fixture(scope="module")
def queries(tables: Tables) -> LagQueries:
    return LagQueries(tables)


def test_they_are_rows_of_offsets_with_where_the_log_ends_and_the_owner(queries: LagQueries) -> None:
    rows = queries.list_offsets(["stuck", "late"], with_owners=True, as_of=at(30)).rows
    columns = ["group", "topic", "partition", "committed_offset", "log_end_offset", "lag", "lag_is_at_least"]
    assert [tuple(row.values()) for row in rows.select(columns).to_pylist()] == [
        ("late", "old", 0, None, 50, None, None),
        ("late", "old", 1, None, 50, None, None),
        ("stuck", "busy", 0, None, 130, None, None),
        ("stuck", "busy", 1, 130, 130, 0, False),
    ]
    assert rows["source_partition"].to_pylist() == [3] * 4
    assert rows.select(OWNER.names).to_pylist() == [{"consumer_id": "m", "host": "/h", "client_id": "c"}] * 4
    some = queries.list_offsets(["stuck"], [TopicPartitions("busy", frozenset({0}))], as_of=at(30)).rows
    assert some.select(["topic", "partition"]).to_pylist() == [{"topic": "busy", "partition": 0}]
    assert len(queries.list_offsets(["young"], as_of=at(24)).rows) == 0
    assert len(queries.list_offsets(["young"], as_of=at(25)).rows) == 2


def test_they_count_as_unknown_lag(queries: LagQueries) -> None:
    rows = queries.list_lag(as_of=at(30)).rows
    counts = {row["group"]: (row["partitions"], row["partitions_unknown"]) for row in rows.to_pylist()}
    assert counts == dict.fromkeys(FOUND, (2, 2)) | {"stuck": (2, 1)}
    assert {row["lag_is_at_least"] for row in rows.to_pylist()} == {True}
    assert queries.list_lag(["stuck"], as_of=at(30)).rows["lag"].to_pylist() == [0]


def test_who_has_had_them_for_long_and_commits_nothing_is_not_well(queries: LagQueries) -> None:
    rows = queries.health(as_of=at(30)).rows.to_pylist()
    assert {row["group"]: (row["status"], row["reason"]) for row in rows} == FOUND
    since = {row["group"]: row["since"] for row in rows if row["since"] is not None}
    assert since == {"stuck": at(0), "late": at(0), "passed": at(5), "looping": at(10)}
    of_stuck = queries.partition_health(["stuck"], as_of=at(30)).rows.to_pylist()
    assert [row["reason"] for row in of_stuck] == [WAIT, "caught up"]
    assert of_stuck[1]["last_offset"] == 130


def test_they_are_not_judged_before_the_window_is_over(queries: LagQueries) -> None:
    earlier = queries.health(["stuck", "passed", "looping"], as_of=at(9)).rows.to_pylist()
    assert {row["group"]: row["status"] for row in earlier} == dict.fromkeys(
        ("stuck", "passed", "looping"), "UNKNOWN"
    )
    now = queries.health(["stuck"], as_of=at(30 + 20)).rows.to_pylist()
    assert [row["reason"] for row in now] == ["newer commits may be unread"]


def test_views_of_sql_have_them(tables: Tables) -> None:
    found = run_sql(tables, 'SELECT "group", reason FROM health', as_of=at(30)).rows.to_pylist()
    assert {row["group"]: row["reason"] for row in found} == {name: why for name, (_, why) in FOUND.items()}
    lacking = "SELECT count(*) AS n FROM lag WHERE committed_offset IS NULL AND \"group\" = 'stuck'"
    assert run_sql(tables, lacking, as_of=at(30)).rows["n"].to_pylist() == [1]


def test_what_is_about_commits_alone_has_none_of_them(tables: Tables, queries: LagQueries) -> None:
    fetched = OffsetQueries(tables).fetch_offsets({"stuck": [("busy", 0), ("busy", 1)]}, at(30))
    assert [one.committed_offset for one in fetched.groups["stuck"].partitions] == [-1, 130]
    assert len(OffsetQueries(tables).list_offsets(["stuck"], as_of=at(30)).rows) == 1
    assert queries.restore(["stuck", "late"], as_of=at(30)).rows["partition"].to_pylist() == [1]


def test_how_they_came_to_it_ends_with_what_health_says(queries: LagQueries) -> None:
    changes = queries.health_changes(None, since=at(0), until=at(30)).rows.to_pylist()
    ends = {row["group"]: row for row in changes}
    deciding = ("status", "topic", "partition")
    assert {name: [row[one] for one in deciding] for name, row in ends.items()} == {
        row["group"]: [row[one] for one in deciding] for row in queries.health(as_of=at(30)).rows.to_pylist()
    }
    of_stuck = [(row["at"], row["status"], row["reason"]) for row in changes if row["group"] == "stuck"]
    assert of_stuck == [(at(0), "UNKNOWN", NOT_YET), (at(10), "WARNING", THERE), (at(11), "STOPPED", WAIT)]


def test_changes_of_some_topics_have_no_others(queries: LagQueries) -> None:
    asked = [TopicPartitions("busy", frozenset({1}))]
    rows = queries.health_changes(["stuck", "late"], asked, since=at(0), until=at(30)).rows
    assert {(row["group"], row["partition"]) for row in rows.to_pylist()} == {("stuck", 1)}
