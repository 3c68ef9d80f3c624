"""Positions at a date: Kafka's own tool and librdkafka plan the same with the listener as with the broker."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import kafka_clients as kafka
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from consumer_groups_tool import lines_of
from java_lines import JavaLines
from listening import Listening, listening
from replayed_tables import replay_broker, sample_log_ends

from streaming.common.times import now_ms
from streaming.demo.local_broker import LocalBroker
from streaming.tables.tables import Tables

pytestmark = pytest.mark.broker

TOPIC = GROUP = "dated"
OFFSETS_PARTITIONS = 8


def produce(bootstrap: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(count):
        producer.produce(TOPIC, b"x", partition=0)
    assert producer.flush(10) == 0


@pytest.fixture(scope="module")
def between(
    broker: LocalBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Listening, int]]:
    """A broker, a listener, and a moment (ms) at which ten of fifteen records were written; log ends were
    sampled before it and after all."""
    bootstrap, tables = broker.bootstrap_servers, Tables(str(tmp_path_factory.mktemp("dated") / "tables"))
    kafka.create_topics(bootstrap, {TOPIC: 1})
    produce(bootstrap, 10)
    kafka.commit_offsets(bootstrap, GROUP, {(TOPIC, 0): 3})
    tables.create()
    replay_broker(tables, bootstrap, OFFSETS_PARTITIONS)
    time.sleep(0.01)
    moment = now_ms()
    time.sleep(0.01)
    produce(bootstrap, 5)
    sample_log_ends(tables, bootstrap)
    with listening(tables) as running:
        yield bootstrap, running, moment


@pytest.fixture
def dates(between: tuple[str, Listening, int]) -> tuple[str, str, int]:
    """The addresses of broker and listener, and the moment."""
    bootstrap, running, moment = between
    return bootstrap, running.bootstrap, moment


def test_a_reset_to_a_date_is_planned_as_with_the_broker(
    dates: tuple[str, str, int], consumer_groups: JavaLines
) -> None:
    broker, ours, moment = dates
    date = datetime.fromtimestamp(moment / 1_000, UTC).isoformat(timespec="milliseconds")
    plan = ["--reset-offsets", "--group", GROUP, "--topic", TOPIC, "--to-datetime", date, "--dry-run"]
    expected, found = (lines_of(consumer_groups, one, plan) for one in (broker, ours))
    assert found == expected
    assert f"{GROUP} {TOPIC} 0 10" in " ".join(found[1])


def test_librdkafka_is_told_the_moment_of_the_sample(dates: tuple[str, str, int]) -> None:
    broker, ours, moment = dates
    asked = {TopicPartition(TOPIC, 0): OffsetSpec.for_timestamp(moment)}
    expected, found = (of_librdkafka(one, asked) for one in (broker, ours))
    assert (expected[0], found[0]) == (10, 10)
    assert found[1] < moment < expected[1]


def of_librdkafka(bootstrap: str, asked: dict[TopicPartition, OffsetSpec]) -> tuple[int, int]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    [future] = admin.list_offsets(asked).values()
    found = future.result(10)
    return found.offset, found.timestamp


def test_a_reset_to_a_date_before_the_samples_fails_and_plans_nothing(
    dates: tuple[str, str, int], consumer_groups: JavaLines
) -> None:
    _, ours, _ = dates
    plan = ["--reset-offsets", "--group", GROUP, "--topic", TOPIC]
    _, printed = lines_of(
        consumer_groups, ours, [*plan, "--to-datetime", "2026-01-01T00:00:00.000", "--dry-run"]
    )
    assert "UnsupportedVersionException" in str(printed)
    assert not any(line.startswith(f"{GROUP} {TOPIC}") for line in printed)
