"""How fast the Python steps of the job are alone: without Spark, on one core."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from streaming.model.schemas import CHANGES_IN_BATCH
from streaming.packing import codec
from streaming.packing.shards import Shards, shard_keys
from streaming.packing.unpacking import PackedBlocks
from streaming.spark import shard_results
from streaming.spark.udfs import decode_record, packing_udf
from streaming.state.arrow_stream import narrow
from streaming.state.replay import Shard, replay
from streaming.tables.rows import change_rows
from tests.benchmarks.workloads import Workload, chunks

STATE_PARTITIONS: Final = 2  # the default of the job


def python_steps(
    workload: Workload, *, partitions: int, block_rows: int, batch_rows: int
) -> dict[str, float]:
    """Records a second of each Python step, over all batches of the workload and without Spark."""
    seconds: dict[str, float] = defaultdict(float)
    shards = {key: Shard.empty() for key in shard_keys(STATE_PARTITIONS)}
    pack_records = packing_udf(Shards(partitions, STATE_PARTITIONS), check_partition=True).func

    def step(name: str, action: Callable[..., Any], *arguments: Any) -> Any:
        started = time.perf_counter()
        result = action(*arguments)
        seconds[name] += time.perf_counter() - started
        return result

    for batch in raw_batches(workload, partitions, batch_rows):
        arrived: dict[int, list[bytes]] = defaultdict(list)
        for start in range(0, len(batch), block_rows):
            rows = batch.iloc[start : start + block_rows].reset_index(drop=True)
            decoded = step("decode_record", decode_record.func, *(rows[name] for name in rows))
            packed = step("pack_records", pack_records, decoded)
            for shard, block in packed.dropna().itertuples(index=False):
                arrived[shard].append(block)
        changes = []
        for shard, own in arrived.items():
            records = step("unpack", lambda own=own: pa.concat_tables(PackedBlocks(own, BytesIO()).slices()))
            shards[shard], changed = step("replay", replay, shards[shard], records)
            state = step("state to bytes", codec.to_bytes, shards[shard].entries.table)
            step("state from bytes", codec.from_bytes, state)
            sent = step("changes to bytes", lambda changed=changed: codec.to_bytes(narrow(changed)))
            changes.append(sent)
        table = step("changes from bytes", shard_results._joined, changes, CHANGES_IN_BATCH)
        step("change_rows", lambda table=table: change_rows(table, sequence=1, batch_time=1))
    seconds["all of these"] = sum(seconds.values())
    return {name: workload.records / spent for name, spent in seconds.items()}


def raw_batches(workload: Workload, partitions: int, batch_rows: int) -> Iterator[pd.DataFrame]:
    """The workload in micro-batches, each ordered by partition, as the source gives them."""
    waiting: list[pd.DataFrame] = []
    for number, chunk in enumerate(chunks(workload, partitions)):
        offset = 1_000_000 * number + np.arange(len(chunk.keys))
        columns = {"partition": chunk.partitions.astype(np.int32), "offset": offset, "timestamp": offset}
        waiting.append(pd.DataFrame({"key": chunk.keys, "value": chunk.values, **columns}))
        if sum(map(len, waiting)) >= batch_rows:
            yield pd.concat(waiting).sort_values("partition", kind="stable", ignore_index=True)
            waiting = []
    if waiting:
        yield pd.concat(waiting).sort_values("partition", kind="stable", ignore_index=True)


def print_python_steps(rates: Mapping[str, Mapping[str, float]]) -> None:
    """Records a second of the Python steps alone."""
    print(f"\n{'Python alone, one core, records/s':46}" + "".join(f"{name:>12}" for name in rates))
    for name in next(iter(rates.values())):
        print(f"{name:46}" + "".join(f"{one[name]:12,.0f}" for one in rates.values()))
