"""The same question to a broker and to the tables, group by group: the answers are the same."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import flexible_requests as broker_api
import kafka_clients as kafka
import pytest
from confluent_kafka import KafkaError
from kafka_clients import OffsetTransaction
from kafka_versions import Feature, KafkaVersion
from pyspark.sql import SparkSession
from running_job import RunningJob

from streaming.brokers.broker import Broker
from streaming.demo.broker_offsets import CommittedOffset
from streaming.demo.local_broker import LocalBroker
from streaming.lag.log_ranges import with_log_ends
from streaming.queries.offsets import OffsetQueries
from streaming.settings.reading import read_settings

pytestmark = [pytest.mark.spark, pytest.mark.broker]

TOPIC, OTHER = "answers-orders", "answers-payments"
FETCHED: dict[str, list[tuple[str, int]] | None] = {
    "answers-simple": None,
    "answers-none": [],
    "answers-some": [(TOPIC, 1), (TOPIC, 0), (TOPIC, 7), ("answers-no-topic", 0)],
    "answers-metadata": None,
    "answers-unknown": None,
    "answers-nobody": [(TOPIC, 0)],
    "answers-classic": None,
    "answers-consumer": [(TOPIC, 0), (TOPIC, 1)],
    "answers-deleted": None,
    "answers-offsets-deleted": [(TOPIC, 0), (TOPIC, 1)],
    "answers-aborted": None,
    "answers-committed": None,
    "answers-open": [(TOPIC, 0), (TOPIC, 1)],
    "answers-rewound": None,
    "": [(TOPIC, 0), (OTHER, 1)],
}


@pytest.fixture(scope="module")
def queries(
    spark: SparkSession,
    broker: LocalBroker,
    kafka_version: KafkaVersion,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[OffsetQueries]:
    """The tables of a job that has read everything, while the members and a transaction are still there."""
    bootstrap = broker.bootstrap_servers
    kafka.create_topics(bootstrap, {TOPIC: 2, OTHER: 2})
    for group in ("simple", "none", "some", "deleted", "offsets-deleted", "aborted", "open"):
        kafka.alter_offsets(bootstrap, f"answers-{group}", {(TOPIC, 0): 3, (TOPIC, 1): 4})
    metadata = CommittedOffset(9, leader_epoch=2, metadata='{"ü": "😀"}')
    kafka.alter_offsets(bootstrap, "answers-metadata", {(OTHER, 0): metadata})
    kafka.alter_offsets(bootstrap, "", {(TOPIC, 0): 8})
    kafka.alter_offsets(bootstrap, "answers-rewound", {(TOPIC, 0): 8})
    kafka.alter_offsets(bootstrap, "answers-rewound", {(TOPIC, 0): 2})
    kafka.delete_group(bootstrap, "answers-deleted")
    kafka.delete_offsets(bootstrap, "answers-offsets-deleted", [(TOPIC, 0)])
    with ExitStack() as stack:
        protocol = "consumer" if kafka_version.has(Feature.CONSUMER_PROTOCOL) else "classic"
        stack.enter_context(kafka.member(bootstrap, "answers-classic", TOPIC))
        stack.enter_context(kafka.member(bootstrap, "answers-consumer", TOPIC, protocol=protocol))
        kafka.wait_until(lambda: states_of(bootstrap) == WANTED, "the groups to settle")
        for group in ("committed", "aborted", "open"):
            transaction = OffsetTransaction(bootstrap, f"answers-{group}")
            transaction.send(f"answers-{group}", {(TOPIC, 0): 50})
            if group == "open":  # the last, since it holds back what comes after it
                stack.callback(transaction.abort)
            else:
                transaction.commit() if group == "committed" else transaction.abort()
                kafka.stable_offsets(bootstrap, f"answers-{group}", [(TOPIC, 0)])
        job = RunningJob(spark, bootstrap, tmp_path_factory.mktemp("job"))
        yield OffsetQueries(job.run_once())


WANTED = {"answers-classic": "Stable", "answers-consumer": "Stable"}


def states_of(bootstrap: str) -> dict[str, str]:
    return {one.group: one.state for one in broker_api.list_groups(bootstrap) if one.group in WANTED}


def test_offset_fetch_of_many_groups(queries: OffsetQueries, broker: LocalBroker) -> None:
    ours = queries.fetch_offsets(dict(FETCHED)).groups
    theirs = broker_api.offset_fetch(broker.bootstrap_servers, FETCHED)
    assert [group.group for group in theirs] == list(FETCHED)
    for answer in theirs:
        said = {
            (topic.name, one.index): (one.offset, one.leader_epoch, one.metadata)
            for topic in answer.topics
            for one in topic.partitions
            if one.error == 0
        }
        found = {
            (one.topic, one.partition): (one.committed_offset, one.leader_epoch, one.metadata)
            for one in ours[answer.group].partitions
        }
        assert (answer.group, answer.error, said) == (answer.group, 0, found)
        assert ours[answer.group].error is None


FILTERS: list[Any] = [
    ([], []),
    (["Stable"], []),
    (["Stable", "Empty"], []),
    pytest.param([" sTABLE "], [], marks=pytest.mark.needs(Feature.LENIENT_STATE_FILTERS)),
    (["Dying"], []),
    (["Dying", "empty"], []),
    ([""], []),
    ([], ["consumer"]),
    ([], ["Classic"]),
    ([], [" classic"]),
    ([], ["nothing"]),
    (["Stable"], ["classic", "share"]),
]


@pytest.mark.parametrize(("states", "types"), FILTERS)
def test_list_groups_with_filters(
    queries: OffsetQueries, broker: LocalBroker, states: list[str], types: list[str]
) -> None:
    def ours(group: Any) -> bool:
        return group.group.startswith("answers-") or not group.group

    theirs = broker_api.list_groups(broker.bootstrap_servers, states, types)
    found = queries.list_groups(states, types).groups
    wanted = {(one.group, one.type, one.state, one.protocol_type) for one in theirs if ours(one)}
    assert {(one.group, one.type, one.state, one.protocol_type) for one in found if ours(one)} == wanted


@pytest.mark.needs(Feature.DESCRIBE_GROUPS_6)
def test_describe_groups(queries: OffsetQueries, broker: LocalBroker) -> None:
    asked = ["answers-simple", "answers-classic", "answers-unknown", "answers-deleted", ""]
    ours = queries.describe_groups(asked).groups
    for theirs in broker_api.describe_groups(broker.bootstrap_servers, asked):
        mine = ours[theirs.group]
        error = KafkaError(theirs.error).name() if theirs.error else None
        assert (mine.error, mine.state, mine.protocol_type) == (error, theirs.state, theirs.protocol_type)
        assert (mine.protocol or "") == theirs.protocol
        assert {(m.member_id, m.client_id, m.client_host) for m in mine.members} == {
            (m.member_id, m.client_id, m.client_host) for m in theirs.members
        }


def test_lag_is_what_the_broker_s_end_offsets_make_it(queries: OffsetQueries, broker: LocalBroker) -> None:
    source = read_settings(options={"source.bootstrap_servers": broker.bootstrap_servers}).source
    ranges = Broker(source).log_ranges([(TOPIC, 0), (TOPIC, 1)])
    rows = with_log_ends(
        queries.list_offsets(["answers-some"]).rows, {key: r.latest for key, r in ranges.items()}
    )
    assert rows["lag"].to_pylist() == [-3, -4]  # nothing was ever produced
