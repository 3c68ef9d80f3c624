"""Records a second of the job beside a raw read of the same topic by the same connector, and where time goes.

Everything is measured in one run and one Spark session, since only ratios travel from machine to machine:
the raw read before and after the job, the job from the source to folded tables.
"""

import json
import os
import platform
import shutil
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import confluent_kafka
import deltalake
import numpy as np
import pandas as pd
import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from streaming import packets, writer
from streaming.broker import Broker
from streaming.coordinator import Shard, replay
from streaming.follow import Follower, Listener
from streaming.jars import ensure_jars
from streaming.local_broker import LocalBroker
from streaming.narrow import narrow
from streaming.schemas import CHANGES_IN_BATCH
from streaming.session import start_session
from streaming.settings import Settings, read_settings
from streaming.source import read_records, source_options
from streaming.table_rows import change_rows
from streaming.tables import Tables
from streaming.udfs import decode_record, packing_udf
from streaming.writer import BatchReport
from tests.benchmarks.clocks import Clocks, read_clocks
from tests.benchmarks.workloads import Workload, chunks, fill_topic

PARTITIONS: Final = 8
TARGETS: Final[Mapping[str, float]] = {"A": 0.55, "C": 0.28}


@dataclass
class JobRun:
    """What was seen of a run of the job; `ends`, `progress` and most `stages` have one element per batch."""

    now: Callable[[], Clocks]
    started: Clocks
    finished: Clocks
    reports: list[BatchReport] = field(default_factory=list)
    ends: list[Clocks] = field(default_factory=list)
    stages: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    progress: list[dict[str, Any]] = field(default_factory=list)

    def report(self, report: BatchReport) -> None:
        """Note a batch that is in the tables."""
        self.reports.append(report)
        self.ends.append(self.now())

    def seconds_per_record(self, warm_up: int) -> Clocks:
        """What a record costs after some batches of warm-up, the last fold included."""
        spent = self.finished.since(self.ends[warm_up - 1] if warm_up else self.started)
        return spent.per(sum(report.moved for report in self.reports[warm_up:]))

    @property
    def batch_seconds(self) -> list[float]:
        """How long each batch took, from the end of the one before."""
        moments = [self.started, *self.ends]
        return [end.since(start).wall for start, end in pairwise(moments)]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was seen of one workload; of each run of the job the first `warm_up` batches are left out."""

    workload: Workload
    raw_reads: list[Clocks]
    raw_stream_rate: float
    runs: list[JobRun]
    warm_up: int

    @property
    def raw(self) -> Clocks:
        """What a record costs to read: the middle one of the raw reads before and after the job."""
        return _middle(self.raw_reads).per(self.workload.records)

    @property
    def jobs(self) -> list[Clocks]:
        """What a record costs from the source to folded tables, run by run."""
        return [run.seconds_per_record(self.warm_up) for run in self.runs]

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
    """Run and print the benchmark, in batches as large as the job makes them by default or as given.

    The first two batches of the first workload's runs are left out, as warm-up; the others find the session
    warm.
    """
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
                job_settings(broker, workload.name, folder / str(run), records_per_batch, spark_conf)
                for run in range(runs)
            ]
            for workload, folder in ((workload, root / workload.name) for workload in workloads)
        ]
        any_settings = settings[0][0]
        spark = start_session(any_settings.spark, any_settings.job, ensure_jars("connector"))
        stack.callback(spark.stop)
        measured = [
            measure_job(spark, workload, own, partial(read_clocks, broker.pid), warm_up=0 if number else 2)
            for number, (workload, own) in enumerate(zip(workloads, settings, strict=True))
        ]
        packet_rows = int(spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") or 0)
    print_rates(measured)
    print_processor_time(measured)
    print_stages(measured)
    batch_rows = any_settings.source.max_records_per_batch
    print_python_steps(
        {workload.name: python_steps(workload, packet_rows, batch_rows) for workload in workloads}
    )


def job_settings(
    broker: LocalBroker, topic: str, root: Path, records_per_batch: int | None, spark_conf: Mapping[str, str]
) -> Settings:
    """The job's defaults on two cores, with everything it writes under `root`."""
    of_batch = {"source.max_records_per_batch": records_per_batch} if records_per_batch else {}
    return read_settings(
        options={
            "source.bootstrap_servers": broker.bootstrap_servers,
            "source.topic": topic,
            "source.check_partition": "on",  # as of the offsets topic itself
            "tables.root": str(root / "tables"),
            "job.checkpoint": str(root / "checkpoint"),
            "spark.master": "local[2]",
            "spark.log_file": str(root / "spark.log"),
            "spark.conf": dict(spark_conf),
            **of_batch,
        }
    )


def measure_job(
    spark: SparkSession,
    workload: Workload,
    settings: Sequence[Settings],
    now: Callable[[], Clocks],
    *,
    warm_up: int,
) -> Measured:
    """Measure a workload whose topic is filled: raw reads, runs of the job, raw reads; check what it wrote.

    There are as many runs as settings, which differ in the places of tables and checkpoint.
    """

    def raw_read() -> Clocks:
        started = now()
        read_raw(spark, settings[0])
        return now().since(started)

    for _ in range(2):
        raw_read()  # warms up
    raw_reads = [raw_read() for _ in range(2)]
    raw_stream_rate = raw_stream(spark, settings[0], warm_up)
    runs = []
    for own in settings:
        runs.append(run_job(spark, own, now))
        check_tables(Tables(own.tables.root), workload)
    raw_reads += [raw_read() for _ in range(3)]
    return Measured(
        workload=workload, raw_reads=raw_reads, raw_stream_rate=raw_stream_rate, runs=runs, warm_up=warm_up
    )


def read_raw(spark: SparkSession, settings: Settings) -> None:
    """Read the topic as a batch into nowhere."""
    options = source_options(settings.source, PARTITIONS)
    del options["maxOffsetsPerTrigger"]  # a batch has no triggers
    records = spark.read.format("kafka").options(**options).load()
    columns = records.select("key", "value", "partition", "offset", "timestamp")
    columns.write.format("noop").mode("overwrite").save()


def raw_stream(spark: SparkSession, settings: Settings, warm_up: int) -> float:
    """Read the topic as a stream into nowhere, in micro-batches as the job does: records a second."""
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            read_records(spark, settings.source, PARTITIONS)
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    counted = [progress for progress in query.recentProgress if progress.numInputRows][warm_up:]
    rows = sum(progress.numInputRows for progress in counted)
    return 1_000 * rows / (sum(progress.durationMs["triggerExecution"] for progress in counted) or 1)


def run_job(spark: SparkSession, settings: Settings, now: Callable[[], Clocks]) -> JobRun:
    """Run the real job to the present end of its topic, watching it from outside."""
    run = JobRun(now, now(), now())
    broker = Broker(settings.source)
    facts = broker.wait_for_topic(print, lambda: False)
    assert facts is not None
    listener = Listener(lambda _said: None, run.report, lambda _alert: None)
    with watched_query(spark, run), watched_calls(run):
        run.started = now()
        Follower(spark, settings, broker, facts, listener, threading.Event()).follow(once=True)
        run.finished = now()
    return run


@contextmanager
def watched_query(spark: SparkSession, run: JobRun) -> Iterator[None]:
    """Collect what Spark says about each batch of the query."""
    is_over = threading.Event()

    class Watcher(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802
            pass

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            progress = json.loads(event.progress.json)
            if progress["numInputRows"]:
                run.progress.append(progress)

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802
            pass

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            is_over.set()

    watcher = Watcher()
    spark.streams.addListener(watcher)
    try:
        yield
        is_over.wait(10)
    finally:
        spark.streams.removeListener(watcher)


@contextmanager
def watched_calls(run: JobRun) -> Iterator[None]:
    """Time the steps of the driver."""
    with ExitStack() as stack:
        for owner, name in (
            (writer.ShardResults, "collect"),
            (writer, "change_rows"),
            (Tables, "is_appended"),
            (Tables, "append_changes"),
            (Tables, "fold"),
        ):
            stack.enter_context(patch.object(owner, name, timed(getattr(owner, name), run.stages[name])))
        yield


def timed(action: Callable[..., Any], seconds: list[float]) -> Callable[..., Any]:
    """The same action, noting how long each call takes that belongs to a batch."""

    def call(*arguments: Any, **options: Any) -> Any:
        started = time.perf_counter()
        try:
            return action(*arguments, **options)
        finally:
            if options.get("is_batch", True):
                seconds.append(time.perf_counter() - started)

    return call


def check_tables(tables: Tables, workload: Workload) -> None:
    """Fail unless the folded offsets are what was committed last, for every key."""
    columns = ["group", "topic", "partition", "committed_offset"]
    order = [(column, "ascending") for column in columns[:3]]
    found = tables.read().offsets.select(columns).sort_by(order)
    wanted = workload.newest().sort_by(order)
    assert len(found) == len(wanted), f"{workload.name}: {len(found)} offsets, expected {len(wanted)}"
    assert found.equals(wanted), f"{workload.name}: offsets are not those of the last commits"
    unfolded = tables.unfolded_rows()
    assert unfolded == 0, f"{workload.name}: {unfolded} changes are not folded"


# --- the same bytes through the Python steps alone, on one core ---


def python_steps(workload: Workload, packet_rows: int, batch_rows: int) -> dict[str, float]:
    """Records a second of each Python step, over all batches of the workload and without Spark."""
    seconds: dict[str, float] = defaultdict(float)
    shards = {number: Shard.empty() for number in range(PARTITIONS)}

    def step(name: str, action: Callable[..., Any], *arguments: Any) -> Any:
        started = time.perf_counter()
        result = action(*arguments)
        seconds[name] += time.perf_counter() - started
        return result

    for batch in raw_batches(workload, batch_rows):
        arrived: dict[int, list[bytes]] = defaultdict(list)
        for start in range(0, len(batch), packet_rows):
            rows = batch.iloc[start : start + packet_rows].reset_index(drop=True)
            decoded = step("decode_record", decode_record.func, *(rows[name] for name in rows))
            packed = step("pack_records", packing_udf(PARTITIONS).func, decoded)
            for partition, packet in packed.dropna().itertuples(index=False):
                arrived[partition].append(packet)
        changes = []
        for partition, own in arrived.items():
            unpacked = step("unpack", lambda own=own: [packets.unpack(packet) for packet in own])
            records = pa.concat_tables([table for table, _ in unpacked])
            shards[partition], changed = step("replay", replay, shards[partition], records)
            state = step("state to bytes", packets.to_bytes, shards[partition].entries.table)
            step("state from bytes", packets.from_bytes, state)
            sent = step("changes to bytes", lambda changed=changed: packets.to_bytes(narrow(changed)))
            changes.append({"source_partition": partition, "changes": sent})
        table = step(
            "changes from bytes",
            writer._shard_tables,
            changes,
            "changes",
            CHANGES_IN_BATCH,
        )
        step("change_rows", lambda table=table: change_rows(table, sequence=1, batch_time=1))
    seconds["all of these"] = sum(seconds.values())
    return {name: workload.records / spent for name, spent in seconds.items()}


def raw_batches(workload: Workload, batch_rows: int) -> Iterator[pd.DataFrame]:
    """The workload in micro-batches, each ordered by partition, as the source gives them."""
    waiting: list[pd.DataFrame] = []
    for number, chunk in enumerate(chunks(workload, PARTITIONS)):
        offset = 1_000_000 * number + np.arange(len(chunk.keys))
        columns = {"partition": chunk.partitions.astype(np.int32), "offset": offset, "timestamp": offset}
        waiting.append(pd.DataFrame({"key": chunk.keys, "value": chunk.values, **columns}))
        if sum(map(len, waiting)) >= batch_rows:
            yield pd.concat(waiting).sort_values("partition", kind="stable", ignore_index=True)
            waiting = []
    if waiting:
        yield pd.concat(waiting).sort_values("partition", kind="stable", ignore_index=True)


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
            end = run.finished.since(run.ends[-1]).wall
            print(f"   seconds per batch {batches}, then {end:.2f}")


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
    batches = [batch for run in one.runs for batch in run.progress[one.warm_up :]]
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
    names = dict.fromkeys(name for run in one.runs for name in run.stages if name != "fold")
    driver = {
        f"driver: {name}": statistics.median(
            seconds for run in one.runs for seconds in run.stages[name][one.warm_up :] or run.stages[name]
        )
        for name in names
    }
    folds = [[spent for spent in run.stages["fold"] if spent > 0.1] for run in one.runs]
    return {
        **spark,
        **state,
        **driver,
        "folds, all": statistics.median(map(sum, folds)),
        "folds, count": statistics.median(map(len, folds)),
    }


def print_python_steps(rates: Mapping[str, Mapping[str, float]]) -> None:
    """Records a second of the Python steps alone."""
    print(f"\n{'Python alone, one core, records/s':46}" + "".join(f"{name:>12}" for name in rates))
    for name in next(iter(rates.values())):
        print(f"{name:46}" + "".join(f"{one[name]:12,.0f}" for one in rates.values()))
