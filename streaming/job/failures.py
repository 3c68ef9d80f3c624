"""Errors while the topic is read, and which of them end the job.

Refusals end it; it waits for silent brokers (docs/decisions/0015).
"""

import logging
import math
import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from streaming.brokers.broker import Broker
from streaming.brokers.facts import AccessRefusedError, BrokerError, TokenRefusedError
from streaming.job.topic.reasons import reason_to_rebuild
from streaming.job.topic.watch import TopicWatch
from streaming.model.errors import MisuseError, OffsetlakeError
from streaming.spark.java_errors import error_line
from streaming.tables.tables import Tables

_log = logging.getLogger(__name__)

_STATE_SCHEMA_GONE: Final = re.compile(
    r"(?:FileNotFound|NoSuchFile)Exception: .*?(?P<file>\S+/_stateSchema/\S*\w)"
)
"""Spark's error for a missing file named in an operator's metadata, by absolute path. The file system
determines which exception it is."""

_OTHER_JOB: Final = "Multiple streaming jobs detected"
"""Spark's error when another driver has logged the batch that this one has planned."""

LATEST_TIMESTAMP_MS: Final = 9_223_372_036_854_775
"""The latest record timestamp that fits into Spark's microseconds."""

_TIMESTAMP_OVERFLOW: Final = "ArithmeticException: long overflow"
"""From Spark's Kafka connector, before our code gets the record: it converts milliseconds to microseconds."""

_FORBIDDEN: Final = re.compile(r"\w+AuthorizationException\b")
"""Kafka's exceptions for permissions."""

_NOT_SIGNED_IN: Final = re.compile(
    r"\w+AuthenticationException\b|\bSSL\w*Exception\b"
    r"|LoginException: (An internal error occurred while retrieving token|software\.amazon\.awssdk\.)"
    r"|\bSdkClientException: Unable to load credentials|\bStsException\b"
)
"""Exceptions for credentials, certificates and tokens. The exception for a token endpoint gives no reason.
AWS exceptions occur in the text of a `LoginException`, and as the innermost cause."""

_MOST_SIGN_INS: Final = 3
"""Consecutive failed sign-ins of the query, while the brokers accept this user otherwise, before the job
ends."""

_CONSECUTIVE_WITHIN_S: Final = 600.0
"""Failures further apart are not consecutive, even if there was nothing to read: the query had signed in and
started its workers. The time limits of its clients are shorter, unless a user sets longer ones."""

_SILENT: Final = re.compile(
    r"org\.apache\.kafka\.common\.errors\.(Timeout|Disconnect|Network)Exception\b"
    r"|TimeoutException: Cannot fetch record"
)
"""Errors of Kafka's client and Spark's connector when no broker answers."""


_TOO_LATE: Final = "Timed out while waiting for the Python worker to connect back"
"""Spark's error when a Python worker takes longer to start than 10 s, which is not configurable
(`PythonWorkerFactory.createSimpleWorker`)."""

_MOST_LATE_STARTS: Final = 10
"""Consecutive late starts of workers before the job ends."""


class JobFailedError(OffsetlakeError):
    """The query or its housekeeping failed."""


class JobRefusedError(JobFailedError):
    """The user lacks a permission: waiting does not help."""


class SignInError(JobFailedError):
    """The brokers refused the query's credentials or certificates, or it got no token.

    Either they are wrong, or the query has read a certificate that was replaced since, or its token expired
    while the token endpoint did not answer.
    """


class BrokersSilentError(JobFailedError):
    """Brokers did not answer the query within its timeout."""


class WorkerTooLateError(JobFailedError):
    """A Python worker did not start in time: the machine is overloaded."""


class RecordTimestampError(JobFailedError):
    """A record has a timestamp that Spark's connector cannot represent."""

    @classmethod
    def of(cls, doing: str, places: Mapping[int, int]) -> "RecordTimestampError":
        """`places` has the offsets of such records by partition, as far as known."""
        listed = ", ".join(f"offset {offset} of partition {number}" for number, offset in places.items())
        where = f" ({listed})" if listed else ""
        return cls(
            f"{doing} failed: expected record timestamps up to the year 294246, found one in the "
            f"topic{where} that does not fit into Spark's microseconds. Brokers write none into "
            "__consumer_offsets, and refuse it elsewhere unless message.timestamp.after.max.ms or "
            ".before.max.ms of the topic allows it. The tables are unchanged; once the record has been "
            "removed from the topic, run `offsetlake rebuild`."
        )


def as_failure(doing: str, cause: BaseException) -> OffsetlakeError:
    """Convert an exception to an error with one sentence; an `OffsetlakeError` stays."""
    if isinstance(cause, OffsetlakeError):
        return cause
    said = error_line(cause)
    if moved := _STATE_SCHEMA_GONE.search(said):
        return MisuseError(
            f"{doing}: expected the checkpoint where it was created, with {moved['file']}, found no such "
            "file. A checkpoint cannot be moved: Spark stores its path in it. Put it back, or run "
            "`offsetlake rebuild`, which creates a new one and keeps the tables."
        )
    if _OTHER_JOB in said:
        return MisuseError(
            f"{doing}: expected to be the only job on the checkpoint, found a batch of another one there. "
            "That job goes on with the tables; stop one of them."
        )
    if _SILENT.search(f"{cause} {said}"):
        return BrokersSilentError(f"{doing} failed: {said}")
    if _FORBIDDEN.search(f"{cause} {said}"):
        return JobRefusedError(f"{doing} failed: {said}")
    if _NOT_SIGNED_IN.search(f"{cause} {said}"):
        return SignInError(f"{doing} failed: {said}")
    if _TOO_LATE in said:
        return WorkerTooLateError(
            f"{doing} failed: expected a Python worker within the 10 s that Spark allows, found none. "
            "Other processes may need all of this machine's processor time."
        )
    if _TIMESTAMP_OVERFLOW in f"{cause} {said}":  # this text may or may not include the text of the cause
        return RecordTimestampError.of(doing, {})
    return JobFailedError(f"{doing} failed: {said}")


class Interruptions:
    """Distinguishes interrupted readings, which are restarted, from failures that end the job.

    Failures are consecutive unless something was read in between, or they are far apart. Remembers the
    positions of the tables at the last call. The topic has `partition_count` partitions.
    """

    def __init__(
        self,
        broker: Broker,
        watch: TopicWatch,
        partition_count: int,
        *,
        stop: threading.Event,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._broker = broker
        self._watch = watch
        self._partition_count = partition_count
        self._stop = stop
        self._clock = clock
        self._failed_at = -math.inf
        self._positions: dict[int, int] = {}
        self._late_starts = 0
        self._sign_ins = 0

    def raise_unless_explained(self, failure: JobFailedError | BrokerError, tables: Tables) -> None:
        """Raise a failure, unless silent brokers or changes of the topic explain it."""
        if self._stop.is_set() or isinstance(failure, JobRefusedError | AccessRefusedError):
            raise failure
        if isinstance(failure, WorkerTooLateError | SignInError) and self._ran_well(tables):
            self._late_starts = self._sign_ins = 0
        if isinstance(failure, WorkerTooLateError):
            self._late_starts += 1
            if self._late_starts <= _MOST_LATE_STARTS:
                _log.warning("%s Starting the query again.", failure)
                return
        if isinstance(failure, SignInError):
            self._sign_ins += 1
            if self._sign_ins < _MOST_SIGN_INS:
                _log.warning("%s Signing in again.", failure)
                self._sign_in_again()
                return
        if isinstance(failure, BrokersSilentError | BrokerError) and self._has_moved(tables):
            _log.warning("%s Reading continues as soon as they answer.", failure)  # they may be back by now
            return
        if isinstance(failure, RecordTimestampError):
            raise RecordTimestampError.of("running the query", self._late_records()) from failure
        try:
            topic = self._watch.now()
        except AccessRefusedError:
            raise
        except BrokerError:
            return
        if topic is not None and reason_to_rebuild(tables.progress(), topic) is None:
            raise failure

    def _late_records(self) -> dict[int, int]:
        """Return the offsets of records with timestamps that do not fit, by partition; none without an
        answer."""
        try:
            return self._broker.first_since(LATEST_TIMESTAMP_MS + 1, self._partition_count)
        except BrokerError as error:  # the record is the reason of the failure, and not this silence
            _log.debug("the record was not looked for: %s", error)
            return {}

    def _sign_in_again(self) -> None:
        """Let the broker's client say what is wrong, and whether waiting helps."""
        with suppress(MisuseError):  # a file that is being replaced
            try:
                self._broker.sign_in_again()
            except AccessRefusedError:
                raise
            except TokenRefusedError as error:
                _log.warning("%s", error)
            except BrokerError as error:  # AWS gives no credentials: that is silence, and not counted
                _log.warning("%s", error)
                self._sign_ins -= 1

    def _ran_well(self, tables: Tables) -> bool:
        """Whether the query has read something since the last such failure, or that is long ago."""
        failed_before, self._failed_at = self._failed_at, self._clock()
        return self._has_moved(tables) or self._failed_at - failed_before > _CONSECUTIVE_WITHIN_S

    def _has_moved(self, tables: Tables) -> bool:
        """Whether anything was read since the last call."""
        positions = {number: one.position for number, one in tables.progress().partitions.items()}
        before = self._positions.copy()
        self._positions.update({**positions, -1: tables.progress().generation})
        return before != self._positions
