"""Expiry on a real broker that keeps offsets for a minute: what was said to go goes, and what not stays.

All groups share one broker, one job and one wait. `Watched` is what was seen of it; each test looks at one
side of that. Only `make test-more` runs this: it waits for a minute.
"""

import csv
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import kafka_clients as kafka
import pyarrow.compute as pc
import pytest
import raw_requests
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from group_actors import GroupActors, start_group_actors
from kafka_clients import commit_with_retention
from kafka_versions import Feature, KafkaVersion
from pyspark.sql import SparkSession
from running_job import RunningJob

from streaming.alerts.episodes import Episode
from streaming.alerts.rules import OFFSET_EXPIRED, OFFSET_EXPIRING
from streaming.alerts.table import AlertTable
from streaming.common.times import now_ms
from streaming.expiry.rules import expiry
from streaming.queries.removed import list_removed, restorable
from streaming.queries.reset_csv import reset_lines
from streaming.tables.tables import Tables

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.more]

CHECK_INTERVAL: Final = timedelta(seconds=5)
A_FEW_SECONDS: Final = timedelta(seconds=5)
EXPLICIT_MS: Final = 40_000
TOPICS: Final = {"kept": 1, "dropped": 1, "doomed": 1}

PREDICTED: Final = {
    ("simple", "kept"): "simple",
    ("explicit", "kept"): "explicit",
    ("classic-left", "kept"): "classic empty",
    ("classic-left", "dropped"): "classic empty",
    ("classic-here", "dropped"): "classic not subscribed",
    ("consumer-left", "kept"): "consumer empty",
    ("consumer-here", "dropped"): "consumer not subscribed",
}
"""What goes, and by which rule; where the broker has no consumer protocol, without groups of it."""

SAFE: Final = {
    ("classic-here", "kept"): "classic subscribed",
    ("consumer-here", "kept"): "consumer subscribed",
    ("connect-like", "kept"): "classic other protocol",
    ("connect-explicit", "kept"): "classic other protocol",
}
"""What stays, and by which rule."""

REMOVED: Final = {
    ("deleted-group", "kept"): "deleted",
    ("deleted-offset", "kept"): "deleted",
    ("simple", "doomed"): "topic deleted (probable)",
    ("classic-here", "doomed"): "topic deleted (probable)",
}
"""What we remove, and what the job should make of it."""


def is_possible(key: tuple[str, str], version: KafkaVersion) -> bool:
    """Tell whether the broker has groups of this kind."""
    return version.has(Feature.CONSUMER_PROTOCOL) or not key[0].startswith("consumer-")


def possible(rules: Mapping[tuple[str, str], str], version: KafkaVersion) -> dict[tuple[str, str], str]:
    """Return the rules for groups that the broker has."""
    return {key: rule for key, rule in rules.items() if is_possible(key, version)}


def with_needs(keys: Iterable[tuple[str, str]]) -> list[Any]:
    """Return the keys as parameters of a test, those of the consumer protocol marked so."""
    needs = pytest.mark.needs(Feature.CONSUMER_PROTOCOL)
    return [
        pytest.param(key, marks=[needs] if key[0].startswith("consumer-") else [], id="-".join(key))
        for key in keys
    ]


@dataclass(frozen=True)
class Watched:
    """The offsets of our groups with their rules before the first of them went, all changes, what was left,
    and the alerts by rule and group; the broker and the job run on."""

    bootstrap: str
    tables: Tables
    before: dict[tuple[str, str], dict[str, Any]]
    removals: dict[tuple[str, str], dict[str, Any]]
    left: set[tuple[str, str]]
    alerts: dict[tuple[str, str | None], Episode]


@pytest.fixture(scope="module")
def watched(
    spark: SparkSession,
    kafka_version: KafkaVersion,
    java_jars: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Watched]:
    """Let every kind of offset be committed, remove some, and wait until the others that are due went."""
    overrides = {
        "offsets.retention.minutes": 1,
        "offsets.retention.check.interval.ms": CHECK_INTERVAL // timedelta(milliseconds=1),
        "group.consumer.heartbeat.interval.ms": 500,
        "group.consumer.min.heartbeat.interval.ms": 500,
    }
    with ExitStack() as running:
        broker = running.enter_context(
            kafka_version.broker(tmp_path_factory.mktemp("expiring"), overrides=overrides)
        )
        bootstrap = broker.bootstrap_servers
        kafka.ensure_offsets_topic(bootstrap)
        options = {"alerts.evaluate_every": "1s"}
        job = RunningJob(spark, bootstrap, tmp_path_factory.mktemp("job"), options=options)
        actors = running.enter_context(start_group_actors(java_jars, bootstrap))
        tables = running.enter_context(followed(job))
        make_groups(bootstrap, actors, kafka_version)
        predicted = possible(PREDICTED, kafka_version)
        kafka.wait_until(
            lambda: predictions(tables).keys() >= {*predicted, *possible(SAFE, kafka_version), *REMOVED},
            "all offsets in the tables",
            timeout_s=60,
        )
        before = predictions(tables)
        remove_some(bootstrap)
        kafka.wait_until(
            lambda: removals(tables).keys() >= {*predicted, *REMOVED}, "all that is due to go", timeout_s=140
        )
        kafka.wait_until(
            lambda: {(OFFSET_EXPIRED.id, group) for group, _ in predicted} <= alerts(tables).keys(),
            "the next evaluation of alerts",
        )
        yield Watched(bootstrap, tables, before, removals(tables), set(predictions(tables)), alerts(tables))


@contextmanager
def followed(job: RunningJob) -> Iterator[Tables]:
    """Run the job until the end of the block; its tables are there, and it knows the retention."""
    stop = threading.Event()
    running = threading.Thread(target=job.run, args=(stop,))
    running.start()
    try:
        kafka.wait_until(
            lambda: job.tables.progress_if_any().retention is not None, "the job to start", timeout_s=60
        )
        yield job.tables
    finally:
        stop.set()
        running.join(60)


def make_groups(bootstrap: str, actors: GroupActors, version: KafkaVersion) -> None:
    """Commit for every rule; the last commits and departures start the clocks."""
    states = {"classic-here": "Stable", "classic-left": "Empty"}
    kafka.create_topics(bootstrap, TOPICS)
    for group in ("classic-here", "classic-left", "connect-like"):
        kafka.alter_offsets(bootstrap, group, {("kept", 0): 1})
    for group in ("classic-here", "classic-left"):
        kafka.alter_offsets(bootstrap, group, {("dropped", 0): 1})
    kafka.alter_offsets(bootstrap, "classic-here", {("doomed", 0): 1})
    commit_with_retention(bootstrap, "connect-explicit", {("kept", 0): 1}, retention_ms=EXPLICIT_MS)
    actors.join("connect-1", "raw", "connect-like")
    actors.join("connect-2", "raw", "connect-explicit")
    actors.join("classic-1", "classic", "classic-here", "kept")
    with kafka.member(bootstrap, "classic-left", "kept"):
        pass
    if version.has(Feature.CONSUMER_PROTOCOL):
        make_consumer_groups(bootstrap, actors)
        states["consumer-here"] = "Stable"
    kafka.wait_until(
        lambda: {name: actors.groups()[name]["state"] for name in states} == states, "the groups to settle"
    )
    kafka.alter_offsets(bootstrap, "simple", {("kept", 0): 1, ("doomed", 0): 1})
    kafka.alter_offsets(bootstrap, "deleted-group", {("kept", 0): 1})
    kafka.alter_offsets(bootstrap, "deleted-offset", {("kept", 0): 1})
    commit_with_retention(bootstrap, "explicit", {("kept", 0): 1}, retention_ms=EXPLICIT_MS)


def make_consumer_groups(bootstrap: str, actors: GroupActors) -> None:
    """Commit for the rules of the consumer protocol."""
    kafka.alter_offsets(bootstrap, "consumer-here", {("kept", 0): 1, ("dropped", 0): 1})
    actors.join("consumer-1", "consumer", "consumer-here", "kept")
    with kafka.member(bootstrap, "consumer-left", "kept", protocol="consumer") as member:
        member.commit(offsets=[TopicPartition("kept", 0, 1)], asynchronous=False)


def remove_some(bootstrap: str) -> None:
    """Delete a group, an offset and a topic."""
    kafka.delete_group(bootstrap, "deleted-group")
    kafka.delete_offsets(bootstrap, "deleted-offset", [("kept", 0)])
    kafka.delete_topics(bootstrap, "doomed")


def predictions(tables: Tables) -> dict[tuple[str, str], dict[str, Any]]:
    """The rows of `offsets` with their rule, by group and topic."""
    now = tables.read()
    assert now.progress.retention is not None
    rows = expiry(now.offsets, now.groups, now.progress.retention.retention_ms).to_pylist()
    return {(row["group"], row["topic"]): row for row in rows}


def removals(tables: Tables) -> dict[tuple[str, str], dict[str, Any]]:
    """The rows of `changes` that tell of a removed offset, by group and topic."""
    rows = tables.read_changes()
    removed = rows.filter(pc.and_(pc.equal(rows["kind"], "offset"), pc.equal(rows["op"], "remove")))
    return {(row["group"], row["topic"]): row for row in removed.to_pylist()}


def alerts(tables: Tables) -> dict[tuple[str, str | None], Episode]:
    """The episodes of alerts, by rule and group."""
    episodes = [told.episode for told in AlertTable(tables).read().episodes()]
    return {(episode.rule, episode.finding.group): episode for episode in episodes}


def test_the_retention_and_the_rules_are_those_of_the_broker(
    watched: Watched, kafka_version: KafkaVersion
) -> None:
    rules = {key: row["rule"] for key, row in watched.before.items()}
    assert rules.items() >= possible({**PREDICTED, **SAFE}, kafka_version).items()


@pytest.mark.parametrize("key", with_needs(PREDICTED))
def test_what_was_to_go_goes_within_one_check(watched: Watched, key: tuple[str, str]) -> None:
    due, went = watched.before[key]["expires_at"], watched.removals[key]["source_timestamp"]
    assert due <= went <= due + CHECK_INTERVAL + A_FEW_SECONDS


@pytest.mark.parametrize("key", with_needs(SAFE))
def test_what_was_not_to_go_stays(watched: Watched, key: tuple[str, str]) -> None:
    assert watched.before[key]["expires_at"] is None
    assert key in watched.left


@pytest.mark.parametrize("key", with_needs(PREDICTED))
def test_expiry_is_called_so(watched: Watched, key: tuple[str, str]) -> None:
    assert watched.removals[key]["cause"] == "expired (probable)"


@pytest.mark.parametrize("key", with_needs(PREDICTED))
def test_the_alert_came_before_the_drop(watched: Watched, key: tuple[str, str]) -> None:
    went = watched.removals[key]["source_timestamp"]
    opened_at = watched.alerts[OFFSET_EXPIRING.id, key[0]].opened_at
    assert datetime.fromtimestamp(opened_at / 1_000, UTC) < went


@pytest.mark.parametrize("rule", [OFFSET_EXPIRING.id, OFFSET_EXPIRED.id])
def test_nobody_else_was_alerted(watched: Watched, rule: str, kafka_version: KafkaVersion) -> None:
    alerted = {group for other, group in watched.alerts if other == rule}
    assert alerted == {group for group, _ in possible(PREDICTED, kafka_version)}


@pytest.mark.parametrize(("key", "cause"), REMOVED.items(), ids=map("-".join, REMOVED))
def test_what_was_removed_on_purpose_is_not_called_expiry(
    watched: Watched, key: tuple[str, str], cause: str
) -> None:
    assert watched.removals[key]["cause"] == cause


def test_a_lost_position_can_be_put_back(watched: Watched) -> None:
    """Read as the tool reads its file, and done as the tool does it, by alterConsumerGroupOffsets."""
    lost = list(
        reset_lines(
            restorable(list_removed(watched.tables, ["classic-left"], now=now_ms()).rows),
            one_group=True,
        )
    )
    partitions = [
        TopicPartition(topic, int(partition), int(offset)) for topic, partition, offset in csv.reader(lost)
    ]
    admin = AdminClient({"bootstrap.servers": watched.bootstrap})
    wish = ConsumerGroupTopicPartitions("classic-left", partitions)
    admin.alter_consumer_group_offsets([wish])["classic-left"].result(15)
    stored = raw_requests.offset_fetch(watched.bootstrap, "classic-left")
    assert {key: committed.offset for key, committed in stored.items()} == {
        ("kept", 0): 1,
        ("dropped", 0): 1,
    }

    def back() -> list[int | None]:
        offsets: list[int | None] = (
            list_removed(watched.tables, ["classic-left"], now=now_ms()).rows["committed_offset"].to_pylist()
        )
        return offsets

    kafka.wait_until(lambda: back() == [1, 1], "the offsets in the tables", timeout_s=60)
    assert (
        list(
            reset_lines(
                restorable(list_removed(watched.tables, ["classic-left"], now=now_ms()).rows),
                one_group=True,
            )
        )
        == []
    )
