"""Refusals are told from absence: only what brokers go on saying for a while is a refusal."""

import pytest
from confluent_kafka import KafkaError

from streaming.brokers.client_log import ClientLog

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


def test_the_last_failed_connection_is_kept_without_the_name_of_a_thread(log: ClientLog) -> None:
    log.log(3, "", "FAIL", "client", "[thrd:127.0.0.1:1/bootstrap]: 127.0.0.1:1/bootstrap: refused")
    log.log(3, "", "OTHER", "client", "something else")
    assert log.last == "127.0.0.1:1/bootstrap: refused"
