"""The assessment: facts are there for the offsets that they are asked for, and the same however they are."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from lag_tables import LagTables
from log_end_rows import of_topic, rows_of
from new_tables import new_tables
from table_batches import append, group, offset

from streaming.assessment.assess import Facts, assess
from streaming.assessment.owners import with_assigned
from streaming.common.keys import KEY_NAMES
from streaming.common.times import HOUR_MS, now_ms
from streaming.lag.health import PARTITION_HEALTH
from streaming.tables.tables import Tables

ALL = Facts(lag=True, lag_time=True, sampling=True, health=True, recreated_topic=True, expiry=24 * HOUR_MS)


def assessed(tables: Tables, facts: Facts, *, moment: int) -> pa.Table:
    return tables.ask(lambda at: assess(at, at.offsets().sort_by("group"), facts, moment=moment))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> LagTables:
    return LagTables(tmp_path_factory.mktemp("assess"), now_ms())


@pytest.mark.parametrize("chosen", [["live"], ["dead", "old"], [], ["dead", "live", "lost", "old"]])
def test_facts_of_some_offsets_are_those_of_all(world: LagTables, chosen: list[str]) -> None:
    of_all = assessed(world.tables, ALL, moment=world.now)
    is_chosen = np.isin(of_all["group"].to_pylist(), chosen)
    some = assessed(
        world.tables, Facts(lag=True, health=is_chosen, recreated_topic=is_chosen), moment=world.now
    )
    added = [*PARTITION_HEALTH.names, "of_recreated_topic"]
    for of_one, of_some, is_one in zip(
        of_all.select(added).to_pylist(), some.select(added).to_pylist(), is_chosen, strict=True
    ):
        assert of_some == (of_one if is_one else dict.fromkeys(added))
    assert some.select(added).schema == of_all.select(added).schema


def test_only_what_is_asked_for_is_read_and_added(world: LagTables) -> None:
    names = assessed(world.tables, Facts(), moment=world.now).column_names
    assert names == world.tables.ask(lambda at: at.offsets()).column_names
    added = set(assessed(world.tables, ALL, moment=world.now).column_names) - set(names)
    assert added >= {"lag", "lag_seconds", "is_sampled", "status", "of_recreated_topic", "rule", "expires_at"}


def test_partitions_that_members_have_and_nobody_committed_are_rows(tmp_path: Path) -> None:
    def member(name: str, topic_id: str | None, topic: str | None, *partitions: int) -> dict[str, Any]:
        assigned = [{"topic": topic, "topic_id": topic_id, "partitions": partitions}]
        return {"member_id": name, "client_id": "c", "client_host": "/h", "assignment": assigned}

    tables = new_tables(tmp_path)
    task = {"subtopology": "0", "task_type": "active", "partitions": [1]}
    members = [member("a", None, "orders", 0, 1), member("b", None, "nul\0", 7), {"member_id": "c"}]
    by_id = [member("m", "id-1", None, 3), member("n", "id-9", None, 4)]
    append(
        tables,
        {
            "billing": group(members=members, source_partition=5),
            ("billing", "orders", 1): offset(committed_offset=5, source_partition=5),
            ("billing", "orders", 9): offset(committed_offset=6, source_partition=5),
            "newer": group(type="consumer", members=by_id, source_partition=2),
            "idle": group(state="Empty", members=[]),
            "sharing": group(type="share", members=by_id),
            "tasks": group(type="streams", members=[{"member_id": "s", "assignment": [task]}]),
        },
    )
    tables.append_log_ends(rows_of([of_topic(900, "orders", "id-1")]))
    rows = tables.ask(lambda at: with_assigned(at.offsets(), at.groups(), at, now_ms()))
    found = {tuple(row[name] for name in KEY_NAMES): row for row in rows.to_pylist()}
    assert len(found) == len(rows)
    assert {key: row["committed_offset"] for key, row in found.items()} == {
        ("billing", "orders", 0): None,
        ("billing", "orders", 1): 5,
        ("billing", "orders", 9): 6,
        ("billing", "nul\0", 7): None,
        ("newer", "orders", 3): None,  # of id-9 no name is known
    }
    assert found["newer", "orders", 3]["source_partition"] == 2
