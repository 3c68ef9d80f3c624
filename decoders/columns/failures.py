"""The rows of a block that cannot be decoded, with the reasons, and how sparse texts become columns."""

from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Final

import numpy as np
import pyarrow as pa

from decoders.columns.cursor import Array, Faults, Ints, to_bitmap, to_buffer
from decoders.errors import DecodeError, ErrorKind
from decoders.rows.reference import reason_of, unknown_type

OUTCOME_COLUMNS: Final[list[tuple[str, pa.DataType]]] = [
    ("document", pa.string()),
    ("error_kind", pa.string()),
    ("reason", pa.string()),
    ("field", pa.string()),
    ("at_byte", pa.int32()),
]


@dataclass
class Failures:
    """The rows that cannot be decoded, and the parts of the `DecodeError` of each."""

    rows: list[int] = dataclass_field(default_factory=list)
    kinds: list[str] = dataclass_field(default_factory=list)
    reasons: list[str] = dataclass_field(default_factory=list)
    fields: list[str] = dataclass_field(default_factory=list)
    at_bytes: list[int] = dataclass_field(default_factory=list)

    def add(self, row: int, error: DecodeError) -> None:
        self._extend(error.kind, [row], [error.reason], [error.field], [error.at_byte])

    def add_malformed(self, faults: Faults, subjects: list[str]) -> None:
        """Add rows whose bytes break the format, each with its subject, such as `offset-commit value`."""
        reasons = list(map(reason_of, subjects, faults.messages))
        self._extend(ErrorKind.MALFORMED, faults.rows, reasons, faults.fields, faults.at_bytes)

    def add_unknown_types(self, rows: Ints, type_ids: Ints, highest: int) -> None:
        """Add rows of record types that are not in the table; `highest` is the highest type in it."""
        reasons = [unknown_type(type_id, highest) for type_id in type_ids.tolist()]
        count = len(rows)
        self._extend(ErrorKind.UNKNOWN_TYPE, rows.tolist(), reasons, ["type"] * count, [0] * count)

    def _extend(
        self, kind: ErrorKind, rows: list[int], reasons: list[str], fields: list[str], at_bytes: list[int]
    ) -> None:
        self.rows += rows
        self.kinds += [kind.value] * len(rows)
        self.reasons += reasons
        self.fields += fields
        self.at_bytes += at_bytes

    def to_arrow(self, count: int) -> list[Array]:
        """The columns from `error_kind` to `at_byte` of a block of `count` rows, null without a failure."""
        if not self.rows:
            return [pa.nulls(count, arrow_type) for _, arrow_type in OUTCOME_COLUMNS[1:]]
        order = np.argsort(self.rows)
        rows = np.array(self.rows)[order]
        texts = [pa.array(column, pa.string()) for column in (self.kinds, self.reasons, self.fields)]
        at_bytes = np.zeros(count, np.int32)
        at_bytes[self.rows] = self.at_bytes
        return [
            *(spread_texts(column.take(pa.array(order)), rows, count) for column in texts),
            pa.array(at_bytes, mask=np.bincount(rows, minlength=count) == 0),
        ]


def spread_texts(texts: Array, rows: Ints, count: int) -> Array:
    """Spread k texts, some of them null, over `count` rows: text i goes to row `rows[i]` (rising).

    The rows between are null; they start and stop where the text before them ends.
    """
    if texts.null_count == len(texts):
        return pa.nulls(count, texts.type)
    edges = np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1)
    is_there = np.zeros(count, np.bool_)
    is_there[rows] = True if not texts.null_count else texts.is_valid().to_numpy(zero_copy_only=False)
    offsets = np.repeat(edges, np.diff(np.concatenate([[-1], rows, [count]])))
    buffers = [to_bitmap(is_there), to_buffer(offsets), texts.buffers()[2]]
    return pa.Array.from_buffers(texts.type, count, buffers)
