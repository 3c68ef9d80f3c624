"""The tests' own clients do what they say: each helper is compared with what the broker answers or writes."""

import re
from collections.abc import Callable, Mapping

import pytest
import raw_requests
from confluent_kafka import KafkaError, KafkaException
from conftest import BrokerFactory
from kafka_clients import (
    OFFSETS_TOPIC,
    OffsetTransaction,
    RawRecord,
    alter_offsets,
    broker_offsets,
    commit_offsets,
    commit_with_retention,
    create_topics,
    delete_group,
    delete_offsets,
    delete_topics,
    ensure_offsets_topic,
    member,
    partition_of,
    produce_raw,
    read_raw,
    stable_offsets,
    wait_until,
)
from kafka_versions import Feature, KafkaVersion

from streaming.demo.broker_offsets import CommittedOffset
from streaming.demo.local_broker import LocalBroker

pytestmark = [pytest.mark.broker, pytest.mark.more]

NEEDS_CONSUMERS = pytest.mark.needs(Feature.CONSUMER_PROTOCOL)


@pytest.fixture
def topic(broker: LocalBroker, request: pytest.FixtureRequest) -> str:
    """A topic of two partitions, named after the test."""
    name = re.sub(r"[^a-z0-9_]+", "-", request.node.name)
    create_topics(broker.bootstrap_servers, {name: 2})
    return name


@pytest.fixture
def bootstrap(broker: LocalBroker) -> str:
    return broker.bootstrap_servers


def offsets_of(bootstrap: str, group: str) -> dict[tuple[str, int], CommittedOffset]:
    return {
        (key.topic, key.partition): at for key, at in broker_offsets(bootstrap).items() if key.group == group
    }


def commits_in_log(bootstrap: str, group: str, topic: str) -> list[RawRecord]:
    """The records of this group's offsets of this topic (OffsetCommitKey v1, any partition)."""
    name = group.encode()
    key = b"\x00\x01" + len(name).to_bytes(2, "big") + name + len(topic).to_bytes(2, "big") + topic.encode()
    return [record for record in read_raw(bootstrap) if (record.key or b"").startswith(key)]


def value_versions(records: list[RawRecord]) -> list[int | None]:
    """The version in front of each value; None for a tombstone."""
    return [None if record.value is None else int.from_bytes(record.value[:2], "big") for record in records]


def keys_with(bootstrap: str, text: str, *, committed: bool = True) -> list[bytes]:
    """The keys in the log that contain this text."""
    keys = (record.key or b"" for record in read_raw(bootstrap, committed=committed))
    return [key for key in keys if text.encode() in key]


Commit = Callable[[str, str, Mapping[tuple[str, int], CommittedOffset]], None]
COMMITS = [commit_offsets, alter_offsets]


class TestCommits:
    @pytest.mark.parametrize("commit", COMMITS)
    def test_a_plain_offset(self, bootstrap: str, topic: str, commit: Commit) -> None:
        offsets = {(topic, 0): CommittedOffset(5), (topic, 1): CommittedOffset(7)}
        commit(bootstrap, topic, offsets)
        assert offsets_of(bootstrap, topic) == offsets

    def test_a_client_s_metadata_gets_a_nul_and_keeps_its_leader_epoch(
        self, bootstrap: str, topic: str
    ) -> None:
        committed = CommittedOffset(5, leader_epoch=3, metadata="à la carte")
        commit_offsets(bootstrap, topic, {(topic, 1): committed})
        assert offsets_of(bootstrap, topic) == {(topic, 1): committed._replace(metadata="à la carte\0")}

    @pytest.mark.parametrize("metadata", ["à la carte \N{SNOWMAN}", "\0", "a\0b", "x" * 4096])
    def test_metadata_and_leader_epoch(self, bootstrap: str, topic: str, metadata: str) -> None:
        committed = CommittedOffset(5, leader_epoch=3, metadata=metadata)
        alter_offsets(bootstrap, topic, {(topic, 1): committed})
        assert offsets_of(bootstrap, topic) == {(topic, 1): committed}

    def test_the_empty_group_id(self, bootstrap: str, topic: str) -> None:
        alter_offsets(bootstrap, "", {(topic, 0): CommittedOffset(9, metadata="no name")})
        assert offsets_of(bootstrap, "")[topic, 0] == CommittedOffset(9, metadata="no name")
        delete_group(bootstrap, "")
        assert offsets_of(bootstrap, "") == {}

    def test_a_retention_time_makes_an_older_value_version(
        self, bootstrap: str, topic: str, kafka_version: KafkaVersion
    ) -> None:
        commit_with_retention(bootstrap, topic, {(topic, 0): 4}, retention_ms=86_400_000)
        alter_offsets(bootstrap, topic, {(topic, 0): 5})
        usual = 4 if kafka_version.has(Feature.TOPIC_IDS) else 3
        assert value_versions(commits_in_log(bootstrap, topic, topic)) == [1, usual]

    def test_metadata_that_is_too_long_is_the_broker_s_error(self, bootstrap: str, topic: str) -> None:
        too_long = CommittedOffset(1, metadata="x" * 5000)
        with pytest.raises(raw_requests.RequestError, match=r"OffsetCommit: .* OFFSET_METADATA_TOO_LARGE"):
            raw_requests.offset_commit(bootstrap, topic, {(topic, 0): too_long})
        with pytest.raises(KafkaException, match="OFFSET_METADATA_TOO_LARGE"):
            commit_offsets(bootstrap, topic, {(topic, 0): too_long})


class TestDeletions:
    def test_single_offsets(self, bootstrap: str, topic: str) -> None:
        alter_offsets(bootstrap, topic, {(topic, 0): 5, (topic, 1): 7})
        delete_offsets(bootstrap, topic, [(topic, 0)])
        assert offsets_of(bootstrap, topic) == {(topic, 1): CommittedOffset(7)}
        assert None in value_versions(commits_in_log(bootstrap, topic, topic))

    def test_a_group(self, bootstrap: str, topic: str) -> None:
        alter_offsets(bootstrap, topic, {(topic, 0): 5})
        delete_group(bootstrap, topic)
        assert offsets_of(bootstrap, topic) == {}

    def test_a_topic_takes_its_offsets_along(self, bootstrap: str, topic: str) -> None:
        alter_offsets(bootstrap, topic, {(topic, 0): 5})
        delete_topics(bootstrap, topic)
        wait_until(lambda: offsets_of(bootstrap, topic) == {}, "the offsets to go")


class TestTransactions:
    def test_committed_offsets_appear(self, bootstrap: str, topic: str) -> None:
        transaction = OffsetTransaction(bootstrap, topic)
        transaction.send(topic, {(topic, 0): CommittedOffset(5, leader_epoch=1), (topic, 1): 6})
        assert offsets_of(bootstrap, topic) == {}
        transaction.commit()
        expected = {(topic, 0): CommittedOffset(5, leader_epoch=1), (topic, 1): CommittedOffset(6)}
        assert stable_offsets(bootstrap, topic, expected) == expected == offsets_of(bootstrap, topic)

    def test_aborted_offsets_do_not(self, bootstrap: str, topic: str) -> None:
        alter_offsets(bootstrap, topic, {(topic, 0): 1})
        transaction = OffsetTransaction(bootstrap, topic)
        transaction.send(topic, {(topic, 0): 5})
        transaction.abort()
        assert stable_offsets(bootstrap, topic, [(topic, 0)]) == {(topic, 0): CommittedOffset(1)}

    def test_an_open_transaction_holds_them_back(self, bootstrap: str, topic: str) -> None:
        transaction = OffsetTransaction(bootstrap, topic)
        transaction.send(topic, {(topic, 0): 5})
        assert offsets_of(bootstrap, topic) == {}
        assert commits_in_log(bootstrap, topic, topic) == []
        assert keys_with(bootstrap, topic, committed=False)
        transaction.abort()


class TestMembers:
    @pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=NEEDS_CONSUMERS)])
    def test_a_member_joins_and_leaves(self, bootstrap: str, topic: str, protocol: str) -> None:
        group = f"{topic}-{protocol}"
        with member(bootstrap, group, topic, protocol=protocol) as client:
            assert {partition.partition for partition in client.assignment()} == {0, 1}
        types = {key[:2] for key in keys_with(bootstrap, group)}
        assert (b"\x00\x02" if protocol == "classic" else b"\x00\x03") in types


class TestRawRecords:
    def test_any_bytes_go_into_a_topic_and_come_back(self, bootstrap: str, topic: str) -> None:
        records = [(b"k", b"v"), (None, b"\xff"), (b"", None), (None, None), (b"k", b"")]
        assert produce_raw(bootstrap, topic, records, partition=1, timestamp_ms=1234) == [0, 1, 2, 3, 4]
        found = read_raw(bootstrap, topic)
        assert [(record.key, record.value) for record in found] == records
        assert {(record.partition, record.timestamp_ms) for record in found} == {(1, 1234)}

    def test_they_go_into_the_offsets_topic(self, make_broker: BrokerFactory) -> None:
        bootstrap = make_broker(offsets_partitions=3).bootstrap_servers
        ensure_offsets_topic(bootstrap)
        [offset] = produce_raw(bootstrap, OFFSETS_TOPIC, [(b"\xff", None)], partition=2)
        [record] = read_raw(bootstrap)
        assert (record.partition, record.offset, record.key, record.value) == (2, offset, b"\xff", None)
        with pytest.raises(KafkaException) as refusal:
            produce_raw(bootstrap, OFFSETS_TOPIC, [(None, b"")])
        assert refusal.value.args[0].code() == KafkaError.INVALID_RECORD

    @pytest.mark.parametrize(
        "group", ["", "g", "a longer name", "\N{SNOWMAN}", "\U0001f600 emoji", "billing"]
    )
    def test_a_group_s_partition_is_known(self, bootstrap: str, topic: str, group: str) -> None:
        alter_offsets(bootstrap, group, {(topic, 0): 1})
        [record] = commits_in_log(bootstrap, group, topic)
        assert partition_of(group, 8) == record.partition
        delete_group(bootstrap, group)
