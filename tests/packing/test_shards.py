"""Shards: neighbouring offsets partitions, and keys that Spark spreads evenly over its tasks."""

from itertools import pairwise

import numpy as np
import pytest
from pyspark.sql import SparkSession

from streaming.packing.shards import Shards, murmur3, shard_keys


@pytest.mark.parametrize("state_partitions", [1, 2, 3, 4, 8, 50])
def test_every_task_gets_one_shard(state_partitions: int) -> None:
    keys = shard_keys(state_partitions)
    assert len(set(keys)) == state_partitions


@pytest.mark.parametrize(("partitions", "tasks"), [(50, 4), (50, 1), (7, 4), (3, 8), (1, 4), (1_000, 64)])
def test_shards_hold_neighbours_and_about_equally_many(partitions: int, tasks: int) -> None:
    keys = Shards(partitions, tasks).keys_of(np.arange(partitions)).tolist()
    changes = sum(one != other for one, other in pairwise(keys))
    sizes = [keys.count(key) for key in set(keys)]
    assert changes + 1 == len(sizes) == min(partitions, tasks)
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.spark
def test_spark_sends_the_key_of_each_shard_to_its_own_task(spark: SparkSession) -> None:
    for tasks in (1, 3, 4, 50):
        rows = spark.createDataFrame([(key,) for key in shard_keys(tasks)], "shard int")
        placed = (
            rows.repartition(tasks, "shard").selectExpr("shard", "spark_partition_id() AS task").collect()
        )
        assert [row["task"] for row in sorted(placed, key=lambda row: row["task"])] == [*range(tasks)]
        assert [row["shard"] for row in sorted(placed, key=lambda row: row["task"])] == [*shard_keys(tasks)]


@pytest.mark.spark
def test_numbers_are_hashed_as_spark_does(spark: SparkSession) -> None:
    numbers = [0, 1, 42, 2**31 - 1, -1, -(2**31)]
    rows = spark.createDataFrame([(number,) for number in numbers], "number int").selectExpr(
        "hash(number) AS h"
    )
    assert [row["h"] & 0xFFFF_FFFF for row in rows.collect()] == [murmur3(number) for number in numbers]
