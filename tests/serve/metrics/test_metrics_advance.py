"""Metrics follow the tables: what was committed, read again, or is away for a while."""

import shutil
from pathlib import Path

import pytest
from alert_tables import DAY, RETENTION, Lake
from assessed_world import AssessedWorld
from metrics_read import Maker, by
from table_batches import append, offset

from streaming.alerts.table import AlertTable, Delivery
from streaming.common.times import MINUTE_MS, now_ms
from streaming.lag.health_rules import HealthRules
from streaming.model.progress import PartitionProgress, Reached
from streaming.queries.lag import LagQueries
from streaming.serve.assessment.refresher import Refresher
from streaming.serve.memory.tailer import Tailer
from streaming.settings.reading import read_settings
from streaming.tables.tables import Tables


@pytest.fixture
def world(tmp_path: Path) -> AssessedWorld:
    return AssessedWorld(tmp_path / "world", now_ms(), 11)


def test_a_commit_is_in_the_next_ones(world: AssessedWorld) -> None:
    maker = Maker(world.tables)
    before = by(maker.read()["offsetlake_group_lag"], "group")
    key = next(key for key, habit in world._habits.items() if habit == "stopped" and key[1] == "orders")
    end = world._log_of[key].end_at(world.now)
    times = {"commit_timestamp": world.now, "source_timestamp": world.now}
    world.append(
        {key: offset(committed_offset=end, source_partition=world._source(key[0]), **times)}, world.now
    )
    world.live(world.now)
    told = maker.read()
    after = by(told["offsetlake_group_lag"], "group")
    assert after != before
    answered = {
        row["group"]: row["lag"]
        for row in LagQueries(world.tables).list_lag().rows.to_pylist()
        if row["lag"] is not None
    }
    assert {group: lag for group, lag in after.items() if "~" not in group} == {
        group: lag for group, lag in answered.items() if "\0" not in group and len(group) < 256
    }


def test_what_cannot_be_read_stays_for_five_minutes_and_is_reported(
    world: AssessedWorld, said: list[str]
) -> None:
    times = [world.now]
    settings = read_settings()
    tailer = Tailer(world.tables, clock=lambda: times[0])
    assert tailer.poll()
    refresher = Refresher(
        world.tables,
        lambda: tailer.current,
        health=HealthRules(),
        expiry=settings.expiry,
        clock=lambda: times[0],
    )
    assessment = refresher.make()
    assert assessment.moment == world.now
    shutil.rmtree(world.root)
    times[0] += 299_000
    assert refresher.make().moment == world.now
    times[0] += 2_000
    assert refresher.make().moment == 0
    assert len([sentence for sentence in said if "lag and status cannot be refreshed" in sentence]) == 1


def test_a_assessment_is_of_the_snapshot_though_the_tables_have_gone_on(world: AssessedWorld) -> None:
    tailer = Tailer(world.tables, clock=lambda: world.now)
    assert tailer.poll()
    refresher = Refresher(
        world.tables,
        lambda: tailer.current,
        health=HealthRules(),
        expiry=read_settings().expiry,
        clock=lambda: world.now,
    )
    before = refresher.make().positions
    keys = list(world._habits)
    times = {"commit_timestamp": world.now, "source_timestamp": world.now}
    world.append(
        {key: offset(committed_offset=1, source_partition=world._source(key[0]), **times) for key in keys},
        world.now,
    )
    after = refresher.make().positions
    assert after["status"].tolist() == before["status"].tolist()
    assert after["lag"].tolist() == before["lag"].tolist()


@pytest.mark.more
def test_how_long_the_newest_batch_took_is_reported_once_it_is_known(world: AssessedWorld) -> None:
    maker, told = Maker(world.tables), "offsetlake_batch_duration_seconds"
    assert maker.read()[told] == {(): 1.5}
    world.live(world.now, batch_ms=60_001)
    assert maker.read()[told] == {(): 60.001}
    world.live(world.now, batch_ms=None)  # as an older release leaves it
    assert told not in maker.read()


def test_what_receivers_of_alerts_have_not_got_is_reported(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.evaluated_at = lake.now
    for name in ("one", "two"):
        lake.commit(name, at=lake.now - RETENTION + DAY)
    maker = Maker(lake.tables)
    assert maker.read().get("offsetlake_alerts_undelivered", {}) == {}
    refused, other = (episode.id for episode in lake.evaluate(receivers=["webhook"]))
    alerts = AlertTable(lake.tables)
    alerts.note({refused: Delivery(receiver="webhook", revision=1, error="HTTP status 400")})
    told = maker.read()
    counts = by(told["offsetlake_alerts_undelivered"], "receiver", "reason")
    assert counts == {("webhook", "waiting"): 1, ("webhook", "refused"): 1}
    assert told["offsetlake_alerts_evaluated_timestamp_seconds"] == {(): lake.now / 1_000}
    alerts.note({other: Delivery(receiver="webhook", revision=1)})
    counts = by(maker.read()["offsetlake_alerts_undelivered"], "receiver", "reason")
    assert counts == {("webhook", "waiting"): 0, ("webhook", "refused"): 1}


def test_before_anything_was_read_there_are_no_zeros(tables: Tables) -> None:
    maker = Maker(tables)
    names = {
        f"offsetlake_{name}" for name in ("groups", "committed_offsets", "rebuild_in_progress", "alerts_open")
    }
    assert not names & set(maker.read())
    append(tables, {}, partitions={0: PartitionProgress()})
    told = maker.read()
    assert {name for name in names if set(told[name].values()) == {0}} == names


@pytest.mark.parametrize("names", ["offsetlake", pytest.param("kafka_exporter", marks=pytest.mark.more)])
def test_log_ends_are_reported_as_long_as_they_are_sampled(world: AssessedWorld, names: str) -> None:
    maker = Maker(world.tables, now=world.now, granularity="partition", names=names)
    ends = {
        "offsetlake": (
            "offsetlake_topic_partition_log_start_offset",
            "offsetlake_topic_partition_log_end_offset",
        ),
        "kafka_exporter": ("kafka_topic_partition_oldest_offset", "kafka_topic_partition_current_offset"),
    }[names]
    assert set(ends) <= set(maker.read())
    maker.now = world.now + 6 * MINUTE_MS
    world.live(maker.now)
    told = maker.read()
    assert not set(ends) & set(told)
    assert told["offsetlake_log_ends_timestamp_seconds"] == {(): pytest.approx(world.now / 1_000, abs=90)}


def test_offsets_below_0_are_given_as_they_are(tables: Tables) -> None:
    values = {0: -1, 1: -5, 2: None}
    batch = {
        ("g", "t", number): offset(
            committed_offset=value, unreadable_source_offset=1 if value is None else None
        )
        for number, value in values.items()
    }
    now = now_ms()
    state = PartitionProgress(loaded=True, whole=Reached(as_of=now), stable=Reached(as_of=now))
    append(tables, batch, now=now, partitions={3: state})
    told = Maker(tables, now=now, granularity="partition").read()
    found = by(told["offsetlake_group_topic_partition_committed_offset"], "partition")
    assert found == {"0": -1, "1": -5}
    assert set(told["offsetlake_group_topic_position"].values()) == {-6}
