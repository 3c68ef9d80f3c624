"""The health of partitions that members of groups have, and that nothing is committed for."""

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
from streaming.lag.positions import LagReader
from streaming.lag.rules import OK, STATUS_OF, UNKNOWN, HealthRules, ends_before, judge_uncommitted
from streaming.lag.samples import NONE, Samples


class UncommittedSource(LagReader, TopicReader, Protocol):
    """The tables at one moment, and the groups before."""

    def groups_before(self, groups: list[str], *, until: int) -> pa.Table:
        """Read the named groups (schema `GROUPS`) as of a past moment (ms); none where it is not known."""


def is_uncommitted(rows: pa.Table) -> Mask:
    """Tell which of n rows of `with_assigned` are partitions that nothing is committed for."""
    return ~to_mask(rows["committed_offset"].is_valid()) & ~to_mask(
        rows["unreadable_source_offset"].is_valid()
    )


HadSince = Callable[[pa.Table, Index], Index]
"""Tells since when (ms) groups had n partitions (with `KEY_NAMES`) at n moments (ms), as far as is known;
`NONE`: they had not."""


def had_since(at: UncommittedSource, groups: pa.Table, moment: int) -> HadSince:
    """Return how to ask a snapshot of a moment (ms), whose groups (schema `GROUPS`) are these, about that
    moment and others before it, each of which it has to be asked about alone."""

    def tell(rows: pa.Table, moments: Index) -> Index:
        names, until = pc.unique(rows["group"]), int(moments[0])
        if until == moment:
            then = groups.filter(pc.is_in(groups["group"], value_set=names))
        else:
            then = at.groups_before(names.to_pylist(), until=until)
        return GroupsOverTime.of(then, np.full(len(then), until), at, until).had_since(rows, moments)

    return tell


def uncommitted_health(
    at: UncommittedSource,
    rows: pa.Table,
    had: HadSince,
    sampled: pa.Table,
    *,
    moments: Index,
    rules: HealthRules,
) -> pa.Table:
    """Return the columns `PARTITION_HEALTH` of n such partitions (with `KEY`, log_end_offset and is_current),
    each as it is at its moment (n ms). `sampled` are the samples of their logs, from a window before the
    first moment on.

    How groups were before is asked where they have changed in the last window.
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
    """Return samples of the starts of logs in the form of those of their ends."""
    return sampled.set_column(sampled.column_names.index("log_end"), "log_end", sampled["log_start"])


def _owned_at(had: HadSince, rows: pa.Table, moments: Index, window_ms: int) -> Index:
    """Return since when (ms) groups are known to have n partitions at n moments (ms); `NONE`: not for as long
    as a window.

    A group that has not changed since a moment had then what it has now. Those that have changed in the last
    window - consumers that are stuck are thrown out again and again - are looked up as of a window before,
    and of two, so that there is a time in which records can have come that have waited for a window since.
    (The log has no times of assignments, but it has one of each record about a group.)
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
    """Tell of n partitions whether the record at an offset of each came after the group had it."""
    columns = [rows["topic"], rows["partition"], from_numbers(offsets)]
    asked = pa.table(columns, ["topic", "partition", "committed_offset"])
    codes = key_codes(asked.columns)
    passed = take(at.offset_times(take(asked, firsts(codes)), as_of=moment), codes)
    below_at = numbers_or(to_milliseconds(passed["below_at"]), NONE)
    came: Mask = (below_at != NONE) & (below_at >= owned_at)
    return came
