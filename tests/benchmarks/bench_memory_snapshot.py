"""What the snapshot costs that `serve` keeps of the tables: `python -m tests.benchmarks --only snapshot`.

A process of its own follows tables of 1 M offsets in 20,000 groups. Every batch commits 5,000 of 50,000 hot
keys, as 1,000 commits a second do at a trigger of 5 s; some add and remove keys, and some groups change.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np
import pyarrow as pa
from log_end_rows import Sample, of_topic, rows_of
from processes import peak_memory, proportional_memory

from streaming.common.times import MINUTE_MS
from streaming.serve.memory.tailer import EVERY_S, Tailer
from streaming.tables.tables import Tables
from tests.benchmarks.bench_queries import STARTED, append, fill, group_changes, offset_changes

OFFSETS, GROUPS, HOT, CHANGED = 1_000_000, 20_000, 50_000, 5_000
BATCHES: Final = 24
TRIGGER_S: Final = 5.0
MIB: Final = 2**20


def measure_snapshot(*, part: int) -> None:
    """Fill tables (1/`part` of all sizes), follow them in another process, and print what that took."""
    with tempfile.TemporaryDirectory(prefix="offsetlake-bench-") as root:
        tables, names = Tables(root), names_of(GROUPS // part)
        fill(tables, offsets=OFFSETS // part, groups=len(names), unfolded=CHANGED // part)
        sample(tables, 0)
        print(f"\na snapshot of {OFFSETS // part:,} offsets in {len(names):,} groups")
        with following(root) as tailer:
            print(f"first snapshot: {tailer.told()}")
            print(f"a look at nothing new: {tailer.told()}")
            hot = np.random.default_rng(5).choice(OFFSETS // part, HOT // part, replace=False)
            told = [tailer.after(write(tables, number, names, hot)) for number in range(BATCHES)]
            print(f"{'a batch of':34}{'wall ms':>10}{'cpu ms':>10}{'worst cpu':>11}")
            for kind in dict.fromkeys(kind for kind, _, _ in told):
                walls, cpus = zip(*(times for one, *times in told if one == kind), strict=True)
                print(
                    f"{kind:34}{statistics.median(walls):10.0f}{statistics.median(cpus):10.0f}{max(cpus):11.0f}"
                )
            busy = sum(cpu for _, _, cpu in told) / len(told) / 1_000
            print(f"of a core, a batch every {TRIGGER_S:g} s: {100 * busy / TRIGGER_S:.1f} % (target 10 %)")
            print(f"memory after {BATCHES} batches: {tailer.memory()} (target 800 MiB)")


def names_of(groups: int) -> pa.Array:
    return pa.array([f"consumer-group-{number:06}" for number in range(groups)])


def sample(tables: Tables, number: int) -> None:
    """Write a round of log ends of 1,000 partitions."""
    at = STARTED + number * MINUTE_MS
    topics = [f"orders-events-{topic:04}" for topic in range(100)]
    ends = [Sample(at, topic, partition, 10**9) for topic in topics for partition in range(10)]
    tables.append_log_ends(rows_of([*ends, *(of_topic(at, topic, "id-1") for topic in topics)]))


def write(tables: Tables, number: int, names: pa.Array, hot: np.ndarray) -> str:
    """Write a batch, and return what kind it is of."""
    drawn = np.random.default_rng(number).choice(hot, len(hot) // 10, replace=False)
    rows = offset_changes(drawn, names, has_before=True, ahead=(number + 1) * 1_000)
    kind = "values"
    if number % 3 == 1:
        kind = "values and 200 groups"
        rows = pa.concat_tables(
            [rows, group_changes(names.take(pa.array(drawn[:200] % len(names))).unique())]
        )
    if number % 3 == 2:
        kind = "values, and 500 keys that are new"
        new = 10 * OFFSETS + number * 500 + np.arange(500)
        rows = pa.concat_tables([rows, offset_changes(new, names)])
    if number % 12 == 11:
        sample(tables, number)
    append(tables, rows, STARTED + 60_000 + number * 5_000)
    return kind


class Following:
    """A process that follows tables, and tells what each look took."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def told(self) -> str:
        """Return the next line that it says."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def after(self, kind: str) -> tuple[str, float, float]:
        """Let it look after a batch of a kind was written; return the milliseconds of the wall and the
        processor."""
        assert self._process.stdin is not None
        self._process.stdin.write("look\n")
        self._process.stdin.flush()
        wall, cpu = map(float, self.told().split())
        return kind, wall, cpu

    def memory(self) -> str:
        """Return what it takes, and what it took at its highest."""
        parts = {self._process.pid: "it"}
        now, peak = proportional_memory(parts)["it"], peak_memory(parts)["it"]
        return f"{now / MIB:.0f} MiB (PSS), {peak / MIB:.0f} MiB at its highest (resident)"


@contextmanager
def following(root: str) -> Iterator[Following]:
    """Start a process that follows tables for the length of a block."""
    command = [sys.executable, "-m", "tests.benchmarks.bench_memory_snapshot", root]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Following(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()


def follow(root: str) -> None:
    """Look once, many times at nothing new, and then whenever told to; say what it took."""
    tailer = Tailer(Tables(root))
    wall, cpu = look(tailer)
    print(f"{wall / 1_000:.2f} s, {cpu / 1_000:.2f} s of processor time", flush=True)
    idle = statistics.mean(look(tailer)[1] for _ in range(200))
    print(f"{idle:.2f} ms of processor time, {idle / EVERY_S / 10:.2f} % of a core", flush=True)
    for _ in sys.stdin:
        print(*look(tailer), flush=True)


def look(tailer: Tailer) -> tuple[float, float]:
    """Look once; return milliseconds of the wall and of the processor."""
    wall, cpu = time.perf_counter(), time.process_time()
    assert tailer.poll()
    return 1_000 * (time.perf_counter() - wall), 1_000 * (time.process_time() - cpu)


if __name__ == "__main__":
    follow(sys.argv[1])
