"""Lag in seconds against the truth: records of known times, positions committed at known ones, a real job.

The job and the broker are restarted meanwhile. Whatever the moment that is asked for, the lag of a position
is the age of the record at it, to within the time between two samples.

Only `make test-lag` runs this (it sets LAG).
"""

import os
import threading
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import cycle
from pathlib import Path
from typing import Any

import kafka_clients as kafka
import pytest
from confluent_kafka import KafkaException, Message, Producer
from conftest import BrokerFactory
from construct import StreamError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from running_job import RunningJob

from streaming.common.times import from_ms, now_ms, to_ms
from streaming.demo.broker_offsets import CommittedOffset
from streaming.queries.lag import LagQueries
from streaming.tables.tables import Tables

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.skipif("LAG" not in os.environ, reason="`make test-lag` runs it"),
]

TOPICS = ("steady", "bursts", "idle", "transactional")
CLOCK_MS = 60
"""How far times of one machine, taken by threads that wait for each other, may be apart."""


class Log:
    """Records of known times: of each, when it was handed over and when the broker had it (ms)."""

    def __init__(self, topic: str, bootstrap: str) -> None:
        self.topic = topic
        self.times: dict[int, tuple[int, int]] = {}
        settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0}
        if topic == "transactional":
            settings["transactional.id"] = "lag-is-true"
        self._producer = Producer(settings)
        if topic == "transactional":
            self._producer.init_transactions(15)

    def produce(self, count: int) -> None:
        sent = now_ms()

        def note(error: object, message: Message) -> None:
            assert error is None, error
            offset = message.offset()
            assert offset is not None
            self.times[offset] = (sent, now_ms())

        if self.topic == "transactional":
            self._producer.begin_transaction()
        for _ in range(count):
            self._producer.produce(self.topic, b"value", on_delivery=note)
            self._producer.poll(0)
        self._producer.flush(30)
        if self.topic == "transactional":
            self._producer.commit_transaction(30)


def produce_on(log: Log, done: threading.Event) -> None:
    """Produce as the topic's name says."""
    log.produce(30)
    if log.topic == "idle":
        return
    count, pause_s = {"steady": (1, 0.1), "bursts": (40, 1.5), "transactional": (5, 0.3)}[log.topic]
    while not done.wait(pause_s):
        log.produce(count)


def commit_on(log: Log, bootstrap: str, done: threading.Event) -> None:
    """Commit positions from far behind to the end."""
    how_far = cycle([5, 20, 0, 61, 1])
    while not done.wait(0.3):
        ends = sorted(log.times)
        if ends:
            back = next(how_far)
            position = max(ends[0], ends[-1] + 1 - back)
            try:
                kafka.alter_offsets(bootstrap, f"of-{log.topic}", {(log.topic, 0): CommittedOffset(position)})
            except (KafkaException, OSError, StreamError):  # the broker is being restarted
                continue


@contextmanager
def running(job: RunningJob) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=job.run, args=[stop])
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive()


def test_lag_in_seconds_is_the_age_of_the_record_at_the_position(
    make_broker: BrokerFactory, spark: SparkSession, tmp_path: Path
) -> None:
    broker = make_broker(offsets_partitions=2)
    bootstrap = broker.bootstrap_servers
    kafka.create_topics(bootstrap, dict.fromkeys(TOPICS, 1))
    logs, done = [Log(topic, bootstrap) for topic in TOPICS], threading.Event()
    threads = [threading.Thread(target=produce_on, args=[log, done]) for log in logs]
    threads += [threading.Thread(target=commit_on, args=[log, bootstrap, done]) for log in logs]
    job = RunningJob(spark, bootstrap, tmp_path, options={"log_ends.every": "500ms"})
    for thread in threads:
        thread.start()
    try:
        with running(job):
            kafka.wait_until(lambda: has_samples(job.tables), "the first samples", timeout_s=60)
            began = now_ms()
            time.sleep(1)
            next(log for log in logs if log.topic == "idle").produce(70)  # and never again
            time.sleep(2)
        with running(job):
            wait_for_samples(job.tables, "the second run")
            time.sleep(1)
            broker.restart()
            wait_for_samples(job.tables, "the broker's return")
            wait_for_positions(job.tables, 10)
            done.set()
            for thread in threads:
                thread.join(60)
            wait_for_samples(job.tables, "the last samples")
            ended = now_ms()
    finally:
        done.set()
    compared = compare(job.tables, {log.topic: log for log in logs}, began, ended)
    assert {topic: count >= 10 for topic, count in compared.items()} == dict.fromkeys(TOPICS, True), compared


def has_samples(tables: Tables) -> bool:
    return "log_ends" in tables.existing() and len(samples_of(tables)) == len(TOPICS)


def wait_for_samples(tables: Tables, what: str) -> None:
    """Wait until every topic has been sampled since now."""
    since = now_ms()
    kafka.wait_until(
        lambda: all(times[-1] > since for times in samples_of(tables).values()), what, timeout_s=60
    )


def wait_for_positions(tables: Tables, count: int) -> None:
    """Wait until every group has been seen at so many more positions."""

    def seen() -> Counter[str]:
        return Counter(row["topic"] for row in tables.delta("changes").to_pyarrow_table().to_pylist())

    before = seen()
    kafka.wait_until(
        lambda: all(seen()[topic] >= before[topic] + count for topic in TOPICS), "positions", timeout_s=60
    )


def samples_of(tables: Tables) -> dict[str, list[int]]:
    """When each topic was sampled, in order (ms)."""
    found = defaultdict(list)
    for row in tables.delta("log_ends").to_pyarrow_table().to_pylist():
        if row["log_end"] is not None:
            found[row["topic"]].append(to_ms(row["sampled_at"]))
    return {topic: sorted(times) for topic, times in found.items()}


def compare(tables: Tables, logs: dict[str, Log], began: int, ended: int) -> dict[str, int]:
    """Compare at every moment; return how many lags of each topic were more than 0."""
    compared, samples = dict.fromkeys(logs, 0), samples_of(tables)
    for moment in range(began, ended, 300):
        asked: datetime = from_ms(moment)
        for row in LagQueries(tables).list_offsets(as_of=asked).rows.to_pylist():
            log, lag_ms = logs[row["topic"]], row["lag_seconds"]
            if lag_ms is None:
                continue
            lag_ms *= 1_000
            known, as_of = log.times.get(row["offset_as_of_ends"]), to_ms(row["ends_as_of"])
            if known is None:  # beyond the last record, or a marker of a transaction
                continue
            sent, arrived = known
            gap = gap_around(samples[row["topic"]], sent, arrived)
            about = f"{row} as of {moment}: handed over {sent}, arrived {arrived}, sampled within {gap} ms"
            if row["lag_is_at_least"]:
                # At least 0 is true of every record, also of one that came after the sample.
                assert lag_ms <= max(0, as_of - sent + CLOCK_MS), about
            elif row["lag"] == 0:
                assert lag_ms == 0, about
                assert arrived >= as_of - CLOCK_MS, about
            else:
                assert as_of - arrived - gap - CLOCK_MS <= lag_ms <= as_of - sent + gap + CLOCK_MS, about
                compared[row["topic"]] += 1
    return compared


def gap_around(times: list[int], first: int, last: int) -> int:
    """How long it was between the sample before the first moment and the one after the last (ms)."""
    before = max(0, bisect_right(times, first) - 1)
    after = min(len(times) - 1, bisect_right(times, last))
    return times[after] - times[before]
