"""Lag at regular moments, against the lag as of each of these moments, and its sums against its rows: in
worlds in which topics are recreated and deleted, samples are missing, and offsets are removed, unreadable or
beyond the end."""

import random
from pathlib import Path
from typing import Any

import pytest
from log_end_rows import Sample, gone, of_topic, rows_of
from new_tables import new_tables
from table_batches import Batch, append, heartbeat, offset

from streaming.common.times import MINUTE_MS, from_ms
from streaming.common.topics import TopicPartitions
from streaming.lag.log_ranges import LAG
from streaming.lag.series import LAG_SUMS
from streaming.model.progress import PartitionProgress
from streaming.queries import lag_rows
from streaming.queries.bound import lag
from streaming.queries.lag import LagQueries

T0 = 1_700_000_000_000 // MINUTE_MS * MINUTE_MS
S, M = 1_000, MINUTE_MS
MINUTES, EVERY = 14, M + 7 * S
GROUPS, TOPICS = ["g", "g\0", "ü"], ["a", "a\0", "b", "c"]
TIMES = {"since": T0 + M, "until": T0 + MINUTES * M, "every_ms": EVERY}
MOMENTS = [*range(T0 + M, T0 + MINUTES * M, EVERY), T0 + MINUTES * M]


class World:
    """Tables of a random world."""

    def __init__(self, root: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.tables = new_tables(root)
        self.ends = {(topic, number): 1_000 for topic in TOPICS for number in range(3)}
        self.ids: dict[str, str | None] = {topic: f"{topic}-0" for topic in TOPICS} | {"c": None}
        self.live: Batch = {}
        for minute in range(-1, MINUTES + 1):
            self.minute(T0 + minute * M)
        self.queries = LagQueries(self.tables)

    def minute(self, at: int) -> None:
        self.ends = {key: end + self.chance.randrange(40) for key, end in self.ends.items()}
        written_at = at + self.chance.randrange(-20, 20) * S
        batch: Batch = {}
        for group in GROUPS:
            for (topic, number), end in self.ends.items():
                if self.chance.random() < 0.4:
                    topic_id = self.ids[topic] if self.chance.random() < 0.8 else None
                    batch[group, topic, number] = self.changed(end, topic_id, written_at)
        progress = PartitionProgress(position=written_at, loaded=True)
        append(self.tables, batch, live=self.live, now=written_at, partitions={3: progress})
        self.live |= batch
        if self.chance.random() < 0.8:
            self.tables.append_log_ends(rows_of(self.sampled(at)))
        heartbeat(self.tables, at + 30 * S)

    def changed(self, end: int, topic_id: str | None, at: int) -> dict[str, Any] | None:
        kind = self.chance.choices(["commit", "beyond", "removed", "unreadable"], [8, 1, 1, 1])[0]
        own = {"commit_timestamp": at, "source_timestamp": at, "source_offset": at, "topic_id": topic_id}
        unreadable = {"unreadable_source_offset": at} if kind == "unreadable" else {}
        committed = end + 50 if kind == "beyond" else end - self.chance.randrange(60)
        return None if kind == "removed" else offset(committed_offset=committed, **own, **unreadable)

    def sampled(self, at: int) -> list[Sample]:
        rows = list[Sample]()
        for topic in TOPICS:
            if self.chance.random() < 0.15:
                rows += self.recreated(at, topic)
                continue
            rows += [
                Sample(at + number, topic, number, end, self.ids[topic])
                for (own, number), end in self.ends.items()
                if own == topic and self.chance.random() < 0.9
            ]
        return rows

    def recreated(self, at: int, topic: str) -> list[Sample]:
        """Let a topic be gone, or begin again under another id."""
        self.ends |= {key: 5 for key in self.ends if key[0] == topic}
        if self.ids[topic] is None or self.chance.random() < 0.5:
            return [gone(at, topic)]
        self.ids[topic] = topic_id = f"{topic}-{at}"
        return [of_topic(at, topic, topic_id), Sample(at, topic, 0, 5, topic_id)]

    def rows(self, **parameters: Any) -> list[dict[str, Any]]:
        at = {name: from_ms(TIMES[name]) for name in ("since", "until")}
        rows: list[dict[str, Any]] = self.queries.lag_over_time(
            None, **at, every_ms=EVERY, **parameters
        ).rows.to_pylist()
        return rows


@pytest.fixture(
    scope="module", params=[0, *(pytest.param(seed, marks=pytest.mark.more) for seed in (1, 2, 3, 4))]
)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"), request.param)


def test_a_series_has_the_lag_as_of_each_of_its_moments(world: World) -> None:
    found = world.rows()
    for moment in map(from_ms, MOMENTS):
        expected = world.queries.list_offsets(as_of=moment).rows.to_pylist()
        own = [row for row in found if row["at"] == moment]
        assert [(row["group"], row["topic"], row["partition"]) for row in own] == [
            (row["group"], row["topic"], row["partition"]) for row in expected
        ]
        for row, one in zip(own, expected, strict=True):
            if one["unreadable_source_offset"] is None:
                assert row["committed_offset"] == one["committed_offset"]
                assert {name: row[name] for name in LAG.names} == {name: one[name] for name in LAG.names}
            else:
                assert row["committed_offset"] is None
    lags = [row["lag"] for row in found]
    assert None in lags
    assert min(lag for lag in lags if lag is not None) < 0 < max(lag for lag in lags if lag is not None)


def summed(rows: list[dict[str, Any]], name: str, least: int) -> float | None:
    values = [row[name] for row in rows]
    return None if not values or None in values else sum(max(value, least) for value in values)


@pytest.mark.parametrize("topics", [[], [TopicPartitions("a", frozenset({0}))], [TopicPartitions("zzz")]])
def test_sums_are_those_of_the_rows(
    world: World, topics: list[TopicPartitions], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = world.rows(topics=topics)

    def sums() -> tuple[list[dict[str, Any]], str | None]:
        answer = world.tables.ask(
            lambda at: lag.SnapshotLagQueries(at).lag_sums_over_time(None, topics, **TIMES),
            now=T0 + MINUTES * M + 30 * S,
        )
        assert answer.rows.schema == LAG_SUMS
        return answer.rows.to_pylist(), answer.as_of.why_no_lag

    expected = [
        {
            "at": moment,
            "partitions": len(own := [row for row in rows if row["at"] == moment]),
            "lag": summed(own, "lag", 0),
            "log_end_offset": summed(own, "log_end_offset", -1),
            "committed_offset": summed(own, "committed_offset", -1),
        }
        for moment in map(from_ms, MOMENTS)
    ]
    assert sums() == (expected, None)
    monkeypatch.setattr(lag_rows, "_SAMPLES_AT_ONCE", 1)
    assert sums() == (expected, None)
    assert world.rows(topics=topics) == rows
    monkeypatch.setattr(lag, "MOST_SAMPLES", 0)
    found, why = sums()
    assert found == [row | {"lag": None, "log_end_offset": None} for row in expected]
    assert (why is None) == (not rows)
