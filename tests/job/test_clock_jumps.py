"""A jump of the clock is seen once: the reason to rebuild must reach the tables, whatever else happens."""

import threading
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_housekeeping import Clocks
from test_writer import ENDS, Job, results, set_offset

from streaming.brokers.facts import BrokerError, TopicFacts
from streaming.brokers.retention import RetentionReader
from streaming.common.times import DAY_MS, HOUR_MS
from streaming.job import follow as following
from streaming.job.failures import BrokersSilentError
from streaming.job.housekeeping import Housekeeping
from streaming.job.reading import TopicReader
from streaming.job.topic.clock_pace import ClockPace
from streaming.job.topic.question import TopicQuestion
from streaming.job.topic.reasons import RebuildNeededError, TopicNow
from streaming.job.topic.watch import TopicWatch
from streaming.settings.reading import read_settings
from streaming.spark.session import Evaluation

JUMPED = "the clock of this machine jumped forward"
TOPIC = TopicNow(
    cluster_id=None, partition_count=1, topic_id=None, ranges={}, delete_retention_ms=DAY_MS, now=0
)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    job = Job(tmp_path / "tables")
    job.start().apply(results(set_offset("g", 1)), 0)
    return job


class SilentBroker:
    def ends(self, *_: object) -> Any:
        return ENDS

    def topic_facts(self, *_: object) -> Any:
        raise BrokerError("no answer")


def watch_with(clocks: Clocks) -> TopicWatch:
    broker: Any = SilentBroker()
    pace = ClockPace(lambda: clocks.now_ms, lambda: clocks.steady_s)
    return TopicWatch(broker, "t", pause_ms=1_000, pace=pace)


def test_the_heartbeat_that_follows_a_jump_has_the_reason_and_a_kill_loses_nothing(job: Job) -> None:
    clocks = Clocks()
    broker: Any = SilentBroker()
    retention: Any = SimpleNamespace(read=lambda _: None)
    watch = watch_with(clocks)
    house = Housekeeping(job.start(), broker, watch, retention, read_settings())
    house.heartbeat()
    assert job.tables.progress().rebuild is None
    clocks.pass_time(1, shown=30 * HOUR_MS / 1_000)
    house.heartbeat()
    house.heartbeat()
    rebuild = job.tables.progress().rebuild
    assert rebuild is not None
    assert rebuild.reason == house.reason_to_rebuild
    assert rebuild.reason.startswith(JUMPED)
    assert watch.reason_of_clock() is None


def test_a_jump_while_brokers_are_waited_for_is_seen() -> None:
    clocks = Clocks()

    def waiting(_: str) -> nullcontext[None]:
        clocks.pass_time(1, shown=30 * HOUR_MS / 1_000)
        return nullcontext()

    settings = read_settings(options={"source.topic_poll_every": "10ms", "source.connect_timeout": "1s"})
    question = TopicQuestion(
        watch_with(clocks), settings, waiting=waiting, beside=nullcontext, heartbeat=lambda: None
    )
    with pytest.raises(RebuildNeededError, match=JUMPED):
        question.ask(threading.Event(), limit_ms=1_000)


def question_with(beats: list[float], **source: str) -> TopicQuestion:
    options: dict[str, object] = {f"source.{name}": value for name, value in source.items()}
    settings = read_settings(options={**options, "job.heartbeat_every": "20ms"})
    return TopicQuestion(
        watch_with(Clocks()),
        settings,
        waiting=lambda _: nullcontext(),
        beside=nullcontext,
        heartbeat=lambda: beats.append(0),
    )


def test_heartbeats_go_on_while_brokers_are_asked_seldom() -> None:
    beats: list[float] = []
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    assert question_with(beats, topic_poll_every="1h").ask(stop) is None
    assert len(beats) > 5


def test_a_limit_ends_the_wait_however_seldom_brokers_are_asked() -> None:
    with pytest.raises(BrokerError, match="no answer"):
        question_with([], topic_poll_every="1h").ask(threading.Event(), limit_ms=100)


def test_a_reading_that_fails_has_the_reason_too(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_self: object, *arguments: Any, **_: object) -> None:
        house = next(one for one in arguments if isinstance(one, Housekeeping))
        house.reason_to_rebuild = JUMPED
        raise BrokersSilentError("connections are dead")

    monkeypatch.setattr(TopicReader, "_run_query", run)
    monkeypatch.setattr(RetentionReader, "read", lambda *_: None)
    monkeypatch.setattr(Evaluation, "choose", lambda *_: None)
    nothing: Any = None
    settings = read_settings(options={"tables.root": job.tables.root, "source.topic": "t"})
    listener: Any = SimpleNamespace(batch=lambda _: None)
    facts = TopicFacts(cluster_id=None, partition_count=1, topic_id=None)
    reader = TopicReader(nothing, settings, nothing, facts, listener, threading.Event())
    checkpoint: Any = lambda *_: SimpleNamespace(query_id=lambda: "query")  # noqa: E731
    monkeypatch.setattr(TopicReader, "checkpoint", checkpoint)
    with pytest.raises(RebuildNeededError, match=JUMPED):
        reader.read(job.tables, job.tables.progress(), TOPIC, once=False)


def test_a_reason_is_in_the_tables_before_brokers_are_asked_again(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = threading.Event()

    def read_on(*_: object, **__: object) -> None:
        stop.set()
        raise RebuildNeededError(JUMPED)

    monkeypatch.setattr(following, "_read_on", read_on)
    monkeypatch.setattr(following, "_check_at_start", lambda _: None)
    reader: Any = SimpleNamespace(
        tables=job.tables,
        settings=read_settings(options={"source.topic": "t"}),
        topic_now=lambda **_: None if stop.is_set() else TOPIC,
        end_spark=lambda: None,
    )
    following.follow(reader, once=False)
    rebuild = job.tables.progress().rebuild
    assert rebuild is not None
    assert rebuild.reason == JUMPED
