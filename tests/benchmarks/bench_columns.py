"""How many records a second the decoders read, on one core: `python -m tests.benchmarks.bench_columns`.

Every rate is the best of many short runs, which says most on a busy machine. Targets: 2 M offset commits a
second and 50 times construct's parse; with 1 % other records 80 % of that; garbage 10 %.

Last seen, on two shared cores with Python 3.11, numpy 2.4 and pyarrow 26:

    workload                   records/s  of commits  x construct
    commits, all versions      3,957,073      100.0%         79.4
    commits, v3                4,868,711      123.0%         97.7
    commits, v4                3,302,210       83.5%         66.3
    1 % other records          3,043,050       76.9%         61.1
    10 % other records         1,227,697       31.0%         24.6
    other records only           147,607        3.7%          3.0
    garbage                      385,054        9.7%          7.7
    construct's parse             49,837        1.3%          1.0
    decode_document               34,814        0.9%          0.7
"""

import argparse
import random
import time
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from decoders import RECORD_TYPES, decode_columns, decode_document
from decoders.consumer_protocol import SUBSCRIPTION_VERSIONS
from decoders.wire import INT16

Record = tuple[bytes | None, bytes | None]

POOL_SIZE = 20_000  # different records; a larger batch repeats them


def offset_commit(rng: random.Random, version: int) -> Record:
    """One commit among 500 groups and 50 topics; with a topic id where the version has one."""
    number = rng.randrange(500)
    key = {
        "group": f"consumer-group-{number}",
        "topic": f"orders-{number % 50}",
        "partition": rng.randrange(64),
    }
    value = {
        "offset": rng.randrange(10**9),
        "leaderEpoch": rng.randrange(-1, 30),
        "metadata": rng.choice(["", "", "", "host-7 d1f0"]),
        "commitTimestamp": 1_700_000_000_000 + rng.randrange(10**9),
        "expireTimestamp": 1_800_000_000_000,
        "topicId": f"{number % 50:022d}",
    }
    return build(1, key, version, value)


def other_record(rng: random.Random) -> Record:
    """One of the records that keep groups going: types 2, 3, 5, 7 and 8."""
    number = rng.randrange(500)
    host = f"/10.0.{number % 256}.7"
    topic_partitions = [
        {"topicId": f"{number + topic:022d}", "partitions": list(range(rng.randrange(8)))}
        for topic in range(2)
    ]
    member = {"groupId": f"consumer-group-{number}", "memberId": f"consumer-{number}-4fb1d3c2-9a0e"}
    type_id = rng.choice([2, 3, 5, 7, 8])
    match type_id:
        case 2:
            members = [classic_member(number, host) for _ in range(rng.randint(1, 2))]
            value = {
                "protocolType": "consumer",
                "generation": number,
                "protocol": "range",
                "leader": members[0]["memberId"],
                "currentStateTimestamp": 1_700_000_000_000,
                "members": members,
            }
            return build(2, {"group": member["groupId"]}, 3, value)
        case 3:
            return build(
                3, {"groupId": member["groupId"]}, 0, {"epoch": number, "metadataHash": number << 40}
            )
        case 5:
            value = {
                "instanceId": None,
                "rackId": None,
                "clientId": f"consumer-{number}",
                "clientHost": host,
                "subscribedTopicNames": ["orders-1", "orders-2"],
                "subscribedTopicRegex": None,
                "rebalanceTimeoutMs": 300_000,
                "serverAssignor": None,
                "classicMemberMetadata": None,
            }
            return build(5, member, 0, value)
        case 7:
            return build(7, member, 0, {"topicPartitions": topic_partitions})
        case _:
            value = {
                "memberEpoch": number,
                "previousMemberEpoch": number - 1,
                "state": 0,
                "assignedPartitions": topic_partitions,
                "partitionsPendingRevocation": [],
            }
            return build(8, member, 0, value)


def classic_member(number: int, host: str) -> dict[str, Any]:
    """A member of a classic group, subscribed to two topics."""
    subscription = {
        "topics": ["orders-1", "orders-2"],
        "userData": None,
        "ownedPartitions": [],
        "generationId": -1,
        "rackId": None,
    }
    return {
        "memberId": f"consumer-{number}-4fb1d3c2-9a0e-4c5f-8f1d-0d6d6f1f2a3b",
        "groupInstanceId": None,
        "clientId": f"consumer-{number}",
        "clientHost": host,
        "rebalanceTimeout": 300_000,
        "sessionTimeout": 45_000,
        "subscription": b"\0\3" + SUBSCRIPTION_VERSIONS[3].build(subscription),
        "assignment": bytes(50),
    }


def build(type_id: int, key: dict[str, Any], version: int, value: dict[str, Any]) -> Record:
    """The bytes of a record, from its declarations."""
    kind = RECORD_TYPES[type_id]
    return (
        INT16.build(type_id) + kind.key.build(key),
        INT16.build(version) + kind.values[version].build(value),
    )


def garbage(rng: random.Random) -> Record:
    """Random bytes, some behind the prefixes of an offset commit, and commits cut short."""
    match rng.randrange(4):
        case 0:
            return rng.randbytes(rng.randrange(60)), rng.randbytes(rng.randrange(60))
        case 1:
            return b"\0\1" + rng.randbytes(30), rng.randbytes(40)
        case 2:
            key, _ = offset_commit(rng, 3)
            return key, b"\0" + bytes([rng.randrange(5)]) + rng.randbytes(20)
        case _:
            key, value = offset_commit(rng, rng.randrange(5))
            return key, (value or b"")[: rng.randrange(2, 20)]


def mixed(rng: random.Random, others: float) -> Record:
    """An offset commit of any version, or one of the given share of other records."""
    return other_record(rng) if rng.random() < others else offset_commit(rng, rng.randrange(5))


WORKLOADS: dict[str, Callable[[random.Random], Record]] = {
    "commits, all versions": lambda rng: mixed(rng, 0),
    "commits, v3": lambda rng: offset_commit(rng, 3),
    "commits, v4": lambda rng: offset_commit(rng, 4),
    "1 % other records": lambda rng: mixed(rng, 0.01),
    "10 % other records": lambda rng: mixed(rng, 0.1),
    "other records only": other_record,
    "garbage": garbage,
}


def best_rate(action: Callable[[], object], count: int, repeats: int) -> float:
    """Records a second in the fastest of some runs."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start)
    return count / min(seconds)


def parse_all(records: Iterable[Record]) -> None:
    """Read records with construct, one by one."""
    for key, value in records:
        kind = RECORD_TYPES[int.from_bytes((key or b"")[:2])]
        kind.key.parse((key or b"")[2:])
        kind.values[int.from_bytes((value or b"")[:2])].parse((value or b"")[2:])


def main() -> None:
    """Print a table: records a second of every workload, against the first one and against construct."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--records", type=int, default=400_000, help="records in a run (default: %(default)s)"
    )
    parser.add_argument("--batch", type=int, default=100_000, help="records in a call (default: %(default)s)")
    parser.add_argument(
        "--repeats", type=int, default=5, help="runs, of which the best counts (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()

    rng = random.Random(arguments.seed)
    sample = [offset_commit(rng, version % 5) for version in range(500)]
    rates = {
        name: column_rate(make_batch(rng, make, arguments.records), arguments.repeats)
        for name, make in WORKLOADS.items()
    }
    rates["construct's parse"] = best_rate(lambda: parse_all(sample), len(sample), 4 * arguments.repeats)
    rates["decode_document"] = best_rate(lambda: decode_all(sample), len(sample), 4 * arguments.repeats)
    print_table(rates, commits=next(iter(rates.values())), construct=rates["construct's parse"])


def print_table(rates: dict[str, float], *, commits: float, construct: float) -> None:
    """One line for every rate, beside that of offset commits and that of construct."""
    print(f"{'workload':24}{'records/s':>12}{'of commits':>12}{'x construct':>13}")
    for name, rate in rates.items():
        print(f"{name:24}{rate:12,.0f}{rate / commits:12.1%}{rate / construct:13.1f}")


def make_batch(rng: random.Random, make: Callable[[random.Random], Record], count: int) -> list[Record]:
    """Records of a workload in random order, drawn from a smaller number of different ones."""
    return rng.choices([make(rng) for _ in range(min(count, POOL_SIZE))], k=count)


def column_rate(records: list[Record], repeats: int) -> float:
    """The rate of `decode_columns` over a batch."""
    keys = pa.array([key for key, _ in records], pa.binary())
    values = pa.array([value for _, value in records], pa.binary())
    return best_rate(lambda: decode_columns(keys, values), len(records), repeats)


def decode_all(records: Iterable[Record]) -> None:
    """Read records with the row reader, one by one."""
    for key, value in records:
        decode_document(key, value)


if __name__ == "__main__":
    main()
