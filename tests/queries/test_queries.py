"""Kafka's questions, answered from real tables: filters, errors of one group alone, and completeness."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from new_tables import new_tables
from table_batches import Batch, Row, append, group, heartbeat, offset

from streaming.common.times import from_ms, now_ms
from streaming.common.topics import TopicPartitions
from streaming.model.completeness import COMPLETE_WITHIN_MS
from streaming.model.errors import MisuseError
from streaming.model.progress import PartitionEnds, PartitionProgress, Progress, Reached
from streaming.model.schemas import GROUPS, OFFSETS
from streaming.queries.answers import DescribedGroup, GroupOffsets, ListedGroup, Member, PartitionOffset
from streaming.queries.as_of import AsOf, IncompleteError, partitions_of
from streaming.queries.bound.offsets import SnapshotQueries
from streaming.queries.lag import LagQueries
from streaming.queries.offsets import OffsetQueries
from streaming.queries.removed import list_removed
from streaming.queries.sql import run_sql
from streaming.settings.model import OFFSETS_TOPIC
from streaming.tables.progress_rows import HistoryGoneError

T0 = 1_700_000_000_000
LOADING = "COORDINATOR_LOAD_IN_PROGRESS"
IN_PARTITION = {0: "c", 1: "a", 2: "b"}  # of three: "a".hashCode() is 97, and so on; "" is in partition 0


def in_partition(number: int, row: Row) -> Row:
    return {**row, "source_partition": number}


MEMBER = {"member_id": "m", "group_instance_id": None, "client_id": "i", "client_host": "/h"}
LIVE: Batch = {
    ("", "u", 0): in_partition(0, offset(committed_offset=5)),
    ("a", "t", 0): in_partition(1, offset(committed_offset=6, leader_epoch=3, metadata="x")),
    ("a", "u", 1): in_partition(1, offset(committed_offset=None, unreadable_source_offset=9)),
    ("b", "t", 0): in_partition(2, offset()),
    ("b", "t", 9): in_partition(2, offset()),
    ("b", "t", 10): in_partition(2, offset()),
    "": in_partition(0, group(state="Empty", protocol_type="")),
    "a": in_partition(
        1, group(type="consumer", state="Reconciling", members=[MEMBER], generation_or_epoch=4)
    ),
    "b": in_partition(2, group(type="streams", state="NotReady", subscribed_topics=["t"])),
    "c": in_partition(0, group(type="share", state="Stable")),
}


def filled(root: Any, loaded: set[int]) -> OffsetQueries:
    """Tables with `LIVE`, of whose three offsets partitions some have been read to their end."""
    tables = new_tables(root)
    ends = {number: 5 if number in loaded else 9 for number in range(3)}
    progress = Progress().with_positions(dict.fromkeys(range(3), 5))
    progress = progress.with_ends({number: PartitionEnds(end, end) for number, end in ends.items()}, T0)
    append(tables, LIVE, now=T0, topic=OFFSETS_TOPIC, partitions=progress.partitions)
    return OffsetQueries(tables)


@pytest.fixture(scope="module")
def queries(tmp_path_factory: pytest.TempPathFactory) -> OffsetQueries:
    return filled(tmp_path_factory.mktemp("tables"), {0, 1, 2})


@pytest.fixture(scope="module")
def loading(tmp_path_factory: pytest.TempPathFactory) -> OffsetQueries:
    """Partition 1, that of group a, is still being read."""
    return filled(tmp_path_factory.mktemp("tables"), {0, 2})


# --- OffsetFetch -----------------------------------------------------------------------------------------

A_T0 = PartitionOffset("t", 0, 6, 3, "x")
A_U1 = PartitionOffset("u", 1, -1, -1, "", unreadable_source_offset=9)


def test_none_asks_for_all_offsets_of_a_group_and_an_empty_list_for_none(queries: OffsetQueries) -> None:
    answer = queries.fetch_offsets({"a": None, "b": []})
    assert answer.groups == {"a": GroupOffsets("a", None, (A_T0, A_U1)), "b": GroupOffsets("b")}
    assert answer.rows["group"].to_pylist() == ["a", "a"]
    assert answer.errors == {}


def test_partitions_are_answered_in_the_order_in_which_they_are_asked_for(queries: OffsetQueries) -> None:
    answer = queries.fetch_offsets({"a": [("u", 1), ("t", 7), ("no topic", 0), ("t", 0)]})
    nothing = (PartitionOffset("t", 7), PartitionOffset("no topic", 0))
    assert answer.groups["a"].partitions == (A_U1, *nothing, A_T0)
    assert nothing[0] == PartitionOffset("t", 7, -1, -1, "")


def test_a_group_that_is_not_there_is_no_error(queries: OffsetQueries) -> None:
    answer = queries.fetch_offsets({"none": None, "nobody": [("t", 0)], "c": None})
    assert answer.groups["none"] == GroupOffsets("none")
    assert answer.groups["nobody"] == GroupOffsets("nobody", None, (PartitionOffset("t", 0),))
    assert answer.groups["c"] == GroupOffsets("c")  # a share group has no offsets here


def test_the_empty_group_id_is_a_group_and_none_is_not(queries: OffsetQueries) -> None:
    answer = queries.fetch_offsets({"": [("u", 0)], None: None})
    assert answer.groups[""] == GroupOffsets("", None, (PartitionOffset("u", 0, 5),))
    assert answer.groups[None] == GroupOffsets(None, "INVALID_GROUP_ID")
    assert answer.errors == {None: "INVALID_GROUP_ID"}


def test_a_group_that_is_loading_does_not_spoil_the_others(loading: OffsetQueries) -> None:
    answer = loading.fetch_offsets({"a": [("t", 0)], "": None, "d": None})
    assert answer.groups["a"] == GroupOffsets("a", LOADING)
    assert answer.groups[""].partitions == (PartitionOffset("u", 0, 5),)
    assert answer.errors == {"a": LOADING, "d": LOADING}  # "d" would be in partition 1 as well
    assert answer.rows["group"].to_pylist() == [""]


# --- offsets in bulk -------------------------------------------------------------------------------------

ALL = [("", "u", 0), ("a", "t", 0), ("a", "u", 1), ("b", "t", 0), ("b", "t", 9), ("b", "t", 10)]
ASKED: dict[str, tuple[list[str] | None, list[str], list[tuple[str, str, int]]]] = {
    "everything": (None, [], ALL),
    "one group": (["a"], [], ALL[1:3]),
    "two groups": (["b", "a"], [], ALL[1:]),
    "the empty group id": ([""], [], ALL[:1]),
    "no such group": (["c"], [], []),
    "no group": ([], [], []),
    "one topic": (None, ["u"], [ALL[0], ALL[2]]),
    "two topics": (None, ["u", "t"], ALL),
    "partitions of a topic": (None, ["t:0,10"], [ALL[1], ALL[3], ALL[5]]),
    "partitions of one topic, and another": (None, ["t:9", "u"], [ALL[0], ALL[2], ALL[4]]),
    "a topic of a group": (["a"], ["t"], [ALL[1]]),
    "no such partition": (None, ["t:7"], []),
}


@pytest.mark.parametrize(("groups", "topics", "expected"), ASKED.values(), ids=ASKED.keys())
def test_offsets_are_chosen_and_sorted_by_key(
    queries: OffsetQueries, groups: list[str] | None, topics: list[str], expected: list[tuple[str, str, int]]
) -> None:
    answer = queries.list_offsets(groups, [TopicPartitions.parse(topic, name="--topic") for topic in topics])
    assert answer.to_arrow().schema == OFFSETS
    columns = answer.rows.select(["group", "topic", "partition"]).to_pydict().values()
    assert list(zip(*columns, strict=True)) == expected
    assert len(answer.to_pandas()) == len(expected)


def test_groups_that_are_loading_are_left_out(loading: OffsetQueries) -> None:
    answer = loading.list_offsets()
    assert set(answer.rows["group"].to_pylist()) == {"", "b"}
    assert (answer.as_of.loading, answer.errors) == ([1], {})
    assert loading.list_offsets(["a", "b"]).errors == {"a": LOADING}


# --- ListGroups ------------------------------------------------------------------------------------------

FILTERS: dict[str, tuple[list[str], list[str], list[str]]] = {
    "everything": ([], [], ["", "a", "b", "c"]),
    "one state": (["Stable"], [], ["c"]),
    "several are united": (["Stable", "Empty"], [], ["", "c"]),
    "state in any case, blanks around it": ([" eMPTY\t"], [], [""]),
    "an unknown state matches nothing": (["Dying"], [], []),
    "an unknown state beside one": (["Dying", "Empty"], [], [""]),
    "the empty state matches nothing": ([""], [], []),
    "NotReady": (["NotReady"], [], ["b"]),
    "not_ready": (["not_ready"], [], ["b"]),
    "one type": ([], ["share"], ["c"]),
    "type in any case": ([], ["Consumer", "CLASSIC"], ["", "a"]),
    "type with blanks matches nothing": ([], [" share"], []),
    "state and type are intersected": (["Stable", "Empty"], ["classic", "consumer"], [""]),
}


@pytest.mark.parametrize(("states", "types", "expected"), FILTERS.values(), ids=FILTERS.keys())
def test_groups_are_filtered_as_brokers_do(
    queries: OffsetQueries, states: list[str], types: list[str], expected: list[str]
) -> None:
    answer = queries.list_groups(states, types)
    assert [one.group for one in answer.groups] == expected
    assert answer.rows.schema == GROUPS
    assert answer.error is None


def test_a_listed_group_has_what_brokers_list(queries: OffsetQueries) -> None:
    assert queries.list_groups(["Empty"]).groups == [ListedGroup("", "classic", "Empty", "")]


def test_list_says_when_groups_may_be_missing(loading: OffsetQueries) -> None:
    answer = loading.list_groups()
    assert [one.group for one in answer.groups] == ["", "b", "c"]
    assert answer.error == LOADING


# --- Describe --------------------------------------------------------------------------------------------


def test_groups_of_any_type_are_described(queries: OffsetQueries) -> None:
    answer = queries.describe_groups(["a", "none", None, "b"])
    assert list(answer.groups) == ["a", "none", None, "b"]
    assert answer.groups["a"] == DescribedGroup(
        "a", None, "consumer", "Reconciling", "consumer", None, 4, (Member("m", None, "i", "/h"),), None
    )
    assert answer.groups["b"].subscribed_topics == ("t",)
    assert answer.groups["none"] == DescribedGroup("none", "GROUP_ID_NOT_FOUND")
    assert answer.groups["none"].state == "Dead"
    assert answer.errors == {"none": "GROUP_ID_NOT_FOUND", None: "INVALID_GROUP_ID"}
    assert answer.rows["group"].to_pylist() == ["a", "b"]


def test_a_group_that_is_loading_is_not_called_dead(loading: OffsetQueries) -> None:
    assert loading.describe_groups(["a", "d", "b"]).errors == {"a": LOADING, "d": LOADING}


# --- past moments ----------------------------------------------------------------------------------------


def test_every_question_takes_a_past_moment(tmp_path: Any) -> None:
    queries = filled(tmp_path, {0, 1, 2})
    later: Batch = {("a", "t", 0): in_partition(1, offset(committed_offset=2)), "c": None, "": None}
    append(queries.tables, later, live=LIVE, now=T0 + 5_000)
    queries.tables.fold()
    then = from_ms(T0 + 4_999)
    assert queries.fetch_offsets({"a": [("t", 0)]}).groups["a"].partitions[0].committed_offset == 2
    assert queries.fetch_offsets({"a": [("t", 0)]}, then).groups["a"].partitions == (A_T0,)
    assert len(queries.list_groups().groups) == 2
    past = queries.list_groups(as_of=then)
    assert len(past.groups) == 4
    assert (past.as_of.progress.sequence, past.as_of.moment) == (1, T0 + 4_999)
    assert queries.describe_groups(["c"], then).errors == {}


def test_history_has_a_step_for_each_batch_that_moved_a_position(tmp_path: Any) -> None:
    queries, key = filled(tmp_path, {0, 1, 2}), ("a", "t", 0)
    moved: Batch = {key: in_partition(1, offset(committed_offset=9))}
    rewound: Batch = {key: in_partition(1, offset(committed_offset=2))}
    append(queries.tables, moved, live=LIVE, now=T0 + 1_000)
    append(queries.tables, rewound, live=LIVE | moved, now=T0 + 2_000)
    append(queries.tables, {key: None, ("a", "t", 5): None}, live=LIVE | rewound, now=T0 + 3_000)
    topic, history = [TopicPartitions("t")], LagQueries(queries.tables).list_history
    steps = (
        LagQueries(queries.tables)
        .list_history("a", topic)
        .rows.select(["committed_offset", "step", "event", "cause"])
    )
    assert [tuple(row.values()) for row in steps.to_pylist()] == [
        (6, None, "first", None),
        (9, 3, "commit", None),
        (2, -7, "rewind", None),
        (None, None, "removed", "unknown"),
    ]
    second = from_ms(T0 + 2_000)
    assert history("a", topic, since=second).rows["event"].to_pylist() == [
        "rewind",
        "removed",
    ]
    assert history("a", topic, as_of=second).rows["event"].to_pylist()[-1] == "rewind"
    assert len(history("a").rows) == 5  # one of another topic
    assert len(history("none").rows) == 0


@pytest.fixture
def moved(tmp_path: Any) -> OffsetQueries:
    """Each of the groups a and b commits, rewinds and commits again, a second apart; a loses an offset."""
    queries, live = filled(tmp_path, {0, 1, 2}), LIVE
    for seconds, offsets in enumerate([(9, 20), (2, 30), (8, 10)], start=1):
        batch: Batch = {
            ("a", "t", 0): in_partition(1, offset(committed_offset=offsets[0])),
            ("b", "t", 0): in_partition(2, offset(committed_offset=offsets[1])),
        }
        append(queries.tables, batch, live=live, now=T0 + seconds * 1_000)
        live = live | batch
    append(queries.tables, {("a", "t", 0): None}, live=live, now=T0 + 4_000)
    return queries


def steps(queries: OffsetQueries, *asked: Any, **more: Any) -> list[tuple[Any, ...]]:
    rows = (
        LagQueries(queries.tables)
        .list_history(*asked, **more)
        .rows.select(["group", "committed_offset", "event"])
    )
    return [tuple(row.values()) for row in rows.to_pylist()]


def test_history_of_several_groups_or_of_all_and_of_some_events(moved: OffsetQueries) -> None:
    rewinds = [("a", 2, "rewind"), ("b", 10, "rewind")]
    assert steps(moved, events=["rewind"]) == rewinds
    assert steps(moved, ["b", "a"], events=["rewind"]) == rewinds
    assert steps(moved, "b", events=["rewind"]) == rewinds[1:]
    assert steps(moved, events=["removed", "rewind"]) == [*rewinds, ("a", None, "removed")]
    assert {row[0] for row in steps(moved)} == {"", "a", "b"}
    assert steps(moved, []) == []
    with pytest.raises(
        MisuseError, match="events: expected some of first, commit, rewind, removed; found 'back'"
    ):
        LagQueries(moved.tables).list_history(events=["rewind", "back"])


def test_a_text_is_no_list_of_names(moved: OffsetQueries) -> None:
    lag = LagQueries(moved.tables)
    calls: dict[str, list[Callable[[Any], object]]] = {
        "groups": [moved.list_offsets, moved.list_members, moved.names, moved.describe_groups, lag.health],
        "states": [moved.list_groups],
        "types": [lambda text: moved.list_groups(types=text)],
        "topics": [
            lambda text: moved.list_offsets(topics=text),
            lambda text: lag.list_history(topics=[text]),
            lambda text: lag.health_changes(None, text, since=from_ms(now_ms())),
        ],
    }
    for name, some in calls.items():
        for call in some:
            with pytest.raises(MisuseError, match=f"{name}: expected a list of "):
                call("ab")


def test_a_moment_in_the_future_is_refused(moved: OffsetQueries) -> None:
    now = now_ms()
    later, tables = from_ms(now + 60_000), moved.tables
    calls: list[Callable[[], object]] = [
        lambda: moved.how_complete(later),
        lambda: LagQueries(moved.tables).restore(None, as_of=later),
        lambda: run_sql(moved.tables, "SELECT 1 AS one", later),
        lambda: tables.ask(lambda at: SnapshotQueries(at).list_offsets(), as_of=now + 60_000),
        lambda: list_removed(tables, now=now, as_of=now + 1),
    ]
    for call in calls:
        with pytest.raises(MisuseError, match="as_of: expected a time in the past, found "):
            call()


def test_a_time_that_ends_in_the_future_is_refused(moved: OffsetQueries) -> None:
    hour = 3_600_000
    lag, since, until = LagQueries(moved.tables), from_ms(now_ms() - hour), from_ms(now_ms() + hour)
    calls: list[Callable[[datetime], object]] = [
        lambda end: lag.lag_over_time(None, since=since, until=end, every_ms=hour),
        lambda end: lag.health_changes(None, since=since, until=end),
    ]
    for call in calls:
        call(from_ms(now_ms()))
        with pytest.raises(MisuseError, match="until: expected a time up to "):
            call(until)
    heartbeat(moved.tables, now_ms() + 2 * hour)  # the job's clock may be ahead
    for call in calls:
        call(until)
    assert moved.tables.ask(lambda at: at.is_past, as_of=now_ms() + hour)


def test_history_between_two_moments_has_both_of_them(moved: OffsetQueries) -> None:
    second, third = from_ms(T0 + 2_000), from_ms(T0 + 3_000)
    between = steps(moved, since=second, until=third)
    assert between == [("a", 2, "rewind"), ("b", 30, "commit"), ("a", 8, "commit"), ("b", 10, "rewind")]
    assert steps(moved, since=second, until=second) == between[:2]
    assert steps(moved, "a", until=from_ms(T0 + 999)) == [("a", 6, "first"), ("a", None, "first")]


def test_history_says_when_it_starts_where_more_was_asked_for(moved: OffsetQueries) -> None:
    assert LagQueries(moved.tables).list_history(since=from_ms(T0 - 1)).starts_at == T0
    assert LagQueries(moved.tables).list_history(until=from_ms(T0 - 1)).starts_at == T0
    assert LagQueries(moved.tables).list_history(since=from_ms(T0)).starts_at is None
    assert LagQueries(moved.tables).list_history().starts_at is None


# --- names -----------------------------------------------------------------------------------------------


def test_names_are_those_that_are_there_at_a_moment(moved: OffsetQueries) -> None:
    append(moved.tables, {"c": None, ("", "u", 0): None, "": None}, live=LIVE, now=T0 + 5_000)
    named = moved.names()
    assert named.groups == {"a", "b"}
    assert named.topics == {"u": {1}, "t": {0, 9, 10}}
    then = moved.names(as_of=from_ms(T0 + 4_000))
    assert (then.groups, then.topics["u"]) == ({"", "a", "b", "c"}, {0, 1})
    assert moved.names(["c", "a"]).groups == {"a"}
    assert moved.names(["c", "a"], among="history").groups == {"a", "c"}
    assert moved.names(among="groups").topics == {}
    assert moved.names(["c"], as_of=from_ms(T0 + 4_000), among="groups").groups == {"c"}


def test_very_many_names_are_asked_for_at_once(moved: OffsetQueries) -> None:
    names = ["a", *(f"none {number}" for number in range(2_000))]
    assert set(moved.list_offsets(names).rows["group"].to_pylist()) == {"a"}
    assert {row[0] for row in steps(moved, names)} == {"a"}
    assert moved.names(names).groups == {"a"}


def test_a_moment_before_the_tables_is_refused_and_says_when_history_starts(queries: OffsetQueries) -> None:
    before = from_ms(T0 - 1)
    for ask in (
        queries.list_offsets,
        queries.list_groups,
        LagQueries(queries.tables).list_history,
        queries.how_complete,
    ):
        with pytest.raises(
            HistoryGoneError, match=r"history starts at 2023-11-14T22:13:20\.000Z, because the tables"
        ):
            ask(as_of=before)


def test_a_moment_needs_a_time_zone(queries: OffsetQueries) -> None:
    with pytest.raises(MisuseError, match="expected a datetime with a time zone"):
        queries.list_groups(as_of=datetime(2026, 1, 1))


# --- how complete an answer is ---------------------------------------------------------------------------


def test_an_answer_names_its_batch_and_the_partitions_of_its_groups(loading: OffsetQueries) -> None:
    about = loading.list_offsets(["a", "b"]).as_of
    assert about.states == {1: "loading", 2: "current"}
    assert str(about) == (
        "as of batch 1, written 2023-11-14T22:13:20.000Z; last known state of offsets partitions: "
        "1 loading, 1 current"
    )
    assert loading.list_groups().as_of.states.keys() == {0, 1, 2}


def test_a_complete_answer_can_be_required(loading: OffsetQueries) -> None:
    then = from_ms(T0)
    loading.list_offsets(["b"], as_of=then).as_of.check(is_complete=True)
    loading.list_offsets(["a"], as_of=then).as_of.check()
    with pytest.raises(IncompleteError, match=f"{LOADING}: offsets partitions 1 are still being read"):
        loading.list_offsets(["a"], as_of=then).as_of.check(is_complete=True)


def test_a_stalled_partition_is_not_complete(tmp_path: Any) -> None:
    queries = filled(tmp_path, {0, 1, 2})
    held = queries.tables.progress().with_ends({1: PartitionEnds(5, 7)}, T0)
    now = T0 + COMPLETE_WITHIN_MS + 1
    read = held.with_ends({0: PartitionEnds(5, 5), 2: PartitionEnds(5, 5)}, now)
    for moment in range(T0 + 60_000, now, 60_000):
        heartbeat(queries.tables, moment, partitions=held.partitions)
    heartbeat(queries.tables, now, partitions=read.partitions)
    heartbeat(queries.tables, now + 1)
    assert queries.list_offsets(["b"], as_of=from_ms(now)).as_of.shortcomings() == []
    with pytest.raises(IncompleteError, match="offsets partitions 1 are stalled"):
        queries.list_offsets(["a"], as_of=from_ms(now)).as_of.check(is_complete=True)


def test_what_nobody_answers_for_is_not_complete_now_nor_later(tmp_path: Any) -> None:
    queries = filled(tmp_path, {0, 1, 2})
    ends = {number: PartitionEnds(5, 5) for number in (0, 2)}
    short = OffsetQueries(replace(queries.tables, complete_within_ms=30_000))
    now = now_ms()
    read = queries.tables.progress().with_ends({1: PartitionEnds(5, 5)}, now - 60_000)
    silent = read.with_answers(ends, now - 29_000)
    heartbeat(queries.tables, now - 29_000, partitions=silent.partitions)
    queries.list_offsets(["a"]).as_of.check(is_complete=True)  # read a minute ago: within three
    with pytest.raises(IncompleteError, match="not answered for offsets partitions 1 since 20"):
        short.list_offsets(["a"]).as_of.check(is_complete=True)
    again = silent.with_ends({1: PartitionEnds(5, 5)}, now)
    heartbeat(queries.tables, now, partitions=again.partitions)
    short.list_offsets(["a"]).as_of.check(is_complete=True)
    then, queries = from_ms(now - 29_000), short
    with pytest.raises(IncompleteError, match="not answered for offsets partitions 1 since 20"):
        queries.list_offsets(["a"], as_of=then).as_of.check(is_complete=True)
    queries.list_offsets(["b"], as_of=then).as_of.check(is_complete=True)


def as_of(moment: int, **partition: Any) -> AsOf:
    """What an answer at a moment reflects, after a heartbeat at T0; it counts for 30 s."""
    partitions = {0: PartitionProgress(position=5, **partition), 1: PartitionProgress()}
    progress = Progress(topic="copy", heartbeat=T0, partitions=partitions)
    return AsOf.of(None, progress, now=moment, within_ms=30_000)


def test_an_answer_is_what_was_last_known_once_the_job_is_silent() -> None:
    young, old = as_of(T0 + 30_000), as_of(T0 + 30_001)
    assert (young.is_last_known, old.is_last_known) == (False, True)
    assert (young.silence(), "offsets partitions: " in str(young)) == ([], True)
    assert old.silence() == [
        "the job's last heartbeat was 30 s ago (2023-11-14T22:13:20Z): nothing later is included"
    ]
    assert str(old).endswith("; last known state of offsets partitions: 2 loading")
    assert (young.document()["is_last_known"], old.document()["is_last_known"]) == (False, True)
    assert old.document()["warnings"] == old.caveats()
    never = AsOf.of(None, Progress(), now=T0)
    assert (never.is_last_known, never.silence()) == (False, [])


def test_an_answer_says_as_of_when_the_two_sides_of_a_lag_are() -> None:
    until = Reached(as_of=T0 - 10_000)
    soon = as_of(T0, loaded=True, whole=until).with_log_ends(T0 + 20_000)
    assert soon.read_until == T0 - 10_000
    assert str(soon).splitlines()[1] == (
        "lag: commits up to 2023-11-14T22:13:10Z, log end offsets of 2023-11-14T22:13:40Z"
    )
    assert not any("the lag is not" in caveat for caveat in soon.caveats())
    late = as_of(T0, loaded=True, whole=until).with_log_ends(T0 + 20_001)
    assert late.caveats()[-1].startswith(
        "the lag shown is not the present lag of the groups: it is between commits up to 2023-"
    )
    assert late.document()["log_ends_at"] == "2023-11-14T22:13:40.001Z"
    assert late.document()["read_until"] == "2023-11-14T22:13:10.000Z"
    assert as_of(T0).read_until == T0  # no end is known: as the job said last


def test_the_age_of_an_answer_can_be_limited(queries: OffsetQueries) -> None:
    about = queries.list_offsets(as_of=from_ms(T0 + 30_000)).as_of
    assert about.age_ms == 30_000
    about.check(max_age_ms=30_000)
    with pytest.raises(
        IncompleteError, match=r"within 29\.999 s before .*, found the last one 30 s before it"
    ):
        about.check(max_age_ms=29_999)


def test_partitions_of_groups_are_known_of_kafka_s_own_topic_only() -> None:
    three = {number: PartitionProgress(position=5) for number in range(3)}
    ours = Progress(topic=OFFSETS_TOPIC, partitions=three)
    named = {number: partitions_of([name], ours) for number, name in IN_PARTITION.items()}
    assert named == {0: {0}, 1: {1}, 2: {2}}
    assert partitions_of(["c", "b"], ours) == {0, 2}
    assert partitions_of(None, ours) == {0, 1, 2}
    copy = Progress(topic="copy", partitions=three)
    assert partitions_of(["c"], copy) == {0, 1, 2}  # a copy may be spread in another way
    some = Progress(topic=OFFSETS_TOPIC, partitions={0: three[0], 2: three[2]})
    assert partitions_of(["c"], some) == {0, 1, 2}  # one or more partitions did not answer yet
