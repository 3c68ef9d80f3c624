"""What goes on in Kafka while the grid of faults is walked.

Groups with names of every kind, whose commits come and go, on a broker that the job reaches by a cable of its
own and with a password.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

import kafka_clients as kafka
import raw_requests
from cable import Cable
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    OffsetSpec,
    ResourceType,
)
from kafka_versions import KafkaVersion
from secured_broker import add_scram_user

from streaming.demo.broker_offsets import CommittedOffset, OffsetKey
from streaming.demo.local_broker import LocalBroker, free_ports

OFFSETS_PARTITIONS: Final = 2
USER: Final = "offsetlake"
PASSWORDS: Final = ("as agreed", "another one")

STAYING: Final = ("", "billing", "audit", "it's", "ünï-😀", "𠮷野家", "nul\x00a", "nul\x00b", "long" * 75)
"""Groups that go on committing; two differ only after a NUL."""

_LOGIN: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_LISTENER: Final = "SASL_PLAINTEXT"
_TOPICS: Final = {"orders": 2, "payments": 1, "many": 100}
_FILLERS: Final = ("filler-a", "filler-b")  # one in each of the two offsets partitions
_QUICK: Final = {
    "log.cleaner.backoff.ms": 100,
    "log.retention.check.interval.ms": 200,
    "log.initial.task.delay.ms": 200,
    "offset.metadata.max.bytes": 100_000,
}
_COMPACTED_AT_ONCE: Final = {
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0",
    "max.compaction.lag.ms": "500",
}


class World:
    """Groups on a broker, and what is done to the offsets topic behind their backs."""

    def __init__(self, broker: LocalBroker, cable: Cable) -> None:
        self.broker = broker
        self.cable = cable
        self._rounds = 0
        self._groups = {*STAYING}
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    @property
    def bootstrap(self) -> str:
        """Where tests connect: no password, no cable."""
        return self.broker.bootstrap_servers

    # --- groups ---

    def begin(self, backlog: int) -> None:
        """Make the topics; let each group commit, and one of them `backlog` records in all."""
        kafka.create_topics(self.bootstrap, _TOPICS)
        kafka.ensure_offsets_topic(self.bootstrap)
        for number in range(backlog // _TOPICS["many"]):
            offsets = {("many", partition): number for partition in range(_TOPICS["many"])}
            for group in _FILLERS:
                kafka.alter_offsets(self.bootstrap, group, offsets)
        self._groups |= {*_FILLERS}
        self.change()

    def change(self) -> None:
        """Let every group commit, one offset go, one group come, and the one that came last time go."""
        self._rounds += 1
        number = self._rounds
        for group in (*STAYING, *_FILLERS):
            metadata = CommittedOffset(number, metadata=group[:200] + "é" * number)
            offsets = {("orders", 0): metadata, ("orders", 1): number * 2, ("payments", 0): number}
            self._retrying(lambda group=group, offsets=offsets: self._commit(group, offsets))
        self._retrying(
            lambda: kafka.delete_offsets(self.bootstrap, STAYING[number % len(STAYING)], [("payments", 0)])
        )
        self._retrying(lambda: self._commit(f"passing-{number}", {("orders", 0): number}))
        if number > 1:
            self.remove(f"passing-{number - 1}")

    def remove(self, group: str) -> None:
        """Delete a group, if it is still there."""
        try:
            self._retrying(lambda: kafka.delete_group(self.bootstrap, group))
        except raw_requests.RequestError as error:
            if "GROUP_ID_NOT_FOUND" not in str(error):
                raise

    def offsets(self) -> dict[OffsetKey, CommittedOffset]:
        """Return what the broker answers about all groups there ever were."""
        return {
            OffsetKey(group, topic, partition): committed
            for group in sorted(self._groups)
            for (topic, partition), committed in self._retrying(
                lambda group=group: raw_requests.offset_fetch(self.bootstrap, group)
            ).items()
        }

    # --- the offsets topic ---

    def compact(self) -> None:
        """Let compaction take all but the newest commits, and keep tombstones as they are."""
        superseded = self._superseded()
        self.configure(**_COMPACTED_AT_ONCE)
        kafka.wait_until(lambda: self._fill() and not superseded & self._places(), "compaction", timeout_s=60)

    def lose_tombstones(self, kept_ms: int) -> None:
        """Remove a group, and let compaction take both its commits and its tombstones."""
        group = f"passing-{self._rounds}"
        self.configure(**_COMPACTED_AT_ONCE, **{"delete.retention.ms": str(kept_ms)})
        self.remove(group)
        name = group.encode()
        kafka.wait_until(
            lambda: (
                self._fill()
                and not any(name in (record.key or b"") for record in kafka.read_raw(self.bootstrap))
            ),
            f"all records of {group} to be compacted away",
            timeout_s=60,
        )

    def keep_tombstones(self) -> None:
        """Keep tombstones for a day from now on."""
        self.configure(**{"delete.retention.ms": "86400000"})

    def delete_records(self) -> None:
        """Delete all records of the offsets topic, then let the groups commit what the coordinator still
        remembers: log and coordinator agree again."""
        remembered: dict[str, dict[tuple[str, int], CommittedOffset]] = {}
        self.configure(**{"cleanup.policy": "compact,delete", "retention.ms": "1", "segment.ms": "100"})
        kafka.wait_until(
            lambda: self._log_ends("earliest") == self._log_ends("latest"),
            "retention",
            timeout_s=60,
        )
        self.configure(**{"cleanup.policy": "compact", "retention.ms": "-1", "segment.ms": "604800000"})
        time.sleep(1.5)  # the log takes the settings a moment later; what comes now would be deleted, too
        for key, committed in self.offsets().items():
            remembered.setdefault(key.group, {})[key.topic, key.partition] = committed
        for group, offsets in remembered.items():
            self._retrying(lambda group=group, offsets=offsets: self._commit(group, offsets))

    def add_partitions(self) -> None:
        """Give the offsets topic another partition; coordinators know of it after a restart."""
        new = NewPartitions(kafka.OFFSETS_TOPIC, OFFSETS_PARTITIONS + 1)
        self._admin.create_partitions([new])[kafka.OFFSETS_TOPIC].result(20)
        self.broker.restart()

    def make_topic_anew(self) -> None:
        """Delete the offsets topic; the broker makes it anew."""
        kafka.delete_topics(self.bootstrap, kafka.OFFSETS_TOPIC)
        kafka.wait_until(lambda: not self._has_offsets_topic(), "the topic to be gone")
        kafka.ensure_offsets_topic(self.bootstrap)
        kafka.wait_until(self._has_offsets_topic, "the topic to be there again")

    def configure(self, **settings: str) -> None:
        """Change settings of the offsets topic."""
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, kafka.OFFSETS_TOPIC, incremental_configs=entries)
        for future in self._admin.incremental_alter_configs([resource]).values():
            future.result(20)

    # --- the job's user ---

    def set_password(self, password: str) -> None:
        """Change the password of the job's user, and end the connections that it has."""
        add_scram_user(self.bootstrap, USER, password)
        self.cable.cut()
        self.cable.mend()

    # --- helpers ---

    def _commit(self, group: str, offsets: Mapping[tuple[str, int], Any]) -> None:
        self._groups.add(group)
        kafka.alter_offsets(self.bootstrap, group, offsets)

    def _fill(self) -> bool:
        """Commit once more in each offsets partition, and a little later: a segment ends with an append."""
        time.sleep(0.2)
        for group in _FILLERS:
            self._retrying(lambda group=group: self._commit(group, {("payments", 0): self._rounds}))
        return True

    def _superseded(self) -> set[tuple[int, int]]:
        newest: dict[bytes, tuple[int, int]] = {}
        for record in kafka.read_raw(self.bootstrap):
            newest[record.key or b""] = record.partition, record.offset
        return self._places() - {*newest.values()}

    def _places(self) -> set[tuple[int, int]]:
        return {(record.partition, record.offset) for record in kafka.read_raw(self.bootstrap)}

    def _log_ends(self, which: Literal["earliest", "latest"]) -> dict[int, int]:
        spec: OffsetSpec = getattr(OffsetSpec, which)()
        asked = {TopicPartition(kafka.OFFSETS_TOPIC, number): spec for number in range(OFFSETS_PARTITIONS)}
        answers = self._admin.list_offsets(asked)
        return {partition.partition: future.result(20).offset for partition, future in answers.items()}

    def _has_offsets_topic(self) -> bool:
        return kafka.OFFSETS_TOPIC in self._admin.list_topics(timeout=20).topics

    @staticmethod
    def _retrying(request: Any) -> Any:
        """Ask again while a coordinator is on its way: after a restart, or in a topic recreated."""
        deadline = time.monotonic() + 30
        while True:
            try:
                return request()
            except (raw_requests.RequestError, KafkaException, OSError) as error:
                is_passing = isinstance(error, OSError) or "COORDINATOR" in str(error)
                if not is_passing or time.monotonic() > deadline:
                    raise
                time.sleep(0.2)


@contextmanager
def world(directory: Path, version: KafkaVersion) -> Iterator[World]:
    """Run a broker of a release, with the cable and the user of the job."""
    [port] = free_ports(1)
    listener = f"listener.name.{_LISTENER.lower()}"
    overrides = {
        **_QUICK,
        f"{listener}.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        f"{listener}.scram-sha-512.sasl.jaas.config": f"{_LOGIN} required;",
    }
    broker = version.broker(
        directory,
        offsets_partitions=OFFSETS_PARTITIONS,
        listeners=[_LISTENER],
        advertised={_LISTENER: port},
        overrides=overrides,
    )
    target = int(broker.bootstrap_servers_of(_LISTENER).rpartition(":")[2])
    with broker, Cable(port, target) as cable:
        add_scram_user(broker.bootstrap_servers, USER, PASSWORDS[0])
        yield World(broker, cable)


def client_properties(file: Path) -> Path:
    """Write the --command-config file of the job's user."""
    login = f'{_LOGIN} required username="{USER}" password="{PASSWORDS[0]}";'
    settings = {
        "security.protocol": _LISTENER,
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": login,
    }
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return file
