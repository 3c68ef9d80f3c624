"""Positions with their lag and health: what is to be read for them, and how far back.

Who has the tables is handed in (`Reader`): questions and alerts ask alike.
"""

from collections.abc import Collection, Sequence
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import from_mask, to_mask
from streaming.common.times import MINUTE_MS
from streaming.lag.health import partition_health
from streaming.lag.lag_time import with_lag
from streaming.lag.rules import TOO_FEW_COMMITS, HealthRules
from streaming.lag.runs import COMMITS
from streaming.model.progress import PartitionProgress, Progress

MAX_AGE_MS: Final = 5 * MINUTE_MS
"""Samples of log ends that are older say nothing of the lag."""


class Reader(Protocol):
    """The tables at one moment: a snapshot of them."""

    def newest_ends(self, topics: Sequence[str] | None, *, as_of: int, within_ms: int) -> pa.Table:
        """Read the newest sample of each partition that has one so late (ms before)."""

    def crossings(self, positions: pa.Table, *, as_of: int) -> pa.Table:
        """Read between which samples the ends of logs passed n positions (n rows)."""

    def ends_between(
        self, topics: Collection[str] | None, *, since: int, until: int, within_ms: int
    ) -> pa.Table:
        """Read the samples between two moments (ms), and the newest ones before, as `newest_ends` does."""

    def commits(self, groups: Sequence[str] | None = None, *, since: int) -> pa.Table:
        """Read what groups committed since a moment (ms)."""


def topics_in(rows: pa.Table) -> list[str]:
    """Return the topics of rows, each once."""
    topics: list[str] = pc.unique(rows["topic"]).to_pylist()
    return topics


def offsets_with_lag(at: Reader, offsets: pa.Table, *, moment: int, max_age_ms: int) -> pa.Table:
    """Add the columns `LAG` to offsets (schema `OFFSETS`), as they were at a moment (ms)."""
    newest = at.newest_ends(topics_in(offsets), as_of=moment, within_ms=max_age_ms)
    crossed = at.crossings(offsets.select(["topic", "partition", "committed_offset"]), as_of=moment)
    return with_lag(offsets, newest, crossed, max_age_ms=max_age_ms, as_of=moment)


def with_currency(
    positions: pa.Table, progress: Progress, *, is_observed: bool, moment: int, max_age_ms: int
) -> pa.Table:
    """Append the column `is_current` to positions (with source_partition): false where newer commits may not
    have been read at a moment (ms), so that silence says nothing; all of them where it `is_observed` not."""
    current = [
        number
        for number, partition in progress.partitions.items()
        if is_observed and _is_current(partition, progress.heartbeat, moment, max_age_ms)
    ]
    found = pc.is_in(positions["source_partition"], value_set=pa.array(current, pa.int32()))
    return positions.append_column("is_current", found)


def _is_current(partition: PartitionProgress, heartbeat: int, moment: int, max_age_ms: int) -> bool:
    read_until = heartbeat if partition.stable.as_of is None else partition.stable.as_of
    is_held_back = partition.is_stalled(moment) or partition.unanswered_since is not None
    return partition.loaded and not is_held_back and moment - read_until <= max_age_ms


def with_health(
    at: Reader, positions: pa.Table, *, moment: int, max_age_ms: int, rules: HealthRules
) -> pa.Table:
    """Append the columns `PARTITION_HEALTH` to positions (as `partition_health` has them), in no order.

    Of those that are behind the commits are read: further back for those whose windows need it. How often a
    position is committed is looked up over `long_silence_ms`.
    """

    def judged(rows: pa.Table, commits: pa.Table, samples: pa.Table) -> pa.Table:
        return partition_health(rows, commits, samples, now=moment, max_age_ms=max_age_ms, rules=rules)

    window = rules.window_ms
    reaches = sorted({2 * window, 12 * window, rules.long_silence_ms + window})
    is_behind = to_mask(pc.greater(positions["lag"], rules.min_lag))
    no_samples = at.ends_between([], since=moment, until=moment, within_ms=0)
    found = [judged(positions.filter(from_mask(~is_behind)), COMMITS.empty_table(), no_samples)]
    pending = positions.filter(from_mask(is_behind))
    for reach in reaches:
        since = moment - reach
        commits = at.commits(pc.unique(pending["group"]).to_pylist(), since=since).select(COMMITS.names)
        samples = at.ends_between(topics_in(pending), since=since, until=moment, within_ms=max_age_ms)
        rows = judged(pending, commits, samples)
        is_open = ~to_mask(rows["pace_is_known"]) | to_mask(pc.equal(rows["reason"], TOO_FEW_COMMITS))
        is_open &= reach != reaches[-1]
        found.append(rows.filter(from_mask(~is_open)))
        pending = pending.filter(from_mask(is_open))
        if not len(pending):
            break
    return pa.concat_tables(found)
