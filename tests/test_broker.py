"""Waiting for the topic: polled as often as the settings say, given up at once, explained once."""

import time
from typing import Any

import pytest

from streaming.broker import Broker, TopicFacts
from streaming.settings import read_settings

FACTS = TopicFacts("cluster", 50)


class Polls:
    """Stands for the brokers' answers: `answers`, then always that the topic is not there."""

    def __init__(self, *answers: TopicFacts | None) -> None:
        self.answers = list(answers)
        self.times: list[float] = []

    def __call__(self, timeout_s: float) -> TopicFacts | None:
        self.times.append(time.monotonic())
        return self.answers.pop(0) if self.answers else None


def broker(monkeypatch: pytest.MonkeyPatch, polls: Polls, poll_every: str) -> Broker:
    made = Broker(read_settings(options={"source.topic_poll_every": poll_every}).source)
    monkeypatch.setattr(made, "topic_facts", polls)
    return made


def never() -> bool:
    return False


def test_topic_that_exists_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []
    assert broker(monkeypatch, Polls(FACTS), "1h").wait_for_topic(said.append, never) == FACTS
    assert said == []


def test_topic_is_looked_for_as_often_as_the_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    polls = Polls(None, None, FACTS)
    assert broker(monkeypatch, polls, "700ms").wait_for_topic(print, never) == FACTS
    first, second, third = polls.times
    assert second - first >= 0.7
    assert third - second >= 0.7


def test_waiting_is_given_up_soon_however_seldom_the_topic_is_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    polls, stop_at = Polls(), time.monotonic() + 0.5
    made = broker(monkeypatch, polls, "1h")
    assert made.wait_for_topic(print, lambda: time.monotonic() >= stop_at) is None
    assert time.monotonic() - stop_at < 0.3
    assert len(polls.times) == 1


def test_waiting_is_explained_once_with_both_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    assert broker(monkeypatch, Polls(None, None, FACTS), "1ms").wait_for_topic(said.append, never) == FACTS
    [sentence] = said
    assert "does not exist yet on localhost:9092, or this user may not see it (Describe right)" in sentence
