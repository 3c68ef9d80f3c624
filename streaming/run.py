"""Runs the job: checks what it stands on, starts the query, keeps house beside it, and stops it cleanly."""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, Final, Self

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.alert_receivers import receivers, source_labels
from streaming.alert_watch import AlertWatch
from streaming.broker import Broker, BrokerError, TopicFacts
from streaming.checkpoint import Checkpoint
from streaming.errors import MisuseError, OffsetlakeError
from streaming.jars import ensure_jars
from streaming.java import find_java
from streaming.job import start_query
from streaming.maintainer import Maintainer
from streaming.progress import PartitionProgress, Progress, Retention, now_ms
from streaming.retention import RetentionReader
from streaming.session import start_session
from streaming.settings import OFFSETS_TOPIC, Settings
from streaming.tables import Tables
from streaming.writer import BatchReport, BatchWriter

_POLL_S: Final = 0.2
_STOP_LIMIT_S: Final = 120.0  # for a batch to end
_IDLE_LIMIT_S: Final = 5.0  # for a batch to begin, which is then refused


class JobFailedError(OffsetlakeError):
    """The query or its housekeeping failed."""


@dataclass(frozen=True)
class Listener:
    """Where the job reports to: sentences for people, and what each batch did."""

    say: Callable[[str], None]
    batch: Callable[[BatchReport], None]


def run_job(settings: Settings, listener: Listener, stop: threading.Event, *, once: bool) -> None:
    """Run until `stop` is set (with `once`: until the present end is reached), then stop after the current
    batch.

    Raises `OffsetlakeError` for everything that a user can do something about.
    """
    find_java()  # the jars may be there without it
    jars = ensure_jars("connector")
    broker = Broker(settings.source)
    facts = broker.wait_for_topic(listener.say, stop.is_set)
    if facts is None or stop.is_set():
        return
    with _explained(settings):
        spark = start_session(settings.spark, settings.job, jars)
        try:
            if not stop.is_set():
                follow_topic(spark, settings, broker, facts, listener, stop, once=once)
        finally:
            spark.stop()


def follow_topic(
    spark: SparkSession,
    settings: Settings,
    broker: Broker,
    facts: TopicFacts,
    listener: Listener,
    stop: threading.Event,
    *,
    once: bool,
) -> None:
    """Do what `run_job` does, on a session that is there and a topic that exists."""
    tables = Tables(settings.tables.root, settings.tables.storage_options)
    checkpoint = Checkpoint(spark, settings.job.checkpoint)
    progress = bound_progress(tables.progress_if_any(), checkpoint, settings, facts)
    progress = progress.with_ends(broker.ends(facts.partition_count), now_ms())
    retention = RetentionReader(broker, settings, listener.say)
    progress = progress.with_retention(retention.read(now_ms()))
    tables.create()
    writer = BatchWriter(
        tables,
        progress,
        query_id=checkpoint.query_id,
        positions=lambda batch_id: checkpoint.positions(batch_id, settings.source.topic),
        report=listener.batch,
        topic_ids=broker.topic_ids if settings.source.topic == OFFSETS_TOPIC else lambda _: None,
    )
    gate = _Gate(writer, stop)
    query = start_query(spark, settings, facts.partition_count, gate.write, once=once)
    watch = _alert_watch(tables, broker, facts, settings, listener)
    with (
        _Housekeeping(writer, broker, retention, facts, settings, listener.say) as house,
        Maintainer(tables, settings.tables, listener.say),
        watch,
    ):
        _wait(query, gate, house, stop)
    _finish(writer, broker, facts, listener.say)
    if once:  # what was read now was not evaluated yet
        watch.evaluate_and_deliver()


def _alert_watch(
    tables: Tables, broker: Broker, facts: TopicFacts, settings: Settings, listener: Listener
) -> AlertWatch:
    source = source_labels(facts.cluster_id, settings.source.topic)
    return AlertWatch(
        tables,
        settings.alerts,
        receivers(settings.alerts, say=listener.say, source=source),
        ask_log_ranges=broker.log_ranges,
        say=listener.say,
    )


def bound_progress(
    progress: Progress, checkpoint: Checkpoint, settings: Settings, facts: TopicFacts
) -> Progress:
    """Return the progress to go on from, if checkpoint, tables and topic belong together; else raise
    `MisuseError`."""
    known, query_id = progress.query_id, checkpoint.query_id()
    where = f"table root {settings.tables.root} and checkpoint {settings.job.checkpoint}"
    fresh = "Use the pair that belongs together, or move both away to read the topic anew from its start."
    if known != query_id and not (known is None and not checkpoint.has_batches()):
        raise MisuseError(
            f"{where} do not belong together: expected the checkpoint of query {known or '(none)'}, "
            f"found that of query {query_id or '(none)'}. {fresh}"
        )
    if progress.topic not in ("", settings.source.topic):
        raise MisuseError(
            f"{where}: expected topic {progress.topic}, which they were filled from, "
            f"found {settings.source.topic}. Each topic needs a table root and a checkpoint of its own."
        )
    if progress.partitions and len(progress.partitions) != facts.partition_count:
        raise MisuseError(
            f"{where}: expected {len(progress.partitions)} partitions of topic {progress.topic}, with which "
            f"they were filled, found {facts.partition_count}. Groups now belong to other partitions: move "
            "both away to read the topic anew from its start."
        )
    if None not in (progress.cluster_id, facts.cluster_id) and progress.cluster_id != facts.cluster_id:
        raise MisuseError(
            f"{where}: expected Kafka cluster {progress.cluster_id}, which they were filled from, "
            f"found cluster {facts.cluster_id} at {settings.source.bootstrap_servers}. "
            "Each cluster needs a table root and a checkpoint of its own."
        )
    return replace(
        progress,
        topic=settings.source.topic,
        cluster_id=facts.cluster_id or progress.cluster_id,
        partitions={
            partition: progress.partitions.get(partition, PartitionProgress())
            for partition in range(facts.partition_count)
        },
    )


class StoppedBeforeBatchError(Exception):
    """Raised inside Spark's callback to end the query before a batch instead of within one."""


class _Gate:
    """Lets batches through to the writer until the job is to stop; remembers what went wrong in Python."""

    def __init__(self, writer: BatchWriter, stop: threading.Event) -> None:
        self._writer = writer
        self._stop = stop
        self.failure: BaseException | None = None
        self.is_closed = False
        self.is_writing = False
        self.ended_at = 0.0

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch; refuse to begin one once the job is to stop (it will be replayed at the next
        start)."""
        if self._stop.is_set():
            self.is_closed = True
            raise StoppedBeforeBatchError
        self.is_writing = True
        try:
            self._writer.write(batch, batch_id)
        except BaseException as error:
            self.failure = error
            raise
        finally:
            self.ended_at = time.monotonic()
            self.is_writing = False


class _Housekeeping(threading.Thread):
    """Heartbeats and folds at their own pace, also when no batch comes."""

    def __init__(
        self,
        writer: BatchWriter,
        broker: Broker,
        retention: RetentionReader,
        facts: TopicFacts,
        settings: Settings,
        say: Callable[[str], None],
    ) -> None:
        super().__init__(name="offsetlake-housekeeping", daemon=True)
        self._writer = writer
        self._broker = broker
        self._retention = retention
        self._next_reading = time.monotonic() + settings.expiry.read_every_ms / 1_000
        self._facts = facts
        self._settings = settings
        self._say = say
        self._done = threading.Event()
        self._is_reachable = True
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Beat and fold until told to end; a failure is kept for the main thread."""
        try:
            next_beat = next_fold = time.monotonic()
            while not self._done.wait(_POLL_S):
                now = time.monotonic()
                if now >= next_beat:
                    next_beat = now + self._settings.job.heartbeat_every_ms / 1_000
                    self._beat()
                waiting = self._writer.rows_since_fold
                if waiting >= self._settings.tables.fold_rows or (waiting and now >= next_fold):
                    self._writer.fold()
                    next_fold = time.monotonic() + self._settings.tables.fold_every_ms / 1_000
        except BaseException as error:
            self.failure = error

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End after what is under way."""
        self._done.set()
        self.join()

    def _beat(self) -> None:
        try:
            ends = self._broker.ends(self._facts.partition_count)
        except BrokerError as error:
            ends = {}
            if self._is_reachable:
                self._say(f"{error} Going on; the job ends if this lasts for minutes.")
        if ends and not self._is_reachable:
            self._say(f"{self._settings.source.bootstrap_servers} answers again")
        self._is_reachable = bool(ends)
        self._writer.beat(ends, self._retention_if_due() if ends else None)

    def _retention_if_due(self) -> Retention | None:
        """Read the brokers' settings anew, if it is time; None: nothing new is known."""
        if time.monotonic() < self._next_reading:
            return None
        self._next_reading = time.monotonic() + self._settings.expiry.read_every_ms / 1_000
        return self._retention.read(now_ms())


def _wait(query: StreamingQuery, gate: _Gate, house: _Housekeeping, stop: threading.Event) -> None:
    """Wait until the query has ended by itself, failed, or was stopped between two batches."""
    asked_at: float | None = None
    is_stopped = False
    while query.isActive:
        time.sleep(_POLL_S)
        if house.failure is not None:
            stop.set()
        if stop.is_set():
            asked_at = asked_at or time.monotonic()
            if _may_stop(query, gate, asked_at):
                is_stopped = True
                query.stop()
    if house.failure is not None:
        raise _failure("keeping the tables", house.failure) from house.failure
    failure = query.exception()
    if failure is not None and not gate.is_closed and not is_stopped:
        cause = gate.failure or failure
        raise _failure("running the query", cause) from cause


def _may_stop(query: StreamingQuery, gate: _Gate, asked_at: float) -> bool:
    """Tell whether stopping now interrupts no batch, or enough has been waited for.

    A trigger that is active without a batch asks the brokers what is new, which takes long if they are away.
    """
    now = time.monotonic()
    if gate.is_writing:
        return now - asked_at > _STOP_LIMIT_S
    return not query.status["isTriggerActive"] or now - max(asked_at, gate.ended_at) > _IDLE_LIMIT_S


@contextmanager
def _explained(settings: Settings) -> Iterator[None]:
    """Turn what Spark, the tables or the file system raise into one sentence that says where to look."""
    hint = f"Spark's own log is {settings.spark.log_file}."
    try:
        yield
    except JobFailedError as error:
        raise JobFailedError(f"{error} {hint}") from error
    except (Py4JError, PySparkException, DeltaError, OSError) as error:
        raise JobFailedError(f"{_failure('running the job', error)} {hint}") from error


def _failure(doing: str, cause: BaseException) -> OffsetlakeError:
    if isinstance(cause, OffsetlakeError):
        return cause
    lines = [line for line in str(cause).splitlines() if line.strip()]
    return JobFailedError(f"{doing} failed: {type(cause).__name__}: {lines[0] if lines else cause}.")


def _finish(writer: BatchWriter, broker: Broker, facts: TopicFacts, say: Callable[[str], None]) -> None:
    """Leave the tables folded and with the last word on how far they reach."""
    writer.fold()
    try:
        ends = broker.ends(facts.partition_count)
    except BrokerError as error:
        say(str(error))
        ends = {}
    writer.beat(ends)


@contextmanager
def stop_on_signals(stop: threading.Event) -> Iterator[None]:
    """Set `stop` on Ctrl-C and SIGTERM; a second Ctrl-C interrupts at once."""

    def handle(number: int, _frame: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    previous: Mapping[int, Any] = {
        number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
