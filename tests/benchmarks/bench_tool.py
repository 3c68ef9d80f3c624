"""How long `kafka-consumer-groups --describe --all-groups` takes: `python -m tests.benchmarks --only tool`.

Of 1,000 groups, half of them of the consumer protocol, with two members and ten committed partitions each:
asked of the broker that has them and of `offsetlake serve` over tables of its topic, in turns, each time as a
process of its own. The groups are copies of ones that real members made, loaded by the broker when it starts
again; none of their members comes back, so sessions are longer than the benchmark.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import kafka_clients as kafka
import raw_requests
from consumer_groups_tool import consumer_groups
from group_actors import QUICK, GroupActors, start_group_actors
from processes import processor_seconds
from replayed_tables import replay_broker

from streaming.demo.local_broker import LocalBroker
from streaming.jvm.jars import ensure_jars
from streaming.tables.tables import Tables
from tests.benchmarks.bench_serve import served

OFFSETS_PARTITIONS: Final = 8
TOPICS: Final = {f"topic-{number}": 10 for number in range(5)}
LONG_MS: Final = 1_800_000  # the longest that a broker takes by default
SESSIONS: Final = {
    "group.consumer.session.timeout.ms": LONG_MS,
    "group.consumer.max.session.timeout.ms": LONG_MS,
}
ASKED: Final = ("--describe", "--all-groups")

Records = dict[bytes, bytes]


def measure_tool(*, groups: int, runs: int) -> None:
    """Make the groups, ask for all of them in turns, and print what it took."""
    with tempfile.TemporaryDirectory(prefix="offsetlake-bench-") as directory:
        root = Path(directory)
        options = {"offsets_partitions": OFFSETS_PARTITIONS, "overrides": QUICK | SESSIONS, "heap": "1g"}
        with LocalBroker(root / "broker", **options) as broker:  # type: ignore[arg-type]
            _fill(broker, groups)
            broker.restart()
            kafka.wait_until(lambda: _quiet(broker.pid), "the broker to be quiet", timeout_s=300)
            tables = Tables(str(root / "tables"))
            tables.create()
            replay_broker(tables, broker.bootstrap_servers, OFFSETS_PARTITIONS)
            with served(root) as (port, pid):
                print(f"\n{' '.join(ASKED)} of {groups:,} groups with two members each, {runs} times")
                _measure(
                    {
                        "broker": (broker.bootstrap_servers, broker.pid),
                        "offsetlake serve": (f"127.0.0.1:{port}", pid),
                    },
                    groups,
                    runs,
                )


def _measure(asked: Mapping[str, tuple[str, int]], groups: int, runs: int) -> None:
    walls: dict[str, list[float]] = {name: [] for name in asked}
    servers: dict[str, list[float]] = {name: [] for name in asked}
    tools: dict[str, list[float]] = {name: [] for name in asked}
    printed: dict[str, list[str]] = {}
    for _ in range(runs):
        for name, (bootstrap, pid) in asked.items():
            with _timed(pid) as took:
                told = consumer_groups(bootstrap, *ASKED, timeout_s=600)
            printed[name] = sorted(line for line in told.splitlines() if line)
            for figures, figure in zip((walls, servers, tools), took, strict=True):
                figures[name].append(figure)
    [expected, found] = printed.values()
    assert found == expected
    assert len([line for line in found if line.startswith("copy-")]) == groups * 10
    print(f"{'':20}{'elapsed':>10}{'processor time, server':>25}{'tool':>8}")
    for name in asked:
        wall, server, tool = (statistics.median(one[name]) for one in (walls, servers, tools))
        shown = ", ".join(f"{one:.1f}" for one in walls[name])
        print(f"{name:20}{wall:8.1f} s{server:23.1f} s{tool:6.1f} s   ({shown})")


@contextmanager
def _timed(pid: int) -> Iterator[list[float]]:
    """Give seconds, at the end of the block: elapsed, of the server's processor time, of the tool's."""
    took: list[float] = []
    began = (time.perf_counter(), _cpu(pid), _of_children())
    yield took
    took += [
        now - then for now, then in zip((time.perf_counter(), _cpu(pid), _of_children()), began, strict=True)
    ]


def _cpu(pid: int) -> float:
    return sum(processor_seconds({pid: "server"}).values())


def _of_children() -> float:
    """The processor time of processes that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def _quiet(pid: int) -> bool:
    before = _cpu(pid)
    time.sleep(2)
    return _cpu(pid) - before < 0.1


# --- the groups -------------------------------------------------------------------------------------------


def _fill(broker: LocalBroker, groups: int) -> None:
    """Let real members make a group of each protocol for each topic, and write copies of their records."""
    bootstrap = broker.bootstrap_servers
    kafka.create_topics(bootstrap, TOPICS)
    for topic, partitions in TOPICS.items():
        for partition in range(partitions):
            kafka.produce_raw(bootstrap, topic, [(b"k", b"v")] * 20, partition=partition)
    with start_group_actors(ensure_jars("broker"), bootstrap) as actors:
        models = _models(bootstrap, actors)
        newest: dict[str, Records] = {name: {} for name in models}
        for record in kafka.read_raw(bootstrap):
            name = _group_of(record.key or b"")
            if name in newest and record.key and record.value:
                newest[name][record.key] = record.value
    by_partition: dict[int, list[tuple[bytes | None, bytes | None]]] = {}
    for number in range(groups):
        name, group = models[number % len(models)], f"copy-{number:04}"
        copies = by_partition.setdefault(kafka.partition_of(group, OFFSETS_PARTITIONS), [])
        copies += [(_of_group(key, group), value) for key, value in newest[name].items()]
    for partition, records in by_partition.items():
        kafka.produce_raw(bootstrap, kafka.OFFSETS_TOPIC, records, partition=partition)


def _models(bootstrap: str, actors: GroupActors) -> list[str]:
    """Start the groups that are copied; gives their names, when all is settled."""
    names = []
    for number, topic in enumerate(TOPICS):
        for kind in ("classic", "consumer"):
            name = f"{kind}-{number}"
            raw_requests.offset_commit(
                bootstrap, name, {(topic, one): kafka.CommittedOffset(one) for one in range(TOPICS[topic])}
            )
            config = {"session.timeout.ms": str(LONG_MS)} if kind == "classic" else {}
            for member in "ab":
                actors.join(f"{name}-{member}", kind, name, topic, config=config)
            names.append(name)

    def are_settled() -> bool:
        seen = {name: actors.groups()[name] for name in names}
        return all(
            one["state"] == "Stable"
            and len(one["members"]) == 2
            and all(member["assignment"] for member in one["members"])
            for one in seen.values()
        )

    kafka.wait_until(are_settled, "the groups to settle", timeout_s=120)
    return names


def _group_of(key: bytes) -> str:
    """The group of a key: its first field, after the record type."""
    return key[4 : 4 + int.from_bytes(key[2:4])].decode(errors="replace")


def _of_group(key: bytes, group: str) -> bytes:
    """The same key of another group."""
    rest = key[4 + int.from_bytes(key[2:4]) :]
    return key[:2] + len(group).to_bytes(2) + group.encode() + rest
