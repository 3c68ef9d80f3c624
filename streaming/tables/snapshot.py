"""The tables as of one batch, the newest or a past one: all reads from one snapshot are consistent."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final, Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from streaming.common.arrays import Index, from_numbers, from_texts, no_rows
from streaming.common.keys import KEY_NAMES
from streaming.common.times import iso, start_of
from streaming.common.timestamps import to_timestamps
from streaming.common.topics import TopicPartitions, of_topics, refuse_texts
from streaming.model.completeness import Completeness
from streaming.model.errors import MisuseError
from streaming.model.progress import Progress
from streaming.model.schemas import GROUPS, KEY, SOURCE_PARTITION
from streaming.tables.feed import (
    commit_pieces,
    commits_between,
    commits_by_hour,
    drops_between,
    first_set,
    group_steps,
    groups_between,
    keys_in,
    last_written,
    names_in,
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
from streaming.tables.folding import ROWS, fold_mark, keys_at, live_parts, rows_at
from streaming.tables.held import HeldChanges, HeldFolded, HeldRewinds
from streaming.tables.log_ends import (
    NEWEST_ENDS,
    TOPICS_OVER_TIME,
    HeldSamples,
    SampleFiles,
    ends_at,
    ends_between,
    gone_at,
    newest_ends,
    topics_over_time,
)
from streaming.tables.offset_times import nothing_crossed, offset_times
from streaming.tables.progress_rows import (
    HistoryGoneError,
    Observation,
    history_start,
    observed_at,
    starts_after,
    whole_since,
    written_by,
)
from streaming.tables.select import HeldRows, Queryable

Among = Literal["groups", "live", "history"]
"""Where names are looked up: among live groups, also among committed offsets, or also in all kept changes."""

_MOST_NAMED: Final = 500
"""Most groups or topics named in a query; beyond that, all rows are read and filtered: the SQL text would
take megabytes."""


@dataclass(frozen=True)
class LiveRows:
    """The live offsets and groups (schemas `OFFSETS`, `GROUPS`) as of one batch, and its progress."""

    offsets: pa.Table
    groups: pa.Table
    progress: Progress


class Opener(Protocol):
    """Opens the current version of tables; `Tables` is one."""

    @property
    def complete_within_ms(self) -> int:
        """How long ago (ms) a moment may be up to which the tables count as complete."""

    def delta(self, name: str) -> DeltaTable:
        """Open a table; raises `TablesMissingError`."""

    def delta_if_any(self, name: str) -> DeltaTable | None:
        """Open a table; None: not created yet."""


class OpenTables:
    """The tables under one root for one answer: each is opened once, when first needed.

    `changes` is open; `newest` is its progress, `moment` (ms) the time of opening.
    """

    def __init__(
        self,
        root: Opener,
        changes: DeltaTable,
        newest: Progress,
        moment: int,
        bases: Mapping[str, DeltaTable],
    ) -> None:
        """`bases` are the folded tables opened before `changes`, which has all changes after their marks."""
        self.changes: Final = changes
        self.newest: Final = newest
        self.moment: Final = moment
        self.complete_within_ms: Final = root.complete_within_ms
        self._root = root
        self._others: dict[str, DeltaTable | None] = {}
        self._bases = {name: (base, changes) for name, base in bases.items()}
        self._held = dict[tuple[str, tuple[TopicPartitions, ...]], HeldRows]()
        self._held_samples: HeldSamples | None = None
        self._held_folded: tuple[str, HeldFolded] | None = None

    def base(self, name: str) -> tuple[DeltaTable, DeltaTable]:
        """Return a folded table, and a version of `changes` with all changes between its mark and any batch
        up to the newest.

        The table may have been folded after `changes` was opened; then a newer version of `changes` is
        opened, from which the fold is undone.
        """
        if name not in self._bases:
            base = self._root.delta(name)
            is_ahead = fold_mark(base) > self.newest.sequence
            self._bases[name] = base, self._root.delta("changes") if is_ahead else self.changes
        return self._bases[name]

    def hold(self, group: str, held: HeldChanges, topics: Sequence[TopicPartitions] = ()) -> None:
        """Read the changes of a group, its rows in folded tables and the samples of its topics from memory
        from now on, or, if its changes are too many, only the changes of its offsets of `topics`; see
        `HeldChanges.of`."""
        self.hold_samples(held)
        self._held_folded = group, held.folded
        with suppress(OSError):  # no place for a temporary file: the tables are read
            for some in dict.fromkeys([(), tuple(topics)]):
                if (rows := held.of(self.changes, group, self.newest.sequence, some)) is not None:
                    self._held[group, some] = rows
                    return

    def hold_samples(self, held: HeldChanges) -> None:
        """Hold the samples of the topics asked about, and read those that are held from memory; to be called
        before the first question about samples."""
        self._held_samples = held.samples

    def changes_of(self, groups: Sequence[str] | None, topics: Sequence[TopicPartitions] = ()) -> Queryable:
        """Return the source of the changes of groups (None: all), or of the changes of their offsets of
        `topics`."""
        [*named] = groups or ()
        if len(named) != 1:
            return self.changes
        whole = self._held.get((named[0], ()), self.changes)
        return self._held.get((named[0], tuple(topics)), whole)

    def folded_of(self, name: str, base: DeltaTable, groups: Sequence[str] | None) -> pa.Table | None:
        """Return the rows of groups in a folded table (columns `ROWS`) from memory, if it is the group that
        is held; else None."""
        if self._held_folded is None or groups is None:
            return None
        group, folded = self._held_folded
        return folded.of(name, base, group) if [*groups] == [group] else None

    def other(self, name: str) -> DeltaTable | None:
        """Return a table that is not written with the batches; None: not created yet."""
        if name not in self._others:
            self._others[name] = self._root.delta_if_any(name)
        return self._others[name]

    @cached_property
    def whole_since(self) -> int | None:
        """The moment (ms) before which changes were dropped; None: none were."""
        return whole_since(self.changes)

    @cached_property
    def samples(self) -> SampleFiles | None:
        """The files of `log_ends`, listed once; None: the table was not created yet."""
        return None if (table := self.other("log_ends")) is None else SampleFiles(table, self._held_samples)


class Snapshot:
    """The tables as of one batch; rows are read on request.

    `progress` is that of the batch. `moment` (ms) is the requested past moment (`is_past`), or when the
    tables were opened. `gap` is the time without heartbeats around a past moment, if any.

    Snapshots of other moments are made from an existing one and share its open tables, so that an answer
    about several moments reads one version of each table. Only a `PresentSnapshot` exposes the tables
    themselves.
    """

    def __init__(
        self, tables: OpenTables, as_of: int | None = None, *, up_to: Progress | None = None
    ) -> None:
        """Take the last batch at a past moment (ms), or (None) the newest batch, or the batch of `up_to`.

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
        self._past = dict[int, Snapshot]()
        self._written = dict[tuple[int, HeldRows | None], int | None]()
        self._groups = dict[str, pa.Table]()

    def newest(self) -> "Snapshot":
        """Return the same tables as of their last batch."""
        return Snapshot(self._tables)

    def as_of(self, moment: int) -> "Snapshot":
        """Return the same tables as of the last batch at a past moment (ms), read once for each; raises
        `HistoryGoneError`."""
        if moment not in self._past:
            self._past[moment] = Snapshot(self._tables, moment)
        return self._past[moment]

    def up_to(self, progress: Progress) -> "Snapshot":
        """Return the same tables as of an earlier batch, given its progress."""
        return Snapshot(self._tables, up_to=progress)

    def hold(self, group: str, held: HeldChanges, topics: Sequence[TopicPartitions] = ()) -> None:
        """Read the changes of a group, or only the changes of `topics`, from memory from now on; see
        `OpenTables.hold`."""
        self._tables.hold(group, held, topics)

    def hold_samples(self, held: HeldChanges) -> None:
        """Read the samples of log ends from memory from now on; see `OpenTables.hold_samples`."""
        self._tables.hold_samples(held)

    @property
    def complete_within_ms(self) -> int:
        """How long ago (ms) a moment may be up to which the tables count as complete."""
        return self._tables.complete_within_ms

    @cached_property
    def completeness(self) -> Completeness:
        """How complete the tables are at the moment of the snapshot."""
        return Completeness(
            progress=self.progress,
            moment=self.moment,
            within_ms=self.complete_within_ms,
            was_observed=self.gap is None if self.is_past else None,
        )

    @property
    def log_ends(self) -> DeltaTable | None:
        """The table of log end samples, opened on first use; None: not created yet."""
        return self._tables.other("log_ends")

    @property
    def samples(self) -> SampleFiles | None:
        """The files of `log_ends`, the same for all reads of these tables; None: not created yet."""
        return self._tables.samples

    def newest_ends(self, topics: Collection[str] | None, *, as_of: int, within_ms: int = 0) -> pa.Table:
        """Read the newest sample of each partition (schema `NEWEST_ENDS`); see `log_ends.newest_ends`."""
        if self.samples is None:
            return no_rows(NEWEST_ENDS)
        return newest_ends(self.samples, topics, as_of=as_of, within_ms=within_ms)

    def offset_times(self, positions: pa.Table, *, as_of: int) -> pa.Table:
        """Read when log ends passed n positions (n rows, schema `CROSSINGS`); see
        `offset_times.offset_times`."""
        if self.samples is None:
            return nothing_crossed(len(positions))
        return offset_times(self.samples, positions, as_of=as_of)

    def topics_over_time(self, topics: Collection[str] | None, *, as_of: int) -> pa.Table:
        """Read the topics and their ids over time (schema `TOPICS_OVER_TIME`), as seen up to a moment (ms);
        see `log_ends.topics_over_time`."""
        if self.samples is None:
            return no_rows(TOPICS_OVER_TIME)
        return topics_over_time(self.samples, topics, as_of=as_of)

    def topics_gone(self, topics: Sequence[str], *, as_of: int) -> dict[str, int]:
        """Read when (ms) topics were last seen deleted, up to a moment (ms); the others are left out."""
        return {} if self.samples is None else gone_at(self.samples, sorted(topics), as_of)

    def committed_partitions(self, *, after: int | None = None) -> pa.Table:
        """Read the distinct topic partitions with committed offsets (columns topic, partition).

        With `after` (a sequence) those committed since, removed or not; else those of the base `offsets` and
        of the changes since.
        """
        up_to = self.progress.sequence
        if after is not None:
            return partitions_committed(self._changes, after=after, up_to=up_to)
        base, changes = self._tables.base("offsets")
        held, mark = partitions_in(base), fold_mark(base)
        newer = partitions_committed(changes, after=mark, up_to=up_to)
        return pa.concat_tables([held, newer]).group_by(["topic", "partition"]).aggregate([])

    def assigned_partitions(self, *, after: int | None = None) -> pa.Table:
        """Read the topic partitions assigned to members (schema `ASSIGNED_PARTITIONS`), limited as in
        `committed_partitions`; some may come twice."""
        up_to = self.progress.sequence
        if after is not None:
            return partitions_assigned(self._changes, after=after, up_to=up_to)
        base, changes = self._tables.base("groups")
        newer = partitions_assigned(changes, after=fold_mark(base), up_to=up_to)
        return pa.concat_tables([partitions_of_members(base), newer])

    def subscribed_topics(self, *, after: int | None = None) -> pa.Table:
        """Read the distinct topics to which groups subscribe (column topic), limited as in
        `committed_partitions`."""
        up_to = self.progress.sequence
        if after is not None:
            return topics_subscribed(self._changes, after=after, up_to=up_to)
        base, changes = self._tables.base("groups")
        held, mark = topics_of(base), fold_mark(base)
        newer = topics_subscribed(changes, after=mark, up_to=up_to)
        return pa.concat_tables([held, newer]).group_by(["topic"]).aggregate([])

    def offsets(
        self,
        groups: Sequence[str] | None = None,
        topics: Sequence[TopicPartitions] = (),
        *,
        columns: pa.Schema | None = None,
    ) -> pa.Table:
        """Read the live offsets of groups (None: all) and topics (none: all; schema `OFFSETS`, or some of its
        columns with at least `KEY` and source_partition), in no order."""
        return _of_topics(topics, lambda few: self._rows("offsets", groups, columns, few))

    def offsets_written_by(
        self,
        moment: int,
        groups: Sequence[str] | None = None,
        topics: Sequence[TopicPartitions] = (),
        *,
        columns: pa.Schema | None = None,
    ) -> pa.Table:
        """Read offsets as `offsets` does, as of the last batch whose changes of these groups were written
        (batch_time) at or before a moment (ms); no rows if that is before the kept history.

        Unlike `as_of`, this includes a batch that was not committed yet at the moment: so these rows, and the
        changes that were written after the moment, are all changes.
        """

        def rows(few: Sequence[TopicPartitions]) -> pa.Table:
            return self._rows_written_by("offsets", moment, groups, columns, few)

        return _of_topics(topics, rows)

    def groups(self, groups: Sequence[str] | None = None) -> pa.Table:
        """Read the live groups (None: all; schema `GROUPS`), in no order; a single one is read once."""
        if groups is None or len(groups) != 1:
            return self._rows("groups", groups)
        if groups[0] not in self._groups:
            self._groups[groups[0]] = self._rows("groups", groups)
        return self._groups[groups[0]]

    def parts(self) -> list[Callable[[], LiveRows]]:
        """Return functions, each of which reads a part of all live offsets and groups: each part has all rows
        of its groups. There are several if the rows are many."""
        bases = {name: self._tables.base(name) for name in ROWS}
        return [partial(self._part, read) for read in live_parts(bases, self.progress.sequence)]

    def _part(self, read: Callable[[], Mapping[str, pa.Table]]) -> LiveRows:
        return LiveRows(**read(), progress=self.progress)

    def live_partitions(self) -> pa.Table:
        """Read the distinct topic partitions with live offsets (columns topic, partition)."""
        columns = {"offsets": pa.schema([*KEY, SOURCE_PARTITION])}
        bases = {"offsets": self._tables.base("offsets")}
        by = ["topic", "partition"]
        found = [
            read()["offsets"].group_by(by).aggregate([])
            for read in live_parts(bases, self.progress.sequence, columns)
        ]
        return pa.concat_tables(found).group_by(by).aggregate([])

    def groups_before(self, groups: Sequence[str], *, until: int) -> pa.Table:
        """Read the named groups (schema `GROUPS`) as of the last batch at a past moment (ms); no rows if that
        is before the kept history."""
        try:
            return self.as_of(until).groups(groups)
        except HistoryGoneError:
            return no_rows(GROUPS)

    def groups_over_time(self, groups: Sequence[str] | None, *, since: int, until: int) -> pa.Table:
        """Read groups (None: all) between two moments (ms; schema `GROUPS_OVER_TIME`), the rows of a group in
        order; nothing from before the kept history."""
        before = self._rows_written_by("groups", since, groups)
        at = to_timestamps(from_numbers(np.full(len(before), since, np.int64)))

        def changed(of: Sequence[str] | None) -> pa.Table:
            up_to = self.progress.sequence
            return groups_between(self._tables.changes_of(of), of, up_to=up_to, since=since + 1, until=until)

        return pa.concat_tables([before.append_column("written_at", at), _of(groups, changed)])

    def keys(self, groups: Sequence[str] | None = None, *, among: Among) -> pa.Table:
        """Read the keys (columns `KEY_NAMES`; for groups the last two are null) of groups (None: all) that
        are `among` these. In no order; a key may come twice."""
        reads = [self._keys_of("groups")]
        reads += [] if among == "groups" else [self._keys_of("offsets")]
        reads += [self._keys_in_changes] if among == "history" else []
        return pa.concat_tables([_of(groups, read) for read in reads])

    def changed_names(self, of: str) -> list[str]:
        """Read the distinct names in a column of changes (`of`: group or topic), in no order."""
        return names_in(self._changes, of, up_to=self.progress.sequence)

    def drops(self, cause: str, *, after: int) -> pa.Table:
        """Read the offsets (schema `DROPS`) removed for a cause by changes after a sequence."""
        return drops_between(self._changes, cause, after=after, up_to=self.progress.sequence)

    def history(
        self,
        groups: Sequence[str] | None = None,
        topics: Sequence[TopicPartitions] = (),
        *,
        since: int | None = None,
        until: int | None = None,
        events: Sequence[str] = (),
    ) -> pa.Table:
        """Read the steps of the committed offsets of groups (None: all) and topics (none: all) up to this
        batch (schema `HISTORY`).

        `since` and `until` (ms, inclusive) limit the time, `events` the kinds of steps.
        """
        return self._of_offsets(groups, topics, partial(read_steps, since=since, until=until, events=events))

    def commits_by_hour(
        self, groups: Sequence[str], topics: Sequence[TopicPartitions] = (), *, since: int
    ) -> pa.Table:
        """Read the number of commits and changes of offsets of a few groups and topics (none: all) in each
        hour (UTC) since a moment (ms; schema `COMMITS_BY_HOUR`)."""
        return commits_by_hour(
            self._tables.changes_of(groups, topics), groups, topics, up_to=self.progress.sequence, since=since
        )

    def commits(
        self,
        groups: Sequence[str] | None = None,
        topics: Sequence[TopicPartitions] = (),
        *,
        since: int,
        until: int | None = None,
        in_order: bool = True,
    ) -> pa.Table:
        """Read the commits of groups (None: all) and topics (none: all) up to this batch (schema `COMMITTED`)
        between two moments (ms, inclusive); the commits of a key are in the order of the log, unless
        `in_order` is false."""
        read = partial(commits_between, since=since, until=until, in_order=in_order)
        return self._of_offsets(groups, topics, read)

    def commit_pieces(
        self, groups: Sequence[str] | None = None, *, since: int, until: int | None = None
    ) -> Iterator[pa.Table]:
        """Read the commits of groups (None: all) as `commits` does, in no order and piece by piece."""
        return commit_pieces(
            self._tables.changes_of(groups), groups, up_to=self.progress.sequence, since=since, until=until
        )

    def pauses(self, groups: Sequence[str] | None = None, *, since: int, longer_than_ms: int) -> pa.Table:
        """Read the commits of groups (None: all) since a moment (ms) that followed a pause longer than
        `longer_than_ms`, and the first commits of keys (schema `PAUSES`), in no order."""

        def pauses(of: Sequence[str] | None) -> pa.Table:
            up_to = self.progress.sequence
            return pauses_since(
                self._tables.changes_of(of), of, up_to=up_to, since=since, longer_than_ms=longer_than_ms
            )

        return _of(groups, pauses)

    def rewinds(
        self,
        groups: Sequence[str] | None = None,
        topics: Sequence[TopicPartitions] = (),
        *,
        after: int = -1,
        since: int,
        until: int | None = None,
    ) -> pa.Table:
        """Read the commits of lower offsets (schema `REWINDS`) of groups (None: all) and topics (none: all)
        in changes after a sequence, written between two moments (ms), in the order of the log."""
        read = partial(rewinds_between, after=after, since=since, until=until)
        return self._of_offsets(groups, topics, read)

    def recent_rewinds(self, held: HeldRewinds, *, since: int) -> pa.Table:
        """As `rewinds` of all groups since a moment (ms), reading only what is not held; see
        `HeldRewinds.of`."""
        return held.of(self._changes, up_to=self.progress.sequence, since=since)

    def group_steps(self, groups: Sequence[str] | None = None) -> pa.Table:
        """Read the states and members of groups (None: all) over the kept history (schema `GROUP_STEPS`), in
        no order."""
        since, up_to = start_of(history_start(self._changes)), self.progress.sequence
        return _of(groups, lambda of: group_steps(self._tables.changes_of(of), of, since=since, up_to=up_to))

    def ends_between(
        self, topics: Collection[str] | None, *, since: int, until: int, within_ms: int = 0
    ) -> pa.Table:
        """Read the samples (schema `NEWEST_ENDS`) of topics (None: all) between two moments (ms), and the
        newest ones before; see `log_ends.ends_between`."""
        if self.samples is None or (topics is not None and not topics):
            return no_rows(NEWEST_ENDS)
        return ends_between(self.samples, topics, since=since, until=until, within_ms=within_ms)

    def ends_at(self, topics: Collection[str], moments: Index, *, within_ms: int = 0) -> pa.Table:
        """Read the samples (schema `NEWEST_ENDS`) of topics that are the newest at some of m moments (ms,
        rising); see `log_ends.ends_at`."""
        if self.samples is None or not topics:
            return no_rows(NEWEST_ENDS)
        return ends_at(self.samples, topics, moments, within_ms=within_ms)

    def whole_since(self) -> int | None:
        """Return the moment (ms) before which changes were dropped; None: none were."""
        return self._tables.whole_since

    def whole_after(self, moment: int | None) -> int | None:
        """Return `whole_since` if it is after a moment (ms; None: all time); None: all changes since the
        moment are there."""
        whole_since = self.whole_since()
        is_reached = moment is not None and whole_since is not None and whole_since <= moment
        return None if is_reached else whole_since

    def starts_after(self, moment: int | None) -> int | None:
        """Return the start of the history (ms) if it is after a moment (ms); None: it is not, or `moment` is
        None.

        (Where changes were dropped, the start is `whole_since`.)
        """
        return None if moment is None else starts_after(self._changes, moment)

    def first_set(self, group: str, *, after: int) -> int | None:
        """Return when (ms) a group or an offset of it was first written after a moment (ms); None: not
        since."""
        return first_set(self._tables.changes_of([group]), group, after=after)

    def removals(self, groups: Sequence[str] | None = None) -> pa.Table:
        """Read the removed offsets (schema `REMOVALS`) of groups (None: all), in no order."""
        return _of(
            groups, lambda of: removals_of(self._tables.changes_of(of), of, up_to=self.progress.sequence)
        )

    def _of_offsets(
        self,
        groups: Sequence[str] | None,
        topics: Sequence[TopicPartitions],
        read: Callable[..., pa.Table],
    ) -> pa.Table:
        """Read changes of offsets of groups (None: all) and topics (none: all) up to this batch: `read` takes
        the changes, groups, topics and `up_to` (a sequence)."""

        def rows(few: Sequence[TopicPartitions], of: Sequence[str] | None) -> pa.Table:
            return read(self._tables.changes_of(of, few), of, few, up_to=self.progress.sequence)

        return _of_topics(topics, lambda few: _of(groups, partial(rows, few)))

    def _rows_written_by(
        self,
        name: str,
        moment: int,
        groups: Sequence[str] | None,
        columns: pa.Schema | None = None,
        topics: Sequence[TopicPartitions] = (),
    ) -> pa.Table:
        sequence = self._written_by(moment, self._tables.changes_of(groups, topics))
        if sequence is None:
            return no_rows(columns or ROWS[name])
        return self._rows(name, groups, columns, topics, min(sequence, self.progress.sequence))

    def _written_by(self, moment: int, changes: Queryable) -> int | None:
        """Return the sequence of the last batch with rows among `changes` that were written at or before a
        moment (ms); None: the moment is before the kept history."""
        held = changes if isinstance(changes, HeldRows) else None
        if (moment, held) not in self._written:
            self._written[moment, held] = self._find_written_by(moment, held)
        return self._written[moment, held]

    def _find_written_by(self, moment: int, held: HeldRows | None) -> int | None:
        if held is not None:
            start = self._tables.whole_since
            return None if start is not None and moment < start else last_written(held, moment)
        try:
            return written_by(self._changes, self._tables.newest, moment)
        except HistoryGoneError:
            return None

    def _rows(
        self,
        name: str,
        groups: Sequence[str] | None,
        columns: pa.Schema | None = None,
        topics: Sequence[TopicPartitions] = (),
        sequence: int | None = None,
    ) -> pa.Table:
        """Read the rows of a folded table as of a sequence (None: of this snapshot)."""
        base, changes = self._tables.base(name)
        up_to = self.progress.sequence if sequence is None else sequence

        def rows(of: Sequence[str] | None) -> pa.Table:
            own = self._tables.changes_of(of, topics) if changes is self._changes else changes
            held = self._tables.folded_of(name, base, of)
            return rows_at(name, base, own, up_to, of, columns, topics, held)

        return _of(groups, rows)

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
        return keys_in(self._tables.changes_of(groups), groups, up_to=self.progress.sequence)


def refuse_future(at: Snapshot) -> Snapshot:
    """Return a snapshot; raises `MisuseError` if it is of a moment in the future, by the clocks of this
    machine and of the job: present rows would look like an answer about that moment."""
    if at.is_past and at.moment > max((now := at.newest()).moment, now.progress.heartbeat):
        raise MisuseError(
            f"as_of: expected a time in the past, found {iso(at.moment)}, which is in the future."
        )
    return at


class PresentSnapshot(Snapshot):
    """The tables as of their last batch, which exposes the open tables themselves. A past snapshot never
    does, so their present content cannot become an answer about the past."""

    def __init__(self, tables: OpenTables) -> None:
        super().__init__(tables)

    @property
    def bases(self) -> Mapping[str, DeltaTable]:
        return {name: self._tables.base(name)[0] for name in ROWS}

    @property
    def changes(self) -> DeltaTable:
        return self._changes

    def other(self, name: str) -> DeltaTable | None:
        """Return a table that is not written with the batches; None: not created yet."""
        return self._tables.other(name)


def _of(groups: Sequence[str] | None, read: Callable[[Sequence[str] | None], pa.Table]) -> pa.Table:
    """Read the rows of groups (None: all); of more than `_MOST_NAMED` groups read all rows and filter."""
    if groups is None or len(groups) <= _MOST_NAMED:
        return read(groups)
    return (rows := read(None)).filter(pc.is_in(rows["group"], value_set=from_texts(groups)))


def _of_topics(
    topics: Sequence[TopicPartitions], read: Callable[[Sequence[TopicPartitions]], pa.Table]
) -> pa.Table:
    """As `_of`, of topics and partitions (none: all); raises `MisuseError` for texts."""
    refuse_texts(topics)
    if sum(1 + len(one.partitions or ()) for one in topics) <= _MOST_NAMED:
        return read(topics)
    return of_topics(read(()), topics)
