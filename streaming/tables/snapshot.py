"""The tables as of one batch, the newest or a past one: what is read from one snapshot belongs together."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from streaming.common.arrays import from_numbers, from_texts, no_rows
from streaming.common.keys import KEY_NAMES
from streaming.common.timestamps import to_timestamps
from streaming.model.completeness import Completeness
from streaming.model.progress import Progress
from streaming.model.schemas import GROUPS, KEY
from streaming.tables.feed import (
    commits_between,
    drops_between,
    first_set,
    group_steps,
    groups_between,
    keys_in,
    partitions_assigned,
    partitions_committed,
    partitions_in,
    partitions_of_members,
    pauses_since,
    read_steps,
    removals_of,
    rewinds_between,
    topics_of,
    topics_subscribed,
)
from streaming.tables.folding import ROWS, fold_mark, keys_at, rows_at
from streaming.tables.log_ends import (
    NEWEST_ENDS,
    TOPICS_OVER_TIME,
    SampleFiles,
    ends_between,
    newest_ends,
    topics_over_time,
)
from streaming.tables.offset_times import nothing_crossed, offset_times
from streaming.tables.progress_rows import (
    HistoryGoneError,
    Observation,
    observed_at,
    starts_after,
    whole_since,
)

Among = Literal["groups", "live", "history"]
"""Where names are looked for: in the groups, in these and the committed offsets, or also in what changed."""

_MOST_NAMED: Final = 500
"""Groups or topics that are named in a query; of more, all rows are read and chosen from: SQL would be
megabytes."""


@dataclass(frozen=True)
class LiveRows:
    """The live offsets and groups (schemas `OFFSETS`, `GROUPS`) as of one batch, and its progress."""

    offsets: pa.Table
    groups: pa.Table
    progress: Progress


class Opener(Protocol):
    """Opens tables as they stand now; `Tables` is one."""

    @property
    def complete_within_ms(self) -> int:
        """Up to how long ago (ms) the tables count as complete."""

    def delta(self, name: str) -> DeltaTable:
        """Open a table; raises `TablesMissingError`."""

    def delta_if_any(self, name: str) -> DeltaTable | None:
        """Open a table; None: it was not created yet."""


class OpenTables:
    """The tables under one root as one answer reads them: each is opened once, when it is first needed.

    `changes` is open; `newest` is the progress that it says, and `moment` (ms) when that was.
    """

    def __init__(
        self,
        root: Opener,
        changes: DeltaTable,
        newest: Progress,
        moment: int,
        bases: Mapping[str, DeltaTable],
    ) -> None:
        """Take the `bases` that were opened before `changes`, which has all that they lack."""
        self.changes: Final = changes
        self.newest: Final = newest
        self.moment: Final = moment
        self.complete_within_ms: Final = root.complete_within_ms
        self._root = root
        self._others: dict[str, DeltaTable | None] = {}
        self._bases = {name: (base, changes) for name, base in bases.items()}

    def base(self, name: str) -> tuple[DeltaTable, DeltaTable]:
        """Return a folded table, and changes that have all between its mark and any batch up to the newest.

        It may have been folded since `changes` was opened; then newer ones tell what of it is to be undone.
        """
        if name not in self._bases:
            base = self._root.delta(name)
            is_ahead = fold_mark(base) > self.newest.sequence
            self._bases[name] = base, self._root.delta("changes") if is_ahead else self.changes
        return self._bases[name]

    def other(self, name: str) -> DeltaTable | None:
        """Return a table that is written beside the batches; None: it was not created yet."""
        if name not in self._others:
            self._others[name] = self._root.delta_if_any(name)
        return self._others[name]

    @cached_property
    def samples(self) -> SampleFiles | None:
        """The files of `log_ends`, listed once; None: the table was not created yet."""
        return None if (table := self.other("log_ends")) is None else SampleFiles(table)


class Snapshot:
    """The tables as of one batch, opened; rows are read when they are asked for.

    `progress` is that of the batch. `moment` (ms) is the past moment that was asked for (`is_past`), or when
    the tables were opened. `gap` is the time without heartbeats in which a past moment lies, if any.

    Snapshots are made of one that is there: of the same tables, opened once, so that an answer about several
    moments is of one version of each. None but a `PresentSnapshot` gives the tables themselves away.
    """

    def __init__(
        self, tables: OpenTables, as_of: int | None = None, *, up_to: Progress | None = None
    ) -> None:
        """Take the last batch at a past moment (ms), or (None) the newest one, or that of a progress.

        Raises `HistoryGoneError`.
        """
        observed = (
            Observation(up_to or tables.newest)
            if as_of is None
            else observed_at(tables.changes, tables.newest, as_of)
        )
        self.progress: Final = observed.progress
        self.gap: Final = observed.gap
        self.moment: Final = tables.moment if as_of is None else as_of
        self.is_past: Final = as_of is not None
        self._tables, self._changes = tables, tables.changes

    def newest(self) -> "Snapshot":
        """Return the same tables as of their last batch."""
        return Snapshot(self._tables)

    def as_of(self, moment: int) -> "Snapshot":
        """Return the same tables as of the last batch at a past moment (ms); raises `HistoryGoneError`."""
        return Snapshot(self._tables, moment)

    def up_to(self, progress: Progress) -> "Snapshot":
        """Return the same tables as of a batch before, of which this is the progress."""
        return Snapshot(self._tables, up_to=progress)

    @property
    def complete_within_ms(self) -> int:
        """Up to how long ago (ms) the tables count as complete."""
        return self._tables.complete_within_ms

    @cached_property
    def completeness(self) -> Completeness:
        """How complete the tables are at the moment."""
        return Completeness(
            progress=self.progress,
            moment=self.moment,
            within_ms=self.complete_within_ms,
            was_observed=self.gap is None if self.is_past else None,
        )

    @property
    def log_ends(self) -> DeltaTable | None:
        """The samples of log ends, opened when they are first asked for; None: the table was not created
        yet."""
        return self._tables.other("log_ends")

    @property
    def samples(self) -> SampleFiles | None:
        """The files of `log_ends`: every question about these tables reads the same ones."""
        return self._tables.samples

    def newest_ends(self, topics: Collection[str] | None, *, as_of: int, within_ms: int = 0) -> pa.Table:
        """Read the newest sample of each partition (schema `NEWEST_ENDS`); see `log_ends.newest_ends`."""
        if self.samples is None:
            return no_rows(NEWEST_ENDS)
        return newest_ends(self.samples, topics, as_of=as_of, within_ms=within_ms)

    def offset_times(self, positions: pa.Table, *, as_of: int) -> pa.Table:
        """Read when the ends of logs passed n positions (n rows, schema `CROSSINGS`); see
        `offset_times.offset_times`."""
        if self.samples is None:
            return nothing_crossed(len(positions))
        return offset_times(self.samples, positions, as_of=as_of)

    def topics_over_time(self, topics: Collection[str] | None, *, as_of: int) -> pa.Table:
        """Read which topics there were when (schema `TOPICS_OVER_TIME`), as was seen up to a moment (ms); see
        `log_ends.topics_over_time`."""
        if self.samples is None:
            return no_rows(TOPICS_OVER_TIME)
        return topics_over_time(self.samples, topics, as_of=as_of)

    def committed_partitions(self, *, after: int | None = None) -> pa.Table:
        """Read the topic partitions with committed offsets (columns topic, partition), each once.

        `after` a sequence: those that were committed since, removed or not; else all (of the base `offsets`,
        and what changed since).
        """
        up_to = self.progress.sequence
        if after is not None:
            return partitions_committed(self._changes, after=after, up_to=up_to)
        base, changes = self._tables.base("offsets")
        held, mark = partitions_in(base), fold_mark(base)
        newer = partitions_committed(changes, after=mark, up_to=up_to)
        return pa.concat_tables([held, newer]).group_by(["topic", "partition"]).aggregate([])

    def assigned_partitions(self, *, after: int | None = None) -> pa.Table:
        """Read the topic partitions that members of groups have (schema `ASSIGNED_PARTITIONS`), as
        `committed_partitions` does; some may come twice."""
        up_to = self.progress.sequence
        if after is not None:
            return partitions_assigned(self._changes, after=after, up_to=up_to)
        base, changes = self._tables.base("groups")
        newer = partitions_assigned(changes, after=fold_mark(base), up_to=up_to)
        return pa.concat_tables([partitions_of_members(base), newer])

    def subscribed_topics(self, *, after: int | None = None) -> pa.Table:
        """Read the topics that groups subscribe to (column topic), as `committed_partitions` does."""
        up_to = self.progress.sequence
        if after is not None:
            return topics_subscribed(self._changes, after=after, up_to=up_to)
        base, changes = self._tables.base("groups")
        held, mark = topics_of(base), fold_mark(base)
        newer = topics_subscribed(changes, after=mark, up_to=up_to)
        return pa.concat_tables([held, newer]).group_by(["topic"]).aggregate([])

    def offsets(self, groups: Sequence[str] | None = None, *, columns: pa.Schema | None = None) -> pa.Table:
        """Read the live offsets (schema `OFFSETS`, or some columns of it: with `KEY` and source_partition) of
        the named groups or of all, in no order."""
        return self._rows("offsets", groups, columns)

    def groups(self, groups: Sequence[str] | None = None) -> pa.Table:
        """Read the live groups (schema `GROUPS`), the named ones or all, in no order."""
        return self._rows("groups", groups)

    def groups_before(self, groups: Sequence[str], *, until: int) -> pa.Table:
        """Read the groups (schema `GROUPS`), the named ones, as of the last batch at a past moment (ms); none
        where that is before the history that is kept."""
        try:
            return self.as_of(until).groups(groups)
        except HistoryGoneError:
            return no_rows(GROUPS)

    def groups_over_time(self, groups: Sequence[str] | None, *, since: int, until: int) -> pa.Table:
        """Read how groups (None: all) were from one moment (ms) to another: rows of schema
        `GROUPS_OVER_TIME`, those of a group in order; what is older than the history that is kept is not
        known."""
        try:
            before = self.as_of(since).groups(groups)
        except HistoryGoneError:
            before = no_rows(GROUPS)
        at = to_timestamps(from_numbers(np.full(len(before), since, np.int64)))

        def changed(of: Sequence[str] | None) -> pa.Table:
            up_to = self.progress.sequence
            return groups_between(self._changes, of, up_to=up_to, since=since + 1, until=until)

        return pa.concat_tables([before.append_column("written_at", at), _of(groups, changed)])

    def keys(self, groups: Sequence[str] | None = None, *, among: Among) -> pa.Table:
        """Read the keys (columns `KEY_NAMES`; for groups the last two are null) that are `among` these,
        of the named groups or of all. In no order; a key may come twice."""
        reads = [self._keys_of("groups")]
        reads += [] if among == "groups" else [self._keys_of("offsets")]
        reads += [self._keys_in_changes] if among == "history" else []
        return pa.concat_tables([_of(groups, read) for read in reads])

    def drops(self, cause: str, *, after: int) -> pa.Table:
        """Read the offsets (schema `DROPS`) that were removed for a cause by changes after a sequence."""
        return drops_between(self._changes, cause, after=after, up_to=self.progress.sequence)

    def history(
        self,
        groups: Sequence[str] | None = None,
        *,
        since: int | None = None,
        until: int | None = None,
        events: Sequence[str] = (),
    ) -> pa.Table:
        """Read how the positions of groups (None: all) moved up to this batch (schema `HISTORY`).

        Between two moments (ms), these included; only the steps of these events, or all.
        """

        def steps(of: Sequence[str] | None) -> pa.Table:
            up_to = self.progress.sequence
            return read_steps(self._changes, of, up_to=up_to, since=since, until=until, events=events)

        return _of(groups, steps)

    def commits(
        self,
        groups: Sequence[str] | None = None,
        *,
        since: int,
        until: int | None = None,
        in_order: bool = True,
    ) -> pa.Table:
        """Read what groups (None: all) committed up to this batch (schema `COMMITTED`), between two moments
        (ms), these included; those of a key in the order of the log, unless `in_order` is false."""

        def commits(of: Sequence[str] | None) -> pa.Table:
            up_to = self.progress.sequence
            return commits_between(
                self._changes, of, up_to=up_to, since=since, until=until, in_order=in_order
            )

        return _of(groups, commits)

    def pauses(self, groups: Sequence[str] | None = None, *, since: int, longer_than_ms: int) -> pa.Table:
        """Read the commits of groups (None: all) since a moment (ms) that came after so long a pause, and the
        first ones of keys (schema `PAUSES`), in no order."""

        def pauses(of: Sequence[str] | None) -> pa.Table:
            up_to = self.progress.sequence
            return pauses_since(self._changes, of, up_to=up_to, since=since, longer_than_ms=longer_than_ms)

        return _of(groups, pauses)

    def rewinds(
        self,
        groups: Sequence[str] | None = None,
        *,
        after: int = -1,
        since: int,
        until: int | None = None,
    ) -> pa.Table:
        """Read the commits of groups (None: all) that went back (schema `REWINDS`) in changes after a
        sequence, written between two moments (ms), in the order of the log."""
        up_to = self.progress.sequence
        return _of(
            groups,
            lambda of: rewinds_between(self._changes, of, after=after, up_to=up_to, since=since, until=until),
        )

    def group_steps(self, groups: Sequence[str] | None = None) -> pa.Table:
        """Read how groups (None: all) were over the time that is kept (schema `GROUP_STEPS`), in no order."""
        return _of(groups, lambda of: group_steps(self._changes, of, up_to=self.progress.sequence))

    def ends_between(
        self, topics: Collection[str] | None, *, since: int, until: int, within_ms: int = 0
    ) -> pa.Table:
        """Read the samples (schema `NEWEST_ENDS`) of topics (None: all) between two moments (ms), and the
        newest ones before; see `log_ends.ends_between`."""
        if self.samples is None or (topics is not None and not topics):
            return no_rows(NEWEST_ENDS)
        return ends_between(self.samples, topics, since=since, until=until, within_ms=within_ms)

    def whole_since(self) -> int | None:
        """Return from when on (ms) no change has been dropped; None: none ever was."""
        return whole_since(self._changes)

    def starts_after(self, moment: int | None) -> int | None:
        """Return when history starts (ms) if that is after a moment (ms); None: it is not, or there is none.

        (Of tables from which changes were dropped it is `whole_since`.)
        """
        return None if moment is None else starts_after(self._changes, moment)

    def first_set(self, group: str, *, after: int) -> int | None:
        """Return when a group or an offset of it was first written (ms) after a moment; None: not since."""
        return first_set(self._changes, group, after=after)

    def removals(self, groups: Sequence[str] | None = None) -> pa.Table:
        """Read which offsets were removed (schema `REMOVALS`), of all groups or of the named ones, in no
        order."""
        return _of(groups, lambda of: removals_of(self._changes, of, up_to=self.progress.sequence))

    def _rows(self, name: str, groups: Sequence[str] | None, columns: pa.Schema | None = None) -> pa.Table:
        base, changes = self._tables.base(name)
        return _of(groups, lambda of: rows_at(name, base, changes, self.progress.sequence, of, columns))

    def _keys_of(self, name: str) -> Callable[[Sequence[str] | None], pa.Table]:
        def keys(of: Sequence[str] | None) -> pa.Table:
            rows = keys_at(name, *self._tables.base(name), self.progress.sequence, of)
            columns = [
                rows[field.name] if field.name in rows.column_names else pa.nulls(len(rows), field.type)
                for field in KEY
            ]
            return pa.table(columns, KEY_NAMES)

        return keys

    def _keys_in_changes(self, groups: Sequence[str] | None) -> pa.Table:
        return keys_in(self._changes, groups, up_to=self.progress.sequence)


class PresentSnapshot(Snapshot):
    """The tables as of their last batch, for those who read the tables themselves, as they stand: what they
    make of them is a present answer. A past snapshot is none."""

    def __init__(self, tables: OpenTables) -> None:
        """Take them as of now: there is no other moment for it."""
        super().__init__(tables)

    @property
    def bases(self) -> Mapping[str, DeltaTable]:
        """The folded tables."""
        return {name: self._tables.base(name)[0] for name in ROWS}

    @property
    def changes(self) -> DeltaTable:
        """The changes, as they stand."""
        return self._changes

    def other(self, name: str) -> DeltaTable | None:
        """Return a table that is written beside the batches; None: it was not created yet."""
        return self._tables.other(name)


def _of(groups: Sequence[str] | None, read: Callable[[Sequence[str] | None], pa.Table]) -> pa.Table:
    """Read the rows of the named groups or of all; of very many names all, of which theirs are kept."""
    if groups is None or len(groups) <= _MOST_NAMED:
        return read(groups)
    return (rows := read(None)).filter(pc.is_in(rows["group"], value_set=from_texts(groups)))
