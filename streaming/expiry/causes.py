"""Why offsets were removed, as far as the evidence shows: the broker writes the same tombstone for every
reason.

Pure functions of the rows of one batch (schema `CHANGES`). `undecided` selects the removals whose cause can
be found. The driver collects `Evidence` for them, and `with_causes` decides. All others are `unknown`. The
decisions rest on three facts about Kafka (4.3: `OffsetMetadataManager`, `GroupCoordinatorShard`):

- an expiry check removes all due offsets of a group, and no others;
- the tombstones of one request, or of one check, have the same record timestamp;
- the deletion of a topic removes only the offsets of that topic, in all groups at the same time.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import Index, Mask, from_numbers
from streaming.common.keys import key_codes, numbered
from streaming.common.pieces import take
from streaming.common.times import MINUTE_MS
from streaming.common.timestamps import to_milliseconds
from streaming.expiry.cause_names import CAUSES as CAUSES
from streaming.expiry.cause_names import DELETED as DELETED
from streaming.expiry.cause_names import EXPIRED as EXPIRED
from streaming.expiry.cause_names import GONE_WHILE_AWAY as GONE_WHILE_AWAY
from streaming.expiry.cause_names import TOPIC_DELETED as TOPIC_DELETED
from streaming.expiry.cause_names import UNKNOWN as UNKNOWN
from streaming.expiry.rules import EXPLICIT, NO_GROUP, UNKNOWN_RULES, expiry, rows_of_groups
from streaming.model.progress import Retention
from streaming.model.schemas import KEY, OFFSETS
from streaming.state.changes import HIDDEN, TOMBSTONED

CLOCK_TOLERANCE_MS: Final = 10_000
"""Tolerated difference between the clocks of two brokers: one wrote the time from which the retention
counts, another expires the offset."""

RECENT_MS: Final = MINUTE_MS
"""How long after a tombstone the current metadata of the brokers still describes the topic it was about."""

LARGE_CHECK: Final = 1_000
"""Brokers may write a check with at least this many tombstones in several appends, which batches may
split."""


_KEY: Final = [field.name for field in KEY]
_NEVER: Final = np.iinfo(np.int64).max  # in place of null
_FAR: Final = 2**62  # ms; later than all times


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The facts known when a batch is written.

    `offsets` and `groups` (schemas `OFFSETS`, `GROUPS`) are those of the groups of `undecided` rows, as of
    before the batch. `topic_ids` are the current topics, as `Broker.topic_ids` returns them. `stalled` are
    the offsets partitions with an open transaction. `ends` are the greatest source offsets of changes that
    are not among the rows, by offsets partition. `cut` are the offsets partitions that the batch did not
    read to their known end. `now` is in milliseconds.
    """

    offsets: pa.Table
    groups: pa.Table
    topic_ids: Mapping[str, str | None] | None
    retention: Retention | None
    stalled: frozenset[int]
    now: int
    ends: Mapping[int, int] = field(default_factory=dict)
    cut: Collection[int] = ()


def watched_since(retention: Retention | None, now: int) -> int:
    """Return the moment (ms) since which evidence can show the causes of removals."""
    return retention.known_since if retention else now - RECENT_MS


def undecided(changes: pa.Table, since: int) -> Mask:
    """Return for n rows (schema `CHANGES`, or `CHANGES_IN_BATCH`) whether they are removals whose cause the
    evidence can show.

    Excluded are offsets that were not in the tables or have no tombstone of their own, and removals from
    before `since` (ms; see `watched_since`).
    """
    removed_at = _milliseconds(changes["source_timestamp"])
    is_removed_offset = pc.and_(pc.equal(changes["kind"], "offset"), pc.equal(changes["op"], "remove"))
    is_undecided: Mask = (
        _mask(is_removed_offset)
        & _mask(pc.not_equal(changes["cause"], HIDDEN))
        & _mask(pc.is_valid(changes["before"]))
        & (removed_at >= since)
        & (removed_at != _NEVER)
    )
    return is_undecided


def without_evidence(changes: pa.Table) -> pa.Table:
    """Return the rows with the cause `unknown` for every removed offset."""
    return _with_cause(changes, pc.if_else(pc.is_valid(changes["cause"]), UNKNOWN, None))


def with_causes(changes: pa.Table, evidence: Evidence) -> pa.Table:
    """Return the rows of a batch with the cause of every removed offset: one of `CAUSES`.

    If a removal is `undecided`, all rows of its group in the batch must be among the rows.
    """
    rows = np.flatnonzero(undecided(changes, watched_since(evidence.retention, evidence.now)))
    causes = without_evidence(changes)["cause"].to_numpy(zero_copy_only=False).copy()
    if len(rows):
        causes[rows] = _causes(changes, take(changes, rows), evidence)
    return _with_cause(changes, pa.array(causes, pa.string()))


def with_causes_of_absence(
    changes: pa.Table, evidence: Evidence, seen_at: Mapping[int, int | None]
) -> pa.Table:
    """Return the changes of a rebuild, with the cause `expired (probable)` for offsets that became due
    meanwhile.

    `seen_at` is the moment (ms; None: not known) up to which each offsets partition had been read before. An
    absent offset counts as expired if it became due since then, or up to two checks before, its topic is the
    same, and the retention is known for that whole time. The others keep `gone while away`. `evidence` is
    about the groups of the absent offsets.
    """
    is_gone = _mask(pc.equal(changes["cause"], GONE_WHILE_AWAY))
    rows = np.flatnonzero(is_gone)
    causes = changes["cause"].to_numpy(zero_copy_only=False).copy()
    if len(rows):
        removed = take(changes, rows)
        causes[rows[_is_expired_meanwhile(changes, removed, evidence, seen_at)]] = EXPIRED
    return _with_cause(changes, pa.array(causes, pa.string()))


def _is_expired_meanwhile(
    changes: pa.Table, gone: pa.Table, evidence: Evidence, seen_at: Mapping[int, int | None]
) -> Mask:
    """Return for each of m offsets that a rebuild no longer found whether it has expired."""
    seen = np.array([seen_at.get(number) or _NEVER for number in gone["source_partition"].to_pylist()])
    as_removed = _with_cause(gone, pa.repeat(pa.scalar(TOMBSTONED), len(gone)))
    due = _DueTimes.of(as_removed, evidence.groups, evidence.retention)
    retention = evidence.retention
    earliest = seen - 2 * (retention.check_interval_ms if retention else 0) - CLOCK_TOLERANCE_MS
    is_retention_known = seen >= (retention.known_since if retention else _NEVER)
    is_due = due.is_known & (due.dropped_from >= earliest) & (due.dropped_from <= evidence.now)
    is_same_topic, _ = _topics(gone, seen, evidence)
    is_outlived = _is_outlived(changes, gone, due.at, evidence)
    is_expired: Mask = is_due & is_retention_known & (seen != _NEVER) & is_same_topic & ~is_outlived
    return is_expired


def _causes(changes: pa.Table, removed: pa.Table, evidence: Evidence) -> npt.NDArray[np.object_]:
    removed_at = _milliseconds(removed["source_timestamp"])
    operations = _operations(removed)
    due = _DueTimes.of(removed, evidence.groups, evidence.retention)
    is_outlived = _is_outlived(changes, removed, due.at, evidence)
    is_outlived &= ~_may_go_on(changes, removed, operations, evidence)
    is_no_expiry = _in_same(operations, due.is_before(removed_at) | is_outlived)
    is_due = due.is_over(removed_at)
    is_expired = is_due & _in_same(operations, is_due & due.is_in_time(removed_at, evidence.retention))
    is_same_topic, is_topic_gone = _topics(removed, removed_at, evidence)
    is_same_topic = _in_same(operations, is_same_topic)
    is_topic_gone = ~_in_same(operations, ~is_topic_gone)
    is_recent = evidence.now - removed_at <= RECENT_MS
    return np.select(
        [
            is_same_topic & is_no_expiry,
            is_same_topic & is_expired,
            is_topic_gone & (is_no_expiry | is_recent),
        ],
        [DELETED, EXPIRED, TOPIC_DELETED],
        UNKNOWN,
    ).astype(object)


@dataclass(frozen=True)
class _DueTimes:
    """When each of m removed offsets was due (ms), from its values before the batch.

    `at` is `_NEVER` for those never due. `dropped_from` is the moment from which checks drop the offset: an
    offset that outlived `at` was exempt until the last record of its group, or until the retention changed.
    `not_before` is the earliest moment at which it can have been due if the offset or its group changed
    within the batch. All count only where `is_known`. `is_exact`: neither changed.
    """

    at: Index
    dropped_from: Index
    not_before: Index
    is_known: Mask
    is_exact: Mask

    @classmethod
    def of(cls, removed: pa.Table, groups: pa.Table, retention: Retention | None) -> "_DueTimes":
        retention_ms = retention.retention_ms if retention else 0
        judged = expiry(_offsets_before(removed), groups, retention_ms)
        at, committed = _milliseconds(judged["expires_at"]), _milliseconds(judged["commit_timestamp"])
        is_explicit = _mask(pc.equal(judged["rule"], EXPLICIT.name))
        is_vague = _mask(pc.is_in(judged["rule"], value_set=pa.array([*UNKNOWN_RULES, NO_GROUP.name])))
        is_exact = _mask(pc.equal(removed["cause"], TOMBSTONED))
        needs_no_retention = is_exact & (is_explicit | (at == _NEVER))
        return cls(
            at=at,
            dropped_from=np.maximum(at, _may_change_at(removed, groups, retention)),
            not_before=np.minimum(at, np.minimum(committed, _FAR) + retention_ms),
            is_known=~is_vague & (needs_no_retention | (retention is not None)) & (is_exact | ~is_explicit),
            is_exact=is_exact,
        )

    def is_before(self, removed_at: Index) -> Mask:
        """Return which offsets were removed before they can have been due."""
        due = np.where(self.is_exact, self.at, self.not_before)
        early: Mask = self.is_known & (removed_at < due - CLOCK_TOLERANCE_MS)
        return early

    def is_over(self, removed_at: Index) -> Mask:
        """Return which offsets were due when they were removed."""
        over: Mask = self.is_known & self.is_exact & (removed_at >= self.at - CLOCK_TOLERANCE_MS)
        return over

    def is_in_time(self, removed_at: Index, retention: Retention | None) -> Mask:
        """Return which offsets were removed within one check interval after checks began to drop them, or two
        if the partition moved to another coordinator meanwhile."""
        interval = retention.check_interval_ms if retention else 0
        in_time: Mask = removed_at - self.dropped_from <= 2 * interval + CLOCK_TOLERANCE_MS
        return in_time


def _may_change_at(removed: pa.Table, groups: pa.Table, retention: Retention | None) -> Index:
    """Return the latest moment (ms) before the batch at which the rule of each offset can have changed."""
    times = to_milliseconds(groups["source_timestamp"]).fill_null(0).to_numpy()
    changed_at = np.append(times, 0)[rows_of_groups(removed, groups)]
    latest: Index = np.maximum(changed_at, retention.known_since if retention else 0)
    return latest


def _is_outlived(changes: pa.Table, removed: pa.Table, due: Index, evidence: Evidence) -> Mask:
    """Return which removed offsets left behind another offset of their group that was due no later.

    An expiry check would have removed that one too, unless an open transaction protected it.
    """
    if evidence.retention is None:
        return np.zeros(len(removed), dtype=bool)
    is_asked = pc.is_in(evidence.offsets["group"], value_set=pc.unique(removed["group"]))
    staying = _untouched(evidence.offsets.filter(is_asked), changes)
    judged = expiry(staying, evidence.groups, evidence.retention.retention_ms, stalled=evidence.stalled)
    codes, _ = numbered(pa.chunked_array([*staying["group"].chunks, *removed["group"].chunks], pa.string()))
    first_due = np.full(len(codes), _NEVER)
    np.minimum.at(first_due, codes[: len(staying)], _milliseconds(judged["expires_at"]))
    others = first_due[codes[len(staying) :]]
    is_changed = pc.is_in(removed["group"], value_set=_changed_groups(changes))
    removed_at = _milliseconds(removed["source_timestamp"])
    outlived: Mask = (
        (others <= due) & (others < removed_at - CLOCK_TOLERANCE_MS) & (due != _NEVER) & ~_mask(is_changed)
    )
    return outlived


def ends_of(changes: pa.Table) -> dict[int, int]:
    """Return the greatest source offset of rows (schema `CHANGES` or `CHANGES_IN_BATCH`) by offsets
    partition."""
    last = changes.group_by("source_partition").aggregate([("source_offset", "max")])
    return dict(zip(last["source_partition"].to_pylist(), last["source_offset_max"].to_pylist(), strict=True))


def _may_go_on(changes: pa.Table, removed: pa.Table, operations: Index, evidence: Evidence) -> Mask:
    """Return which rows may belong to a check whose tombstones continue after this batch."""
    ends = {number: max(end, evidence.ends.get(number, end)) for number, end in ends_of(changes).items()}
    partitions = removed["source_partition"].to_numpy()
    is_last = removed["source_offset"].to_numpy() == pd.Series(ends).reindex(partitions).to_numpy()
    checks = key_codes(_times(removed))
    is_large = np.bincount(checks)[checks] >= LARGE_CHECK
    is_cut = np.isin(partitions, np.array([*evidence.cut], dtype=np.int64))
    may_go_on: Mask = (is_large | is_cut) & _in_same(operations, is_last)
    return may_go_on


def _topics(removed: pa.Table, removed_at: Index, evidence: Evidence) -> tuple[Mask, Mask]:
    """Return whose topic is still the same, and whose topic was deleted or recreated; neither: not known.

    Where one of the two ids is missing (transactional commits before Kafka 4.4 have none), a topic of the
    same name counts as the same if the removal is recent.
    """
    ids = evidence.topic_ids or {}
    codes, topics = numbered(removed["topic"])
    names = topics.to_pylist()
    is_absent = np.array([name in ids and ids[name] is None for name in names])[codes]
    present_id = np.array([ids.get(name) or "" for name in names], dtype=object)[codes]
    is_present = np.array([ids.get(name) is not None for name in names])[codes]
    held_id = np.array(pc.struct_field(removed["before"], "topic_id").fill_null("").to_pylist(), dtype=object)
    can_compare = (present_id != "") & (held_id != "")
    is_recent = evidence.now - removed_at <= RECENT_MS
    is_same = is_present & np.where(can_compare, present_id == held_id, is_recent)
    return is_same, is_absent | (can_compare & (present_id != held_id))


def _offsets_before(removed: pa.Table) -> pa.Table:
    """Return the removed offsets as rows of `OFFSETS`, with their values before the batch."""
    own = {*_KEY, "source_partition"}
    columns = [
        removed[name] if name in own else pc.struct_field(removed["before"], name) for name in OFFSETS.names
    ]
    return pa.table(columns, schema=OFFSETS)


def _untouched(offsets: pa.Table, changes: pa.Table) -> pa.Table:
    """Return the offsets that the batch neither sets nor removes."""
    changed = changes.filter(pc.equal(changes["kind"], "offset")).select(_KEY)
    numbered = offsets.select(_KEY).append_column("row", pa.array(np.arange(len(offsets))))
    rows = numbered.join(changed, keys=_KEY, join_type="left anti")["row"]
    return take(offsets, rows.to_numpy())


def _changed_groups(changes: pa.Table) -> pa.Array:
    """Return the groups that the batch changes other than by removing them."""
    is_set = pc.and_(pc.equal(changes["kind"], "group"), pc.equal(changes["op"], "set"))
    return changes.filter(is_set)["group"].combine_chunks()


def _operations(removed: pa.Table) -> Index:
    """Number the requests and checks that wrote the removals, separately for each group."""
    return key_codes([removed["group"], *_times(removed)])


def _times(removed: pa.Table) -> list[pa.ChunkedArray | pa.Array]:
    """Return the columns that identify the moment of a removal: offsets partition and timestamp."""
    return [removed["source_partition"], from_numbers(_milliseconds(removed["source_timestamp"]))]


def _in_same(operations: Index, is_so: Mask) -> Mask:
    """Return for each row whether any row of the same operation is so."""
    counts: Mask = np.bincount(operations, weights=is_so)[operations] > 0
    return counts


def _milliseconds(column: pa.ChunkedArray) -> Index:
    values: Index = to_milliseconds(column).fill_null(_NEVER).to_numpy()
    return values


def _mask(values: pa.ChunkedArray) -> Mask:
    mask: Mask = values.fill_null(False).to_numpy()
    return mask


def _with_cause(changes: pa.Table, causes: pa.Array | pa.ChunkedArray) -> pa.Table:
    place = changes.schema.get_field_index("cause")
    return changes.set_column(place, changes.schema.field(place), causes)
