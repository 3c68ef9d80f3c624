"""The pandas UDF: usable by anybody in a batch or a stream, and what the job decodes with."""

from pathlib import Path

import numpy as np
import pytest
from blocks_read import read_blocks
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit

from decoders import RECORD_SCHEMA
from streaming import decode_record
from streaming.packing.shards import Shards
from streaming.settings.reading import read_settings
from streaming.spark.query import in_few_tasks, with_blocks, with_shard_results

pytestmark = pytest.mark.spark

COMMIT_KEY = bytes.fromhex("000100016700017400000003")
COMMIT_VALUE = bytes.fromhex("0003000000000000002a0000000700016d00000000000003e8")
SHARDS = Shards(partition_count=2, state_partitions=2)
RAW = "key binary, value binary, partition int, offset long, timestamp long"


def raw_records(spark: SparkSession) -> DataFrame:
    rows = [
        (COMMIT_KEY, COMMIT_VALUE, 0, 5, 1_000),
        (COMMIT_KEY, None, 0, 6, 1_001),
        (COMMIT_KEY, COMMIT_VALUE[:-1], 1, 7, 1_002),
        (None, b"", 1, 8, 1_003),
    ]
    return spark.createDataFrame(rows, RAW).coalesce(1)


def test_anybody_can_decode_in_a_batch(spark: SparkSession) -> None:
    decoded = raw_records(spark).select(decode_record("key", "value").alias("record")).select("record.*")
    assert decoded.columns == RECORD_SCHEMA.names
    commit, tombstone, cut, nothing = decoded.collect()
    assert (commit["group"], commit["topic"], commit["partition"]) == ("g", "t", 3)
    assert (commit["committed_offset"], commit["leader_epoch"], commit["metadata"]) == (42, 7, "m")
    assert tombstone["is_tombstone"]
    assert tombstone["committed_offset"] is None
    assert (cut["error_kind"], cut["field"]) == ("malformed", "commitTimestamp")
    assert nothing["error_kind"] == "malformed"


def test_anybody_can_decode_in_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    raw_records(spark).write.parquet(str(tmp_path / "raw"))
    stream = spark.readStream.schema(RAW).parquet(str(tmp_path / "raw"))
    query = (
        stream.select(decode_record(col("key"), col("value")).alias("record"))
        .writeStream.format("memory")
        .queryName("decoded")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(60)
    groups = [row["group"] for row in spark.sql("select record.group from decoded").collect()]
    assert sorted(map(str, groups)) == ["None", "g", "g", "g"]


def test_many_records_in_one_arrow_batch_decode_as_well(spark: SparkSession) -> None:
    count = 40_000
    many = spark.range(count, numPartitions=1).select(
        lit(COMMIT_KEY).alias("key"), lit(COMMIT_VALUE).alias("value")
    )
    decoded = many.select(decode_record("key", "value").alias("record"))
    assert decoded.where("record.committed_offset = 42").count() == count


def test_an_empty_frame_decodes_to_an_empty_frame(spark: SparkSession) -> None:
    empty = raw_records(spark).where(lit(False))
    assert empty.select(decode_record("key", "value").alias("record")).collect() == []


def test_the_job_packs_each_shard_once_and_keeps_the_bytes_of_what_failed(spark: SparkSession) -> None:
    rows = raw_records(spark).transform(with_blocks, SHARDS, check_partition=False).collect()
    blocks = {row["shard"]: read_blocks(row["records"]) for row in rows}
    assert len(rows) == 2
    first, second = SHARDS.keys_of(np.arange(2)).tolist()
    records, totals = blocks[second]
    assert records["key"].to_pylist() == [COMMIT_KEY, None]
    assert records["value"].to_pylist() == [COMMIT_VALUE[:-1], b""]
    assert records["source_offset"].to_pylist() == [7, 8]
    assert (totals.decoded, totals.malformed) == (0, 2)
    records, totals = blocks[first]
    assert records["key"].to_pylist() == [None, None]
    assert (totals.decoded, totals.tombstones) == (2, 1)


def test_the_bytes_are_decoded_by_the_udf_below_the_stateful_operator(
    spark: SparkSession, tmp_path: Path
) -> None:
    raw_records(spark).write.parquet(str(tmp_path / "raw"))
    stream = spark.readStream.schema(RAW).parquet(str(tmp_path / "raw"))
    few = stream.transform(in_few_tasks, read_settings().spark)
    results = few.transform(with_blocks, SHARDS, check_partition=False).transform(with_shard_results)
    query = (
        results.writeStream.outputMode("update")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .foreachBatch(lambda batch, _: batch.toArrow())
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    plan = executed_plan(query)
    operator = plan.index("TransformWithState")
    decoding = plan.index("decode_record(key", operator)
    assert plan.index("ArrowEvalPython", operator) <= decoding
    assert plan.index("Exchange", operator) < decoding
    assert plan.count("decode_record(key") == plan.count("ArrowEvalPython"), "each record is decoded once"


def test_partitions_are_read_in_as_many_tasks_as_there_are_cores_where_their_number_is_known(
    spark: SparkSession,
) -> None:
    cluster = {"spark.master": "spark://spark:7077", "job.checkpoint": "s3a://lake/checkpoint"}
    cores = {"spark.conf": {"spark.default.parallelism": 2}}
    partitions = spark.range(8, numPartitions=8)

    def tasks(options: dict[str, object]) -> int:
        return in_few_tasks(partitions, read_settings(options=options).spark).rdd.getNumPartitions()

    assert tasks({}) == 2
    assert tasks(cluster) == 8, "executors come one by one"
    assert tasks(cluster | cores) == 2


def executed_plan(query: object) -> str:
    """Return the physical plan that the query's last batch ran; each operator stands above its input."""
    execution = query._jsq.streamingQuery().lastExecution()  # type: ignore[attr-defined]
    return str(execution.executedPlan().toString())
