"""Assessments and bytes are made only while somebody asks, and for a small part of a core."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from http_endpoint import opened
from kafka_clients import wait_until
from log_end_rows import Sample, rows_of
from table_batches import Batch, append, offset

from streaming.common.times import now_ms
from streaming.lag.health_rules import HealthRules
from streaming.serve.assessment.assessment import assessment_of
from streaming.serve.assessment.refresher import Refresher
from streaming.serve.assessment.sums import Summed
from streaming.serve.memory.snapshot import MemorySnapshot
from streaming.settings.reading import read_settings
from streaming.tables.tables import Tables


@pytest.fixture
def refresher(tables: Tables) -> Iterator[Refresher]:
    with Refresher(
        tables, MemorySnapshot.none, health=HealthRules(), expiry=read_settings().expiry, every_s=0.05
    ) as refresher:
        yield refresher


def test_none_is_made_before_somebody_asks(refresher: Refresher) -> None:
    time.sleep(0.3)
    assert refresher._made_at < 0
    assert refresher.current().moment > 0


def test_they_are_renewed_while_somebody_asks(refresher: Refresher) -> None:
    first = refresher.current().moment
    wait_until(lambda: refresher.current().moment > first, "another one")


@pytest.mark.more
def test_what_takes_long_is_done_seldom(refresher: Refresher, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[float] = []

    def slowly(*arguments: object, **named: object) -> object:
        taken.append(time.monotonic())
        time.sleep(0.1)
        return assessment_of(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr("streaming.serve.assessment.refresher.assessment_of", slowly)
    refresher.current()
    wait_until(lambda: refresher.current() is not None and len(taken) >= 3, "the third one", timeout_s=30)
    assert taken[2] - taken[1] > 20 * 0.1


def test_who_asks_gets_the_one_before_while_the_next_is_made(
    refresher: Refresher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(*arguments: object, **named: object) -> object:
        time.sleep(1)
        return assessment_of(*arguments, **named)  # type: ignore[arg-type]

    refresher.current()
    monkeypatch.setattr("streaming.serve.assessment.refresher.assessment_of", slowly)
    time.sleep(0.2)
    began = time.monotonic()
    for _ in range(10):
        refresher.current()
    assert time.monotonic() - began < 0.5


def test_bytes_are_made_while_somebody_scrapes_and_else_not(tables: Tables) -> None:
    append(tables, {("g", "t", 0): offset()})
    with opened(tables, every_s=0.05) as endpoint:
        time.sleep(0.5)
        assert endpoint.telling.publisher._count == 0
        endpoint.ask("/healthz")
        assert endpoint.telling.publisher._count == 0
        endpoint.ask("/metrics")
        made = endpoint.telling.publisher._count
        wait_until(lambda: endpoint.telling.publisher._count > made + 2, "more of them")


def test_a_committed_offset_of_minus_1_is_below_the_log_start(tables: Tables) -> None:
    at = now_ms()
    batch: Batch = {
        (name, "t", 0): offset(committed_offset=one) for name, one in (("a", -1), ("b", -(2**63)), ("c", 5))
    }
    batch["d", "t", 0] = offset(committed_offset=None, unreadable_source_offset=3)
    append(tables, batch, now=at - 60_000)
    tables.append_log_ends(rows_of([Sample(at - 1_000, "t", 0, 9, None, 5)]))
    with opened(tables) as endpoint:

        def below() -> list[list[int]]:
            sums = Summed.by_group(endpoint.telling._clusters[0].refresher.current())
            return [numbers.tolist() for numbers in sums.below_log_start]

        wait_until(lambda: below() == [[1, 1, 0, 0], [6, 2**63 - 1, 0, 0]], "the offsets")


class AwayTables:
    """Tables whose storage takes long to say nothing, once it is away."""

    def __init__(self, tables: Tables) -> None:
        self._tables, self.is_away, self.asked = tables, False, 0

    def ask(self, *arguments: Any, **named: Any) -> Any:
        self.asked += 1
        if self.is_away:
            time.sleep(0.3)
            raise OSError("the storage does not answer")
        return self._tables.ask(*arguments, **named)


def test_what_could_not_be_read_is_soon_tried_again_and_what_is_old_is_not_given_out(
    tables: Tables, said: list[str]
) -> None:
    away, at = AwayTables(tables), [now_ms()]
    with Refresher(
        away,  # type: ignore[arg-type]
        MemorySnapshot.none,
        health=HealthRules(),
        expiry=read_settings().expiry,
        every_s=0.05,
        clock=lambda: at[0],
    ) as refresher:
        assert refresher.current().moment == at[0]
        away.is_away, away.asked = True, 0
        wait_until(lambda: refresher.current() is not None and away.asked >= 4, "the fourth try", timeout_s=4)
        assert refresher.current().moment == at[0]
        with refresher.changed:  # none is made while this is held, as during a time-out of an hour
            at[0] += 301_000
            assert refresher.current().moment == 0
    assert len(said) == 1
