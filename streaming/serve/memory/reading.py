"""Reads the tables into in-memory snapshots: whole, or what commits have added since the snapshot before.

Offsets, groups and progress of a snapshot are of one batch. The reading advances from one commit of the Delta
log to the next and skips none. It starts over where that is impossible: the log was cleaned up or replaced,
or a commit does more than append a batch. Each table is tailed separately, because samples of log ends and
alerts are not written together with batches.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal, Protocol, Self

import pyarrow as pa

from streaming.alerts.listing import listed, undelivered_counts
from streaming.alerts.table import AlertTable
from streaming.common.freed_memory import return_freed_memory
from streaming.common.retries import retried
from streaming.common.times import MINUTE_MS
from streaming.model.progress import Progress
from streaming.model.schemas import COMMITS, OFFSETS
from streaming.serve.memory.changes import (
    CHANGE_COLUMNS,
    GROUP_COLUMNS,
    NAMES_OF_OFFSETS,
    OFFSET_COLUMNS,
    Changes,
)
from streaming.serve.memory.samples import NAMES_OF_SAMPLES, SAMPLE_COLUMNS, SampleRows, newest_rows
from streaming.serve.memory.snapshot import MemorySnapshot
from streaming.tables.folding import ROWS, fold_mark
from streaming.tables.log_ends import SampleFiles
from streaming.tables.select import FilesGoneError
from streaming.tables.snapshot import PresentSnapshot, Snapshot
from streaming.tables.tables import Tables
from streaming.tables.tail.log import Commit, LogLostError, LogTail
from streaming.tables.tail.rows import files_of, rows_of

_MANY_ROWS: Final = 250_000
"""The number of changes to apply at once: rows as read take more memory than the columns that they become."""

_SPARE_PLACES: Final = 10_000

_BATCH_ROWS: Final = 32 * 1024  # of a past moment, to add at once

_OF_OFFSETS: Final = pa.schema([OFFSETS.field(name) for name in OFFSET_COLUMNS])

_RESTORE: Final = "RESTORE"

_READ: Final = {"offsets": (OFFSET_COLUMNS, NAMES_OF_OFFSETS), "groups": (GROUP_COLUMNS, ())}
"""The columns to read from the folded tables, and those of them to read as dictionaries."""


class Counting(Protocol):
    """Counts over all changes that are tailed; immutable, so each method returns a new object."""

    def with_changes(self, rows: pa.RecordBatch) -> Self:
        """Count rows of `changes` (those of `COUNTED_COLUMNS` that the file has)."""

    def with_snapshot(self, snapshot: MemorySnapshot) -> Self:
        """Count what the job reports as read in the newest snapshot."""


COUNTED_COLUMNS: Final = [
    *("sequence", "batch_time", "kind", "op", "group", "topic", "partition", "before", "after", "cause"),
    *("source_partition", "source_offset"),
    COMMITS.name,
]
"""The columns of `changes` to read for counters, beside those for the snapshot."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A snapshot, and the positions up to which its tables were read (None: not at all yet).

    `places` is the number of topic partitions at the last full read. `counters` counts the changes since the
    first snapshot (None: nothing is counted).
    """

    snapshot: MemorySnapshot
    counters: Counting | None = None
    changes: LogTail | None = None
    log_ends: LogTail | None = None
    alerts: LogTail | None = None
    places: int = 0


def read_batches(tables: Tables, reading: Reading, now: int) -> Reading:
    """Return the reading with the newest offsets, groups and progress.

    Raises the errors of `Tables.delta`, and `QueryFailedError`.
    """
    read = _read(tables, reading)
    if reading.counters is None or read.snapshot.progress is reading.snapshot.progress:
        return read
    return replace(read, counters=(read.counters or reading.counters).with_snapshot(read.snapshot))


def _read(tables: Tables, reading: Reading) -> Reading:
    if reading.changes is not None and len(reading.snapshot.committing) <= 2 * reading.places + _SPARE_PLACES:
        with suppress(LogLostError, FilesGoneError):
            return _with_commits(reading, reading.changes)
    return tables.ask_now(partial(_whole, tables, reading))


def read_log_ends(tables: Tables, reading: Reading, now: int) -> Reading:
    """Return the reading with the newest samples of log ends; `now` is in ms."""
    until = max(now, reading.snapshot.progress.heartbeat) + MINUTE_MS
    if reading.log_ends is not None:
        with suppress(LogLostError, FilesGoneError):
            return _with_samples(reading, reading.log_ends, until)
    return retried(FilesGoneError, lambda: _with_all_samples(tables, reading, until))


def read_alerts(tables: Tables, reading: Reading, now: int) -> Reading:
    """Return the reading with the open alerts."""
    if reading.alerts is not None:
        with suppress(LogLostError):
            if not any(True for _ in reading.alerts.commits()):
                return reading
    if tables.delta_if_any("alerts") is None:
        return reading
    state = AlertTable(tables).read()
    snapshot = replace(
        reading.snapshot, alerts=listed(state.open_episodes()), undelivered=undelivered_counts(state)
    )
    return replace(reading, snapshot=snapshot, alerts=LogTail.of(tables, state.table))


def read_as_of(tables: Tables, moment: int) -> MemorySnapshot:
    """Return the offsets, groups and log ends as of a past moment (ms), without alerts.

    Raises `HistoryGoneError` if the moment is before the kept history, and as `read_batches` does. Whether
    the job was at work then is the caller's question.
    """
    snapshot = tables.ask(_past, as_of=moment)
    reading = Reading(snapshot=snapshot)
    return retried(FilesGoneError, lambda: _with_all_samples(tables, reading, moment)).snapshot


# --- offsets and groups ----------------------------------------------------------------------------------


def _whole(tables: Tables, reading: Reading, at: PresentSnapshot) -> Reading:
    """Read everything as of a batch; the samples of log ends must be read next."""
    tail = LogTail.of(tables, at.changes)
    growing = _Growing(MemorySnapshot.none(), at.progress)
    written_by = at.progress.batch_time or at.progress.heartbeat
    for rows in _held(tables, at, "offsets"):
        growing.changes.add_offsets(rows, written_by)
        growing.grow(_MANY_ROWS)
    for rows in _held(tables, at, "groups"):
        growing.changes.add_groups(rows)
    growing.grow()
    marks = {name: fold_mark(base) for name, base in at.bases.items()}
    for file in files_of(at.changes):
        if file.last_sequence is None or file.last_sequence > min(marks.values()):
            for rows in rows_of(tail.storage, file.path, CHANGE_COLUMNS, after=min(marks.values())):
                for name, mark in marks.items():
                    growing.changes.add_changes(rows, of=name, after=mark, up_to=at.progress.sequence)
    growing.grow()
    snapshot = replace(growing.snapshot, progress=at.progress)
    snapshot = replace(snapshot, alerts=reading.snapshot.alerts, undelivered=reading.snapshot.undelivered)
    return_freed_memory()
    return replace(reading, snapshot=snapshot, changes=tail, log_ends=None, places=len(snapshot.committing))


def _past(at: Snapshot) -> MemorySnapshot:
    """Read offsets and groups as of a batch of the past; the samples of log ends must be read next."""
    growing = _Growing(MemorySnapshot.none(), at.progress)
    written_by = at.progress.batch_time or at.progress.heartbeat
    for rows in _batches(at.offsets(columns=_OF_OFFSETS)):
        growing.changes.add_offsets(rows, written_by)
        growing.grow(_MANY_ROWS)
    for rows in _batches(at.groups()):
        growing.changes.add_groups(rows)
    growing.grow()
    return_freed_memory()
    return replace(growing.snapshot, progress=at.progress, was_observed=True)


def _batches(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    return iter(rows.to_batches(_BATCH_ROWS))


def _held(
    tables: Tables, at: PresentSnapshot, name: Literal["offsets", "groups"]
) -> Iterator[pa.RecordBatch]:
    """Read a folded table batch by batch, without the changes since its last fold."""
    base = at.bases[name]
    storage = tables.storage(base)
    columns, names = _READ[name]
    for file in files_of(base):
        yield from rows_of(storage, file.path, columns, dictionaries=names)


def _with_commits(reading: Reading, tail: LogTail) -> Reading:
    """Apply new commits; raises `LogLostError` where the log cannot be tailed."""
    growing, counters = _Growing(reading.snapshot, reading.snapshot.progress), reading.counters
    columns = CHANGE_COLUMNS if counters is None else {*CHANGE_COLUMNS, *COUNTED_COLUMNS}
    for commit, position in tail.commits():
        _check(commit, growing.progress)
        growing.progress = commit.progress or growing.progress
        for path in commit.added if commit.adds_rows else ():
            after, up_to = reading.snapshot.progress.sequence, growing.progress.sequence
            for rows in rows_of(tail.storage, path, columns, after=after):
                counters = None if counters is None else counters.with_changes(rows)
                for name in ROWS:
                    growing.changes.add_changes(rows, of=name, after=after, up_to=up_to)
        growing.grow(_MANY_ROWS)
        tail = position
    growing.grow()
    if growing.progress is reading.snapshot.progress:
        return reading if tail is reading.changes else replace(reading, changes=tail)
    snapshot = replace(growing.snapshot, progress=growing.progress)
    return replace(reading, changes=tail, snapshot=snapshot, counters=counters)


def _check(commit: Commit, before: Progress) -> None:
    """Raise `LogLostError` unless the job made the commit or it leaves the rows as they are."""
    is_foreign = commit.removes_rows or (commit.adds_rows and commit.progress is None)
    if commit.alters_table or is_foreign or (commit.progress or before).sequence < before.sequence:
        raise LogLostError(
            f"following `changes`: expected batches of the job, found commit {commit.version} "
            f"({commit.operation or 'of no name'}), which does more than append one."
        )


class _Growing:
    """A snapshot and pending changes, applied when they are many."""

    def __init__(self, snapshot: MemorySnapshot, progress: Progress) -> None:
        self.snapshot = snapshot
        self.progress = progress
        self.changes = Changes(snapshot.offsets.columns.texts)

    def grow(self, enough: int = 1) -> None:
        """Apply the pending changes if there are at least `enough`."""
        if len(self.changes) >= enough:
            self.snapshot = self.snapshot.with_changes(self.changes, self.progress)
            self.changes = Changes(self.snapshot.offsets.columns.texts)


# --- log ends --------------------------------------------------------------------------------------------


def _with_all_samples(tables: Tables, reading: Reading, until: int) -> Reading:
    table = tables.delta_if_any("log_ends")
    if table is None and reading.log_ends is None:
        return reading  # not created yet
    snapshot = reading.snapshot.without_ends()
    if table is None:
        return replace(reading, snapshot=snapshot, log_ends=None)
    tail, rows = LogTail.of(tables, table), SampleRows()
    for batch in newest_rows(SampleFiles(table), until=until):
        rows.add(batch)
        if len(rows) > _MANY_ROWS:
            snapshot, rows = snapshot.with_topics(*rows.taken_by(snapshot.topics, until=until)), SampleRows()
    snapshot = snapshot.with_topics(*rows.taken_by(snapshot.topics, until=until))
    return replace(reading, snapshot=snapshot, log_ends=tail)


def _with_samples(reading: Reading, tail: LogTail, until: int) -> Reading:
    rows = SampleRows()
    for commit, position in tail.commits():
        if commit.alters_table or commit.operation == _RESTORE:
            raise LogLostError(
                f"following `log_ends`: expected samples, found commit {commit.version} ({commit.operation})."
            )
        if commit.adds_rows and not commit.removes_rows:  # else maintenance has compacted files
            for path in commit.added:
                for batch in rows_of(tail.storage, path, SAMPLE_COLUMNS, dictionaries=NAMES_OF_SAMPLES):
                    rows.add(batch)
        tail = position
    snapshot = reading.snapshot
    if len(rows):
        snapshot = snapshot.with_topics(*rows.taken_by(snapshot.topics, until=until))
    return reading if tail is reading.log_ends else replace(reading, snapshot=snapshot, log_ends=tail)
