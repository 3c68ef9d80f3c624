"""Kafka's requests about groups and offsets, answered from one snapshot."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import to_numbers
from streaming.common.keys import numbered
from streaming.common.pieces import take
from streaming.common.topics import TopicPartitions
from streaming.queries.answers import (
    Answer,
    DescribedGroup,
    DescribedGroups,
    FetchedOffsets,
    GroupOffsets,
    ListedGroups,
    Member,
    PartitionOffset,
)
from streaming.queries.as_of import LOAD_IN_PROGRESS, AsOf
from streaming.queries.members import member_rows, with_topic_names
from streaming.queries.names import KnownNames
from streaming.tables.snapshot import Among, Snapshot

INVALID_GROUP_ID: Final = "INVALID_GROUP_ID"
GROUP_ID_NOT_FOUND: Final = "GROUP_ID_NOT_FOUND"

_FETCHED: Final = [
    "group",
    "topic",
    "partition",
    "committed_offset",
    "leader_epoch",
    "metadata",
    "unreadable_source_offset",
]
_DESCRIBED: Final = [
    "group",
    "type",
    "state",
    "protocol_type",
    "protocol",
    "generation_or_epoch",
    "members",
    "subscribed_topics",
    "assignment_epoch",
]


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


@dataclass(frozen=True)
class SnapshotQueries:
    """Kafka's requests about groups and their offsets, answered from one snapshot.

    All parts of one output come from one of these. `OffsetQueries` documents the answers.
    """

    at: Snapshot

    def fetch_offsets(self, groups: Mapping[str | None, Sequence[tuple[str, int]] | None]) -> FetchedOffsets:
        asked = {
            group: None if own is None else [TopicPartition(*key) for key in own]
            for group, own in groups.items()
        }
        names = [group for group in asked if group is not None]
        answer = self.list_offsets(names)
        errors = {group: INVALID_GROUP_ID if group is None else answer.errors.get(group) for group in asked}
        held: dict[str, dict[TopicPartition, PartitionOffset]] = {name: {} for name in names}
        for row in answer.rows.select(_FETCHED).to_pylist():
            found = _partition_offset(row)
            held[row["group"]][TopicPartition(found.topic, found.partition)] = found
        rows = answer.rows.filter(pa.array(_is_asked(answer.rows, asked), pa.bool_()))
        return FetchedOffsets(
            rows,
            answer.as_of,
            {group: error for group, error in errors.items() if error},
            {
                group: GroupOffsets(group, error)
                if error
                else GroupOffsets(group, None, _chosen(held[str(group)], own))
                for (group, own), error in zip(asked.items(), errors.values(), strict=True)
            },
        )

    def list_offsets(
        self, groups: Sequence[str] | None = None, topics: Sequence[TopicPartitions] = ()
    ) -> Answer:
        about = self.how_complete(groups)
        rows = about.of_loaded(self.at.offsets(groups, topics))
        return Answer(sorted_by(rows, "group", "topic", "partition"), about, about.loading_of(groups))

    def list_groups(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> ListedGroups:
        rows, about = self._groups(None)
        wanted_states = {comparable_state(state) for state in states}
        wanted_types = {kind.lower() for kind in types}
        if wanted_states:
            rows = rows.filter(_is_in(rows["state"], wanted_states))
        if wanted_types:
            rows = rows.filter(_is_in(rows["type"], wanted_types))
        error = LOAD_IN_PROGRESS if about.is_loading else None
        return ListedGroups(sorted_by(rows, "group"), about, error=error)

    def describe_groups(self, groups: Sequence[str | None]) -> DescribedGroups:
        asked = list(dict.fromkeys(groups))
        names = [group for group in asked if group is not None]
        rows, about = self._groups(names)
        rows = with_topic_names(rows, self.at, about.moment)
        loading = about.loading_of(names)
        found = {row["group"]: _described(row) for row in rows.select(_DESCRIBED).to_pylist()}

        def describe(group: str | None) -> DescribedGroup:
            error = INVALID_GROUP_ID if group is None else loading.get(group, GROUP_ID_NOT_FOUND)
            return found.get(group, DescribedGroup(group, error))

        described = {group: describe(group) for group in asked}
        errors = {group: one.error for group, one in described.items() if one.error}
        return DescribedGroups(sorted_by(rows, "group"), about, errors, described)

    def list_members(self, groups: Sequence[str] | None = None) -> Answer:
        rows, about = self._groups(groups)
        rows = member_rows(with_topic_names(rows, self.at, about.moment))
        return Answer(sorted_by(rows, "group", "consumer_id"), about, about.loading_of(groups))

    def names(self, groups: Sequence[str] | None = None, *, among: Among = "live") -> KnownNames:
        return KnownNames.of(self.at.keys(groups, among=among))

    def appears(self, group: str) -> int | None:
        """Return when (ms) a group, or an offset of it, first appears after the moment; None: not since."""
        return self.at.first_set(group, after=self.at.moment)

    def how_complete(self, groups: Sequence[str] | None = None) -> AsOf:
        """Return the state of the tables that an answer about groups (None: all) reflects."""
        return AsOf.at(groups, self.at)

    def _groups(self, groups: Sequence[str] | None) -> tuple[pa.Table, AsOf]:
        """Return the live groups whose offsets partition is loaded, and the state of the tables that they
        reflect."""
        about = self.how_complete(groups)
        return about.of_loaded(self.at.groups(groups)), about


def _is_asked(rows: pa.Table, asked: Mapping[str | None, Sequence[TopicPartition] | None]) -> list[bool]:
    wanted = {group: None if own is None else set(own) for group, own in asked.items()}
    keys = zip(*(rows[name].to_pylist() for name in ("group", "topic", "partition")), strict=True)
    return [
        (own := wanted[group]) is None or TopicPartition(topic, number) in own
        for group, topic, number in keys
    ]


def _chosen(
    held: Mapping[TopicPartition, PartitionOffset], asked: Sequence[TopicPartition] | None
) -> tuple[PartitionOffset, ...]:
    if asked is None:
        return tuple(held.values())
    return tuple(held.get(key, PartitionOffset(*key)) for key in asked)


def _partition_offset(row: Mapping[str, Any]) -> PartitionOffset:
    def number(name: str) -> int:
        return -1 if row[name] is None else int(row[name])

    return PartitionOffset(
        row["topic"],
        row["partition"],
        number("committed_offset"),
        number("leader_epoch"),
        row["metadata"] or "",
        row["unreadable_source_offset"],
    )


def _described(row: Mapping[str, Any]) -> DescribedGroup:
    topics = row["subscribed_topics"]
    return DescribedGroup(
        row["group"],
        None,
        row["type"],
        row["state"],
        row["protocol_type"],
        row["protocol"],
        row["generation_or_epoch"],
        tuple(Member.of(member) for member in row["members"]),
        None if topics is None else tuple(topics),
        row["assignment_epoch"],
    )


def comparable_state(text: str) -> str:
    """Return a group state for comparisons: in lower case, without surrounding blanks, `not_ready` as
    `notready`.

    >>> comparable_state(" not_ready")
    'notready'
    """
    return text.strip().lower().replace("not_ready", "notready")


def _is_in(column: pa.ChunkedArray, lower_case: set[str]) -> pa.ChunkedArray:
    return pc.is_in(pc.utf8_lower(column), value_set=pa.array(sorted(lower_case), pa.string()))


def sorted_by(rows: pa.Table, *columns: str) -> pa.Table:
    """Sort by columns (`Table.sort_by` does not support nested columns, and compares texts instead of
    ranks)."""
    if not len(rows):
        return rows
    ranks = [_ranks(rows[column]) for column in columns]
    return take(rows, np.lexsort(ranks[::-1]))


def _ranks(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Return n int64 numbers in the order of the values."""
    if not pa.types.is_string(column.type):
        return to_numbers(column.cast(pa.int64()))
    codes, texts = numbered(column)
    ranks: npt.NDArray[np.int64] = np.empty(len(texts), np.int64)
    ranks[to_numbers(pc.sort_indices(texts).cast(pa.int64()))] = np.arange(len(ranks))
    ranked: npt.NDArray[np.int64] = ranks[codes]
    return ranked
