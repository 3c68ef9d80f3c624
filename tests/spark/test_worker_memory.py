"""Freed memory is kept while rows are many, and given back a while after: seen by what the process holds."""

import os
import subprocess
import sys
import textwrap

import pyarrow as pa
import pytest

from streaming.common.freed_memory import AT_ONCE, glibc
from streaming.spark.worker_memory import KEPT_FOR_S, MANY_ROWS, TRIMMED_EVERY_S, FreedMemory

IN_A_PROCESS = """
import os
import numpy as np
from streaming.common.freed_memory import glibc
from streaming.spark.worker_memory import FreedMemory

def held():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 2**20

def use_and_free():
    pieces = [np.ones(2**20 // 2) for _ in range(50)]  # of 4 MiB

def use_and_leave_one():
    return [np.ones(2**13) for _ in range(2_000)][-1]  # of 64 KiB, which the C library takes from its heap

now = 1_000.0
memory = FreedMemory(glibc(), lambda: now)
first = held()
told = []
for passed, rows in STEPS:
    now += passed
    memory.handled(rows)
    if rows == 1:
        left = use_and_leave_one()
    elif rows:
        use_and_free()
    told.append(held() - first)
print(*told)
"""

needs_glibc = pytest.mark.skipif(glibc() is None, reason="memory is managed by other means without glibc")


def held_after(*steps: tuple[float, int]) -> list[int]:
    """Return how many MiB more a process holds after each step: seconds that pass, rows that are handled."""
    script = textwrap.dedent(IN_A_PROCESS).replace("STEPS", repr(steps))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return [int(mib) for mib in done.stdout.split()]


@needs_glibc
def test_memory_of_many_rows_is_kept_until_there_were_few_for_a_while() -> None:
    kept, soon, later = held_after((0, MANY_ROWS), (KEPT_FOR_S - 1, 0), (2, 0))
    assert min(kept, soon) > 150
    assert later < 20


@needs_glibc
def test_memory_of_few_rows_is_given_back() -> None:
    [held] = held_after((0, MANY_ROWS - 1))
    assert held < 20


@needs_glibc
def test_what_small_batches_leave_behind_is_given_back_now_and_then() -> None:
    used, soon, later = held_after((0, 1), (TRIMMED_EVERY_S - 1, 0), (2, 0))
    assert min(used, soon) > 100
    assert later < 20


@needs_glibc
def test_memory_is_returned_at_once_within_a_block() -> None:
    now, before = 0.0, pa.default_memory_pool().backend_name
    memory = FreedMemory(glibc(), lambda: now)
    with memory.returned():
        assert not memory.is_kept
    assert not memory.is_kept
    memory.handled(MANY_ROWS)
    with memory.returned():
        assert not memory.is_kept
        assert pa.default_memory_pool().backend_name == before
    assert memory.is_kept
    now = KEPT_FOR_S + 1
    memory.handled(0)


@needs_glibc
def test_arrow_takes_its_memory_from_the_library_only_while_it_is_kept() -> None:
    now, before = 0.0, pa.default_memory_pool().backend_name
    memory = FreedMemory(glibc(), lambda: now)
    memory.handled(MANY_ROWS)
    assert pa.default_memory_pool().backend_name == "system"
    now = KEPT_FOR_S + 1
    memory.handled(0)
    assert pa.default_memory_pool().backend_name == before


def test_without_glibc_nothing_is_changed() -> None:
    before = pa.default_memory_pool().backend_name
    memory = FreedMemory(None)
    memory.expect_many_rows()
    assert not memory.is_kept
    assert pa.default_memory_pool().backend_name == before


@needs_glibc
def test_where_memory_is_scarce_nothing_is_kept() -> None:
    script = textwrap.dedent(IN_A_PROCESS).replace("STEPS", repr(((0, MANY_ROWS), (0, 10 * MANY_ROWS))))
    script = script.replace("first = held()", "memory.keep_nothing()\nfirst = held()")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert max(map(int, done.stdout.split())) < 20


@needs_glibc
def test_workers_are_told_by_their_environment_to_keep_nothing() -> None:
    script = textwrap.dedent(IN_A_PROCESS).replace("STEPS", repr(((0, MANY_ROWS),)))
    script = script.replace(
        "memory = FreedMemory(glibc(), lambda: now)", "memory = worker_memory._OF_THIS_PROCESS"
    )
    script = "from streaming.spark import worker_memory\nimport pyarrow\n" + script
    script += "\nprint(pyarrow.default_memory_pool().backend_name)\n"
    environment = {**os.environ, **AT_ONCE}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment
    )
    held, pool = done.stdout.split()
    assert int(held) < 20
    assert pool == "system"
