"""How soon a commit is seen in the tables, and what following costs: `make bench ARGS="--only follow"`.

A real broker, the real `offsetlake run` as a process, a client that commits at a steady rate through real
OffsetCommit requests, and a reader that asks for one group with our own queries. The latency of a commit is
from the broker's answer to the end of the first read that shows it.
"""

import argparse
import random
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np
from commit_client import Commit, Committer, Traffic
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from processes import PARTS, processor_seconds, thread_seconds
from raw_requests import find_coordinator

from streaming.demo.local_broker import LocalBroker
from streaming.queries.offsets import OffsetQueries
from streaming.tables.tables import Tables
from tests.benchmarks.bench_job import describe_machine
from tests.benchmarks.watched_job import Batch, WatchedJob

TOPIC: Final = "orders"
PARTITIONS_OF_TOPIC: Final = 100
PROBE_GROUP: Final = "probe"
PROBES_PER_S: Final = 5
READS_PER_S: Final = 3
SHOWN_THREADS: Final = 8
TICK_S: Final = 0.01  # how late an answer may be seen
TARGETS: Final = {"p50": 2.0, "p99": 5.0, "at rest": 0.03, "following": 0.5}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One run: how the topic and the job are set up, and how long is measured (seconds)."""

    offsets_partitions: int
    trigger: str
    keys: int
    commits_per_s: int
    warm_up_s: float
    measured_s: float
    rest_s: float


@dataclass
class Usage:
    """Processor time per second (1 = a core) by part of the job, and by thread of its JVM."""

    parts: Counter[str]
    threads: Counter[str]

    @property
    def total(self) -> float:
        """Of the whole job."""
        return sum(self.parts.values())


@dataclass
class Measured:
    """What was seen in one case; latencies in seconds, usages in cores."""

    case: Case
    latencies: list[float] = field(default_factory=list)
    following: Usage | None = None
    at_rest: Usage | None = None
    batches: list[Batch] = field(default_factory=list)
    client: float = 0.0
    reader: float = 0.0
    commits_per_s: float = 0.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what can be chosen."""
    group = parser.add_argument_group("follow")
    add = group.add_argument
    add("--follow-partitions", type=int, nargs="+", default=[50, 8], help="offsets partitions of each run")
    add("--follow-triggers", nargs="+", default=["1s", "5s"], help="triggers of each run")
    add("--follow-seconds", type=float, default=120, help="how long commits are timed (default: %(default)s)")
    add("--follow-warm-up", type=float, default=45, help="seconds of commits before (default: %(default)s)")
    add("--follow-rest", type=float, default=40, help="seconds without commits (default: %(default)s)")
    add("--follow-keys", type=int, default=50_000, help="live keys (default: %(default)s)")
    add("--follow-settings", type=Path, help="a file of job settings to try")


def measure(options: argparse.Namespace) -> None:
    """Run and print all cases."""
    print(describe_machine())
    part = 10 if options.quick else 1
    cases = [
        Case(
            offsets_partitions=partitions,
            trigger=trigger,
            keys=options.follow_keys // part,
            commits_per_s=1_000 // part,
            warm_up_s=options.follow_warm_up / part,
            measured_s=options.follow_seconds / part,
            rest_s=options.follow_rest / part,
        )
        for partitions in options.follow_partitions
        for trigger in options.follow_triggers
    ][: 1 if options.quick else None]
    settings = options.follow_settings.read_text() if options.follow_settings else ""
    measured = []
    for case in cases:
        measured.append(measure_case(case, settings))
        print_case(measured[-1])
    print_all(measured)


def measure_case(case: Case, settings: str) -> Measured:
    """Fill the topic, follow it under a steady load, then without any."""
    with (
        tempfile.TemporaryDirectory(prefix="offsetlake-bench-") as directory,
        LocalBroker(Path(directory, "broker"), offsets_partitions=case.offsets_partitions) as broker,
    ):
        bootstrap = broker.bootstrap_servers
        prepare_broker(bootstrap)
        fill(bootstrap, case.keys)
        options = ["--trigger", case.trigger]
        job = WatchedJob(Path(directory, "job"), bootstrap, more_settings=settings, options=options)
        with job:
            job.wait_for_first_batch()
            return follow(case, job, bootstrap)


def prepare_broker(bootstrap: str) -> None:
    """Create the topic that is committed for, and the offsets topic; return when commits are taken."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS_OF_TOPIC, 1)])[TOPIC].result(30)
    find_coordinator(bootstrap, PROBE_GROUP)
    while len(admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions) < PARTITIONS_OF_TOPIC:
        time.sleep(0.1)
    time.sleep(1)  # for the coordinators of all offsets partitions


def fill(bootstrap: str, keys: int) -> None:
    """Commit every key once."""
    with Committer(bootstrap) as committer:
        committer.commit_all(key_of(number, 0) for number in range(keys))


def key_of(number: int, offset: int) -> Commit:
    """The commit of an offset for the key of a number."""
    group, partition = divmod(number, PARTITIONS_OF_TOPIC)
    return Commit(f"consumer-group-{group:04}", TOPIC, (partition,), (offset,))


def follow(case: Case, job: WatchedJob, bootstrap: str) -> Measured:
    """Commit at the rate, time what the reader sees and what the job uses; then let it rest."""
    measured = Measured(case)
    probes = Probes(job.tables)
    with Traffic(bootstrap, SteadyCommits(case), answered=probes.answered, tick_s=TICK_S) as traffic:
        time.sleep(case.warm_up_s)
        answered, spent, began = traffic.requests, traffic.processor_s, time.time()
        with probes:
            measured.following = usage(job, case.measured_s)
        seconds = time.time() - began
        measured.commits_per_s = (traffic.requests - answered) / seconds
        measured.client = (traffic.processor_s - spent) / seconds
        measured.reader = probes.processor_seconds / seconds
    measured.latencies = probes.latencies
    measured.batches = [batch for batch in job.batches() if batch.planned >= began]
    time.sleep(case.rest_s / 2)  # for the last fold and the next evaluation of alerts
    measured.at_rest = usage(job, case.rest_s)
    return measured


class SteadyCommits:
    """Random keys at a steady rate; among them, at random places, those of the group that is asked for."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._draw = random.Random(1)
        self._probes = 0

    def between(self, start: float, stop: float) -> Iterator[Commit]:
        """What is committed from a time up to another one, in seconds."""
        rate = self._case.commits_per_s
        for number in range(int(start * rate), int(stop * rate)):
            if self._draw.random() < PROBES_PER_S / rate:
                self._probes += 1
                partition = self._probes % PARTITIONS_OF_TOPIC
                yield Commit(PROBE_GROUP, TOPIC, (partition,), (self._probes,))
            else:
                yield key_of(self._draw.randrange(self._case.keys), number + 1)


def usage(job: WatchedJob, seconds: float) -> Usage:
    """Measure the job for some time."""
    started, parts, threads = time.monotonic(), processor_seconds(job.parts), thread_seconds(job.parts)
    time.sleep(seconds)
    parts_after, threads_after = processor_seconds(job.parts), thread_seconds(job.parts)
    job.check()
    spent = time.monotonic() - started
    return Usage(_per_second(parts_after, parts, spent), _per_second(threads_after, threads, spent))


def _per_second(after: Counter[str], before: Counter[str], seconds: float) -> Counter[str]:
    return Counter({name: (after[name] - before[name]) / seconds for name in after})


class Probes(threading.Thread):
    """Asks the tables for one group again and again, and times when its answered commits are first seen."""

    def __init__(self, tables: Tables) -> None:
        super().__init__(name="probes", daemon=True)
        self._queries = OffsetQueries(tables)
        self._waiting: dict[Commit, float] = {}
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._is_timing = False
        self.latencies: list[float] = []
        self.processor_seconds = 0.0

    def answered(self, commit: Commit, moment: float) -> None:
        """Take note of an answered commit."""
        if commit.group == PROBE_GROUP and self._is_timing:
            with self._lock:
                self._waiting[commit] = moment

    def run(self) -> None:
        """Read at a steady pace."""
        while not self._done.wait(1 / READS_PER_S):
            answer = self._queries.fetch_offsets({PROBE_GROUP: None})
            self._compare({row["partition"]: row["committed_offset"] for row in answer.rows.to_pylist()})

    def __enter__(self) -> Self:
        self._is_timing = True
        self._began = time.process_time()
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_timing = False
        self.processor_seconds = time.process_time() - self._began  # that of the whole benchmark
        deadline = time.monotonic() + 20
        while self._waiting and time.monotonic() < deadline:
            time.sleep(0.1)
        self._done.set()
        self.join()
        assert error is not None or not self._waiting, f"commits that were never seen: {self._waiting}"

    def _compare(self, seen: dict[int, int]) -> None:
        now = time.time()
        with self._lock:
            shown = [
                commit for commit in self._waiting if seen.get(commit.partitions[0], -1) >= commit.offsets[0]
            ]
            self.latencies += [now - self._waiting.pop(commit) for commit in shown]


# --- printing ---


def print_case(measured: Measured) -> None:
    """Where the processor time of one case goes."""
    case, following, at_rest = measured.case, measured.following, measured.at_rest
    assert following is not None
    assert at_rest is not None
    print(
        f"\n{case.offsets_partitions} offsets partitions, trigger {case.trigger}: "
        f"{measured.commits_per_s:,.0f} commits/s, {case.keys:,} live keys, {len(measured.latencies)} timed "
        f"in {case.measured_s:g} s; the committing client used {percent(measured.client)} of a core, with "
        f"the reader {percent(measured.reader)}"
    )
    print(f"{'of one core, %':24}{'following':>12}{'at rest':>12}")
    for name in PARTS:
        print(f"{name:24}{percent(following.parts[name]):>12}{percent(at_rest.parts[name]):>12}")
    for name, _ in following.threads.most_common(SHOWN_THREADS):
        print(f"  {name:22}{percent(following.threads[name]):>12}{percent(at_rest.threads[name]):>12}")


def print_all(measured: Sequence[Measured]) -> None:
    """One line per case."""
    print(
        f"\n{'offsets':>10}{'trigger':>9}{'p50 s':>8}{'p90 s':>8}{'p99 s':>8}{'max s':>8}{'batch s':>9}"
        f"{'following':>11}{'at rest':>9}"
    )
    for one in measured:
        assert one.following is not None
        assert one.at_rest is not None
        p50, p90, p99, most = np.percentile(one.latencies, [50, 90, 99, 100])
        batch = statistics.median(batch.seconds for batch in one.batches)
        print(
            f"{one.case.offsets_partitions:>10}{one.case.trigger:>9}{p50:8.2f}{p90:8.2f}{p99:8.2f}{most:8.2f}"
            f"{batch:9.2f}{percent(one.following.total):>11}{percent(one.at_rest.total):>9}"
        )
    print(
        f"targets, with a trigger of 1s: p50 {TARGETS['p50']:g}, p99 {TARGETS['p99']:g}; "
        f"of one core: following (default trigger) {percent(TARGETS['following'])}, "
        f"at rest {percent(TARGETS['at rest'])}"
    )


def percent(share: float) -> str:
    """Write a share of a core."""
    return f"{100 * share:.1f} %"
