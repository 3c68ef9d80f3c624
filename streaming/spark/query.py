"""The query: source -> udf -> stateful aggregation -> tables.

It reads like the drawing of the flow in docs/architecture.md.
"""

from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.settings.model import OFFSETS_TOPIC, Settings, SparkSettings
from streaming.spark.processor import SHARD_RESULT, ReplayOffsetsPartition
from streaming.spark.source import read_records
from streaming.spark.udfs import decode_record, packing_udf

WriteBatch = Callable[[DataFrame, int], None]


def start_query(
    spark: SparkSession,
    settings: Settings,
    checkpoint: str,
    partition_count: int,
    write_batch: WriteBatch,
    *,
    once: bool,
) -> StreamingQuery:
    """Start reading all partitions of the offsets topic; `write_batch` gets each micro-batch's shard results.

    `once` reads to the current end, in as many batches as that takes, and ends the query.
    """
    results = (
        read_records(spark, settings.source, partition_count)
        .transform(in_few_tasks, settings.spark)
        .transform(with_packets, partition_count if checks_partition(settings) else None)
        .transform(with_shard_results)
    )
    writer = (
        results.writeStream.queryName("offsetlake")
        .outputMode("update")
        .option("checkpointLocation", checkpoint)
        .foreachBatch(write_batch)
    )
    return (
        writer.trigger(availableNow=True)
        if once
        else writer.trigger(processingTime=f"{settings.job.trigger_ms} milliseconds")
    ).start()


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


def with_packets(records: DataFrame, partition_count: int | None = None) -> DataFrame:
    """Decode raw records and pack them by offsets partition: `source_partition`, `records` (binary).

    With `partition_count`, records in another partition than their group's are counted and dropped. Both UDFs
    run in one worker, chained, so decoded columns never travel through the JVM.
    """
    decoded = decode_record("key", "value", "partition", "offset", "timestamp")
    packed = records.select(packing_udf(partition_count)(decoded).alias("packet")).select("packet.*")
    return packed.where("records is not null")


def with_shard_results(packets: DataFrame) -> DataFrame:
    """Replay packets on the state of their offsets partition: one row (`SHARD_RESULT`) for each that had
    any."""
    return packets.groupBy("source_partition").transformWithState(
        ReplayOffsetsPartition(), outputStructType=SHARD_RESULT, outputMode="Update", timeMode="None"
    )
