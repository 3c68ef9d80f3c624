"""What the job does beside reading, at its own pace, also when no batch comes: heartbeats, folds, and a look
at the topic itself."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Self

from streaming.broker import Broker, BrokerError
from streaming.delta_sql import in_one_line
from streaming.errors import MisuseError
from streaming.progress import Progress, Retention, now_ms
from streaming.rebuild import TopicNow, reason_to_rebuild
from streaming.retention import RetentionReader
from streaming.settings import Settings
from streaming.writer import BatchWriter

_POLL_S: Final = 0.2

ATTEMPTS: Final = 10
"""How often in a row a heartbeat or a fold may fail, a heartbeat's interval apart, before the job ends. What
object stores answer in passing is repeated below us for minutes already."""


class Patience:
    """Lets work fail for a while: storage that refuses once is no reason to end a job of months."""

    def __init__(self, doing: str, say: Callable[[str], None]) -> None:
        self._doing = doing
        self._say = say
        self._failures = 0

    def succeeds(self, work: Callable[[], object]) -> bool:
        """Do the work; False if it failed and is to be done again later. The last failure is raised, and at
        once what no repetition helps (`MisuseError`)."""
        try:
            work()
        except MisuseError:
            raise
        except Exception as error:  # whatever the storage and its library raise
            self._failures += 1
            if self._failures == ATTEMPTS:
                raise
            if self._failures == 1:
                self._say(f"{self._doing} failed, trying again: {in_one_line(error)}")
            return False
        if self._failures:
            self._say(f"{self._doing} works again")
        self._failures = 0
        return True


class Every:
    """Says when it is time again."""

    def __init__(self, interval_ms: int, *, at_once: bool) -> None:
        self._interval_s = interval_ms / 1_000
        self._next = time.monotonic() + (0 if at_once else self._interval_s)

    def is_due(self) -> bool:
        """Tell whether it is time; if so, the next time is an interval from now."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._interval_s
        return True


@dataclass(frozen=True)
class Topic:
    """The topic as it is watched while it is read."""

    broker: Broker
    name: str
    partition_count: int

    def now(self) -> TopicNow | None:
        """Ask the brokers what the topic is like; None if it is not there. Raises `BrokerError`."""
        facts = self.broker.topic_facts()
        if facts is None:
            return None
        partitions = [(self.name, number) for number in range(facts.partition_count)]
        return TopicNow(
            partition_count=facts.partition_count,
            topic_id=facts.topic_id,
            ranges={number: held for (_, number), held in self.broker.log_ranges(partitions).items()},
            delete_retention_ms=self.broker.delete_retention_ms(),
            now=now_ms(),
        )

    def reason_to_rebuild(self, progress: Progress) -> str | None:
        """Say why reading on is not enough, if the brokers say so; `progress` has the ends as of now."""
        try:
            topic = self.now()
        except BrokerError:
            return None  # heartbeats tell of that
        return None if topic is None else reason_to_rebuild(progress, topic)


class Housekeeping(threading.Thread):
    """Keeps house for one writer until the end of its `with` block.

    `failure` and `reason_to_rebuild` are for the main thread: with one of them set the job is to end. With
    `frozen`, the writer of tables that stay as they are meanwhile, these get heartbeats as well.
    """

    def __init__(
        self,
        writer: BatchWriter,
        topic: Topic,
        retention: RetentionReader,
        settings: Settings,
        say: Callable[[str], None],
        *,
        frozen: BatchWriter | None = None,
    ) -> None:
        super().__init__(name="offsetlake-housekeeping", daemon=True)
        self._writer = writer
        self._frozen = frozen
        self._topic = topic
        self._retention = retention
        self._settings = settings
        self._say = say
        self._done = threading.Event()
        self._is_reachable = True
        self._reading = Every(settings.expiry.read_every_ms, at_once=False)
        self._look = Every(settings.job.check_topic_every_ms, at_once=False)
        self.failure: BaseException | None = None
        self.reason_to_rebuild: str | None = None

    @property
    def wants_end(self) -> bool:
        """Whether the job is to end because of what was found here."""
        return self.failure is not None or self.reason_to_rebuild is not None

    def run(self) -> None:
        """Beat, fold and look until told to end; a failure is kept for the main thread."""
        beat = Every(self._settings.job.heartbeat_every_ms, at_once=True)
        fold = Every(self._settings.tables.fold_every_ms, at_once=True)
        beating, folding = Patience("a heartbeat", self._say), Patience("folding the tables", self._say)
        try:
            while not self._done.wait(_POLL_S):
                if beat.is_due() and not beating.succeeds(self.beat):
                    continue
                waiting, is_loaded = self._writer.rows_since_fold, self._writer.progress.is_loaded
                many = self._settings.tables.fold_rows
                is_due = waiting >= many or (waiting and is_loaded and fold.is_due())
                if is_due and not folding.succeeds(self._writer.fold):
                    self._done.wait(self._settings.job.heartbeat_every_ms / 1_000)
                if self._look.is_due():
                    self.reason_to_rebuild = self._topic.reason_to_rebuild(self._writer.progress)
        except BaseException as error:
            self.failure = error

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: Any) -> None:
        """End after what is under way."""
        self._done.set()
        self.join()

    def finish(self) -> None:
        """Leave the tables folded and with the last word on how far they reach; after the `with` block."""
        self._writer.fold()
        self.beat()

    def beat(self) -> None:
        """Commit a heartbeat, with what the brokers say now if they answer."""
        try:
            ends = self._topic.broker.ends(self._topic.partition_count)
        except BrokerError as error:
            ends = {}
            if self._is_reachable:
                self._say(f"{error} Going on without.")
        if ends and not self._is_reachable:
            self._say(f"{self._settings.source.bootstrap_servers} answers again")
        self._is_reachable = bool(ends)
        self._writer.beat(ends, self._retention_if_due() if ends else None)
        if self._frozen is not None:
            self._frozen.beat({})

    def _retention_if_due(self) -> Retention | None:
        """Read the brokers' settings anew, if it is time; None: nothing new is known."""
        return self._retention.read(now_ms()) if self._reading.is_due() else None
