"""Patience: what is wrong is said once, and again only after it was settled; work is due at its pace."""

import logging
import time

import pytest

from streaming.common.rate_limits import Interval, OngoingProblems, RateLimitedLog

LOG = logging.getLogger("streaming.tests")


def test_what_is_wrong_is_said_when_it_begins_and_when_it_ends(said: list[str]) -> None:
    problems = OngoingProblems(LOG)
    for _ in range(2):
        problems.make("brokers", "no answer")
        problems.make("brokers", "still no answer")
        problems.settle("brokers", "they answer again")
        problems.settle("brokers", "they still answer")
    assert said == ["no answer", "they answer again"] * 2


def test_complaints_about_two_things_are_distinguished(said: list[str]) -> None:
    problems = OngoingProblems(LOG)
    problems.make("brokers", "no answer")
    problems.make("topic", "not there")
    problems.settle("topic", "there")
    assert said == ["no answer", "not there", "there"]


def test_what_anybody_may_cause_is_said_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    times = iter([0.0, 1.0, 59.9, 60.0, 61.0, 120.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    seldom = RateLimitedLog(LOG)
    for about, sentence in ("a", "1"), ("b", "2"), ("a", "3"), ("a", "4"), ("b", "5"), ("b", "6"):
        seldom.warning(about, sentence)
    assert said == ["1", "2", "4", "5"]


@pytest.mark.parametrize("at_once", [True, False])
def test_work_is_due_at_its_pace(monkeypatch: pytest.MonkeyPatch, at_once: bool) -> None:
    times = iter([0.0, 0.0, 0.9, 1.0, 1.5, 2.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    every = Interval(1_000, at_once=at_once)
    assert [every.is_due() for _ in range(5)] == [at_once, False, True, False, True]


def test_an_interval_that_is_begun_again_is_as_long_as_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    every = Interval(1_000, at_once=True)
    assert every.is_due()
    every.restart(20)
    due = []
    for now in (1.0, 19.9, 20.0, 20.9, 21.0):  # noqa: B007 (read by the clock)
        due.append(every.is_due())
    assert due == [False, False, True, False, True]
