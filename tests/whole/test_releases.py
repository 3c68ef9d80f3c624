"""The whole job against brokers of every release that we support: its tables equal the broker's answers.

Only `make test-more` runs this: all other tests ask the default release, or the one that KAFKA names. The job
runs on the shared Spark session: a process of its own for each release would cost a minute.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import flexible_requests as broker_api
import kafka_clients as kafka
import pytest
from history_checks import check_history, table_offsets
from kafka_clients import OffsetTransaction
from kafka_versions import VERSIONS, Feature, KafkaVersion
from pyspark.sql import SparkSession
from running_job import RunningJob

from streaming.demo.broker_offsets import CommittedOffset

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.more]

APIS = {
    Feature.SHARE_GROUPS: (76, 0),  # ShareGroupHeartbeat
    Feature.STREAMS_GROUPS: (88, 0),  # StreamsGroupHeartbeat
    Feature.TOPIC_IDS: (8, 10),  # OffsetCommit
    Feature.DESCRIBE_GROUPS_6: (15, 6),
    Feature.SUBSCRIPTION_PATTERNS: (68, 1),  # ConsumerGroupHeartbeat
}
"""The request, and its version, that only brokers with the feature answer."""


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> KafkaVersion:
    return VERSIONS[request.param]


@pytest.fixture(scope="module")
def bootstrap(version: KafkaVersion, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with version.broker(tmp_path_factory.mktemp("broker"), offsets_partitions=3) as broker:
        yield broker.bootstrap_servers


def make_traffic(bootstrap: str, version: KafkaVersion, members: ExitStack) -> None:
    """Do what groups do: commits of every kind, deletions, transactions, and members that stay."""
    kafka.create_topics(bootstrap, {"orders": 2, "gone": 1})
    kafka.commit_offsets(bootstrap, "simple", {("orders", 0): 5, ("orders", 1): 7})
    kafka.commit_offsets(bootstrap, "simple", {("orders", 0): 2})
    for group in ("", "deleted", "part", "ünï-😀"):
        noted = CommittedOffset(9, leader_epoch=2, metadata='{"ü": "😀"}')
        kafka.alter_offsets(bootstrap, group, {("orders", 0): noted, ("orders", 1): 4, ("gone", 0): 1})
    kafka.commit_with_retention(bootstrap, "old", {("orders", 0): 3}, retention_ms=86_400_000)
    kafka.delete_group(bootstrap, "deleted")
    kafka.delete_offsets(bootstrap, "part", [("orders", 1)])
    kafka.delete_topics(bootstrap, "gone")
    for group, end in (("committed", OffsetTransaction.commit), ("aborted", OffsetTransaction.abort)):
        kafka.alter_offsets(bootstrap, group, {("orders", 0): 8})
        transaction = OffsetTransaction(bootstrap, group)
        transaction.send(group, {("orders", 0): 50})
        end(transaction)
        kafka.stable_offsets(bootstrap, group, [("orders", 0)])
    for protocol in protocols(version):
        members.enter_context(kafka.member(bootstrap, f"{protocol}-here", "orders", protocol=protocol))
        with kafka.member(bootstrap, f"{protocol}-left", "orders", protocol=protocol):
            pass
    kafka.wait_until(lambda: has_settled(bootstrap, version), "the groups to settle")


def has_settled(bootstrap: str, version: KafkaVersion) -> bool:
    """Tell whether members have joined or left, and the offsets of the deleted topic are gone."""
    here = {f"{protocol}-here": "Stable" for protocol in protocols(version)}
    left = {f"{protocol}-left": "Empty" for protocol in protocols(version)}
    states = {group: state for group, _, state, _ in groups_of(bootstrap)}
    return states.items() >= (here | left).items() and not any(
        key.topic == "gone" for key in kafka.broker_offsets(bootstrap)
    )


def protocols(version: KafkaVersion) -> list[str]:
    return ["classic", "consumer"] if version.has(Feature.CONSUMER_PROTOCOL) else ["classic"]


def groups_of(bootstrap: str) -> set[tuple[str, str, str, str]]:
    """Return what the broker lists: group, type, state and protocol type."""
    return {(one.group, one.type, one.state, one.protocol_type) for one in broker_api.list_groups(bootstrap)}


def test_the_tables_equal_the_answers_of_a_broker_of_each_release(
    version: KafkaVersion, bootstrap: str, spark: SparkSession, tmp_path: Path
) -> None:
    with ExitStack() as members:
        make_traffic(bootstrap, version, members)
        tables = RunningJob(spark, bootstrap, tmp_path).run_once()
        rows = tables.read().groups.to_pylist()
        found = {(row["group"], row["type"], row["state"], row["protocol_type"]) for row in rows}
        assert found == groups_of(bootstrap)
        assert table_offsets(tables) == kafka.broker_offsets(bootstrap)
    totals = tables.progress().totals
    assert (totals.malformed, totals.unknown) == (0, ())
    check_history(tables)


def test_the_table_of_features_is_what_the_broker_says(version: KafkaVersion, bootstrap: str) -> None:
    latest = broker_api.latest_versions(bootstrap)
    says = {feature for feature, (api, least) in APIS.items() if latest.get(api, -1) >= least}
    assert says == {feature for feature in APIS if version.has(feature)}
