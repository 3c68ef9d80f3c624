"""Freed memory is returned after many rows, and now and then after few: how a worker does it, and when."""

import os
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import pandas_udf

from streaming.common.freed_memory import glibc
from streaming.spark.worker_memory import MANY_ROWS, RETURNED_EVERY_S, FreedMemory, prepare_worker


@pytest.mark.parametrize(
    ("steps", "returned"),
    [
        ([(0, MANY_ROWS), (0, MANY_ROWS + 1)], [True, True]),
        ([(0, MANY_ROWS - 1), (1, 0), (0, 1), (0, MANY_ROWS - 1)], [False, False, True, False]),
        ([(RETURNED_EVERY_S - 1, 1), (2, 0), (2, 0)], [False, True, False]),
        ([(RETURNED_EVERY_S + 1, MANY_ROWS), (RETURNED_EVERY_S - 1, 0), (2, 0)], [True, False, True]),
    ],
    ids=["many", "few", "now and then", "many, then few"],
)
def test_memory_is_returned_after_many_rows_and_now_and_then_after_few(
    steps: list[tuple[float, int]], returned: list[bool]
) -> None:
    """Each step: the seconds that pass, and the rows that it handles."""
    now, done = 1_000.0, list[float]()
    memory = FreedMemory(lambda: done.append(now), lambda: now)
    seen = []
    for passed, rows in steps:
        now += passed
        before = len(done)
        memory.after(rows)
        seen.append(len(done) > before)
    assert seen == returned


@pytest.mark.spark
@pytest.mark.skipif(glibc() is None, reason="memory is managed by other means without glibc")
def test_a_worker_returns_large_blocks_at_once(spark: SparkSession) -> None:
    @pandas_udf("long")  # type: ignore[call-overload, untyped-decorator]
    def returned_of_50_mib(ids: pd.Series) -> pd.Series:
        prepare_worker()
        page = os.sysconf("SC_PAGE_SIZE")

        def held_bytes() -> int:
            return int(Path("/proc/self/statm").read_text().split()[1]) * page

        freed = []
        for _ in range(10):
            pieces = [pa.allocate_buffer(5 * 2**20) for _ in range(10)]
            for piece in pieces:
                memoryview(piece).cast("B")[::4096] = bytes(len(piece) // 4096)  # so that it is really there
            used = held_bytes()
            del piece, pieces
            freed.append(used - held_bytes())
        return pd.Series([min(freed)] * len(ids))

    [row] = spark.range(1).select(returned_of_50_mib("id").alias("freed")).collect()
    assert row["freed"] > 45 * 2**20
