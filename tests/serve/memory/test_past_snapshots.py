"""Snapshots of past moments: read later, they are what the newest snapshot was then."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from log_end_rows import Sample, gone, of_topic, rows_of
from maintenance_rounds import KEPT
from memory_snapshots import check_whole, ends_in, groups_in, offsets_in, whole
from new_tables import new_tables
from table_batches import BATCHES, Batch, append, group, heartbeat, in_one_partition, offset, replay

from streaming.common.times import DAY_MS, MINUTE_MS, iso
from streaming.maintenance.maintenance import maintain
from streaming.serve.memory.reading import read_as_of
from streaming.serve.memory.snapshot import MemorySnapshot
from streaming.tables.progress_rows import HistoryGoneError
from streaming.tables.tables import Tables

T0 = 1_763_640_000_000
LATER = T0 + DAY_MS


def contents(snapshot: MemorySnapshot) -> tuple[object, ...]:
    check_whole(snapshot)
    known_ends = [end for end in snapshot.end_offsets.tolist() if end >= 0]  # nothing of removed partitions
    return offsets_in(snapshot), groups_in(snapshot), ends_in(snapshot), known_ends


def compact(tables: Tables) -> None:
    maintain(tables, KEPT, clock=lambda: LATER)


MEANWHILE: list[Callable[[Tables], object]] = [Tables.fold, lambda tables: None, compact]
"""What the job does after each batch."""


@settings(max_examples=3, deadline=None, suppress_health_check=[*HealthCheck])
@given(batches=st.lists(BATCHES.map(in_one_partition), min_size=3, max_size=3))
def test_a_past_snapshot_is_the_newest_one_of_then(
    batches: list[Batch], tmp_path_factory: pytest.TempPathFactory
) -> None:
    tables = new_tables(tmp_path_factory.mktemp("tables"))
    seen = dict[int, tuple[object, ...]]()
    for number, batch in enumerate(batches):
        now = T0 + number * MINUTE_MS
        append(tables, batch, live=replay(batches[:number]), now=now)
        tables.append_log_ends(
            rows_of([Sample(now, "orders", 0, 10 * number), of_topic(now, "orders", "id-1")])
        )
        seen[now] = contents(whole(tables, now))
        MEANWHILE[number](tables)
    assert {moment: contents(read_as_of(tables, moment)) for moment in seen} == seen


def test_topics_that_were_deleted_or_recreated_since_are_as_they_were(tables: Tables) -> None:
    append(tables, {("g", "orders", 0): offset(committed_offset=7), "g": group()}, now=T0)
    rounds = {
        T0: [Sample(T0, "orders", 0, 40, "id-1"), of_topic(T0, "orders", "id-1")],
        T0 + MINUTE_MS: [gone(T0 + MINUTE_MS, "orders")],
        T0 + 2 * MINUTE_MS: [Sample(T0 + 2 * MINUTE_MS, "orders", 0, 3, "id-2")],
    }
    for at, own in rounds.items():
        tables.append_log_ends(rows_of(own))
        heartbeat(tables, at)
    compact(tables)
    found = [read_as_of(tables, moment) for moment in (T0 - 1 + MINUTE_MS, *rounds)]
    assert [one.end_offset("orders", 0) for one in found] == [40, 40, None, 3]
    ids = [one.topics.id_of(one.topics.names.places["orders"]) for one in found]
    assert ids == ["id-1", "id-1", None, "id-2"]


def test_what_is_too_old_then_is_not_known(tables: Tables) -> None:
    append(tables, {("g", "orders", 0): offset(committed_offset=7), "g": group()}, now=T0)
    tables.append_log_ends(rows_of([Sample(T0, "orders", 0, 40)]))
    for minute in range(1, 8):
        heartbeat(tables, T0 + minute * MINUTE_MS)
    moments = [T0 + 5 * MINUTE_MS, T0 + 5 * MINUTE_MS + 1]
    ends = [read_as_of(tables, moment).ends_at(0, 1, moment).tolist() for moment in moments]
    assert ends == [[40], [-1]]


def test_a_past_snapshot_is_complete_by_what_was_read_then(tables: Tables) -> None:
    append(tables, {"g": group()}, now=T0)
    heartbeat(tables, T0 + 2 * MINUTE_MS)
    moment = T0 + MINUTE_MS
    completeness = read_as_of(tables, moment).completeness(moment, within_ms=1_000)
    assert not completeness.is_silent  # though the last heartbeat before it is older than that
    assert not completeness.outdated


def test_a_moment_before_the_history_is_refused(tables: Tables) -> None:
    append(tables, {"g": group()}, now=T0)
    with pytest.raises(HistoryGoneError, match=f"as of {iso(T0 - 1)}: history starts at {iso(T0)}"):
        read_as_of(tables, T0 - 1)
