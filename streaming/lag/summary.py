"""The lag of groups or of topics, summed over their positions."""

from typing import Final, Literal

import numpy as np
import pyarrow as pa

from streaming.common.arrays import Index, Mask, from_mask, from_numbers, numbers_or, scaled, to_mask
from streaming.common.keys import KEY_NAMES, Numbering, leading, numbered, ranks
from streaming.common.pieces import take
from streaming.common.timestamps import to_milliseconds, to_timestamps
from streaming.lag.samples import NONE
from streaming.model.schemas import KEY, TIMESTAMP

By = Literal["group", "topic"]

LAG_FACTS: Final = [
    ("lag", pa.int64()),  # sum of the known lags, negative ones as 0; null: none is known
    ("lag_seconds", pa.float64()),  # the longest known one; null: none is known
    ("lag_is_at_least", pa.bool_()),  # lag or time of some position is "at least", or not known
    ("partitions", pa.int64()),  # number of positions
    ("partitions_behind", pa.int64()),  # with lag > 0
    ("partitions_unknown", pa.int64()),  # with unknown lag
    ("partitions_beyond_end", pa.int64()),  # with negative lag
    ("worst_topic", pa.string()),  # of the position that is furthest behind
    ("worst_partition", pa.int32()),
    ("ends_as_of", TIMESTAMP),  # the oldest of the positions; null: none has a sample
]
LAG_BY: Final = {
    "group": pa.schema([KEY[0], *LAG_FACTS]),
    "topic": pa.schema([KEY[1], ("worst_group", pa.string()), *LAG_FACTS]),
}
"""The lag of groups, and of topics over all groups."""


def lag_by(rows: pa.Table, by: By) -> pa.Table:
    """Sum n positions with the columns `KEY` and `LAG` by group or topic (schema `LAG_BY`), the furthest
    behind first: by lag time, then by records. The sum is clipped to int64."""
    codes, names = numbered(rows[by])
    lags, is_known = numbers_or(rows["lag"], 0), to_mask(rows["lag"].is_valid())
    times = scaled(rows["lag_seconds"], 1_000_000, NONE)
    partitions, others = numbers_or(rows["partition"], 0), ranks(rows["topic" if by == "group" else "group"])
    worst = leading(codes, -times, -lags, partitions, others)
    least = to_mask(rows["lag_is_at_least"]) | ~is_known | (times == NONE)
    oldest = np.full(len(names), _LAST)
    sampled_at = numbers_or(to_milliseconds(rows["ends_as_of"]), _LAST)
    np.minimum.at(oldest, codes, sampled_at)

    def count(mask: Mask) -> Index:
        counts: Index = np.bincount(codes[mask], minlength=len(names)).astype(np.int64)
        return counts

    sums = clipped_sums(codes, np.maximum(lags, 0), len(names))
    longest = times[worst]
    furthest = take(rows, worst)
    columns = {
        by: names,
        "worst_group": furthest["group"],
        "lag": from_numbers(sums, count(is_known) > 0),
        "lag_seconds": from_numbers(longest / 1e6, longest != NONE),
        "lag_is_at_least": from_mask(count(least) > 0),
        "partitions": from_numbers(np.bincount(codes, minlength=len(names)).astype(np.int64)),
        "partitions_behind": from_numbers(count(lags > 0)),
        "partitions_unknown": from_numbers(count(~is_known)),
        "partitions_beyond_end": from_numbers(count(lags < 0)),
        "worst_topic": furthest["topic"],
        "worst_partition": furthest["partition"],
        "ends_as_of": to_timestamps(from_numbers(oldest, oldest != _LAST)),
    }
    summed = pa.table([columns[name] for name in LAG_BY[by].names], schema=LAG_BY[by])
    return take(summed, np.lexsort((ranks(names), -sums, -longest)))


def clipped_sums(codes: Index, numbers: Index, count: int) -> Index:
    """Return for `count` codes the sum of their numbers (n codes, and n numbers of at least 0), at most the
    largest int64.

    >>> clipped_sums(np.array([0, 2, 0]), np.array([1, 2**63 - 1, 4]), 3).tolist()
    [5, 0, 9223372036854775807]
    """
    sums = np.zeros(count, np.int64)
    np.add.at(sums, codes, numbers)
    sums[np.bincount(codes, numbers, count) >= _LAST] = _LAST
    return sums


def worst_positions(summed: pa.Table, by: By, rows: pa.Table) -> pa.Table:
    """Return the worst position of each of n rows of `lag_by`, taken from the `rows` it summed: n rows
    with `KEY`, committed_offset, topic_id and lag, null where no position has lag."""
    own, other = (by, "worst_topic") if by == "group" else ("worst_group", by)
    asked = pa.table([summed[own], summed[other], summed["worst_partition"]], KEY_NAMES)
    keys, codes = Numbering.of(asked, KEY_NAMES)
    found = keys.codes_of(rows)
    places = np.flatnonzero((found != NONE) & (numbers_or(rows["lag"], 0) > 0))
    place_of = np.full(len(asked), NONE, np.int64)
    place_of[found[places[::-1]]] = places[::-1]  # of a key in several rows, the first: numpy keeps the last
    return take(rows.select([*KEY_NAMES, "committed_offset", "topic_id", "lag"]), place_of[codes])


_LAST: Final = 2**63 - 1
