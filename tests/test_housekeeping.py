"""Work beside the reading that fails in passing is repeated; what lasts ends the job."""

import pytest

from streaming.errors import MisuseError
from streaming.housekeeping import ATTEMPTS, Patience


class Storage:
    """Refuses as often as it is told to."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals

    def write(self) -> None:
        if self.refusals:
            self.refusals -= 1
            raise OSError("503\nslow down")


@pytest.fixture
def said() -> list[str]:
    return []


def test_passing_failures_are_said_once_and_forgotten(said: list[str]) -> None:
    patience = Patience("a heartbeat", said.append)
    for _ in range(3):  # each time anew
        storage = Storage(refusals=ATTEMPTS - 1)
        assert [patience.succeeds(storage.write) for _ in range(ATTEMPTS)] == [False] * (ATTEMPTS - 1) + [
            True
        ]
    assert said == ["a heartbeat failed, trying again: 503 slow down", "a heartbeat works again"] * 3


def test_the_last_attempt_raises(said: list[str]) -> None:
    patience, storage = Patience("folding", said.append), Storage(refusals=ATTEMPTS)
    assert not any(patience.succeeds(storage.write) for _ in range(ATTEMPTS - 1))
    with pytest.raises(OSError, match="slow down"):
        patience.succeeds(storage.write)


def test_what_no_repetition_helps_is_raised_at_once(said: list[str]) -> None:
    def refuse() -> None:
        raise MisuseError("another writer")

    with pytest.raises(MisuseError):
        Patience("a heartbeat", said.append).succeeds(refuse)
    assert said == []
