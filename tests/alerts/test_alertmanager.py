"""A real Prometheus Alertmanager understands what it is sent: one alert, one notification, one resolution."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alert_tables import HOUR, RETENTION, Lake, alert_settings
from alertmanager import find_alertmanager, running_alertmanager
from http_receiver import HttpReceiver, running_receiver
from kafka_clients import wait_until
from logged import logged

from streaming.alerts.delivery import Notifier
from streaming.alerts.receivers import Receiver, receivers
from streaming.alerts.table import AlertTable
from streaming.common.times import now_ms


@pytest.fixture
def notified() -> Iterator[HttpReceiver]:
    with running_receiver() as receiver:
        yield receiver


@pytest.fixture
def url(notified: HttpReceiver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    program = find_alertmanager()
    if isinstance(program, str):
        pytest.skip(program)
    with running_alertmanager(program, tmp_path_factory.mktemp("alertmanager"), notified.url) as running:
        yield running


def active(url: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{url}/api/v2/alerts?active=true", timeout=10) as answer:
        alerts: list[dict[str, Any]] = json.load(answer)
    return sorted(alerts, key=lambda alert: alert["labels"]["group"])


def notifications(notified: HttpReceiver) -> list[tuple[str, str, str]]:
    return sorted(
        (alert["labels"]["group"], alert["labels"]["severity"], alert["status"])
        for body in notified.bodies
        for alert in body["alerts"]
    )


def deliver_all(lake: Lake, receiver: Receiver) -> None:
    """Deliver with a new notifier, as after a restart."""
    with logged("streaming.alerts") as failures:
        assert Notifier(AlertTable(lake.tables), receiver, clock=lambda: lake.now).deliver()
    assert failures == []


def test_alertmanager_notifies_once_and_resolves_once(
    url: str, notified: HttpReceiver, tmp_path: Path
) -> None:
    lake = Lake(tmp_path, start=now_ms())
    settings = alert_settings(
        log="off",
        alertmanager__url=url,
        alertmanager__labels={"team": "a b"},
    )
    (receiver,) = receivers(settings, write=print, source={"kafka_cluster": "c"})

    def notified_of(*expected: tuple[str, str, str]) -> None:
        wait_until(lambda: set(expected) <= set(notifications(notified)), f"{expected}")

    def deliver() -> None:
        deliver_all(lake, receiver)

    for group in ("grüße 🐢", "steady"):
        lake.commit(group, at=lake.now - RETENTION + 20 * HOUR)
    lake.evaluate(settings, receivers=["alertmanager"])
    deliver()
    first, steady = active(url)
    assert first["labels"] == {
        "alertname": "offset_expiring",
        "severity": "warning",
        "group": "grüße 🐢",
        "kafka_cluster": "c",
        "team": "a b",
    }
    assert "the broker will drop 1 committed offset" in first["annotations"]["summary"]
    assert first["startsAt"] < first["endsAt"]
    notified_of(("grüße 🐢", "warning", "firing"), ("steady", "warning", "firing"))

    lake.commit("grüße 🐢", at=lake.now - RETENTION + HOUR)  # worse: a tool put an older commit back
    lake.evaluate(settings, receivers=["alertmanager"])
    deliver()
    assert [alert["labels"]["severity"] for alert in active(url)] == ["critical", "warning"]
    notified_of(("grüße 🐢", "critical", "firing"), ("grüße 🐢", "warning", "resolved"))

    lake.commit("grüße 🐢")
    lake.evaluate(settings, receivers=["alertmanager"])
    deliver()
    assert [alert["labels"]["group"] for alert in active(url)] == ["steady"]
    notified_of(("grüße 🐢", "critical", "resolved"))

    lake.now += 60_000
    deliver()
    (repeated,) = active(url)  # although Alertmanager's own resolve_timeout is 1 s
    assert repeated["fingerprint"] == steady["fingerprint"]
    assert repeated["startsAt"] == steady["startsAt"]
    assert repeated["endsAt"] > steady["endsAt"]
    assert len(notifications(notified)) == len(set(notifications(notified))) == 5


def test_an_alert_that_closes_and_opens_again_during_an_outage_is_active(url: str, tmp_path: Path) -> None:
    """It was critical before, a warning when it closed, and is critical again: the same labels twice."""
    lake = Lake(tmp_path, start=now_ms() - 4_000)
    (receiver,) = receivers(alert_settings(log="off", alertmanager__url=url), write=print, source={})

    def judge(left: int) -> None:
        lake.now += 1_000
        lake.commit("again", at=lake.now - RETENTION + left)
        lake.evaluate(receivers=["alertmanager"])

    judge(HOUR)
    deliver_all(lake, receiver)
    for left in (20 * HOUR, RETENTION, HOUR):
        judge(left)
    deliver_all(lake, receiver)
    found = [alert["labels"]["severity"] for alert in active(url) if alert["labels"]["group"] == "again"]
    assert found == ["critical"]
