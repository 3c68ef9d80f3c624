"""Log ends in a snapshot: what the newest samples say, read one file after the other."""

import shutil
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from log_end_rows import Sample, gone, of_topic, rows_of
from maintenance_rounds import KEPT
from memory_snapshots import ends_answered, ends_in, whole
from new_tables import new_tables
from table_batches import append, group, offset

from streaming.common.times import DAY_MS, HOUR_MS, MINUTE_MS
from streaming.maintenance.maintenance import maintain
from streaming.model.schemas import MEMBER
from streaming.serve.memory.reading import read_as_of
from streaming.serve.memory.tailer import Tailer
from streaming.tables.log_ends import SampleFiles, topics_over_time
from streaming.tables.tables import Tables

T0 = 1_700_000_000_000
LATER = T0 + DAY_MS
TOPICS = st.sampled_from(["orders", "orders\0", "grüße"])
ROUNDS = st.lists(
    st.lists(
        st.one_of(
            st.builds(
                Sample,
                st.just(0),
                TOPICS,
                st.integers(0, 2),
                st.none() | st.integers(0, 99),
                st.sampled_from([None, "id-1", "id-2"]),
                st.just(0),
                st.none(),
            ),
            st.builds(gone, st.just(0), TOPICS),
            st.builds(of_topic, st.just(0), TOPICS, st.sampled_from(["id-1", "id-2"])),
        ),
        max_size=5,
    ),
    max_size=6,
)
"""What is said in rounds of samples, whose times come later."""


def timed(rounds: list[list[Sample]], minutes: list[int]) -> list[list[Sample]]:
    """Give rounds their times, minutes apart, and let each say one thing of a partition or a topic."""
    moments = [T0 + MINUTE_MS * sum(minutes[: number + 1]) for number in range(len(rounds))]
    return [
        [*{(one.topic, one.partition): one._replace(at=at) for one in own}.values()]
        for own, at in zip(rounds, moments, strict=True)
        if own
    ]


@settings(max_examples=8, deadline=None, suppress_health_check=[*HealthCheck])
@given(
    rounds=ROUNDS,
    minutes=st.lists(st.sampled_from([1, 1, 1, 9, 16]), min_size=6, max_size=6),
    looks=st.sets(st.integers(0, 5)),
)
def test_ends_of_one_file_after_the_other_are_those_of_all(
    rounds: list[list[Sample]],
    minutes: list[int],
    looks: set[int],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    tables = new_tables(tmp_path_factory.mktemp("tables"))
    tailer = Tailer(tables, clock=lambda: LATER)
    for number, own in enumerate(sampled := timed(rounds, minutes)):
        tables.append_log_ends(rows_of(own))
        if number in looks:
            assert tailer.poll()
    assert tailer.poll()
    expected = ends_answered(tables, [one for own in sampled for one in own], LATER)
    assert ends_in(tailer.current) == expected
    assert ends_in(whole(tables, LATER)) == expected


@pytest.fixture
def tailer(tables: Tables) -> Tailer:
    return Tailer(tables, clock=lambda: LATER)


def commit(tables: Tables, number: int, topic_id: str | None = None) -> None:
    append(tables, {("g", "orders", 0): offset(committed_offset=number, topic_id=topic_id), "g": group()})


def sample(tables: Tables, at: int, end: int, topic_id: str = "id-1") -> None:
    tables.append_log_ends(
        rows_of([Sample(at, "orders", 0, end, topic_id), of_topic(at, "orders", topic_id)])
    )


def test_an_end_is_never_below_a_later_commit_of_the_same_topic(tables: Tables, tailer: Tailer) -> None:
    commit(tables, 50)
    assert tailer.poll()
    assert tailer.current.end_offset("orders", 0) is None  # a commit alone says nothing of the end
    sample(tables, tables.progress().heartbeat - 1, 40)
    assert tailer.poll()
    assert tailer.current.end_offset("orders", 0) == 50
    commit(tables, 60, "id-1")
    assert tailer.poll()
    assert tailer.current.end_offset("orders", 0) == 60
    commit(tables, 70, "id-0")  # of a topic that was there before
    assert tailer.poll()
    assert tailer.current.end_offset("orders", 0) == 40
    assert tailer.current.end_offset("orders", 1) is tailer.current.end_offset("no", 0) is None


def test_a_topic_that_is_gone_or_was_recreated_has_neither_end_nor_former_id(
    tables: Tables, tailer: Tailer
) -> None:
    sample(tables, T0, 40)
    assert tailer.poll()
    orders = tailer.current.topics.names.place("orders")
    assert orders is not None
    assert tailer.current.topics.id_of(orders) == "id-1"
    tables.append_log_ends(rows_of([gone(T0 + 1_000, "orders")]))
    assert tailer.poll()
    assert tailer.current.topics.id_of(orders) is None
    assert tailer.current.end_offset("orders", 0) is None
    sample(tables, T0 + 2_000, 3, "id-2")
    assert tailer.poll()
    assert tailer.current.topics.id_of(orders) == "id-2"
    assert tailer.current.end_offset("orders", 0) == 3
    for topic_id, name in (("id-1", "orders"), ("id-2", "orders"), ("id-3", None)):
        assert tailer.current.topics.name_of(topic_id) == name
        assert whole(tables, LATER).topics.name_of(topic_id) == name


def test_which_ids_topics_had_when_is_what_the_table_says(tables: Tables, tailer: Tailer) -> None:
    ids = ["m", "m", "k", "k", "z", "z"]  # in another order than their names, so that places move
    for minute, topic_id in enumerate(ids):
        at = T0 + minute * MINUTE_MS
        other = [Sample(at, "clicks", 0, 1, f"c-{minute}"), of_topic(at, "clicks", f"c-{minute}")]
        tables.append_log_ends(rows_of(other))
        sample(tables, at, 40, topic_id)
        assert tailer.poll()
    names = pa.array(["orders", "no", "clicks"])
    expected = topics_over_time(SampleFiles(tables.delta("log_ends")), None, as_of=LATER)
    for snapshot in (tailer.current, whole(tables, LATER)):
        found = snapshot.topics.ids_over_time(names)
        assert found.sort_by("topic_id").equals(expected.sort_by("topic_id"))
        assert snapshot.topics.ids_over_time(names[1:2]).num_rows == 0
        assert snapshot.topics.sampled_at(names).tolist() == [T0 + 5 * MINUTE_MS, -1, T0 + 5 * MINUTE_MS]
    tables.append_log_ends(rows_of([gone(T0 + DAY_MS // 2, "orders")]))
    assert tailer.poll()
    assert tailer.current.topics.sampled_at(names[:1]).tolist() == [T0 + DAY_MS // 2]


def test_ids_in_samples_of_partitions_may_be_former_ones(tables: Tables, tailer: Tailer) -> None:
    m, first = MINUTE_MS, of_topic(T0, "orders", "id-1")
    rounds = [
        [first, Sample(T0, "orders", 0, 40, "id-1")],
        [Sample(T0 + 2 * m, "orders", 0, 50, "id-1")],  # recreated: its id was last requested a minute before
        [of_topic(T0 + m, "orders", "id-1"), of_topic(T0 + 3 * m, "orders", "id-2")],
    ]
    for one in rounds:
        tables.append_log_ends(rows_of(one))
        assert tailer.poll()
    expected = topics_over_time(SampleFiles(tables.delta("log_ends")), None, as_of=LATER)
    for snapshot in (tailer.current, whole(tables, LATER)):
        found = snapshot.topics.ids_over_time(pa.array(["orders"]))
        assert found.sort_by("topic_id").equals(expected)


def test_samples_of_a_clock_that_was_ahead_do_not_hide_later_ones(tables: Tables, tailer: Tailer) -> None:
    sample(tables, LATER + HOUR_MS, 99)
    assert tailer.poll()
    assert tailer.current.end_offset("orders", 0) is None
    sample(tables, T0, 40)
    assert tailer.poll()
    assert tailer.current.end_offset("orders", 0) == 40
    assert whole(tables, LATER).end_offset("orders", 0) == 40


def test_samples_that_were_taken_by_a_clock_that_was_set_back_are_forgotten(tables: Tables) -> None:
    clock = [LATER + 2 * HOUR_MS]
    tailer = Tailer(tables, clock=lambda: clock[0])
    sample(tables, LATER + HOUR_MS, 99)
    assert tailer.poll()
    assert tailer.current.end_offset("orders", 0) == 99
    clock[0] = LATER
    sample(tables, LATER - HOUR_MS, 40)
    assert tailer.poll()
    assert tailer.current.end_offset("orders", 0) == whole(tables, LATER).end_offset("orders", 0) == 40


def test_a_partition_that_is_no_longer_sampled_has_no_end(tables: Tables, tailer: Tailer) -> None:
    for number, minutes in ((0, 0), (1, 14), (2, 16)):
        at = T0 + minutes * MINUTE_MS
        tables.append_log_ends(rows_of([Sample(at, "orders", number, 5), of_topic(at, "orders", "id-1")]))
        assert tailer.poll()
    for snapshot in (tailer.current, whole(tables, LATER)):
        assert [snapshot.end_offset("orders", number) for number in range(3)] == [None, 5, 5]


def test_files_that_maintenance_joins_are_no_new_samples(tables: Tables, tailer: Tailer) -> None:
    for number in range(9):
        sample(tables, T0 + number * 1_000, number)
    assert tailer.poll()
    before = tailer.current.topics
    maintain(tables, replace(KEPT, keep_log_ends_ms=30 * DAY_MS), clock=lambda: T0 + HOUR_MS)
    assert len(tables.delta("log_ends").file_uris()) == 2
    assert tailer.poll()
    assert tailer.current.topics is before
    sample(tables, T0 + 10_000, 10)
    assert tailer.poll()
    assert tailer.current.end_offset("orders", 0) == whole(tables, LATER).end_offset("orders", 0) == 10


def test_tables_of_a_release_without_samples_gain_them(tables: Tables, tailer: Tailer) -> None:
    shutil.rmtree(f"{tables.root}/log_ends")
    commit(tables, 5)
    assert tailer.poll()
    before = tailer.current
    assert before.end_offset("orders", 0) is None
    assert tailer.poll()
    assert tailer.current is before
    tables.create()
    sample(tables, T0, 40)
    assert tailer.poll()
    assert tailer.current.end_offset("orders", 0) == 40
    shutil.rmtree(f"{tables.root}/log_ends")
    assert tailer.poll()
    assert tailer.current.end_offset("orders", 0) is None


def test_a_commit_beyond_the_end_is_the_end_until_a_sample_says_otherwise(
    tables: Tables, tailer: Tailer
) -> None:
    """One wrong commit was the end of everybody's log, for ever. By the clock of the job, not of brokers."""
    at = 1_000_000
    append(tables, {("mistake", "orders", 0): offset(committed_offset=5_000_000)}, now=at)
    tables.append_log_ends(rows_of([Sample(at - 1, "orders", 0, 1_000)]))
    assert tailer.poll()
    assert tailer.current.end_offset("orders", 0) == 5_000_000  # the log may have grown by then
    tables.append_log_ends(rows_of([Sample(at + 1, "orders", 0, 1_010)]))
    assert tailer.poll()
    assert tailer.current.end_offset("orders", 0) == whole(tables, at).end_offset("orders", 0) == 1_010
    append(tables, {("good", "orders", 0): offset(committed_offset=1_020)}, now=at + 2)
    assert tailer.poll()
    assert tailer.current.end_offset("orders", 0) == 1_020


@pytest.mark.parametrize("is_folded", [False, True])
def test_an_old_commit_beyond_the_end_is_not_the_end_for_snapshots_that_are_read_at_once(
    tables: Tables, is_folded: bool
) -> None:
    """Neither now nor in the past, although a batch with other commits follows the sample."""
    times = {"commit_timestamp": T0, "source_timestamp": T0}
    append(tables, {("mistake", "orders", 0): offset(committed_offset=1_000, **times)}, now=T0)
    sample(tables, T0 + MINUTE_MS, 10)
    at = T0 + MINUTE_MS + 1_000
    newer = {"commit_timestamp": at, "source_timestamp": at}
    append(tables, {("good", "orders", 1): offset(committed_offset=3, **newer)}, now=at)
    if is_folded:
        tables.fold()
    append(tables, {}, now=at + HOUR_MS)
    assert whole(tables, at + 1).end_offset("orders", 0) == 10
    assert read_as_of(tables, at + 1).end_offset("orders", 0) == 10
    append(tables, {("good", "orders", 0): offset(committed_offset=12, **newer)}, now=at + HOUR_MS)
    assert read_as_of(tables, at + HOUR_MS).end_offset("orders", 0) == 12


def test_a_moment_before_an_assigned_topic_was_first_sampled_does_not_know_its_id(tables: Tables) -> None:
    """One file has a sample from before the moment, and the first one with the new id."""
    member = dict.fromkeys(field.name for field in MEMBER) | {
        **{"member_id": "m", "client_id": "c", "client_host": "/h"},
        "assignment": [{"topic": None, "topic_id": "id-2", "partitions": [0]}],
    }
    append(tables, {"g": group(type="consumer", members=[member])}, now=T0)
    rounds = [
        *[Sample(T0 - 1_000, "orders", 0, 10, "id-1"), of_topic(T0 - 1_000, "orders", "id-1")],
        *[Sample(T0 + 9_000, "orders", 0, 1, "id-2"), of_topic(T0 + 9_000, "orders", "id-2")],
        *[Sample(T0 + 9_000, "later", 0, 1, "id-3"), of_topic(T0 + 9_000, "later", "id-3")],
    ]
    tables.append_log_ends(rows_of(rounds))
    append(tables, {}, now=T0 + 10_000)
    before, after = (read_as_of(tables, T0 + ms).topics for ms in (5_000, 10_000))
    assert [before.name_of("id-1"), before.name_of("id-2")] == ["orders", None]
    assert before.names.place("later") is None
    assert [after.name_of("id-1"), after.name_of("id-2")] == ["orders", "orders"]
