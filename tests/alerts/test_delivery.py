"""Alerts reach their receivers: each news once, late rather than never, and secrets stay where they are."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alert_tables import DAY, HOUR, RETENTION, Lake, alert_settings
from http_receiver import HttpReceiver, running_receiver
from kafka_clients import wait_until

from streaming.alerts.delivery import Courier, CourierThread
from streaming.alerts.listing import describe_alerts, list_alerts
from streaming.alerts.receivers import DeliveryError, LogLines, Receiver, post, receivers
from streaming.alerts.rules import OFFSET_EXPIRING
from streaming.alerts.table import AlertTable, Told
from streaming.alerts.watch import AlertWatch


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture
def hook() -> Iterator[HttpReceiver]:
    with running_receiver() as receiver:
        yield receiver


class Sender:
    """A courier for one receiver, as each start of the job makes one, and what it said."""

    def __init__(self, lake: Lake, receiver: Receiver) -> None:
        self.said: list[str] = []
        self.receiver = receiver
        self._courier = Courier(AlertTable(lake.tables), receiver, self.said.append, clock=lambda: lake.now)

    def deliver(self) -> bool:
        return self._courier.deliver()


def webhook(hook: HttpReceiver, **options: object) -> Receiver:
    options = {"url": hook.url} | options
    settings = alert_settings(log="off", **{f"webhook__{name}": value for name, value in options.items()})
    (receiver,) = receivers(settings, write=print, source={})
    return receiver


def alertmanager(hook: HttpReceiver, **options: object) -> Receiver:
    url = hook.url.removesuffix("/hook")
    settings = alert_settings(log="off", alertmanager__url=url, **options)
    (receiver,) = receivers(settings, write=print, source={"kafka_cluster": "c"})
    return receiver


def open_alert(lake: Lake, group: str = "billing", receiver: str = "webhook") -> None:
    lake.commit(group, at=lake.now - RETENTION + DAY)
    (episode,) = lake.evaluate(receivers=[receiver])
    assert episode.rule == OFFSET_EXPIRING.id


def close_alert(lake: Lake, group: str = "billing") -> None:
    lake.commit(group)
    assert [episode.is_open for episode in lake.evaluate()] == [False]


# --- each news once --------------------------------------------------------------------------------------


def test_opening_update_and_closing_are_posted_once_each(lake: Lake, hook: HttpReceiver) -> None:
    sender = Sender(lake, webhook(hook))
    open_alert(lake)
    assert sender.deliver()
    assert sender.deliver()
    lake.pass_time(23 * HOUR)
    lake.evaluate()
    assert sender.deliver()
    close_alert(lake)
    assert sender.deliver()
    assert sender.deliver()
    assert hook.news == [
        (OFFSET_EXPIRING.id, "opened", 1),
        (OFFSET_EXPIRING.id, "updated", 2),
        (OFFSET_EXPIRING.id, "closed", 3),
    ]
    first, _, last = hook.bodies
    assert len({body["id"] for body in hook.bodies}) == 1
    assert (first["severity"], first["group"], first["closed_at"]) == ("warning", "billing", None)
    assert last["closed_at"] is not None
    assert 'group "billing": the broker will drop 1 committed offset unless' in first["summary"]
    assert [headers["Idempotency-Key"] for headers in hook.headers] == [
        f"{body['id']}-{body['revision']}" for body in hook.bodies
    ]
    assert sender.said == []


def test_news_of_a_receiver_that_is_away_is_kept_and_only_the_newest_is_delivered(
    lake: Lake, hook: HttpReceiver
) -> None:
    sender, hook.status = Sender(lake, webhook(hook)), 503
    open_alert(lake)
    assert not sender.deliver()
    assert not sender.deliver()
    assert [line for line in sender.said if "HTTP status 503" in line] == sender.said
    assert len(sender.said) == 1
    (row,) = list_alerts(lake.tables).to_pylist()
    assert row["undelivered"] == ["webhook"]
    assert describe_alerts(lake.tables)[0] == "open alerts: 1 warning"
    assert "alerts not delivered to webhook: 1, since" in describe_alerts(lake.tables)[1]
    assert "HTTP status 503" in describe_alerts(lake.tables)[1]
    close_alert(lake)
    hook.status = 200
    assert Sender(lake, webhook(hook)).deliver()  # after a restart
    assert hook.news == [(OFFSET_EXPIRING.id, "closed", 2)]
    assert describe_alerts(lake.tables) == ["open alerts: none"]
    assert sender.deliver()
    assert "delivered again" in sender.said[-1]


def test_failing_again_and_again_writes_once(lake: Lake, hook: HttpReceiver) -> None:
    sender, hook.status = Sender(lake, webhook(hook)), 500
    open_alert(lake)
    sender.deliver()
    version = lake.tables.delta("alerts").version()
    lake.now += HOUR
    sender.deliver()
    assert lake.tables.delta("alerts").version() == version


def test_one_message_that_is_refused_does_not_hold_back_others(lake: Lake, hook: HttpReceiver) -> None:
    class Picky:
        name, batch_size, repeat_every_ms = "webhook", 1, None

        def send(self, news: list[Told], now: int) -> None:
            hook.status = 400 if news[0].episode.finding.group == "bad" else 200
            real.send(news, now)

    real = webhook(hook)
    for group in ("a", "bad", "c"):
        open_alert(lake, group)
    assert not Sender(lake, Picky()).deliver()
    assert sorted(body["group"] for body in hook.bodies) == ["a", "c"]


def test_receiver_without_an_answer_is_not_asked_for_each_message(lake: Lake) -> None:
    class Silent:
        name, batch_size, repeat_every_ms = "webhook", 1, None
        attempts = 0

        def send(self, news: list[Told], now: int) -> None:
            self.attempts += 1
            post("http://127.0.0.1:1/", {}, {}, 1_000)

    for group in ("a", "b", "c"):
        open_alert(lake, group)
    sender = Sender(lake, Silent())
    assert not sender.deliver()
    assert sender.receiver.attempts == 1  # type: ignore[attr-defined]


def test_what_arrived_but_could_not_be_noted_is_not_sent_again(
    lake: Lake, hook: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = Sender(lake, webhook(hook))
    open_alert(lake)
    with monkeypatch.context() as full_disk:

        def refuse(*_: Any) -> None:
            raise OSError("no space left")

        full_disk.setattr(AlertTable, "note", refuse)
        assert not sender.deliver()
    assert sender.deliver()
    assert hook.news == [(OFFSET_EXPIRING.id, "opened", 1)]
    assert describe_alerts(lake.tables) == ["open alerts: 1 warning"]


def test_receiver_that_is_set_up_later_is_told_what_is_open_and_nothing_of_the_past(
    lake: Lake, hook: HttpReceiver
) -> None:
    open_alert(lake, "past", receiver="log")
    close_alert(lake, "past")
    open_alert(lake, "present", receiver="log")
    assert Sender(lake, webhook(hook)).deliver()
    assert [body["group"] for body in hook.bodies] == ["present"]
    close_alert(lake, "present")
    assert Sender(lake, webhook(hook)).deliver()
    assert hook.news[1:] == [(OFFSET_EXPIRING.id, "closed", 2)]


def test_news_for_a_receiver_that_is_set_up_no_more_is_dropped_after_a_day(
    lake: Lake, hook: HttpReceiver
) -> None:
    hook.status = 503
    open_alert(lake)
    assert not Sender(lake, webhook(hook)).deliver()
    lake.pass_time(23 * HOUR)
    lake.beat()
    lake.evaluate(receivers=["log"])  # from now on there is no webhook any more
    close_alert(lake)
    lake.pass_time(DAY - HOUR)
    lake.evaluate(receivers=["log"])
    assert "alerts not delivered to webhook: 1" in describe_alerts(lake.tables)[1]
    lake.pass_time(2 * HOUR)
    lake.evaluate(receivers=["webhook"])
    assert len(describe_alerts(lake.tables)) == 2, "its receiver is set up, and only away"
    lake.evaluate(receivers=["log"])
    assert describe_alerts(lake.tables) == ["open alerts: none"]
    hook.status = 200
    assert Sender(lake, webhook(hook)).deliver()
    assert hook.bodies == []


def test_log_lines_are_json(lake: Lake) -> None:
    lines: list[str] = []
    open_alert(lake, "grüße\n", receiver="log")
    assert Sender(lake, LogLines(lines.append)).deliver()
    (line,) = lines
    assert "\n" not in line
    assert json.loads(line)["alert"]["group"] == "grüße\n"


def test_lines_that_cannot_be_written_are_kept_and_hold_no_others_back(lake: Lake) -> None:
    lines: list[str] = []

    def write(line: str) -> None:
        if "grüße" in line:
            raise UnicodeEncodeError("ascii", "ü", 0, 1, "not a character of this terminal")
        if len(lines) == 1 and not sender.said:
            raise BrokenPipeError
        lines.append(line)

    sender = Sender(lake, LogLines(write))
    for group in ("grüße", "a", "b"):
        open_alert(lake, group, receiver="log")
    assert not sender.deliver()
    assert len(lines) == 1
    assert not sender.deliver()
    assert sorted(json.loads(line)["alert"]["group"] for line in lines) == ["a", "b"]
    (status,) = describe_alerts(lake.tables)[1:]
    assert status.startswith("alerts not delivered to log: 1, since")
    assert "writing to the log: UnicodeEncodeError" in status


# --- HTTP ------------------------------------------------------------------------------------------------


def test_user_password_and_headers_are_sent(lake: Lake, hook: HttpReceiver) -> None:
    url = hook.url.replace("http://", "http://user:p%40ss@")
    open_alert(lake)
    assert Sender(lake, webhook(hook, url=url, headers={"X-Token": "t"})).deliver()
    (headers,) = hook.headers
    assert headers["Authorization"] == "Basic dXNlcjpwQHNz"
    assert headers["X-Token"] == "t"
    assert headers["Content-Type"] == "application/json"
    assert hook.paths == ["/hook"]


@pytest.mark.parametrize("status", [302, 400, 401, 500])
def test_only_success_is_success(hook: HttpReceiver, status: int) -> None:
    hook.status = status
    with pytest.raises(DeliveryError, match=f"HTTP status {status}") as raised:
        post(hook.url, {}, {}, 5_000)
    assert raised.value.is_answer


@pytest.mark.parametrize(
    "url", ["http://user:s3cr3t@127.0.0.1:1/s3cr3t?x=s3cr3t", "http://s3cr3t@not.a.host.invalid/s3cr3t"]
)
def test_failures_name_the_host_and_no_secret(url: str) -> None:
    with pytest.raises(DeliveryError, match=r"posting to http://[a-z0-9.:]+/\.\.\.: expected") as raised:
        post(url, {}, {"Authorization": "s3cr3t"}, 1_000)
    assert "s3cr3t" not in str(raised.value)
    assert not raised.value.is_answer


# --- Alertmanager's format -------------------------------------------------------------------------------


def test_alertmanager_is_told_again_and_again_while_an_alert_is_open(lake: Lake, hook: HttpReceiver) -> None:
    sender = Sender(lake, alertmanager(hook))
    open_alert(lake, receiver="alertmanager")
    for seconds in (0, 59, 1, 30, 30):
        lake.now += seconds * 1_000
        assert sender.deliver()
    assert len(hook.bodies) == 3  # at once, after a minute and after another one
    version = lake.tables.delta("alerts").version()
    lake.now += 60_000
    sender.deliver()
    assert lake.tables.delta("alerts").version() == version
    assert set(hook.paths) == {"/api/v2/alerts"}
    (alert,) = hook.bodies[-1]
    assert alert["labels"] == {
        "alertname": "offset_expiring",
        "severity": "warning",
        "group": "billing",
        "kafka_cluster": "c",
    }
    assert alert["annotations"]["summary"].startswith('group "billing": the broker will drop')


def test_alertmanager_is_told_that_the_former_severity_is_over(lake: Lake, hook: HttpReceiver) -> None:
    sender = Sender(lake, alertmanager(hook))
    open_alert(lake, receiver="alertmanager")
    sender.deliver()
    lake.pass_time(23 * HOUR)
    lake.evaluate()
    sender.deliver()
    worse, former = hook.bodies[-1]
    assert (worse["labels"]["severity"], former["labels"]["severity"]) == ("critical", "warning")
    assert worse["endsAt"] > former["endsAt"]
    lake.pass_time(60_000)
    sender.deliver()
    assert [alert["labels"]["severity"] for alert in hook.bodies[-1]] == ["critical"]


# --- threads ---------------------------------------------------------------------------------------------


def test_a_receiver_that_hangs_stops_neither_evaluation_nor_others(lake: Lake, hook: HttpReceiver) -> None:
    released = threading.Event()
    told: list[str] = []

    class Hanging:
        name, batch_size, repeat_every_ms = "webhook", 1, None

        def send(self, news: list[Told], now: int) -> None:
            released.wait(30)

    lake.now = lake.tables.progress().heartbeat  # the clock of the watch is the real one, long after
    watch = AlertWatch(
        lake.tables,
        alert_settings(evaluate_every="20ms"),
        [Hanging(), LogLines(told.append)],
        ask_log_ranges=None,
        say=print,
    )
    with watch:
        wait_until(lambda: len(told) == 1, "the log line about the job that is behind")
        assert json.loads(told[0])["alert"]["rule"] == "job_behind"
        lake.now = 2**41  # far beyond any real clock: as if the job had caught up
        lake.beat()
        wait_until(lambda: len(told) == 2, "the log line that it is no more")
        released.set()
    assert json.loads(told[1])["alert"]["event"] == "closed"


def test_thread_delivers_what_was_left_and_then_what_comes(lake: Lake) -> None:
    lines: list[str] = []
    open_alert(lake, "a", receiver="log")
    thread = CourierThread(Courier(AlertTable(lake.tables), LogLines(lines.append), print), "log")
    thread.start()
    wait_until(lambda: len(lines) == 1, "what was left")
    open_alert(lake, "b", receiver="log")
    thread.wake()
    wait_until(lambda: len(lines) == 2, "what came")
    thread.end()
    thread.join(10)
    assert not thread.is_alive()


def test_thread_outlives_whatever_a_receiver_raises(lake: Lake) -> None:
    lines: list[str] = []
    said: list[str] = []

    def write(line: str) -> None:
        if not said:
            raise RuntimeError("nobody thought of this")
        lines.append(line)

    open_alert(lake, receiver="log")
    thread = CourierThread(Courier(AlertTable(lake.tables), LogLines(write), said.append), "log")
    thread.start()
    wait_until(lambda: len(lines) == 1, "the second attempt")
    thread.end()
    thread.join(10)
    assert said[0].startswith("alerts for log cannot be delivered, retrying: unexpected RuntimeError")


def test_evaluation_that_fails_is_said_once_and_ends_nothing(lake: Lake, tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "alerts").rename(tmp_path / "gone")
    watch = AlertWatch(
        lake.tables, alert_settings(evaluate_every="20ms"), [], ask_log_ranges=None, say=said.append
    )
    with watch:
        wait_until(lambda: len(said) == 1, "the complaint")
        (tmp_path / "gone").rename(tmp_path / "alerts")
        wait_until(lambda: len(said) == 2, "the end of it")
    assert said[0].startswith("evaluating alerts failed, retrying: TablesMissingError")
    assert said[1] == "alerts are evaluated again"
