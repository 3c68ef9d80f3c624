"""The types of answers: small values in the shape of Kafka's responses, and rows in bulk."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streaming.model.errors import MissingLibraryError
from streaming.queries.as_of import AsOf

if TYPE_CHECKING:
    import pandas as pd

_LISTED: Final = ["group", "type", "state", "protocol_type"]

TYPES: Final = ("classic", "consumer", "share", "streams")
"""The types of groups, as in `GroupType` of Kafka 4.3."""

LOGGED_STATES: Final = ("Empty", "Stable", "Assigning", "Reconciling", "NotReady")
"""The states of groups that appear in the log."""

STATES: Final = (*LOGGED_STATES, "PreparingRebalance", "CompletingRebalance", "Dead")
"""All states of groups (`GroupState` of Kafka 4.3). Brokers do not log the last three."""


@dataclass(frozen=True)
class PartitionOffset:
    """A committed offset as in OffsetFetch: offset -1, epoch -1 and empty metadata if there is none.

    `unreadable_source_offset` is the source offset of the first newer commit that could not be read (None:
    none).
    """

    topic: str
    partition: int
    committed_offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    unreadable_source_offset: int | None = None


@dataclass(frozen=True)
class GroupOffsets:
    """The committed offsets of one group, or the name of Kafka's error."""

    group: str | None
    error: str | None = None
    partitions: tuple[PartitionOffset, ...] = ()


@dataclass(frozen=True)
class Assigned:
    """Assigned (or target) partitions of a topic, or tasks of a subtopology (streams groups), of a member.

    `topic` None: neither the log nor the samples of log ends contain the name of `topic_id`.
    """

    topic: str | None = None
    topic_id: str | None = None
    subtopology: str | None = None
    task_type: str | None = None
    partitions: tuple[int, ...] = ()


@dataclass(frozen=True)
class Member:
    """A member of a group; None: not in the log, or not part of this type of group."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rack_id: str | None = None
    member_epoch: int | None = None
    is_classic: bool | None = None
    subscribed_topics: tuple[str, ...] | None = None
    subscribed_regex: str | None = None
    assignment: tuple[Assigned, ...] | None = None
    target_assignment: tuple[Assigned, ...] | None = None
    subscription_bytes: bytes | None = None
    assignment_bytes: bytes | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Member":
        topics = row["subscribed_topics"]
        lists = {name: _assigned(row[name]) for name in ("assignment", "target_assignment")}
        return cls(**{**row, **lists, "subscribed_topics": None if topics is None else tuple(topics)})


def _assigned(rows: Sequence[Mapping[str, Any]] | None) -> tuple[Assigned, ...] | None:
    if rows is None:
        return None
    return tuple(Assigned(**{**row, "partitions": tuple(row["partitions"])}) for row in rows)


@dataclass(frozen=True)
class ListedGroup:
    """A group as in ListGroups; `protocol_type` is empty for simple groups."""

    group: str
    type: str
    state: str
    protocol_type: str


@dataclass(frozen=True)
class DescribedGroup:
    """A group as far as the log has it, or the name of Kafka's error and state Dead.

    `subscribed_topics` None: unknown; `generation_or_epoch` None: none (simple groups).
    """

    group: str | None
    error: str | None = None
    type: str | None = None
    state: str = "Dead"
    protocol_type: str = ""
    protocol: str | None = None
    generation_or_epoch: int | None = None
    members: tuple[Member, ...] = ()
    subscribed_topics: tuple[str, ...] | None = None
    assignment_epoch: int | None = None


@dataclass(frozen=True)
class Answer:
    """Rows in bulk, the state of the tables that they reflect, and the groups with an error (Kafka's name for
    it)."""

    rows: pa.Table
    as_of: AsOf
    errors: Mapping[str | None, str] = field(default_factory=dict)

    def to_arrow(self) -> pa.Table:
        return self.rows

    def to_pandas(self) -> "pd.DataFrame":
        """Return the rows as a data frame. Raises `MissingLibraryError` without pandas."""
        try:
            frame: pd.DataFrame = self.rows.to_pandas()
        except ModuleNotFoundError as error:
            raise MissingLibraryError("to_pandas", error.name) from error
        return frame


@dataclass(frozen=True)
class FetchedOffsets(Answer):
    """The answer to OffsetFetch; rows have schema `OFFSETS`, without partitions that have no commit."""

    groups: Mapping[str | None, GroupOffsets] = field(default_factory=dict)


@dataclass(frozen=True)
class History(Answer):
    """Steps of committed offsets; rows have schema `HISTORY`.

    `whole_since`: the moment (ms) before which only steps of removed offsets are kept, if the request reaches
    back that far; None: the steps are complete. `starts_at`: the start of the history (ms), if it is after
    the requested start; None: it is not.
    """

    whole_since: int | None = None
    starts_at: int | None = None


@dataclass(frozen=True)
class JudgedGroups(Answer):
    """The health of groups. `positions` are all judged positions (columns group, topic, partition): a row
    has only the position that determines the status."""

    positions: pa.Table = field(kw_only=True)


@dataclass(frozen=True)
class ListedGroups(Answer):
    """The answer to ListGroups; rows have schema `GROUPS`.

    `error`: groups are missing whose offsets partition is still loading.
    """

    error: str | None = None

    @property
    def groups(self) -> list[ListedGroup]:
        """The groups, sorted by name."""
        return [ListedGroup(**row) for row in self.rows.select(_LISTED).to_pylist()]


@dataclass(frozen=True)
class DescribedGroups(Answer):
    """The answer to the Describe requests of all group types; rows have schema `GROUPS`."""

    groups: Mapping[str | None, DescribedGroup] = field(default_factory=dict)
