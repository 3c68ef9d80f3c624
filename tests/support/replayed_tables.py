"""Tables that hold what a broker's offsets topic says, made by the job's own parts, but without Spark."""

from collections.abc import Sequence
from dataclasses import replace

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
    return Replaying(tables, bootstrap, partition_count).go_on(samples=samples)


class Replaying:
    """Appends what the offsets topic of a broker says, in several batches."""

    def __init__(self, tables: Tables, bootstrap: str, partition_count: int) -> None:
        self._tables, self._bootstrap, self._partition_count = tables, bootstrap, partition_count
        self._shard = Shard.empty()
        self._progress = Progress(query_id="q", topic="__consumer_offsets")
        self._ends = dict.fromkeys(range(partition_count), 0)

    def go_on(self, *, samples: bool = True) -> Progress:
        """Append what the topic says since the batch before, and a sample of log ends."""
        now, before = now_ms(), self._progress
        read = kafka.read_raw(self._bootstrap)
        records = [one for one in read if one.offset >= self._ends[one.partition]]
        self._shard, changes = replay(self._shard, _unpacked(records, self._partition_count))
        sequence = before.sequence + 1
        rows, _ = change_rows(changes, sequence=sequence, batch_time=now)
        for one in records:
            self._ends[one.partition] = max(self._ends[one.partition], one.offset + 1)
        progress = replace(
            before, batch_id=before.batch_id + 1, sequence=sequence, batch_time=now, heartbeat=now
        )
        progress = progress.with_positions(self._ends, now).with_ends(
            {number: PartitionEnds(end, end) for number, end in self._ends.items()}, now
        )
        settings = read_settings(options={"source.bootstrap_servers": self._bootstrap})
        retention = RetentionReader(Broker(settings.source), settings).read(now)
        self._progress = progress.with_retention(retention)
        self._tables.append_changes(rows, self._progress, is_batch=True)
        if samples:
            sample_log_ends(self._tables, self._bootstrap)
        return self._progress


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
