"""How long a start takes, cold and from the checkpoint: until the first batch begins, until it is done."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from streaming.demo.local_broker import LocalBroker
from tests.benchmarks.bench_follow import fill, prepare_broker
from tests.benchmarks.cost.contestants import Contestant, Task, batches, folder_of
from tests.benchmarks.cost.table import Table, Values
from tests.benchmarks.cost.watched import Watched

PARTITIONS: Final = 50
COLUMNS: Final = {"begins s": ".2f", "first batch s": ".2f", "cpu s": ".1f"}


def measure_starts(keys: int, contestants: Sequence[Contestant], runs: int) -> Table:
    """Start those that leave files of their batches, one after the other, again and again."""
    table = Table(
        f"start: {keys:,} keys; processor time with that of the stop after the first batch", COLUMNS
    )
    table.begin()
    with (
        tempfile.TemporaryDirectory(prefix="offsetlake-bench-") as directory,
        LocalBroker(Path(directory, "broker"), offsets_partitions=PARTITIONS) as broker,
    ):
        prepare_broker(broker.bootstrap_servers)
        for run in range(1, runs + 1):
            for contestant in contestants:
                folder = folder_of(Path(directory), contestant, run)
                task = Task(bootstrap=broker.bootstrap_servers, folder=folder, partitions=PARTITIONS)
                for what in ("cold", "restart"):
                    fill(broker.bootstrap_servers, keys)  # for a restart too there is something to read
                    table.row(contestant.name, what, run, start(contestant, task))
    return table


def start(contestant: Contestant, task: Task) -> Values:
    """Start one and stop it after its first batch."""
    with Watched(contestant.command(task), task.folder) as watched:
        watched.wait_until(lambda: contestant.has_begun(task, watched), "the first batch")
        ended = watched.stop()
    first = batches(task, ended.started)[0]
    return {
        "begins s": first.planned - ended.started,
        "first batch s": first.committed - ended.started,
        "cpu s": ended.processor_seconds,
    }
