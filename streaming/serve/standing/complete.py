"""Of which groups enough is known to speak about them at all."""

import numpy as np

from streaming.alerts.rules.view import judged_partitions
from streaming.common.arrays import Index, Mask
from streaming.serve.picture.names import NONE
from streaming.serve.picture.picture import Picture
from streaming.settings.model import AlertSettings


def complete_groups(
    shown: Picture, newest: Picture, settings: AlertSettings, *, now: int, max_age_ms: int
) -> Mask:
    """Tell of each group that is shown (n) whether it can be judged at a moment (ms), as the `newest` picture
    says: its offsets partition was read to its end, lately, and nothing there is held back. None can while
    the tables are rebuilt, or unless the job was heard of within `max_age_ms` (`Picture.is_heard_of`)."""
    if not newest.is_heard_of(now, max_age_ms):
        return np.zeros(len(shown.groups), np.bool_)
    judged = judged_partitions(newest.progress, settings, now)
    is_one: Mask = np.isin(source_partitions(shown), np.array(sorted(judged), np.int64))
    return is_one


def source_partitions(picture: Picture) -> Index:
    """Return the offsets partition of each group (n), of those without a row that of their offsets."""
    partitions = picture.groups.source_partitions.copy()
    rowless = np.flatnonzero((partitions == NONE) & (picture.offsets.counts > 0))
    partitions[rowless] = picture.offsets.columns.source_partition[picture.offsets.starts[rowless]]
    return partitions


def is_ready(picture: Picture, *, now: int, max_age_ms: int) -> bool:
    """Tell whether the tables were read, and the job is alive."""
    return bool(picture.progress.partitions) and picture.is_heard_of(now, max_age_ms)
