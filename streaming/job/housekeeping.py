"""Periodic work of a job, with and without batches: heartbeats, folds, checks of the topic and of the clock,
and rolling of Spark's log."""

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self

from streaming.brokers.broker import Broker
from streaming.brokers.facts import AccessRefusedError, BrokerError
from streaming.brokers.retention import RetentionReader
from streaming.common.rate_limits import Interval, OngoingProblems
from streaming.common.retries import raise_if_ending
from streaming.common.times import now_ms
from streaming.job.topic.watch import TopicWatch
from streaming.job.writer import BatchWriter
from streaming.jvm.log_file import roll_log
from streaming.model.completeness import loading_in
from streaming.model.errors import MisuseError
from streaming.model.progress import PartitionEnds, Retention
from streaming.settings.model import Settings
from streaming.spark.session import MANY_RECORDS
from streaming.tables.select import in_one_line

_log = logging.getLogger(__name__)

_POLL_S: Final = 0.2
_ROLL_EVERY_MS: Final = 60_000

_QUICKLY_FOLDED: Final = 1_000_000
"""The number of live offsets up to which folds have the configured interval. With more live offsets the
interval is longer in proportion, because a fold of changes of many groups rewrites nearly all offsets."""

ATTEMPTS: Final = 10
"""The number of consecutive failures of heartbeats, or of folds, with which the job ends. Retries are
`heartbeat_every` apart. The storage library itself already retries transient errors of object stores for
minutes."""


class Retrying:
    """Counts consecutive failures of one kind of work, and raises the tenth (`ATTEMPTS`): a job must survive
    short failures of the storage."""

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._failures = 0

    def succeeds(self, work: Callable[[], object]) -> bool:
        """Do the work; return False if it failed and must be retried later.

        Raises the last of `ATTEMPTS` failures. Raises errors that a retry cannot fix at once (`MisuseError`,
        `AccessRefusedError`).
        """
        try:
            work()
        except (MisuseError, AccessRefusedError):
            raise
        except BaseException as error:  # anything that the storage and its library raise, including panics
            raise_if_ending(error)
            self._failures += 1
            if self._failures == ATTEMPTS:
                raise
            if self._failures == 1:
                _log.warning("%s failed, retrying: %s", self._doing, in_one_line(error))
            return False
        if self._failures:
            _log.warning("%s works again", self._doing)
        self._failures = 0
        return True


class Housekeeping(threading.Thread):
    """Runs the periodic work for one writer until the end of its `with` block.

    `failure` and `reason_to_rebuild` are for the main thread: when one is set, the job must end.

    During a rebuild, `writer` fills the new tables, and `frozen` is the writer of the current tables: these
    do not change, but get heartbeats. Alerts are evaluated on the current tables (of `frozen`, or without a
    rebuild of `writer`): only their heartbeats include the time of the last evaluation
    (`alerts_evaluated_at`, ms; None: never).

    With `once`, changes are not folded when the query is about to end: without Spark there is more memory.
    """

    def __init__(
        self,
        writer: BatchWriter,
        broker: Broker,
        watch: TopicWatch,
        retention: RetentionReader,
        settings: Settings,
        *,
        once: bool = False,
        frozen: BatchWriter | None = None,
        alerts_evaluated_at: Callable[[], int | None] = lambda: None,
    ) -> None:
        super().__init__(name="offsetlake-housekeeping", daemon=True)
        self._once = once
        self._writer = writer
        self._frozen = frozen
        self._alerts_evaluated_at = alerts_evaluated_at
        self._broker = broker
        self._watch = watch
        self._retention = retention
        self._settings = settings
        self._done = threading.Event()
        self._problems = OngoingProblems(_log)
        self._is_answered = False
        self._reading = Interval(settings.expiry.read_every_ms, at_once=False)
        self._topic_check = Interval(settings.job.check_topic_every_ms, at_once=False)
        self.failure: BaseException | None = None
        self.reason_to_rebuild: str | None = None

    @property
    def wants_end(self) -> bool:
        """Whether the job must end because of a failure, or for a rebuild."""
        return self.failure is not None or self.reason_to_rebuild is not None

    def run(self) -> None:
        """Run the periodic work until the end; a failure is stored for the main thread."""
        # Apart: a fold of many changes takes long, on a cluster also until executors have a core for it.
        folds = threading.Thread(target=self._guarded, args=(self._fold,), name="offsetlake-folds")
        folds.start()
        self._guarded(self._beat)
        folds.join()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.failure = error

    def _beat(self) -> None:
        heartbeat = Interval(self._settings.job.heartbeat_every_ms, at_once=True)
        roll = Interval(_ROLL_EVERY_MS, at_once=False)
        beating = Retrying("a heartbeat")
        while not self._done.wait(_POLL_S):
            if roll.is_due():
                roll_log(Path(self._settings.spark.log_file))
            if not heartbeat.is_due() or beating.succeeds(self.heartbeat):
                self._find_reason_to_rebuild()

    def _fold(self) -> None:
        fold = Interval(self._settings.tables.fold_every_ms, at_once=True)
        folding = Retrying("folding the tables")
        while not self._done.wait(_POLL_S):
            waiting, is_loaded = self._writer.rows_since_fold, not loading_in(self._writer.progress)
            # a fold rewrites what is folded: fewer rows are not worth it
            many = max(self._settings.tables.fold_rows, self._writer.folded_offsets)
            ends_soon = self._once and self._writer.progress.waiting < MANY_RECORDS
            is_due = not ends_soon and (waiting >= many or (waiting and is_loaded and fold.is_due()))
            if is_due and not folding.succeeds(self._writer.fold):
                self._done.wait(self._settings.job.heartbeat_every_ms / 1_000)
            elif is_due:
                fold.restart(max(1.0, self._writer.folded_offsets / _QUICKLY_FOLDED))

    def _find_reason_to_rebuild(self) -> None:
        """Check the topic at intervals (`check_topic_every`). The first reason is kept."""
        # if brokers do not answer, the check would delay the next heartbeat, which must report this
        if self.reason_to_rebuild is None and self._is_answered and self._topic_check.is_due():
            self.reason_to_rebuild = self._watch.reason_to_rebuild(self._writer.progress)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._done.set()
        self.join()

    def heartbeat(self) -> None:
        """Commit a heartbeat, with the current ends of the partitions whose leaders answer.

        Checks the clock first: after a jump only the commit that has its reason may say that everything was
        read.
        """
        asked_at = now_ms()  # before the request: this process may be suspended until the answer
        self.reason_to_rebuild = self.reason_to_rebuild or self._watch.reason_of_clock()
        ends = self._ends()
        self._is_answered = bool(ends)  # by some leaders: the others may be away for days
        self._writer.heartbeat(
            ends,
            self._retention_if_due() if self._is_answered else None,
            asked_at=asked_at,
            tombstones_kept_ms=self._watch.tombstones_kept_ms,
            alerts_evaluated_at=self._alerts_evaluated_at() if self._frozen is None else None,
            reason_to_rebuild=self.reason_to_rebuild,
        )
        if self._frozen is not None:
            self._frozen.heartbeat({}, alerts_evaluated_at=self._alerts_evaluated_at())

    def _ends(self) -> Mapping[int, PartitionEnds]:
        """Request the ends of the partitions; log the partitions without an answer, which have no end."""
        numbers = self._writer.progress.partitions.keys()
        try:
            ends = self._broker.ends(len(numbers))
        except AccessRefusedError:
            raise
        except BrokerError as error:
            self._problems.make("brokers", f"{error} Continuing without.")
            return {}
        servers = self._settings.source.bootstrap_servers
        if silent := sorted(numbers - ends.keys()):
            self._problems.make(
                "brokers",
                f"asking {servers} where topic {self._settings.source.topic} ends: expected an answer from "
                f"the leader of each partition, found none for {', '.join(map(str, silent))}. "
                "Continuing without.",
            )
        else:
            self._problems.settle("brokers", f"{servers} answers again")
        return ends

    def _retention_if_due(self) -> Retention | None:
        """Read the brokers' retention again if it is due, else None."""
        return self._retention.read(now_ms()) if self._reading.is_due() else None
