"""Kafka's requests about groups and offsets, answered from the tables: without a JVM, also while the job
runs."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar, overload

from streaming.common.times import to_ms
from streaming.common.topics import TopicPartitions
from streaming.model.errors import MisuseError
from streaming.queries.answers import Answer, DescribedGroups, FetchedOffsets, ListedGroups
from streaming.queries.as_of import AsOf
from streaming.queries.bound.offsets import SnapshotQueries
from streaming.queries.names import KnownNames
from streaming.tables.snapshot import Among
from streaming.tables.tables import Tables

T = TypeVar("T")
N = TypeVar("N", bound=str | None)


@dataclass(frozen=True)
class OffsetQueries:
    """Kafka's requests about groups and their offsets, answered from the tables, without a broker.

    Each method reads a snapshot of its own; `SnapshotQueries` answers several requests from one.

    All take `as_of`, a past moment (a datetime with time zone); without it the answer is as of the newest
    batch. Raises `OffsetlakeError` if there are no tables, or for a moment before the kept history, and
    `MisuseError` for a moment in the future.

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
        """Answer OffsetFetch (KIP-709): for each group the requested partitions, or all (None, KIP-88).

        An unknown partition or group is no error. The error of one group is `INVALID_GROUP_ID` (None as a
        group) or `COORDINATOR_LOAD_IN_PROGRESS`, and does not affect other groups.
        """
        asked = {group: None if own is None else list(own) for group, own in groups.items()}
        return self._ask(as_of, lambda at: at.fetch_offsets(asked))

    def list_offsets(
        self,
        groups: Collection[str] | None = None,
        topics: Sequence[TopicPartitions] = (),
        as_of: datetime | None = None,
    ) -> Answer:
        """Return the committed offsets (schema `OFFSETS`) of groups (None: all), sorted by key.

        Groups whose offsets partition is still loading are left out, named ones with an error.
        """
        asked = listed(groups)
        return self._ask(as_of, lambda at: at.list_offsets(asked, topics))

    def list_groups(
        self, states: Iterable[str] = (), types: Iterable[str] = (), as_of: datetime | None = None
    ) -> ListedGroups:
        """Answer ListGroups (KIP-518, KIP-848): groups in one of the states and of one of the types.

        No states or types means all. States are compared without case and surrounding blanks, types without
        case; an unknown one matches nothing. `NotReady` and `not_ready` both match (a broker accepts only the
        second).
        """
        wanted = listed(states, "states"), listed(types, "types")
        return self._ask(as_of, lambda at: at.list_groups(*wanted))

    def describe_groups(self, groups: Iterable[str | None], as_of: datetime | None = None) -> DescribedGroups:
        """Describe groups of any type; an unknown one is `GROUP_ID_NOT_FOUND` and Dead (KIP-1043).

        For topics of assignments that are only ids in the log, the names come from samples of log ends.
        """
        asked = listed(groups)
        return self._ask(as_of, lambda at: at.describe_groups(asked))

    def list_members(self, groups: Collection[str] | None = None, as_of: datetime | None = None) -> Answer:
        """Return the members of groups (None: all; schema `MEMBERS`), sorted by group and member id."""
        asked = listed(groups)
        return self._ask(as_of, lambda at: at.list_members(asked))

    def names(
        self, groups: Collection[str] | None = None, as_of: datetime | None = None, *, among: Among = "live"
    ) -> KnownNames:
        """Return the known names of groups (None: all): groups, and topics with their partitions.

        Costs about as much as reading all offsets.
        """
        asked = listed(groups)
        return self._ask(as_of, lambda at: at.names(asked, among=among))

    def how_complete(self, as_of: datetime | None = None) -> AsOf:
        """Return the state of the tables that an answer about all groups would reflect."""
        return self._ask(as_of, lambda at: at.how_complete())

    def _ask(self, as_of: datetime | None, question: Callable[[SnapshotQueries], T]) -> T:
        return self.tables.ask(lambda at: question(SnapshotQueries(at)), as_of=to_ms(as_of))


@overload
def listed(names: None, name: str = "groups") -> None: ...
@overload
def listed(names: Iterable[N], name: str = "groups") -> list[N]: ...
@overload
def listed(names: Iterable[N] | None, name: str = "groups") -> list[N] | None: ...
def listed(names: Iterable[N] | None, name: str = "groups") -> list[N] | None:
    """Return names as a list; raises `MisuseError` for a text, whose characters would be taken as names."""
    if isinstance(names, str):
        raise MisuseError(f"{name}: expected a list of texts, found the text {names!r}. Write [{names!r}].")
    return None if names is None else list(names)
