"""The in-memory snapshot of the tables at one sequence, as immutable columns.

Listeners look up groups by name, their offsets as a slice of all offsets, and topic partitions by place. A
snapshot opens no table and is consistent: offsets, groups and progress are of one batch. A newer snapshot is
another object.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa

from streaming.alerts.listing import ALERT_LIST
from streaming.common.arrays import Index, Mask, no_rows
from streaming.common.partitions import offsets_partition
from streaming.lag.samples import MAX_SAMPLE_AGE_MS, may_be_same_id
from streaming.model.completeness import Completeness, all_partitions, loading_in
from streaming.model.progress import Progress
from streaming.queries.as_of import partition_count
from streaming.serve.memory.changes import Changes
from streaming.serve.memory.groups import Groups
from streaming.serve.memory.names import NONE, TEXTS, Int32, fixed
from streaming.serve.memory.offsets import OffsetColumns, Offsets
from streaming.serve.memory.topics import Moved, Topics

_NO_NAMES: Final = pa.nulls(0, TEXTS)
_MOST: Final = np.iinfo(np.int64).max
_AT_A_TIME: Final = 65_536  # offsets to process at a time, before other threads may run


@dataclass(frozen=True, eq=False, kw_only=True)
class MemorySnapshot:
    """The contents of the tables: `groups` and `offsets` of one batch, `topics` with the newest log ends, the
    open `alerts` (schema `ALERT_LIST`), and the counts of `undelivered` alerts, open and closed
    (`listing.undelivered_counts`). `progress` is of the batch, with the newest heartbeat.

    For each of m topic partitions, `committing` is the number of groups with a committed offset,
    `is_assigned` whether it is assigned to a member of a group (or will be, by the target assignment), and
    `end_offsets` the log end offset: the newest sample or, if larger, the largest commit under the same topic
    id that the job wrote after that sample, when the log ended no lower; -1 where no sample counts. An older
    commit that is larger really is beyond the log end. `are_present` is whether the topic partition still
    exists (it is committed, sampled or assigned), and `present_topics` whether one of each topic (n) does.
    `unnamed_topics` are the places of topics whose name is not known, and whose id stands for it
    (`AssignedPartitions.named_in`).

    `was_observed`: the snapshot is of a past moment, around which the job was at work (None: it is the
    newest). No other snapshot of this process has the same `number`.
    """

    progress: Progress
    groups: Groups
    offsets: Offsets
    topics: Topics
    alerts: pa.Table
    undelivered: Mapping[tuple[str, str], int]
    committing: Index
    is_assigned: Mask
    are_present: Mask
    present_topics: Mask
    unnamed_topics: frozenset[int]
    end_offsets: Index
    was_observed: bool | None = None
    number: int = field(default_factory=count().__next__, init=False)

    @classmethod
    def none(cls) -> Self:
        """Return the snapshot before the first read: nothing is known, and every group is loading."""
        nothing = fixed(np.empty(0, np.int64))
        return cls(
            progress=Progress(),
            groups=Groups.none(),
            offsets=Offsets.none(),
            topics=Topics.none(),
            alerts=no_rows(ALERT_LIST),
            undelivered={},
            committing=nothing,
            is_assigned=fixed(np.empty(0, np.bool_)),
            are_present=fixed(np.empty(0, np.bool_)),
            present_topics=fixed(np.empty(0, np.bool_)),
            unnamed_topics=frozenset(),
            end_offsets=nothing,
        )

    # --- one group -------------------------------------------------------------------------------------

    def offsets_of(self, group: str) -> OffsetColumns:
        """Return the committed offsets of a group, sorted by topic and partition; empty if there is no such
        group. Their topics and partitions are `topics.topic[place]` and `topics.partition[place]`."""
        place = self.groups.place(group)
        return OffsetColumns.none() if place is None else self.offsets.of(place)

    def row_of(self, group: str) -> Mapping[str, Any] | None:
        """Return the description of a group (see `rows_of`); None: no such group."""
        return next(self.rows_of([group]))

    def rows_of(self, groups: Sequence[str]) -> Iterator[Mapping[str, Any] | None]:
        """Yield the descriptions of n groups in this order (columns `groups.DESCRIBED` as plain values);
        None: no such group."""
        places = [self.groups.place(group) for group in groups]
        known = [place if place is not None and self.groups.is_described[place] else NONE for place in places]
        found = self.groups.described(np.array([place for place in known if place != NONE], np.int64))
        return (None if place == NONE else next(found) for place in known)

    def partition_of(self, group: str) -> int | None:
        """Return the offsets partition of a group, existing or not; None: unknown, as in a copy of Kafka's
        topic, or until all partitions have answered."""
        place = self.groups.place(group)
        held = NONE if place is None else int(self.groups.source_partitions[place])
        if held != NONE:
            return held
        if self._partition_count:
            return offsets_partition(group, self._partition_count)
        return 0 if all_partitions(self.progress).keys() == {0} else None

    @cached_property
    def _partition_count(self) -> int:
        return partition_count(self.progress)

    def is_among(self, group: str, partitions: frozenset[int]) -> bool:
        """Return whether a group is, or may be, in one of some offsets partitions."""
        partition = self.partition_of(group)
        return partition is None or partition in partitions

    # --- all groups ------------------------------------------------------------------------------------

    @cached_property
    def loading(self) -> frozenset[int]:
        """The offsets partitions not yet read to their end, including unknown ones with a number below the
        highest known."""
        return loading_in(self.progress)

    @cached_property
    def _read_until(self) -> int:
        """The time (ms) up to which all offsets partitions were read: while it is recent enough, all are
        complete."""
        return Completeness(progress=self.progress, moment=self.progress.heartbeat).read_until()

    def outdated(self, now: int, within_ms: int) -> frozenset[int]:
        """Return the offsets partitions that are incomplete at a moment (ms): see `Completeness.outdated`."""
        if not self.loading and now - self._read_until <= within_ms:  # the common case, for each response
            return frozenset()
        return self.completeness(now, within_ms).outdated

    @property
    def is_whole(self) -> bool:
        """Whether every offsets partition was read to its end, so that what is not here does not exist."""
        return bool(self.progress.partitions) and not self.loading

    def listed(self) -> Mask:
        """Return whether each group (n) is to be listed: it has a row in `groups`, and its offsets partition
        was read."""
        return self.groups.is_described & self.are_loaded(self.groups.source_partitions)

    def are_loaded(self, source_partitions: Index | Int32) -> Mask:
        """Return whether each of n offsets partitions was read to its end."""
        if not self.loading:
            return np.ones(len(source_partitions), np.bool_)
        loaded: Mask = ~np.isin(source_partitions, np.array(sorted(self.loading), np.int64))
        return loaded

    # --- topics ----------------------------------------------------------------------------------------

    def end_offset(self, topic: str, partition: int) -> int | None:
        """Return the log end offset of a topic partition (see `end_offsets`); None: unknown."""
        place = self.topics.place(topic, partition)
        end = NONE if place is None else int(self.end_offsets[place])
        return None if end == NONE else end

    def ends_at(self, start: int, stop: int, now: int) -> Index:
        """Return the `end_offsets` of the places from `start` to `stop` at a moment (ms); `NONE` where the
        sample is too old, as for lag."""
        is_new = now - self.topics.ends.sampled_at[start:stop] <= MAX_SAMPLE_AGE_MS
        return np.where(is_new, self.end_offsets[start:stop], NONE)

    def partition_counts(self) -> Index:
        """Return the least number of partitions of each topic: one more than the highest with a committed
        offset or a known log end; 0 without any."""
        counts = np.zeros(len(self.topics), np.int64)
        is_there = (self.committing > 0) | (self.topics.ends.log_end != NONE)
        np.maximum.at(counts, self.topics.topic[is_there], self.topics.partition[is_there] + 1)
        return counts

    @cached_property
    def has_topic_ids(self) -> bool:
        """Whether samples gave the id of every topic with a committed offset, or reported it deleted."""
        ends = self.topics.ends
        is_unknown = (ends.topic_id == NONE) & (ends.id_sampled_at == NONE)
        return not (is_unknown[self.topics.topic] & (self.committing > 0)).any()

    # --- completeness ----------------------------------------------------------------------------------

    def age_ms(self, now: int) -> int:
        """Return the age of the job's last commit or heartbeat at a moment (ms)."""
        return now - self.progress.heartbeat

    def completeness(self, now: int, within_ms: int) -> Completeness:
        """Return the completeness of the snapshot at a moment (ms), with the tolerance `within_ms`."""
        return Completeness(
            progress=self.progress, moment=now, within_ms=within_ms, was_observed=self.was_observed
        )

    # --- the next one ----------------------------------------------------------------------------------

    def with_changes(self, changes: Changes, progress: Progress) -> "MemorySnapshot":
        """Return the snapshot after changes of offsets and groups, as of `progress`."""
        topics, moved = self.topics.with_named(*(named := changes.named_by_offsets()))
        names, moved_groups = self.groups.names.changed(changes.group_names)
        places = topics.places_of(named[0].places_in(topics.names), named[1])
        ids = named[2].places_in(topics.ids)
        offsets = self.offsets.with_moved(moved).with_groups(moved_groups, len(names))
        offsets = offsets.with_changes(changes.of_offsets(names, places, ids))
        groups = self.groups.with_names(names, moved_groups).with_changes(changes.of_groups(names))
        is_there = groups.is_described | (offsets.counts > 0)
        kept, moved_groups = names.changed(_NO_NAMES, is_there)
        return replace(
            self,
            progress=progress,
            groups=groups.with_names(kept, moved_groups),
            offsets=offsets.with_groups(moved_groups, len(kept)),
            topics=topics,
        )._counted()

    def with_topics(self, topics: Topics, moved: Moved) -> "MemorySnapshot":
        """Return the snapshot with newer topics, whose places have moved."""
        return replace(self, topics=topics, offsets=self.offsets.with_moved(moved))._counted()

    def without_ends(self) -> "MemorySnapshot":
        """Return the snapshot without samples of log ends; offsets and groups remain."""
        return replace(self, topics=self.topics.without_ends())._counted()

    def _counted(self) -> "MemorySnapshot":
        """Compute what depends on offsets, groups and log ends together."""
        assigned = self.groups.assignments.distinct
        topics, moved = assigned.entered(self.topics)
        offsets = self.offsets if moved is None else self.offsets.with_moved(moved)
        columns, ends = offsets.columns, topics.ends
        committing = np.zeros(len(ends.log_end), np.int64)
        end_offsets = ends.log_end.copy()
        reached, found = np.where(end_offsets == NONE, _MOST, end_offsets), [np.empty(0, np.int64)]
        for start in range(0, len(offsets), _AT_A_TIME):
            rows = slice(start, start + _AT_A_TIME)
            committing += np.bincount(columns.place[rows], minlength=len(committing))
            is_beyond = columns.committed_offset[rows] > reached[columns.place[rows]]
            found.append(start + np.flatnonzero(is_beyond))
        beyond = np.concatenate(found)
        own, sampled = columns.topic_id[beyond], ends.sample_id[columns.place[beyond]]
        is_of_log = may_be_same_id(own, sampled)
        is_newer = columns.written_at[beyond] > ends.sampled_at[columns.place[beyond]]
        beyond = beyond[is_of_log & is_newer]
        np.maximum.at(end_offsets, columns.place[beyond], columns.committed_offset[beyond])
        is_assigned = np.zeros(len(committing), np.bool_)
        is_assigned[assigned.places_in(topics)] = True
        are_present = (committing > 0) | (ends.log_end >= 0) | is_assigned
        present_topics = np.zeros(len(topics), np.bool_)
        present_topics[topics.topic[are_present]] = True
        return replace(
            self,
            topics=topics,
            offsets=offsets,
            committing=fixed(committing),
            is_assigned=fixed(is_assigned),
            are_present=fixed(are_present),
            present_topics=fixed(present_topics),
            unnamed_topics=assigned.unnamed_in(topics),
            end_offsets=fixed(end_offsets),
        )
