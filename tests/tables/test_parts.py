"""All offsets and groups read in parts: together the same rows as read at once, each group in one part."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from new_tables import new_tables
from table_batches import BATCHES, Batch, append, group, groups_of_offsets, in_one_partition, live_in, offset

from streaming.model.progress import Progress
from streaming.tables import folding
from streaming.tables.snapshot import LiveRows, Snapshot
from streaming.tables.tables import Tables


def parts_of(at: Snapshot) -> list[LiveRows]:
    return [read() for read in at.parts()]


def check(at: Snapshot) -> None:
    """Fail unless the parts are the whole."""
    live: Batch = {}
    groups_so_far = set[str]()
    parts = parts_of(at)
    for part in parts:
        rows = live_in(part)
        named = {key if isinstance(key, str) else key[0] for key in rows}
        assert not named & groups_so_far
        groups_so_far |= named
        live |= rows
    whole = LiveRows(at.offsets(), at.groups(), at.progress)
    assert live == live_in(whole)
    found = at.live_partitions().to_pylist()
    assert len(found) == len({tuple(row.values()) for row in found})
    expected = whole.offsets.select(["topic", "partition"]).to_pylist()
    assert {tuple(row.values()) for row in found} == {tuple(row.values()) for row in expected}
    assert all(part.progress == at.progress for part in parts)


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    batches=st.lists(BATCHES.map(in_one_partition), min_size=1, max_size=4),
    folds=st.sets(st.integers(0, 3)),
    most=st.sampled_from([3, 1_000]),
)
def test_parts_are_the_whole_at_every_batch_folded_or_not(
    batches: list[Batch], folds: set[int], most: int
) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(folding, "_ROWS_OF_A_PART", most)
        tables, live, written = new_tables(Path(folder) / "root"), Batch(), list[Progress]()
        for number, batch in enumerate(batches):
            written.append(append(tables, batch, live=live))
            live |= batch
            if number in folds:
                tables.fold()
            tables.ask(check)
        for progress in written:  # before or after the fold marks
            tables.ask(lambda at, progress=progress: check(at.up_to(progress)))


@pytest.fixture
def in_parts(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[LiveRows]]:
    """Return a function that reads the parts where at most so many rows are read at once."""

    def read(most: int) -> list[LiveRows]:
        monkeypatch.setattr(folding, "_ROWS_OF_A_PART", most)
        return tables.ask(parts_of)

    return read


@pytest.mark.parametrize("is_folded", [True, False])
def test_there_are_several_parts_where_rows_are_many(
    tables: Tables, in_parts: Callable[[int], list[LiveRows]], is_folded: bool
) -> None:
    append(tables, groups_of_offsets(160, 3, ""))
    if is_folded:
        tables.fold()
    (whole,) = in_parts(640)
    assert (len(whole.offsets), len(whole.groups)) == (480, 160)
    several = in_parts(200)
    assert 4 <= len(several) <= 6
    assert max(len(part.offsets) + len(part.groups) for part in several) <= 200
    assert len(in_parts(1)) == folding.BUCKETS


def test_unfolded_changes_are_counted_with_the_folded_rows(
    tables: Tables, in_parts: Callable[[int], list[LiveRows]]
) -> None:
    append(tables, {("g", "t", 0): offset(), "g": group()})
    tables.fold()
    append(tables, groups_of_offsets(160, 3, ""))
    assert len(in_parts(200)) > 1
