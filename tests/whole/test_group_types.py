"""Groups of every type on a real broker: the `groups` table says what the broker lists and describes."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kafka_clients as kafka
import pytest
import raw_requests
from consumer_groups_tool import PrintedMember, partitions_in, printed_members
from group_actors import QUICK, GroupActors, assert_tables_say, start_group_actors
from java_lines import JavaLines
from kafka_versions import Feature, KafkaVersion
from pyspark.sql import SparkSession
from running_job import RunningJob

from streaming.demo.local_broker import LocalBroker
from streaming.queries.members import in_text
from streaming.queries.offsets import OffsetQueries

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]

MEMBERS = [  # name, kind, group, topics
    ("classic-1", "classic", "classic", "orders", "payments"),
    ("classic-2", "classic", "classic", "payments"),
    ("classic-static-1", "classic", "classic-static", "orders"),
    ("connect-1", "raw", "connect"),
    ("consumer-1", "consumer", "consumer", "orders", "payments"),
    ("consumer-2", "consumer", "consumer", "orders"),
    ("consumer-assignor-1", "consumer", "consumer-assignor", "orders"),
    ("consumer-static-1", "consumer", "consumer-static", "orders"),
    ("regex-1", "consumer", "regex"),
    ("share-1", "share", "share", "orders"),
    ("share-2", "share", "share", "orders", "others"),
    ("streams-1", "streams", "streams", "orders"),
    ("streams-not-ready-1", "streams", "streams-not-ready", "missing"),
    ("upgraded-old", "classic", "upgraded", "orders"),
]
EXTRA: dict[str, dict[str, Any]] = {
    "classic-static-1": {"config": {"group.instance.id": "instance"}},
    "consumer-assignor-1": {"config": {"group.remote.assignor": "range"}},
    "consumer-static-1": {"config": {"group.instance.id": "instance"}},
    "regex-1": {"regex": "o.*"},
}

NEEDS = {
    "consumer": Feature.CONSUMER_PROTOCOL,
    "consumer-assignor": Feature.CONSUMER_PROTOCOL,
    "consumer-static": Feature.CONSUMER_PROTOCOL,
    "regex": Feature.SUBSCRIPTION_PATTERNS,
    "share": Feature.SHARE_GROUPS,
    "streams": Feature.STREAMS_GROUPS,
    "streams-not-ready": Feature.STREAMS_GROUPS,
    "upgraded": Feature.CONSUMER_PROTOCOL,
}
"""The groups that not every broker has; the others are left to it."""

WHILE_MEMBERS_ARE_THERE = {
    "classic": ("classic", "Stable", 2),
    "classic-static": ("classic", "Stable", 1),
    "connect": ("classic", "Stable", 1),
    "consumer": ("consumer", "Stable", 2),
    "consumer-assignor": ("consumer", "Stable", 1),
    "consumer-static": ("consumer", "Stable", 1),
    "regex": ("consumer", "Stable", 1),
    "share": ("share", "Stable", 2),
    "streams": ("streams", "Stable", 1),
    "streams-not-ready": ("streams", "NotReady", 1),
    "upgraded": ("consumer", "Stable", 2),
    "simple": ("classic", "Empty", 0),
    "": ("classic", "Empty", 0),
}
"""What the test wants to have: type, state and number of members of each group."""

AFTER_THEY_LEFT = {
    "classic": ("classic", "Empty", 0),
    "classic-static": ("classic", "Stable", 1),  # a static member only goes when its session ends
    "connect": ("classic", "Empty", 0),
    "consumer": ("consumer", "Empty", 0),
    "consumer-assignor": ("consumer", "Empty", 0),
    "consumer-static": ("consumer", "Reconciling", 1),  # at epoch -2, until its session ends
    "regex": ("consumer", "Empty", 0),
    "share": ("share", "Empty", 0),
    "streams": ("streams", "Empty", 0),
    "streams-not-ready": ("streams", "Empty", 0),
    "upgraded": ("classic", "Stable", 1),  # downgraded: the classic member stays
    "": ("classic", "Empty", 0),
}

AFTER_DELETIONS = {
    "classic": ("consumer", "Stable", 1),  # a member of the new protocol comes into the idle group
    "classic-static": ("classic", "Stable", 1),
    "consumer-static": ("consumer", "Reconciling", 1),
    "upgraded": ("classic", "Stable", 1),
}


@pytest.fixture
def quick_broker(make_broker: Callable[..., LocalBroker]) -> LocalBroker:
    """A broker whose groups settle quickly."""
    return make_broker(offsets_partitions=3, overrides=QUICK)


@pytest.fixture
def actors(quick_broker: LocalBroker, java_jars: Path) -> Iterator[GroupActors]:
    """Members, and what the broker says."""
    with start_group_actors(java_jars, quick_broker.bootstrap_servers) as java:
        yield java


Wanted = dict[str, tuple[str, str, int]]


def possible(wanted: Wanted, version: KafkaVersion) -> Wanted:
    """Return what is wanted of the groups that the broker has."""
    return {group: facts for group, facts in wanted.items() if has_group(group, version)}


def has_group(group: str, version: KafkaVersion) -> bool:
    return group not in NEEDS or version.has(NEEDS[group])


def settled(actors: GroupActors, wanted: Wanted) -> dict[str, dict[str, Any]]:
    """What the broker says once its groups are as wanted, and say the same twice."""
    seen: list[dict[str, dict[str, Any]]] = [{}]

    def are_there() -> bool:
        seen.append(actors.groups())
        shown = {
            name: (group["type"], group["state"], len(group["members"])) for name, group in seen[-1].items()
        }
        return shown == wanted and seen[-1] == seen[-2]

    try:
        kafka.wait_until(are_there, "the groups to settle", timeout_s=30)
    except AssertionError as error:
        error.add_note(f"expected {wanted}, found {seen[-1]}")
        raise
    return seen[-1]


def assert_tables_follow(job: RunningJob, actors: GroupActors, wanted: Wanted) -> None:
    """Compare the tables with the broker's answers, once these are the same before and after a reading."""
    for _ in range(5):
        answers = settled(actors, wanted)
        tables = job.run_once()
        if actors.groups() == answers:
            return assert_tables_say(tables, answers)
    raise AssertionError("the groups changed whenever the job was reading")


def test_the_groups_table_equals_what_the_broker_lists_and_describes(
    quick_broker: LocalBroker,
    kafka_version: KafkaVersion,
    actors: GroupActors,
    consumer_groups: JavaLines,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    bootstrap = quick_broker.bootstrap_servers
    while_there, after = (possible(w, kafka_version) for w in (WHILE_MEMBERS_ARE_THERE, AFTER_THEY_LEFT))
    members = [member for member in MEMBERS if member[2] in while_there]
    job = RunningJob(spark, bootstrap, tmp_path)
    kafka.create_topics(bootstrap, {"orders": 2, "others": 1, "payments": 2})
    kafka.commit_offsets(bootstrap, "simple", {("orders", 0): 1})
    kafka.alter_offsets(bootstrap, "", {("orders", 0): 2})
    for group in while_there:
        raw_requests.offset_fetch(bootstrap, group)  # waits until the group has a coordinator

    for name, kind, group, *topics in members:
        actors.join(name, kind, group, *topics, **EXTRA.get(name, {}))
    if "upgraded" in while_there:
        kafka.wait_until(lambda: is_stable(actors, "upgraded"), "the classic member", timeout_s=20)
        actors.join("upgraded-new", "consumer", "upgraded", "orders")
    assert_tables_follow(job, actors, while_there)
    if kafka_version.has(Feature.SUBSCRIPTION_PATTERNS):  # else the tool has less to print
        printed = members_of(job)
        assert printed == printed_members(consumer_groups, bootstrap, {member.group for member in printed})

    for name, *_ in members:
        if name != "upgraded-old":
            actors.leave(name)
    if "upgraded" in while_there:
        actors.leave("upgraded-new")
    actors.delete(["simple"])
    assert_tables_follow(job, actors, after)

    actors.delete(sorted(after.keys() - AFTER_DELETIONS.keys()))
    kind = "consumer" if kafka_version.has(Feature.CONSUMER_PROTOCOL) else "classic"
    actors.join("classic-3", kind, "classic", "orders")
    at_the_end = possible(AFTER_DELETIONS | {"classic": (kind, "Stable", 1)}, kafka_version)
    assert_tables_follow(job, actors, at_the_end)


def members_of(job: RunningJob) -> set[PrintedMember]:
    """Return the members of groups of consumers as the tool prints them, from the tables alone."""
    queries = OffsetQueries(job.tables)
    kinds = queries.list_groups(types=["classic", "consumer"]).groups
    groups = [group.group for group in kinds if group.protocol_type == "consumer"]

    rows = queries.list_members(groups).rows.to_pylist()
    mixed = {row["group"] for row in rows if row["upgraded"] is False}  # of others the tool does not tell

    def shown(value: Any) -> str:
        return "-" if value in (None, "") else str(value).lower() if isinstance(value, bool) else str(value)

    return {
        PrintedMember(
            row["group"],
            row["consumer_id"],
            shown(row["group_instance_id"]),
            row["host"],
            row["client_id"],
            row["partition_count"],
            shown(row["current_epoch"]),
            partitions_in(shown(in_text(row["current_assignment"]))),
            shown(row["target_epoch"]),
            partitions_in(shown(in_text(row["target_assignment"]))),
            shown(row["upgraded"] if row["group"] in mixed else None),
        )
        for row in rows
    }


def is_stable(actors: GroupActors, group: str) -> bool:
    return actors.groups().get(group, {}).get("state") == "Stable"
