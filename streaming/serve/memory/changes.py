"""Changes as columns: rows of the folded tables and of `changes`, collected batch by batch.

Names are dictionary-encoded from the start. All batches are combined once at the end: of several changes of a
key the last one counts, as in folds.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import Index, Mask, from_mask, from_texts, no_rows, numbers_or, to_mask
from streaming.common.pieces import take
from streaming.common.timestamps import to_milliseconds
from streaming.model.schemas import CHANGES, KEY, OFFSETS
from streaming.serve.memory.groups import ROWS, GroupChanges, as_rows
from streaming.serve.memory.names import NONE, Coded, NameIndex, joined
from streaming.serve.memory.offsets import KINDS, OffsetChanges, OffsetColumns
from streaming.serve.memory.texts import TextStore
from streaming.tables.folding import KINDS as KINDS_OF_CHANGES
from streaming.tables.folding import value_column
from streaming.tables.tail.rows import SEQUENCE, field_of

NAMES_OF_OFFSETS: Final = ("group", "topic", "topic_id", "metadata")
"""The columns of the table `offsets` to read as dictionaries."""

OFFSET_COLUMNS: Final = [field.name for field in OFFSETS if field.name != "source_offset"]
GROUP_COLUMNS: Final = ["group", *ROWS.names]
CHANGE_COLUMNS: Final = [
    SEQUENCE,
    "batch_time",
    "kind",
    *(field.name for field in KEY),
    "source_partition",
    *(value_column(name, "after") for name in KINDS_OF_CHANGES),
]
"""The columns to read from the tables."""

_NUMBERS: Final = ("committed_offset", "leader_epoch", "unreadable_source_offset")
_TIMES: Final = ("commit_timestamp", "expire_timestamp", "source_timestamp")

Values: TypeAlias = pa.RecordBatch | pa.StructArray
"""n rows of a folded table, or the n values after changes."""


class _Part:
    """The keys of n rows: group, sequence, offsets partition, and whether the key was removed."""

    def __init__(self, keys: pa.RecordBatch, is_absent: Mask | None) -> None:
        self.group = Coded.of(keys["group"])
        self.sequence = numbers_or(field_of(keys, SEQUENCE, pa.int64()), 0)
        self.source_partition = numbers_or(keys["source_partition"], NONE)
        self.is_absent = np.zeros(len(keys), np.bool_) if is_absent is None else is_absent


class _OffsetPart(_Part):
    def __init__(
        self,
        keys: pa.RecordBatch,
        values: Values,
        is_absent: Mask | None,
        metadata: Index,
        written_at: Index,
    ) -> None:
        super().__init__(keys, is_absent)
        self.topic = Coded.of(keys["topic"])
        self.partition = numbers_or(keys["partition"], NONE)
        self.topic_id = Coded.of(field_of(values, "topic_id", pa.string()))
        self.numbers = {name: _narrow(name, _number(values, name)) for name in (*_NUMBERS, *_TIMES)}
        self.numbers |= {
            "source_partition": _narrow("source_partition", self.source_partition),
            "metadata_slot": _narrow("metadata_slot", metadata),
            "written_at": _narrow("written_at", written_at),
        }


class _GroupPart(_Part):
    def __init__(self, keys: pa.RecordBatch, values: Values, is_absent: Mask | None) -> None:
        super().__init__(keys, is_absent)
        self.rows = as_rows(values, {"source_partition": keys["source_partition"]})


class Changes:
    """Collects changes of offsets and groups; `texts` are the metadata texts that the offsets refer to so
    far."""

    def __init__(self, texts: TextStore) -> None:
        self._texts = texts
        self._offsets: list[_OffsetPart] = []
        self._groups: list[_GroupPart] = []

    def __len__(self) -> int:
        return sum(len(part.is_absent) for part in (*self._offsets, *self._groups))

    def add_offsets(self, rows: pa.RecordBatch, written_by: int) -> None:
        """Add rows of the table `offsets`, written by `written_by` (ms); they precede all changes.

        The table lacks the times of their batches: each counts as written when its record was, by the clock
        of the broker. So an old commit beyond the log end is not taken for one since the newest sample.
        """
        recorded_at = numbers_or(to_milliseconds(rows["source_timestamp"]), written_by)
        self._add_offsets(rows, rows, None, np.minimum(recorded_at, written_by))

    def add_groups(self, rows: pa.RecordBatch) -> None:
        """Add rows of the table `groups`; they precede all changes."""
        self._groups.append(_GroupPart(rows, rows, None))

    def add_changes(self, rows: pa.RecordBatch, *, of: str, after: int, up_to: int) -> None:
        """Add the rows of `changes` that belong to the folded table `of` and have a sequence in (`after`,
        `up_to`]."""
        sequences = numbers_or(rows[SEQUENCE], NONE)
        is_of = to_mask(pc.is_in(rows["kind"], value_set=from_texts([KINDS_OF_CHANGES[of]])))
        own = rows.filter(from_mask(is_of & (sequences > after) & (sequences <= up_to)))
        if len(own):
            name = value_column(of, "after")
            kind = CHANGES.field(name).type
            values = own[name] if name in own.schema.names else pa.nulls(len(own), kind)
            is_absent = to_mask(values.is_null())
            if of == "offsets":
                written_at = numbers_or(to_milliseconds(own["batch_time"]), NONE)
                self._add_offsets(own, values, is_absent, written_at)
            else:
                self._groups.append(_GroupPart(own, values, is_absent))

    @property
    def group_names(self) -> pa.Array:
        """The names of the groups of all rows, possibly with duplicates."""
        parts: list[_Part] = [*self._offsets, *self._groups]
        return joined([part.group for part in parts]).texts

    def named_by_offsets(self) -> tuple[Coded, Index, Coded]:
        """Return the topics, partitions and topic ids of the n rows about offsets."""
        parts = self._offsets
        return (
            joined([part.topic for part in parts]),
            _all([part.partition for part in parts]),
            joined([part.topic_id for part in parts]),
        )

    def of_offsets(self, groups: NameIndex, places: Index, ids: Index) -> OffsetChanges:
        """Return the last change of each key, ordered by key; `places` and `ids` are the places of the topic
        partitions and topic ids of the n rows."""
        of_groups = joined([part.group for part in self._offsets]).places_in(groups)
        last = _last_of_each(of_groups << 32 | places, self._offsets)
        numbers = {
            name: _all([part.numbers[name] for part in self._offsets], kind)[last]
            for name, kind in KINDS.items()
            if name not in ("place", "topic_id")
        }
        columns = numbers | {"place": places[last], "topic_id": ids[last]}
        is_absent = _all([part.is_absent for part in self._offsets], np.bool_)[last]
        return OffsetChanges(of_groups[last], is_absent, OffsetColumns.of(columns, self._texts))

    def of_groups(self, groups: NameIndex) -> GroupChanges:
        """Return the last change of each group, ordered by name."""
        places = joined([part.group for part in self._groups]).places_in(groups)
        last = _last_of_each(places, self._groups)
        is_absent = _all([part.is_absent for part in self._groups], np.bool_)[last]
        rows = pa.concat_tables([no_rows(ROWS), *(part.rows for part in self._groups)])
        return GroupChanges(places[last], is_absent, take(rows, last))

    def _add_offsets(
        self, keys: pa.RecordBatch, values: Values, is_absent: Mask | None, written_at: Index
    ) -> None:
        metadata = Coded.of(field_of(values, "metadata", pa.string()))
        self._texts, slots = self._texts.with_more(metadata.texts)
        part = _OffsetPart(keys, values, is_absent, np.append(slots, 0)[metadata.codes], written_at)
        self._offsets.append(part)


def _last_of_each(keys: Index, parts: Sequence[_Part]) -> Index:
    """Return the last row of each key, ordered by key: the one with the highest sequence and, where a copy of
    the topic holds a key twice, with the highest offsets partition."""
    sequences = _all([part.sequence for part in parts])
    order = np.lexsort((_all([part.source_partition for part in parts]), sequences, keys))
    is_last = np.append(np.diff(keys[order]) != 0, True)[: len(order)]
    last: Index = order[is_last]
    return last


def _all(columns: Sequence[npt.NDArray[Any]], kind: type[Any] = np.int64) -> npt.NDArray[Any]:
    return np.concatenate([np.empty(0, kind), *columns])


def _number(values: Values, name: str) -> Index:
    kind = OFFSETS.field(name).type
    held = field_of(values, name, kind)
    return numbers_or(to_milliseconds(held) if name in _TIMES else held, NONE)


def _narrow(name: str, numbers: Index) -> npt.NDArray[Any]:
    return numbers.astype(KINDS[name], copy=False)
