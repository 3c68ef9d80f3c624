"""What questions to the tables are answered with: small values shaped as Kafka's own, and rows in bulk."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streaming.queries.completeness import AsOf

if TYPE_CHECKING:
    import pandas as pd

_LISTED: Final = ["group", "type", "state", "protocol_type"]

TYPES: Final = ("classic", "consumer", "share", "streams")
"""The types of groups, as `GroupType` of Kafka 4.3 writes them."""

LOGGED_STATES: Final = ("Empty", "Stable", "Assigning", "Reconciling", "NotReady")
"""The states of groups that the log shows."""

STATES: Final = (*LOGGED_STATES, "PreparingRebalance", "CompletingRebalance", "Dead")
"""All states of groups (`GroupState` of Kafka 4.3). Brokers do not log the last three."""


@dataclass(frozen=True)
class PartitionOffset:
    """A committed offset as OffsetFetch gives it: offset -1, epoch -1 and no metadata where there is none.

    `unreadable_source_offset` is that of the first newer commit that could not be read (None: there is none).
    """

    topic: str
    partition: int
    committed_offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    unreadable_source_offset: int | None = None


@dataclass(frozen=True)
class GroupOffsets:
    """What one group has committed, or the name of Kafka's error instead."""

    group: str | None
    error: str | None = None
    partitions: tuple[PartitionOffset, ...] = ()


@dataclass(frozen=True)
class Assigned:
    """Partitions of a topic, or tasks of a subtopology (streams groups), that a member has or is to have.

    `topic` None: neither the log nor the samples of log ends tell the name of `topic_id`.
    """

    topic: str | None = None
    topic_id: str | None = None
    subtopology: str | None = None
    task_type: str | None = None
    partitions: tuple[int, ...] = ()


@dataclass(frozen=True)
class Member:
    """A member of a group, as far as the log tells; None: not known, or not of this type of groups."""

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
        """Read a member as the tables hold it (schema `MEMBER`)."""
        topics = row["subscribed_topics"]
        lists = {name: _assigned(row[name]) for name in ("assignment", "target_assignment")}
        return cls(**{**row, **lists, "subscribed_topics": None if topics is None else tuple(topics)})


def _assigned(rows: Sequence[Mapping[str, Any]] | None) -> tuple[Assigned, ...] | None:
    if rows is None:
        return None
    return tuple(Assigned(**{**row, "partitions": tuple(row["partitions"])}) for row in rows)


@dataclass(frozen=True)
class ListedGroup:
    """A group as ListGroups shows it; `protocol_type` is empty for simple groups."""

    group: str
    type: str
    state: str
    protocol_type: str


@dataclass(frozen=True)
class DescribedGroup:
    """A group as far as the log shows it, or the name of Kafka's error and state Dead.

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
    """Rows in bulk, what they reflect, and the groups that got an error (Kafka's name for it) instead."""

    rows: pa.Table
    as_of: AsOf
    errors: Mapping[str | None, str] = field(default_factory=dict)

    def to_arrow(self) -> pa.Table:
        """Return the rows."""
        return self.rows

    def to_pandas(self) -> "pd.DataFrame":
        """Return the rows as a pandas frame."""
        frame: pd.DataFrame = self.rows.to_pandas()
        return frame


@dataclass(frozen=True)
class FetchedOffsets(Answer):
    """What OffsetFetch answers; rows have schema `OFFSETS`, without the partitions that have no commit."""

    groups: Mapping[str | None, GroupOffsets] = field(default_factory=dict)


@dataclass(frozen=True)
class History(Answer):
    """How positions moved; rows have schema `HISTORY`.

    `whole_since`: the moment (ms) before which only the steps of removed offsets are kept, if any were asked
    for; None: all that were asked for are there. `starts_at`: when history starts (ms), if the moment since
    which steps were asked for is before it; None: it is not.
    """

    whole_since: int | None = None
    starts_at: int | None = None


@dataclass(frozen=True)
class ListedGroups(Answer):
    """What ListGroups answers; rows have schema `GROUPS`.

    `error`: groups in offsets partitions that are still being read are missing.
    """

    error: str | None = None

    @property
    def groups(self) -> list[ListedGroup]:
        """The groups, sorted by name."""
        return [ListedGroup(**row) for row in self.rows.select(_LISTED).to_pylist()]


@dataclass(frozen=True)
class DescribedGroups(Answer):
    """What the Describe requests of all group types answer; rows have schema `GROUPS`."""

    groups: Mapping[str | None, DescribedGroup] = field(default_factory=dict)
