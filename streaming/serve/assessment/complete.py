"""Groups whose data is complete enough to be reported."""

import numpy as np

from streaming.common.arrays import Index, Mask
from streaming.serve.memory.names import NONE
from streaming.serve.memory.snapshot import MemorySnapshot


def complete_groups(shown: MemorySnapshot, newest: MemorySnapshot, *, now: int, within_ms: int) -> Mask:
    """Return for each group of the snapshot `shown` (n) whether its offsets partition is complete at a moment
    (ms) by the `newest` snapshot (`streaming.model.completeness`)."""
    complete = newest.completeness(now, within_ms).complete
    is_one: Mask = np.isin(source_partitions(shown), np.array(sorted(complete), np.int64))
    return is_one


def source_partitions(snapshot: MemorySnapshot) -> Index:
    """Return the offsets partition of each group (n); of a group without a row, the partition of its
    offsets."""
    partitions = snapshot.groups.source_partitions.copy()
    rowless = np.flatnonzero((partitions == NONE) & (snapshot.offsets.counts > 0))
    partitions[rowless] = snapshot.offsets.columns.source_partition[snapshot.offsets.starts[rowless]]
    return partitions


def is_ready(snapshot: MemorySnapshot, *, now: int, within_ms: int) -> bool:
    """Return whether the tables were read and the job is alive."""
    return bool(snapshot.progress.partitions) and not snapshot.completeness(now, within_ms).is_silent
