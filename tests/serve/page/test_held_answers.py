"""Answers that took long are repeated for a while, others are made each time."""

from collections.abc import Callable

import pytest

from streaming.serve.page.asked import HeldAnswers


class Watch:
    """A clock that questions move on; an answer is the number of answers so far."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.count = 0

    def taking(self, seconds: float) -> Callable[[], int]:
        def answer() -> int:
            self.now += seconds
            self.count += 1
            return self.count

        return answer


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def answers(watch: Watch) -> HeldAnswers:
    return HeldAnswers(repeated=20, clock=lambda: watch.now)


def test_an_answer_that_took_a_second_is_repeated_for_twenty(watch: Watch, answers: HeldAnswers) -> None:
    assert answers.get("g", watch.taking(1)) == 1
    watch.now += 19.9
    assert answers.get("g", watch.taking(1)) == 1
    assert answers.get("h", watch.taking(0)) == 2
    watch.now += 0.2
    assert answers.get("g", watch.taking(1)) == 3


def test_a_quick_answer_is_not_repeated(watch: Watch, answers: HeldAnswers) -> None:
    assert [answers.get("g", watch.taking(0.1)) for _ in range(3)] == [1, 2, 3]


def test_a_failure_is_not_repeated(watch: Watch, answers: HeldAnswers) -> None:
    def fail() -> int:
        watch.now += 5
        raise OSError("no answer")

    with pytest.raises(OSError, match="no answer"):
        answers.get("g", fail)
    assert answers.get("g", watch.taking(1)) == 1


def test_of_many_answers_the_newest_are_kept(watch: Watch, answers: HeldAnswers) -> None:
    for name in range(12):
        answers.get(name, watch.taking(60))
    assert [answers.get(name, watch.taking(0)) for name in (11, 4, 0)] == [12, 5, 13]
