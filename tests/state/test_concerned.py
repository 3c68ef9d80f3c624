"""The entries that are selected for a batch have the same effect as all entries."""

from dataclasses import replace
from random import Random

import pyarrow as pa
import pytest
from plain_replay import Record

from streaming.state import concerned as module
from streaming.state import encoded, layers
from streaming.state.concerned import concerned
from streaming.state.replay import Shard, replay
from tests.state.test_replay import (
    commit,
    group_record,
    to_table,
    tombstone,
    unreadable,
    unreadable_group_record,
)

GROUPS = ["", "g", "g\0", "ü-😀", "a group", "another"]
BATCHES = 40


@pytest.fixture(autouse=True)
def always_with_dictionaries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoded, "_LEAST_REPEATED", 0)
    monkeypatch.setattr(layers, "MANY_ROWS", 0)


def any_record(random: Random, offset: int) -> Record:
    group, partition = random.choice(GROUPS), random.randrange(5)
    topic = random.choice(["t", "t\0", "new" if offset > 300 else "t"])
    make = random.choices(
        [
            lambda: commit(offset, offset * 10, group, topic, partition),
            lambda: tombstone(offset, group, topic, partition),
            lambda: unreadable(offset, group, topic, partition),
            lambda: group_record(offset, group),
            lambda: group_record(offset, group, ends=True),
            lambda: unreadable_group_record(offset, group),
        ],
        [100, 3, 2, 2, 15, 1],
    )[0]
    return replace(make(), source_partition=random.choice([1, 1, 1, 2]))


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.more) for seed in (2, 3))])
def test_selected_entries_have_the_effect_of_all(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random, offset, left_out = Random(seed), 0, 0
    of_all = of_some = Shard.empty()
    for _ in range(BATCHES):
        batch = []
        for _ in range(random.choice([1, 1, 2, 20])):
            offset += 1
            batch.append(any_record(random, offset))
        records = to_table(batch)
        monkeypatch.setattr(module, "LOOKED_THROUGH", 10_000)
        of_all, expected = replay(of_all, records)
        monkeypatch.setattr(module, "LOOKED_THROUGH", 0)
        groups = {record.group for record in batch}
        of_groups = sum(group in groups for group in of_some.entries.table["group"].to_pylist())
        left_out += of_groups - len(concerned(of_some.entries, records)[0])
        of_some, found = replay(of_some, records)
        assert rows_of(found) == rows_of(expected)
        assert rows_of(of_some.entries.table) == rows_of(of_all.entries.table)
        entries = of_some.entries
        kept = random.choice([entries, entries, entries.condensed(), entries.rewritten()])
        of_some = replace(of_some, entries=kept)
    assert left_out > 20, "hardly any entry was left out: nothing was tested"


def rows_of(table: pa.Table) -> list[dict[str, object]]:
    return sorted(table.to_pylist(), key=repr)
