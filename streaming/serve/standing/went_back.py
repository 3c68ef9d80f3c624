"""Commits that went back, until it is known whether that was in the same log.

A topic that was made anew begins at 0 again, and a group that goes on there has not rewound. Where commits do
not carry the ids of topics, samples of log ends tell it, which come once a minute.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import Index, Mask, from_mask, from_numbers, numbers_or, to_mask
from streaming.common.times import MINUTE_MS
from streaming.common.timestamps import to_milliseconds, to_timestamps
from streaming.lag.former_topic import is_of_other_log
from streaming.model.schemas import TIMESTAMP
from streaming.serve.picture.names import NONE
from streaming.serve.picture.picture import Picture
from streaming.tables.tail.rows import field_of

WENT_BACK: Final = pa.schema(
    [
        ("group", pa.string()),
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("topic_id_before", pa.string()),
        ("before_at", TIMESTAMP),
        ("committed_at", TIMESTAMP),
    ]
)
"""What is kept of a commit that went back; `before_at` is when the one before it was committed."""

_LONGEST_WAIT_MS: Final = 3 * MINUTE_MS
"""After so long without a newer sample of its topic a commit counts as what it seems."""

_MOST_WAITING: Final = 10_000
_LATEST: Final = 253_402_300_799_000  # ms; the end of the year 9999


def went_back(rows: pa.RecordBatch, is_set: Mask) -> pa.Table:
    """Return those of n changes of offsets (`is_set`: commits) that went back (schema `WENT_BACK`)."""
    (old, was_known), (new, is_known) = (_offsets(rows[name]) for name in ("before", "after"))
    some = rows.filter(from_mask(is_set & was_known & is_known & (new < old)))
    after, before = some["after"], some["before"]
    times = field_of(after, "commit_timestamp", TIMESTAMP), field_of(some, "batch_time", TIMESTAMP)
    earlier = np.minimum(*(numbers_or(to_milliseconds(one), _LATEST) for one in times))
    columns = {
        "group": some["group"],
        "topic": some["topic"],
        "topic_id": field_of(after, "topic_id", pa.string()),
        "topic_id_before": field_of(before, "topic_id", pa.string()),
        "before_at": field_of(before, "commit_timestamp", TIMESTAMP),
        "committed_at": to_timestamps(from_numbers(earlier)),
    }
    return pa.table([columns[field.name].cast(field.type) for field in WENT_BACK], schema=WENT_BACK)


def settled(moves: pa.Table, picture: Picture) -> tuple[pa.Table, pa.Table]:
    """Divide n commits that went back into those that are rewinds, and those of which that is not known yet
    (both `WENT_BACK`); those into a topic that was made anew are in neither."""
    names = pc.unique(moves["topic"])
    sampled_at = picture.topics.sampled_at(names)[numbers_or(pc.index_in(moves["topic"], value_set=names), 0)]
    at = numbers_or(to_milliseconds(moves["committed_at"]), 0)
    has_ids = to_mask(moves["topic_id"].is_valid()) & to_mask(moves["topic_id_before"].is_valid())
    is_sampled_later = (sampled_at == NONE) | (sampled_at > at)
    is_late = picture.progress.heartbeat - at > _LONGEST_WAIT_MS
    is_settled = has_ids | is_sampled_later | is_late
    is_settled[np.flatnonzero(~is_settled)[:-_MOST_WAITING]] = True
    is_rewind = is_settled & ~is_of_other_log(moves, picture.topics.ids_over_time(names))
    return moves.filter(from_mask(is_rewind)), moves.filter(from_mask(~is_settled))


def _offsets(values: pa.StructArray) -> tuple[Index, Mask]:
    """Return n committed offsets, and which of them are known."""
    offsets = field_of(values, "committed_offset", pa.int64())
    return numbers_or(offsets, 0), to_mask(offsets.is_valid()) & to_mask(values.is_valid())
