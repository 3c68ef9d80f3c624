"""What the job does beside reading, at its own pace, also when no batch comes: heartbeats, folds, a look at
the topic itself, and one at the size of Spark's log."""

import logging
import threading
import time
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
from streaming.tables.select import in_one_line

_log = logging.getLogger(__name__)

_POLL_S: Final = 0.2
_ROLL_EVERY_MS: Final = 60_000

ATTEMPTS: Final = 10
"""How often in a row a heartbeat or a fold may fail, a heartbeat's interval apart, before the job ends. The
storage library already retries transient errors of object stores for minutes."""


class Retrying:
    """Lets work fail for a while: storage that refuses once is no reason to end a job of months."""

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._failures = 0

    def succeeds(self, work: Callable[[], object]) -> bool:
        """Do the work; False if it failed and is to be done again later. The last failure is raised, and at
        once what no repetition helps (`MisuseError`, `AccessRefusedError`)."""
        try:
            work()
        except (MisuseError, AccessRefusedError):
            raise
        except BaseException as error:  # whatever the storage and its library raise, panics too
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


class ClockPace:
    """Sees the clock jump: what was read before it was put right counts as read when it was wrong.

    A virtual machine that was suspended may go on with the time at which it was, until its clock is set.
    """

    def __init__(
        self, clock: Callable[[], int] = now_ms, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._steady = steady
        self._ahead = self._difference()

    def jumped_ms(self) -> int:
        """Return by how much the clock has gained on the time that has passed since this was last asked."""
        before, self._ahead = self._ahead, self._difference()
        return self._ahead - before

    def _difference(self) -> int:
        return self._clock() - int(self._steady() * 1_000)


class Housekeeping(threading.Thread):
    """Does housekeeping for one writer until the end of its `with` block.

    `failure` and `reason_to_rebuild` are for the main thread: with one of them set the job is to end. With
    `frozen`, the writer of tables that stay as they are meanwhile, these get heartbeats as well. Those
    of the tables that alerts are evaluated on say when that was last done (`alerts_evaluated_at`, ms).
    """

    def __init__(
        self,
        writer: BatchWriter,
        broker: Broker,
        watch: TopicWatch,
        retention: RetentionReader,
        settings: Settings,
        *,
        frozen: BatchWriter | None = None,
        alerts_evaluated_at: Callable[[], int | None] = lambda: None,
    ) -> None:
        super().__init__(name="offsetlake-housekeeping", daemon=True)
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
        self._pace = ClockPace()
        self._reading = Interval(settings.expiry.read_every_ms, at_once=False)
        self._look = Interval(settings.job.check_topic_every_ms, at_once=False)
        self.failure: BaseException | None = None
        self.reason_to_rebuild: str | None = None

    @property
    def wants_end(self) -> bool:
        """Whether the job is to end because of what was found here."""
        return self.failure is not None or self.reason_to_rebuild is not None

    def run(self) -> None:
        """Beat, fold, look and roll the log until told to end; a failure is kept for the main thread."""
        heartbeat = Interval(self._settings.job.heartbeat_every_ms, at_once=True)
        fold = Interval(self._settings.tables.fold_every_ms, at_once=True)
        roll = Interval(_ROLL_EVERY_MS, at_once=False)
        beating, folding = Retrying("a heartbeat"), Retrying("folding the tables")
        try:
            while not self._done.wait(_POLL_S):
                if roll.is_due():
                    roll_log(Path(self._settings.spark.log_file))
                if heartbeat.is_due() and not beating.succeeds(self.heartbeat):
                    continue
                waiting, is_loaded = self._writer.rows_since_fold, not loading_in(self._writer.progress)
                many = self._settings.tables.fold_rows
                is_due = waiting >= many or (waiting and is_loaded and fold.is_due())
                if is_due and not folding.succeeds(self._writer.fold):
                    self._done.wait(self._settings.job.heartbeat_every_ms / 1_000)
                self._find_reason_to_rebuild()
        except BaseException as error:
            self.failure = error

    def _find_reason_to_rebuild(self) -> None:
        """Look at the clock, and now and then at the topic; a reason that was found stays."""
        if self.reason_to_rebuild is None:
            self.reason_to_rebuild = self._reason_of_clock()
        # brokers that are silent would hold up the next heartbeat, which is to tell of it
        if self.reason_to_rebuild is None and self._is_answered and self._look.is_due():
            self.reason_to_rebuild = self._watch.reason_to_rebuild(self._writer.progress)

    def _reason_of_clock(self) -> str | None:
        jumped_ms = self._pace.jumped_ms()
        if jumped_ms <= self._watch.tombstones_kept_ms:
            return None
        return (
            f"the clock of this machine jumped forward by {jumped_ms // 1_000} s, which is longer than "
            "tombstones are retained: if the machine was suspended and its clock stood still, some may have "
            "been missed"
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: Any) -> None:
        """End after the current task."""
        self._done.set()
        self.join()

    def finish(self) -> None:
        """Fold the tables and commit a last heartbeat; after the `with` block."""
        self._writer.fold()
        self.heartbeat()

    def heartbeat(self) -> None:
        """Commit a heartbeat, with the current ends if the brokers answer."""
        asked_at = now_ms()  # before they answer: this process may be suspended between the two
        ends = self._ends()
        is_answered = len(ends) == len(self._writer.progress.partitions)
        self._is_answered = is_answered
        self._writer.heartbeat(
            ends,
            self._retention_if_due() if is_answered else None,
            asked_at=asked_at,
            tombstones_kept_ms=self._watch.tombstones_kept_ms,
            alerts_evaluated_at=self._alerts_evaluated_at() if self._frozen is None else None,
        )
        if self._frozen is not None:
            self._frozen.heartbeat({}, alerts_evaluated_at=self._alerts_evaluated_at())

    def _ends(self) -> Mapping[int, PartitionEnds]:
        """Ask where the partitions end, and report leaders that do not answer."""
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
        """Read the brokers' settings again, if it is time; None: nothing new is known."""
        return self._retention.read(now_ms()) if self._reading.is_due() else None
