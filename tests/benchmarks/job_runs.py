"""Runs of the real job in this process, watched from outside: what its batches and folds took, step by step.

Measured are the batches after the first two of the query, and the folds after these: a query begins with
planning that comes once, and with code that Java has not compiled yet.
"""

import json
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from streaming.brokers.broker import Broker
from streaming.job import writer
from streaming.job.follow import follow
from streaming.job.reading import TopicReader
from streaming.job.reporter import BatchReport, Reporter
from streaming.settings.model import Settings
from streaming.spark.shard_results import ShardResults
from streaming.tables.tables import Tables
from tests.benchmarks.clocks import Clocks
from tests.benchmarks.workloads import TopicFiller, Workload, chunks

PARTITIONS: Final = 8
WARM_UP: Final = 2
"""Batches of each query that are not measured."""

SMALL: Final = 1_000
"""Records of each batch that comes before a large one."""

_LIMIT_S: Final = 180.0


class Call(NamedTuple):
    """One call of a step of the driver: when it ended (of time.perf_counter()), and how long it took."""

    ended: float
    seconds: float


@dataclass
class JobRun:
    """What was seen of a run of the job; what is measured of it lies between `began` and `finished`.

    With `waits` the job waits for records in between, which does not count.
    """

    now: Callable[[], Clocks]
    waits: bool
    began: Clocks = field(default_factory=lambda: Clocks(0))
    finished: Clocks = field(default_factory=lambda: Clocks(0))
    reports: list[BatchReport] = field(default_factory=list)
    ends: list[Clocks] = field(default_factory=list)  # of batches, as they are reported
    calls: dict[str, list[Call]] = field(default_factory=lambda: defaultdict(list))  # by step
    progress: list[dict[str, Any]] = field(default_factory=list)  # of batches, as Spark gives it

    def report(self, report: BatchReport) -> None:
        """Note a batch that is in the tables."""
        self.reports.append(report)
        self.ends.append(self.now())

    @property
    def seconds_per_record(self) -> Clocks:
        """What a record cost in the measured batches and folds.

        Where the job waited, the wall time is that of the batches, from the trigger to the commit, and of the
        folds; processor time is all that was spent from before the trigger to the end of an orderly stop.
        """
        spent = self.finished.since(self.began)
        if self.waits:
            spent = Clocks(sum(self.batch_seconds[WARM_UP:]) + sum(self.seconds_of("fold")), spent.spent)
        return spent.per(sum(report.moved for report in self.reports[WARM_UP:]))

    @property
    def batch_seconds(self) -> list[float]:
        """How long each batch took, from its trigger to its commit."""
        return [batch["durationMs"]["triggerExecution"] / 1_000 for batch in self.progress]

    def seconds_of(self, step: str) -> list[float]:
        """How long each of the measured calls of a step took."""
        return [call.seconds for call in self.calls[step] if call.ended > self.began.wall]


def catch_up(spark: SparkSession, settings: Settings, now: Callable[[], Clocks]) -> JobRun:
    """Have the job read a topic that is filled, batch after batch, to its present end."""
    run = JobRun(now, waits=False)
    with watched(spark, run):
        follow(reader(spark, settings, run.report, threading.Event()), once=True)
        run.began, run.finished = run.ends[WARM_UP - 1], now()
    return run


def follow_parts(
    spark: SparkSession, settings: Settings, workload: Workload, now: Callable[[], Clocks]
) -> JobRun:
    """Have the job follow a new topic that gets two small parts of a workload, then all the rest at once.

    Each part is a transaction, so it is seen as a whole, and waits until the one before is in the tables. At
    the end the job is stopped, whereupon it folds.
    """
    run, stop = JobRun(now, waits=True), threading.Event()
    read: queue.SimpleQueue[int | None] = queue.SimpleQueue()  # records up to each batch; None: it has ended
    filler = TopicFiller(
        settings.source.bootstrap_servers, settings.source.topic, PARTITIONS, in_transactions=True
    )

    def report(report: BatchReport) -> None:
        run.report(report)
        read.put(report.progress.totals.decoded)

    def produce(first: int, after: int) -> None:
        filler.begin()
        for chunk in chunks(workload, PARTITIONS, start=first, stop=after):
            filler.produce(chunk)
        filler.flush()
        run.began = now()  # that of the last part stands
        filler.commit()

    def wait_until_read(records: int, following: Future[None]) -> None:
        while (reached := read.get(timeout=_LIMIT_S)) is None or reached < records:
            if reached is None:
                following.result()
                raise AssertionError(f"expected the job to read {records:,} records, found that it ended")

    with watched(spark, run), ThreadPoolExecutor(1) as pool:
        following = pool.submit(follow, reader(spark, settings, report, stop), once=False)
        following.add_done_callback(lambda _: read.put(None))
        try:
            for first, after in pairwise([0, SMALL, 2 * SMALL, workload.records]):
                produce(first, after)
                wait_until_read(after, following)
        finally:
            stop.set()
        following.result()
        run.finished = now()
    return run


def reader(
    spark: SparkSession, settings: Settings, report: Callable[[BatchReport], None], stop: threading.Event
) -> TopicReader:
    """The job, which reports its batches and is otherwise silent."""
    broker = Broker(settings.source)
    facts = broker.wait_for_topic(lambda: False)
    assert facts is not None
    listener = Reporter(report, lambda _alert: None)
    return TopicReader(spark, settings, broker, facts, listener, stop)


@contextmanager
def watched(spark: SparkSession, run: JobRun) -> Iterator[None]:
    """Watch the one query and the driver's steps of a run."""
    with watched_query(spark, run), watched_calls(run):
        yield


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
            (ShardResults, "collect"),
            (writer, "change_rows"),
            (Tables, "is_appended"),
            (Tables, "append_changes"),
            (Tables, "fold"),
        ):
            stack.enter_context(patch.object(owner, name, timed(getattr(owner, name), run.calls[name])))
        yield


def timed(action: Callable[..., Any], calls: list[Call]) -> Callable[..., Any]:
    """The same action, noting how long each call takes that belongs to a batch."""

    def call(*arguments: Any, **options: Any) -> Any:
        started = time.perf_counter()
        try:
            return action(*arguments, **options)
        finally:
            if options.get("is_batch", True):
                ended = time.perf_counter()
                calls.append(Call(ended, ended - started))

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
