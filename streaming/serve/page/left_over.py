"""Left-over offsets of a snapshot in memory."""

import numpy as np
import pyarrow as pa

from streaming.common.arrays import from_mask, from_numbers
from streaming.expiry.rules import expiry
from streaming.queries.leftovers import by_topic, left_over
from streaming.serve.assessment.assessment import Assessment
from streaming.serve.assessment.rows import group_rows, offset_rows


def leftover_rows(
    assessment: Assessment, idle_ms: int, retention_ms: int | None, stalled: frozenset[int]
) -> pa.Table:
    """Return the left-over offsets by group and topic (schema `LEFTOVERS`), of loaded offsets partitions, as
    of the moment of the assessment.

    `retention_ms` None: their expiry is not known. `stalled` are offsets partitions, as for `expiry`.
    """
    snapshot, moment = assessment.snapshot, assessment.moment
    topics, groups = snapshot.topics, group_rows(snapshot)
    recreated = from_mask(assessment.positions["of_recreated_topic"])
    offsets = offset_rows(snapshot).append_column("of_recreated_topic", recreated)
    loading = np.array(sorted(snapshot.loading), np.int64)
    is_loaded = ~np.isin(snapshot.offsets.columns.source_partition, loading)
    names = topics.names.texts.cast(pa.string())
    is_gone = topics.ends.newest_ids.gone_at > topics.ends.newest_ids.at
    named = pa.table(
        {
            "topic_id": topics.ids.texts.cast(pa.string()),
            "topic": names.take(from_numbers(topics.topic_of_id)),
        }
    )
    found = left_over(
        offsets.filter(from_mask(is_loaded)),
        groups,
        named=named,
        deleted=names.filter(from_mask(is_gone)).to_pylist(),
        moment=moment,
        idle_ms=idle_ms,
    )
    if retention_ms is not None and len(found):
        found = expiry(found, groups, retention_ms, stalled=stalled)
    return by_topic(found)
