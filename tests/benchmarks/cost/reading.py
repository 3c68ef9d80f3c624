"""What it costs to read a topic that is full, start included: from the command until all is read.

The offsets topic of a broker is filled behind the coordinator's back, so that everyone finds it where it is
looked for; the records lie where their groups belong.
"""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from processes import DRIVER, JVM, WORKERS

from streaming.demo.local_broker import LocalBroker
from tests.benchmarks.bench_follow import prepare_broker
from tests.benchmarks.cost.contestants import (
    OFFSETS_TOPIC,
    ConsumerReference,
    Contestant,
    Task,
    batches,
    folder_of,
)
from tests.benchmarks.cost.table import Table, Values
from tests.benchmarks.cost.watched import Ended, PeakMemory, Watched
from tests.benchmarks.workloads import TopicFiller, Workload, chunks

PARTITIONS: Final = 50
COLUMNS: Final = {
    "wall s": ".1f",
    "k/s": ",.0f",
    "cpu s": ".1f",
    "us/record": ".2f",
    "peak MiB": ",.0f",
    "driver MiB": ",.0f",
    "JVM MiB": ",.0f",
    "workers MiB": ",.0f",
    "begins s": ".1f",
    "first batch s": ".1f",
    "last batch s": ".1f",
}
_MIB: Final = 2**20
_LOOK_EVERY_S: Final = 0.5  # at those that do not end by themselves
_LIMIT_S: Final = 1_800.0
_OVERRIDES: Final = {
    "log.cleaner.enable": "false",  # the records are to stay
    "log.retention.ms": "-1",
}


def measure_reading(workload: Workload, contestants: Sequence[Contestant], runs: int) -> Table:
    """Fill the topic once; let the contestants read it one after the other, again and again."""
    with (
        tempfile.TemporaryDirectory(prefix="offsetlake-bench-") as directory,
        LocalBroker(
            Path(directory, "broker"), offsets_partitions=PARTITIONS, overrides=_OVERRIDES, heap="1g"
        ) as broker,
    ):
        fill_offsets_topic(broker.bootstrap_servers, workload)
        table = Table(
            f"{workload.name}: read {workload.records:,} commits of {workload.keys:,} keys in {PARTITIONS} "
            "offsets partitions, start included; memory as PSS",
            COLUMNS,
        )
        table.begin()
        first = ConsumerReference("first")  # not counted: whoever reads first has a broker that is cold
        read(broker.bootstrap_servers, folder_of(Path(directory), first, 0), workload.records, first)
        for run in range(1, runs + 1):
            for contestant in contestants:
                folder = folder_of(Path(directory), contestant, run)
                values = read(broker.bootstrap_servers, folder, workload.records, contestant)
                table.row(contestant.name, "read", run, values)
        return table


def fill_offsets_topic(bootstrap: str, workload: Workload) -> None:
    """Produce a workload into the offsets topic."""
    started = time.monotonic()
    prepare_broker(bootstrap)  # it creates the topic and has read it: it does not look into it again
    filler = TopicFiller(bootstrap, OFFSETS_TOPIC, PARTITIONS, is_internal=True)
    for chunk in chunks(workload, PARTITIONS):
        filler.produce(chunk)
    filler.flush()
    print(f"\n{workload.name}: {workload.records:,} records produced in {time.monotonic() - started:.0f} s")


def read(bootstrap: str, folder: Path, records: int, contestant: Contestant) -> Values:
    """Let one contestant read it all."""
    task = Task(bootstrap=bootstrap, folder=folder, partitions=PARTITIONS, records=records)
    with Watched(contestant.command(task), folder) as watched, PeakMemory(watched) as memory:
        ended = _ended(contestant, task, watched)
    parts = {"driver MiB": DRIVER, "JVM MiB": JVM, "workers MiB": WORKERS}
    return {
        "wall s": ended.seconds,
        "k/s": records / ended.seconds / 1_000,
        "cpu s": ended.processor_seconds,
        "us/record": 1e6 * ended.processor_seconds / records,
        "peak MiB": memory.peak.total() / _MIB,
        **{name: memory.peak[part] / _MIB for name, part in parts.items()},
        **_moments(task, ended.started),
    }


def _ended(contestant: Contestant, task: Task, watched: Watched) -> Ended:
    """Wait until it has ended, or has read all and would go on: then its end is now."""
    deadline = time.monotonic() + _LIMIT_S
    while watched.is_running:
        if contestant.has_read(task):
            now = time.time()
            return watched.stop().but_ended(now)
        assert time.monotonic() < deadline, f"{contestant.name} did not read all in {_LIMIT_S:g} s"
        time.sleep(_LOOK_EVERY_S)
    ended = watched.wait()
    assert ended.code == 0, watched.said(f"ended with {ended.code}")
    return ended


def _moments(task: Task, started: float) -> Values:
    """When batches began and were done, in seconds after the command, where Spark has left files of them."""
    found = batches(task)
    if not found:
        return {}
    return {
        "begins s": found[0].planned - started,
        "first batch s": found[0].committed - started,
        "last batch s": found[-1].committed - started,
    }
