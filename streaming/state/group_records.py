"""The records of groups: which ones are kept, and until when.

A group is a set of records in the log, one per record key: a classic group is one `GroupMetadata` record, a
consumer group an epoch, members, assignments and so on. This module keeps the newest record of every key and
drops all when the group ends, as the coordinator does when it replays them (Kafka 4.3:
`GroupMetadataManager.replay`). `groups` derives the group from them.

Where Kafka's replay fails because records contradict each other (members of a removed group, a group of
another type), the later record wins here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa

from decoders import document_parts
from streaming.common.keys import PlacedGroup
from streaming.state.group_types import CURRENT_OF_MEMBER, ENDS_GROUP, TYPE_OF_RECORD

GROUP_RECORDS: Final = pa.schema(
    [
        ("source_partition", pa.int32()),
        ("group", pa.string()),
        ("record_type", pa.int16()),
        ("part", pa.string()),  # member id or regular expression; "" if the key is only the group
        ("value", pa.string()),  # the value as Kafka's JSON
        ("source_offset", pa.int64()),
        ("source_timestamp", pa.int64()),
    ]
)
"""The records of groups in the state: one row per record key."""


@dataclass(frozen=True)
class GroupEvent:
    """One record of a group; `value` is Kafka's JSON text, None for a tombstone."""

    source_partition: int
    group: str
    record_type: int
    part: str
    value: str | None
    source_offset: int
    source_timestamp: int

    @property
    def placed_group(self) -> PlacedGroup:
        return self.source_partition, self.group

    @property
    def ends_group(self) -> bool:
        return self.value is None and self.record_type in ENDS_GROUP


_COLUMNS: Final = ["source_partition", "group", "record_type", "source_offset", "source_timestamp"]

GroupRecords: TypeAlias = dict[tuple[int, str], GroupEvent]
"""The newest record of every key of one group, by record type and part; all of one group type."""

Value: TypeAlias = Mapping[str, Any]
"""The value of a record; field names and omissions are as in Kafka's JSON."""

GroupValues: TypeAlias = Mapping[tuple[int, str], Value]
"""The values of the records of one group, by record type and part."""


def read_events(records: pa.Table) -> list[GroupEvent]:
    """Convert decoded records that are not offset commits, in the given order."""
    columns = [*_COLUMNS, "document"]
    rows = records.select(columns).to_pylist()
    return [_event(row) for row in rows]


def read_unreadable_events(records: pa.Table) -> list[GroupEvent]:
    """Convert records whose value could not be decoded; their only meaning is that their group exists."""
    rows = records.select(_COLUMNS).to_pylist()
    return [GroupEvent(**row, part="", value="") for row in rows]


def fold_events(kept: GroupRecords, events: Iterable[GroupEvent]) -> GroupRecords:
    """Replay the events of one group, in log order, on its kept records (`GMM.replay`)."""
    records = dict(kept)
    for event in events:
        if event.ends_group:
            records.clear()
        elif event.value is None:
            records.pop((event.record_type, event.part), None)
            records.pop((CURRENT_OF_MEMBER.get(event.record_type, -1), event.part), None)
        else:
            if _is_of_another_type(event, records):
                records.clear()
            records[event.record_type, event.part] = event
    return records


def values_of(values: GroupValues, record_type: int) -> dict[str, Value]:
    """Return the values of a record type by member id or regular expression."""
    return {part: value for (of_type, part), value in values.items() if of_type == record_type}


def single_value(values: GroupValues, record_type: int) -> Value:
    """Return the value of a record type whose key is only the group; empty if absent."""
    return values.get((record_type, ""), {})


def _event(row: Mapping[str, Any]) -> GroupEvent:
    key, value = document_parts(row["document"])
    parts = [text for name, text in key.items() if name not in ("group", "groupId")]
    return GroupEvent(
        source_partition=row["source_partition"],
        group=row["group"],
        record_type=row["record_type"],
        part=parts[0] if parts else "",
        value=value,
        source_offset=row["source_offset"],
        source_timestamp=row["source_timestamp"],
    )


def _is_of_another_type(event: GroupEvent, records: GroupRecords) -> bool:
    """Return whether a value replaces a group of another type with the same name."""
    held_type, _ = next(iter(records), (event.record_type, ""))
    return TYPE_OF_RECORD[held_type] != TYPE_OF_RECORD[event.record_type]
