"""The health of partitions that members of groups have, and that nothing is committed for."""

from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.assessment.owners import Topics, owned_partitions
from streaming.common.arrays import Index, Mask, from_mask, from_numbers, from_texts, numbers_or, to_mask
from streaming.common.keys import KEY_NAMES, Numbering, firsts
from streaming.common.timestamps import to_milliseconds, to_timestamps
from streaming.lag.health import PARTITION_HEALTH
from streaming.lag.positions import Reader, topics_in
from streaming.lag.rules import OK, REASONS, STATUSES, UNKNOWN, HealthRules, ends_before, judge_uncommitted
from streaming.lag.samples import NONE, Samples


class Source(Reader, Topics, Protocol):
    """The tables at one moment, and the groups before."""

    def groups_before(self, groups: list[str], *, until: int) -> pa.Table:
        """Read the named groups (schema `GROUPS`) as of a past moment (ms); none where it is not known."""


def is_uncommitted(rows: pa.Table) -> Mask:
    """Tell which of n rows of `with_assigned` are partitions that nothing is committed for."""
    return ~to_mask(rows["committed_offset"].is_valid()) & ~to_mask(
        rows["unreadable_source_offset"].is_valid()
    )


def uncommitted_health(
    at: Source, rows: pa.Table, groups: pa.Table, *, moment: int, max_age_ms: int, rules: HealthRules
) -> pa.Table:
    """Return the columns `PARTITION_HEALTH` of n such partitions (with `KEY`, the columns `LAG` and
    is_current), as they are at a moment (ms). `groups` (group and source_timestamp) are theirs.

    Reads samples of the last window, and groups as of a window before where they have changed since.
    """
    count, topics = len(rows), topics_in(rows)
    ends = numbers_or(rows["log_end_offset"], NONE)
    sampled = at.ends_between(topics, since=moment - rules.window_ms, until=moment, within_ms=max_age_ms)
    samples, moments = Samples.of(sampled), np.full(count, moment, np.int64)
    before = ends_before(samples, samples.places.codes_of(rows), moments, rules)
    starts = _starts(rows, sampled)
    is_open = (ends != NONE) & (starts != NONE) & (before - starts > rules.min_lag)
    owned_at = np.full(count, NONE, np.int64)
    owned_at[is_open] = _owned_at(
        at, rows.filter(from_mask(is_open)), groups, moment=moment, window_ms=rules.window_ms
    )
    is_open &= owned_at != NONE
    came_since = np.zeros(count, np.bool_)
    came_since[is_open] = _came_since(
        at, rows.filter(from_mask(is_open)), before[is_open] - 1, owned_at[is_open], moment
    )
    reasons, statuses = judge_uncommitted(
        starts=starts,
        ends=ends,
        ends_before=before,
        came_since=came_since,
        owned_at=owned_at,
        moments=moments,
        is_current=to_mask(rows["is_current"]),
        rules=rules,
    )
    is_told = ~np.isin(statuses, (OK, UNKNOWN))
    found = {
        "status": from_texts(STATUSES).take(from_numbers(statuses)),
        "reason": from_texts([reason for reason, _ in REASONS]).take(from_numbers(reasons)),
        "since": to_timestamps(from_numbers(owned_at, is_told)),
        "commits": from_numbers(np.zeros(count, np.int64)),
        "pace_is_known": from_mask(np.zeros(count, np.bool_)),
    }
    nothing = {field.name: pa.nulls(count, field.type) for field in PARTITION_HEALTH}
    return pa.table([(nothing | found)[name] for name in PARTITION_HEALTH.names], schema=PARTITION_HEALTH)


def _starts(rows: pa.Table, sampled: pa.Table) -> Index:
    """Return where the logs of n partitions start, by the newest samples that say so; `NONE`: not known."""
    said = sampled.filter(pc.and_(sampled["log_start"].is_valid(), sampled["partition"].is_valid()))
    order = np.argsort(-numbers_or(to_milliseconds(said["sampled_at"]), 0), kind="stable")
    said = said.take(from_numbers(order))
    places, codes = Numbering.of(said, ["topic", "partition"])
    starts = np.append(numbers_or(said["log_start"], NONE)[firsts(codes)], NONE)
    found: Index = starts[places.codes_of(rows)]
    return found


def _owned_at(at: Source, rows: pa.Table, groups: pa.Table, *, moment: int, window_ms: int) -> Index:
    """Return since when (ms) groups are known to have n partitions; `NONE`: not for as long as a window.

    A group that has not changed since a moment had then what it has now. Those that have changed in the last
    window - consumers that are stuck are thrown out again and again - are looked up as of a window before,
    and of two, so that there is a time in which records can have come that have waited for a window since.
    (The log has no times of assignments, but it has one of each record about a group.)
    """
    until = moment - window_ms
    place = numbers_or(pc.index_in(rows["group"], value_set=groups["group"].combine_chunks()), NONE)
    changed_at = np.append(numbers_or(to_milliseconds(groups["source_timestamp"]), NONE), NONE)[place]
    owned_at: Index = np.where(changed_at <= until, changed_at, NONE)
    others = np.flatnonzero(changed_at > until)
    if len(others):
        asked = rows.select(KEY_NAMES).filter(from_mask(changed_at > until))
        late, early = (_had_by(at, asked, moment - many * window_ms) for many in (1, 2))
        owned_at[others] = np.where((late != NONE) & (early != NONE), early, late)
    return owned_at


def _had_by(at: Source, rows: pa.Table, until: int) -> Index:
    """Return since when groups had n partitions at a past moment (ms), as far as the row of the group then
    tells; `NONE`: they had not."""
    then = at.groups_before(pc.unique(rows["group"]).to_pylist(), until=until)
    owned = owned_partitions(then, at, until)
    keys, codes = Numbering.of(owned, KEY_NAMES)
    of_group = pc.index_in(owned["group"], value_set=then["group"].combine_chunks())
    times = numbers_or(to_milliseconds(then["source_timestamp"]).take(of_group), NONE)
    found: Index = np.append(np.minimum(times, until)[firsts(codes)], NONE)[keys.codes_of(rows)]
    return found


def _came_since(at: Source, rows: pa.Table, offsets: Index, owned_at: Index, moment: int) -> Mask:
    """Tell of n partitions whether the record at an offset of each came after the group had it."""
    columns = [rows["topic"], rows["partition"], from_numbers(offsets)]
    passed = at.crossings(pa.table(columns, ["topic", "partition", "committed_offset"]), as_of=moment)
    below_at = numbers_or(to_milliseconds(passed["below_at"]), NONE)
    came: Mask = (below_at != NONE) & (below_at >= owned_at)
    return came
