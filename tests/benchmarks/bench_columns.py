"""How many records a second the decoders read, on one core: `python -m tests.benchmarks.bench_columns`.

Seconds are those of the process's own CPU time, and every figure is the median of many short runs. Each run
stands beside one of offset commits, whose rate it is compared with: what else the machine does slows both.
Targets: 2 M offset commits a second and 50 times construct's parse; with 1 % other records 80 % of the
commits' rate; garbage 10 %.

Last seen, on two shared cores with Python 3.11, numpy 2.4 and pyarrow 26:

    workload                   records/s  of commits  x construct
    commits, all versions      3,316,649       98.4%         87.3
    commits, v3                3,417,811       98.2%         87.1
    commits, v4                2,135,005       64.1%         56.9
    1 % other records          3,037,092       77.1%         68.4
    10 % other records         1,481,485       39.3%         34.9
    other records only           235,292        5.8%          5.2
    garbage                      891,675       22.2%         19.6
    construct's parse             46,078        1.1%          1.0
    decode_document               32,268        0.8%          0.7

The share of the mix was 77, 79, 83 and 87 % in four runs on a machine that had other work.

"""

import argparse
import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from statistics import median
from typing import Any

import pyarrow as pa

from decoders import RECORD_TYPES, decode_columns, decode_document
from decoders.formats.consumer_protocol import SUBSCRIPTION_VERSIONS
from decoders.formats.wire import INT16

Record = tuple[bytes | None, bytes | None]
Make = Callable[[random.Random], Record]
Action = Callable[[], object]

POOL_SIZE = 20_000  # different records of a kind; a larger batch repeats them


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


def any_commit(rng: random.Random) -> Record:
    """An offset commit of any version."""
    return offset_commit(rng, rng.randrange(5))


def other_record(rng: random.Random) -> Record:
    """One of the records that keep groups going: types 2, 3, 5, 7 and 8, of 500 groups with 8 members."""
    number = rng.randrange(500)
    host = f"/10.0.{number % 256}.{rng.randrange(8)}"
    topic_partitions = [
        {"topicId": f"{number + topic:022d}", "partitions": sorted(rng.sample(range(64), rng.randrange(8)))}
        for topic in range(2)
    ]
    member = {"groupId": f"consumer-group-{number}", "memberId": member_id(rng, number)}
    type_id = rng.choice([2, 3, 5, 7, 8])
    match type_id:
        case 2:
            members = [classic_member(rng, number, host) for _ in range(rng.randint(1, 2))]
            value = {
                "protocolType": "consumer",
                "generation": rng.randrange(1_000),
                "protocol": "range",
                "leader": members[0]["memberId"],
                "currentStateTimestamp": 1_700_000_000_000 + rng.randrange(10**9),
                "members": members,
            }
            return build(2, {"group": member["groupId"]}, 3, value)
        case 3:
            value = {"epoch": rng.randrange(1_000), "metadataHash": rng.getrandbits(63)}
            return build(3, {"groupId": member["groupId"]}, 0, value)
        case 5:
            value = {
                "instanceId": None,
                "rackId": None,
                "clientId": f"consumer-{number}",
                "clientHost": host,
                "subscribedTopicNames": [f"orders-{number % 50}", f"orders-{rng.randrange(50)}"],
                "subscribedTopicRegex": None,
                "rebalanceTimeoutMs": 300_000,
                "serverAssignor": None,
                "classicMemberMetadata": None,
            }
            return build(5, member, 0, value)
        case 7:
            return build(7, member, 0, {"topicPartitions": topic_partitions})
        case _:
            epoch = rng.randrange(1_000)
            value = {
                "memberEpoch": epoch,
                "previousMemberEpoch": epoch - 1,
                "state": 0,
                "assignedPartitions": topic_partitions,
                "partitionsPendingRevocation": [],
            }
            return build(8, member, 0, value)


def member_id(rng: random.Random, number: int) -> str:
    """The id of one of the members of a group."""
    return f"consumer-{number}-4fb1d3c2-9a0e-4c5f-8f1d-0d6d6f1f2a3{rng.randrange(8)}"


def classic_member(rng: random.Random, number: int, host: str) -> dict[str, Any]:
    """A member of a classic group, subscribed to two topics."""
    subscription = {
        "topics": [f"orders-{number % 50}", f"orders-{rng.randrange(50)}"],
        "userData": None,
        "ownedPartitions": [],
        "generationId": -1,
        "rackId": None,
    }
    return {
        "memberId": member_id(rng, number),
        "groupInstanceId": None,
        "clientId": f"consumer-{number}",
        "clientHost": host,
        "rebalanceTimeout": 300_000,
        "sessionTimeout": 45_000,
        "subscription": b"\0\3" + SUBSCRIPTION_VERSIONS[3].build(subscription),
        "assignment": rng.randbytes(50),
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


WORKLOADS: dict[str, Mapping[Make, float]] = {  # kinds of records and their shares
    "commits, all versions": {any_commit: 1},
    "commits, v3": {lambda rng: offset_commit(rng, 3): 1},
    "commits, v4": {lambda rng: offset_commit(rng, 4): 1},
    "1 % other records": {any_commit: 0.99, other_record: 0.01},
    "10 % other records": {any_commit: 0.9, other_record: 0.1},
    "other records only": {other_record: 1},
    "garbage": {garbage: 1},
}


@dataclass
class Measurement:
    """What runs of an action took: seconds of CPU time per record, beside those of a run of commits."""

    seconds: list[float] = field(default_factory=list)
    commits: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Records a second."""
        return 1 / median(self.seconds)

    @property
    def of_commits(self) -> float:
        """The rate as a part of that of the commits beside it."""
        return median(beside / own for own, beside in zip(self.seconds, self.commits, strict=True))


def main() -> None:
    """Print a table: records a second of every workload, against the first one and against construct."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=65_536, help="records in a run (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=25, help="runs of everything (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()

    rng = random.Random(arguments.seed)
    pool_of = cache(lambda make: [make(rng) for _ in range(min(arguments.records, POOL_SIZE))])
    sample = pool_of(any_commit)[:500]
    actions = {
        name: decoding(make_batch(rng, shares, pool_of, arguments.records))
        for name, shares in WORKLOADS.items()
    }
    actions["construct's parse"] = (lambda: parse_all(sample), len(sample))
    actions["decode_document"] = (lambda: decode_all(sample), len(sample))
    print_table(measured(actions, arguments.rounds))


def make_batch(
    rng: random.Random, shares: Mapping[Make, float], pool_of: Callable[[Make], list[Record]], count: int
) -> list[Record]:
    """Records of a workload in random order, drawn from pools of different ones."""
    kinds = rng.choices(list(shares), list(shares.values()), k=count)
    return [rng.choice(pool_of(make)) for make in kinds]


def decoding(records: list[Record]) -> tuple[Action, int]:
    """What decodes a batch, and how many records that are."""
    keys = pa.array([key for key, _ in records], pa.binary())
    values = pa.array([value for _, value in records], pa.binary())
    return lambda: decode_columns(keys, values), len(records)


def measured(actions: Mapping[str, tuple[Action, int]], rounds: int) -> dict[str, Measurement]:
    """Every action in turns with the first one."""
    commits = next(iter(actions.values()))
    measurements = {name: Measurement() for name in actions}
    for name, action in actions.items():
        for _ in range(rounds):
            measurements[name].commits.append(seconds_each(*commits))
            measurements[name].seconds.append(seconds_each(*action))
    return measurements


def seconds_each(action: Action, count: int) -> float:
    """The CPU time of one run, per record."""
    start = time.process_time()
    action()
    return (time.process_time() - start) / count


def print_table(measurements: Mapping[str, Measurement]) -> None:
    """One line for every rate, beside that of offset commits and that of construct."""
    construct = measurements["construct's parse"].of_commits
    print("medians over CPU time; ratios are to the runs of offset commits in between")
    print(f"{'workload':24}{'records/s':>12}{'of commits':>12}{'x construct':>13}")
    for name, measurement in measurements.items():
        share = measurement.of_commits
        print(f"{name:24}{measurement.rate:12,.0f}{share:12.1%}{share / construct:13.1f}")


def parse_all(records: Iterable[Record]) -> None:
    """Read records with construct, one by one."""
    for key, value in records:
        kind = RECORD_TYPES[int.from_bytes((key or b"")[:2])]
        kind.key.parse((key or b"")[2:])
        kind.values[int.from_bytes((value or b"")[:2])].parse((value or b"")[2:])


def decode_all(records: Iterable[Record]) -> None:
    """Read records with the row reader, one by one."""
    for key, value in records:
        decode_document(key, value)


if __name__ == "__main__":
    main()
