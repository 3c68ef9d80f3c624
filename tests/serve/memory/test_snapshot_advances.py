"""A snapshot that goes on from commit to commit is the one that is read whole, and what the tables answer."""

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from memory_snapshots import (
    check_whole,
    groups_answered,
    groups_in,
    offsets_answered,
    offsets_in,
    whole,
)
from new_tables import new_tables
from table_batches import GROUPS, OFFSETS, Batch, append, group, heartbeat, in_one_partition, optional

from streaming.common.arrays import Index
from streaming.model.progress import PartitionProgress
from streaming.serve.memory import assigned, reading, texts
from streaming.serve.memory.assigned import Assignments
from streaming.serve.memory.tailer import Tailer
from streaming.tables.tables import Tables

FEW_GROUPS = st.sampled_from(["", "g", "g\0"])
BATCHES = st.builds(
    lambda offsets, groups: {**offsets, **groups},
    st.dictionaries(
        st.tuples(FEW_GROUPS, st.sampled_from(["t", "t\0"]), st.integers(-1, 1)),
        optional(OFFSETS),
        max_size=8,
    ),
    st.dictionaries(FEW_GROUPS, optional(GROUPS), max_size=2),
)
"""Batches of few keys, so that most are there and change several times."""

STEPS = st.one_of(
    BATCHES.map(in_one_partition), BATCHES, st.sampled_from(["fold", "compact", "heartbeat", "look", "look"])
)


def do(step: Batch | str, tables: Tables, tailer: Tailer) -> None:
    match step:
        case "fold":
            tables.fold()
        case "compact":
            for name in ("changes", "offsets", "groups"):
                table = DeltaTable(f"{tables.root}/{name}")
                table.optimize.compact()
                table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        case "heartbeat":
            heartbeat(tables, tables.progress().heartbeat + 10_000)
        case "look":
            assert tailer.poll()
        case dict():
            append(tables, step)


@settings(max_examples=7, deadline=None, suppress_health_check=[*HealthCheck])
@given(steps=st.lists(STEPS, max_size=10), is_spare=st.booleans())
def test_an_advanced_snapshot_is_the_whole_one_and_what_the_tables_answer(
    steps: list[Batch | str], *, is_spare: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tables = new_tables(tmp_path_factory.mktemp("tables"))
    with pytest.MonkeyPatch.context() as patched:
        if is_spare:  # texts are sorted out, and changes applied, as if there were many
            patched.setattr(texts, "_SPARE_TEXTS", -1)
            patched.setattr(reading, "_MANY_ROWS", 2)
        tailer = Tailer(tables)
        append(tables, {}, partitions={ord("g"): PartitionProgress(loaded=True)})  # of all groups
        assert tailer.poll()
        for step in steps:
            do(step, tables, tailer)
        assert tailer.poll()
        for snapshot in (tailer.current, whole(tables)):
            check_whole(snapshot)
            assert snapshot.progress == tables.progress()
            assert offsets_in(snapshot) == offsets_answered(tables)
            assert groups_in(snapshot) == groups_answered(tables)


# --- what members have -------------------------------------------------------------------------------------

ASSIGNED = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["t", "u", "", None]),
        "topic_id": st.sampled_from(["AAAAAAAAAAEAAAAAAAAAAg", None]),
        "partitions": st.lists(st.integers(0, 3), max_size=3),
    }
)
MEMBERS = st.lists(
    st.fixed_dictionaries(
        {
            "member_id": st.just("m"),
            "assignment": optional(st.lists(ASSIGNED, max_size=2)),
            "target_assignment": optional(st.lists(ASSIGNED, max_size=2)),
        }
    ),
    max_size=2,
)
CHANGES = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    optional(MEMBERS.map(lambda members: group(source_partition=0, members=members))),
    min_size=1,
)


def assigned_in(held: Assignments) -> set[tuple[str | None, str | None, int]]:
    topics, ids, partitions = held.distinct
    names, known = ([*texts.texts.to_pylist(), None] for texts in (topics, ids))
    rows = zip(topics.codes.tolist(), ids.codes.tolist(), partitions.tolist(), strict=True)
    found = [(names[topic], known[topic_id], partition) for topic, topic_id, partition in rows]
    assert len(found) == len(set(found))
    return set(found)


@settings(max_examples=5, deadline=None, suppress_health_check=[*HealthCheck])
@given(steps=st.lists(CHANGES, min_size=1, max_size=4), is_spare=st.booleans())
def test_what_members_have_is_advanced_by_the_groups_that_change(
    steps: list[Batch], *, is_spare: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tables, looked_at = new_tables(tmp_path_factory.mktemp("tables")), list[int]()
    find = Assignments.of

    def found(members: pa.ChunkedArray, groups: Index) -> Assignments:
        looked_at.append(len(groups))
        return find(members, groups)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Assignments, "of", found)
        if is_spare:
            patched.setattr(assigned, "_SPARE", -1)
        tailer = Tailer(tables)
        assert tailer.poll()
        live: Batch = {}
        for step in steps:
            append(tables, step, live=dict(live))
            live |= step
            looked_at.clear()
            assert tailer.poll()
            assert looked_at in ([], [len(step)])
        expected = {
            (one["topic"], one["topic_id"], partition)
            for row in live.values()
            for member in (row or {}).get("members") or ()
            for part in ("assignment", "target_assignment")
            for one in member[part] or ()
            for partition in one["partitions"]
        }
        assert assigned_in(tailer.current.groups.assignments) == expected
        assert assigned_in(whole(tables).groups.assignments) == expected
