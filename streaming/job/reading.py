"""One reading of the topic: from a checkpoint into tables, with the work beside it.

Each reading from the beginning has its own checkpoint folder, numbered by `Progress.generation`.

Every reading first requests the current state of the topic (`TopicNow`): the topic may have changed since the
process started, or since a rebuild was interrupted.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Final

from pyspark.sql import SparkSession

from streaming.alerts.receivers import receivers, source_labels
from streaming.alerts.watch import AlertWatch
from streaming.brokers.broker import Broker
from streaming.brokers.facts import BrokerError, TopicFacts, TopicIds
from streaming.brokers.retention import RetentionReader
from streaming.common.times import now_ms
from streaming.job.failures import Interruptions, JobFailedError, as_failure
from streaming.job.housekeeping import Housekeeping
from streaming.job.log_ends.sampler import LogEndSampler
from streaming.job.reporter import Reporter
from streaming.job.running_query import (
    Gate,
    wait_for_end,
    wait_for_first_batch,
    wait_for_stop,
)
from streaming.job.start_checks import bound
from streaming.job.topic.question import TopicQuestion
from streaming.job.topic.reasons import RebuildNeededError, TopicNow
from streaming.job.topic.watch import TopicWatch
from streaming.job.writer import BatchWriter
from streaming.model.progress import Progress
from streaming.packing.shards import Shards
from streaming.settings.model import OFFSETS_TOPIC, Settings
from streaming.spark.checkpoint import Checkpoint, state_partitions
from streaming.spark.fold_tasks import FoldsFor, folds_by_tasks
from streaming.spark.query import start_query
from streaming.spark.session import MIN_DELTAS, Evaluation
from streaming.tables.fences import WRITER
from streaming.tables.handles import TableHandles
from streaming.tables.tables import Tables

_log = logging.getLogger(__name__)

Beside = Sequence[AbstractContextManager[object]]
"""Context managers that run beside a query: entered after its start, exited after its end."""

_PAUSE_BEATS: Final = 3
"""A job that has not read everything for this many heartbeats was paused, or is behind."""


@dataclass(frozen=True)
class TopicReader:
    """Reads one topic into tables with an existing session; shared by all readings of a process.

    `facts` are from the start of the process: they identify the cluster. `name` is the name of the process as
    the writer of the tables (`streaming.job.sole_writer`); empty: the tables do not get it. `end_spark` is
    called after the last reading.
    """

    spark: SparkSession
    settings: Settings
    broker: Broker
    facts: TopicFacts
    listener: Reporter
    stop: threading.Event
    name: str = ""
    end_spark: Callable[[], object] = lambda: None
    handles: TableHandles = field(default_factory=TableHandles)

    @property
    def tables(self) -> Tables:
        held = self.settings.tables
        tables = Tables(held.root, held.storage_options, held.complete_within_ms, handles=self.handles)
        return tables.with_name(WRITER, self.name) if self.name else tables

    @cached_property
    def watch(self) -> TopicWatch:
        pause_ms = _PAUSE_BEATS * self.settings.job.heartbeat_every_ms
        return TopicWatch(self.broker, self.settings.source.topic, pause_ms=pause_ms)

    @cached_property
    def interruptions(self) -> Interruptions:
        return Interruptions(self.broker, self.watch, self.facts.partition_count, stop=self.stop)

    @property
    def topic_ids(self) -> TopicIds:
        """Requests topic ids from the brokers; none for a copy of the topic, whose topics may belong to
        another cluster."""
        is_original = self.settings.source.topic == OFFSETS_TOPIC
        return self.broker.topic_ids if is_original else lambda _: None

    def checkpoint(self, generation: int) -> Checkpoint:
        return Checkpoint(self.spark, f"{self.settings.job.checkpoint}/{generation}")

    def topic_now(self, *, once: bool = False) -> TopicNow | None:
        """Request the state of the topic until all brokers answer; None if stopped before.

        With `once` brokers must answer within `connect_timeout`, else `BrokerError`. Raises
        `RebuildNeededError` after a jump of the clock.
        """
        tables = self.tables
        is_filled = bool(tables.progress_if_any().partitions)

        @cache
        def watch() -> AlertWatch:
            return self.alert_watch(tables)

        def heartbeat() -> None:
            if is_filled:
                progress = tables.progress()
                writer = self.writer(tables, progress, self.checkpoint(progress.generation), said=progress)
                writer.heartbeat({}, asked_at=now_ms(), alerts_evaluated_at=watch().evaluated_at())

        question = TopicQuestion(
            self.watch,
            self.settings,
            waiting=self.listener.waiting,
            beside=lambda: watch() if is_filled else nullcontext(),
            heartbeat=heartbeat,
        )
        return question.ask(self.stop, limit_ms=self.settings.source.connect_timeout_ms if once else None)

    def read(
        self,
        tables: Tables,
        progress: Progress,
        topic: TopicNow,
        *,
        once: bool,
        frozen: BatchWriter | None = None,
        beside: Beside = (),
        alerts_evaluated_at: Callable[[], int | None] = lambda: None,
    ) -> BatchWriter:
        """Read from the position of the progress into its tables, until stopped or (`once`) to the current
        end. Return the writer, whose last changes are not folded yet.

        `frozen` is the writer of tables that do not change meanwhile. `alerts_evaluated_at` returns when
        alerts were last evaluated (ms). Raises `RebuildNeededError` if housekeeping has found a reason, also
        if reading has failed: after a suspension both happen.
        """
        checkpoint = self.checkpoint(progress.generation)
        said = Progress() if progress == Progress(generation=progress.generation) else progress
        progress = replace(
            bound(progress, self.settings, topic).with_ends(topic.ends, topic.now),
            tombstones_kept_ms=topic.delete_retention_ms,
        )
        retention = RetentionReader(self.broker, self.settings)
        progress = progress.with_retention(retention.read(now_ms()))
        tables.create()
        evaluation = Evaluation()
        evaluation.choose(self.spark, progress.waiting)
        writer = self.writer(tables, progress, checkpoint, evaluation, said=said)
        housekeeping = Housekeeping(
            writer,
            self.broker,
            self.watch,
            retention,
            self.settings,
            once=once,
            frozen=frozen,
            alerts_evaluated_at=alerts_evaluated_at,
        )
        try:
            self._run_query(checkpoint, topic.partition_count, writer, housekeeping, once=once, beside=beside)
            if housekeeping.failure is not None:
                raise as_failure("keeping the tables", housekeeping.failure) from housekeeping.failure
            housekeeping.heartbeat()
        except (JobFailedError, BrokerError):
            if housekeeping.reason_to_rebuild is None:
                raise
        if housekeeping.reason_to_rebuild is not None:
            raise RebuildNeededError(housekeeping.reason_to_rebuild)
        return writer

    def _run_query(
        self,
        checkpoint: Checkpoint,
        partition_count: int,
        writer: BatchWriter,
        housekeeping: Housekeeping,
        *,
        once: bool,
        beside: Beside,
    ) -> None:
        """Run the query from start to end, with housekeeping and the other work beside it."""

        def is_stopping() -> bool:
            return self.stop.is_set() or housekeeping.wants_end

        gate = Gate(writer, is_stopping)
        shards = Shards(partition_count, self._state_partitions(checkpoint))
        query = start_query(
            self.spark,
            self.settings,
            checkpoint.path,
            shards,
            gate.write,
            once=once,
            snapshot_first=checkpoint.versions_to_replay() >= int(self.spark.conf.get(MIN_DELTAS) or 0),
        )
        with housekeeping, ExitStack() as stack:
            for helper in beside:
                stack.enter_context(helper)
            topic = self.settings.source.topic
            with self.listener.waiting(f"reading the first batch of topic {topic}"):
                is_anything_new = wait_for_first_batch(query, gate, is_stopping)
            if not is_anything_new:
                _log.info("topic %s has nothing new; waiting for commits", topic)
            wait_for_stop(query, gate, is_stopping, ends_soon=once)
            with self.listener.waiting("finishing the current batch"):
                wait_for_end(query, gate, is_stopping)

    def _state_partitions(self, checkpoint: Checkpoint) -> int:
        """Return the number of state partitions in the checkpoint, or for a new one."""
        wanted = state_partitions(self.spark)
        held = checkpoint.state_partitions() or wanted
        if held != wanted:
            _log.warning(
                f"checkpoint {checkpoint.path}: expected {wanted} state partitions ([job] state_partitions), "
                f"found {held}. The job goes on with {held}; `offsetlake rebuild` makes them {wanted}."
            )
        return held

    def writer(
        self,
        tables: Tables,
        progress: Progress,
        checkpoint: Checkpoint,
        evaluation: Evaluation | None = None,
        *,
        said: Progress,
    ) -> BatchWriter:
        """Return a writer that continues from this progress; `said` is the progress in the tables from which
        it was derived."""
        return BatchWriter(
            tables,
            progress,
            query_id=checkpoint.query_id,
            positions=lambda batch_id: checkpoint.positions(batch_id, self.settings.source.topic),
            report=self.listener.batch,
            topic_ids=self.topic_ids,
            missed=self.watch.missed,
            evaluation=evaluation,
            folds_for=self._folds_for(tables),
            said=said,
        )

    def _folds_for(self, tables: Tables) -> FoldsFor:
        if self.settings.spark.is_local:
            return lambda _: None
        return folds_by_tasks(self.spark.sparkContext, tables.storage_options)

    def log_end_samplers(self, tables: Tables) -> list[LogEndSampler]:
        """Return the sampler of log ends; none for a copy of the topic, whose topics may belong to another
        cluster."""
        if self.settings.source.topic != OFFSETS_TOPIC:
            return []
        return [LogEndSampler(tables, self.broker, self.settings.log_ends)]

    def alert_watch(self, tables: Tables) -> AlertWatch:
        alerts = self.settings.alerts
        source = source_labels(self.facts.cluster_id, self.settings.source.topic)
        return AlertWatch(
            tables,
            alerts,
            receivers(alerts, write=self.listener.write, source=source),
            ask_log_ranges=self.broker.log_ranges,
            health=self.settings.health,
        )
