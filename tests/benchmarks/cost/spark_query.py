"""A bare PySpark query of the job's shape that does no work: what Spark itself costs.

The Kafka source, one pandas UDF, one stateful operator, and `foreachBatch`, which collects. The UDF gives
one row for each partition among its rows, as the job's does, with how many there were; the operator adds
that up. The settings are those without which such a query does not work or works worse, as the job had them
at 9503bd1, but those of the JVM are Spark's own. SIGTERM ends it.
"""

import argparse
import json
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import pandas_udf
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

STATE = "org.apache.spark.sql.execution.streaming"
CONF = {
    "spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "true",
    "spark.sql.streaming.stateStore.providerClass": f"{STATE}.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass": (
        f"{STATE}.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "250000",
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
SOURCE = {
    "kafka.isolation.level": "read_committed",
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(16 * 1024 * 1024),
    "kafka.receive.buffer.bytes": str(1024 * 1024),
    "kafka.fetch.max.wait.ms": "10",
    "startingOffsets": "earliest",
    "maxOffsetsPerTrigger": "1000000",
}
RECORDS = StructField("records", LongType())
COUNTED = StructType([StructField("source_partition", IntegerType()), RECORDS])


@pandas_udf(COUNTED)
def counted(key: pd.Series, value: pd.Series, partition: pd.Series) -> pd.DataFrame:
    """Count the records of each partition; n rows, as a UDF must give, the others null."""
    counts = partition.value_counts()
    rows = pd.DataFrame({"source_partition": counts.index, "records": counts.to_numpy()})
    return rows.astype("Int64").reindex(range(len(partition)))


class Sum(StatefulProcessor):
    """Adds up the records of a partition."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._sum = handle.getValueState("sum", StructType([RECORDS]))

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        before = self._sum.get()
        total = (before[0] if before else 0) + sum(row.records for row in rows)
        self._sum.update((total,))
        yield Row(source_partition=key[0], records=total)


def main(options: argparse.Namespace) -> None:
    stop = threading.Event()
    builder = SparkSession.builder.master("local[*]").appName("reference")
    jars = ",".join(map(str, sorted(Path(options.jars).glob("*.jar"))))
    for name, value in {**CONF, "spark.jars": jars}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    signal.signal(
        signal.SIGTERM, lambda *_: stop.set()
    )  # PySpark starts the JVM before: it is to be ended by us
    partitions = json.dumps({options.topic: list(range(options.partitions))})
    results = (
        spark.readStream.format("kafka")
        .options(**SOURCE, assign=partitions, **{"kafka.bootstrap.servers": options.bootstrap})
        .load()
        .coalesce(spark.sparkContext.defaultParallelism)
        .select(counted.asNondeterministic()("key", "value", "partition").alias("counted"))
        .select("counted.*")
        .where("records is not null")
        .groupBy("source_partition")
        .transformWithState(Sum(), COUNTED, outputMode="Update", timeMode="None")
    )
    when: dict[str, Any] = {"availableNow": True} if options.once else {"processingTime": options.trigger}
    query = (
        results.writeStream.outputMode("update")
        .option("checkpointLocation", options.checkpoint)
        .foreachBatch(collect)
        .trigger(**when)
        .start()
    )
    while query.isActive and not stop.wait(0.2):
        pass
    query.stop()
    spark.stop()


def collect(results: DataFrame, number: int) -> None:
    print(number, len(results.collect()), flush=True)


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("bootstrap", "topic", "checkpoint", "jars"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--trigger", default="5 seconds")
    parser.add_argument("--once", action="store_true")
    return parser


if __name__ == "__main__":
    main(parser().parse_args(sys.argv[1:]))
