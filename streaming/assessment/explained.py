"""Explanations from the members of groups: lag without records to read, and topics without subscription.

The position of a consumer that commits explicitly stays before the marker of the last transaction, and before
the records of aborted ones: there is lag, but nothing to read. The tables contain no records, so only times
can show this. And a topic that a group no longer subscribes to keeps its committed offsets until they expire.
"""

from collections.abc import Callable
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.assessment.owners import TopicReader, owned_partitions, with_owners
from streaming.common.arrays import Index, Mask, from_mask, from_numbers, from_texts, numbers_or, to_mask
from streaming.common.keys import KEY_NAMES, firsts, key_codes
from streaming.common.pieces import take
from streaming.common.times import MINUTE_MS
from streaming.common.timestamps import to_milliseconds
from streaming.expiry.rules import UNSUBSCRIBED_RULES, expiry
from streaming.lag.habits import PauseReader
from streaming.lag.health import with_columns
from streaming.lag.health_rules import MAY_BE_MARKERS, NOT_SUBSCRIBED, OK, STOPPED, UNKNOWN
from streaming.lag.samples import NONE
from streaming.model.schemas import OFFSETS

LAG_SECONDS_REASON: Final = pa.field("lag_seconds_reason", pa.string())
"""Why lag_seconds is null although the lag is known; null otherwise."""

MARKERS: Final = "may be markers"
"""The unread records may be transaction markers and aborted records."""

_MOST: Final = 100  # records; more lag is not explained by markers
_LEAST_MS: Final = MINUTE_MS  # a shorter silence needs no explanation

AskGroups = Callable[[pa.Table], pa.Table]
"""Returns the groups (schema `GROUPS`) of rows."""


class ExplainedSource(PauseReader, TopicReader, Protocol): ...


def with_lag_seconds_reason(rows: pa.Table, may_be: Mask) -> pa.Table:
    """Set lag_seconds to null where the lag of n rows (with the columns `LAG`) may be markers, and add the
    column lag_seconds_reason after these columns."""
    if not may_be.any():
        nothing = pa.nulls(len(rows), pa.string())
        return rows.add_column(rows.column_names.index("ends_as_of") + 1, LAG_SECONDS_REASON, nothing)
    place = rows.column_names.index("lag_seconds")
    seconds = pc.if_else(from_mask(may_be), pa.scalar(None, pa.float64()), rows["lag_seconds"])
    reasons = pc.if_else(from_mask(may_be), from_texts([MARKERS])[0], pa.scalar(None, pa.string()))
    rows = rows.set_column(place, rows.schema.field(place), seconds)
    return rows.add_column(rows.column_names.index("ends_as_of") + 1, LAG_SECONDS_REASON, reasons)


def may_be_markers(at: ExplainedSource, rows: pa.Table, moment: int, groups_of: AskGroups) -> Mask:
    """Return for n rows (with the columns `LAG`) whether the unread records may be markers: few records, and
    the partition has a member, whose last commit came within one sample of the last rise of the log end.

    Nothing is read for positions with a large lag or a recent commit.
    """
    found = np.zeros(len(rows), np.bool_)
    if "commit_timestamp" not in rows.schema.names:
        return found
    lags = numbers_or(rows["lag"], 0)
    sampled_at, last_at = (
        numbers_or(to_milliseconds(rows[name]), 0) for name in ("ends_as_of", "commit_timestamp")
    )
    some = np.flatnonzero((lags > 0) & (lags <= _MOST) & (sampled_at - last_at >= _LEAST_MS))
    if not len(some):
        return found
    asked = take(rows, some)
    is_near = _is_near_the_last_rise(at, asked, last_at[some], moment)
    some, asked = some[is_near], asked.filter(from_mask(is_near))
    if len(some):
        found[some] = _are_owned(at, asked, groups_of(asked), moment)
    return found


def _are_owned(at: TopicReader, rows: pa.Table, groups: pa.Table, moment: int) -> Mask:
    owned = owned_partitions(groups, at, moment)
    return to_mask(with_owners(rows.select(KEY_NAMES), owned)["consumer_id"].is_valid())


def _is_near_the_last_rise(at: PauseReader, rows: pa.Table, last_at: Index, moment: int) -> Mask:
    """Return for n rows whether their last commits (ms) came near the last rise of the log end: no further
    from the two samples around the rise than these are apart."""
    last = pc.subtract(rows["log_end_offset"], from_numbers(np.ones(1, np.int64))[0])
    asked = rows.select(["topic", "partition"]).append_column("committed_offset", last)
    codes = key_codes(asked.columns)
    crossed = take(at.offset_times(take(asked, firsts(codes)), as_of=moment), codes)
    is_known = to_mask(crossed["below_at"].is_valid()) & to_mask(crossed["above_at"].is_valid())
    below, above = (numbers_or(to_milliseconds(crossed[name]), 0) for name in ("below_at", "above_at"))
    gap = above - below
    near: Mask = is_known & (last_at >= below - gap) & (last_at <= above + gap)
    return near


def reasons_of_members(
    at: ExplainedSource, rows: pa.Table, statuses: Index, moment: int, groups_of: AskGroups
) -> Index:
    """Return the reasons (numbers of `REASONS`) that members give for the statuses of n positions (`KEY`, the
    columns `LAG` and commit_timestamp); `NONE`: no reason.

    A position that is STOPPED before possible markers gets an UNKNOWN reason. Positions of topics without
    subscription get an OK one.
    """
    reasons = np.full(len(rows), NONE, np.int64)
    stopped = np.flatnonzero(statuses == STOPPED)
    if len(stopped):
        may_be = may_be_markers(at, take(rows, stopped), moment, groups_of)
        reasons[stopped[may_be]] = MAY_BE_MARKERS
    asked = np.flatnonzero(~np.isin(statuses, (OK, UNKNOWN)) & (reasons == NONE))
    if len(asked):
        is_left = _is_not_subscribed(at, take(rows.select(KEY_NAMES), asked), moment, groups_of)
        reasons[asked[is_left]] = NOT_SUBSCRIBED
    return reasons


def _is_not_subscribed(at: ExplainedSource, rows: pa.Table, moment: int, groups_of: AskGroups) -> Mask:
    """Return for n partitions whether their group has members that do not subscribe to the topic, and no
    member has the partition."""
    groups = groups_of(rows)
    running = groups.filter(from_mask(numbers_or(pc.list_value_length(groups["members"]), 0) > 0))
    unsaid = [field for field in OFFSETS if field.name not in KEY_NAMES]
    bare = with_columns(
        rows, pa.table([pa.nulls(len(rows), field.type) for field in unsaid], pa.schema(unsaid))
    )
    rules = pc.is_in(expiry(bare, running, 0)["rule"], value_set=from_texts(sorted(UNSUBSCRIBED_RULES)))
    is_left: Mask = to_mask(rules) & ~_are_owned(at, rows, running, moment)
    return is_left
