"""The health of partitions that are assigned to members and have no committed offset."""

from collections.abc import Callable
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.assessment.owners import GroupsOverTime, TopicReader
from streaming.common.arrays import Index, Mask, from_mask, from_numbers, numbers_or, to_mask
from streaming.common.keys import firsts, key_codes
from streaming.common.pieces import take
from streaming.common.timestamps import to_milliseconds, to_timestamps
from streaming.lag.health import PARTITION_HEALTH, reason_words, status_words
from streaming.lag.health_rules import OK, STATUS_OF, UNKNOWN, HealthRules, ends_before, judge_uncommitted
from streaming.lag.positions import LagReader
from streaming.lag.samples import NONE, Samples


class UncommittedSource(LagReader, TopicReader, Protocol):
    """The tables as of one moment, with earlier versions of the groups."""

    def groups_before(self, groups: list[str], *, until: int) -> pa.Table:
        """Read the named groups (schema `GROUPS`) as of a past moment (ms); without those that are not
        known then."""


def is_uncommitted(rows: pa.Table) -> Mask:
    """Return for n rows of `with_assigned` whether they have no committed offset."""
    return ~to_mask(rows["committed_offset"].is_valid()) & ~to_mask(
        rows["unreadable_source_offset"].is_valid()
    )


HadSince = Callable[[pa.Table, Index], Index]
"""Returns since when (ms) groups have had n partitions (with `KEY_NAMES`) at n moments (ms), as far as
known; `NONE`: the group does not have the partition."""


def had_since(at: UncommittedSource, groups: pa.Table, moment: int) -> HadSince:
    """Return the `HadSince` of a snapshot at `moment` (ms) with these groups (schema `GROUPS`). All
    moments of one call must be equal, and not later than `moment`."""

    def look_up(rows: pa.Table, moments: Index) -> Index:
        names, until = pc.unique(rows["group"]), int(moments[0])
        if until == moment:
            then = groups.filter(pc.is_in(groups["group"], value_set=names))
        else:
            then = at.groups_before(names.to_pylist(), until=until)
        return GroupsOverTime.of(then, np.full(len(then), until), at, until).had_since(rows, moments)

    return look_up


def uncommitted_health(
    at: UncommittedSource,
    rows: pa.Table,
    had: HadSince,
    sampled: pa.Table,
    *,
    moments: Index,
    rules: HealthRules,
) -> pa.Table:
    """Return the columns `PARTITION_HEALTH` of n partitions without a committed offset (with `KEY`,
    log_end_offset and is_current), each at its moment (n ms). `sampled` are the samples of their logs, from
    one window before the first moment on.

    Earlier versions of groups are read only for groups that changed in the last window.
    """
    count = len(rows)
    ends = numbers_or(rows["log_end_offset"], NONE)
    samples, logs = Samples.of(sampled), Samples.of(_starts_in(sampled))
    before = ends_before(samples, samples.places.codes_of(rows), moments, rules)
    newest = logs.newest_until(logs.places.codes_of(rows), moments)
    starts = np.append(logs.ends, NONE)[newest]
    is_open = (ends != NONE) & (starts != NONE) & (before - starts > rules.min_lag)
    owned_at, came_since = np.full(count, NONE, np.int64), np.zeros(count, np.bool_)
    some = np.flatnonzero(is_open)
    owned_at[some] = _owned_at(had, take(rows, some), moments[some], rules.window_ms)
    some = np.flatnonzero(is_open & (owned_at != NONE))
    if len(some):
        until = int(moments.max())
        came_since[some] = _came_since(at, take(rows, some), before[some] - 1, owned_at[some], until)
    reasons = judge_uncommitted(
        starts=starts,
        ends=ends,
        ends_before=before,
        came_since=came_since,
        owned_at=owned_at,
        moments=moments,
        is_current=to_mask(rows["is_current"]),
        rules=rules,
    )
    statuses = STATUS_OF[reasons]
    found = {
        "status": status_words(statuses),
        "reason": reason_words(reasons),
        "since": to_timestamps(from_numbers(owned_at, ~np.isin(statuses, (OK, UNKNOWN)))),
        "commits": from_numbers(np.zeros(count, np.int64)),
        "pace_is_known": from_mask(np.zeros(count, np.bool_)),
    }
    nothing = {field.name: pa.nulls(count, field.type) for field in PARTITION_HEALTH}
    return pa.table([(nothing | found)[name] for name in PARTITION_HEALTH.names], schema=PARTITION_HEALTH)


def _starts_in(sampled: pa.Table) -> pa.Table:
    """Return samples with the log start as log_end, so that `Samples` finds log starts."""
    return sampled.set_column(sampled.column_names.index("log_end"), "log_end", sampled["log_start"])


def _owned_at(had: HadSince, rows: pa.Table, moments: Index, window_ms: int) -> Index:
    """Return since when (ms) groups are known to have n partitions at n moments (ms); `NONE`: for less than a
    window.

    The log has no times of assignments, but the time of each record of a group: a group whose last record is
    older has had its partitions since then. Groups that changed in the last window (a stuck consumer is
    removed and rejoins again and again) are looked up as of one window earlier and as of two. Two, so that
    records can have come in between that have waited for a window.
    """
    if not len(rows):
        return moments
    changed_at = had(rows, moments)
    owned_at: Index = np.where(changed_at <= moments - window_ms, changed_at, NONE)
    others = np.flatnonzero(changed_at > moments - window_ms)
    if len(others):
        asked, then = take(rows, others), moments[others]
        late, early = (had(asked, then - many * window_ms) for many in (1, 2))
        owned_at[others] = np.where((late != NONE) & (early != NONE), early, late)
    return owned_at


def _came_since(at: UncommittedSource, rows: pa.Table, offsets: Index, owned_at: Index, moment: int) -> Mask:
    """Return for n partitions whether the record at each offset came after the group had the partition."""
    columns = [rows["topic"], rows["partition"], from_numbers(offsets)]
    asked = pa.table(columns, ["topic", "partition", "committed_offset"])
    codes = key_codes(asked.columns)
    passed = take(at.offset_times(take(asked, firsts(codes)), as_of=moment), codes)
    below_at = numbers_or(to_milliseconds(passed["below_at"]), NONE)
    came: Mask = (below_at != NONE) & (below_at >= owned_at)
    return came
