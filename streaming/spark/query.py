"""The query: source -> udf -> stateful aggregation -> tables.

It follows the diagram of the flow in docs/architecture.md.
"""

from collections.abc import Callable
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.packing.shards import Shards
from streaming.settings.memory import division_of
from streaming.settings.model import OFFSETS_TOPIC, Settings, SparkSettings
from streaming.spark.processor import SHARD_RESULT, ReplayShard
from streaming.spark.source import read_records
from streaming.spark.udfs import decode_record, packing_udf

WriteBatch = Callable[[DataFrame, int], None]

_UNLOAD: Final = "spark.sql.streaming.stateStore.unloadOnCommit"
"""The Spark setting that makes tasks end with maintenance of the state, which the next batch then loads
again."""


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

    `shards` must be those of the checkpoint: with others, offsets would be looked up in the wrong shard.
    With `once` the query reads to the current end, in as many batches as that takes, and ends.
    With `snapshot_first` the first batch ends with a snapshot of the state in the checkpoint, if one is due:
    a query that ends soon, for whatever reason, might otherwise never write one.
    """
    results = (
        read_records(spark, settings.source, shards.partition_count, records_per_batch(settings))
        .transform(in_few_tasks, settings.spark)
        .transform(with_blocks, shards, check_partition=checks_partition(settings))
        .transform(with_shard_results)
    )
    usual = spark.conf.get(_UNLOAD) or "false"

    def write(batch: DataFrame, batch_id: int) -> None:
        write_batch(batch, batch_id)
        if snapshot_first:  # later batches keep their state loaded
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
        return with_trigger.start()  # in a session of its own, a copy of this one with its settings
    finally:
        spark.conf.set(_UNLOAD, usual)


def records_per_batch(settings: Settings) -> int:
    """Return how many records a batch has at most."""
    return settings.source.max_records_per_batch or division_of(settings).records_per_batch


def checks_partition(settings: Settings) -> bool:
    """Return whether records in another partition than that of their group are ignored."""
    by_topic = settings.source.topic == OFFSETS_TOPIC
    return {"on": True, "off": False, "auto": by_topic}[settings.source.check_partition]


def in_few_tasks(records: DataFrame, spark: SparkSettings) -> DataFrame:
    """Read several partitions in one task: as many tasks as cores, since each costs 20-50 ms even if empty.

    Executors of a cluster register one by one, and the number of those present at the start would stay in
    force. So there each partition has its task, unless `spark.default.parallelism` has the number of cores.
    """
    is_known = spark.is_local or "spark.default.parallelism" in spark.conf
    return records.coalesce(records.sparkSession.sparkContext.defaultParallelism) if is_known else records


def with_blocks(records: DataFrame, shards: Shards, *, check_partition: bool) -> DataFrame:
    """Decode raw records and pack them into blocks by shard: `shard` (its key), `records` (binary).

    With `check_partition`, records in another partition than that of their group are counted and dropped.
    Both UDFs run in one worker, chained, so decoded columns never pass through the JVM.
    """
    decoded = decode_record("key", "value", "partition", "offset", "timestamp")
    pack_records = packing_udf(shards, check_partition=check_partition)
    blocks = records.select(pack_records(decoded).alias("block")).select("block.*")
    return blocks.where("records is not null")


def with_shard_results(blocks: DataFrame) -> DataFrame:
    """Replay packed blocks on the state of their shard: rows `SHARD_RESULT` for each shard with blocks.

    Tasks write most changes themselves if a batch is announced (`task_files`).
    """
    return blocks.groupBy("shard").transformWithState(
        ReplayShard(), outputStructType=SHARD_RESULT, outputMode="Update", timeMode="None"
    )
