"""Alerts reach their receivers: each news once, late rather than never, and secrets stay where they are."""

import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from alert_tables import DAY, HOUR, RETENTION, Lake, alert_settings
from http_receiver import HttpReceiver, running_receiver
from kafka_clients import wait_until
from logged import logged

from streaming.alerts import watch as watch_module
from streaming.alerts.delivery import Notifier, NotifierThread
from streaming.alerts.episodes import Episode, Finding
from streaming.alerts.evaluation import Evaluator
from streaming.alerts.listing import describe_alerts, list_alerts
from streaming.alerts.receivers import DeliveryError, LogLines, Receiver, post, receivers
from streaming.alerts.rules import OFFSET_EXPIRING
from streaming.alerts.table import AlertState, AlertTable, TrackedEpisode
from streaming.alerts.watch import AlertWatch
from streaming.common.times import now_ms


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture
def hook() -> Iterator[HttpReceiver]:
    with running_receiver() as receiver:
        yield receiver


class Sender:
    """A notifier for one receiver, as each start of the job makes one, and what it said."""

    def __init__(self, lake: Lake, receiver: Receiver) -> None:
        self.said: list[str] = []
        self.receiver = receiver
        self._notifier = Notifier(
            AlertTable(lake.tables),
            receiver,
            clock=lambda: lake.now,
            steady=lambda: lake.now / 1_000,
        )

    def deliver(self) -> bool:
        with logged("streaming.alerts.delivery", into=self.said):
            return self._notifier.deliver()

    @property
    def pause_s(self) -> float | None:
        return self._notifier.pause_s


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
        name, batch_size, repeat_every_ms, most_of_rule = "webhook", 1, None, None

        def send(self, news: list[TrackedEpisode], now: int) -> None:
            hook.status = 400 if news[0].episode.finding.group == "bad" else 200
            real.send(news, now)

    real = webhook(hook)
    for group in ("a", "bad", "c"):
        open_alert(lake, group)
    assert not Sender(lake, Picky()).deliver()
    assert sorted(body["group"] for body in hook.bodies) == ["a", "c"]


def test_receiver_without_an_answer_is_not_asked_for_each_message(lake: Lake) -> None:
    class Silent:
        name, batch_size, repeat_every_ms, most_of_rule = "webhook", 1, None, None
        attempts = 0

        def send(self, news: list[TrackedEpisode], now: int) -> None:
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
    lake.heartbeat()
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


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed_so_nobody_else_gets_secrets(hook: HttpReceiver, status: int) -> None:
    with running_receiver() as other:
        hook.status, hook.location = status, other.url
        with pytest.raises(DeliveryError, match=f"HTTP status {status}"):
            post(hook.url.replace("http://", "http://user:p@"), {}, {"X-Token": "t"}, 5_000)
        assert (other.asked, hook.asked) == ([], ["POST"])


@pytest.mark.parametrize(
    "url", ["http://user:s3cr3t@127.0.0.1:1/s3cr3t?x=s3cr3t", "http://s3cr3t@not.a.host.invalid/s3cr3t"]
)
def test_failures_name_the_host_and_no_secret(url: str) -> None:
    with pytest.raises(DeliveryError, match=r"posting to http://[a-z0-9.:]+/\.\.\.: expected") as raised:
        post(url, {}, {"Authorization": "s3cr3t"}, 1_000)
    assert "s3cr3t" not in str(raised.value)
    assert not raised.value.is_answer


def drips(begun: bytes, drop: bytes) -> tuple[str, threading.Thread]:
    """Serve one client: begin an answer, then send a little of it ten times a second; return the address."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listening, listening.accept()[0] as client, suppress(OSError):
            client.sendall(begun)
            while True:
                client.sendall(drop)
                time.sleep(0.1)

    thread = threading.Thread(target=serve)
    thread.start()
    return f"127.0.0.1:{listening.getsockname()[1]}", thread


@pytest.mark.parametrize(
    ("scheme", "begun", "drop"),
    [
        ("http", b"HTTP/1.1 ", b"2"),
        ("http", b"HTTP/1.1 200 OK\r\n", b"x: y\r\n"),
        ("https", b"\x16\x03\x03\x40\x00", b"\x02"),
    ],
)
def test_the_timeout_is_for_the_whole_exchange(scheme: str, begun: bytes, drop: bytes) -> None:
    address, server = drips(begun, drop)
    began = time.monotonic()
    with pytest.raises(DeliveryError) as raised:
        post(f"{scheme}://{address}/", {}, {}, 600)
    assert not raised.value.is_answer
    assert time.monotonic() - began < 4
    server.join(5)
    assert not server.is_alive(), "the connection is closed"


def test_a_message_given_up_while_its_host_is_resolved_is_not_sent_later(
    hook: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer message would arrive before it."""
    resolve, resolved = socket.getaddrinfo, threading.Event()

    def slowly(*name: Any, **options: Any) -> Any:
        assert resolved.wait(10)
        return resolve(*name, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slowly)
    with pytest.raises(DeliveryError, match=r"no whole answer within alerts\.timeout"):
        post(hook.url, {}, {}, 100)
    (sending,) = (thread for thread in threading.enumerate() if thread.name == "offsetlake-post")
    resolved.set()
    sending.join(10)
    assert hook.asked == []


# --- many of them ----------------------------------------------------------------------------------------


def open_many(lake: Lake, count: int, *, left: int = DAY, prefix: str = "many") -> None:
    for number in range(count):
        lake.commit(f"{prefix}{number:03}", at=lake.now - RETENTION + left)
    lake.evaluate(receivers=["webhook", "log", "alertmanager"])


def test_the_gravest_are_delivered_first(lake: Lake, hook: HttpReceiver) -> None:
    open_many(lake, 5)
    lake.now += 1
    open_many(lake, 5, left=HOUR, prefix="urgent")
    assert Sender(lake, webhook(hook)).deliver()
    assert [body["severity"] for body in hook.bodies] == ["critical"] * 5 + ["warning"] * 5
    receiver = Picky()
    receiver.name = "log"
    assert Sender(lake, receiver).deliver()
    assert [group[:4] for group, _ in receiver.got] == ["urge"] * 5 + ["many"] * 5


def test_many_of_a_rule_are_one_message(lake: Lake, hook: HttpReceiver) -> None:
    open_many(lake, 21)
    open_many(lake, 20, left=HOUR, prefix="urgent")
    sender = Sender(lake, webhook(hook))
    assert sender.deliver()
    assert [body["severity"] for body in hook.bodies] == ["critical"] * 20 + ["warning"]
    last = hook.bodies[-1]
    assert (last["event"], last["rule"], last["group"]) == ("summary", OFFSET_EXPIRING.id, None)
    assert last["facts"] == {"alerts": 21, "opened": 21, "updated": 0, "closed": 0}
    assert last["summary"] == (
        'offset_expiring: 21 alerts (21 opened), such as group "many000", group "many001", group "many002"; '
        "offsetlake alerts lists what is open"
    )
    assert hook.headers[-1]["Idempotency-Key"] == f"{last['id']}-{last['revision']}"
    assert sender.deliver()
    assert len(hook.bodies) == 21
    close_alert(lake, "many003")
    assert sender.deliver()
    assert [(body["event"], body["group"]) for body in hook.bodies[21:]] == [("closed", "many003")]


@pytest.mark.more
def test_a_summary_that_is_refused_is_divided_and_nothing_is_lost(lake: Lake, hook: HttpReceiver) -> None:
    open_many(lake, 30)
    hook.refuses = lambda body: body["event"] == "summary"
    sender = Sender(lake, webhook(hook))
    run_for(lake, sender, HOUR)
    assert sorted(body["group"] for body in hook.bodies) == [f"many{number:03}" for number in range(30)]


@pytest.mark.more
def test_a_flood_for_a_receiver_that_is_silent_is_one_attempt_of_a_round(lake: Lake) -> None:
    open_many(lake, 60)
    open_many(lake, 1, left=HOUR, prefix="urgent")
    receiver = Picky()
    receiver.is_silent = True
    sender = Sender(lake, receiver)
    for attempts in (1, 2):
        assert not sender.deliver()
        assert receiver.requests == attempts
    receiver.is_silent = False
    assert sender.deliver()
    assert receiver.got[0][0] == "urgent000"


def test_log_and_alertmanager_get_each_of_many(lake: Lake, hook: HttpReceiver) -> None:
    open_many(lake, 21)
    lines: list[str] = []
    assert Sender(lake, LogLines(lines.append)).deliver()
    assert len({json.loads(line)["alert"]["group"] for line in lines}) == 21
    assert Sender(lake, alertmanager(hook)).deliver()
    assert [len(body) for body in hook.bodies] == [21]


# --- Alertmanager's format -------------------------------------------------------------------------------


def test_alertmanager_gets_an_open_alert_again_and_again(lake: Lake, hook: HttpReceiver) -> None:
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


def test_alertmanager_gets_that_the_former_severity_is_over(lake: Lake, hook: HttpReceiver) -> None:
    sender = Sender(lake, alertmanager(hook))
    open_alert(lake, receiver="alertmanager")
    sender.deliver()
    lake.pass_time(23 * HOUR)
    lake.evaluate()
    sender.deliver()
    former, worse = hook.bodies[-1]
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
        name, batch_size, repeat_every_ms, most_of_rule = "webhook", 1, None, None

        def send(self, news: list[TrackedEpisode], now: int) -> None:
            released.wait(30)

    lake.now = lake.tables.progress().heartbeat  # the clock of the watch is the real one, long after
    watch = AlertWatch(
        lake.tables,
        alert_settings(evaluate_every="20ms"),
        [Hanging(), LogLines(told.append)],
        ask_log_ranges=None,
    )
    with watch:
        wait_until(lambda: len(told) == 1, "the log line about the job that is behind")
        assert json.loads(told[0])["alert"]["rule"] == "job_behind"
        lake.now = 2**41  # far beyond any real clock: as if the job had caught up
        lake.heartbeat()
        wait_until(lambda: len(told) == 2, "the log line that it is no more")
        released.set()
    assert json.loads(told[1])["alert"]["event"] == "closed"


def test_thread_delivers_what_was_left_and_then_what_comes(lake: Lake) -> None:
    lines: list[str] = []
    open_alert(lake, "a", receiver="log")
    thread = NotifierThread(Notifier(AlertTable(lake.tables), LogLines(lines.append)), "log")
    thread.start()
    wait_until(lambda: len(lines) == 1, "what was left")
    open_alert(lake, "b", receiver="log")
    thread.wake()
    wait_until(lambda: len(lines) == 2, "what came")
    thread.end()
    thread.join(10)
    assert not thread.is_alive()


def test_thread_outlives_whatever_a_receiver_raises(lake: Lake, said: list[str]) -> None:
    lines: list[str] = []

    def write(line: str) -> None:
        if not said:
            raise RuntimeError("nobody thought of this")
        lines.append(line)

    open_alert(lake, receiver="log")
    thread = NotifierThread(Notifier(AlertTable(lake.tables), LogLines(write)), "log")
    thread.start()
    wait_until(lambda: len(lines) == 1, "the second attempt")
    thread.end()
    thread.join(10)
    assert said[0].startswith("alerts for log cannot be delivered, retrying: unexpected RuntimeError")


def test_evaluation_that_fails_is_said_once_and_ends_nothing(
    lake: Lake, tmp_path: Path, said: list[str]
) -> None:
    (tmp_path / "alerts").rename(tmp_path / "gone")
    watch = AlertWatch(lake.tables, alert_settings(evaluate_every="20ms"), [], ask_log_ranges=None)
    with watch:
        wait_until(lambda: len(said) == 1, "the complaint")
        (tmp_path / "gone").rename(tmp_path / "alerts")
        wait_until(lambda: len(said) == 2, "the end of it")
    assert said[0].startswith("evaluating alerts failed, retrying: TablesMissingError")
    assert said[1] == "alerts are evaluated again"


def test_very_many_offsets_are_evaluated_less_often_and_not_at_the_start(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "_OFTEN_EVALUATED", 2)
    for name in ("one", "two", "three", "four", "five", "six"):
        lake.commit(name)
    lake.now = now_ms()
    lake.heartbeat()
    few = AlertWatch(lake.tables, alert_settings(evaluate_every="1h"), [], ask_log_ranges=None)
    with few:  # its tables are not folded, so no offsets are counted at the start
        wait_until(lambda: few.evaluated_at() is not None, "the evaluation at the start")
    assert few.interval_s == 3 * 3_600
    lake.tables.fold()
    many = AlertWatch(lake.tables, alert_settings(evaluate_every="1h"), [], ask_log_ranges=None)
    with many:
        assert many.interval_s == 3_600
        many.join(0.2)
        assert many.is_alive()
    assert many.evaluated_at() is None
    assert many.evaluate_and_deliver()
    assert many.interval_s == 3 * 3_600
    monkeypatch.setattr(watch_module, "_OFTEN_EVALUATED", 0.1)
    assert many.interval_s == 8 * 3_600


class Panic(BaseException):
    """As those of delta-rs, which are no `Exception`."""


def test_a_panic_of_an_evaluation_ends_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    evaluate, calls = Evaluator.evaluate, list[int]()

    def fail_first(evaluator: Evaluator) -> list[Episode]:
        calls.append(1)
        if len(calls) == 1:
            raise Panic("index out of bounds")
        return evaluate(evaluator)

    monkeypatch.setattr(Evaluator, "evaluate", fail_first)
    watch = AlertWatch(lake.tables, alert_settings(evaluate_every="20ms"), [], ask_log_ranges=None)
    with watch:
        wait_until(lambda: watch.evaluated_at() is not None, "the second evaluation")
        assert watch.is_alive()
    assert said == [
        "evaluating alerts failed, retrying: Panic: index out of bounds",
        "alerts are evaluated again",
    ]


def test_a_panic_of_a_delivery_ends_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    lines: list[str] = []
    read, calls = AlertTable.read, list[int]()

    def fail_first(table: AlertTable) -> AlertState:
        calls.append(1)
        if len(calls) == 1:
            raise Panic("index out of bounds")
        return read(table)

    open_alert(lake, receiver="log")
    monkeypatch.setattr(AlertTable, "read", fail_first)
    thread = NotifierThread(Notifier(AlertTable(lake.tables), LogLines(lines.append)), "log")
    thread.start()
    wait_until(lambda: len(lines) == 1, "the second attempt")
    thread.end()
    thread.join(10)
    assert said == [
        "alerts for log cannot be delivered, retrying: Panic: index out of bounds",
        "alerts for log are delivered again",
    ]


def test_what_tells_the_process_to_end_is_no_failure(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(AlertTable, "read", interrupt)
    watch = AlertWatch(lake.tables, alert_settings(), [LogLines(print)], ask_log_ranges=None)
    with pytest.raises(KeyboardInterrupt):
        watch.evaluate_and_deliver()
    with pytest.raises(KeyboardInterrupt):
        Sender(lake, LogLines(print)).deliver()


# --- messages that are refused ---------------------------------------------------------------------------


class Picky:
    """A receiver, of the API of Alertmanager if it repeats, that refuses alerts about some groups."""

    def __init__(self, *refused: str, repeat_every_ms: int | None = None, batch_size: int = 1) -> None:
        self.name = "webhook"
        self.batch_size = batch_size
        self.repeat_every_ms = repeat_every_ms
        self.most_of_rule = None
        self.refused = set(refused)
        self.got: list[tuple[str, int]] = []
        self.requests = 0
        self.is_silent = False

    def send(self, news: Sequence[TrackedEpisode], now: int) -> None:
        self.requests += 1
        if self.is_silent:
            raise DeliveryError("no answer", is_answer=False)
        groups = [str(told.episode.finding.group) for told in news]
        taken = [group for group in groups if group not in self.refused]
        if len(taken) < len(groups):  # as Alertmanager, which takes none or some of them
            raise DeliveryError("HTTP status 400", is_answer=True)
        self.got += [(group, now) for group in taken]

    def times(self, group: str) -> list[int]:
        return [at for of, at in self.got if of == group]


def run_for(lake: Lake, sender: Sender, span_ms: int) -> None:
    """Let a notifier deliver as its thread does, for a while that passes on the clock of the tables."""
    end = lake.now + span_ms
    while True:
        sender.deliver()
        pause_s = sender.pause_s
        if pause_s is None or lake.now + pause_s * 1_000 > end:
            lake.now = end
            return
        assert pause_s > 0
        lake.now += round(pause_s * 1_000)


def test_open_alerts_are_repeated_within_their_validity_beside_one_that_is_refused(lake: Lake) -> None:
    receiver = Picky("bad", repeat_every_ms=60_000, batch_size=500)
    for group in ("a", "bad", "c"):
        open_alert(lake, group)
    began = lake.now
    run_for(lake, Sender(lake, receiver), HOUR)
    for group in ("a", "c"):
        times = receiver.times(group)
        assert times[0] == began
        assert max(later - earlier for earlier, later in pairwise([*times, lake.now])) <= 60_000
        assert len(times) <= 62, "and no more often than that"


def test_a_new_alert_is_sent_at_once_beside_one_that_is_refused(lake: Lake) -> None:
    receiver = Picky("bad")
    open_alert(lake, "bad")
    sender = Sender(lake, receiver)
    run_for(lake, sender, 20 * 60_000)
    before = receiver.requests
    open_alert(lake, "new")
    assert not sender.deliver()  # as the thread does when it is woken
    assert receiver.times("new") == [lake.now]
    assert receiver.requests == before + 1, "the one that was refused has its own pause"


def test_waking_a_thread_ends_its_pause(lake: Lake) -> None:
    receiver = Picky("bad")
    open_alert(lake, "bad")
    calls: list[int] = []

    class Counting(Notifier):
        def deliver(self) -> bool:
            calls.append(1)
            return super().deliver()

    now = [0.0]
    notifier = Counting(AlertTable(lake.tables), receiver, steady=lambda: now[0])
    for _ in range(10):
        notifier.deliver()
        now[0] += 500
    now[0] -= 500
    thread = NotifierThread(notifier, "picky")
    thread.start()
    wait_until(lambda: len(calls) == 11, "the attempt before the pause of minutes")
    assert notifier.pause_s is not None
    assert notifier.pause_s > 100
    open_alert(lake, "new")
    thread.wake()
    wait_until(lambda: receiver.times("new") != [], "the delivery")
    thread.end()
    thread.join(10)


@pytest.mark.more
def test_what_is_refused_for_long_while_others_are_taken_is_given_up_and_said(lake: Lake) -> None:
    receiver = Picky("bad", repeat_every_ms=60_000, batch_size=500)
    for group in ("a", "bad"):
        open_alert(lake, group)
    sender = Sender(lake, receiver)
    run_for(lake, sender, HOUR)
    (given_up,) = [line for line in sender.said if "not sent again" in line]
    assert 'offset_expiring of group "bad"' in given_up
    assert "HTTP status 400" in given_up
    assert "delivered again" in sender.said[-1]
    counted = describe_alerts(lake.tables)
    assert counted[0] == "open alerts: 2 warning"
    assert counted[1:] == ["alerts that webhook has refused, not sent again: 1: HTTP status 400"]
    receiver.refused, before = set(), len(receiver.got)
    run_for(lake, sender, HOUR)
    assert receiver.times("bad") == []
    assert len(receiver.got) > before
    lake.pass_time(21 * HOUR)
    (worse,) = (one for one in lake.evaluate() if one.finding.group == "bad")
    assert worse.revision == 2
    assert sender.deliver()
    assert receiver.times("bad") == [lake.now], "a change of it is sent"
    assert len(describe_alerts(lake.tables)) == 1


def test_an_open_alert_that_was_accepted_is_not_given_up_when_its_severity_is_refused(lake: Lake) -> None:
    receiver = Picky(repeat_every_ms=60_000)
    for group in ("a", "bad"):
        open_alert(lake, group)
    sender = Sender(lake, receiver)
    assert sender.deliver()
    receiver.refused = {"bad"}
    lake.pass_time(23 * HOUR)
    worse = {one.finding.group for one in lake.evaluate() if one.finding.severity == "critical"}
    assert worse == {"a", "bad"}
    run_for(lake, sender, HOUR)
    assert not [line for line in sender.said if "not sent again" in line]
    assert len(receiver.times("bad")) == 1
    receiver.refused = set()
    run_for(lake, sender, 60_000)
    assert len(receiver.times("bad")) > 1


def open_at_once(lake: Lake, *groups: str) -> None:
    """Open alerts, the first ones first to be sent."""
    alerts = AlertTable(lake.tables)
    opened = [
        Episode(
            id=f"{number:06} {group}",
            rule=OFFSET_EXPIRING.id,
            revision=1,
            opened_at=lake.now,
            updated_at=lake.now,
            finding=Finding(severity="warning", subject=f'group "{group}"', group=group),
        )
        for number, group in enumerate(groups)
    ]
    alerts.update(alerts.read(), lambda _: opened, mark=0, receivers=["webhook"])


@pytest.mark.parametrize("batch_size", [1, 500])
def test_many_that_are_refused_hold_back_no_alert_behind_them(lake: Lake, batch_size: int) -> None:
    bad = [f"bad{number:02}" for number in range(45)]
    receiver = Picky(*bad, batch_size=batch_size)
    open_at_once(lake, *bad, "new")
    run_for(lake, Sender(lake, receiver), 60_000)
    assert len(receiver.times("new")) == 1


@pytest.mark.more
@pytest.mark.parametrize("batch_size", [1, 500])
def test_hundreds_that_are_refused_hold_back_neither_new_alerts_nor_repetitions(
    lake: Lake, batch_size: int
) -> None:
    bad = [f"bad{number:03}" for number in range(150)]
    receiver = Picky(*bad, repeat_every_ms=60_000, batch_size=batch_size)
    open_alert(lake, "a")
    sender = Sender(lake, receiver)
    assert sender.deliver()
    open_at_once(lake, *bad, "new")
    began = lake.now
    run_for(lake, sender, 6 * 60_000)
    assert receiver.times("new")[0] - began <= 60_000
    for group in ("a", "new"):
        gaps = [later - earlier for earlier, later in pairwise([*receiver.times(group), lake.now])]
        assert max(gaps) <= 61_000, group


@pytest.mark.more
@pytest.mark.parametrize("batch_size", [1, pytest.param(500, marks=pytest.mark.more)])
def test_many_repetitions_that_are_refused_hold_back_no_other(lake: Lake, batch_size: int) -> None:
    bad = [f"bad{number:02}" for number in range(45)]
    receiver = Picky(repeat_every_ms=60_000, batch_size=batch_size)
    open_at_once(lake, *bad, "a")
    sender = Sender(lake, receiver)
    assert sender.deliver()
    receiver.refused = set(bad)
    run_for(lake, sender, 20 * 60_000)
    gaps = [later - earlier for earlier, later in pairwise([*receiver.times("a"), lake.now])]
    assert max(gaps) <= 90_000
    assert len(receiver.times("a")) <= 35, "and no more often than that"
    assert len([line for line in sender.said if "retrying" in line]) == 1
    receiver.refused = set()
    run_for(lake, sender, 120_000)
    assert {group for group, at in receiver.got if at >= lake.now - 120_000} == {*bad, "a"}


@pytest.mark.more
def test_nothing_is_given_up_while_a_receiver_takes_nothing(lake: Lake) -> None:
    receiver = Picky("a", "b", "c")
    for group in ("a", "b", "c"):
        open_alert(lake, group)
    sender = Sender(lake, receiver)
    run_for(lake, sender, 12 * HOUR)
    assert receiver.requests < 3 * 12 * 15
    receiver.refused = set()
    run_for(lake, sender, 5 * 60_000)
    assert sorted(group for group, _ in receiver.got) == ["a", "b", "c"]
    assert len(sender.said) == 2


def test_a_receiver_that_refuses_everything_is_not_asked_for_each_message(lake: Lake) -> None:
    receiver = Picky(*(f"g{number}" for number in range(60)), batch_size=50)
    open_at_once(lake, *receiver.refused)
    assert not Sender(lake, receiver).deliver()
    assert receiver.requests <= 30


def test_a_receiver_that_is_silent_is_asked_more_and_more_seldom(lake: Lake) -> None:
    receiver = Picky(repeat_every_ms=60_000, batch_size=500)
    receiver.is_silent = True
    for group in ("a", "b"):
        open_alert(lake, group)
    sender = Sender(lake, receiver)
    run_for(lake, sender, HOUR)
    assert 60 <= receiver.requests <= 70, "never longer than it repeats, or what was open ends there"
    receiver.is_silent = False
    run_for(lake, sender, 60_000)
    assert len(receiver.times("a")) in (1, 2)


def test_a_clock_that_is_set_back_ends_no_repetition(lake: Lake) -> None:
    receiver, passed = Picky(repeat_every_ms=60_000), [0.0]
    notifier = Notifier(AlertTable(lake.tables), receiver, clock=lambda: lake.now, steady=lambda: passed[0])
    open_alert(lake, "a")
    assert notifier.deliver()
    lake.now -= DAY
    passed[0] += 60
    assert notifier.deliver()
    assert receiver.times("a") == [lake.now + DAY, lake.now]
