"""How the job's cost and size grow with the number of live keys: `make bench ARGS="--only growth"`.

A topic is filled and read by the real `offsetlake run` as a process; then small batches come one after the
other. Beside that the steps of a small batch in the shards alone, without Spark.
"""

import argparse
import statistics
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from processes import PARTS, STARTED_BY_JVM, peak_memory, processor_seconds

from decoders import decode_columns
from streaming.demo.local_broker import LocalBroker
from streaming.packing.by_shard import pack_by_shard
from streaming.packing.shards import Shards, shard_keys
from streaming.packing.unpacking import PackedBlocks
from streaming.state.replay import Shard, replay
from streaming.state.stored import Values
from streaming.tables.tables import Tables
from tests.benchmarks.bench_job import describe_machine
from tests.benchmarks.python_steps import STATE_PARTITIONS
from tests.benchmarks.watched_job import BATCH_LINE, Batch, WatchedJob
from tests.benchmarks.workloads import TopicFiller, Workload, chunks

KEYS_PER_GROUP: Final = 50
PASSES: Final = 2  # batches of the first reading and of small ones that warm up
TRIGGER: Final = "1s"
_MIB: Final = 2**20


@dataclass(frozen=True, kw_only=True)
class Case:
    """How many keys in how many offsets partitions, and what is committed to them."""

    keys: int
    partitions: int
    records: int
    small: int
    rounds: int

    @property
    def filling(self) -> Workload:
        """What the topic is filled with."""
        return Workload(
            name=f"keys-{self.keys}-{self.partitions}",
            records=max(self.records, self.keys),
            keys=self.keys,
            groups=max(self.keys // KEYS_PER_GROUP, 1),
        )

    @property
    def shards(self) -> Shards:
        """The shards of the state."""
        return Shards(self.partitions, min(self.partitions, STATE_PARTITIONS))

    @property
    def small_batches(self) -> Workload:
        """What is committed afterwards, `small` records at a time."""
        return replace(self.filling, records=self.small * self.rounds, seed=2)


@dataclass(kw_only=True)
class Measured:
    """What was seen in one case."""

    case: Case
    first_rate: float
    batches: Sequence[Batch]
    processor_seconds: float
    memory: Counter[str]
    checkpoint_bytes: int
    offsets_bytes: int
    steps: dict[str, float]
    value_bytes: int


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what can be chosen."""
    add = parser.add_argument_group("growth").add_argument
    add(
        "--growth-cases",
        metavar="KEYS/PARTITIONS",
        nargs="+",
        default=["10000/8", "100000/8", "1000000/8", "100000/50"],
        help="live keys and offsets partitions (default: %(default)s)",
    )
    add("--growth-records", type=int, default=3_000_000, help="records at first (default: %(default)s)")
    add("--growth-small", type=int, default=5_000, help="records of a small batch (default: %(default)s)")
    add("--growth-rounds", type=int, default=20, help="small batches (default: %(default)s)")
    add("--growth-settings", type=Path, help="a file of job settings to try")


def measure(options: argparse.Namespace) -> None:
    """Run and print all cases."""
    print(describe_machine())
    settings = options.growth_settings.read_text() if options.growth_settings else ""
    part = 10 if options.quick else 1
    sizes = [tuple(map(int, case.split("/"))) for case in options.growth_cases]
    cases = [
        Case(
            keys=keys // part,
            partitions=partitions,
            records=options.growth_records // part,
            small=options.growth_small // part,
            rounds=options.growth_rounds if part == 1 else PASSES + 2,
        )
        for keys, partitions in (sizes[-1:] if options.quick else sizes)
    ]
    with (
        tempfile.TemporaryDirectory(prefix="offsetlake-bench-") as directory,
        LocalBroker(Path(directory, "broker"), heap="1g") as broker,
    ):
        measured = [
            measure_case(case, Path(directory, case.filling.name), broker.bootstrap_servers, settings)
            for case in cases
        ]
    print_batches(measured)
    print_sizes(measured)
    print_steps(measured)


def measure_case(case: Case, directory: Path, bootstrap: str, settings: str) -> Measured:
    """Fill a topic, have it read, then have small batches read one by one."""
    topic = case.filling.name
    filler = TopicFiller(bootstrap, topic, case.partitions)
    for chunk in chunks(case.filling, case.partitions):
        filler.produce(chunk)
    filler.flush()
    used_before = 0.0
    options = ["--topic", topic, "--trigger", TRIGGER]
    with WatchedJob(directory, bootstrap, more_settings=settings, options=options) as job:
        wait_until_read(job, filler.produced)
        first = job.batches()
        for number, chunk in enumerate(chunks(case.small_batches, case.partitions, size=case.small)):
            if number == PASSES:
                used_before = processor_seconds(job.parts).total()
            filler.produce(chunk)
            filler.flush()
            wait_until_read(job, filler.produced)
        batches = [batch for batch in job.batches() if batch.number > first[-1].number]
        used = processor_seconds(job.parts).total() - used_before
        memory, checkpoint_bytes = peak_memory(job.parts), bytes_in(job.query_checkpoint / "state")
    steps, value_bytes = steps_alone(case)
    counted = [batch for batch in batches[PASSES:] if batch.records >= case.small / 2]
    last_first = first[-1] if len(first) == 1 else first[-2]  # the last one is a rest
    return Measured(
        case=case,
        first_rate=last_first.records / last_first.seconds,
        batches=counted,
        processor_seconds=used / (case.rounds - PASSES),
        memory=memory,
        checkpoint_bytes=checkpoint_bytes,
        offsets_bytes=bytes_of_offsets(job.tables),
        steps=steps,
        value_bytes=value_bytes,
    )


def wait_until_read(job: WatchedJob, records: int) -> None:
    """Wait until so many records of the topic are in the tables."""
    job.wait_until(
        lambda: job.reached() >= records and job.said(BATCH_LINE), f"{records:,} records to be read"
    )


def bytes_in(folder: Path) -> int:
    """The size of all files of a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def bytes_of_offsets(tables: Tables) -> int:
    """The size of the files that make up the table of offsets at the end, when all is folded."""
    files = pa.table(tables.delta("offsets").get_add_actions())
    return int(np.sum(files["size_bytes"].to_numpy()))


# --- the same small batches on the shards alone, on one core ---


def steps_alone(case: Case) -> tuple[dict[str, float], int]:
    """Seconds of each step of a small batch over all shards (medians), and the bytes of their values."""
    shards = {key: Values.of(Shard.empty().entries) for key in shard_keys(case.shards.state_partitions)}
    offset = 0
    live = replace(case.filling, records=case.keys)
    for partition, records in shard_records(case, live, case.keys, offset):
        shards[partition] = Values.of(replay(Shard.empty(), records)[0].entries)
    value_bytes = sum(values.bases[0].size for values in shards.values())
    seconds: dict[str, list[float]] = defaultdict(list)
    for number in range(PASSES + 5):
        offset += case.keys + case.small
        spent: Counter[str] = Counter()
        own = replace(case.filling, records=case.small, seed=2 + number)
        for partition, records in shard_records(case, own, case.small, offset):
            before = timed(spent, "read the state", lambda p=partition: entered(shards[p]))
            after, _ = timed(spent, "replay", lambda b=before, r=records: replay(b, r))
            kept = shards[partition]
            shards[partition] = timed(spent, "write the state", lambda k=kept, a=after: k.updated(a.entries))
        for name, took in spent.items():
            seconds[name].append(took)
    return {name: statistics.median(took[PASSES:]) for name, took in seconds.items()}, value_bytes


def entered(values: Values) -> Shard:
    """Read the state of a shard without records of groups."""
    layers = values.layers()
    assert layers.table is not None  # made when it is first asked for
    return Shard(layers, Shard.empty().group_records)


def timed(spent: Counter[str], name: str, action: Callable[[], Any]) -> Any:
    """Do something and add the time to what is spent."""
    started = time.perf_counter()
    result = action()
    spent[name] += time.perf_counter() - started
    return result


def shard_records(case: Case, workload: Workload, size: int, offset: int) -> Iterator[tuple[int, pa.Table]]:
    """Decode a workload of one batch, whose records stand at `offset` and after it, by the key
    of their shard."""
    (chunk, *rest) = chunks(workload, case.partitions, size=size)
    keys, values = [*chunk.keys], [*chunk.values]
    partitions = [chunk.partitions]
    for more in rest:  # the older version of the value comes apart
        keys, values, partitions = (
            [*keys, *more.keys],
            [*values, *more.values],
            [*partitions, more.partitions],
        )
    arrays = (
        pa.chunked_array([pa.array(keys, pa.binary())]),
        pa.chunked_array([pa.array(values, pa.binary())]),
    )
    decoded = decode_columns(*arrays)
    offsets = pa.array(offset + np.arange(len(keys)))
    columns = {
        **{name: decoded[name] for name in decoded.column_names},
        "key": arrays[0],
        "value": arrays[1],
        "source_partition": pa.array(np.concatenate(partitions).astype(np.int32)),
        "source_offset": offsets,
        "source_timestamp": offsets,
    }
    for key, block in pack_by_shard(pa.table(columns), case.shards).items():
        yield key, pa.concat_tables(PackedBlocks([block], BytesIO()).slices())


# --- printing ---


def print_batches(measured: Sequence[Measured]) -> None:
    """How fast, by the number of keys."""
    print(
        f"\n{'keys':>10}{'partitions':>12}{'first read/s':>14}{'records':>9}{'small batch s':>15}{'ratio':>7}"
        f"{'slowest s':>11}{'cpu s':>8}{'ratio':>7}"
    )
    least = measured[0]
    for one in measured:
        seconds, base = median_seconds(one), median_seconds(least)
        records = statistics.median(batch.records for batch in one.batches)
        print(
            f"{one.case.keys:10,}{one.case.partitions:12}{one.first_rate:14,.0f}{records:9,.0f}{seconds:15.2f}"
            f"{seconds / base:7.2f}{max(batch.seconds for batch in one.batches):11.2f}"
            f"{one.processor_seconds:8.2f}{one.processor_seconds / least.processor_seconds:7.2f}"
        )


def median_seconds(one: Measured) -> float:
    """How long a small batch takes."""
    return statistics.median(batch.seconds for batch in one.batches)


def print_sizes(measured: Sequence[Measured]) -> None:
    """How large, by the number of keys."""
    print(
        f"\nbytes per key, then peak MiB of memory\n"
        f"{'keys':>10}{'partitions':>12}{'of values':>13}{'state on disk':>15}{'offsets table':>15}"
        + "".join(f"{name:>16}" for name in PARTS if name != STARTED_BY_JVM)
    )
    for one in measured:
        per_key = [
            size / one.case.keys for size in (one.value_bytes, one.checkpoint_bytes, one.offsets_bytes)
        ]
        print(
            f"{one.case.keys:10,}{one.case.partitions:12}{per_key[0]:13.1f}{per_key[1]:15.1f}{per_key[2]:15.1f}"
            + "".join(f"{one.memory[name] / _MIB:16,.0f}" for name in PARTS if name != STARTED_BY_JVM)
        )


def print_steps(measured: Sequence[Measured]) -> None:
    """What the shards take of a small batch, without Spark."""
    print(
        "\nseconds per small batch, all shards on one core" + "".join(f"{_name(one):>14}" for one in measured)
    )
    for name in measured[0].steps:
        print(f"{name:47}" + "".join(f"{one.steps[name]:14.3f}" for one in measured))


def _name(one: Measured) -> str:
    return f"{one.case.keys:,}/{one.case.partitions}"
