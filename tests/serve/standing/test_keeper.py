"""Standings and bytes are made only while somebody asks, and for a small part of a core."""

import time
from collections.abc import Iterator

import pytest
from http_door import opened
from kafka_clients import wait_until
from table_batches import append, offset

from streaming.lag.rules import HealthRules
from streaming.serve.picture.picture import Picture
from streaming.serve.standing.keeper import Keeper
from streaming.serve.standing.standing import standing_of
from streaming.settings.reading import read_settings
from streaming.tables.tables import Tables


@pytest.fixture
def keeper(tables: Tables) -> Iterator[Keeper]:
    with Keeper(
        tables, Picture.none, print, health=HealthRules(), expiry=read_settings().expiry, every_s=0.05
    ) as keeper:
        yield keeper


def test_none_is_made_before_somebody_asks(keeper: Keeper) -> None:
    time.sleep(0.3)
    assert keeper._made_at < 0
    assert keeper.current().moment > 0


def test_they_are_renewed_while_somebody_asks(keeper: Keeper) -> None:
    first = keeper.current().moment
    wait_until(lambda: keeper.current().moment > first, "another one")


def test_what_takes_long_is_done_seldom(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[float] = []

    def slowly(*arguments: object, **named: object) -> object:
        taken.append(time.monotonic())
        time.sleep(0.1)
        return standing_of(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr("streaming.serve.standing.keeper.standing_of", slowly)
    keeper.current()
    wait_until(lambda: keeper.current() is not None and len(taken) >= 3, "the third one", timeout_s=30)
    assert taken[2] - taken[1] > 20 * 0.1


def test_who_asks_gets_the_one_before_while_the_next_is_made(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(*arguments: object, **named: object) -> object:
        time.sleep(1)
        return standing_of(*arguments, **named)  # type: ignore[arg-type]

    keeper.current()
    monkeypatch.setattr("streaming.serve.standing.keeper.standing_of", slowly)
    time.sleep(0.2)
    began = time.monotonic()
    for _ in range(10):
        keeper.current()
    assert time.monotonic() - began < 0.5


def test_bytes_are_made_while_somebody_scrapes_and_else_not(tables: Tables) -> None:
    append(tables, {("g", "t", 0): offset()})
    with opened(tables, every_s=0.05) as door:
        time.sleep(0.5)
        assert door.telling.publisher._count == 0
        door.ask("/healthz")
        assert door.telling.publisher._count == 0
        door.ask("/metrics")
        made = door.telling.publisher._count
        wait_until(lambda: door.telling.publisher._count > made + 2, "more of them")
