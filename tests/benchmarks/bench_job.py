"""Records a second of the job beside a raw read of the same records, and where time goes.

Everything is measured in one run and one Spark session, since only ratios travel from machine to machine:
the raw read by the same connector before and after the job, the job from the source to folded tables.
Workload A is read by a job that catches up, batch after batch; C comes to a job that follows, as one large
batch after two small ones (`job_runs`).
"""

import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import confluent_kafka
import deltalake
import pandas as pd
import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession

from streaming.common.freed_memory import return_freed_memory_at_once
from streaming.demo.local_broker import LocalBroker
from streaming.jvm.jars import ensure_jars
from streaming.settings.model import Settings
from streaming.settings.reading import read_settings
from streaming.spark.query import records_per_batch as most_records
from streaming.spark.session import start_session
from streaming.spark.source import read_records, source_options
from streaming.tables.tables import Tables
from tests.benchmarks.clocks import Clocks, read_clocks
from tests.benchmarks.job_runs import PARTITIONS, WARM_UP, JobRun, catch_up, check_tables, follow_parts
from tests.benchmarks.python_steps import print_python_steps, python_steps
from tests.benchmarks.workloads import Workload, fill_topic

TARGETS: Final[Mapping[str, float]] = {"A": 0.55, "C": 0.28}
IN_PARTS: Final = frozenset({"C"})
"""Workloads that come to a job that follows; to each run in a topic of its own."""

_TRIGGER: Final = "1s"
"""Of a job that follows; waiting for it does not count."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was seen of one workload; `cold_read` is the first of its raw reads, before these are warm."""

    workload: Workload
    cold_read: Clocks
    raw_reads: list[Clocks]
    raw_stream_rate: float
    runs: list[JobRun]

    @property
    def raw(self) -> Clocks:
        """What a record costs to read: the middle one of the raw reads before and after the job."""
        return _middle(self.raw_reads).per(self.workload.records)

    @property
    def jobs(self) -> list[Clocks]:
        """What a record costs from the source to folded tables, run by run."""
        return [run.seconds_per_record for run in self.runs]

    @property
    def job(self) -> Clocks:
        """What a record costs in the middle one of the runs."""
        return _middle(self.jobs)


def _middle(spent: Sequence[Clocks]) -> Clocks:
    return sorted(spent, key=lambda clocks: clocks.wall)[len(spent) // 2]


def measure_jobs(
    workloads: Sequence[Workload],
    *,
    records_per_batch: int | None,
    runs: int,
    spark_conf: Mapping[str, str],
) -> None:
    """Run and print the benchmark, in batches as large as the job makes them by default or as given."""
    print(describe_machine())
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="offsetlake-bench-")))
        broker = stack.enter_context(LocalBroker(root / "broker", heap="1g"))
        for workload in workloads:
            started = time.perf_counter()
            fill_topic(broker.bootstrap_servers, workload.name, workload, PARTITIONS)
            seconds = time.perf_counter() - started
            print(f"workload {workload.name}: {workload.records:,} records produced in {seconds:.1f} s")
        settings = [
            [
                job_settings(broker, root, workload.name, run, records_per_batch, spark_conf)
                for run in range(runs)
            ]
            for workload in workloads
        ]
        any_settings = settings[0][0]
        return_freed_memory_at_once()  # as the command does
        spark = start_session(any_settings.spark, any_settings.job, ensure_jars("connector"))
        stack.callback(spark.stop)
        measured = [
            measure_job(spark, workload, own, partial(read_clocks, broker.pid))
            for workload, own in zip(workloads, settings, strict=True)
        ]
        block_rows = int(spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") or 0)
    print_rates(measured)
    print_cold_read(measured[0])
    print_processor_time(measured)
    print_stages(measured)
    batch_rows = most_records(any_settings)
    steps = partial(python_steps, partitions=PARTITIONS, block_rows=block_rows, batch_rows=batch_rows)
    print_python_steps({workload.name: steps(workload) for workload in workloads})


def job_settings(
    broker: LocalBroker,
    root: Path,
    workload: str,
    run: int,
    records_per_batch: int | None,
    spark_conf: Mapping[str, str],
) -> Settings:
    """The job's defaults on two cores, with everything that a run writes in a folder of its own."""
    own = root / workload / str(run)
    of_batch = {"source.max_records_per_batch": records_per_batch} if records_per_batch else {}
    return read_settings(
        options={
            "source.bootstrap_servers": broker.bootstrap_servers,
            "source.topic": f"{workload}-{run}" if workload in IN_PARTS else workload,
            "source.check_partition": "on",  # as of the offsets topic itself
            "tables.root": str(own / "tables"),
            "job.checkpoint": str(own / "checkpoint"),
            "job.trigger": _TRIGGER,
            "spark.master": "local[2]",
            "spark.log_file": str(own / "spark.log"),
            "spark.conf": dict(spark_conf),
            **of_batch,
        }
    )


def measure_job(
    spark: SparkSession, workload: Workload, settings: Sequence[Settings], now: Callable[[], Clocks]
) -> Measured:
    """Measure a workload, of which a topic of its name is filled: raw reads, runs of the job, raw reads.

    There are as many runs as settings, which differ in the places of what they write. Fails if a run's tables
    are not what was committed.
    """

    def raw_read() -> Clocks:
        started = now()
        read_raw(spark, settings[0], workload.name)
        return now().since(started)

    cold_read = raw_read()
    raw_read()  # warms up
    raw_reads = [raw_read() for _ in range(2)]
    raw_stream_rate = raw_stream(spark, settings[0], workload.name)
    runs = []
    for own in settings:
        is_in_parts = workload.name in IN_PARTS
        run = follow_parts(spark, own, workload, now) if is_in_parts else catch_up(spark, own, now)
        check_tables(Tables(own.tables.root), workload)
        runs.append(run)
    raw_reads += [raw_read() for _ in range(3)]
    return Measured(
        workload=workload,
        cold_read=cold_read,
        raw_reads=raw_reads,
        raw_stream_rate=raw_stream_rate,
        runs=runs,
    )


def read_raw(spark: SparkSession, settings: Settings, topic: str) -> None:
    """Read a topic as a batch into nowhere."""
    options = source_options(replace(settings.source, topic=topic), PARTITIONS)
    records = spark.read.format("kafka").options(**options).load()
    columns = records.select("key", "value", "partition", "offset", "timestamp")
    columns.write.format("noop").mode("overwrite").save()


def raw_stream(spark: SparkSession, settings: Settings, topic: str) -> float:
    """Read a topic as a stream into nowhere, in micro-batches as the job does: records a second.

    The first batches are left out, unless there are no others.
    """
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            read_records(
                spark,
                replace(settings.source, topic=topic),
                PARTITIONS,
                most_records(settings),
            )
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    batches = [progress for progress in query.recentProgress if progress.numInputRows]
    counted = batches[WARM_UP:] or batches
    rows = sum(progress.numInputRows for progress in counted)
    return 1_000 * rows / (sum(progress.durationMs["triggerExecution"] for progress in counted) or 1)


# --- printing ---


def describe_machine() -> str:
    """One line about what the figures were measured on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = {
        "Python": platform.python_version(),
        "PySpark": pyspark.__version__,
        "pyarrow": pa.__version__,
        "pandas": pd.__version__,
        "deltalake": deltalake.__version__,
        "confluent-kafka": confluent_kafka.__version__,
    }
    free = shutil.disk_usage(tempfile.gettempdir()).free / 2**30
    return (
        f"machine: {platform.system()} {platform.machine()}, {os.cpu_count()} cores, "
        f"{memory:.0f} GB of memory, {free:.0f} GB of disk free, load {os.getloadavg()[0]:.1f}; "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
    )


def print_rates(measured: Sequence[Measured]) -> None:
    """One line per workload: records a second, raw and through the job, and their ratio."""
    print(
        f"\n{'workload':10}{'records':>11}{'keys':>11}{'raw/s':>11}{'raw stream/s':>14}{'job/s':>11}"
        f"{'ratio':>7}{'target':>8}{'raw cpu us':>12}{'job cpu us':>12}{'ratio':>7}"
    )
    for one in measured:
        raw, job = one.raw, one.job
        print(
            f"{one.workload.name:10}{one.workload.records:11,}{one.workload.keys:11,}{1 / raw.wall:11,.0f}"
            f"{one.raw_stream_rate:14,.0f}{1 / job.wall:11,.0f}{raw.wall / job.wall:7.2f}"
            f"{TARGETS.get(one.workload.name, 0):8.2f}{1e6 * raw.cpu:12.2f}{1e6 * job.cpu:12.2f}"
            f"{raw.cpu / job.cpu:7.2f}"
        )
    for one in measured:
        rates = " ".join(f"{1 / job.wall:,.0f}" for job in one.jobs)
        reads = " ".join(f"{read.wall:.2f}" for read in one.raw_reads)
        print(f"{one.workload.name}: records/s of the runs {rates}; seconds of the raw reads {reads}")
        for run in one.runs:
            batches = " ".join(f"{seconds:.2f}" for seconds in run.batch_seconds)
            print(f"   seconds per batch {batches}; folded in {sum(run.seconds_of('fold')):.2f}")


def print_cold_read(first: Measured) -> None:
    """How fast the raw read is as the first thing that a session does, beside what it is from then on."""
    cold, warm = first.cold_read.per(first.workload.records), first.raw
    print(
        f"\nraw read of {first.workload.name} as the first thing that the session does: "
        f"{1 / cold.wall:,.0f} records/s, {1e6 * cold.cpu:.2f} us of processor time a record; "
        f"warm: {1 / warm.wall:,.0f} records/s, {1e6 * warm.cpu:.2f} us"
    )


def print_processor_time(measured: Sequence[Measured]) -> None:
    """What the processor time of the middle run was spent on, beside that of the raw read."""
    columns = {
        f"{one.workload.name} {what}": clocks.per(1).spent
        for one in measured
        for what, clocks in (("raw", one.raw), ("job", one.job))
    }
    parts = sorted({part for spent in columns.values() for part in spent})
    print("\nprocessor seconds per million records" + " " * 9 + "".join(f"{name:>12}" for name in columns))
    for part in parts:
        print(f"{part:46}" + "".join(f"{1e6 * spent.get(part, 0):12.2f}" for spent in columns.values()))


def print_stages(measured: Sequence[Measured]) -> None:
    """Where the time of a batch goes: medians of the batches after the warm-up, in seconds."""
    stages = {one.workload.name: stage_seconds(one) for one in measured}
    names = list(dict.fromkeys(name for one in stages.values() for name in one))
    print("\nseconds per batch (medians; folds are per run)" + "".join(f"{name:>12}" for name in stages))
    for name in names:
        print(f"{name:46}" + "".join(f"{one.get(name, float('nan')):12.3f}" for one in stages.values()))


def stage_seconds(one: Measured) -> dict[str, float]:
    """Name each stage and say how long it took."""
    batches = [batch for run in one.runs for batch in run.progress[WARM_UP:]]
    spark = {
        f"spark: {name}": statistics.median(batch["durationMs"].get(name, 0) for batch in batches) / 1_000
        for name in sorted({name for batch in batches for name in batch["durationMs"]})
    }
    state = {
        f"state, all tasks: {name}": statistics.median(
            sum(operator.get(name, 0) for operator in batch["stateOperators"]) for batch in batches
        )
        / 1_000
        for name in ("allUpdatesTimeMs", "allRemovalsTimeMs", "commitTimeMs")
    }
    names = dict.fromkeys(name for run in one.runs for name in run.calls if name != "fold")
    driver = {
        f"driver: {name}": statistics.median([s for run in one.runs for s in run.seconds_of(name)] or [0.0])
        for name in names
    }
    folds = [run.seconds_of("fold") for run in one.runs]
    return {**spark, **state, **driver, "folds, all": statistics.median(map(sum, folds))}
