"""Tables that hold what a broker's offsets topic says, made by the job's own parts, but without Spark."""

from collections.abc import Sequence

import kafka_clients as kafka
import pyarrow as pa
from blocks_read import read_all
from logged import logged

from decoders import decode_columns
from streaming.brokers.broker import Broker
from streaming.brokers.retention import RetentionReader
from streaming.common.times import now_ms
from streaming.job.log_ends.sampler import LogEndSampler
from streaming.model.progress import PartitionEnds, Progress
from streaming.packing.by_shard import pack_by_shard
from streaming.packing.shards import Shards
from streaming.settings.reading import read_settings
from streaming.state.replay import Shard, replay
from streaming.tables.rows import change_rows
from streaming.tables.tables import Tables


def replay_broker(tables: Tables, bootstrap: str, partition_count: int, *, samples: bool = True) -> Progress:
    """Append everything that the offsets topic of a broker says, as one batch, and a sample of log ends."""
    now = now_ms()
    records = kafka.read_raw(bootstrap)
    _, changes = replay(Shard.empty(), _unpacked(records, partition_count))
    rows, _ = change_rows(changes, sequence=1, batch_time=now)
    ends = {
        number: 1 + max((one.offset for one in records if one.partition == number), default=-1)
        for number in range(partition_count)
    }
    progress = Progress(
        query_id="q", batch_id=0, sequence=1, batch_time=now, heartbeat=now, topic="__consumer_offsets"
    )
    progress = progress.with_positions(ends, now).with_ends(
        {number: PartitionEnds(end, end) for number, end in ends.items()}, now
    )
    settings = read_settings(options={"source.bootstrap_servers": bootstrap})
    retention = RetentionReader(Broker(settings.source), settings).read(now)
    tables.append_changes(rows, progress.with_retention(retention), is_batch=True)
    if samples:
        sample_log_ends(tables, bootstrap)
    return progress


def sample_log_ends(tables: Tables, bootstrap: str) -> None:
    """Append a sample of the ends of logs, as the job takes them."""
    settings = read_settings(options={"source.bootstrap_servers": bootstrap})
    sampler = LogEndSampler(tables, Broker(settings.source), settings.log_ends)
    with logged("streaming.job.log_ends") as said:
        assert sampler.sample(), said


def _unpacked(records: Sequence[kafka.RawRecord], partition_count: int) -> pa.Table:
    keys = pa.chunked_array([pa.array([one.key for one in records], pa.binary())])
    values = pa.chunked_array([pa.array([one.value for one in records], pa.binary())])
    decoded = decode_columns(keys, values)
    decoded = decoded if isinstance(decoded, pa.Table) else pa.Table.from_batches([decoded])
    positions = {
        "source_partition": pa.array([one.partition for one in records], pa.int32()),
        "source_offset": pa.array([one.offset for one in records], pa.int64()),
        "source_timestamp": pa.array([one.timestamp_ms for one in records], pa.int64()),
        "key": keys,
        "value": values,
    }
    for name, column in positions.items():
        decoded = decoded.append_column(name, column)
    shards = Shards(partition_count, 1)
    unpacked, _ = read_all(pack_by_shard(decoded, shards).values())
    return unpacked
