"""The running query: lets batches through to the writer until the job is to stop, and waits for its end."""

import re
import time
from collections.abc import Callable, Mapping
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from streaming.job.topic.reasons import RebuildNeededError
from streaming.job.writer import BatchWriter
from streaming.model.errors import MisuseError, OffsetlakeError
from streaming.spark.java_errors import told

_POLL_S: Final = 0.2
_STOP_LIMIT_S: Final = 120.0  # for a batch to end
_IDLE_LIMIT_S: Final = 5.0  # for a batch to begin, which is then refused
_DATA_LOSS: Final = "Some data may have been lost because they are not available in Kafka any more"
"""How Spark's Kafka source explains its error condition KAFKA_DATA_LOSS, whose name is not always shown."""


_STATE_SCHEMA_GONE: Final = re.compile(r"FileNotFoundException: .*?(?P<file>\S+/_stateSchema/\S+)")
"""What Spark says when it does not find what an operator's metadata name: by their whole path."""

LATEST_TIMESTAMP_MS: Final = 9_223_372_036_854_775
"""The latest record timestamp that fits into Spark's microseconds."""

_TIMESTAMP_OVERFLOW: Final = "ArithmeticException: long overflow"
"""Raised by Spark's Kafka connector, before anything of ours sees the record: it makes microseconds of
milliseconds."""


_REFUSED: Final = re.compile(r"\w+(Authentication|Authorization)Exception\b")
"""Kafka's exceptions for credentials, certificates and rights."""

_SILENT: Final = re.compile(
    r"org\.apache\.kafka\.common\.errors\.(Timeout|Disconnect|Network)Exception\b"
    r"|TimeoutException: Cannot fetch record"
)
"""What Kafka's client and Spark's connector say when nobody answers."""


class JobFailedError(OffsetlakeError):
    """The query or its housekeeping failed."""


class JobRefusedError(JobFailedError):
    """The brokers refuse credentials or certificates, or the user lacks a right: waiting does not help."""


class BrokersSilentError(JobFailedError):
    """Brokers did not answer the query for as long as it waits for them."""


class RecordTimestampError(JobFailedError):
    """A record has a timestamp that Spark's connector cannot hold."""

    @classmethod
    def of(cls, doing: str, places: Mapping[int, int]) -> "RecordTimestampError":
        """Say which records they are: offsets by partition of the topic, those that are known."""
        listed = ", ".join(f"offset {offset} of partition {number}" for number, offset in places.items())
        where = f" ({listed})" if listed else ""
        return cls(
            f"{doing} failed: expected record timestamps up to the year 294246, found one in the "
            f"topic{where} that does not fit into Spark's microseconds. Brokers write none into "
            "__consumer_offsets, and refuse it elsewhere unless message.timestamp.after.max.ms or "
            ".before.max.ms of the topic allows it. The tables stay as they are; once the record is gone "
            "from the topic, run `offsetlake rebuild`."
        )


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

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch; refuse to begin one once the job is to stop (it will be replayed at the next
        start)."""
        if self._is_stopping():
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
        if _DATA_LOSS in f"{cause} {failure}":
            raise RebuildNeededError("records that were to be read (again) are gone from it") from cause
        raise as_failure("running the query", cause) from cause


def _may_stop(query: StreamingQuery, gate: Gate, asked_at: float) -> bool:
    """Tell whether stopping now interrupts no batch, or enough has been waited for.

    A trigger that is active without a batch asks the brokers what is new, which takes long if they are away.
    """
    now = time.monotonic()
    if gate.is_writing:
        return now - asked_at > _STOP_LIMIT_S
    return not query.status["isTriggerActive"] or now - max(asked_at, gate.ended_at) > _IDLE_LIMIT_S


def as_failure(doing: str, cause: BaseException) -> OffsetlakeError:
    """Turn what was raised into one sentence; an error of ours is one already."""
    if isinstance(cause, OffsetlakeError):
        return cause
    said = told(cause)
    if moved := _STATE_SCHEMA_GONE.search(said):
        return MisuseError(
            f"{doing}: expected the checkpoint where it was begun, with {moved['file']}, found no such file. "
            "A checkpoint cannot be moved: Spark keeps the place in it. Put it back, or run `offsetlake "
            "rebuild`, which makes a new one and keeps the tables."
        )
    if _SILENT.search(f"{cause} {said}"):
        return BrokersSilentError(f"{doing} failed: {said}")
    if _REFUSED.search(f"{cause} {said}"):
        return JobRefusedError(f"{doing} failed: {said}")
    if _TIMESTAMP_OVERFLOW in f"{cause} {said}":  # whose text may or may not have that of what is behind it
        return RecordTimestampError.of(doing, {})
    return JobFailedError(f"{doing} failed: {said}")
