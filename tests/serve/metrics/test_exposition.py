"""What scrapers get: which series there are, under which names, and what outside tools think of it."""

import gzip
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from assessed_world import MEMBERS, AssessedWorld
from metrics_page import PAGE, with_tables
from metrics_read import Labels, Maker, Read, by, older, read
from prometheus import missing_programs, promtool
from table_batches import Batch, append, group, offset

from streaming.common.times import MINUTE_MS, now_ms
from streaming.model.errors import MisuseError
from streaming.model.progress import Reached, Rebuild
from streaming.serve.assessment.assessment import Assessment
from streaming.serve.assessment.counters import Counters
from streaming.serve.memory.past import PastCounts
from streaming.serve.memory.snapshot import MemorySnapshot
from streaming.serve.metrics.catalogue import CATALOGUE, OWN_LABELS
from streaming.serve.metrics.catalogue.schemes import NOT_HAD, SCHEMES
from streaming.serve.metrics.exposition import Exposition, written, zipped
from streaming.serve.metrics.source import KafkaCounts, MetricsSource

KAFKA = KafkaCounts(
    requests={("OffsetFetch", "9"): 3, ("ListGroups", "5"): 0},
    software={("apache-kafka-java", "4.3.1"): 2, ("unknown", "unknown"): 1},
    errors={("OffsetFetch", "GROUP_AUTHORIZATION_FAILED"): 7},
    connections=2,
    closed={"size": 4, "idle": 0},
    past=PastCounts(2, 5),
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> AssessedWorld:
    return AssessedWorld(tmp_path_factory.mktemp("exposition"), now_ms(), 7)


@pytest.fixture(scope="module")
def maker(world: AssessedWorld) -> Maker:
    return Maker(world.tables, granularity="partition")


@pytest.fixture(scope="module")
def source(maker: Maker) -> MetricsSource:
    return maker.source(kafka=KAFKA)


def made(source: MetricsSource, **options: Any) -> Read:
    """The metrics of a source under other settings."""
    return read(made_bytes(source, **options))


def made_bytes(source: MetricsSource, **options: Any) -> bytes:
    metrics = replace(source.settings.metrics, **options)
    changed = replace(source, settings=replace(source.settings, metrics=metrics))
    return b"".join(written(Exposition(metrics).families(changed), "text"))


def of_groups(told: Read) -> set[str]:
    return {name for name in told if name.startswith(("offsetlake_group_", "offsetlake_topic_"))}


# --- names, and what promtool says -----------------------------------------------------------------------


def test_promtool_finds_nothing_to_say(source: MetricsSource) -> None:
    if why := missing_programs():
        pytest.skip(why)
    assert promtool("check", "metrics", text=made_bytes(source).decode()) == ""


def test_every_metric_of_the_catalogue_can_be_there(source: MetricsSource) -> None:
    told = made(source)
    rare = {"source_open_transaction_timestamp_seconds", "source_unanswered_timestamp_seconds"}
    rare |= {"group_topic_below_log_start_max", "alerts_undelivered"}
    rare |= {"group_removed_offsets_total", "group_unreadable_offsets", "group_topic_offsets_below_log_start"}
    assert {metric.full_name for metric in CATALOGUE if metric.name not in rare} - set(told) == set()
    assert set(told) <= {metric.full_name for metric in CATALOGUE}


def test_series_have_the_labels_of_the_catalogue(source: MetricsSource) -> None:
    told = made(source)
    for metric in CATALOGUE:
        for labels in told.get(metric.full_name, {}):
            assert {name for name, _ in labels} == set(metric.labels)


def test_the_page_has_every_metric_as_it_is_declared() -> None:
    text = PAGE.read_text()
    assert with_tables(text) == text, "run: PYTHONPATH=.:tests/support .venv/bin/python -m metrics_page"


def test_gzip_is_the_same(source: MetricsSource) -> None:
    pieces = written(Exposition(source.settings.metrics).families(source), "openmetrics")
    assert gzip.decompress(b"".join(zipped(pieces))) == b"".join(pieces)


# --- which there are -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("granularity", "finest"),
    [("group", r"group_(?!topic)"), ("topic", r"group_(?!topic_partition)"), ("partition", "")],
)
def test_granularity(source: MetricsSource, granularity: str, finest: str) -> None:
    found = of_groups(made(source, granularity=granularity))
    everything = of_groups(made(source))
    assert found == {name for name in everything if re.match(f"offsetlake_{finest}", name)}


def test_patterns_make_groups_coarser_or_finer(world: AssessedWorld) -> None:
    entries = [
        {"pattern": "group-1", "granularity": "none"},
        {"pattern": "group-*", "granularity": "partition"},
        {"pattern": "", "granularity": "group"},
    ]
    told = Maker(world.tables, granularity="topic", groups=entries).read()
    groups = set(by(told["offsetlake_group_commits_total"], "group"))
    topics = {group for group, _ in by(told["offsetlake_group_topic_position"], "group", "topic")}
    key = ("group", "topic", "partition")
    partitions = {group for group, *_ in by(told["offsetlake_group_topic_partition_committed_offset"], *key)}
    assert "group-1" not in groups
    assert "" in groups - topics
    assert partitions == {group for group in groups if group.startswith("group-")}
    withheld = by(told["offsetlake_series_withheld"], "reason")
    assert withheld["granularity"] > 0
    assert withheld["incomplete"] == withheld["idle"] == withheld["max_series"] == 0


def counts_by_group(told: Read) -> Counter[str]:
    """How many series each group has."""
    return Counter(
        dict(labels)["group"]
        for name in of_groups(told)
        if not name.startswith("offsetlake_topic_")
        for labels in told[name]
    )


def log_count(told: Read) -> int:
    """How many series are about logs."""
    return sum(len(series) for name, series in told.items() if name.startswith("offsetlake_topic_"))


def series_of(told: Read, groups: set[str]) -> dict[tuple[str, Labels], float]:
    """The series of some groups."""
    return {
        (name, labels): value
        for name in of_groups(told)
        for labels, value in told[name].items()
        if dict(labels).get("group") in groups
    }


def test_where_there_are_too_many_groups_go_whole(source: MetricsSource) -> None:
    whole = made(source)
    counts = counts_by_group(whole)
    most = sum(counts.values()) // 2
    told = made(source, max_series=most)
    left = counts_by_group(told)
    assert 0 < sum(left.values()) <= most
    assert series_of(told, set(left)) == series_of(whole, set(left))
    missing = set(counts) - set(left)
    withheld = sum(counts[group] for group in missing) + log_count(whole) - log_count(told)
    assert by(told["offsetlake_series_withheld"], "reason")["max_series"] == withheld
    assert told["offsetlake_groups_withheld"] == {(): len(missing)}
    members = by(whole["offsetlake_group_members"], "group")
    are_members_in = [group in left for group, count in members.items() if count]
    assert any(are_members_in)
    assert all(are_members_in) or not any(group in left for group, count in members.items() if not count)


def test_where_there_is_no_room_the_job_stays(source: MetricsSource) -> None:
    nothing = made(source, max_series=1)
    assert of_groups(nothing) == set()
    assert nothing["offsetlake_groups_withheld"] == {(): len(counts_by_group(made(source)))}
    assert "offsetlake_heartbeat_timestamp_seconds" in nothing


@pytest.mark.more
def test_groups_that_come_are_withheld_and_those_that_were_there_stay(tmp_path: Path) -> None:
    world = AssessedWorld(tmp_path, now_ms(), 7)
    maker = Maker(world.tables, world.now, granularity="partition")
    whole = maker.read()
    most = sum(counts_by_group(whole).values()) + log_count(whole)
    exposition = Exposition(replace(maker.settings.metrics, max_series=most))

    def told() -> Read:
        return read(b"".join(written(exposition.families(maker.source()), "text")))

    assert series_of(told(), set(counts_by_group(whole))) == series_of(whole, set(counts_by_group(whole)))
    assert exposition.lacks == {"": ""}
    flood: Batch = {}
    for number in range(20):  # older than all others, and with members
        flood[f"a flood {number}"] = group(members=MEMBERS, state_timestamp=1, source_partition=3)
        flood[f"a flood {number}", "orders", 0] = offset(commit_timestamp=1, source_partition=3)
    append(world.tables, flood, now=world.now)
    flooded = told()
    assert flooded["offsetlake_groups"] == {(): len(counts_by_group(whole)) + 20}
    assert counts_by_group(flooded) == counts_by_group(whole)
    assert log_count(flooded) == log_count(whole)
    assert flooded["offsetlake_groups_withheld"] == {(): 20}
    assert "a flood 0 (" in exposition.lacks[""]
    append(world.tables, dict.fromkeys(flood), live=flood, now=world.now)
    assert told()["offsetlake_groups_withheld"] == {(): 20}  # gone, and counted


@pytest.mark.more
def test_of_groups_that_have_no_offsets_the_older_precede(tmp_path: Path) -> None:
    world = AssessedWorld(tmp_path, now_ms(), 7)
    came = {"a new one": world.now, "b old one": 1}
    groups: Batch = {
        name: group(state="Empty", state_timestamp=at, source_partition=3) for name, at in came.items()
    }
    append(world.tables, groups, now=world.now)
    counts = counts_by_group(Maker(world.tables, world.now).read())
    assert counts["a new one"] == counts["b old one"] > 0
    unknown = "two\nlines"  # nothing says since when it is there: it comes last
    told = Maker(world.tables, world.now, max_series=sum(counts.values()) - counts[unknown] - 1).read()
    assert counts.keys() - counts_by_group(told).keys() == {"a new one", unknown}


def test_idle_groups_are_left_out_if_asked_for(world: AssessedWorld, source: MetricsSource) -> None:
    last = by(made(source)["offsetlake_group_last_commit_timestamp_seconds"], "group")
    told = made(source, idle_after_ms=10 * MINUTE_MS)
    kept = by(told["offsetlake_group_last_commit_timestamp_seconds"], "group")
    members = by(made(source)["offsetlake_group_members"], "group")
    assert kept == {
        group: at for group, at in last.items() if at >= world.now / 1_000 - 600 or members.get(group)
    }
    assert kept != last
    assert set(kept) < set(last)
    assert by(told["offsetlake_series_withheld"], "reason")["idle"] > 0


def test_labels_of_the_settings_are_on_every_series(source: MetricsSource) -> None:
    told = made(source, labels={"env": 'a "b"'})
    assert all(dict(labels)["env"] == 'a "b"' for series in told.values() for labels in series)


def test_the_cluster_of_kafka_lag_exporter_has_the_name_that_the_settings_give(source: MetricsSource) -> None:
    named = made(source, names="kafka-lag-exporter", labels={"cluster_name": "production"})
    assert all(dict(labels)["cluster_name"] == "production" for series in named.values() for labels in series)
    by_id = made(source, names="kafka-lag-exporter")["kafka_consumergroup_group_sum_lag"]
    assert {dict(labels)["cluster_name"] for labels in by_id} == {source.snapshot.progress.cluster_id}


@pytest.mark.parametrize(
    "name",
    ["group", "9x", "le", "__name__", "a-b", "job", "instance", "severity", "trouble", "groups", "alertname"],
)
def test_labels_that_cannot_be_are_refused(source: MetricsSource, name: str) -> None:
    with pytest.raises(MisuseError, match=r"metrics\.labels: expected names"):
        made(source, labels={name: "x"})
    assert "group" in OWN_LABELS


# --- left out rather than wrong ----------------------------------------------------------------------------


def test_groups_end_with_the_heartbeat_and_the_job_stays(source: MetricsSource) -> None:
    age = source.settings.tables.complete_within_ms
    late = older(source, source.snapshot.progress.heartbeat + age - source.now)
    assert of_groups(read(made_bytes(late)))
    later = read(made_bytes(older(late, 1)))
    assert of_groups(later) == set()
    assert by(later["offsetlake_series_withheld"], "reason")["incomplete"] > 0
    heartbeat = later["offsetlake_heartbeat_timestamp_seconds"][()]
    assert heartbeat == source.snapshot.progress.heartbeat / 1_000


@pytest.mark.more
def test_groups_have_no_metrics_where_the_heartbeat_is_to_come(source: MetricsSource) -> None:
    age = source.settings.tables.complete_within_ms
    early = older(source, source.snapshot.progress.heartbeat - age - source.now)
    assert of_groups(read(made_bytes(early)))
    earlier = read(made_bytes(older(early, -1)))
    assert of_groups(earlier) == set()
    assert by(earlier["offsetlake_series_withheld"], "reason")["incomplete"] > 0


@pytest.mark.parametrize(
    ("what", "changed"),
    [
        ("not loaded", {"loaded": False}),
        ("behind", {"whole": Reached(as_of=1)}),
        ("held back", {"open_transaction_since": 1, "whole": Reached(as_of=1)}),
    ],
)
def test_groups_of_partitions_that_cannot_be_judged_are_left_out(
    world: AssessedWorld, source: MetricsSource, what: str, changed: dict[str, Any]
) -> None:
    progress = source.snapshot.progress
    partitions = {3: world.partition(world.now, **changed), 4: world.partition(world.now)}
    snapshot = replace(source.snapshot, progress=replace(progress, partitions=partitions))
    told = made(replace(source, snapshot=snapshot))
    found, everything = (
        {group for group in by(one["offsetlake_group_commits_total"], "group") if "~" not in group}
        for one in (told, made(source))
    )
    assert found == {group for group in everything if len(group) % 2}, what
    assert found != everything


def test_nothing_is_said_of_groups_while_the_tables_are_rebuilt(source: MetricsSource) -> None:
    rebuild = Rebuild(since=source.now, reason="the topic was recreated")
    snapshot = replace(source.snapshot, progress=replace(source.snapshot.progress, rebuild=rebuild))
    told = made(replace(source, snapshot=snapshot))
    assert {name for name in of_groups(told) if name.startswith("offsetlake_group")} == set()
    assert told["offsetlake_rebuild_in_progress"][()] == 1


def test_before_anything_was_read(source: MetricsSource) -> None:
    nothing = replace(
        source,
        snapshot=MemorySnapshot.none(),
        assessment=Assessment.none(),
        counters=Counters(),
        failures=["offsets"],
    )
    told = made(nothing)
    assert of_groups(told) == set()
    assert told["offsetlake_tables_readable"][()] == 0
    assert "offsetlake_heartbeat_timestamp_seconds" not in told


# --- names of others ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", SCHEMES)
def test_names_of_others(source: MetricsSource, names: str) -> None:
    ours, theirs = made(source), made(source, names=names)
    assert of_groups(theirs) == set()
    foreign = {one.name: one for one in SCHEMES[names]}
    assert {name for name in theirs if not name.startswith("offsetlake_")} == set(foreign)
    for name, one in foreign.items():
        own = ours[f"offsetlake_{one.of}"]
        assert len(theirs[name]) == len(own)
        if one.values is None:
            assert sorted(theirs[name].values()) == sorted(own.values())
        elif one.of != "group_info":
            assert min(theirs[name].values()) >= 0
        for labels in theirs[name]:
            assert {label for label, _ in labels} == set(one.labels)
    assert not set(NOT_HAD[names]) & set(foreign)


def test_a_board_of_kafka_exporter_finds_its_series(source: MetricsSource) -> None:
    theirs, ours = made(source, names="kafka_exporter"), made(source)
    key = ("consumergroup", "topic")
    sums = by(theirs["kafka_consumergroup_lag_sum"], *key)
    assert sums == by(ours["offsetlake_group_topic_lag"], "group", "topic")


def test_kminion_says_which_groups_are_stable(source: MetricsSource) -> None:
    theirs = made(source, names="kminion")["kminion_kafka_consumer_group_info"]
    assert {dict(labels)["state"]: value for labels, value in theirs.items()} == {"Stable": 1, "Empty": 0}
    assert {dict(labels)["coordinator_id"] for labels in theirs} == {""}


# --- counters ----------------------------------------------------------------------------------------------


def test_the_requests_of_the_kafka_endpoint(source: MetricsSource) -> None:
    told = made(source)
    by_api = by(told["offsetlake_kafka_requests_total"], "api", "version")
    assert by_api == {("OffsetFetch", "9"): 3, ("ListGroups", "5"): 0}
    named = ("client_software_name", "client_software_version")
    assert by(told["offsetlake_kafka_client_requests_total"], *named) == KAFKA.software
    assert by(told["offsetlake_kafka_errors_total"], "api", "error") == KAFKA.errors
    assert told["offsetlake_kafka_connections"][()] == 2
    assert by(told["offsetlake_kafka_connections_closed_total"], "reason") == {"size": 4, "idle": 0}
    past = ("offsetlake_kafka_past_snapshots", "offsetlake_kafka_past_snapshots_built_total")
    assert [told[name][()] for name in past] == [2, 5]
    assert "offsetlake_kafka_requests_total" not in made(replace(source, kafka=None))
    assert not set(past) & set(made(replace(source, kafka=replace(KAFKA, past=None))))
