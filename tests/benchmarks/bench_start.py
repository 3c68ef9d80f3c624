"""How long the job takes from the command to its first batch in the tables: `make bench ARGS="--only start"`.

Cold on a small topic, and again from the checkpoint with new commits waiting. The parts are seen from
outside: by the lines of the job, its processes, the threads of its JVM, and the files of its checkpoint.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Final

from processes import JVM, WORKERS

from streaming.demo.local_broker import LocalBroker
from tests.benchmarks.bench_follow import fill, prepare_broker
from tests.benchmarks.bench_job import describe_machine
from tests.benchmarks.watched_job import BATCH_LINE, WatchedJob

OFFSETS_PARTITIONS: Final = 50  # the default of brokers
TARGETS: Final = {"cold": 25.0, "restart": 15.0}
_LOOK_EVERY_S: Final = 0.03

STEPS: Final[Mapping[str, str]] = {
    "settings read": "Python starts, imports, reads the settings",
    "JVM started": "brokers are asked, imports of PySpark, Spark's launcher",
    "Spark begins": "the JVM starts, loads classes",
    "context": "Spark's context",
    "query": "Spark's session, the tables",
    "planned": "the query: plan, ends of the partitions",
    "workers": "the batch: plan, tasks, the first Python worker starts",
    "first batch": "the batch: workers import, read, decode, replay, append",
}
"""Moments in the order in which they come, and what happens until each."""

_THREADS: Final = {
    "Spark begins": "dispatcher-even",
    "context": "driver-heartbea",
    "query": "stream executio",
}
"""Threads of the JVM by which moments are told, as the kernel cuts their names."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what can be chosen."""
    add = parser.add_argument_group("start").add_argument
    add("--start-runs", type=int, default=5, help="starts of each kind (default: %(default)s)")
    add("--start-keys", type=int, default=1_000, help="live keys (default: %(default)s)")
    add("--start-settings", type=Path, help="a file of job settings to try")


def measure(options: argparse.Namespace) -> None:
    """Start jobs and print how long it took."""
    print(describe_machine())
    settings = options.start_settings.read_text() if options.start_settings else ""
    found: dict[str, list[dict[str, float]]] = {"cold": [], "restart": []}
    with (
        tempfile.TemporaryDirectory(prefix="offsetlake-bench-") as directory,
        LocalBroker(Path(directory, "broker"), offsets_partitions=OFFSETS_PARTITIONS) as broker,
    ):
        prepare_broker(broker.bootstrap_servers)
        for number in range(1 if options.quick else options.start_runs):
            job = WatchedJob(
                Path(directory, f"job-{number}"), broker.bootstrap_servers, more_settings=settings
            )
            for kind in found:
                fill(broker.bootstrap_servers, options.start_keys)
                with job:
                    found[kind].append(moments(job))
    print_starts(found, options.start_keys)


def moments(job: WatchedJob) -> dict[str, float]:
    """Return the moments of a start, in seconds after the command."""
    newest_batch = max((int(file.name) for file in _offsets_files(job)), default=-1)
    seen: dict[str, float] = {}
    while "first batch" not in seen:
        job.check()
        for name in _now(job, newest_batch) - seen.keys():
            seen[name] = time.time()
        time.sleep(_LOOK_EVERY_S)
        assert time.time() < job.started + 300, "the first batch did not come within 300 s"
    return {name: seen[name] - job.started for name in STEPS if name in seen}


def _now(job: WatchedJob, newest_batch: int) -> set[str]:
    """Tell which moments have come that can only be seen at the time."""
    come = set()
    if job.output:
        come.add("settings read")
    if job.said(BATCH_LINE):
        come.add("first batch")
    for pid, part in job.parts.items():
        with suppress(OSError):
            if part == WORKERS:
                come.add("workers")
            if part == JVM and b"SparkSubmit" in Path(f"/proc/{pid}/cmdline").read_bytes():
                come.add("JVM started")
                threads = {file.read_text().strip() for file in Path(f"/proc/{pid}/task").glob("*/comm")}
                come |= {name for name, thread in _THREADS.items() if thread in threads}
    if any(int(file.name) > newest_batch for file in _offsets_files(job)):
        come.add("planned")
    return come


def _offsets_files(job: WatchedJob) -> Sequence[Path]:
    return list((job.query_checkpoint / "offsets").glob("[0-9]*"))


def print_starts(found: Mapping[str, Sequence[Mapping[str, float]]], keys: int) -> None:
    """The medians of each step and of the whole."""
    runs = len(found["cold"])
    print(
        f"\nseconds from the command to the first batch in the tables, {keys:,} keys, medians of {runs} runs"
    )
    print(f"{'':62}" + "".join(f"{kind:>10}" for kind in found))
    steps = {kind: [_steps(one) for one in starts] for kind, starts in found.items()}
    for name, what in STEPS.items():
        medians = [statistics.median(one.get(name, 0.0) for one in own) for own in steps.values()]
        print(f"{what:62}" + "".join(f"{seconds:10.2f}" for seconds in medians))
    for what, pick in (("altogether", statistics.median), ("altogether, slowest", max)):
        totals = [pick([one["first batch"] for one in starts]) for starts in found.values()]
        print(f"{what:62}" + "".join(f"{seconds:10.2f}" for seconds in totals))
    print(f"{'target':62}" + "".join(f"{TARGETS[kind]:10.2f}" for kind in found))


def _steps(start: Mapping[str, float]) -> dict[str, float]:
    """Turn moments into the time that each took from the one before; a moment not seen counts as none."""
    ordered = sorted((moment, name) for name, moment in start.items())
    return {name: moment - before for (before, _), (moment, name) in pairwise([(0.0, ""), *ordered])}
