"""Warms Spark up for the first batch while tables and query are still being prepared."""

import threading
from contextlib import suppress
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streaming.packing.shards import Shards
from streaming.spark.query import with_blocks

_RECORD: Final = [
    "CAST(NULL AS binary) AS key",
    "CAST(NULL AS binary) AS value",
    "0 AS partition",
    "0L AS offset",
    "0L AS timestamp",
]


def start_workers(context: SparkContext) -> None:
    """Start a Python worker per core in the background, before there is a session.

    Errors are ignored: they will recur in the query, which reports them.
    """
    threading.Thread(target=_visit, args=(context,), name="offsetlake-workers", daemon=True).start()


def _visit(context: SparkContext) -> None:
    with suppress(Py4JError, PySparkException, OSError, AttributeError):  # the last: already stopped
        cores = context.defaultParallelism
        context.range(cores, numSlices=cores).foreach(_nothing)


def _nothing(_number: int) -> None:
    """Do nothing: starting the worker is the purpose."""


def start_warm_up(spark: SparkSession) -> None:
    """Decode a record per core in the background: Python workers start and import, the JVM loads classes.

    Errors are ignored: they will recur in the query, which reports them.
    """
    threading.Thread(target=_decode, args=(spark,), name="offsetlake-warm-up", daemon=True).start()


def _decode(spark: SparkSession) -> None:
    with suppress(Py4JError, PySparkException, OSError, AttributeError):
        cores = spark.sparkContext.defaultParallelism
        records = spark.range(cores, numPartitions=cores).selectExpr(*_RECORD)
        blocks = with_blocks(records, Shards(1, 1), check_partition=False)
        blocks.write.format("noop").mode("overwrite").save()
