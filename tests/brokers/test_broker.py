"""Waiting for the topic: polled as often as the settings say, given up at once, explained once."""

from dataclasses import replace

import pytest

from streaming.brokers import broker as broker_module
from streaming.brokers.broker import Broker
from streaming.brokers.facts import TopicFacts
from streaming.demo.local_broker import LocalBroker
from streaming.settings.reading import read_settings

FACTS = TopicFacts("cluster", 50)


class Clock:
    """Stands for the module `time`: sleeping takes none."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(broker_module, "time", made)
    return made


class Polls:
    """Stands for the brokers' answers: `answers`, then always that the topic is not there."""

    def __init__(self, clock: Clock, *answers: TopicFacts | None) -> None:
        self.answers = list(answers)
        self.times: list[float] = []
        self._clock = clock

    def __call__(self, timeout_s: float) -> TopicFacts | None:
        self.times.append(self._clock.now)
        return self.answers.pop(0) if self.answers else None


def broker(monkeypatch: pytest.MonkeyPatch, polls: Polls, poll_every: str) -> Broker:
    made = Broker(read_settings(options={"source.topic_poll_every": poll_every}).source)
    monkeypatch.setattr(made, "topic_facts", polls)
    return made


def never() -> bool:
    return False


def test_topic_that_exists_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, said: list[str]
) -> None:
    assert broker(monkeypatch, Polls(clock, FACTS), "1h").wait_for_topic(never) == FACTS
    assert said == []


def test_topic_is_looked_for_as_often_as_the_settings_say(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    polls = Polls(clock, None, None, FACTS)
    assert broker(monkeypatch, polls, "700ms").wait_for_topic(never) == FACTS
    assert polls.times == pytest.approx([0, 0.7, 1.4])


def test_waiting_is_given_up_soon_however_seldom_the_topic_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    polls = Polls(clock)
    assert broker(monkeypatch, polls, "1h").wait_for_topic(lambda: clock.now >= 0.5) is None
    assert clock.now < 0.5 + 0.3
    assert len(polls.times) == 1


def test_waiting_is_explained_once_with_both_reasons(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, said: list[str]
) -> None:
    assert broker(monkeypatch, Polls(clock, None, None, FACTS), "1ms").wait_for_topic(never) == FACTS
    [sentence] = said
    assert (
        "does not exist yet on localhost:9092, or this user may not see it (Describe permission)" in sentence
    )


@pytest.mark.broker
def test_known_facts_of_a_missing_topic_have_the_cluster_of_the_brokers(broker: LocalBroker) -> None:
    source = {"bootstrap_servers": broker.bootstrap_servers, "topic": "not-there"}
    settings = read_settings(options={f"source.{name}": value for name, value in source.items()})
    known = TopicFacts("another", 3, "id")
    found = Broker(settings.source).wait_for_topic(never, known=known)
    assert found is not None
    assert found == replace(known, cluster_id=found.cluster_id)
    assert found.cluster_id not in (None, "another")
