"""The tables as of one batch, the newest or a past one: what is read from one snapshot belongs together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from deltalake import DeltaTable

from streaming.model.progress import Progress
from streaming.tables.feed import drops_between, read_steps, removals_of, whole_since
from streaming.tables.folding import rows_at
from streaming.tables.progress_rows import Gap


@dataclass(frozen=True)
class LiveRows:
    """The live offsets and groups (schemas `OFFSETS`, `GROUPS`) as of one batch, and its progress."""

    offsets: pa.Table
    groups: pa.Table
    progress: Progress


@dataclass(frozen=True)
class Snapshot:
    """The tables as of one batch, opened; rows are read when they are asked for.

    `progress` is that of the batch, `bases` are the folded tables that were opened, by name. `gap` is the
    time without heartbeats in which the moment lies that was asked for, if any.
    """

    progress: Progress
    gap: Gap | None
    bases: Mapping[str, DeltaTable]
    changes: DeltaTable

    def offsets(self, groups: Sequence[str] | None = None) -> pa.Table:
        """Read the live offsets (schema `OFFSETS`) of the named groups or of all, in no order."""
        return self._rows("offsets", groups)

    def groups(self, groups: Sequence[str] | None = None) -> pa.Table:
        """Read the live groups (schema `GROUPS`), the named ones or all, in no order."""
        return self._rows("groups", groups)

    def drops(self, cause: str, *, after: int) -> pa.Table:
        """Read the offsets (schema `DROPS`) that were removed for a cause by changes after a sequence."""
        return drops_between(self.changes, cause, after=after, up_to=self.progress.sequence)

    def history(self, groups: Sequence[str], since: int | None = None) -> pa.Table:
        """Read how the groups' positions moved up to this batch (schema `HISTORY`), since `since` (ms)."""
        return read_steps(self.changes, groups, up_to=self.progress.sequence, since=since)

    def whole_since(self) -> int | None:
        """Return from when on (ms) no change has been dropped; None: none ever was."""
        return whole_since(self.changes)

    def removals(self, groups: Sequence[str] | None = None) -> pa.Table:
        """Read which offsets were removed (schema `REMOVALS`), of all groups or of the named ones, in no
        order."""
        return removals_of(self.changes, groups, up_to=self.progress.sequence)

    def _rows(self, name: str, groups: Sequence[str] | None) -> pa.Table:
        return rows_at(name, self.bases[name], self.changes, self.progress.sequence, groups)
