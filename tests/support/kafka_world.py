"""Groups of every type on a real broker, settled, and tables that say the same."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import kafka_clients as kafka
import raw_requests
from authorized import PROTOCOL, WITH_USERS
from group_actors import QUICK, GroupActors, start_group_actors
from kafka_versions import Feature, KafkaVersion
from new_tables import new_tables
from replayed_tables import replay_broker

from streaming.demo.broker_offsets import CommittedOffset
from streaming.demo.local_broker import LocalBroker
from streaming.tables.tables import Tables

PARTITIONS = 3

MEMBERS: Final[dict[str, tuple[str, str, tuple[str, ...], dict[str, Any]]]] = {
    # name: kind, group, topics, and more
    "classic-1": ("classic", "classic", ("orders", "payments"), {}),
    "classic-2": ("classic", "classic", ("payments",), {}),
    "static-1": ("classic", "static", ("orders",), {"config": {"group.instance.id": "instance"}}),
    "connect-1": ("raw", "connect", (), {}),
    "consumer-1": ("consumer", "consumer", ("orders", "payments"), {}),
    "consumer-2": ("consumer", "consumer", ("orders",), {}),
    "range-1": ("consumer", "range", ("orders",), {"config": {"group.remote.assignor": "range"}}),
    "regex-1": ("consumer", "regex", (), {"regex": "o.*"}),
    "share-1": ("share", "share", ("orders",), {}),
    "streams-1": ("streams", "streams", ("orders",), {}),
}
NEEDS = {
    "consumer": Feature.CONSUMER_PROTOCOL,
    "range": Feature.CONSUMER_PROTOCOL,
    "regex": Feature.SUBSCRIPTION_PATTERNS,
    "share": Feature.SHARE_GROUPS,
    "streams": Feature.STREAMS_GROUPS,
}
SIMPLE = ("simple", "ünïcode 消費者", "transactional")
ORDERS, PAYMENTS, EMPTY = "orders", "payments", "empty"


@dataclass
class World:
    """The broker, the groups that it has, and the tables."""

    broker: LocalBroker
    actors: GroupActors
    groups: list[str]
    tables: Tables

    @property
    def bootstrap(self) -> str:
        """What clients of the broker connect to."""
        return self.broker.bootstrap_servers

    @contextmanager
    def with_empty_id(self, directory: Path) -> Iterator[Tables]:
        """Let there be a group whose id is empty until the end of the block; gives tables that have it.

        Kafka's own command describes no groups at all while there is one.
        """
        _commit(self.bootstrap, "", 4)
        tables = new_tables(directory / "tables")
        replay_broker(tables, self.bootstrap, PARTITIONS)
        yield tables
        kafka.delete_group(self.bootstrap, "")

    @contextmanager
    def with_readers_of_empty(self, directory: Path, kinds: Sequence[str]) -> Iterator[Tables]:
        """Let there be a group of each kind, `reader-KIND`, that has the only partition of a topic of which
        nobody has ever committed an offset, until the end of the block; gives tables that have them."""
        groups = {kind: f"reader-{kind}" for kind in kinds}
        for kind, group in groups.items():
            self.actors.join(group, kind, group, EMPTY)
        _settle(self.actors, set(groups.values()))
        tables = new_tables(directory / "tables")
        replay_broker(tables, self.bootstrap, PARTITIONS)
        yield tables
        for group in groups.values():
            self.actors.leave(group)
        self.actors.delete(list(groups.values()))


@contextmanager
def kafka_world(version: KafkaVersion, java_jars: Path, directory: Path) -> Iterator[World]:
    """Start a broker and members of groups, and write tables once all is settled."""
    options: dict[str, Any] = {
        "offsets_partitions": PARTITIONS,
        "overrides": {**QUICK, **WITH_USERS},
        "listeners": (PROTOCOL,),
    }
    with (
        version.broker(directory / "broker", **options) as broker,
        start_group_actors(java_jars, broker.bootstrap_servers) as actors,
    ):
        bootstrap = broker.bootstrap_servers
        kafka.create_topics(bootstrap, {ORDERS: 2, PAYMENTS: 2, EMPTY: 1})
        for topic, partition, count in ((ORDERS, 0, 20), (ORDERS, 1, 10), (PAYMENTS, 0, 5)):
            kafka.produce_raw(bootstrap, topic, [(b"k", b"v")] * count, partition=partition)
        _commit(bootstrap, "simple", 3)
        _commit(bootstrap, "ünïcode 消費者", 5)
        _commit_in_a_transaction(bootstrap)
        members = {
            name: member
            for name, member in MEMBERS.items()
            if member[1] not in NEEDS or version.has(NEEDS[member[1]])
        }
        for name, (kind, group, topics, more) in members.items():
            actors.join(name, kind, group, *topics, **more)
        _settle(actors, {group for _, group, _, _ in members.values()})
        tables = new_tables(directory / "tables")
        replay_broker(tables, bootstrap, PARTITIONS)
        groups = [*dict.fromkeys(group for _, group, _, _ in members.values()), *SIMPLE]
        yield World(broker, actors, groups, tables)


def _commit(bootstrap: str, group: str, offset: int) -> None:
    committed = CommittedOffset(offset, 0, f"metadata {group}")
    nothing = CommittedOffset(0, None, "")
    offsets = {(ORDERS, 0): committed, (PAYMENTS, 0): nothing, (PAYMENTS, 1): nothing}
    raw_requests.offset_commit(bootstrap, group, offsets)


def _commit_in_a_transaction(bootstrap: str) -> None:
    transaction = kafka.OffsetTransaction(bootstrap, "t1")
    transaction.send("transactional", {(ORDERS, 1): 7})
    transaction.commit()
    kafka.stable_offsets(bootstrap, "transactional", [(ORDERS, 1)])


def _is_assigned(group: dict[str, Any]) -> bool:
    """Whether members have what they wait for: share groups are stable before they have partitions."""
    return group["type"] != "share" or all(member["assignment"] for member in group["members"])


def _settle(actors: GroupActors, groups: set[str]) -> None:
    seen: list[dict[str, Any]] = [{}]

    def are_settled() -> bool:
        seen.append(actors.groups())
        states = {name: group["state"] for name, group in seen[-1].items() if name in groups}
        is_assigned = all(_is_assigned(group) for name, group in seen[-1].items() if name in groups)
        return states == dict.fromkeys(groups, "Stable") and is_assigned and seen[-1] == seen[-2]

    kafka.wait_until(are_settled, "the groups to settle", timeout_s=40)
