"""The running query: passes batches and their duration to the writer until the job must stop, and waits for
the end."""

import time
from collections.abc import Callable
from itertools import count
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from streaming.job.failures import as_failure
from streaming.job.topic.reasons import RebuildNeededError
from streaming.job.writer import BatchWriter
from streaming.spark.session import forget_closed_sockets
from streaming.state.stored import MIXED

_POLL_S: Final = 0.2
_POLLS_PER_QUESTION: Final = 10  # asking the JVM whether a query runs costs more
_STOP_LIMIT_S: Final = 90.0  # for a batch to end; service managers wait 120 s for all that a stop does
_IDLE_LIMIT_S: Final = 5.0  # for a batch to begin, which is then rejected
_BATCHES_UNTIL_FORGOTTEN: Final = 100  # closed sockets; by then they take 50 kB in the JVM
_DATA_LOSS: Final = "Some data may have been lost because they are not available in Kafka any more"
"""The text of Spark's error condition KAFKA_DATA_LOSS, whose name is not always shown."""

_REASONS_TO_REBUILD: Final = {
    _DATA_LOSS: "records that were still to be read are no longer in it",
    MIXED: "the checkpoint's state is of two runs of a batch, the second begun after a crash",
}
"""Reasons to re-read the topic, by text in the error that ended a query."""

_WHOLE_BATCH: Final = "triggerExecution"
"""Spark's name for the time from the trigger of a batch to its commit."""

_OF_A_BATCH: Final = "addBatch"
"""A part of that time which a trigger without a batch lacks: Spark sometimes reports those too, with the
number of the next batch."""

_IDLE: Final = "Waiting"
"""Prefix of the status of a query that has found no new records."""


class StoppedBeforeBatchError(Exception):
    """Raised in Spark's callback to end the query before a batch instead of within one."""


class Gate:
    """Passes batches to the writer until the job must stop; remembers exceptions in Python."""

    def __init__(self, writer: BatchWriter, is_stopping: Callable[[], bool]) -> None:
        self._writer = writer
        self._is_stopping = is_stopping
        self.failure: BaseException | None = None
        self.is_closed = False
        self.is_writing = False
        self.ended_at = 0.0
        self._newest = self._timed = -1  # of batches

    @property
    def has_written(self) -> bool:
        return self._newest >= 0

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch; reject it if the job must stop (it is replayed at the next start)."""
        if self._is_stopping():
            self.is_closed = True
            raise StoppedBeforeBatchError
        self.is_writing = True
        try:
            self._writer.write(batch, batch_id)
            self._newest = batch_id
            if batch_id % _BATCHES_UNTIL_FORGOTTEN == 0:
                forget_closed_sockets(batch.sparkSession)
        except BaseException as error:
            self.failure = error
            raise
        finally:
            self.ended_at = time.monotonic()
            self.is_writing = False

    def report_duration(self, query: StreamingQuery) -> None:
        """Pass the duration of the newest finished batch to the writer, once."""
        if self._timed >= self._newest:
            return
        ended = query.lastProgress
        if ended is not None and ended.batchId > self._timed and _OF_A_BATCH in ended.durationMs:
            self._writer.took(ended.durationMs[_WHOLE_BATCH])
            self._timed = ended.batchId


def wait_for_first_batch(query: StreamingQuery, gate: Gate, is_stopping: Callable[[], bool]) -> bool:
    """Wait until a batch is in the tables, or the query must end; False as soon as there is nothing to
    read."""
    while query.isActive and not gate.has_written and not is_stopping():
        if query.status["message"].startswith(_IDLE):
            return False
        time.sleep(_POLL_S)
    return True


def wait_for_stop(
    query: StreamingQuery, gate: Gate, is_stopping: Callable[[], bool], *, ends_soon: bool
) -> None:
    """Wait until the query must end, or has ended by itself, which is checked more often with `ends_soon`;
    meanwhile pass durations of batches to the writer."""
    polls = 1 if ends_soon else _POLLS_PER_QUESTION
    asked = count()
    while (next(asked) % polls or _goes_on(query, gate)) and not is_stopping():
        time.sleep(_POLL_S)


def _goes_on(query: StreamingQuery, gate: Gate) -> bool:
    gate.report_duration(query)
    return query.isActive


def wait_for_end(query: StreamingQuery, gate: Gate, is_stopping: Callable[[], bool]) -> None:
    """Wait until the query has ended by itself, failed, or was stopped between two batches."""
    asked_at: float | None = None
    is_stopped = False
    while query.isActive:
        time.sleep(_POLL_S)
        if is_stopping():
            asked_at = asked_at or time.monotonic()
            if _may_stop(query, gate, asked_at):
                is_stopped = True
                query.stop()
    failure = query.exception()
    if failure is not None and not gate.is_closed and not is_stopped:
        cause = gate.failure or failure
        for sign, reason in _REASONS_TO_REBUILD.items():
            if sign in f"{cause} {failure}":
                raise RebuildNeededError(reason) from cause
        raise as_failure("running the query", cause) from cause
    gate.report_duration(query)


def _may_stop(query: StreamingQuery, gate: Gate, asked_at: float) -> bool:
    """Whether stopping now interrupts no batch, or the limit is exceeded.

    An active trigger without a batch requests offsets from the brokers, which takes long if they are away.
    """
    now = time.monotonic()
    if gate.is_writing:
        return now - asked_at > _STOP_LIMIT_S
    return not query.status["isTriggerActive"] or now - max(asked_at, gate.ended_at) > _IDLE_LIMIT_S
