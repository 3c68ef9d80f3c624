"""A batch whose rows tasks write to files of `changes`, which the driver commits.

The driver fixes the sequence and the time of a batch before its tasks start. A task returns the facts about
its files, so only files of successful attempts are committed, and none of a batch that is refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True, kw_only=True)
class BatchToWrite:
    """What tasks must know of a batch to write its rows.

    All rows get this `sequence` and `batch_time` (ms). The tasks leave removals of offsets since
    `evidence_since` (ms) to the driver, which finds their causes. `place` is the path or URL of `changes`,
    `storage_options` are the options of the tables, with references in place of secrets. The names of all
    files begin with `name`.
    """

    sequence: int
    batch_time: int
    evidence_since: int
    place: str
    storage_options: Mapping[str, str]
    name: str

    @property
    def folder(self) -> str:
        """The folder of the files, relative to the table."""
        return f"day={datetime.fromtimestamp(self.batch_time / 1_000, UTC).date()}"


@dataclass(frozen=True)
class WrittenRows:
    """Rows of a batch in new files: the number of rows, the number of rows about offsets, the greatest source
    offset of each offsets partition, and the files (`NewFiles.handed_over`)."""

    rows: int = 0
    offsets: int = 0
    ends: Mapping[int, int] = field(default_factory=dict)
    files: Sequence[Mapping[str, Any]] = ()

    def __add__(self, other: "WrittenRows") -> "WrittenRows":
        ends = {
            number: max(some.get(number, end) for some in (self.ends, other.ends))
            for number, end in {**self.ends, **other.ends}.items()
        }
        files = [*self.files, *other.files]
        return WrittenRows(self.rows + other.rows, self.offsets + other.offsets, ends, files)
