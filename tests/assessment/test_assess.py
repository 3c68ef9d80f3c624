"""The assessment: facts are there for the offsets that they are asked for, and the same however they are."""

import numpy as np
import pyarrow as pa
import pytest
from lag_tables import LagTables

from streaming.assessment.assess import Facts, assess
from streaming.common.times import HOUR_MS, now_ms
from streaming.lag.health import PARTITION_HEALTH
from streaming.tables.tables import Tables

ALL = Facts(lag=True, lag_time=True, sampling=True, health=True, former_topic=True, expiry=24 * HOUR_MS)


def assessed(tables: Tables, facts: Facts, *, moment: int) -> pa.Table:
    return tables.ask(lambda at: assess(at, at.offsets().sort_by("group"), facts, moment=moment))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> LagTables:
    return LagTables(tmp_path_factory.mktemp("assess"), now_ms())


@pytest.mark.parametrize("chosen", [["live"], ["dead", "old"], [], ["dead", "live", "lost", "old"]])
def test_facts_of_some_offsets_are_those_of_all(world: LagTables, chosen: list[str]) -> None:
    of_all = assessed(world.tables, ALL, moment=world.now)
    is_chosen = np.isin(of_all["group"].to_pylist(), chosen)
    some = assessed(world.tables, Facts(lag=True, health=is_chosen, former_topic=is_chosen), moment=world.now)
    added = [*PARTITION_HEALTH.names, "of_former_topic"]
    for of_one, of_some, is_one in zip(
        of_all.select(added).to_pylist(), some.select(added).to_pylist(), is_chosen, strict=True
    ):
        assert of_some == (of_one if is_one else dict.fromkeys(added))
    assert some.select(added).schema == of_all.select(added).schema


def test_only_what_is_asked_for_is_read_and_added(world: LagTables) -> None:
    names = assessed(world.tables, Facts(), moment=world.now).column_names
    assert names == world.tables.ask(lambda at: at.offsets()).column_names
    added = set(assessed(world.tables, ALL, moment=world.now).column_names) - set(names)
    assert added >= {"lag", "lag_seconds", "is_sampled", "status", "of_former_topic", "rule", "expires_at"}
