"""Every state of an offsets partition in every view: whoever answers goes by one definition, and so do these.

The table says of each state what each view does. A group has one offset, which expires in an hour.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from new_tables import new_tables
from table_batches import append, group, offset

from streaming.alerts.evaluation import Evaluator
from streaming.alerts.table import AlertTable
from streaming.common.times import HOUR_MS, MINUTE_MS, from_ms, now_ms
from streaming.lag.health_rules import HealthRules
from streaming.lag.positions import with_currency
from streaming.model.completeness import COMPLETE_WITHIN_MS, Completeness
from streaming.model.progress import PartitionEnds, PartitionProgress, Progress, Reached, Rebuild, Retention
from streaming.queries.as_of import IncompleteError
from streaming.queries.expiring import list_expiring
from streaming.queries.lag import LagQueries
from streaming.queries.offsets import OffsetQueries
from streaming.queries.sql import run_sql
from streaming.queries.status import partitions
from streaming.serve.assessment.assessment import assessment_of
from streaming.serve.assessment.complete import complete_groups, is_ready
from streaming.serve.kafka.configs import answer_configs
from streaming.serve.kafka.errors import Error
from streaming.serve.kafka.groups import answer_consumer_groups, answer_descriptions, answer_groups
from streaming.serve.kafka.offsets import answer_offsets
from streaming.serve.kafka.view import Address, Client, RequestContext
from streaming.serve.memory.tailer import Tailer
from streaming.settings.reading import read_settings
from streaming.tables.tables import Tables

RETENTION_MS = 7 * 24 * HOUR_MS
LONG_MS = COMPLETE_WITHIN_MS + MINUTE_MS
LOADING, NO_COORDINATOR = Error.COORDINATOR_LOAD_IN_PROGRESS, Error.COORDINATOR_NOT_AVAILABLE
EXPIRY = read_settings().expiry
READ = PartitionProgress().with_ends(PartitionEnds(5, 5), 0).at(5)


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What views do: `state` as `status` shows it, the first words of what commands say (None: nothing, and
    `--require-complete` is content), whether rows are answered, the rule of expiry, whether alerts judge,
    metrics show, and health may say that a group has stopped (`is_judged`: all three), and Kafka's error."""

    state: str
    said: str | None = None
    has_rows: bool = True
    rule: str = "simple"
    is_judged: bool = False
    error: Error = Error.NONE


@dataclass(frozen=True, kw_only=True)
class Case:
    """A progress at a moment (ms), and what is expected of the views."""

    progress: Callable[[int], Progress]
    expected: Expected


def of(change: Callable[[int], PartitionProgress], **changed: Any) -> Callable[[int], Progress]:
    return lambda now: Progress(heartbeat=now, partitions={0: change(now)}, **changed)


def read(now: int, ago: int) -> PartitionProgress:
    """A partition that was read whole some time ago."""
    return READ.with_ends(PartitionEnds(5, 5), now - ago)


def rebuilding(ago: int) -> Callable[[int], Progress]:
    return lambda now: Progress(
        heartbeat=now, partitions={0: read(now, ago)}, rebuild=Rebuild(since=now - ago, reason="a test")
    )


def held_back(now: int, ago: int) -> PartitionProgress:
    opened = read(now, ago).with_ends(PartitionEnds(5, 9), now - ago)
    return opened.with_ends(PartitionEnds(5, 9), now)


def unread(now: int, ago: int) -> PartitionProgress:
    return read(now, ago).with_ends(PartitionEnds(9, 9), now - ago).with_ends(PartitionEnds(9, 9), now)


FINE = Expected(state="current", is_judged=True)
STALLED = Expected(state="stalled", said="offsets partitions 0 are stalled", rule="unknown (stalled)")
CASES: dict[str, Case] = {
    "read to its end": Case(progress=of(lambda now: read(now, 0)), expected=FINE),
    "read to an end of a while ago": Case(progress=of(lambda now: read(now, MINUTE_MS)), expected=FINE),
    "not read for a while": Case(progress=of(lambda now: unread(now, MINUTE_MS)), expected=FINE),
    "not read for long": Case(
        progress=of(lambda now: unread(now, LONG_MS)),
        expected=Expected(state="behind", said="offsets partitions 0 are behind", error=LOADING),
    ),
    "a transaction open for a while": Case(progress=of(lambda now: held_back(now, MINUTE_MS)), expected=FINE),
    "a transaction open for long": Case(
        progress=of(lambda now: held_back(now, LONG_MS)), expected=replace(STALLED, error=LOADING)
    ),
    "a transaction open since before the first look": Case(
        progress=of(lambda now: PartitionProgress().with_ends(PartitionEnds(5, 9), now).at(5)),
        expected=replace(STALLED, error=LOADING),
    ),
    "a leader that is away for a while": Case(
        progress=of(lambda now: read(now, MINUTE_MS).without_answer(now - MINUTE_MS)), expected=FINE
    ),
    "a leader that is away for long, and all was read": Case(
        progress=of(lambda now: read(now, LONG_MS).without_answer(now - LONG_MS)),
        expected=Expected(state="unanswered", said="the brokers have not answered for offsets partitions 0"),
    ),
    "a leader that is away for long, and not all was read": Case(
        progress=of(
            lambda now: (
                read(now, LONG_MS).with_ends(PartitionEnds(9, 9), now - LONG_MS).without_answer(now - LONG_MS)
            )
        ),
        expected=Expected(state="behind", said="offsets partitions 0 are behind", error=LOADING),
    ),
    "still being read": Case(
        progress=of(lambda now: PartitionProgress().with_ends(PartitionEnds(9, 9), now).at(5)),
        expected=Expected(
            state="loading",
            said="COORDINATOR_LOAD_IN_PROGRESS: offsets partitions 0",
            has_rows=False,
            error=LOADING,
        ),
    ),
    "a rebuild that has just begun": Case(
        progress=rebuilding(MINUTE_MS),
        expected=Expected(state="rebuilding", said="a rebuild has been in progress"),
    ),
    "a rebuild that takes long": Case(
        progress=rebuilding(LONG_MS),
        expected=Expected(state="rebuilding", said="a rebuild has been in progress", error=LOADING),
    ),
    "a job that was silent for a while": Case(
        progress=lambda now: Progress(heartbeat=now - MINUTE_MS, partitions={0: read(now - MINUTE_MS, 0)}),
        expected=FINE,
    ),
    "a job that was silent for long": Case(
        progress=lambda now: Progress(heartbeat=now - LONG_MS, partitions={0: read(now - LONG_MS, 0)}),
        expected=Expected(state="current", said="the job's last heartbeat was", error=NO_COORDINATOR),
    ),
    "a job whose clock is ahead": Case(
        progress=lambda now: Progress(heartbeat=now + LONG_MS, partitions={0: read(now + LONG_MS, 0)}),
        expected=Expected(state="current", said="the job's last heartbeat is", error=NO_COORDINATOR),
    ),
}


@dataclass(frozen=True, kw_only=True)
class World:
    """Tables with a group at a moment (ms), and what is expected of their views."""

    tables: Tables
    now: int
    expected: Expected


@pytest.fixture(scope="module", params=CASES.values(), ids=CASES.keys())
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    case: Case = request.param
    tables, now = new_tables(tmp_path_factory.mktemp("tables")), now_ms()
    progress = case.progress(now)
    committed_at = now - RETENTION_MS + HOUR_MS
    held = {
        "g": group(source_partition=0, state="Empty", protocol_type="", state_timestamp=committed_at),
        ("g", "orders", 0): offset(source_partition=0, source_offset=1, commit_timestamp=committed_at),
    }
    kept = Retention(
        retention_ms=RETENTION_MS, check_interval_ms=1, source="broker", read_at=0, known_since=0
    )
    append(
        tables,
        held,
        now=progress.heartbeat,
        topic="__consumer_offsets",
        partitions=progress.partitions,
        rebuild=progress.rebuild,
        retention=kept,
    )
    return World(tables=tables, now=now, expected=case.expected)


def view_of(world: World) -> RequestContext:
    tailer = Tailer(world.tables)
    assert tailer.poll()
    return RequestContext(
        snapshot=tailer.current,
        now=world.now,
        within_ms=world.tables.complete_within_ms,
        address=Address("127.0.0.1", 1),
        cluster_id="c",
        client=Client(),
    )


# --- the definition --------------------------------------------------------------------------------------


def test_the_definition(world: World) -> None:
    completeness = Completeness(progress=world.tables.progress(), moment=world.now)
    assert completeness.states == {0: world.expected.state}
    assert completeness.complete == (frozenset({0}) if world.expected.is_judged else frozenset())


# --- commands, Python, SQL -------------------------------------------------------------------------------


def test_answers_of_commands_and_of_python(world: World) -> None:
    queries, expected = OffsetQueries(world.tables), world.expected
    answer = queries.list_offsets(["g"])
    assert len(answer.rows) == expected.has_rows
    is_loading = expected.state == "loading"
    assert list(answer.errors.values()) == ["COORDINATOR_LOAD_IN_PROGRESS"] * is_loading
    assert queries.describe_groups(["g"]).groups["g"].error == answer.errors.get("g")
    assert bool(queries.list_groups().error) is is_loading
    assert len(queries.list_groups().rows) == expected.has_rows
    said = answer.as_of.caveats()
    assert [one.startswith(expected.said or "-") for one in said] == [True] * bool(expected.said)
    assert partitions(answer.as_of)["state"].to_pylist() == [expected.state]
    assert answer.as_of.document()["warnings"] == said
    if expected.said is None:
        answer.as_of.check(is_complete=True)
    else:
        with pytest.raises(IncompleteError):
            answer.as_of.check(is_complete=True)


def test_answers_about_the_past_are_those_of_then(world: World) -> None:
    """As the job said last: not of its silence, which began then, nor that it was rebuilding."""
    about = OffsetQueries(world.tables).how_complete(from_ms(world.tables.progress().heartbeat))
    wanted = world.expected.state
    assert about.states == {0: wanted} or wanted == "rebuilding"


@pytest.mark.parametrize("name", ["live_offsets", "lag", "health"])
def test_answers_of_sql(world: World, name: str) -> None:
    answer = run_sql(world.tables, f"SELECT * FROM {name}")
    is_computed = name != "live_offsets"  # which is the table as it is
    assert len(answer.rows) == (world.expected.has_rows if is_computed else 1)
    assert bool(answer.as_of.caveats()) is bool(world.expected.said)


def test_expiry(world: World) -> None:
    rows = list_expiring(world.tables, settings=EXPIRY, now=world.now).rows
    assert rows["rule"].to_pylist() == [world.expected.rule] * world.expected.has_rows


def test_health_says_nothing_of_what_is_not_complete(world: World) -> None:
    answer = LagQueries(world.tables).list_offsets(["g"])
    rows = answer.rows.select(["source_partition"])
    found = with_currency(rows, answer.as_of.completeness.complete)["is_current"].to_pylist()
    assert found == [world.expected.is_judged] * world.expected.has_rows


# --- alerts and metrics ----------------------------------------------------------------------------------


def test_alerts(world: World) -> None:
    evaluator = Evaluator(
        world.tables,
        AlertTable(world.tables),
        read_settings().alerts,
        receivers=[],
        ask_log_ranges=None,
        clock=lambda: world.now,
    )
    told = {episode.rule for episode in evaluator.evaluate()}
    assert ("offset_expiring" in told) is world.expected.is_judged


def test_metrics_and_what_they_are_made_from(world: World) -> None:
    view, within_ms = view_of(world), world.tables.complete_within_ms
    shown = complete_groups(view.snapshot, view.snapshot, now=world.now, within_ms=within_ms)
    assert shown.tolist() == [world.expected.is_judged]
    is_silent = world.expected.error == NO_COORDINATOR
    assert is_ready(view.snapshot, now=world.now, within_ms=within_ms) is not is_silent
    assessment = world.tables.ask(
        lambda at: assessment_of(view.snapshot, at, moment=world.now, health=HealthRules(), settings=EXPIRY),
        now=world.now,
    )
    assert bool(assessment.positions["expires_at"][0] != -1) is (world.expected.rule == "simple")


# --- Kafka's clients -------------------------------------------------------------------------------------


def test_kafkas_clients(world: World) -> None:
    view, error = view_of(world), world.expected.error
    all_offsets = {"groups": [{"groupId": "g", "topics": None}]}
    [fetched] = answer_offsets(all_offsets, view)["groups"]
    [described] = answer_descriptions({"groups": ["g"]}, view)["groups"]
    [missing] = answer_consumer_groups({"groupIds": ["no"], "includeAuthorizedOperations": False}, view)[
        "groups"
    ]
    listed = answer_groups({}, view)
    assert (fetched["errorCode"], described["errorCode"], listed["errorCode"]) == (error,) * 3
    assert missing["errorCode"] == (error or Error.GROUP_ID_NOT_FOUND)
    assert bool(fetched["topics"]) is not bool(error)
    is_listed = world.expected.has_rows and error != NO_COORDINATOR
    assert len(listed["groups"]) == is_listed  # also those of which newer commits are not known
    assert (view.error_of_unknown_topic == Error.LEADER_NOT_AVAILABLE) is bool(error)


def test_the_moment_up_to_which_everything_was_read(world: World) -> None:
    asked = {"resourceType": 4, "resourceName": "1", "configurationKeys": ["offsetlake.read.until"]}
    [answer] = answer_configs({"resources": [asked]}, view_of(world))["results"]
    [entry] = answer["configs"]
    partition = world.tables.progress().partitions[0]
    if world.expected.state != "loading":
        known = partition.whole.as_of
        assert (entry["value"] == "") is (known is None)
        assert OffsetQueries(world.tables).how_complete().read_until == (known or 0)


# --- the setting -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("behind_warning", ["1m", "1h"])
def test_when_alerts_warn_decides_nothing_about_other_views(behind_warning: str, tmp_path: Path) -> None:
    """Metrics went by `[alerts] behind_warning` once: a stricter warning took them away."""
    now, settings = now_ms(), read_settings(options={"alerts.behind_warning": behind_warning})
    progress = Progress(
        heartbeat=now,
        partitions={0: replace(read(now, 2 * MINUTE_MS), stable=Reached(as_of=now))},
    )
    within_ms = settings.tables.complete_within_ms
    assert Completeness(progress=progress, moment=now, within_ms=within_ms).complete == {0}
    shorter = read_settings(options={"tables.complete_within": "1m"}).tables.complete_within_ms
    assert Completeness(progress=progress, moment=now, within_ms=shorter).complete == frozenset()


def test_a_partition_of_which_nothing_is_known_is_loading_to_kafkas_clients(tmp_path: Path) -> None:
    now, tables = now_ms(), new_tables(tmp_path)
    append(
        tables,
        {"g": group(source_partition=0)},
        now=now,
        topic="copy",
        partitions={0: read(now, 0), 1: None, 2: read(now, 0)},
    )
    view = view_of(World(tables=tables, now=now, expected=FINE))
    assert answer_groups({}, view)["errorCode"] == LOADING
    assert (view.error_of("g"), view.error_of("no")) == (Error.NONE, LOADING)
