"""The Kafka source: the raw records of every partition of the offsets topic, as a stream."""

import json
from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import unix_millis

from streaming.brokers.client_settings import java_client_settings
from streaming.settings.model import SourceSettings

SESSION_CONF: Final[Mapping[str, str]] = {
    # Without it the connector's default offset reader drops internal topics: zero rows and no error.
    "spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "true",
}
"""Settings of the Spark session without which this source does not see an internal topic."""

GROUP_PREFIX: Final = "offsetlake"
"""The prefix of our consumers' group ids. They never join their group nor commit, but need the right to
describe it."""

_FIXED: Final[Mapping[str, str]] = {
    # Records of aborted and open transactions must not be seen.
    "kafka.isolation.level": "read_committed",
}

_TUNING: Final[Mapping[str, str]] = {
    "kafka.receive.buffer.bytes": str(1024 * 1024),
    # A task that reads to the end of a partition waits this long for more, once for each of its partitions:
    # a broker handles the requests of a connection one after another. Kafka's default is 500.
    "kafka.fetch.max.wait.ms": "1",
}


def read_records(
    spark: SparkSession, source: SourceSettings, partition_count: int, records_per_batch: int
) -> DataFrame:
    """Stream the topic's records: `key`, `value` (binary, null = tombstone), `partition`, `offset` and
    `timestamp`.

    `timestamp` is the record's own, as int64 milliseconds: Spark's timestamps cannot represent every value of
    a record. Partitions are assigned, never subscribed to: a subscription would join a group and so write
    records of its own into the topic it reads.
    """
    return (
        spark.readStream.format("kafka")
        .options(**source_options(source, partition_count), maxOffsetsPerTrigger=str(records_per_batch))
        .load()
        .select("key", "value", "partition", "offset", unix_millis("timestamp").alias("timestamp"))
    )


_FETCHED_BYTES: Final = 24 * 1024 * 1024
_POLLED_RECORDS: Final = 100_000
"""The limits of all consumers together (one for each partition), also between batches. Larger fetches need
fewer requests; but the JVM's collector copies the fetched records again and again."""


def source_options(source: SourceSettings, partition_count: int) -> dict[str, str]:
    """Return the connector's options; a user's client settings win over our tuning, not over correctness."""
    client = {f"kafka.{name}": value for name, value in java_client_settings(source).items()}
    return {
        **_TUNING,
        **_steps(partition_count),
        **client,
        **_FIXED,
        "groupIdPrefix": GROUP_PREFIX,
        "assign": json.dumps({source.topic: list(range(partition_count))}),
        "startingOffsets": "earliest",
    }


def _steps(partition_count: int) -> dict[str, str]:
    """Return the fetch and poll sizes of each consumer."""
    fetched = min(max(_FETCHED_BYTES // partition_count, 512 * 1024), 16 * 1024 * 1024)
    polled = min(max(_POLLED_RECORDS // partition_count, 1_000), 20_000)
    return {"kafka.max.partition.fetch.bytes": str(fetched), "kafka.max.poll.records": str(polled)}
