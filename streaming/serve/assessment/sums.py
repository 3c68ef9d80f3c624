"""Assessments summed up: by group, and by group and topic. Offsets of a group stand together, and within it
those of a topic, so that every sum is over a run of rows."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from streaming.common.arrays import Index, Mask, numbers_or, to_mask
from streaming.serve.assessment.assessment import NO_LAG, Assessment, Positions
from streaming.serve.memory.names import NONE
from streaming.serve.memory.snapshot import MemorySnapshot

_MOST: Final = 2**63 - 1


@dataclass(frozen=True, eq=False)
class RowRuns:
    """m runs that n rows are divided into: where each begins (m, none is empty)."""

    starts: Index
    rows: int

    @classmethod
    def of_groups(cls, snapshot: MemorySnapshot) -> tuple[Self, Index]:
        """Return the runs of offsets of groups, and the places of these (m): of those that have any."""
        starts = snapshot.offsets.starts
        groups = np.flatnonzero(snapshot.offsets.counts)
        return cls(starts[:-1][groups], int(starts[-1])), groups

    @classmethod
    def of_topics(cls, snapshot: MemorySnapshot) -> tuple[Self, Index, Index]:
        """Return the runs of offsets of groups and topics, and the places of both (m each)."""
        groups, topics = snapshot.offsets.groups(), snapshot.topics.topic[snapshot.offsets.columns.place]
        is_first = np.append(True, (np.diff(groups) != 0) | (np.diff(topics) != 0))[: len(groups)]
        starts = np.flatnonzero(is_first)
        return cls(starts, len(groups)), groups[starts], topics[starts]

    def count(self, mask: Mask) -> Index:
        """Count the rows of each run for which n booleans hold."""
        return self._reduced(np.add, mask.astype(np.int64))

    def any(self, mask: Mask) -> Mask:
        """Tell of each run whether one of n booleans holds."""
        found: Mask = self._reduced(np.logical_or, mask)
        return found

    def sum(self, numbers: Index) -> Index:
        """Sum up n numbers; what int64 cannot hold is its largest, or that below 0."""
        sums: Index = self._reduced(np.add, numbers)
        roughly = self._reduced(np.add, numbers.astype(np.float64))
        return np.where(roughly >= _MOST, _MOST, np.where(roughly <= -_MOST, -_MOST, sums))

    def largest(self, numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the largest of the n numbers of each run; of doubles NaN counts only where all are."""
        return self._reduced(np.fmax if numbers.dtype.kind == "f" else np.maximum, numbers)

    def least(self, numbers: Index) -> Index:
        """Return the least of the n numbers of each run."""
        return self._reduced(np.minimum, numbers)

    def _reduced(self, how: np.ufunc, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if not len(self.starts):
            return values[:0]
        reduced: npt.NDArray[Any] = how.reduceat(values, self.starts)
        return reduced


@dataclass(frozen=True, eq=False)
class LagSums:
    """The lag of m runs, as `streaming.lag.summary` sums it up: records where `is_known`, seconds (NaN: not
    known), whether the true lag may be larger, and how many offsets are beyond the end of their log."""

    lag: Index
    is_known: Mask
    largest: Index
    seconds: npt.NDArray[np.float64]
    is_at_least: Mask
    beyond_end: Index

    @classmethod
    def of(cls, positions: Positions, runs: RowRuns) -> Self:
        """Sum up n positions over runs."""
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
    """What an assessment says of m groups with offsets (`groups` are their places), or of m groups and topics
    (`topics`, too; else None)."""

    assessment: Assessment
    runs: RowRuns
    groups: Index
    topics: Index | None = None

    @classmethod
    def by_group(cls, assessment: Assessment) -> Self:
        """Sum up by group."""
        return cls(assessment, *RowRuns.of_groups(assessment.snapshot))

    @classmethod
    def by_topic(cls, assessment: Assessment) -> Self:
        """Sum up by group and topic."""
        return cls(assessment, *RowRuns.of_topics(assessment.snapshot))

    def __len__(self) -> int:
        return len(self.groups)

    @cached_property
    def lag(self) -> LagSums:
        """Their lag."""
        return LagSums.of(self.assessment.positions, self.runs)

    @cached_property
    def status(self) -> Index:
        """The worst status, a number of `lag.rules.STATUSES`; `NONE`: not known yet."""
        worst: Index = self.runs.largest(self.assessment.positions["status"])
        return worst

    @cached_property
    def has_uncommitted(self) -> Mask:
        """Whether members of the group have partitions that nothing is committed for."""
        found: Mask = np.isin(self.groups, self.assessment.uncommitted.groups)
        return found

    @cached_property
    def last_commit(self) -> Index:
        """When the newest offset was committed (ms), `NONE`: not known."""
        return self.runs.largest(self.assessment.snapshot.offsets.columns.commit_timestamp)

    @cached_property
    def oldest_commit(self) -> Index:
        """When the oldest offset was committed (ms), `NONE`: not known."""
        times = self.assessment.snapshot.offsets.columns.commit_timestamp
        least = self.runs.least(np.where(times == NONE, _MOST, times))
        return np.where(least == _MOST, NONE, least)

    @cached_property
    def unreadable(self) -> Index:
        """How many offsets have a newest value that could not be read."""
        return self.runs.count(self.assessment.snapshot.offsets.columns.unreadable_source_offset != NONE)

    @cached_property
    def position(self) -> tuple[Index, Mask]:
        """The sum of committed offsets, and whether there is any."""
        columns = self.assessment.snapshot.offsets.columns
        is_known = columns.was_readable
        return self.runs.sum(np.where(is_known, columns.committed_offset, 0)), self.runs.any(is_known)

    @cached_property
    def below_log_start(self) -> tuple[Index, Index]:
        """How many offsets are below the start of their log, as far as that is known, and by how much at
        most."""
        columns, ends = self.assessment.snapshot.offsets.columns, self.assessment.snapshot.topics.ends
        starts, offsets = ends.log_start[columns.place], columns.committed_offset
        ids, sampled = columns.topic_id, ends.sample_id[columns.place]
        is_same_log = (ids == sampled) | (ids == NONE) | (sampled == NONE)
        is_below = (starts != NONE) & (offsets != NONE) & (offsets < starts) & is_same_log
        return self.runs.count(is_below), self.runs.largest(np.where(is_below, starts - offsets, 0))

    def count(self, name: str) -> Index:
        """Count the offsets of which a boolean of `POSITIONS` holds."""
        return self.runs.count(self.assessment.positions[name])

    def soonest_expiry(self) -> tuple[Index, Index, Index]:
        """Return the first moment (ms) at which an offset expires, by group and rule: the places of the k
        groups, their rules and the moments."""
        rules, expires_at = (self.assessment.positions[name] for name in ("rule", "expires_at"))
        rows = np.flatnonzero(expires_at != NONE)
        groups = np.repeat(self.groups, np.diff(self.runs.starts, append=self.runs.rows))[rows]
        keys, first, own = np.unique(groups << 8 | rules[rows], return_index=True, return_inverse=True)
        least = np.full(len(first), _MOST, np.int64)
        np.minimum.at(least, own, expires_at[rows])
        return keys >> 8, keys & 0xFF, least


def status_of_groups(assessment: Assessment) -> tuple[Index, Index]:
    """Return the places of groups whose status is known, and the worst status of their offsets and of the
    partitions that they have without one, a number of `lag.rules.STATUSES`."""
    summed = Summed.by_group(assessment)
    worst = np.full(len(assessment.snapshot.groups), NONE, np.int64)
    worst[summed.groups] = summed.status
    np.maximum.at(worst, assessment.uncommitted.groups, assessment.uncommitted.status)
    places = np.flatnonzero(worst != NONE)
    return places, worst[places]


def subscribed(snapshot: MemorySnapshot, groups: Index, topics: Index) -> tuple[Mask, Mask]:
    """Tell of m groups and topics (places) whether the one subscribes to the other, and whether it is known
    to what the group subscribes: a group without members subscribes to nothing that is to be told."""
    lists = snapshot.groups.rows["subscribed_topics"].combine_chunks()
    is_known = to_mask(lists.is_valid())
    of_groups = numbers_or(pc.list_parent_indices(lists), NONE)
    named = snapshot.topics.names.places_of(lists.flatten())
    is_some = named != NONE
    pairs = of_groups[is_some] << 32 | named[is_some]
    is_known &= snapshot.groups.member_counts > 0
    return np.isin(groups << 32 | topics, pairs), is_known[groups]
