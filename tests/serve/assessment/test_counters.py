"""What is counted begins at 0, only rises, and is what the commits were."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_end_rows import Sample, gone, of_topic, rows_of
from metrics_read import Maker, by
from new_tables import new_tables
from table_batches import QUERY, Batch, append, changes_of, group, heartbeat, offset

from streaming.common.times import DAY_MS, HOUR_MS, MINUTE_MS, now_ms
from streaming.expiry.cause_names import CAUSES
from streaming.model.progress import PartitionProgress, Reached
from streaming.model.schemas import IDS_AT_ONCE
from streaming.model.totals import Position, Totals, UnknownRecords
from streaming.serve.assessment.counters import KEPT_MS, RECORDS, Counters
from streaming.serve.memory.tailer import Tailer
from streaming.tables.rows import change_rows
from streaming.tables.tables import Tables

LOADING = {0: PartitionProgress()}
LOADED = {0: PartitionProgress(loaded=True)}
GROUPS = ["", "g", "g\0", "other"]
VALUES = st.one_of(st.none(), st.integers(0, 5))
BATCHES = st.lists(
    st.dictionaries(st.tuples(st.sampled_from(GROUPS), st.just("t"), st.integers(0, 1)), VALUES, max_size=4),
    min_size=1,
    max_size=4,
)


def batch_of(values: dict[Any, int | None]) -> Batch:
    return {key: None if value is None else offset(committed_offset=value) for key, value in values.items()}


def counted(tailer: Tailer) -> Counters:
    counters = tailer.newest.counters
    assert isinstance(counters, Counters)
    return counters


@settings(max_examples=8)
@given(before=BATCHES, after=BATCHES, at_once=st.booleans())
def test_commits_and_rewinds_are_those_that_came(
    tmp_path_factory: pytest.TempPathFactory, before: list[Any], after: list[Any], at_once: bool
) -> None:
    tables = new_tables(tmp_path_factory.mktemp("counters"))
    live: dict[Any, int | None] = {}

    def write(values: dict[Any, int | None]) -> None:
        now = 25_000 * (tables.progress().sequence + 1)
        batch = {
            key: value if value is None else value | {"commit_timestamp": now}
            for key, value in batch_of(values).items()
        }
        append(tables, batch, live=batch_of(live), now=now)
        live.update(values)

    for values in before:
        write(values)
    tailer = Tailer(tables, clock=lambda: 0, counters=Counters())
    assert tailer.poll()
    assert not counted(tailer).rewinds
    rewinds: Counter[str] = Counter()
    removed: Counter[str] = Counter()
    for number, values in enumerate(after):
        for key, value in values.items():
            old = live.get(key)
            soon = [later.get(key) for later in after[number + 1 : number + 3]]  # within a minute
            is_made_up = old is not None and any(one is not None and one >= old for one in soon)
            rewinds[key[0]] += value is not None and old is not None and value < old and not is_made_up
            removed[key[0]] += value is None and old is not None
        write(values)
        if not at_once:
            assert tailer.poll()
    heartbeat(tables, HOUR_MS)
    assert tailer.poll()
    found = counted(tailer)
    assert dict(found.rewinds) == {group: count for group, count in rewinds.items() if count}
    assert dict(found.removed) == {(group, "unknown"): count for group, count in removed.items() if count}
    assert found.removed_in_all.get("unknown", 0) == sum(removed.values())


def test_commits_are_counted_as_the_changes_say(tables: Tables) -> None:
    tailer = Tailer(tables, clock=lambda: 0, counters=Counters())
    assert tailer.poll()
    batch: Batch = {("g", "t", 0): offset(), ("g", "t", 1): offset(), ("h", "t", 0): offset()}
    rows = changes_of(batch, {})
    place = rows.schema.get_field_index("commits")
    rows = rows.set_column(place, "commits", pa.array([3, None, 0], pa.int32()))
    made, _ = change_rows(rows, sequence=1, batch_time=1_000)
    tables.append_changes(
        made, replace(tables.progress(), query_id=QUERY, batch_id=0, sequence=1), is_batch=True
    )
    assert tailer.poll()
    assert dict(counted(tailer).commits) == {"g": 3}
    assert counted(tailer).commits_in_all == 3


def totals_of(decoded: int, unknown: int = 0) -> Totals:
    at = Position(0, 0)
    kind = UnknownRecords(record_type=9, value_version=1, count=unknown, first=at, last=at)
    return Totals(decoded=decoded, malformed=3, unknown=(kind,), unknown_others=1)


def test_records_are_those_since_the_start(tables: Tables) -> None:
    append(tables, {}, totals=totals_of(100, 5))
    tailer = Tailer(tables, clock=lambda: 0, counters=Counters())
    assert tailer.poll()
    assert set(counted(tailer).records.values()) == {0}
    append(tables, {}, totals=totals_of(110, 7))
    assert tailer.poll()
    assert (counted(tailer).records["decoded"], counted(tailer).records["unknown"]) == (10, 2)


@pytest.mark.parametrize("read_again", [30, 200])
def test_records_that_a_rebuild_reads_again_are_not_counted(tables: Tables, read_again: int) -> None:
    append(tables, {}, totals=totals_of(100), partitions=LOADED)
    tailer = Tailer(tables, clock=lambda: 0, counters=Counters())
    assert tailer.poll()
    append(tables, {}, totals=totals_of(read_again), generation=1, query_id="query-2")
    assert tailer.poll()
    assert set(counted(tailer).records.values()) == {0}
    append(tables, {}, totals=totals_of(read_again + 4), query_id="query-2")
    assert tailer.poll()
    assert counted(tailer).records == dict.fromkeys(RECORDS, 0) | {"decoded": 4}


def test_records_that_are_read_into_new_tables_are_not_counted(tables: Tables) -> None:
    append(tables, {}, totals=totals_of(100), partitions=LOADED)
    tailer = Tailer(tables, clock=lambda: 0, counters=Counters())
    assert tailer.poll()
    root = Path(tables.root)
    root.rename(root.with_name("gone"))
    assert not tailer.poll()
    tables.create()
    for decoded, partitions in ((0, {}), (50, LOADING), (90, LOADING), (120, LOADED), (123, LOADED)):
        append(tables, {}, totals=totals_of(decoded), partitions=partitions, query_id="query-2")
        assert tailer.poll()
    assert counted(tailer).records["decoded"] == 3


@pytest.mark.parametrize(("topic_id", "rewinds"), [("A", 1), (None, 1), ("B", 0)])
def test_a_commit_into_a_topic_that_was_recreated_is_no_rewind(
    tables: Tables, topic_id: str | None, rewinds: int
) -> None:
    live: Batch = {("g", "t", 0): offset(committed_offset=1_000, topic_id="A")}
    append(tables, live)
    tailer = Tailer(tables, clock=lambda: 0, counters=Counters())
    assert tailer.poll()
    append(tables, {("g", "t", 0): offset(committed_offset=3, topic_id=topic_id)}, live=live)
    heartbeat(tables, HOUR_MS)
    assert tailer.poll()
    assert counted(tailer).rewinds.get("g", 0) == rewinds


@pytest.mark.parametrize(
    ("later", "at_first", "in_the_end"),
    [
        ([of_topic(MINUTE_MS, "t", "A")], 1, 1),
        ([of_topic(MINUTE_MS, "t", "B")], 0, 0),
        ([gone(MINUTE_MS, "t")], 1, 1),
        ([of_topic(MINUTE_MS, "other", "B")], 0, 1),
        ([of_topic(10_000, "t", "A")], 0, 1),  # the topic may have been recreated after that
    ],
    ids=["the same", "recreated", "gone", "not sampled any more", "not sampled since"],
)
def test_where_commits_have_no_topic_id_samples_say_whether_it_is_a_rewind(
    tables: Tables, later: list[Sample], at_first: int, in_the_end: int
) -> None:
    now = now_ms()

    def rewinds_at(at: int) -> int:
        heartbeat(tables, now + at)
        assert tailer.poll()
        assert tailer.poll()  # samples are read after what is told of heartbeats
        heartbeat(tables, now + at + 1)
        assert tailer.poll()
        return counted(tailer).rewinds.get("g", 0)

    def append_samples(samples: list[Sample]) -> None:
        tables.append_log_ends(rows_of([one._replace(at=now + one.at) for one in samples]))

    append_samples([of_topic(0, "t", "A"), of_topic(0, "other", "C")])
    live: Batch = {("g", "t", 0): offset(committed_offset=1_000, commit_timestamp=now)}
    append(tables, live, now=now)
    tailer = Tailer(tables, clock=lambda: now + DAY_MS, counters=Counters())
    assert rewinds_at(0) == 0
    at = now + 20_000
    append(tables, {("g", "t", 0): offset(committed_offset=3, commit_timestamp=at)}, live=live, now=at)
    assert rewinds_at(20_000) == 0, "a sample that is newer tells"
    append_samples(later)
    assert rewinds_at(MINUTE_MS + 10_000) == 0, "it may be made up for within a minute"
    assert rewinds_at(MINUTE_MS + 20_000) == at_first
    assert rewinds_at(3 * MINUTE_MS + 20_000) == in_the_end
    assert rewinds_at(HOUR_MS) == in_the_end, "once"
    assert counted(tailer).back["group"].num_chunks == 0, "nothing is left, nor grows"


def test_with_many_topics_the_id_in_a_sample_of_a_partition_may_be_the_former_one(tables: Tables) -> None:
    now, later = now_ms(), now_ms() + 20_000
    others = [of_topic(now, f"t{number}", f"id-{number}") for number in range(IDS_AT_ONCE)]
    tables.append_log_ends(rows_of([of_topic(now, "t", "A"), *others]))
    keys = [("g", "t", 0), ("h", "t0", 0)]
    live: Batch = dict.fromkeys(keys, offset(committed_offset=1_000, commit_timestamp=now))
    append(tables, live, now=now)
    tailer = Tailer(tables, clock=lambda: now + DAY_MS, counters=Counters())
    assert tailer.poll()
    batch: Batch = dict.fromkeys(keys, offset(committed_offset=3, commit_timestamp=later))
    append(tables, batch, live=live, now=later)
    samples = [Sample(later + 10_000, "t", 0, 3, "A"), Sample(later + 10_000, "t0", 0, 1_000, "id-0")]
    asked_for = [of_topic(now, "t", "A"), of_topic(later + 100_000, "t", "B")]
    for at, rows, counted_by_then in (70_000, samples, {}), (100_000, asked_for, {}), (190_000, [], {"h": 1}):
        tables.append_log_ends(rows_of(rows))
        assert tailer.poll()
        heartbeat(tables, later + at)
        assert tailer.poll()
        assert counted(tailer).rewinds == counted_by_then


def test_of_many_that_wait_some_are_counted_at_once(tables: Tables) -> None:
    now = now_ms()
    tables.append_log_ends(rows_of([of_topic(now - MINUTE_MS, "t", "A")]))
    live: Batch = {
        ("g", "t", number): offset(committed_offset=9, commit_timestamp=0) for number in range(10_003)
    }
    append(tables, live, now=now)
    tailer = Tailer(tables, clock=lambda: now, counters=Counters())
    assert tailer.poll()
    append(
        tables, {key: offset(committed_offset=8, commit_timestamp=now) for key in live}, live=live, now=now
    )
    assert tailer.poll()
    assert counted(tailer).rewinds == {"g": 3}
    assert len(counted(tailer).back) == 10_000


@pytest.mark.parametrize(("back_after", "rewinds"), [(59_999, 0), (60_000, 1)])
def test_offsets_that_are_repeated_after_a_rebalance_are_no_rewind(
    tables: Tables, back_after: int, rewinds: int
) -> None:
    def commit(committed_offset: int, before: int, at: int) -> None:
        live: Batch = {("g", "t", 0): offset(committed_offset=before)}
        batch: Batch = {("g", "t", 0): offset(committed_offset=committed_offset, commit_timestamp=at)}
        append(tables, batch, live=live, now=at)
        assert tailer.poll()

    append(tables, {("g", "t", 0): offset(committed_offset=100)})
    tailer = Tailer(tables, clock=lambda: 0, counters=Counters())
    assert tailer.poll()
    commit(95, 100, 10_000)
    commit(99, 95, 20_000)
    commit(100, 99, 10_000 + back_after)
    heartbeat(tables, HOUR_MS)
    assert tailer.poll()
    assert counted(tailer).rewinds.get("g", 0) == rewinds
    assert len(counted(tailer).since) == 0


def test_records_of_a_job_that_begins_later_are_counted(tables: Tables) -> None:
    tailer = Tailer(tables, clock=lambda: 0, counters=Counters())
    assert tailer.poll()
    for decoded in (50, 90):
        append(tables, {}, totals=Totals(decoded=decoded), partitions=LOADING)
        assert tailer.poll()
    assert counted(tailer).records["decoded"] == 90


def test_they_go_on_when_everything_is_read_again(tables: Tables) -> None:
    live: Batch = {("g", "t", 0): offset(committed_offset=9)}
    append(tables, live)
    tailer = Tailer(tables, clock=lambda: 0, counters=Counters())
    assert tailer.poll()
    append(tables, {("g", "t", 0): offset(committed_offset=4)}, live=live)
    heartbeat(tables, HOUR_MS)
    assert tailer.poll()
    assert dict(counted(tailer).rewinds) == {"g": 1}
    root = Path(tables.root)
    root.rename(root.with_name("gone"))
    assert not tailer.poll()
    tables.create()
    append(tables, live)
    assert tailer.poll()
    assert dict(counted(tailer).rewinds) == {"g": 1}


def test_groups_that_are_gone_are_forgotten_once_they_are_many(tables: Tables) -> None:
    append(tables, {("g", "t", 0): offset()})
    tailer = Tailer(tables, clock=lambda: 0)
    assert tailer.poll()
    gone = [f"gone-{number}" for number in range(20_003)]
    many = Counters(
        commits=dict.fromkeys([*gone, "g"], 1), removed={(group, "deleted"): 1 for group in [*gone, "g"]}
    ).with_snapshot(tailer.current)
    assert list(many.gone) == gone[-10_000:]
    assert len(many.removed) == 10_001
    assert many.commits.keys() == {*gone[-10_000:], "g"}


def test_what_a_group_has_lost_is_reported_for_hours_after_it_is_gone(tables: Tables) -> None:
    now = now_ms()
    live: Batch = {("g", "t", 0): offset(), "g": group(), ("h", "t", 0): offset(), ("none", "t", 0): offset()}
    state = {3: PartitionProgress(loaded=True, whole=Reached(as_of=now), stable=Reached(as_of=now))}
    append(tables, live, now=now, partitions=state)
    maker = Maker(tables, now=now, groups=[{"pattern": "none", "granularity": "none"}])

    def told(name: str) -> dict[tuple[str, str], float]:
        return by(maker.read()[f"offsetlake_group_{name}_total"], *("group", "cause"))

    from_0 = {("g", "deleted"), ("g", "expired (probable)"), ("h", "deleted"), ("h", "expired (probable)")}
    assert told("removed_offsets") == dict.fromkeys(from_0, 0)
    gone: Batch = dict.fromkeys(live)
    append(tables, gone, live=live, now=now)
    after = dict.fromkeys(from_0, 0) | {("g", "unknown"): 1, ("h", "unknown"): 1}
    assert told("removed_offsets") == after
    assert set(by(maker.read()["offsetlake_group_commits_total"], "group")) == {"g", "h"}
    append(tables, {("h", "t", 0): offset()}, now=now + KEPT_MS + 1)
    maker.now = now + KEPT_MS + 1
    heartbeat(tables, maker.now, partitions={3: replace(state[3], whole=Reached(as_of=maker.now))})
    assert told("removed_offsets") == {key: count for key, count in after.items() if key[0] == "h"}


def test_they_are_in_the_metrics_from_0_on(tables: Tables) -> None:
    maker = Maker(tables)
    told = maker.read()
    assert told["offsetlake_commits_total"][()] == 0
    assert by(told["offsetlake_removed_offsets_total"], "cause") == dict.fromkeys(CAUSES, 0)
