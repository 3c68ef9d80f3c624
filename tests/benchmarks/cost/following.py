"""What following costs: commits at a steady rate through real requests, measured in windows; then none.

Each run has a broker of its own, with the same keys, so that all find the same.
"""

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from commit_client import Traffic
from processes import DRIVER, JVM, STARTED_BY_JVM, WORKERS

from streaming.demo.local_broker import LocalBroker
from tests.benchmarks.bench_follow import TICK_S, Case, SteadyCommits, fill, prepare_broker
from tests.benchmarks.cost.contestants import Contestant, ForeignMonitor, Task, folder_of, tables
from tests.benchmarks.cost.latency import Latencies
from tests.benchmarks.cost.table import Table, Values
from tests.benchmarks.cost.watched import Used, Watched

SCRAPE_EVERY_S: Final = 15.0
"""How often a foreign monitor is asked for its metrics meanwhile, as it would be in use."""

COLUMNS: Final = {
    "cpu %": ".1f",
    "driver": ".1f",
    "JVM": ".1f",
    "others": ".1f",
    "workers": ".1f",
    "compile": ".1f",
    "gc": ".1f",
    "tasks": ".1f",
    "PSS MiB": ",.0f",
    "driver MiB": ",.0f",
    "JVM MiB": ",.0f",
    "workers MiB": ",.0f",
    "p50 s": ".2f",
    "p90 s": ".2f",
    "p99 s": ".2f",
    "commits/s": ",.0f",
}
_PARTS: Final = {"driver": DRIVER, "JVM": JVM, "others": STARTED_BY_JVM, "workers": WORKERS}
_THREADS: Final = {"compile": "compiling bytecode", "gc": "collecting garbage", "tasks": "tasks"}
_MIB: Final = 2**20


@dataclass(frozen=True, kw_only=True)
class Following:
    """How the topic is set up, how much is committed, and when is measured (seconds of commits)."""

    partitions: int
    keys: int
    commits_per_s: int
    trigger: str
    windows: Sequence[float]
    window_s: float
    memory_after_s: float
    rest_s: float

    @property
    def title(self) -> str:
        """What is done, in a line."""
        return (
            f"follow: {self.partitions} offsets partitions, {self.commits_per_s:,} commits/s, {self.keys:,} "
            f"live keys, trigger {self.trigger}; percent of a core, memory as PSS"
        )

    @property
    def commits(self) -> SteadyCommits:
        """What is committed."""
        return SteadyCommits(
            Case(
                offsets_partitions=self.partitions,
                trigger=self.trigger,
                keys=self.keys,
                commits_per_s=self.commits_per_s,
                warm_up_s=0,
                measured_s=self.window_s,
                rest_s=self.rest_s,
            )
        )


def measure_following(following: Following, contestants: Sequence[Contestant], runs: int) -> Table:
    """Let the contestants follow one after the other, again and again."""
    table = Table(following.title, COLUMNS)
    table.begin()
    for run in range(1, runs + 1):
        for contestant in contestants:
            for what, values in follow(following, contestant):
                table.row(contestant.name, what, run, values)
    return table


def follow(following: Following, contestant: Contestant) -> Iterator[tuple[str, Values]]:
    """Yield what was measured in each window of one run, by its name."""
    with (
        tempfile.TemporaryDirectory(prefix="offsetlake-bench-") as directory,
        LocalBroker(Path(directory, "broker"), offsets_partitions=following.partitions) as broker,
    ):
        prepare_broker(broker.bootstrap_servers)
        fill(broker.bootstrap_servers, following.keys)
        task = Task(
            bootstrap=broker.bootstrap_servers,
            folder=folder_of(Path(directory), contestant, 1),
            partitions=following.partitions,
            trigger=following.trigger,
        )
        with Watched(contestant.command(task), task.folder) as watched:
            watched.wait_until(lambda: contestant.has_begun(task, watched), "the first batch")
            run = _Run(following, contestant, task, watched)
            yield from run.under_load()
            yield from run.at_rest()
            watched.stop()


@dataclass(frozen=True)
class _Run:
    """One contestant that follows."""

    following: Following
    contestant: Contestant
    task: Task
    watched: Watched

    def under_load(self) -> Iterator[tuple[str, Values]]:
        latencies = Latencies(self.contestant.tree, tables(self.task))
        with Traffic(
            self.task.bootstrap, self.following.commits, answered=latencies.answered, tick_s=TICK_S
        ) as traffic:
            for start in self.following.windows:
                self.sleep(start - traffic.seconds)
                answered, began = traffic.requests, time.monotonic()
                with latencies:
                    values = self.window(self.following.window_s)
                    values["commits/s"] = (traffic.requests - answered) / (time.monotonic() - began)
                yield f"after {start:g} s", {**values, **_percentiles(latencies.seconds)}
            if self.following.memory_after_s:
                self.sleep(self.following.memory_after_s - traffic.seconds)
                yield f"after {self.following.memory_after_s:g} s", self.memory()

    def at_rest(self) -> Iterator[tuple[str, Values]]:
        if self.following.rest_s:
            self.sleep(self.following.rest_s / 2)  # for the last fold and the next evaluation of alerts
            yield "at rest", self.window(self.following.rest_s)

    def window(self, seconds: float) -> dict[str, float]:
        """Measure for some time."""
        before = self.watched.used()
        self.sleep(seconds)
        after = self.watched.used()
        self.watched.check()
        return {**_percent(after.per_second_since(before)), **self.memory()}

    def memory(self) -> dict[str, float]:
        memory = self.watched.memory()
        parts = {f"{name} MiB": memory[part] / _MIB for name, part in _PARTS.items() if name != "others"}
        return {"PSS MiB": memory.total() / _MIB, **parts}

    def sleep(self, seconds: float) -> None:
        """Wait; meanwhile a foreign monitor is asked for its metrics now and then."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if isinstance(self.contestant, ForeignMonitor):
                self.contestant.counted(self.task)
            time.sleep(min(SCRAPE_EVERY_S, left))


def _percent(used: Used) -> dict[str, float]:
    parts = {name: 100 * used.parts[part] for name, part in _PARTS.items()}
    threads = {name: 100 * used.threads[kind] for name, kind in _THREADS.items()}
    return {"cpu %": 100 * used.parts.total(), **parts, **threads}


def _percentiles(seconds: Sequence[float]) -> Values:
    if not seconds:
        return {}
    return dict(zip(("p50 s", "p90 s", "p99 s"), np.percentile(seconds, [50, 90, 99]), strict=True))
