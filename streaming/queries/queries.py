"""Kafka's questions about groups and offsets, answered from the tables: no JVM, and while the job runs."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from streaming.common.times import to_ms
from streaming.queries.answers import Answer, DescribedGroups, FetchedOffsets, ListedGroups
from streaming.queries.bound.queries import SnapshotQueries
from streaming.queries.completeness import AsOf
from streaming.queries.names import KnownNames, TopicPartitions
from streaming.tables.snapshot import Among
from streaming.tables.tables import Tables

T = TypeVar("T")


@dataclass(frozen=True)
class OffsetQueries:
    """Kafka's questions about groups and their offsets, answered from the tables, without a broker.

    Each is asked of a snapshot of its own; ask `SnapshotQueries` what belongs together.

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
        asked = {group: None if own is None else list(own) for group, own in groups.items()}
        return self._ask(as_of, lambda at: at.fetch_offsets(asked))

    def list_offsets(
        self,
        groups: Collection[str] | None = None,
        topics: Sequence[TopicPartitions] = (),
        as_of: datetime | None = None,
    ) -> Answer:
        """Return the committed offsets (schema `OFFSETS`) of the named groups or of all, sorted by key.

        Groups whose offsets partition is still being read are left out, named ones with an error.
        """
        asked = _listed(groups)
        return self._ask(as_of, lambda at: at.list_offsets(asked, topics))

    def list_groups(
        self, states: Iterable[str] = (), types: Iterable[str] = (), as_of: datetime | None = None
    ) -> ListedGroups:
        """Answer ListGroups (KIP-518, KIP-848): groups in one of the states and of one of the types.

        Without states or types all are wanted. States are compared without case and blanks around them, types
        without case; an unknown one matches nothing. `NotReady` and `not_ready` both match (a broker knows
        only the second).
        """
        wanted = list(states), list(types)
        return self._ask(as_of, lambda at: at.list_groups(*wanted))

    def describe_groups(self, groups: Iterable[str | None], as_of: datetime | None = None) -> DescribedGroups:
        """Describe groups of any type; one that is not there is `GROUP_ID_NOT_FOUND` and Dead (KIP-1043).

        Topics of assignments that the log has only the ids of have the names that samples of log ends know.
        """
        asked = list(groups)
        return self._ask(as_of, lambda at: at.describe_groups(asked))

    def list_members(self, groups: Collection[str] | None = None, as_of: datetime | None = None) -> Answer:
        """Return the members of the named groups or of all (schema `MEMBERS`), sorted by group and id."""
        asked = _listed(groups)
        return self._ask(as_of, lambda at: at.list_members(asked))

    def names(
        self, groups: Collection[str] | None = None, as_of: datetime | None = None, *, among: Among = "live"
    ) -> KnownNames:
        """Return the names that are there, of the named groups or of all: groups, and topics with partitions.

        That costs about as much as all offsets.
        """
        asked = _listed(groups)
        return self._ask(as_of, lambda at: at.names(asked, among=among))

    def how_complete(self, as_of: datetime | None = None) -> AsOf:
        """Return what an answer about all groups would reflect."""
        return self._ask(as_of, lambda at: at.how_complete())

    def _ask(self, as_of: datetime | None, question: Callable[[SnapshotQueries], T]) -> T:
        return self.tables.ask(lambda at: question(SnapshotQueries(at)), as_of=to_ms(as_of))


def _listed(groups: Collection[str] | None) -> list[str] | None:
    return None if groups is None else list(groups)
