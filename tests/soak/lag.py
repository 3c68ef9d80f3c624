"""The lag that the tables show beside the broker's, of groups that stay a known time behind.

A producer writes evenly, another in bursts; groups commit every five seconds what was the end of the log some
time before. Meanwhile broker and tables are asked, one right after the other; in the end the tables are asked
for each of these moments again.
"""

import random
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import kafka_clients as kafka
from confluent_kafka import Consumer, Producer, TopicPartition
from job_process import JobProcess

from streaming.common.times import from_ms, now_ms
from streaming.demo.local_broker import LocalBroker
from streaming.jvm.jars import ensure_jars
from streaming.queries.lag import LagQueries
from streaming.tables.tables import TablesMissingError

RATE: Final = 20  # records a second
BURST_S: Final = 20.0
OLD: Final = 216_000  # records that are there before: of three hours
BEHIND_S: Final[Mapping[str, float]] = {"2 s": 2, "10 s": 10, "30 s": 30, "90 s": 90, "3 hours": 10_800}
COMMIT_S: Final = 5.0
ASK_S: Final = 3.0

_SETTINGS: Final = """
[alerts]
log = "off"
[spark]
log_file = "{directory}/spark.log"
"""
"""Else the defaults, as users have them."""

Say = Callable[[str], None]
Key = tuple[str, str]
"""Group and topic."""


@dataclass
class Growing:
    """A log of one partition, and when its end was where (s, by `time.monotonic`)."""

    topic: str
    bootstrap: str
    times: list[float] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, "log_level": 0})
        self.produce(OLD)

    def produce(self, count: int) -> None:
        """Add so many records."""
        for _ in range(count):
            self._producer.produce(self.topic, b"")
            while len(self._producer) > 50_000:
                self._producer.poll(0.1)
        self._producer.flush(60)
        self.ends.append((self.ends[-1] if self.ends else 0) + count)
        self.times.append(time.monotonic())

    def end_at(self, moment: float) -> int:
        """Return where the log ended at a moment; before the first one it had grown at the rate."""
        number = bisect_right(self.times, moment) - 1
        return self.ends[number] if number >= 0 else max(0, OLD - round((self.times[0] - moment) * RATE))

    def grow(self, done: threading.Event) -> None:
        """Produce as the topic's name says."""
        pause = 0.1 if self.topic == "steady" else BURST_S
        due = time.monotonic() + pause
        while not done.wait(max(0.0, due - time.monotonic())):
            self.produce(round(RATE * pause))
            due += pause


@dataclass(frozen=True)
class Look:
    """The lags of one moment (ms), as the broker and the tables told them (None: not known)."""

    at: int
    broker: Mapping[Key, int]
    tables: Mapping[Key, int | None]
    health: Mapping[Key, str]


def compare_lags(directory: Path, seconds: float, *, say: Say) -> None:
    """Run all of it for so many seconds, and print a table."""
    folder = directory / "job"
    folder.mkdir(parents=True)
    with LocalBroker(directory / "broker", offsets_partitions=50, jars=ensure_jars("broker")) as broker:
        bootstrap, done = broker.bootstrap_servers, threading.Event()
        kafka.create_topics(bootstrap, {"steady": 1, "bursts": 1})
        logs = [Growing(topic, bootstrap) for topic in ("steady", "bursts")]
        threads = [threading.Thread(target=log.grow, args=[done]) for log in logs]
        threads.append(threading.Thread(target=commit, args=[bootstrap, logs, done]))
        job = JobProcess(folder, bootstrap, settings=_SETTINGS)
        for thread in threads:
            thread.start()
        try:
            job.start()
            kafka.wait_until(lambda: has_lags(job, len(BEHIND_S) * len(logs)), "first lags", timeout_s=120)
            say("the job shows lags")
            looks = watch(job, bootstrap, logs, seconds)
        finally:
            done.set()
            for thread in threads:
                thread.join(30)
            job.kill()
    say(table(looks, [again(job, look) for look in looks]))


def commit(bootstrap: str, logs: Sequence[Growing], done: threading.Event) -> None:
    """Commit every five seconds, each group at its own time."""
    chance = random.Random(1)
    due = {(name, log.topic): chance.random() * COMMIT_S for log in logs for name in BEHIND_S}
    began = time.monotonic()
    own = {log.topic: log for log in logs}
    while not done.is_set():
        (name, topic), at = min(due.items(), key=lambda one: one[1])
        if done.wait(max(0.0, began + at - time.monotonic())):
            return
        offset = own[topic].end_at(time.monotonic() - BEHIND_S[name])
        kafka.alter_offsets(bootstrap, name, {(topic, 0): offset})
        due[name, topic] += COMMIT_S


def watch(job: JobProcess, bootstrap: str, logs: Sequence[Growing], seconds: float) -> list[Look]:
    """Ask broker and tables again and again."""
    looks, until = list[Look](), time.monotonic() + seconds
    asking = Consumer({"bootstrap.servers": bootstrap, "group.id": "asks"})
    try:
        while time.monotonic() < until:
            job.check()
            committed = kafka.broker_offsets(bootstrap)
            ends = {
                log.topic: asking.get_watermark_offsets(TopicPartition(log.topic, 0), timeout=10)[1]
                for log in logs
            }
            at = now_ms()
            broker = {(key.group, key.topic): ends[key.topic] - one.offset for key, one in committed.items()}
            queries = LagQueries(job.tables)
            tables = {
                (row["group"], row["topic"]): row["lag"] for row in queries.list_offsets().rows.to_pylist()
            }
            health = {
                (row["group"], row["topic"]): f"{row['status']}, {row['reason']}"
                for row in queries.partition_health().rows.to_pylist()
            }
            looks.append(Look(at, broker, tables, health))
            time.sleep(ASK_S)
    finally:
        asking.close()
    return looks


def again(job: JobProcess, look: Look) -> dict[Key, int | None]:
    """Ask the tables for the lags as of a past moment."""
    rows = LagQueries(job.tables).list_offsets(as_of=from_ms(look.at)).rows.to_pylist()
    return {(row["group"], row["topic"]): row["lag"] for row in rows}


def table(looks: Sequence[Look], past: Sequence[Mapping[Key, int | None]]) -> str:
    """Return the lags of each group in Markdown, and the largest difference from the broker's."""
    lines = [
        f"{len(looks)} looks, {RATE} records a second, {RATE * BURST_S:g} in a burst",
        "| behind | topic | broker | tables | as of then | furthest apart: now | as of then | health |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for key in sorted(looks[0].broker, key=lambda one: (one[1], BEHIND_S[one[0]])):
        broker = [look.broker[key] for look in looks]
        now = [look.tables.get(key) for look in looks]
        then = [one.get(key) for one in past]
        health = sorted({look.health.get(key, "-") for look in looks})
        cells = [*key, span(broker), span(now), span(then), apart(broker, now), apart(broker, then)]
        lines.append(f"| {' | '.join([*cells, '; '.join(health)])} |")
    return "\n".join(lines)


def span(lags: Sequence[int | None]) -> str:
    """Return the least and the largest, and how many are not known."""
    known = [lag for lag in lags if lag is not None]
    unknown = len(lags) - len(known)
    return (f"{min(known):,}-{max(known):,}" if known else "-") + (f" ({unknown} -)" if unknown else "")


def apart(one: Sequence[int], other: Sequence[int | None]) -> str:
    """Return the largest difference."""
    return f"{max((abs(a - b) for a, b in zip(one, other, strict=True) if b is not None), default=0):,}"


def has_lags(job: JobProcess, count: int) -> bool:
    """Tell whether the tables know so many lags."""
    job.check()
    try:
        lags = LagQueries(job.tables).list_offsets().rows["lag"]
    except TablesMissingError:
        return False
    return len(lags) - lags.null_count == count
