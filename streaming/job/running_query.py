"""The running query: lets batches through to the writer until the job is to stop, tells it how long they
took, and waits for the end."""

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
_POLLS_PER_QUESTION: Final = 10  # whether a query still runs is for the JVM to say, which costs more
_STOP_LIMIT_S: Final = 120.0  # for a batch to end
_IDLE_LIMIT_S: Final = 5.0  # for a batch to begin, which is then refused
_BATCHES_UNTIL_FORGOTTEN: Final = 100  # closed sockets; what the JVM has noted by then takes 50 kB
_DATA_LOSS: Final = "Some data may have been lost because they are not available in Kafka any more"
"""How Spark's Kafka source explains its error condition KAFKA_DATA_LOSS, whose name is not always shown."""

_REASONS_TO_REBUILD: Final = {
    _DATA_LOSS: "records that were still to be read are no longer in it",
    MIXED: "the checkpoint's state is of two runs of a batch, the second begun after a crash",
}
"""Why the topic must be read again, by what stands in the error that ended a query."""

_WHOLE_BATCH: Final = "triggerExecution"
"""How Spark calls the time from the trigger of a batch to after its commit."""

_OF_A_BATCH: Final = "addBatch"
"""A part of that time which a trigger without a batch does not have: Spark tells of those, too, now and then,
under the number of the next batch."""

_IDLE: Final = "Waiting"
"""How the status of a query begins that has looked for new records and found none."""


class StoppedBeforeBatchError(Exception):
    """Raised inside Spark's callback to end the query before a batch instead of within one."""


class Gate:
    """Lets batches through to the writer until the job is to stop; remembers what went wrong in Python."""

    def __init__(self, writer: BatchWriter, is_stopping: Callable[[], bool]) -> None:
        self._writer = writer
        self._is_stopping = is_stopping
        self.failure: BaseException | None = None
        self.is_closed = False
        self.is_writing = False
        self.ended_at = 0.0
        self._newest = self._timed = -1  # batches

    @property
    def has_written(self) -> bool:
        """Whether a batch is in the tables."""
        return self._newest >= 0

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch; refuse to begin one once the job is to stop (it will be replayed at the next
        start)."""
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

    def tell_duration(self, query: StreamingQuery) -> None:
        """Tell the writer how long the newest batch took that has ended, unless it knows."""
        if self._timed >= self._newest:
            return
        ended = query.lastProgress
        if ended is not None and ended.batchId > self._timed and _OF_A_BATCH in ended.durationMs:
            self._writer.took(ended.durationMs[_WHOLE_BATCH])
            self._timed = ended.batchId


def wait_for_first_batch(query: StreamingQuery, gate: Gate, is_stopping: Callable[[], bool]) -> bool:
    """Wait until a batch is in the tables, or the query is to end; False as soon as nothing is to be read."""
    while query.isActive and not gate.has_written and not is_stopping():
        if query.status["message"].startswith(_IDLE):
            return False
        time.sleep(_POLL_S)
    return True


def wait_for_stop(
    query: StreamingQuery, gate: Gate, is_stopping: Callable[[], bool], *, ends_soon: bool
) -> None:
    """Wait until the query is to end, or has ended by itself, which is looked for more often if it is to;
    meanwhile tell how long batches took."""
    polls = 1 if ends_soon else _POLLS_PER_QUESTION
    asked = count()
    while (next(asked) % polls or _goes_on(query, gate)) and not is_stopping():
        time.sleep(_POLL_S)


def _goes_on(query: StreamingQuery, gate: Gate) -> bool:
    gate.tell_duration(query)
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
    gate.tell_duration(query)


def _may_stop(query: StreamingQuery, gate: Gate, asked_at: float) -> bool:
    """Tell whether stopping now interrupts no batch, or enough has been waited for.

    A trigger that is active without a batch asks the brokers what is new, which takes long if they are away.
    """
    now = time.monotonic()
    if gate.is_writing:
        return now - asked_at > _STOP_LIMIT_S
    return not query.status["isTriggerActive"] or now - max(asked_at, gate.ended_at) > _IDLE_LIMIT_S
