"""Follows the topic into the tables, and reads it anew where reading on is not enough.

The checkpoint of each reading from the start has a folder of its own, numbered by `Progress.generation`. A
rebuild reads the next generation into tables beside the live ones, which stay as they are and keep
answering. What is different in the end is one commit to the live tables, with which they change over to the
new checkpoint; before that commit an interrupted rebuild is taken up again, after it there is nothing left to
do but to delete what it used.

Every reading begins with what the brokers say about the topic then (`TopicNow`): it may have become another
one since the process started, or since a rebuild was interrupted.
"""

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from pyspark.sql import SparkSession

from streaming.alerts.receivers import receivers, source_labels
from streaming.alerts.watch import AlertWatch
from streaming.brokers.broker import Broker
from streaming.brokers.facts import AccessRefusedError, BrokerError, TopicFacts
from streaming.brokers.retention import RetentionReader
from streaming.job.change_over import change_over
from streaming.job.housekeeping import Housekeeping
from streaming.job.listener import Listener
from streaming.job.maintainer import Maintainer
from streaming.job.pairing import bound, check_checkpoint, check_source, is_pair
from streaming.job.rebuild import RebuildNeededError, TopicNow, reason_to_rebuild
from streaming.job.running_query import (
    LATEST_TIMESTAMP_MS,
    BrokersSilentError,
    Gate,
    JobFailedError,
    JobRefusedError,
    RecordTimestampError,
    as_failure,
    wait_for_end,
)
from streaming.job.topic_question import TopicQuestion
from streaming.job.topic_watch import TopicWatch
from streaming.job.writer import BatchWriter, TopicIds
from streaming.model.errors import OffsetlakeError
from streaming.model.progress import Progress, Rebuild, now_ms
from streaming.model.schemas import CHANGES
from streaming.settings.model import OFFSETS_TOPIC, Settings
from streaming.spark.checkpoint import Checkpoint
from streaming.spark.query import start_query
from streaming.state.stored import STATE_FORMAT
from streaming.tables.tables import Tables

Beside = Sequence[AbstractContextManager[object]]

ASKED_FOR = "it was asked for"
"""The reason of a rebuild that a user wants."""

_REBUILD_ATTEMPTS: Final = 5
"""How often one rebuild may begin again: a topic that takes longer to read than its tombstones are kept can
never be read whole."""

_PAUSE_BEATS: Final = 3
"""Who does not know for so many heartbeats that everything is read was paused, or is behind."""


@dataclass(frozen=True)
class Follower:
    """Follows one topic into one table root, on a session that is there.

    `facts` are those of the start: they say which cluster it is.
    """

    spark: SparkSession
    settings: Settings
    broker: Broker
    facts: TopicFacts
    listener: Listener
    stop: threading.Event

    def follow(self, *, once: bool) -> None:
        """Follow the topic until told to stop (with `once`: until its present end), rebuilding as needed."""
        self._check_at_start()
        reason: str | None = None
        while (topic := self._topic_now(once=once)) is not None:
            progress = self._tables.progress_if_any()
            check_source(progress, self.settings, topic)
            noted = None if progress.rebuild is None else progress.rebuild.reason
            reason = noted or reason or reason_to_rebuild(progress, topic)
            if reason is not None:
                if not self.rebuild(reason):
                    return
                reason = None
                continue
            try:
                reason = self._read_on(progress, topic, once=once)
            except RebuildNeededError as needed:
                reason = str(needed)
            except (JobFailedError, BrokerError) as failure:
                self._raise_unless_explained(failure, self._tables)
                continue
            if reason is None:
                return

    def rebuild(self, reason: str) -> bool:
        """Read the topic anew and change the tables over to it; False if told to stop before the end."""
        live = self._tables
        live.create()  # what an older release wrote gets the columns that it lacks
        progress = self._announced(live.progress(), reason)
        self.listener.say(
            f"rebuilding, because {progress.rebuild.reason if progress.rebuild else reason}: reading topic "
            f"{self.settings.source.topic} anew from its start. Queries answer from the tables as they are "
            "until that is done"
        )
        again: str | None = None
        for _ in range(_REBUILD_ATTEMPTS):
            again = self._read_aside(live, progress)
            if self.stop.is_set():
                return False
            if again is None:
                self._delete_leftovers(change_over(live, live.aside(), self._topic_ids))
                self.listener.say("the rebuild is done")
                return True
            self.listener.say(f"{again}. The rebuild begins again.")
        raise JobFailedError(
            f"rebuilding: expected to read topic {self.settings.source.topic} whole in one of "
            f"{_REBUILD_ATTEMPTS} attempts, found at the end of the last one that {again}. The tables stay "
            "as they are. Where reading takes longer than tombstones are kept, raise delete.retention.ms of "
            "the topic; then start again."
        )

    def rebuild_as_asked(self) -> None:
        """Read the topic anew because somebody wants it."""
        progress = self._tables.progress_if_any()
        check_source(progress, self.settings, self.facts)
        if progress.rebuild is None:
            self._delete_leftovers(progress)
        self.rebuild(ASKED_FOR if progress.rebuild is None else progress.rebuild.reason)

    def _read_on(self, progress: Progress, topic: TopicNow, *, once: bool) -> str | None:
        """Read from where the tables are; return why that is not enough, or None at the end."""
        tables = self._tables
        check_checkpoint(progress, self._checkpoint(progress.generation), self.settings)
        watch = self._alert_watch(tables)
        beside: Beside = [Maintainer(tables, self.settings.tables, self.listener.say), watch]
        house = self._read(tables, progress, topic, once=once, beside=beside)
        if once:  # what was read now was not evaluated yet
            watch.evaluate_and_deliver()
        return house.reason_to_rebuild

    def _read_aside(self, live: Tables, progress: Progress) -> str | None:
        """Read the topic into tables beside the live ones, from where an interrupted rebuild left it.

        Returns why that has come to nothing; None if it has not, or if told to stop.
        """
        aside = live.aside()
        while (topic := self._topic_now()) is not None:
            check_source(progress, self.settings, topic)
            read_before = self._taken_up(aside, progress.generation + 1, topic)
            frozen = self._writer(
                live, _with_unknown_ends(live.progress()), self._checkpoint(progress.generation)
            )
            watch = self._alert_watch(live)  # nothing is foretold meanwhile; `job_behind` and delivery go on
            try:
                house = self._read(aside, read_before, topic, once=True, frozen=frozen, beside=[watch])
                again = house.reason_to_rebuild or self._reason_not_to_change_over(aside)
            except RebuildNeededError as needed:
                again = str(needed)
            except (JobFailedError, BrokerError) as failure:
                self._raise_unless_explained(failure, aside)
                continue
            if again is not None:
                aside.delete()
            return again
        return None

    def _taken_up(self, aside: Tables, generation: int, topic: TopicNow) -> Progress:
        """Return how far an interrupted rebuild has come.

        A fresh progress, with nothing left of it, where there is none, or where what it has read is of no use
        any more.
        """
        checkpoint, found = self._checkpoint(generation), _progress_if_readable(aside)
        is_ours = found.generation == generation and found.state_format == STATE_FORMAT
        if is_ours and is_pair(found, checkpoint):
            reason = reason_to_rebuild(found, topic)
            if reason is None:
                return found
            self.listener.say(f"{reason}. The interrupted rebuild begins again.")
        aside.delete()
        checkpoint.delete()
        return Progress(generation=generation)

    def _reason_not_to_change_over(self, aside: Tables) -> str | None:
        """Say why tables that have just been read anew are not what the topic says; None if told to stop."""
        topic = self._topic_now()
        if topic is None:
            return None
        progress = aside.progress()
        check_source(progress, self.settings, topic)
        loading = [number for number, partition in progress.partitions.items() if not partition.loaded]
        if loading:
            return f"partitions {', '.join(map(str, loading))} were not read to their end"
        return reason_to_rebuild(progress, topic)

    @property
    def _tables(self) -> Tables:
        return Tables(self.settings.tables.root, self.settings.tables.storage_options)

    @cached_property
    def _watch(self) -> TopicWatch:
        pause_ms = _PAUSE_BEATS * self.settings.job.heartbeat_every_ms
        return TopicWatch(self.broker, self.settings.source.topic, pause_ms=pause_ms)

    def _checkpoint(self, generation: int) -> Checkpoint:
        return Checkpoint(self.spark, f"{self.settings.job.checkpoint}/{generation}")

    def _check_at_start(self) -> None:
        progress = self._tables.progress_if_any()
        check_source(progress, self.settings, self.facts)
        if progress.rebuild is None:
            check_checkpoint(progress, self._checkpoint(progress.generation), self.settings)
            self._delete_leftovers(progress)

    def _delete_leftovers(self, progress: Progress) -> None:
        """Delete what the last rebuild used; at a start, where it was killed after its last commit."""
        if progress.generation > 0:
            self._tables.aside().delete()
            self._checkpoint(progress.generation - 1).delete()

    def _topic_now(self, *, once: bool = False) -> TopicNow | None:
        """Ask what the topic is like until everything is answered; None if told to stop before.

        With `once` brokers must answer within `connect_timeout`, else `BrokerError`.
        """
        tables = self._tables
        is_filled = bool(tables.progress_if_any().partitions)

        def beat() -> None:
            if is_filled:
                progress = tables.progress()
                writer = self._writer(tables, progress, self._checkpoint(progress.generation))
                writer.beat({}, asked_at=now_ms())

        question = TopicQuestion(
            self._watch,
            self.settings,
            self.listener.say,
            beside=lambda: self._alert_watch(tables) if is_filled else nullcontext(),
            beat=beat,
        )
        return question.ask(self.stop, limit_ms=self.settings.source.connect_timeout_ms if once else None)

    def _raise_unless_explained(self, failure: JobFailedError | BrokerError, tables: Tables) -> None:
        """Raise a failure, unless the absence of the brokers or what became of the topic explains it."""
        if self.stop.is_set() or isinstance(failure, JobRefusedError | AccessRefusedError):
            raise failure
        if isinstance(failure, BrokersSilentError | BrokerError) and self._has_moved(tables):
            self.listener.say(f"{failure} Reading on as soon as they answer.")  # they may be back by now
            return
        if isinstance(failure, RecordTimestampError):
            places = self.broker.first_since(LATEST_TIMESTAMP_MS + 1, self.facts.partition_count)
            raise RecordTimestampError.of("running the query", places) from failure
        try:
            topic = self._watch.now()
        except AccessRefusedError:
            raise
        except BrokerError:
            return
        if topic is not None and reason_to_rebuild(tables.progress(), topic) is None:
            raise failure

    def _has_moved(self, tables: Tables) -> bool:
        """Tell whether anything was read since this was last asked."""
        positions = {number: one.position for number, one in tables.progress().partitions.items()}
        before = self._positions.copy()
        self._positions.update({**positions, -1: tables.progress().generation})
        return before != self._positions

    @cached_property
    def _positions(self) -> dict[int, int]:
        return {}

    def _alert_watch(self, tables: Tables) -> AlertWatch:
        say, alerts = self.listener.say, self.settings.alerts
        source = source_labels(self.facts.cluster_id, self.settings.source.topic)
        return AlertWatch(
            tables,
            alerts,
            receivers(alerts, write=self.listener.write, source=source),
            ask_log_ranges=self.broker.log_ranges,
            say=say,
        )

    def _read(
        self,
        tables: Tables,
        progress: Progress,
        topic: TopicNow,
        *,
        once: bool,
        frozen: BatchWriter | None = None,
        beside: Beside = (),
    ) -> Housekeeping:
        """Read from where the progress is into its tables, until told to stop or (`once`) to the present
        end."""
        checkpoint = self._checkpoint(progress.generation)
        progress = replace(
            bound(progress, self.settings, topic).with_ends(topic.ends, topic.now),
            tombstones_kept_ms=topic.delete_retention_ms,
        )
        retention = RetentionReader(self.broker, self.settings, self.listener.say)
        progress = progress.with_retention(retention.read(now_ms()))
        tables.create()
        writer = self._writer(tables, progress, checkpoint)
        house = Housekeeping(
            writer, self.broker, self._watch, retention, self.settings, self.listener.say, frozen=frozen
        )

        def is_stopping() -> bool:
            return self.stop.is_set() or house.wants_end

        gate = Gate(writer, is_stopping)
        query = start_query(
            self.spark, self.settings, checkpoint.path, topic.partition_count, gate.write, once=once
        )
        with house, ExitStack() as stack:
            for helper in beside:
                stack.enter_context(helper)
            wait_for_end(query, gate, is_stopping)
        if house.failure is not None:
            raise as_failure("keeping the tables", house.failure) from house.failure
        house.finish()
        return house

    @property
    def _topic_ids(self) -> TopicIds:
        """Ask the brokers which topics there are; not about a copy, whose topics may be another cluster's."""
        is_original = self.settings.source.topic == OFFSETS_TOPIC
        return self.broker.topic_ids if is_original else lambda _: None

    def _writer(self, tables: Tables, progress: Progress, checkpoint: Checkpoint) -> BatchWriter:
        return BatchWriter(
            tables,
            progress,
            query_id=checkpoint.query_id,
            positions=lambda batch_id: checkpoint.positions(batch_id, self.settings.source.topic),
            report=self.listener.batch,
            topic_ids=self._topic_ids,
            missed=self._watch.missed,
        )

    def _announced(self, progress: Progress, reason: str) -> Progress:
        """Note in the live tables that they are being rebuilt, if that is not noted yet."""
        if progress.rebuild is not None:
            return progress
        now = now_ms()
        announced = replace(
            _with_unknown_ends(progress), rebuild=Rebuild(since=now, reason=reason), heartbeat=now
        )
        self._tables.append_changes(CHANGES.empty_table(), announced, is_batch=False)
        return announced


def _with_unknown_ends(progress: Progress) -> Progress:
    """Return the progress of tables that stay as they are: where the topic ends is not asked for them."""
    unknown = {
        number: replace(
            partition,
            last_stable_offset=None,
            high_watermark=None,
            held_back_since=None,
            unanswered_since=None,
        )
        for number, partition in progress.partitions.items()
    }
    return replace(progress, partitions=unknown)


def _progress_if_readable(tables: Tables) -> Progress:
    """Return the progress of tables that may be half deleted; a fresh one if they do not say it."""
    try:
        return tables.progress_if_any()
    except OffsetlakeError:
        return Progress()
