"""Quarantine: bytes are kept whole unless there is a flood, and then the first of each with its length."""

import time
from typing import Any

import group_records
import numpy as np
import pyarrow as pa
import pytest
from blocks_read import read_all, read_blocks

from decoders import decode_columns
from streaming.model.totals import MAX_UNKNOWN_KINDS, Totals, totals_to_json
from streaming.packing.by_shard import pack_by_shard
from streaming.packing.codec import count_records
from streaming.packing.quarantine import FIRST_BYTES, WHOLE_BYTES, quarantined
from streaming.packing.shards import Shards

KEY = bytes.fromhex("000100016700017400000003")
MEGABYTE = 1024 * 1024
BAD = b"\x00\x03" + bytes(12) + b"\xff\xfe"  # a commit whose metadata has a length below 0


def block(
    values: list[bytes | None], *, key: bytes = KEY, first_offset: int = 0, partition: int = 0
) -> bytes:
    """Decode and pack records of one offsets partition that stand in the log one after another."""
    keys = pa.array([key] * len(values), pa.binary())
    return _packed(keys, pa.array(values, pa.binary()), first_offset=first_offset, partition=partition)


def _packed(keys: pa.Array, values: pa.Array, *, first_offset: int, partition: int = 0) -> bytes:
    decoded = decode_columns(pa.chunked_array([keys]), pa.chunked_array([values]))
    beside: dict[str, Any] = {
        "key": keys,
        "value": values,
        "source_partition": pa.array(np.full(len(values), partition, np.int32)),
        "source_offset": pa.array(np.arange(len(values)) + first_offset),
        "source_timestamp": pa.array(np.zeros(len(values), np.int64)),
    }
    for name, column in beside.items():
        decoded = decoded.append_column(name, column)
    [packed] = pack_by_shard(decoded, Shards(partition_count=2, state_partitions=1)).values()
    return packed


def kept_of(*blocks: bytes) -> list[dict[str, Any]]:
    records, _ = read_blocks(*blocks)
    return quarantined(records).to_pylist()


@pytest.mark.parametrize("count", [1, 3], ids=["one", "up to the bound"])
def test_large_records_are_kept_whole_while_they_are_few(count: int) -> None:
    bad = [BAD + bytes([number]) * (MEGABYTE - len(BAD) - len(KEY)) for number in range(count)]
    kept = kept_of(block(bad))
    assert [row["value"] for row in kept] == bad
    assert [row["value_length"] for row in kept] == [len(value) for value in bad]
    assert [row["key_length"] for row in kept] == [len(KEY)] * count


def test_a_null_value_has_no_length() -> None:
    [row] = kept_of(block([None], key=b"\x00"))
    assert (row["key"], row["key_length"], row["value"], row["value_length"]) == (b"\x00", 1, None, None)


def test_of_a_flood_the_first_are_whole_and_the_others_begin_as_they_did() -> None:
    flood = [BAD + bytes([number]) * MEGABYTE for number in range(20)]
    kept = kept_of(block(flood))
    assert len(kept) == 20
    whole = WHOLE_BYTES // MEGABYTE - 1
    assert [row["value"] for row in kept[:whole]] == flood[:whole]
    assert [row["value"] for row in kept[whole:]] == [value[:FIRST_BYTES] for value in flood[whole:]]
    assert {row["value_length"] for row in kept} == {len(BAD) + MEGABYTE}
    assert {row["key"] for row in kept} == {KEY}


def test_short_records_are_whole_even_in_a_flood() -> None:
    flood = [BAD + b"x" * MEGABYTE] * 8 + [BAD + b"short"] * 8
    assert [row["value"] for row in kept_of(block(flood))[8:]] == [BAD + b"short"] * 8


def test_many_blocks_hold_no_more_than_one() -> None:
    flood = [BAD + b"x" * MEGABYTE] * 4
    records, totals = read_all(block(flood, first_offset=4 * number) for number in range(10))
    assert totals.malformed == 40
    held = sum(len(row["value"]) for row in quarantined(records).to_pylist())
    assert held <= WHOLE_BYTES + 40 * FIRST_BYTES


def test_a_flood_in_one_partition_leaves_the_bytes_of_another_whole() -> None:
    flood = [BAD + b"x" * MEGABYTE] * 4
    blocks = [block(flood, first_offset=4 * number, partition=0) for number in range(3)]
    kept = kept_of(*blocks, block(flood[:1], partition=1))
    assert {len(row["value"]) for row in kept if row["source_offset"] > 4} == {FIRST_BYTES}
    [other] = (row for row in kept if row["source_partition"] == 1)
    assert other["value"] == flood[0]


def test_blocks_are_bounded_before_they_leave_the_decoder() -> None:
    noise = np.random.default_rng(1).bytes(MEGABYTE)  # what compression cannot make smaller
    assert len(block([BAD + noise] * 20)) < 2 * WHOLE_BYTES


def test_bytes_of_unknown_types_go_nowhere() -> None:
    records, _ = read_blocks(block([b"x" * MEGABYTE] * 3, key=b"\x00\x63"))
    assert records["value"].null_count == 3


def test_random_types_neither_fill_the_counters_nor_are_lost() -> None:
    rng = np.random.default_rng(7)
    count = 20_000
    keys = pa.array([rng.bytes(12) for _ in range(count)], pa.binary())
    values = pa.array([rng.bytes(20) for _ in range(count)], pa.binary())
    decoded = decode_columns(pa.chunked_array([keys]), pa.chunked_array([values]))
    decoded = decoded.append_column("source_offset", pa.array(np.arange(count)))
    decoded = decoded.append_column("source_partition", pa.array(np.zeros(count, np.int32)))
    totals = sum((count_records(decoded) for _ in range(3)), Totals())
    assert len(totals.unknown) == MAX_UNKNOWN_KINDS
    told = sum(kind.count for kind in totals.unknown)
    assert totals.decoded + totals.malformed + told + totals.unknown_others == 3 * count
    assert [kind.first.offset for kind in totals.unknown if kind.first.offset > 200] == []
    assert len(totals_to_json(totals)) < 20_000


@pytest.mark.more
def test_a_flood_leaves_the_rest_its_speed() -> None:
    """Processor seconds of decoding, packing and unpacking: the same commits alone, and among garbage."""
    commits = [
        group_records.commit(number, group=f"g{number % 500}", partition=number) for number in range(50_000)
    ]
    rng = np.random.default_rng(3)
    garbage = [(rng.bytes(20), rng.bytes(100)) for _ in range(5_000)]
    garbage += [(KEY, BAD + bytes(10_000))] * 500
    mixed = [record for pair in zip(commits[: len(garbage)], garbage, strict=True) for record in pair]
    mixed += commits[len(garbage) :]
    alone, among = (min(_cpu_seconds(records) for _ in range(3)) for records in (commits, mixed))
    assert among <= 3 * alone, "meant to stay below 2; the rest is room for a machine that is shared"


def _cpu_seconds(records: list[tuple[bytes, bytes | None]]) -> float:
    keys, values = zip(*records, strict=True)
    columns = pa.array(keys, pa.binary()), pa.array(values, pa.binary())
    started = time.process_time()
    read_blocks(_packed(*columns, first_offset=0))
    return time.process_time() - started
