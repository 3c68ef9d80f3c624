"""How a query failed decides what the job does: silence is waited for, a refusal ends it."""

import threading
from dataclasses import replace
from typing import Any

import pytest

from streaming.brokers.facts import AccessRefusedError, BrokerError
from streaming.job.failures import (
    BrokersSilentError,
    Interruptions,
    JobFailedError,
    JobRefusedError,
    RecordTimestampError,
    as_failure,
)
from streaming.job.topic.reasons import TopicNow
from streaming.model.progress import PartitionProgress, Progress

KAFKA = "org.apache.kafka.common.errors"
FAILURES = {
    "no answer of a leader": (
        f"{KAFKA}.TimeoutException: Timeout of 60000ms expired before the position could be determined",
        BrokersSilentError,
    ),
    "no record in time": (
        "java.util.concurrent.TimeoutException: Cannot fetch record for offset 5 in 120000 milliseconds",
        BrokersSilentError,
    ),
    "a connection that ended": (f"{KAFKA}.DisconnectException: null", BrokersSilentError),
    "a wrong password": (f"{KAFKA}.SaslAuthenticationException: invalid credentials", JobRefusedError),
    "an expired certificate": (f"{KAFKA}.SslAuthenticationException: handshake failed", JobRefusedError),
    "a missing right": (f"{KAFKA}.TopicAuthorizationException: not authorized", JobRefusedError),
    "a full disk": ("java.io.IOException: No space left on device", JobFailedError),
    "another time limit": ("java.util.concurrent.TimeoutException: Futures timed out", JobFailedError),
}


@pytest.mark.parametrize(("text", "kind"), FAILURES.values(), ids=FAILURES.keys())
def test_a_failure_is_of_the_kind_that_its_cause_says(text: str, kind: type[JobFailedError]) -> None:
    failure = as_failure("running the query", RuntimeError(text))
    assert type(failure) is kind
    assert str(failure).startswith("running the query failed: ")
    assert failure.exit_code == 1


# --- what is begun again ---------------------------------------------------------------------------------

AS_BEFORE = TopicNow(
    cluster_id="c", partition_count=1, topic_id="id", ranges={}, delete_retention_ms=86_400_000, now=0
)
RENAMED = replace(AS_BEFORE, topic_id="other")
FAILED, SILENT = JobFailedError("no space left"), BrokersSilentError("no answer")


class World:
    """Tables that were read up to a position, and brokers that answer one question after the other."""

    def __init__(self, *answers: TopicNow | BrokerError | None) -> None:
        self.answers = list(answers)
        self.position = 5
        self.said: list[str] = []
        self.stop = threading.Event()
        world: Any = self
        self.interruptions = Interruptions(world, world, 3, say=self.said.append, stop=self.stop)

    def progress(self) -> Progress:
        return Progress(topic="t", topic_id="id", partitions={0: PartitionProgress().at(self.position)})

    def now(self) -> TopicNow | None:
        answer = self.answers.pop(0)
        if isinstance(answer, BrokerError):
            raise answer
        return answer

    def first_since(self, timestamp_ms: int, partition_count: int) -> dict[int, int]:
        return {2: 7} if (timestamp_ms, partition_count) == (9_223_372_036_854_776, 3) else {}

    def is_begun_again(self, failure: JobFailedError) -> bool:
        """Tell whether the reading is begun again after a failure."""
        tables: Any = self
        try:
            self.interruptions.raise_unless_explained(failure, tables)
        except JobFailedError:
            return False
        return True


@pytest.mark.parametrize("answer", [BrokerError("away"), None, RENAMED], ids=["silence", "gone", "renamed"])
def test_a_failure_is_an_interruption_where_brokers_or_topic_explain_it(
    answer: TopicNow | BrokerError | None,
) -> None:
    assert World(answer).is_begun_again(FAILED)


def test_a_failure_that_nothing_explains_ends_the_job() -> None:
    assert not World(AS_BEFORE).is_begun_again(FAILED)


def test_silence_is_begun_again_once_even_if_brokers_are_back_and_again_where_something_was_read() -> None:
    world = World(AS_BEFORE)
    assert [world.is_begun_again(SILENT) for _ in range(2)] == [True, False]
    assert world.said == ["no answer Reading on as soon as they answer."]
    world.position += 1
    assert world.is_begun_again(SILENT)


def test_a_refusal_and_a_stop_end_the_job_without_a_question() -> None:
    world = World()
    refused = JobRefusedError("wrong password")
    assert not world.is_begun_again(refused)
    world.stop.set()
    assert not world.is_begun_again(SILENT)
    with pytest.raises(AccessRefusedError, match="wrong password"):
        World(AccessRefusedError("wrong password")).is_begun_again(FAILED)


def test_records_with_a_timestamp_that_does_not_fit_are_named() -> None:
    tables: Any = (world := World())
    with pytest.raises(RecordTimestampError, match=r"\(offset 7 of partition 2\)"):
        world.interruptions.raise_unless_explained(RecordTimestampError.of("reading", {}), tables)
