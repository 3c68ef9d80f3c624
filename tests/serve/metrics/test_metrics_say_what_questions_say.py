"""Metrics say of groups what `lag`, `health`, `expiring`, `groups` and `offsets` say of the same tables."""

from collections import Counter, defaultdict
from typing import Any

import pyarrow as pa
import pytest
from assessed_world import AssessedWorld
from metrics_read import Maker, Read, by

from streaming.alerts.evaluation import Evaluator
from streaming.alerts.table import AlertTable
from streaming.common.times import now_ms, to_ms
from streaming.lag.health_rules import STATUSES
from streaming.queries.expiring import list_expiring
from streaming.queries.lag import LagQueries
from streaming.queries.offsets import OffsetQueries
from streaming.serve.metrics.labels import label_values
from streaming.settings.reading import read_settings

PREFIX = "offsetlake_group"


@pytest.fixture(scope="module", params=[1, 2])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AssessedWorld:
    return AssessedWorld(tmp_path_factory.mktemp("assessment"), now_ms(), request.param)


@pytest.fixture(scope="module")
def maker(world: AssessedWorld) -> Maker:
    return Maker(world.tables, granularity="partition")


@pytest.fixture(scope="module")
def told(maker: Maker) -> Read:
    return maker.read()


def shown(name: str) -> str:
    """A name as the label shows it once it is read back."""
    text = label_values(pa.array([name]))[0].as_py()
    return text.replace("\\\\", "\0").replace("\\n", "\n").replace('\\"', '"').replace("\0", "\\")


def rows(table: Any) -> list[dict[str, Any]]:
    return [
        {**row, "group": shown(row["group"])} if row.get("group") is not None else row
        for row in table.to_pylist()
    ]


def test_lag_of_groups(world: AssessedWorld, told: Read) -> None:
    answered = rows(LagQueries(world.tables).list_lag().rows)
    assert by(told[f"{PREFIX}_lag"], "group") == {
        row["group"]: row["lag"] for row in answered if row["lag"] is not None
    }
    assert by(told[f"{PREFIX}_lag_seconds"], "group") == pytest.approx(
        {row["group"]: row["lag_seconds"] for row in answered if row["lag_seconds"] is not None}, abs=1e-5
    )
    assert set(by(told[f"{PREFIX}_lag_at_least"], "group")) == {
        row["group"] for row in answered if row["lag_is_at_least"] and row["lag"] is not None
    }


def test_offsets_beyond_the_end_of_their_log(world: AssessedWorld, told: Read) -> None:
    counted = by(told[f"{PREFIX}_offsets_beyond_log_end"], "group")
    assert counted
    answered = rows(LagQueries(world.tables).list_lag().rows)
    assert counted == {
        row["group"]: row["partitions_beyond_end"] for row in answered if row["partitions_beyond_end"]
    }
    judged = rows(LagQueries(world.tables).partition_health().rows)
    assert counted == Counter(row["group"] for row in judged if row["reason"] == "beyond the log end")
    evaluator = Evaluator(
        world.tables,
        AlertTable(world.tables),
        read_settings(options={"alerts.offset_beyond_log_end": "on"}).alerts,
        receivers=[],
        ask_log_ranges=None,
        clock=lambda: world.now,
    )
    found = [episode.finding for episode in evaluator.evaluate() if episode.rule == "offset_beyond_log_end"]
    assert counted == {shown(str(finding.group)): finding.facts["offsets"] for finding in found}


def test_status_of_groups(world: AssessedWorld, told: Read) -> None:
    answered = rows(LagQueries(world.tables).health().rows)
    expected = {row["group"]: STATUSES.index(row["status"]) for row in answered}
    assert by(told[f"{PREFIX}_status"], "group") == expected
    assert len(set(expected.values())) > 2
    without_offsets = set(expected) - {
        row["group"] for row in rows(OffsetQueries(world.tables).list_offsets().rows)
    }
    assert without_offsets, "a group whose members have partitions, and commit nothing"


def test_positions(world: AssessedWorld, told: Read) -> None:
    answered = rows(LagQueries(world.tables).list_offsets(with_former=True).rows)
    key = ("group", "topic", "partition")

    def expected(column: str) -> dict[tuple[str, str, str], Any]:
        return {
            (row["group"], row["topic"], str(row["partition"])): row[column]
            for row in answered
            if row[column] is not None
        }

    partition = f"{PREFIX}_topic_partition"
    assert by(told[f"{partition}_committed_offset"], *key) == expected("committed_offset")
    assert by(told[f"{partition}_lag"], *key) == expected("lag")
    assert min(expected("lag").values()) < 0
    assert by(told[f"{partition}_lag_seconds"], *key) == pytest.approx(expected("lag_seconds"), abs=1e-5)
    times = {place: to_ms(at) / 1_000 for place, at in expected("commit_timestamp").items()}
    assert by(told[f"{partition}_commit_timestamp_seconds"], *key) == times
    former: dict[tuple[str, str], int] = defaultdict(int)
    sums: dict[tuple[str, str], int] = defaultdict(int)
    oldest: dict[tuple[str, str], float] = {}
    assert any(row["committed_offset"] is None for row in answered)
    for row in answered:
        if row["committed_offset"] is None:  # a member has the partition
            continue
        place = row["group"], row["topic"]
        former[place] += bool(row["of_recreated_topic"])
        sums[place] += row["committed_offset"]
        at = to_ms(row["commit_timestamp"]) / 1_000
        oldest[place] = min(at, oldest.get(place, at))
    counted = by(told[f"{PREFIX}_topic_offsets_of_recreated_topic"], "group", "topic")
    assert counted == {place: count for place, count in former.items() if count}
    assert counted
    assert by(told[f"{PREFIX}_topic_position"], "group", "topic") == sums
    assert by(told[f"{PREFIX}_topic_oldest_commit_timestamp_seconds"], "group", "topic") == oldest


def test_lag_of_topics(world: AssessedWorld, told: Read) -> None:
    sums: dict[tuple[str, str], int] = defaultdict(int)
    longest: dict[tuple[str, str], float] = defaultdict(float)
    for row in rows(LagQueries(world.tables).list_offsets().rows):
        if row["lag"] is not None:
            sums[row["group"], row["topic"]] += max(row["lag"], 0)
        if row["lag_seconds"] is not None:
            place = row["group"], row["topic"]
            longest[place] = max(longest[place], row["lag_seconds"])
    assert by(told[f"{PREFIX}_topic_lag"], "group", "topic") == sums
    seconds = by(told[f"{PREFIX}_topic_lag_seconds"], "group", "topic")
    assert seconds == pytest.approx(longest, abs=1e-5)


def test_expiry(world: AssessedWorld, maker: Maker, told: Read) -> None:
    listing = list_expiring(world.tables, settings=maker.settings.expiry, now=maker.now)
    soonest: dict[tuple[str, str], float] = {}
    for row in rows(listing.rows):
        if row["expires_at"] is not None:
            key, at = (row["group"], row["rule"]), to_ms(row["expires_at"]) / 1_000
            soonest[key] = min(at, soonest.get(key, at))
    assert by(told[f"{PREFIX}_expiry_timestamp_seconds"], "group", "rule") == soonest
    assert len({rule for _, rule in soonest}) > 2


def test_groups(world: AssessedWorld, told: Read) -> None:
    described = rows(OffsetQueries(world.tables).list_groups().rows)
    words = ("group", "type", "state", "protocol_type")
    assert set(by(told[f"{PREFIX}_info"], *words)) == {
        tuple(row[word] for word in words) for row in described
    }
    assert by(told[f"{PREFIX}_members"], "group") == {row["group"]: len(row["members"]) for row in described}
    topics = {row["group"]: row["subscribed_topics"] for row in described if row["members"]}
    assert any(row["subscribed_topics"] == [] and not row["members"] for row in described)
    subscribed = by(told[f"{PREFIX}_topic_subscribed"], "group", "topic")
    assert subscribed == {
        (row["group"], row["topic"]): row["topic"] in topics[row["group"]]
        for row in rows(OffsetQueries(world.tables).list_offsets().rows)
        if topics.get(row["group"]) is not None
    }
    assert set(subscribed.values()) == {0, 1}


def test_unreadable_offsets(world: AssessedWorld, told: Read) -> None:
    counts: dict[str, int] = defaultdict(int)
    for row in rows(OffsetQueries(world.tables).list_offsets().rows):
        counts[row["group"]] += row["unreadable_source_offset"] is not None
    assert by(told.get(f"{PREFIX}_unreadable_offsets", {}), "group") == {
        group: count for group, count in counts.items() if count
    }


def test_both_formats_say_the_same(maker: Maker) -> None:
    source = maker.source()
    assert maker.read("text", source) == maker.read("openmetrics", source)
