"""A flood of hostile records in one batch of the real job: the rest is right, and the flood is in bounds."""

import random
from pathlib import Path
from typing import Any

import kafka_clients as kafka
import pytest
from group_records import classic, classic_member, commit, record
from pyspark.sql import SparkSession
from running_job import RunningJob

from decoders import RECORD_TYPES
from streaming.demo.local_broker import LocalBroker
from streaming.job.failures import JobFailedError
from streaming.packing.quarantine import FIRST_BYTES, WHOLE_BYTES

pytestmark = [pytest.mark.spark, pytest.mark.broker]

LARGE = 900_000  # a record of a default broker is at most a megabyte
CUT = b"\x00\x03" + bytes(12) + b"\xff\xfe"  # a commit whose metadata has a length below 0
LARGE_LENGTH = bytes.fromhex("a1f736")  # 900,001 as a varint: a string may have 32,767 bytes
LONGEST = "g" * 32_767
I64_MAX = 2**63 - 1
LAST_OF_SPARK = I64_MAX // 1_000  # milliseconds that fit into its microseconds
YEAR_9999 = 253_402_300_799_000
PARTITIONS = 100_000


def a_commit(group: str, **changed: Any) -> tuple[bytes, bytes]:
    key = {"group": group, "topic": "t", "partition": 0}
    value = {"offset": 7, "leaderEpoch": -1, "metadata": "", "commitTimestamp": 5} | changed
    return b"\0\1" + RECORD_TYPES[1].key.build(key), b"\0\4" + RECORD_TYPES[1].values[4].build(value)


@pytest.mark.more
def test_a_flood_is_kept_in_bounds_and_the_rest_is_right(
    spark: SparkSession, broker: LocalBroker, tmp_path: Path
) -> None:
    rng = random.Random(5)
    bootstrap = broker.bootstrap_servers
    kafka.create_topics(bootstrap, {"flood": 1})
    records: list[tuple[bytes, bytes | None]] = []
    records += [commit(number, group="wide", partition=number) for number in range(PARTITIONS)]
    records += [(rng.randbytes(rng.randrange(1, 60)), rng.randbytes(200)) for _ in range(20_000)]
    records += [(commit(0, group=f"bad {number}")[0], CUT + rng.randbytes(LARGE)) for number in range(12)]
    large_key, small_value = a_commit("large")
    large_value = small_value[:14] + LARGE_LENGTH + b"m" * LARGE
    records += [(large_key, large_value), a_commit(LONGEST, metadata="m" * 32_767)]
    stamps = {"zero": 0, "minus one": -1, "year 9999": YEAR_9999, "end of time": I64_MAX}
    records += [a_commit(group, commitTimestamp=stamp) for group, stamp in stamps.items()]
    members = [classic_member(f"member-{number}") for number in range(10_000)]
    records += [record(2, classic(*members), group="crowd")]
    rest = [commit(number, group=f"g{number % 50}", partition=number) for number in range(2_000)]
    records += rest
    kafka.produce_raw(bootstrap, "flood", records)

    job = RunningJob(spark, bootstrap, tmp_path, topic="flood", options={"source.check_partition": "off"})
    tables = job.run_once()

    assert len(job.reports) == 1, "the flood was one batch"
    offsets = tables.read().offsets
    by_group: dict[str, list[dict[str, Any]]] = {}
    for row in offsets.to_pylist():
        by_group.setdefault(row["group"], []).append(row)
    assert len(by_group["wide"]) == PARTITIONS
    assert sum(row["committed_offset"] for row in by_group["wide"]) == sum(range(PARTITIONS))
    assert sum(len(by_group[f"g{number}"]) for number in range(50)) == len(rest)
    assert [row["committed_offset"] for row in by_group["large"]] == [None], "not a string of Kafka's"
    assert [len(row["metadata"]) for row in tables.read([LONGEST]).offsets.to_pylist()] == [32_767]
    told = {group: by_group[group][0]["commit_timestamp"] for group in stamps}
    assert told["zero"].year == 1970
    assert told["minus one"].microsecond == 999_000
    assert told["year 9999"].year == told["end of time"].year == 9999
    [crowd] = tables.read(["crowd"]).groups.to_pylist()
    assert len(crowd["members"]) == 10_000

    totals = tables.progress().totals
    quarantine = tables.read_quarantine()
    unknown = sum(kind.count for kind in totals.unknown) + totals.unknown_others
    assert totals.decoded + totals.malformed + unknown == len(records)
    assert totals.clamped >= 1
    large = [row for row in quarantine.to_pylist() if (row["value_length"] or 0) > LARGE]
    assert len(large) == 13
    assert {len(row["value"]) for row in large} == {FIRST_BYTES, len(CUT) + LARGE}
    assert sum(len(row["key"] or b"") + len(row["value"] or b"") for row in quarantine.to_pylist()) <= (
        WHOLE_BYTES + 2 * FIRST_BYTES * len(quarantine)
    )


def produce_stamped(bootstrap: str, topic: str, stamps: list[int]) -> None:
    """Create a topic that takes any record timestamp, and commit with each, a partition for each."""
    any_time = {f"message.timestamp.{side}.max.ms": str(I64_MAX) for side in ("after", "before")}
    kafka.create_topics(bootstrap, {topic: 1}, **any_time, **{"retention.ms": "-1"})
    for number, stamp in enumerate(stamps):
        kafka.produce_raw(bootstrap, topic, [commit(1, partition=number)], timestamp_ms=stamp)


@pytest.mark.more
def test_a_record_timestamp_that_spark_cannot_hold_is_explained(
    spark: SparkSession, broker: LocalBroker, tmp_path: Path
) -> None:
    bootstrap = broker.bootstrap_servers
    produce_stamped(bootstrap, "stamped", [1, YEAR_9999, LAST_OF_SPARK])
    job = RunningJob(spark, bootstrap, tmp_path, topic="stamped")
    offsets = job.run_once().read().offsets.sort_by("partition")
    assert [stamp.year for stamp in offsets["source_timestamp"].to_pylist()] == [1970, 9999, 9999]
    assert job.tables.progress().totals.clamped > 0

    kafka.produce_raw(bootstrap, "stamped", [commit(2)], timestamp_ms=LAST_OF_SPARK + 1)
    with pytest.raises(JobFailedError, match=r"up to the year 294246, .*\(offset 3 of partition 0\)"):
        job.run_once()
    assert job.tables.read().offsets.sort_by("partition").equals(offsets), "the tables stay as they are"


@pytest.mark.more
def test_record_timestamps_before_1970_are_kept_or_clamped(
    spark: SparkSession, broker: LocalBroker, tmp_path: Path
) -> None:
    """-1 is what Kafka writes for none; nobody but a raw producer writes others."""
    bootstrap = broker.bootstrap_servers
    produce_stamped(bootstrap, "early", [-1, -YEAR_9999, -LAST_OF_SPARK])
    assert [record.timestamp_ms for record in kafka.read_raw(bootstrap, "early")][1:] == [
        -YEAR_9999,
        -LAST_OF_SPARK,
    ]
    job = RunningJob(spark, bootstrap, tmp_path, topic="early")
    offsets = job.run_once().read().offsets.sort_by("partition")
    assert [row["committed_offset"] for row in offsets.to_pylist()] == [1, 1, 1]
    assert [stamp.year for stamp in offsets["source_timestamp"].to_pylist()] == [1969, 1, 1]

    kafka.produce_raw(bootstrap, "early", [commit(2)], timestamp_ms=-LAST_OF_SPARK - 1_000)
    with pytest.raises(JobFailedError, match=r"found one in the topic that does not fit"):
        job.run_once()
    assert job.tables.read().offsets.sort_by("partition").equals(offsets), "the tables stay as they are"
