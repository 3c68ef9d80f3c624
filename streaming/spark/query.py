"""The query: source -> udf -> stateful aggregation -> tables.

It reads like the drawing of the flow in docs/architecture.md.
"""

from collections.abc import Callable
from typing import Final

from pyspark import SparkFiles
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.packing.shards import Shards
from streaming.settings.model import OFFSETS_TOPIC, Settings, SparkSettings
from streaming.spark.processor import SHARD_RESULT, ReplayShard
from streaming.spark.source import read_records
from streaming.spark.udfs import decode_record, packing_udf

WriteBatch = Callable[[DataFrame, int], None]

_UNLOAD: Final = "spark.sql.streaming.stateStore.unloadOnCommit"
"""The setting of Spark that has tasks end with maintenance of the state, which the next batch loads again."""


def start_query(
    spark: SparkSession,
    settings: Settings,
    checkpoint: str,
    shards: Shards,
    write_batch: WriteBatch,
    *,
    once: bool,
    snapshot_first: bool = False,
) -> StreamingQuery:
    """Start reading all partitions of the offsets topic; `write_batch` gets each micro-batch's shard results.

    `shards` are those that the checkpoint holds: other ones would look for an offset where it is not.
    `once` reads to the current end, in as many batches as that takes, and ends the query.
    With `snapshot_first` the first batch ends with a snapshot of the state in the checkpoint, if one is due:
    a query that ends soon, however it does, may not come to one otherwise.
    """
    results = (
        read_records(spark, settings.source, shards.partition_count)
        .transform(in_few_tasks, settings.spark)
        .transform(with_blocks, shards, check_partition=checks_partition(settings))
        .transform(with_shard_results, folder_of_results(settings.spark))
    )
    usual = spark.conf.get(_UNLOAD) or "false"

    def write(batch: DataFrame, batch_id: int) -> None:
        write_batch(batch, batch_id)
        if snapshot_first:  # further batches keep their state loaded
            batch.sparkSession.conf.set(_UNLOAD, usual)

    writer = (
        results.writeStream.queryName("offsetlake")
        .outputMode("update")
        .option("checkpointLocation", checkpoint)
        .foreachBatch(write)
    )
    with_trigger = (
        writer.trigger(availableNow=True)
        if once
        else writer.trigger(processingTime=f"{settings.job.trigger_ms} milliseconds")
    )
    spark.conf.set(_UNLOAD, "true" if snapshot_first else usual)
    try:
        return with_trigger.start()  # in a session of its own, which begins with the settings of this one
    finally:
        spark.conf.set(_UNLOAD, usual)


def checks_partition(settings: Settings) -> bool:
    """Tell whether records in another partition than the one their group hashes to are to be ignored."""
    by_topic = settings.source.topic == OFFSETS_TOPIC
    return {"on": True, "off": False, "auto": by_topic}[settings.source.check_partition]


def in_few_tasks(records: DataFrame, spark: SparkSettings) -> DataFrame:
    """Read several partitions in one task: as many tasks as cores, since each costs 20-50 ms even when
    empty.

    Executors of a cluster come one by one, and those that are there at the start would count for good: so
    there it is a task for each partition, unless `spark.default.parallelism` says how many cores there are.
    """
    is_known = spark.is_local or "spark.default.parallelism" in spark.conf
    return records.coalesce(records.sparkSession.sparkContext.defaultParallelism) if is_known else records


def with_blocks(records: DataFrame, shards: Shards, *, check_partition: bool) -> DataFrame:
    """Decode raw records and pack them by shard: `shard` (its key), `records` (binary).

    With `check_partition`, records in another partition than their group's are counted and dropped. Both UDFs
    run in one worker, chained, so decoded columns never travel through the JVM.
    """
    decoded = decode_record("key", "value", "partition", "offset", "timestamp")
    pack_records = packing_udf(shards, check_partition=check_partition)
    blocks = records.select(pack_records(decoded).alias("block")).select("block.*")
    return blocks.where("records is not null")


def with_shard_results(blocks: DataFrame, folder: str | None = None) -> DataFrame:
    """Replay blocks on the state of their shard: rows `SHARD_RESULT` for each that had any.

    Many changes are left in files of the folder, if there is one.
    """
    return blocks.groupBy("shard").transformWithState(
        ReplayShard(folder), outputStructType=SHARD_RESULT, outputMode="Update", timeMode="None"
    )


def folder_of_results(spark: SparkSettings) -> str | None:
    """Return a folder that workers and driver share and that ends with Spark's session; None on a cluster."""
    return SparkFiles.getRootDirectory() if spark.is_local else None
