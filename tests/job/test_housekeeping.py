"""Work beside the reading that fails in passing is repeated; what lasts ends the job."""

import pytest

from streaming.brokers.facts import AccessRefusedError
from streaming.job.housekeeping import ATTEMPTS, Retrying
from streaming.job.topic.clock_pace import ClockPace
from streaming.model.errors import MisuseError, OffsetlakeError


class Storage:
    """Refuses as often as it is told to."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals

    def write(self) -> None:
        if self.refusals:
            self.refusals -= 1
            raise OSError("503\nslow down")


def test_passing_failures_are_said_once_and_forgotten(said: list[str]) -> None:
    patience = Retrying("a heartbeat")
    for _ in range(3):  # each time anew
        storage = Storage(refusals=ATTEMPTS - 1)
        assert [patience.succeeds(storage.write) for _ in range(ATTEMPTS)] == [False] * (ATTEMPTS - 1) + [
            True
        ]
    assert said == ["a heartbeat failed, retrying: 503 slow down", "a heartbeat works again"] * 3


def test_the_last_attempt_raises() -> None:
    patience, storage = Retrying("folding"), Storage(refusals=ATTEMPTS)
    assert not any(patience.succeeds(storage.write) for _ in range(ATTEMPTS - 1))
    with pytest.raises(OSError, match="slow down"):
        patience.succeeds(storage.write)


@pytest.mark.parametrize("error", [MisuseError("another writer"), AccessRefusedError("wrong password")])
def test_what_no_repetition_helps_is_raised_at_once(said: list[str], error: OffsetlakeError) -> None:
    def refuse() -> None:
        raise error

    with pytest.raises(type(error)):
        Retrying("a heartbeat").succeeds(refuse)
    assert said == []


class Clocks:
    """A clock that somebody sets, and time that passes."""

    def __init__(self) -> None:
        self.now_ms, self.steady_s = 1_700_000_000_000, 5.0

    def pass_time(self, seconds: float, *, shown: float) -> None:
        self.steady_s += seconds
        self.now_ms += int(shown * 1_000)


def test_a_clock_that_is_put_right_is_seen_to_jump_once() -> None:
    clocks = Clocks()
    pace = ClockPace(lambda: clocks.now_ms, lambda: clocks.steady_s)
    clocks.pass_time(10, shown=10)  # a suspended process, too: both clocks go on
    assert pace.jumped_ms() == 0
    clocks.pass_time(10, shown=90_010)
    assert pace.jumped_ms() == 90_000_000
    clocks.pass_time(10, shown=10)
    assert pace.jumped_ms() == 0
    clocks.pass_time(10, shown=-5)
    assert pace.jumped_ms() == -15_000
