"""Follows the topic into the tables, and reads it anew where reading on is not enough.

The checkpoint of each reading from the start has a folder of its own, numbered by `Progress.generation`. A
rebuild reads the next generation into tables beside the live ones, which stay as they are and keep
answering. What is different in the end is one commit to the live tables, with which they change over to the
new checkpoint; before that commit an interrupted rebuild is taken up again, after it there is nothing left to
do but to delete what it used.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from streaming.alert_receivers import receivers, source_labels
from streaming.alert_watch import AlertWatch
from streaming.binding import bound, check_checkpoint, check_source, is_pair
from streaming.broker import Broker, BrokerError, TopicFacts
from streaming.causes import GONE_WHILE_AWAY, Evidence, with_causes_of_absence
from streaming.checkpoint import Checkpoint
from streaming.errors import OffsetlakeError
from streaming.housekeeping import Housekeeping, Topic
from streaming.job import start_query
from streaming.maintainer import Maintainer
from streaming.progress import Progress, Rebuild, now_ms
from streaming.rebuild import RebuildNeededError, differences, not_in
from streaming.retention import RetentionReader
from streaming.running_query import (
    LATEST_TIMESTAMP_MS,
    Gate,
    JobFailedError,
    RecordTimestampError,
    as_failure,
    wait_for_end,
)
from streaming.schemas import CHANGES, QUARANTINE_IN_BATCH
from streaming.settings import OFFSETS_TOPIC, Settings
from streaming.shard_state import FORMAT as STATE_FORMAT
from streaming.table_rows import quarantine_rows
from streaming.tables import Snapshot, Tables
from streaming.writer import BatchReport, BatchWriter, TopicIds

Beside = Sequence[AbstractContextManager[object]]

ASKED_FOR = "it was asked for"
"""The reason of a rebuild that a user wants."""


@dataclass(frozen=True)
class Listener:
    """Where the job reports to: sentences for people, what each batch did, and alerts as lines of JSON.

    `write` raises what writing raises, so that an alert that could not be written is written later.
    """

    say: Callable[[str], None]
    batch: Callable[[BatchReport], None]
    write: Callable[[str], None]


@dataclass(frozen=True)
class Follower:
    """Follows one topic into one table root, on a session that is there and a topic that exists."""

    spark: SparkSession
    settings: Settings
    broker: Broker
    facts: TopicFacts
    listener: Listener
    stop: threading.Event

    def follow(self, *, once: bool) -> None:
        """Follow the topic until told to stop (with `once`: until its present end), rebuilding as needed."""
        reason = self._reason_at_start()
        while not self.stop.is_set():
            if reason is not None and not self.rebuild(reason):
                return
            reason = self._follow_on(once=once)
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
        while not self._read_aside(live, progress):
            pass
        if self.stop.is_set():
            return False
        self._change_over(live, live.aside())
        self.listener.say("the rebuild is done")
        return True

    def rebuild_as_asked(self) -> None:
        """Read the topic anew because somebody wants it."""
        progress = self._tables.progress()
        check_source(progress, self.settings, self.facts)
        if progress.rebuild is None:
            self._delete_leftovers(progress)
        self.rebuild(ASKED_FOR if progress.rebuild is None else progress.rebuild.reason)

    def _read_aside(self, live: Tables, progress: Progress) -> bool:
        """Read the topic into tables beside the live ones, from where an interrupted rebuild left it; False
        if that has come to nothing."""
        generation = progress.generation + 1
        aside, checkpoint = live.aside(), self._checkpoint(generation)
        read_before = _progress_if_readable(aside)
        is_readable = read_before.generation == generation and read_before.state_format == STATE_FORMAT
        if not is_readable or not is_pair(read_before, checkpoint):
            aside.delete()
            checkpoint.delete()
            read_before = Progress(generation=generation)
        frozen = self._writer(live, progress, checkpoint)
        watch = self._alert_watch(live)  # nothing is foretold meanwhile, but `job_behind` and delivery go on
        try:
            self._read(aside, read_before, checkpoint, once=True, frozen=frozen, beside=[watch])
        except RebuildNeededError as needed:
            self.listener.say(f"{needed}. The rebuild begins again.")
            aside.delete()
            return False
        return True

    @property
    def _tables(self) -> Tables:
        return Tables(self.settings.tables.root, self.settings.tables.storage_options)

    def _checkpoint(self, generation: int) -> Checkpoint:
        return Checkpoint(self.spark, f"{self.settings.job.checkpoint}/{generation}")

    def _topic(self, partition_count: int) -> Topic:
        return Topic(self.broker, self.settings.source.topic, partition_count)

    def _reason_at_start(self) -> str | None:
        progress = self._tables.progress_if_any()
        check_source(progress, self.settings, self.facts)
        if progress.rebuild is not None:
            return progress.rebuild.reason
        check_checkpoint(progress, self._checkpoint(progress.generation), self.settings)
        self._delete_leftovers(progress)
        return self._reason(progress)

    def _delete_leftovers(self, progress: Progress) -> None:
        """Delete what the last rebuild used; at a start, where it was killed after its last commit."""
        if progress.generation > 0:
            self._tables.aside().delete()
            self._checkpoint(progress.generation - 1).delete()

    def _reason(self, progress: Progress) -> str | None:
        """Say why reading on from this progress is not enough, if so."""
        ends = self.broker.ends(self.facts.partition_count)
        known = {number: end for number, end in ends.items() if number in progress.partitions}
        return self._topic(self.facts.partition_count).reason_to_rebuild(progress.with_ends(known, now_ms()))

    def _follow_on(self, *, once: bool) -> str | None:
        """Follow the topic from where the tables are, also over an absence of the brokers; return why that
        is not enough, or None at the end."""
        while True:
            try:
                return self._follow_until_failure(once=once)
            except RebuildNeededError as needed:
                return str(needed)
            except JobFailedError as failure:
                reason = self._explanation(failure)
                if reason is not None or self.stop.is_set():
                    return reason

    def _follow_until_failure(self, *, once: bool) -> str | None:
        tables = self._tables
        progress = tables.progress_if_any()
        checkpoint = self._checkpoint(progress.generation)
        check_checkpoint(progress, checkpoint, self.settings)
        watch = self._alert_watch(tables)
        beside: Beside = [Maintainer(tables, self.settings.tables, self.listener.say), watch]
        house = self._read(tables, progress, checkpoint, once=once, beside=beside)
        if once:  # what was read now was not evaluated yet
            watch.evaluate_and_deliver()
        return house.reason_to_rebuild

    def _explanation(self, failure: JobFailedError) -> str | None:
        """Find out whether what became of the topic, or the absence of brokers, explains a failure.

        Returns the reason to rebuild, or None once the brokers answer again; raises the failure otherwise.
        """
        if self.stop.is_set():
            raise failure
        if isinstance(failure, RecordTimestampError):
            places = self.broker.first_since(LATEST_TIMESTAMP_MS + 1, self.facts.partition_count)
            raise RecordTimestampError.of("running the query", places) from failure
        try:
            reason = self._reason(self._tables.progress())
        except BrokerError as error:
            self.listener.say(f"{error} Waiting for the brokers.")
            self._wait_for_brokers()
            return None
        if reason is None:
            raise failure
        return reason

    def _wait_for_brokers(self) -> None:
        with self._alert_watch(self._tables):
            while not self.stop.wait(self.settings.source.topic_poll_every_ms / 1_000):
                with suppress(BrokerError):
                    self.broker.ends(self.facts.partition_count)
                    self.listener.say(f"{self.settings.source.bootstrap_servers} answers again")
                    return

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
        checkpoint: Checkpoint,
        *,
        once: bool,
        frozen: BatchWriter | None = None,
        beside: Beside = (),
    ) -> Housekeeping:
        """Read from where the progress is into its tables, until told to stop or (`once`) to the present
        end."""
        progress = bound(progress, self.settings, self.facts)
        progress = progress.with_ends(self.broker.ends(self.facts.partition_count), now_ms())
        retention = RetentionReader(self.broker, self.settings, self.listener.say)
        progress = progress.with_retention(retention.read(now_ms()))
        tables.create()
        writer = self._writer(tables, progress, checkpoint)
        topic = self._topic(self.facts.partition_count)
        house = Housekeeping(writer, topic, retention, self.settings, self.listener.say, frozen=frozen)

        def is_stopping() -> bool:
            return self.stop.is_set() or house.wants_end

        gate = Gate(writer, is_stopping)
        query = start_query(
            self.spark,
            self.settings,
            checkpoint.path,
            self.facts.partition_count,
            gate.write,
            once=once,
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
        )

    def _announced(self, progress: Progress, reason: str) -> Progress:
        """Note in the live tables that they are being rebuilt, if that is not noted yet."""
        if progress.rebuild is not None:
            return progress
        now = now_ms()
        unknown = {
            number: replace(partition, last_stable_offset=None, high_watermark=None, held_back_since=None)
            for number, partition in progress.partitions.items()
        }
        announced = replace(
            progress, rebuild=Rebuild(since=now, reason=reason), heartbeat=now, partitions=unknown
        )
        self._tables.append_changes(CHANGES.empty_table(), announced, is_batch=False)
        return announced

    def _change_over(self, live: Tables, aside: Tables) -> None:
        """Append to the live tables what is different in those that were read anew, in one commit."""
        old, new = live.read(), aside.read()
        loading = [number for number, partition in new.progress.partitions.items() if not partition.loaded]
        if loading:
            raise JobFailedError(
                f"rebuilding: expected to reach the end of topic {new.progress.topic}, found partitions "
                f"{', '.join(map(str, loading))} not read to their end. Start again to go on."
            )
        now, sequence = now_ms(), old.progress.sequence + 1
        rows = pa.concat_tables(
            differences(name, getattr(old, name), getattr(new, name), sequence=sequence, batch_time=now)
            for name in ("offsets", "groups")
        )
        rows = self._with_causes(rows, old, new.progress, now)
        progress = replace(
            new.progress,
            sequence=sequence if len(rows) else old.progress.sequence,
            batch_time=now if len(rows) else old.progress.batch_time,
            heartbeat=now,
        )
        failed = not_in(aside.read_quarantine(), live.read_quarantine())
        live.append_quarantine(_in_batch(failed, progress), progress)
        live.append_changes(rows, progress, is_batch=True)
        self._delete_leftovers(progress)

    def _with_causes(self, rows: pa.Table, old: Snapshot, found: Progress, now: int) -> pa.Table:
        """Say which of the offsets that are gone were due meanwhile."""
        gone = rows.filter(pc.equal(rows["cause"], GONE_WHILE_AWAY).fill_null(False))
        retention, before = found.retention, old.progress.retention
        evidence = Evidence(
            offsets=old.offsets,
            groups=old.groups,
            topic_ids=self._topic_ids(pc.unique(gone["topic"]).to_pylist()),
            retention=None if retention is None else retention.after(before),
            held_back=frozenset(),
            now=now,
        )
        seen_at = {number: partition.stable.since for number, partition in old.progress.partitions.items()}
        return with_causes_of_absence(rows, evidence, seen_at)


def _progress_if_readable(tables: Tables) -> Progress:
    """Return the progress of tables that may be half deleted; a fresh one if they do not say it."""
    try:
        return tables.progress_if_any()
    except OffsetlakeError:
        return Progress()


def _in_batch(failed: pa.Table, progress: Progress) -> pa.Table:
    """Return quarantined records as those of the batch that a progress speaks of."""
    return quarantine_rows(
        failed.select([*QUARANTINE_IN_BATCH.names, "source_partition"]),
        sequence=progress.sequence,
        batch_time=progress.heartbeat,
    )[0]
