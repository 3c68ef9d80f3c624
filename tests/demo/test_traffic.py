"""The demo's clients: every group commits in its own way, comes, goes and rewinds, and all stop in time."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupType, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from conftest import BrokerFactory
from kafka_clients import alter_offsets, create_topics, read_raw, retrying, wait_until

from streaming.demo import traffic as traffic_module
from streaming.demo.broker_offsets import CommittedOffset, OffsetKey, broker_offsets, shown_metadata
from streaming.demo.local_broker import LocalBroker
from streaming.demo.traffic import PURPOSES, DemoTraffic, Stage, TrafficError

ALL_GROUPS = set(PURPOSES)


def failing_actor(stage: Stage) -> None:
    raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))


@pytest.fixture(scope="module")
def traffic(java_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DemoTraffic, str]]:
    """Traffic that deletes and rewinds every two seconds, on a broker of its own."""
    with (
        LocalBroker(tmp_path_factory.mktemp("demo"), jars=java_jars) as broker,
        DemoTraffic(broker.bootstrap_servers, life_s=2, rewind_s=2) as traffic,
    ):
        yield traffic, broker.bootstrap_servers
        traffic.check()


@pytest.fixture(scope="module")
def bootstrap(traffic: tuple[DemoTraffic, str]) -> str:
    return traffic[1]


@pytest.fixture(scope="module")
def quiet_broker(java_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """A broker without groups of other tests: librdkafka cannot read metadata that has no NUL at its end."""
    with LocalBroker(tmp_path_factory.mktemp("quiet"), jars=java_jars) as broker:
        yield broker


class TestFailures:
    def test_a_client_that_fails_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(traffic_module, "ACTORS", (failing_actor,))
        monkeypatch.setattr(traffic_module, "create_demo_topics", lambda bootstrap_servers: None)
        with DemoTraffic("127.0.0.1:1") as traffic:
            pass
        with pytest.raises(TrafficError, match=r"failing_actor: .*authorization failed"):
            traffic.check()

    def test_a_broker_that_does_not_answer_is_given_up_in_time(self) -> None:
        started = time.monotonic()
        with pytest.raises(KafkaException):
            broker_offsets("127.0.0.1:1", timeout_s=0.5)
        assert time.monotonic() - started < 5


@pytest.mark.broker
@pytest.mark.more
class TestBrokerOffsets:
    def test_every_group_s_offsets_are_returned(self, quiet_broker: LocalBroker) -> None:
        bootstrap = quiet_broker.bootstrap_servers
        create_topics(bootstrap, {"asked": 2})
        noted = CommittedOffset(7, leader_epoch=2, metadata="note \N{SNOWMAN}")
        alter_offsets(bootstrap, "asked-1", {("asked", 0): 5})
        alter_offsets(bootstrap, "asked-2", {("asked", 1): noted._replace(metadata=f"{noted.metadata}\0")})
        alter_offsets(bootstrap, "", {("asked", 1): 1})  # must not be in the way
        answers = {key: at for key, at in broker_offsets(bootstrap).items() if key.topic == "asked"}
        assert answers == {
            OffsetKey("asked-1", "asked", 0): CommittedOffset(5),
            OffsetKey("asked-2", "asked", 1): noted,
        }

    def test_metadata_is_cut_where_librdkafka_cuts_it(self, quiet_broker: LocalBroker) -> None:
        bootstrap = quiet_broker.bootstrap_servers
        create_topics(bootstrap, {"cut": 1})
        alter_offsets(bootstrap, "cut", {("cut", 0): CommittedOffset(5, metadata="a\0b\0")})
        key = OffsetKey("cut", "cut", 0)
        assert broker_offsets(bootstrap)[key].metadata == "a" == shown_metadata("a\0b\0")
        assert shown_metadata("no NUL") == "no NUL"


@pytest.mark.broker
@pytest.mark.more
class TestTraffic:
    def test_every_group_commits(self, bootstrap: str) -> None:
        wait_until(lambda: {key.group for key in broker_offsets(bootstrap)} == ALL_GROUPS, "all groups")

    def test_offsets_move(self, bootstrap: str) -> None:
        before = total(bootstrap, "billing")
        wait_until(lambda: total(bootstrap, "billing") > before, "billing to move")

    def test_the_groups_are_of_two_types_and_one_has_two_members(self, bootstrap: str) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap})

        def described(group: str) -> tuple[ConsumerGroupType, int]:
            found = retrying(lambda: admin.describe_consumer_groups([group])[group].result(10))
            return found.type, len(found.members)

        wait_until(lambda: described("billing") == (ConsumerGroupType.CLASSIC, 2), "two members of billing")
        wait_until(
            lambda: described("recommendations") == (ConsumerGroupType.CONSUMER, 1), "a KIP-848 member"
        )

    def test_a_note_is_in_the_metadata(self, bootstrap: str) -> None:
        wait_until(lambda: "audit" in {key.group for key in broker_offsets(bootstrap)}, "audit")
        notes = {at.metadata for key, at in broker_offsets(bootstrap).items() if key.group == "audit"}
        assert all(note.endswith("\N{CHECK MARK}") for note in notes)

    def test_one_group_is_deleted_and_comes_back(self, bootstrap: str) -> None:
        wait_until(lambda: total(bootstrap, "short-lived") > 0, "short-lived")
        wait_until(lambda: total(bootstrap, "short-lived") == 0, "short-lived to be deleted")
        wait_until(lambda: total(bootstrap, "short-lived") > 0, "short-lived to come back")

    def test_one_group_rewinds(self, bootstrap: str) -> None:
        wait_until(lambda: total(bootstrap, "replay") > 0, "replay")
        highest = total(bootstrap, "replay")

        def rewound() -> bool:
            nonlocal highest
            highest, now = max(highest, total(bootstrap, "replay")), total(bootstrap, "replay")
            return now < highest

        wait_until(rewound, "replay to rewind")

    def test_transactions_are_committed_and_aborted(self, bootstrap: str) -> None:
        def settlements(*, committed: bool) -> int:
            keys = (record.key or b"" for record in read_raw(bootstrap, committed=committed))
            return sum(key.startswith(b"\x00\x01\x00\x0asettlement") for key in keys)

        wait_until(lambda: settlements(committed=True) > 0, "a committed transaction")
        wait_until(
            lambda: settlements(committed=False) > settlements(committed=True) + 2, "aborted transactions"
        )

    def test_all_stop_in_time(self, make_broker: BrokerFactory) -> None:
        bootstrap = make_broker().bootstrap_servers
        with DemoTraffic(bootstrap) as traffic:
            wait_until(lambda: bool(broker_offsets(bootstrap)), "a first commit")
            started = time.monotonic()
        assert time.monotonic() - started < 10
        traffic.check()
        assert not any(thread.is_alive() for thread in traffic._threads)


def total(bootstrap: str, group: str) -> int:
    """The sum of the group's committed offsets; 0 when it has none."""
    return sum(at.offset for key, at in broker_offsets(bootstrap).items() if key.group == group)
