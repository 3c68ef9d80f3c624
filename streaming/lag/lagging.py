"""Since when positions lag: the first of the uninterrupted samples, up to the newest, that found a lag above
`min_lag`.

The lag at a sample is that of the offset committed then. Samples are read step by step into the past, and
only for positions whose known samples all found lag and that may have older ones. The position lags "at
least" since the oldest sample found where the history or the sampling begins later, an older sample is of
another log, samples have a gap longer than the largest age at which they count, or reading on would exceed a
limit.
"""

from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from streaming.common.arrays import Index, Mask, from_mask, from_numbers, numbers_or, spread, to_mask
from streaming.common.keys import KEY_NAMES
from streaming.common.pieces import take
from streaming.common.times import DAY_MS, HOUR_MS
from streaming.common.timestamps import to_timestamps
from streaming.lag.habits import groups_of
from streaming.lag.lag_time import OffsetsOverTime
from streaming.lag.log_ranges import lag_of
from streaming.lag.positions import LagReader, topics_in
from streaming.lag.samples import NONE, Samples, id_numbers, may_be_same_id
from streaming.model.schemas import TIMESTAMP

LAGGING: Final = pa.schema(
    [
        ("since", TIMESTAMP),  # null: no lag above the limit, or the lag is not known
        ("since_is_at_least", pa.bool_()),  # the lag may have begun earlier; null as since
    ]
)

_REACHES_MS: Final = (HOUR_MS, 8 * HOUR_MS, 3 * DAY_MS)
_MOST_ROWS: Final = 2_000_000
"""Limit of the samples and commits read in one step."""


def lagging_since(
    at: LagReader, positions: pa.Table, *, moment: int, max_age_ms: int, min_lag: int = 0
) -> pa.Table:
    """Return since when n positions (`KEY`, committed_offset, topic_id, and lag at `moment`, ms) lag: n
    rows (schema `LAGGING`)."""
    since, is_at_least = np.full(len(positions), NONE, np.int64), np.zeros(len(positions), np.bool_)
    lagging = to_mask(positions["lag"].is_valid()) & (numbers_or(positions["lag"], 0) > min_lag)
    pending, commits = np.flatnonzero(lagging), _CommitsSince(at)
    for reach, further in pairwise((*_REACHES_MS, 0)):
        if not len(pending):
            break
        asked = take(positions.select([*KEY_NAMES, "committed_offset", "topic_id"]), pending)
        begun, is_open, rows = _begun(at, asked, commits, moment - reach, moment, max_age_ms, min_lag)
        since[pending], is_at_least[pending] = begun
        pending = pending[is_open]
        if rows * (further / reach) * (len(pending) / len(asked)) > _MOST_ROWS:
            break
    is_known = since != NONE
    columns = [to_timestamps(from_numbers(since, is_known)), from_mask(is_at_least, is_known)]
    return pa.table(columns, schema=LAGGING)


class _CommitsSince:
    """Commits read step by step, each step further back, for a subset of the groups of the step before."""

    def __init__(self, at: LagReader) -> None:
        self._at = at
        self._since: int | None = None
        self._held = list[pa.Table]()

    def read(self, groups: list[str] | None, since: int) -> pa.Table:
        """Return all commits of groups written since a moment (ms), and others that were read before."""
        if self._since is None or since < self._since:
            until = None if self._since is None else self._since - 1
            self._held.append(self._at.commits(groups, since=since, until=until, in_order=False))
            self._since = since
        return pa.concat_tables(self._held)


def _begun(
    at: LagReader,
    positions: pa.Table,
    commits: _CommitsSince,
    since: int,
    until: int,
    max_age_ms: int,
    min_lag: int,
) -> tuple[tuple[Index, Mask], Mask, int]:
    """Search the samples between two moments (ms) for where the lag of m positions begins.

    Return since when they lag (ms) and whether only "at least" since then; for which positions older samples
    may show an earlier start; and the number of samples and commits read.
    """
    samples = Samples.of(
        at.ends_between(topics_in(positions), since=since, until=until, within_ms=max_age_ms)
    )
    codes = samples.places.codes_of(positions)
    starts, stops = (np.searchsorted(samples.codes, codes, side) for side in ("left", "right"))
    lengths = stops - starts
    lasts = np.cumsum(lengths) - 1
    number, place = spread(starts, lengths)  # a pair for each sample of a position
    is_behind, is_known, read = _behind(at, positions, commits, samples, number, place, min_lag)
    # `begin`: the pair at which the stretch of lag that contains each pair begins
    before = np.maximum(place - 1, 0)
    is_first = place == starts[number]
    is_joined = ~is_first & samples.is_same_log(before, place)
    is_joined &= samples.at[place] - samples.at[before] <= max_age_ms
    was_behind, was_known = (np.append(False, mask[:-1])[: len(mask)] for mask in (is_behind, is_known))
    begins = np.where(is_joined & was_behind, 0, np.arange(len(number)))
    begin = np.maximum.accumulate(begins) if len(begins) else begins
    is_there = np.zeros(len(positions), np.bool_)
    some = np.flatnonzero(lengths)
    is_there[some] = is_behind[lasts[some]]
    found = np.zeros(len(positions), np.int64)
    found[is_there] = begin[lasts[is_there]]
    at_of, is_exact = np.append(samples.at[place], NONE), np.append(is_joined & was_known, True)
    found[~is_there] = len(number)
    # a first sample after `since` has no usable sample before it: `ends_between` would have read it
    is_open = is_there & np.append(is_first, False)[found] & (at_of[found] <= since)
    return (at_of[found], ~is_exact[found]), is_open, len(number) + read


def _behind(
    at: LagReader,
    positions: pa.Table,
    commits: _CommitsSince,
    samples: Samples,
    number: Index,
    place: Index,
    min_lag: int,
) -> tuple[Mask, Mask, int]:
    """Return for n pairs of a position (its number) and a sample (its place) whether the lag is above
    `min_lag` and whether it is known, and the number of commits read."""
    sampled_at = samples.at[place]
    is_known = may_be_same_id(samples.ids_of(place), id_numbers(positions["topic_id"])[number])
    is_known &= sampled_at >= (at.whole_since() or 0)
    if not is_known.any():
        return is_known, is_known, 0
    written = commits.read(groups_of(positions), int(sampled_at[is_known].min()) + 1)
    newest = positions["committed_offset"]
    later = numbers_or(newest, 0)[number], to_mask(newest.is_valid())[number]
    over_time = OffsetsOverTime(positions, written)
    offsets, is_there = over_time.at(number, sampled_at, *later, samples.ids_of(place))
    is_known &= is_there
    is_behind: Mask = is_known & (lag_of(samples.ends[place], offsets) > min_lag)
    return is_behind, is_known, len(written)
