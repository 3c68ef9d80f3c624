"""Left-over offsets of a snapshot in memory."""

import pyarrow as pa

from streaming.common.arrays import from_mask, from_numbers
from streaming.queries.leftovers import by_topic, left_over
from streaming.serve.assessment.assessment import EXPIRY_RULES, Assessment
from streaming.serve.assessment.rows import group_rows, offset_rows
from streaming.serve.memory.names import NONE
from streaming.serve.page.assessed import times_of, words_of


def leftover_rows(assessment: Assessment, idle_ms: int, group: int | None = None) -> pa.Table:
    """Return the left-over offsets by group and topic (schema `LEFTOVERS`) at the moment of the assessment:
    all, or (`group`, a place) those of one group.

    Offsets partitions that are loading are left out. Groups without members count after `idle_ms` without a
    commit.
    """
    snapshot, moment = assessment.snapshot, assessment.moment
    topics, groups = snapshot.topics, group_rows(snapshot, group)
    some = slice(None) if group is None else slice(*snapshot.offsets.starts[group : group + 2].tolist())
    positions = {name: column[some] for name, column in assessment.positions.items()}
    offsets = offset_rows(snapshot, group)
    offsets = offsets.append_column("of_recreated_topic", from_mask(positions["of_recreated_topic"]))
    offsets = offsets.append_column("rule", words_of(EXPIRY_RULES, positions["rule"]))
    offsets = offsets.append_column("expires_at", times_of(positions["expires_at"]))
    is_loaded = snapshot.are_loaded(snapshot.offsets.columns.source_partition[some])
    names = topics.names.texts.cast(pa.string())
    is_gone = topics.ends.gone_at != NONE
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
    return by_topic(found)
