"""Assessments aggregated by group, and by group and topic. Offsets of a group are contiguous, and within it
those of a topic, so every aggregate is over runs of rows."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from streaming.common.arrays import Index, Mask, begins_run, numbers_or, to_mask
from streaming.lag.log_ranges import lag_of
from streaming.lag.samples import may_be_same_id
from streaming.serve.assessment.assessment import NO_LAG, Assessment, Positions
from streaming.serve.memory.names import NONE
from streaming.serve.memory.snapshot import MemorySnapshot

_MOST: Final = 2**63 - 1


@dataclass(frozen=True, eq=False)
class RowRuns:
    """m runs that n rows are divided into, by their first rows; no run is empty."""

    starts: Index
    rows: int

    @classmethod
    def of_groups(cls, snapshot: MemorySnapshot) -> tuple[Self, Index]:
        """Return the runs of groups, and the places of the m groups that have offsets."""
        starts = snapshot.offsets.starts
        groups = np.flatnonzero(snapshot.offsets.counts)
        return cls(starts[:-1][groups], int(starts[-1])), groups

    @classmethod
    def of_topics(cls, snapshot: MemorySnapshot) -> tuple[Self, Index, Index]:
        """Return the runs of groups and topics, and the places of both (m each)."""
        groups, topics = snapshot.offsets.groups(), snapshot.topics.topic[snapshot.offsets.columns.place]
        starts = np.flatnonzero(begins_run(groups, topics))
        return cls(starts, len(groups)), groups[starts], topics[starts]

    def count(self, mask: Mask) -> Index:
        return self._reduced(np.add, mask.astype(np.int64))

    def any(self, mask: Mask) -> Mask:
        found: Mask = self._reduced(np.logical_or, mask)
        return found

    def sum(self, numbers: Index) -> Index:
        """Sum n numbers by run; saturates at the largest int64, and at its negative."""
        sums: Index = self._reduced(np.add, numbers)
        roughly = self._reduced(np.add, numbers.astype(np.float64))
        return np.where(roughly >= _MOST, _MOST, np.where(roughly <= -_MOST, -_MOST, sums))

    def largest(self, numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the largest of n numbers by run; NaN only where all are NaN."""
        return self._reduced(np.fmax if numbers.dtype.kind == "f" else np.maximum, numbers)

    def least(self, numbers: Index) -> Index:
        return self._reduced(np.minimum, numbers)

    def _reduced(self, how: np.ufunc, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if not len(self.starts):
            return values[:0]
        reduced: npt.NDArray[Any] = how.reduceat(values, self.starts)
        return reduced


@dataclass(frozen=True, eq=False)
class LagSums:
    """The lag of m runs, by the rules of `streaming.lag.summary`: the sum and the largest in records (valid
    where `is_known`), the largest in seconds (NaN: unknown), whether the actual lag may be larger, and the
    number of offsets beyond their log end."""

    lag: Index
    is_known: Mask
    largest: Index
    seconds: npt.NDArray[np.float64]
    is_at_least: Mask
    beyond_end: Index

    @classmethod
    def of(cls, positions: Positions, runs: RowRuns) -> Self:
        lags, seconds = positions["lag"], positions["lag_seconds"]
        is_known = lags != NO_LAG
        is_least = positions["lag_is_at_least"] | ~is_known | np.isnan(seconds)
        behind = np.maximum(lags, 0)
        return cls(
            lag=runs.sum(behind),
            is_known=runs.any(is_known),
            largest=runs.largest(behind),
            seconds=runs.largest(seconds),
            is_at_least=runs.any(is_known) & runs.any(is_least),
            beyond_end=runs.count(is_known & (lags < 0)),
        )


@dataclass(frozen=True, eq=False)
class Summed:
    """Aggregates of an assessment over m groups with offsets (`groups` are their places), or over m pairs of
    group and topic (with `topics`; else None)."""

    assessment: Assessment
    runs: RowRuns
    groups: Index
    topics: Index | None = None

    @classmethod
    def by_group(cls, assessment: Assessment) -> Self:
        return cls(assessment, *RowRuns.of_groups(assessment.snapshot))

    @classmethod
    def by_topic(cls, assessment: Assessment) -> Self:
        return cls(assessment, *RowRuns.of_topics(assessment.snapshot))

    def __len__(self) -> int:
        return len(self.groups)

    @cached_property
    def lag(self) -> LagSums:
        return LagSums.of(self.assessment.positions, self.runs)

    @cached_property
    def status(self) -> Index:
        """The worst status, an index into `lag.health_rules.STATUSES`; `NONE`: not known yet."""
        worst: Index = self.runs.largest(self.assessment.positions["status"].astype(np.int64))
        return worst

    @cached_property
    def has_uncommitted(self) -> Mask:
        """Whether members of the group are assigned partitions without a committed offset."""
        found: Mask = np.isin(self.groups, self.assessment.uncommitted.groups)
        return found

    @cached_property
    def last_commit(self) -> Index:
        """The time of the newest commit (ms); `NONE`: unknown."""
        return self.runs.largest(self.assessment.snapshot.offsets.columns.commit_timestamp)

    @cached_property
    def oldest_commit(self) -> Index:
        """The time of the oldest commit (ms); `NONE`: unknown."""
        times = self.assessment.snapshot.offsets.columns.commit_timestamp
        least = self.runs.least(np.where(times == NONE, _MOST, times))
        return np.where(least == _MOST, NONE, least)

    @cached_property
    def unreadable(self) -> Index:
        """The number of offsets whose newest value could not be read."""
        return self.runs.count(self.assessment.snapshot.offsets.columns.unreadable_source_offset != NONE)

    @cached_property
    def position(self) -> tuple[Index, Mask]:
        """The sum of the committed offsets, and whether there is any."""
        columns = self.assessment.snapshot.offsets.columns
        is_known = columns.was_readable
        return self.runs.sum(np.where(is_known, columns.committed_offset, 0)), self.runs.any(is_known)

    @cached_property
    def below_log_start(self) -> tuple[Index, Index]:
        """The number of offsets below a known log start offset, and the largest distance below it."""
        columns, ends = self.assessment.snapshot.offsets.columns, self.assessment.snapshot.topics.ends
        starts, offsets = ends.log_start[columns.place], columns.committed_offset
        ids, sampled = columns.topic_id, ends.sample_id[columns.place]
        is_same_log = may_be_same_id(ids, sampled)
        is_below = (starts != NONE) & columns.was_readable & (offsets < starts) & is_same_log
        return self.runs.count(is_below), self.runs.largest(np.where(is_below, lag_of(starts, offsets), 0))

    def count(self, name: str) -> Index:
        """Count the offsets for which a boolean column of `POSITIONS` is true."""
        return self.runs.count(self.assessment.positions[name])

    def soonest_expiry(self) -> tuple[Index, Index, Index]:
        """Return the first moment (ms) at which an offset expires, by group and rule: the places of k groups,
        their rules and the moments."""
        rules, expires_at = (self.assessment.positions[name] for name in ("rule", "expires_at"))
        rows = np.flatnonzero(expires_at != NONE)
        rules = rules.astype(np.int64)
        groups = np.repeat(self.groups, np.diff(self.runs.starts, append=self.runs.rows))[rows]
        keys, first, own = np.unique(groups << 8 | rules[rows], return_index=True, return_inverse=True)
        least = np.full(len(first), _MOST, np.int64)
        np.minimum.at(least, own, expires_at[rows])
        return keys >> 8, keys & 0xFF, least


def status_of_groups(assessment: Assessment) -> tuple[Index, Index]:
    """Return the places of groups with a known status, and the worst status of their offsets and of their
    partitions without one, an index into `lag.health_rules.STATUSES`."""
    summed = Summed.by_group(assessment)
    worst = np.full(len(assessment.snapshot.groups), NONE, np.int64)
    worst[summed.groups] = summed.status
    np.maximum.at(worst, assessment.uncommitted.groups, assessment.uncommitted.status)
    places = np.flatnonzero(worst != NONE)
    return places, worst[places]


def subscribed(snapshot: MemorySnapshot, groups: Index, topics: Index) -> tuple[Mask, Mask]:
    """Return for m groups and topics (places) whether the group subscribes to the topic, and whether its
    subscriptions are known: those of a group without members are not."""
    lists = snapshot.groups.rows["subscribed_topics"].combine_chunks()
    is_known = to_mask(lists.is_valid())
    of_groups = numbers_or(pc.list_parent_indices(lists), NONE)
    named = snapshot.topics.names.places_of(lists.flatten())
    is_some = named != NONE
    pairs = of_groups[is_some] << 32 | named[is_some]
    is_known &= snapshot.groups.member_counts > 0
    return np.isin(groups << 32 | topics, pairs), is_known[groups]
