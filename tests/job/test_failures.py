"""How a query failed decides what the job does: silence is waited for, a refusal ends it."""

import threading
from collections.abc import Callable
from itertools import count

import pytest

from streaming.brokers.broker import Broker
from streaming.brokers.facts import AccessRefusedError, BrokerError, TokenRefusedError
from streaming.job.failures import (
    BrokersSilentError,
    Interruptions,
    JobFailedError,
    JobRefusedError,
    RecordTimestampError,
    SignInError,
    WorkerTooLateError,
    as_failure,
)
from streaming.job.topic.reasons import TopicNow
from streaming.job.topic.watch import TopicWatch
from streaming.settings.reading import read_settings
from streaming.tables.tables import Tables

NOW = TopicNow(cluster_id="c", partition_count=1, ranges={}, delete_retention_ms=1, now=1)
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
    "a wrong password": (f"{KAFKA}.SaslAuthenticationException: invalid credentials", SignInError),
    "an expired certificate": (f"{KAFKA}.SslAuthenticationException: handshake failed", SignInError),
    "a refused certificate, said after the handshake": (
        "javax.net.ssl.SSLHandshakeException: Received fatal alert: bad_certificate",
        SignInError,
    ),
    "no token": (
        "javax.security.auth.login.LoginException: An internal error occurred while retrieving token from "
        "callback handler",
        SignInError,
    ),
    "no credentials of AWS": (
        "javax.security.auth.login.LoginException: software.amazon.awssdk.core.exception.SdkClientException: "
        "Unable to load credentials from any of the providers in the chain",
        SignInError,
    ),
    "no credentials of AWS, as the innermost cause": (
        "software.amazon.awssdk.core.exception.SdkClientException: Unable to load credentials from any of "
        "the providers in the chain",
        SignInError,
    ),
    "credentials that STS refuses to Java": (
        "software.amazon.awssdk.services.sts.model.StsException: User: me is not authorized to perform",
        SignInError,
    ),
    "a login module that Java does not know": (
        "javax.security.auth.login.LoginException: No LoginModule found for org.example.X",
        JobFailedError,
    ),
    "a missing right": (f"{KAFKA}.TopicAuthorizationException: not authorized", JobRefusedError),
    "a starved machine": (
        "java.net.SocketTimeoutException: Timed out while waiting for the Python worker to connect back",
        WorkerTooLateError,
    ),
    "a full disk": ("java.io.IOException: No space left on device", JobFailedError),
    "another time limit": ("java.util.concurrent.TimeoutException: Futures timed out", JobFailedError),
}


@pytest.mark.parametrize(("text", "kind"), FAILURES.values(), ids=FAILURES.keys())
def test_a_failure_is_of_the_kind_that_its_cause_says(text: str, kind: type[JobFailedError]) -> None:
    failure = as_failure("running the query", RuntimeError(text))
    assert type(failure) is kind
    assert str(failure).startswith("running the query failed: ")
    assert failure.exit_code == 1


def test_a_batch_of_another_driver_in_the_checkpoint_is_misuse() -> None:
    said = "org.apache.spark.SparkException: [CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. "
    failure = as_failure("running the query", RuntimeError(f"{said}Multiple streaming jobs detected for 7."))
    assert failure.exit_code == 2
    assert str(failure).startswith("running the query: expected to be the only job on the checkpoint, found ")


@pytest.mark.parametrize("silence", [BrokerError("no answer"), AccessRefusedError("for long")])
def test_a_record_that_ends_the_job_is_named_although_brokers_are_silent_at_that_moment(
    monkeypatch: pytest.MonkeyPatch, tables: Tables, silence: BrokerError
) -> None:
    def first_since(*_: object) -> dict[int, int]:
        raise silence

    broker = Broker(read_settings().source)
    monkeypatch.setattr(broker, "first_since", first_since)
    interruptions = Interruptions(broker, TopicWatch(broker, "topic", pause_ms=1), 1, stop=threading.Event())
    failure = as_failure("running the query", RuntimeError("java.lang.ArithmeticException: long overflow"))
    assert isinstance(failure, JobFailedError)
    with pytest.raises(RecordTimestampError, match="found one in the topic that does not fit"):
        interruptions.raise_unless_explained(failure, tables)


# --- signing in again ---


@pytest.fixture
def interruptions(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Interruptions]:
    """Interruptions of a job that gets no token, for this reason, while its brokers still answer; its query
    fails every so many seconds."""

    def made(no_token: BrokerError, every_s: int = 1) -> Interruptions:
        def sign_in_again() -> None:
            raise no_token

        broker = Broker(read_settings().source)
        watch = TopicWatch(broker, "topic", pause_ms=1)
        monkeypatch.setattr(broker, "sign_in_again", sign_in_again)
        monkeypatch.setattr(watch, "now", lambda: NOW)
        times = count(0, every_s)
        return Interruptions(broker, watch, 1, stop=threading.Event(), clock=lambda: float(next(times)))

    return made


def test_a_job_whose_credentials_are_refused_ends_although_brokers_still_answer(
    interruptions: Callable[..., Interruptions], tables: Tables
) -> None:
    refused = interruptions(TokenRefusedError("expired"))
    for _ in range(2):
        refused.raise_unless_explained(SignInError("the query"), tables)
    with pytest.raises(SignInError, match="the query"):
        refused.raise_unless_explained(SignInError("the query"), tables)


def test_refusals_are_not_consecutive_if_the_query_ran_for_long_without_anything_to_read(
    interruptions: Callable[..., Interruptions], tables: Tables
) -> None:
    rotated = interruptions(TokenRefusedError("expired"), every_s=1_200)
    for _ in range(5):
        rotated.raise_unless_explained(SignInError("the query"), tables)


def test_late_starts_end_the_job_unless_the_query_ran_for_long_in_between(
    interruptions: Callable[..., Interruptions], tables: Tables
) -> None:
    now_and_then, overloaded = (interruptions(BrokerError(""), every_s=every_s) for every_s in (1_200, 30))
    for _ in range(10):
        now_and_then.raise_unless_explained(WorkerTooLateError("the query"), tables)
        overloaded.raise_unless_explained(WorkerTooLateError("the query"), tables)
    now_and_then.raise_unless_explained(WorkerTooLateError("the query"), tables)
    with pytest.raises(WorkerTooLateError):
        overloaded.raise_unless_explained(WorkerTooLateError("the query"), tables)


def test_a_job_that_gets_no_credentials_waits(
    interruptions: Callable[..., Interruptions], tables: Tables
) -> None:
    silent = interruptions(BrokerError("no answer"))
    for _ in range(5):
        silent.raise_unless_explained(SignInError("the query"), tables)


def test_a_job_whose_credentials_were_refused_for_long_ends(
    interruptions: Callable[..., Interruptions], tables: Tables
) -> None:
    refused = interruptions(AccessRefusedError("for long"))
    with pytest.raises(AccessRefusedError):
        refused.raise_unless_explained(SignInError("the query"), tables)
