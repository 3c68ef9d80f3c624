"""The replay of an offsets partition, as plain as possible: what the real one must equal.

One record at a time, dictionaries only (Kafka: `OffsetMetadataManager.replay`,
`GroupMetadataManager.replay`).
"""

from dataclasses import dataclass, field, replace
from typing import Any

Key = tuple[str, str, int]


@dataclass(frozen=True, kw_only=True)
class Record:
    """A record as the decoders give it: an offset commit, a record of a group, or one that cannot be read."""

    source_offset: int
    source_partition: int = 0
    record_type: int = 1
    group: str | None = "g"
    topic: str | None = "t"
    partition: int | None = 0
    committed_offset: int | None = None
    metadata: str | None = None
    part: str = ""
    document: str | None = None
    is_tombstone: bool = False
    error_kind: str | None = None


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A committed offset as readers see it."""

    committed_offset: int | None
    metadata: str | None
    unreadable_source_offset: int | None
    source_offset: int


@dataclass
class PlainReplay:
    """The state of one offsets partition after some records."""

    entries: dict[Key, Entry] = field(default_factory=dict)
    exists: dict[str, bool] = field(default_factory=dict)
    group_records: dict[str, dict[tuple[int, str], Record]] = field(default_factory=dict)

    def apply(self, record: Record) -> None:
        """Replay one record."""
        if record.group is None:
            return
        if record.record_type in (0, 1):
            self._apply_commit(record, (record.group, str(record.topic), int(record.partition or 0)))
        elif record.document is not None:
            self._apply_group_record(record, record.group)
        else:  # a group's record that cannot be read: the group is there
            self.exists[record.group] = True

    def visible_offsets(self) -> dict[Key, Entry]:
        """The offsets that readers see: those of groups that exist."""
        return {key: entry for key, entry in self.entries.items() if self.exists.get(key[0])}

    def visible_groups(self) -> dict[str, Any]:
        """The groups that exist: their records by type and part, none for a simple group."""
        simple: dict[str, Any] = {group: {} for group, _, _ in self.visible_offsets()}
        return simple | {group: records for group, records in self.group_records.items() if records}

    def _apply_commit(self, record: Record, key: Key) -> None:
        if record.is_tombstone:
            self.entries.pop(key, None)
            return
        self.exists[key[0]] = True
        if record.error_kind is None:
            self.entries[key] = Entry(
                committed_offset=record.committed_offset,
                metadata=record.metadata,
                unreadable_source_offset=None,
                source_offset=record.source_offset,
            )
        elif key not in self.entries:
            nothing = Entry(
                committed_offset=None,
                metadata=None,
                unreadable_source_offset=record.source_offset,
                source_offset=record.source_offset,
            )
            self.entries[key] = nothing
        elif self.entries[key].unreadable_source_offset is None:
            self.entries[key] = replace(self.entries[key], unreadable_source_offset=record.source_offset)

    def _apply_group_record(self, record: Record, group: str) -> None:
        records = self.group_records.setdefault(group, {})
        if not record.is_tombstone:
            self.exists[group] = True
            if record.record_type == 2:
                records.clear()
            records[record.record_type, record.part] = record
        elif record.record_type in (2, 3, 11, 17):
            self.exists[group] = False
            records.clear()
        else:
            records.pop((record.record_type, record.part), None)
