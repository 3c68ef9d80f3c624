"""Kafka's questions about groups and offsets, answered from the tables: no JVM, and while the job runs."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import to_numbers
from streaming.common.keys import numbered
from streaming.common.pieces import take
from streaming.common.times import now_ms, to_ms
from streaming.model.progress import Progress
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
from streaming.queries.completeness import LOAD_IN_PROGRESS, AsOf
from streaming.queries.members import member_rows, owned_partitions, with_owners, with_topic_names
from streaming.queries.names import Names, TopicPartitions, of_topics
from streaming.tables.progress_rows import Gap
from streaming.tables.snapshot import Among, Snapshot
from streaming.tables.tables import Tables

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
    """One partition of a topic."""

    topic: str
    partition: int


@dataclass(frozen=True)
class OffsetQueries:
    """Kafka's questions about groups and their offsets, answered from the tables, without a broker.

    Every question takes `as_of`, a past moment (a datetime with time zone); without it the answer is as of
    the newest batch. Raises `OffsetlakeError`: no tables, or a moment before the history that is kept.

        >>> queries = OffsetQueries(Tables("warehouse"))
        >>> answer = queries.fetch_offsets({"billing": None})  # doctest: +SKIP
        >>> answer.groups["billing"].partitions[0].committed_offset  # doctest: +SKIP
        431
    """

    tables: Tables

    def fetch_offsets(
        self,
        groups: Mapping[str | None, Iterable[tuple[str, int]] | None],
        as_of: datetime | None = None,
    ) -> FetchedOffsets:
        """Answer OffsetFetch (KIP-709): for each group, the partitions asked for, or all (None, KIP-88).

        A partition or a group that is not there is no error. The error of one group is `INVALID_GROUP_ID`
        (None as a group) or `COORDINATOR_LOAD_IN_PROGRESS`, and never spoils the answer of another.
        """
        asked = {
            group: None if own is None else [TopicPartition(*key) for key in own]
            for group, own in groups.items()
        }
        names = [group for group in asked if group is not None]
        answer = self.list_offsets(names, as_of=as_of)
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
        self,
        groups: Collection[str] | None = None,
        topics: Sequence[TopicPartitions] = (),
        as_of: datetime | None = None,
    ) -> Answer:
        """Return the committed offsets (schema `OFFSETS`) of the named groups or of all, sorted by key.

        Groups whose offsets partition is still being read are left out, named ones with an error.
        """
        rows, about = self._ask("offsets", groups, as_of)
        rows = of_topics(rows, topics)
        return Answer(sorted_by(rows, "group", "topic", "partition"), about, about.loading_of(groups))

    def list_groups(
        self, states: Iterable[str] = (), types: Iterable[str] = (), as_of: datetime | None = None
    ) -> ListedGroups:
        """Answer ListGroups (KIP-518, KIP-848): groups in one of the states and of one of the types.

        Without states or types all are wanted. States are compared without case and blanks around them, types
        without case; an unknown one matches nothing. `NotReady` and `not_ready` both match (a broker knows
        only the second).
        """
        rows, about = self._ask("groups", None, as_of)
        wanted_states = {comparable_state(state) for state in states}
        wanted_types = {kind.lower() for kind in types}
        if wanted_states:
            rows = rows.filter(_is_in(rows["state"], wanted_states))
        if wanted_types:
            rows = rows.filter(_is_in(rows["type"], wanted_types))
        error = LOAD_IN_PROGRESS if about.is_loading else None
        return ListedGroups(sorted_by(rows, "group"), about, error=error)

    def describe_groups(self, groups: Iterable[str | None], as_of: datetime | None = None) -> DescribedGroups:
        """Describe groups of any type; one that is not there is `GROUP_ID_NOT_FOUND` and Dead (KIP-1043).

        Topics of assignments that the log has only the ids of have the names that samples of log ends know.
        """
        asked = list(dict.fromkeys(groups))
        names = [group for group in asked if group is not None]
        rows, about = self._ask("groups", names, as_of, with_topic_names)
        loading = about.loading_of(names)
        found = {row["group"]: _described(row) for row in rows.select(_DESCRIBED).to_pylist()}

        def describe(group: str | None) -> DescribedGroup:
            error = INVALID_GROUP_ID if group is None else loading.get(group, GROUP_ID_NOT_FOUND)
            return found.get(group, DescribedGroup(group, error))

        described = {group: describe(group) for group in asked}
        errors = {group: one.error for group, one in described.items() if one.error}
        return DescribedGroups(sorted_by(rows, "group"), about, errors, described)

    def list_members(self, groups: Collection[str] | None = None, as_of: datetime | None = None) -> Answer:
        """Return the members of the named groups or of all (schema `MEMBERS`), sorted by group and id."""
        rows, about = self._ask("groups", groups, as_of, with_topic_names)
        return Answer(sorted_by(member_rows(rows), "group", "consumer_id"), about, about.loading_of(groups))

    def with_owners(self, offsets: pa.Table, as_of: datetime | None = None) -> pa.Table:
        """Append to n committed offsets which member has the partition (columns `OWNER`)."""
        groups, moment = pc.unique(offsets["group"]).to_pylist(), to_ms(as_of)

        def question(at: Snapshot) -> pa.Table:
            return owned_partitions(at.groups(groups), at, now_ms() if moment is None else moment)

        return with_owners(offsets, self.tables.ask(question, as_of=moment, bases=["groups"]))

    def names(
        self, groups: Collection[str] | None = None, as_of: datetime | None = None, *, among: Among = "live"
    ) -> Names:
        """Return the names that are there, of the named groups or of all: groups, and topics with partitions.

        That costs about as much as all offsets.
        """
        asked = None if groups is None else list(groups)
        return Names.of(self.tables.ask(lambda at: at.keys(asked, among=among), as_of=to_ms(as_of)))

    def appears_after(self, group: str, moment: datetime) -> int | None:
        """Return when a group, or an offset of it, is first there (ms) after a moment; None: not since."""
        after = to_ms(moment)
        return self.tables.ask(lambda at: at.first_set(group, after=after), bases=[])

    def how_complete(self, as_of: datetime | None = None) -> AsOf:
        """Return what an answer about all groups would reflect."""
        moment = to_ms(as_of)
        progress, gap = self.tables.ask(lambda at: (at.progress, at.gap), as_of=moment, bases=[])
        return AsOf.of(None, progress, gap, moment, within_ms=self.tables.complete_within_ms)

    def _ask(
        self,
        name: Literal["offsets", "groups"],
        groups: Collection[str] | None,
        as_of: datetime | None,
        with_more: Callable[[pa.Table, Snapshot, int], pa.Table] = lambda rows, _at, _moment: rows,
    ) -> tuple[pa.Table, AsOf]:
        """Return the live rows of groups whose offsets partition has been read, and what they reflect.

        `with_more` gets the rows, where they are from, and of which moment (ms) they are.
        """
        moment = to_ms(as_of)
        names = None if groups is None else list(groups)

        def question(at: Snapshot) -> tuple[pa.Table, Progress, Gap | None]:
            rows = at.offsets(names) if name == "offsets" else at.groups(names)
            return with_more(rows, at, now_ms() if moment is None else moment), at.progress, at.gap

        rows, progress, gap = self.tables.ask(question, as_of=moment, bases=[name])
        about = AsOf.of(names, progress, gap, moment, within_ms=self.tables.complete_within_ms)
        return about.of_loaded(rows), about


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
    """Write a group state as states are compared: without case and blanks around it, and `not_ready` too.

    >>> comparable_state(" not_ready")
    'notready'
    """
    return text.strip().lower().replace("not_ready", "notready")


def _is_in(column: pa.ChunkedArray, lower_case: set[str]) -> pa.ChunkedArray:
    return pc.is_in(pc.utf8_lower(column), value_set=pa.array(sorted(lower_case), pa.string()))


def sorted_by(rows: pa.Table, *columns: str) -> pa.Table:
    """Sort by columns (`Table.sort_by` cannot carry nested ones, and compares texts instead of ranks)."""
    if not len(rows):
        return rows
    ranks = [_ranks(rows[column]) for column in columns]
    return take(rows, np.lexsort(ranks[::-1]))


def _ranks(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Return numbers (n int64) that are in the order of the values."""
    if not pa.types.is_string(column.type):
        return to_numbers(column.cast(pa.int64()))
    codes, texts = numbered(column)
    ranks: npt.NDArray[np.int64] = np.empty(len(texts), np.int64)
    ranks[to_numbers(pc.sort_indices(texts).cast(pa.int64()))] = np.arange(len(ranks))
    ranked: npt.NDArray[np.int64] = ranks[codes]
    return ranked
