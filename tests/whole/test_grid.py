"""The grid of faults and moments: each fault, whenever it happens, ends with tables that equal the broker's
answers, and with no rebuild that need not be.

Only `make test-grid` walks the cells (it sets GRID), and prints them as a table.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from grid_cells import FAULTS, MOMENTS, Fault, job_at, rebuilds_of, walk
from grid_world import World, world
from kafka_versions import KafkaVersion

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.skipif("GRID" not in os.environ, reason="`make test-grid` runs it"),
]

OUTCOMES = os.environ.get("GRID")
"""The folder where `make test-grid` collects outcomes; what stands there already is not walked again."""


def file_of(fault: Fault, moment: str) -> Path:
    return Path(OUTCOMES or "") / f"{FAULTS.index(fault):02}-{MOMENTS.index(moment)}.txt"


CELLS = [
    (fault, moment)
    for fault in FAULTS
    for moment in MOMENTS
    if not (OUTCOMES and file_of(fault, moment).exists())
]


@pytest.fixture
def a_world(kafka_version: KafkaVersion, tmp_path: Path) -> Iterator[World]:
    with world(tmp_path / "broker", kafka_version) as running:
        yield running


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("fault", "moment"), CELLS, ids=[f"{fault.name} - {moment}" for fault, moment in CELLS]
)
def test_the_tables_equal_the_brokers_answers(
    a_world: World, tmp_path: Path, fault: Fault, moment: str
) -> None:
    if fault.name == "table storage that refuses writes" and os.geteuid() != 0:
        pytest.skip("only root can make a file system read-only")
    began = time.monotonic()
    with job_at(a_world, fault, moment, tmp_path / "job") as cell:
        walk(cell, fault)
    rebuilds = "1 rebuild" if rebuilds_of(fault, moment) else "no rebuild"
    note(fault, moment, f"ok, {rebuilds}, {time.monotonic() - began:.0f} s")


def note(fault: Fault, moment: str, outcome: str) -> None:
    """Leave the outcome where `make test-grid` collects it."""
    if OUTCOMES:
        file_of(fault, moment).write_text(outcome)
