"""Folds by tasks of Spark: the tables hold the same as after a fold by the driver."""

import logging
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from kafka_clients import wait_until
from pyspark import SparkContext
from pyspark.sql import SparkSession
from table_batches import Batch, append, as_read, completed, group, offset

from streaming.settings.secrets import Secret
from streaming.spark import fold_tasks
from streaming.spark.fold_tasks import MANY_ROWS, folds_by_tasks
from streaming.tables.folding import BucketsToFold, FoldedBuckets
from streaming.tables.tables import Tables

pytestmark = pytest.mark.spark

BATCH: Batch = {(f"g{number}\0🐢", "t", part): offset() for number in range(200) for part in range(2)}
BUSY = "tests-all-cores"
GROUPS: Batch = {f"g{number}\0🐢": group() for number in range(200)}


def fold(spark: SparkSession, tables: Tables, rows: int) -> list[int]:
    """Fold as for so many rows; return the number of parts of each table."""
    append(tables, BATCH | GROUPS)
    folds = folds_by_tasks(spark.sparkContext, tables.storage_options)(rows)
    assert folds is not None
    counts = list[int]()

    def counted(wanted: BucketsToFold) -> list[FoldedBuckets]:
        parts = list(folds(wanted))
        counts.append(len(parts))
        assert sorted(bucket for part in parts for bucket in part.buckets) == list(range(16))
        return parts

    assert tables.fold(counted) == len(BATCH | GROUPS)
    assert tables.folded_up_to() == tables.progress().sequence
    assert as_read(tables) == completed(BATCH | GROUPS)
    return counts


@pytest.mark.parametrize(("rows", "parts"), [(MANY_ROWS, 1), (2_500_000, 3), (10**9, 4)])
def test_tasks_fold_many_rows(
    spark: SparkSession, tables: Tables, caplog: pytest.LogCaptureFixture, rows: int, parts: int
) -> None:
    assert fold(spark, tables, rows) == [parts, parts]
    assert not caplog.records
    assert folds_by_tasks(spark.sparkContext, {})(MANY_ROWS - 1) is None


@pytest.mark.more
def test_if_no_executor_has_a_core_in_time_the_driver_folds(
    spark: SparkSession, tables: Tables, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold_tasks, "_LIMIT_S", 2.0)
    context = spark.sparkContext
    with ThreadPoolExecutor(1) as pool:
        busy = pool.submit(lambda: _sleeping(context))
        wait_until(lambda: len(context.statusTracker().getActiveStageIds()) > 0, "tasks that take all cores")
        with caplog.at_level(logging.WARNING):
            assert fold(spark, tables, MANY_ROWS) == [1, 1]
        context.cancelJobsWithTag(BUSY)
        with pytest.raises(Exception, match="cancelled"):
            busy.result()
    assert len(caplog.records) == 2
    assert "cancelled" in caplog.text
    assert "The driver folds instead." in caplog.text


def _sleeping(context: SparkContext) -> None:
    context.addJobTag(BUSY)
    tasks = context.defaultParallelism
    context.parallelize(range(tasks), tasks).foreach(lambda _: time.sleep(60))


def test_if_tasks_fail_the_driver_folds(
    spark: SparkSession, tables: Tables, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"aws_region": Secret("here", "${env:NO_SUCH_VARIABLE_OF_A_WORKER}")}
    with caplog.at_level(logging.WARNING):
        assert fold(spark, Tables(tables.root, options), MANY_ROWS) == [1, 1]
    assert len(caplog.records) == 2
    assert "NO_SUCH_VARIABLE_OF_A_WORKER" in caplog.text
    assert "The driver folds instead." in caplog.text
