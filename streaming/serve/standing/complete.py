"""Of which groups enough is known to speak about them at all."""

import numpy as np

from streaming.common.arrays import Index, Mask
from streaming.serve.picture.names import NONE
from streaming.serve.picture.picture import Picture


def complete_groups(shown: Picture, newest: Picture, *, now: int, within_ms: int) -> Mask:
    """Tell of each group that is shown (n) whether it is of an offsets partition that is complete at a moment
    (ms), as the `newest` picture says (`streaming.model.completeness`)."""
    complete = newest.completeness(now, within_ms).complete
    is_one: Mask = np.isin(source_partitions(shown), np.array(sorted(complete), np.int64))
    return is_one


def source_partitions(picture: Picture) -> Index:
    """Return the offsets partition of each group (n), of those without a row that of their offsets."""
    partitions = picture.groups.source_partitions.copy()
    rowless = np.flatnonzero((partitions == NONE) & (picture.offsets.counts > 0))
    partitions[rowless] = picture.offsets.columns.source_partition[picture.offsets.starts[rowless]]
    return partitions


def is_ready(picture: Picture, *, now: int, within_ms: int) -> bool:
    """Tell whether the tables were read, and the job is alive."""
    return bool(picture.progress.partitions) and not picture.completeness(now, within_ms).is_silent
