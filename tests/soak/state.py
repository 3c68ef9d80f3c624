"""What is left in the state of a job that was stopped, read from its checkpoint by Spark's own reader."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from job_process import JobProcess
from pyspark.sql import SparkSession

from streaming.jvm.jars import ensure_jars
from streaming.settings.reading import read_settings
from streaming.spark.processor import PIECES
from streaming.spark.session import start_session
from streaming.state.stored import Values, digests_of

TABLES: Final = ("entries", "group_records")


def check_state(job: JobProcess) -> str:
    """Compare the rows in the state of a stopped job with its tables: there must be no others."""
    [checkpoint] = [entry for entry in (job.directory / "checkpoint").iterdir() if entry.is_dir()]
    rows, live = rows_in_state(checkpoint, job.directory), len(job.tables.read().offsets)
    assert rows == {"entries": live, "group_records": 0}, f"{live:,} live offsets, in the state: {rows}"
    return f"the state has {rows['entries']:,} entries and {rows['group_records']} group records"


def rows_in_state(checkpoint: Path, scratch: Path) -> dict[str, int]:
    """Return how many rows the shards of all offsets partitions hold together, by table of the shard."""
    settings = read_settings(
        options={"spark.master": "local[1]", "spark.log_file": str(scratch / "reader.log")}
    )
    spark = start_session(settings.spark, settings.job, ensure_jars("connector"))
    try:
        spark.streams.active  # noqa: B018 (makes Spark set up what coordinates state stores)
        return {name: _rows(spark, checkpoint, name) for name in TABLES}
    finally:
        spark.stop()


def _rows(spark: SparkSession, checkpoint: Path, name: str) -> int:
    held = spark.read.format("statestore").option("stateVarName", PIECES).load(str(checkpoint))
    values: dict[tuple[int, str], dict[int, bytes]] = {}
    for row in held.select("key.shard", "user_map_key.*", "user_map_value.data").toLocalIterator():
        values.setdefault((row["shard"], row["name"]), {})[row["place"]] = bytes(row["data"])
    whole = {key: b"".join(pieces[place] for place in sorted(pieces)) for key, pieces in values.items()}
    shards = {shard for shard, of in whole if of == name}
    return sum(len(_values(whole, shard, name).layers()) for shard in shards)


def _values(whole: Mapping[tuple[int, str], bytes], shard: int, name: str) -> Values:
    recent = whole[shard, f"{name}_recent"]
    names = [name, f"{name}_second"][: len(digests_of(recent))]
    return Values.read([whole[shard, of] for of in names], recent)
