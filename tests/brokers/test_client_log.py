"""Refusals are told from absence: only what brokers go on saying for a while is a refusal."""

import pytest
from confluent_kafka import KafkaError

from streaming.brokers.client_log import ClientLog, SigningRefusedError

AUTHENTICATION = KafkaError(KafkaError._AUTHENTICATION)
TLS = KafkaError(KafkaError._SSL)
ALL_DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN)
AWAY = KafkaError(KafkaError._TRANSPORT)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(clock: Clock) -> ClientLog:
    return ClientLog(clock)


@pytest.mark.parametrize("refusal", [AUTHENTICATION, TLS], ids=["login", "TLS"])
def test_what_is_refused_for_long_enough_is_refused(
    log: ClientLog, clock: Clock, refusal: KafkaError
) -> None:
    assert not log.is_refused_for(0)
    for error in (refusal, ALL_DOWN, refusal):
        log.error(error)
        clock.now += 2
    assert log.is_refused_for(6)
    assert not log.is_refused_for(7)


def test_an_answer_ends_a_refusal(log: ClientLog, clock: Clock) -> None:
    log.error(AUTHENTICATION)
    clock.now += 9
    log.answered()
    assert not log.is_refused_for(0)


def test_brokers_that_are_away_refuse_nothing(log: ClientLog, clock: Clock) -> None:
    """A broker that starts may refuse a login, and then be gone again."""
    log.error(AUTHENTICATION)
    clock.now += 1
    log.error(AWAY)
    clock.now += 60
    assert not log.is_refused_for(30)


def of_broker(code: int, broker: str, text: str = "failed") -> KafkaError:
    """As librdkafka names a broker: by its address, and by its id once it is known."""
    return KafkaError(code, f"sasl_ssl://{broker}: {text} (after 1ms in state X)")


def test_a_broker_that_is_away_ends_the_refusal_of_no_other(log: ClientLog, clock: Clock) -> None:
    for _ in range(5):
        log.error(of_broker(KafkaError._AUTHENTICATION, "b1:9093/bootstrap"))
        log.error(of_broker(KafkaError._TRANSPORT, "b3:9093/bootstrap", "Connection refused"))
        clock.now += 2
    assert log.is_refused_for(10)
    log.error(of_broker(KafkaError._AUTHENTICATION, "[::1]:9093/2"))
    log.error(of_broker(KafkaError._TRANSPORT, "b1:9093/1"))
    clock.now += 5
    assert log.is_refused_for(5)
    assert not log.is_refused_for(6)
    log.error(of_broker(KafkaError._TRANSPORT, "[::1]:9093/2"))
    assert not log.is_refused


def test_an_answer_of_any_broker_ends_the_refusals_of_all(log: ClientLog) -> None:
    for broker in ("b1:9093/1", "b2:9093/2"):
        log.error(of_broker(KafkaError._SSL, broker))
    log.answered()
    assert not log.is_refused


def test_the_last_failed_connection_is_kept_without_the_name_of_a_thread(log: ClientLog) -> None:
    log.log(3, "", "FAIL", "client", "[thrd:127.0.0.1:1/bootstrap]: 127.0.0.1:1/bootstrap: refused")
    log.log(3, "", "OTHER", "client", "something else")
    assert log.last == "127.0.0.1:1/bootstrap: refused"


# --- certificates and tokens -------------------------------------------------------------------------------


def lost(text: str) -> KafkaError:
    return KafkaError(KafkaError._TRANSPORT, f"ssl://b:1/1: Receive failed: {text} (after 1ms in state X)")


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        ("error:0A000415:SSL routines::ssl/tls alert certificate expired: SSL alert number 45", True),
        ("error:0A00045C:SSL routines::tlsv13 alert certificate required: SSL alert number 116", True),
        ("error:0A000086:SSL routines::certificate verify failed", True),
        ("error:0A000438:SSL routines::tlsv1 alert internal error: SSL alert number 80", False),
        ("closed by peer", False),
    ],
)
def test_only_what_is_said_of_certificates_is_a_refusal(log: ClientLog, text: str, is_refused: bool) -> None:
    log.error(lost(text))
    assert log.is_refused is is_refused


ENDPOINT = "https://idp.example/token"


def no_token(log: ClientLog, answer: str, status: int | None, endpoint: str = ENDPOINT) -> None:
    """Say it as librdkafka does: in the log, and in an error."""
    end = "" if status is None else f" ({status})"
    line = f'[thrd:background]: Failed to retrieve OIDC token from "{endpoint}": {answer}{end}'
    log.log(3, "", "OIDC", "client", line)
    text = f"Failed to acquire SASL OAUTHBEARER token: {answer}"
    log.error(KafkaError(KafkaError._AUTHENTICATION, text))


@pytest.mark.parametrize("status", [400, 401, 403])
def test_an_endpoint_that_refuses_is_like_brokers_that_refuse(
    log: ClientLog, clock: Clock, status: int
) -> None:
    no_token(log, '{"error":"invalid_client"}', status)
    clock.now += 5
    no_token(log, '{"error":"invalid_client"}', status)
    assert log.is_refused_for(5)
    assert log.last == f'asking {ENDPOINT} for a token: HTTP status {status}, {{"error":"invalid_client"}}'


@pytest.mark.parametrize("status", [-1, 200, 404, 429, 500, 503, None])
def test_every_other_failure_of_the_endpoint_is_like_silence(log: ClientLog, status: int | None) -> None:
    log.error(AUTHENTICATION)
    no_token(log, "later", status)
    assert not log.is_refused
    assert log.last.startswith(f"asking {ENDPOINT} for a token: ")
    assert log.last.endswith("later")


def test_an_answer_without_a_token_is_only_in_an_error_and_is_silence(log: ClientLog) -> None:
    text = 'Failed to acquire SASL OAUTHBEARER token: Expected JSON response with "access_token" field'
    log.error(KafkaError(KafkaError._AUTHENTICATION, text))
    assert not log.is_refused
    assert log.last == 'asking for a token: Expected JSON response with "access_token" field'


def test_an_answer_is_shown_in_one_line_without_secrets_tokens_and_queries() -> None:
    log = ClientLog(secrets=["czNjcmV0", "s3cret"])
    token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJqb2IifQ.c2lnbmF0dXJl"
    answer = f"a (b)\n  s3cret Basic czNjcmV0 {token} \x1b[2J {'x' * 1_000}"
    no_token(log, answer, 500, "https://idp.example/token?key=k3y")
    assert log.last.startswith(
        "asking https://idp.example/token?(hidden) for a token: "
        "HTTP status 500, a (b) (hidden) Basic (hidden) (hidden) \\x1b[2J xxx"
    )
    assert log.last.endswith("x...")
    assert len(log.last) < 500
    assert not [text for text in ("s3cret", "czNjcmV0", "eyJ", "k3y") if text in log.last]


def test_what_fails_while_no_token_can_be_signed_is_no_refusal_and_hides_not_why(
    log: ClientLog, clock: Clock
) -> None:
    def sign(setting: str) -> tuple[str, float]:
        if setting:
            raise ValueError(f"{setting}\nand the rest\n")
        return "token", 0.0

    log.error(AUTHENTICATION)
    with pytest.raises(ValueError, match="no keys"):
        log.signing(sign)("no keys \x1b" + "x" * 1_000)
    log.error(AUTHENTICATION)
    log.log(3, "", "FAIL", "", "expired_token")
    clock.now += 10
    assert not log.is_refused_for(0)
    assert log.last.startswith("signing a token: ValueError: no keys \\x1bxxx")
    assert len(log.last) < 400
    assert log.signing(sign)("") == ("token", 0.0)
    assert_refusals_count(log)
    log.answered()
    with pytest.raises(ValueError, match="no keys"):
        log.signing(sign)("no keys")
    log.answered()  # with the token before, which is still valid
    assert_refusals_count(log)


def test_refused_credentials_for_signing_are_like_brokers_that_refuse(log: ClientLog, clock: Clock) -> None:
    def sign(setting: str) -> tuple[str, float]:
        if setting:
            raise SigningRefusedError from ValueError(setting)
        return "token", 0.0

    def refuse() -> None:
        with pytest.raises(SigningRefusedError):
            log.signing(sign)("AccessDenied")

    log.error(AUTHENTICATION)
    clock.now += 10
    refuse()
    assert log.last == "signing a token: ValueError: AccessDenied"
    assert not log.is_refused_for(1)  # brokers have only refused the token before
    log.error(AWAY)
    clock.now += 5
    refuse()
    assert log.is_refused_for(5)
    assert log.is_signing_refused_for(5)
    log.signing(sign)("")
    assert not log.is_refused
    assert_refusals_count(log)
    assert not log.is_signing_refused_for(0)


def assert_refusals_count(log: ClientLog) -> None:
    log.error(AUTHENTICATION)
    log.log(3, "", "FAIL", "", "access denied")
    assert log.is_refused_for(0)
    assert log.last == "access denied"


def test_the_last_failure_of_each_broker_is_kept_and_that_of_bootstrap_servers_is_of_none(
    log: ClientLog,
) -> None:
    lines = {
        "sasl_ssl://kafka-1:9093/1": "Connect failed",
        "[::1]:9092/12": "Timed out",
        "kafka:9092/bootstrap": "Disconnected",
    }
    for broker, text in lines.items():
        log.log(3, "", "FAIL", "rdkafka#producer-1", f"[thrd:{broker}]: {broker}: {text}")
    assert log.last_of == {
        1: "sasl_ssl://kafka-1:9093/1: Connect failed",
        12: "[::1]:9092/12: Timed out",
    }
