"""One group, from the snapshot in memory or from the tables."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from streaming.model.schemas import GROUPS
from streaming.queries.as_of import AsOf
from streaming.queries.members import member_rows
from streaming.serve.memory.snapshot import MemorySnapshot

_OF_MEMBERS: Final = pa.schema([GROUPS.field(name) for name in ("group", "members", "assignment_epoch")])


@dataclass(frozen=True, eq=False, kw_only=True)
class GroupFound:
    """A group at a moment: its positions (schema `POSITION_ROWS`), its row of `GROUPS` as Python values
    (None: there is none), and how complete both are.

    `lag_at` is the moment (ms) as of which its lag is (None: that of `about`), `appears` when the group
    appears later (ms; None: it does not).
    """

    group: str
    positions: pa.Table
    row: Mapping[str, Any] | None
    about: AsOf
    lag_at: int | None = None
    appears: int | None = None

    @property
    def members(self) -> pa.Table:
        """The members of the group (schema `MEMBERS`)."""
        held = [] if self.row is None else [{name: self.row[name] for name in _OF_MEMBERS.names}]
        return member_rows(pa.Table.from_pylist(held, _OF_MEMBERS))

    @property
    def subscribed(self) -> frozenset[str] | None:
        """The topics to which the members subscribe; None: unknown, as without members."""
        if self.row is None or not self.row["members"] or self.row["subscribed_topics"] is None:
            return None
        return frozenset(self.row["subscribed_topics"])

    def owners(self) -> dict[tuple[str, int], tuple[str, str]]:
        """Return the client id and host of the member that owns each topic partition."""
        members = () if self.row is None else self.row["members"] or ()
        return {
            (topic["topic"], partition): (member["client_id"], member["client_host"])
            for member in members
            for topic in member["assignment"] or ()
            if topic["topic"] is not None
            for partition in topic["partitions"]
        }


def group_row_of(snapshot: MemorySnapshot, place: int) -> Mapping[str, Any] | None:
    """Return the row of the group at a place, with the names of topics that its log has only by id; None: it
    has none."""
    if not snapshot.groups.is_described[place]:
        return None
    row = snapshot.groups.rows.slice(place, 1).to_pylist()[0]
    for member in row["members"] or ():
        for name in ("assignment", "target_assignment"):
            for topic in member[name] or ():
                if topic["topic"] is None and topic["topic_id"] is not None:
                    topic["topic"] = snapshot.topics.name_of(topic["topic_id"])
    return {**row, "group": snapshot.groups.names.name(place)}
