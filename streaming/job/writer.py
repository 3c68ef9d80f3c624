"""Writes micro-batches to the tables, and without batches heartbeats and folds."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from streaming.brokers.facts import TopicIds
from streaming.common.times import now_ms
from streaming.expiry.causes import Evidence, undecided, watched_since, with_causes, without_evidence
from streaming.job.reporter import BatchReport
from streaming.job.topic.reasons import RebuildNeededError
from streaming.model.batch_to_write import BatchToWrite
from streaming.model.completeness import loading_in
from streaming.model.errors import MisuseError
from streaming.model.progress import PartitionEnds, PartitionProgress, Progress, Retention
from streaming.model.schemas import CHANGES
from streaming.model.totals import Totals
from streaming.settings.storage import by_reference
from streaming.spark.fold_tasks import FoldsFor
from streaming.spark.session import Evaluation
from streaming.spark.shard_results import ShardResults
from streaming.spark.task_files import announce
from streaming.spark.worker_memory import return_after
from streaming.tables.fences import OtherWriterError
from streaming.tables.files import NewFiles
from streaming.tables.progress_rows import is_observation_due
from streaming.tables.rows import change_rows, quarantine_rows
from streaming.tables.tables import Tables

Clock = Callable[[], int]
Missed = Callable[[Progress, Mapping[int, int]], str | None]
"""Returns why records may have been missed on the way to these positions, as `TopicWatch.missed`."""

MAX_NAMED_GROUPS: Final = 500
"""Up to this many groups are read by name; for more, reading the whole tables is faster."""


_LARGE: Final = 1_000_000
"""Folded offsets from which on a fold takes as much memory and time as a batch of the first reading."""

_MOST_IN_DOUBT: Final = 100
"""After this many commits that may have arrived, the tables are read to find out."""


class ChangesCommitter:
    """Commits to `changes`, each directly on top of this writer's last commit."""

    def __init__(self, tables: Tables, said: Progress) -> None:
        self._tables = tables
        self._known = [said]
        self._observed: Progress | None = None

    def reread(self) -> Progress:
        """Return the progress in the tables; raises `OtherWriterError` as `append` does."""
        found = self._tables.progress()
        if found not in self._known:
            raise OtherWriterError(self._tables.root)
        self._known = [found]
        return found

    def append(
        self, rows: pa.Table, progress: Progress, *, is_batch: bool, new: NewFiles | None = None
    ) -> None:
        """Append rows (schema `CHANGES`), new files with further rows, and the progress.

        Raises `OtherWriterError` if another writer has committed.
        """
        if len(self._known) > _MOST_IN_DOUBT:
            self.reread()
        known = self._known
        self._known = [*known, progress]  # may arrive even if the storage reports a failure
        is_observation = is_batch or is_observation_due(progress, self._observed)
        self._tables.append_changes(
            rows,
            progress,
            is_batch=is_batch,
            is_observation=is_observation,
            after=known,
            new=new,
        )
        self._known = [progress]
        if is_observation:
            self._observed = progress


class BatchWriter:
    """Applies batches to the tables, in order and each once; the only writer of progress.

    A lock serializes batches and heartbeats, which come from another thread. Folds, which may take seconds,
    only exclude each other: they write other tables, from committed changes. After a failed batch nothing
    more is written: the next start finds out whether its commit arrived.
    """

    def __init__(
        self,
        tables: Tables,
        progress: Progress,
        *,
        query_id: Callable[[], str | None],
        positions: Callable[[int], Mapping[int, int]],
        report: Callable[[BatchReport], None],
        topic_ids: TopicIds = lambda _: None,
        missed: Missed = lambda _progress, _positions: None,
        evaluation: Evaluation | None = None,
        folds_for: FoldsFor = lambda _: None,
        clock: Clock = now_ms,
        said: Progress | None = None,
    ) -> None:
        """`said` is the progress in the tables from which `progress` was derived (None: the current one)."""
        self._tables = tables
        self._query_id = query_id
        self._positions = positions
        self._report = report
        self._topic_ids = topic_ids
        self._missed = missed
        self._clock = clock
        self._lock = threading.Lock()
        self._folding = threading.Lock()
        self._rows_since_fold = tables.unfolded_rows()
        self._is_broken = False
        self._is_first = True
        self._evaluation = evaluation or Evaluation()
        self._folds_for = folds_for
        self._commits = ChangesCommitter(tables, tables.progress() if said is None else said)
        self.progress = progress
        self.folded_offsets = 0  # live ones, as of the last fold

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Apply one micro-batch; called by Spark, and again for the same batch after a crash."""
        started = time.monotonic()
        if self.folded_offsets > _LARGE and loading_in(self.progress):
            with self._folding:  # both at once would take too much memory, and each uses all cores
                pass
        begun = self._begun()
        announce(begun, batch.sparkSession.sparkContext)
        try:
            results = ShardResults.collect(batch)
        except Exception:
            self._tables.delete_files_of(begun)
            raise
        report = self.apply(results, batch_id, begun)
        return_after(report.changed_offsets + report.changed_groups)
        self._evaluation.choose(batch.sparkSession, report.moved)
        self._report(replace(report, seconds=time.monotonic() - started))

    def apply(self, results: ShardResults, batch_id: int, begun: BatchToWrite | None = None) -> BatchReport:
        """Write the results of a batch, unless the tables already have them.

        `begun` is the batch that was announced to its tasks (None: none was).
        """
        begun = self._begun() if begun is None else begun
        with self._lock:
            try:
                with self._tables.new_changes() as new:
                    new.take_over(results.written.files)
                    return self._apply(results, batch_id, begun, new)
            except BaseException:
                self._is_broken = True
                raise

    def heartbeat(
        self,
        ends: Mapping[int, PartitionEnds],
        retention: Retention | None = None,
        *,
        asked_at: int | None = None,
        tombstones_kept_ms: int | None = None,
        alerts_evaluated_at: int | None = None,
        reason_to_rebuild: str | None = None,
    ) -> None:
        """Commit a heartbeat: the current progress, with the partitions' ends from the brokers, and the
        retention if it was read again.

        `asked_at` (ms) is the time before all ends were requested. Partitions read up to these ends are
        complete as of then: the process may have been suspended since. None: not all were requested.
        `tombstones_kept_ms` is `delete.retention.ms` of the topic, `alerts_evaluated_at` (ms) the last
        evaluation of alerts; None keeps the known value. `reason_to_rebuild` says why the tables must be
        rebuilt, if they must.
        """
        with self._lock:
            if self._is_broken:
                return
            return_after(0)
            now = self._clock()
            seen = (
                self.progress.with_ends(ends, now)
                if asked_at is None
                else self.progress.with_answers(ends, asked_at)
            ).with_retention(retention)
            seen = seen.with_reason_to_rebuild(reason_to_rebuild, now)
            kept = seen.tombstones_kept_ms if tombstones_kept_ms is None else tombstones_kept_ms
            evaluated_at = seen.alerts_evaluated_at if alerts_evaluated_at is None else alerts_evaluated_at
            self.progress = replace(
                seen, heartbeat=now, tombstones_kept_ms=kept, alerts_evaluated_at=evaluated_at
            )
            self._commits.append(CHANGES.empty_table(), self.progress, is_batch=False)

    def took(self, batch_ms: int) -> None:
        """Record the total duration of a batch (ms) for the next commit: the batch's own commit is part of
        it."""
        with self._lock:
            self.progress = replace(self.progress, batch_ms=batch_ms)

    def fold(self) -> int:
        """Fold the appended changes; return the number of rows."""
        with self._folding:
            with self._lock:
                if self._is_broken:
                    return 0
                waiting = self._rows_since_fold
            folded = self._tables.fold(self._folds_for(waiting))
            return_after(folded)
            self.folded_offsets = self._tables.folded_rows("offsets")
            with self._lock:
                self._rows_since_fold -= waiting  # others may have come meanwhile, and may already be folded
            return folded

    @property
    def rows_since_fold(self) -> int:
        """The number of appended rows that are not folded yet."""
        return self._rows_since_fold

    def _begun(self) -> BatchToWrite:
        """Return the next batch, whose rows get the current time. A sequence without rows is used again."""
        with self._lock:
            now, progress = self._clock(), self.progress
        return BatchToWrite(
            sequence=progress.sequence + 1,
            batch_time=now,
            evidence_since=watched_since(progress.retention, now),
            place=self._tables.place_of_changes,
            storage_options=by_reference(self._tables.storage_options),
            name=uuid4().hex,
        )

    def _apply(self, results: ShardResults, batch_id: int, begun: BatchToWrite, new: NewFiles) -> BatchReport:
        started, before = time.monotonic(), self.progress
        query_id = before.query_id or self._query_id()
        assert query_id is not None, "Spark writes the query's id before it runs the first batch"
        if self._may_be_appended(batch_id) and self._tables.is_appended(query_id, batch_id):
            self.progress = self._commits.reread()
            _refuse_longer_batch(batch_id, self._positions(batch_id), self.progress, self._tables.root)
            _refuse_other_changes(batch_id, results, self.progress)
            totals, failed, offsets, groups = Totals(), 0, 0, 0
        else:
            self._append(results, replace(before, query_id=query_id, batch_id=batch_id), begun, new)
            totals, failed = results.totals, len(results.quarantine)
            offsets, groups = results.changed_offsets, results.changed_groups
        self._is_first = False
        return BatchReport(
            moved=_moved(before, self.progress),
            totals=totals,
            changed_offsets=offsets,
            changed_groups=groups,
            quarantined=failed,
            seconds=time.monotonic() - started,
            progress=self.progress,
        )

    def _may_be_appended(self, batch_id: int) -> bool:
        """Whether the tables may already have a batch: Spark only replays the first one, but tables newer
        than the checkpoint have further ones."""
        appended = self.progress.batch_id
        return self._is_first or appended is None or batch_id <= appended

    def _append(self, results: ShardResults, progress: Progress, begun: BatchToWrite, new: NewFiles) -> None:
        """Append quarantine first and changes last: the commit to `changes` completes the batch.

        A batch without records, such as of markers of transactions, is committed as a heartbeat: the tables
        are never behind the checkpoint (`start_checks.reason_if_older`).

        The progress gets the time of the commit, the rows get the earlier time in `begun`: no reader sees
        them before the commit.
        """
        positions = self._positions(progress.batch_id)
        if reason := self._missed(progress, positions):
            raise RebuildNeededError(reason)
        is_first = self.progress.query_id is None
        rows, clamped = change_rows(results.changes, sequence=begun.sequence, batch_time=begun.batch_time)
        rows = self._with_causes(rows, results.written.ends, positions, begun)
        count = len(rows) + results.written.rows
        sequence = begun.sequence if count else progress.sequence
        failed, clamped_failed = quarantine_rows(
            results.quarantine, sequence=sequence, batch_time=begun.batch_time
        )
        counted = results.totals + Totals(clamped=clamped + clamped_failed)
        after = replace(
            progress,
            sequence=sequence,
            batch_time=begun.batch_time if count else progress.batch_time,
            totals=progress.totals + counted,
            fingerprint=str(results.fingerprint),
        )
        self._tables.append_quarantine(failed, progress)
        now = self._clock()
        after = replace(after.with_positions(positions, now), heartbeat=now)
        is_batch = bool(count or counted or is_first)  # the first one binds the tables to the query
        self._commits.append(rows, after, is_batch=is_batch, new=new)
        self._rows_since_fold += count
        self.progress = after

    def _with_causes(
        self, changes: pa.Table, ends: Mapping[int, int], positions: Mapping[int, int], begun: BatchToWrite
    ) -> pa.Table:
        """Add the causes of removals; reads tables and metadata only if these may decide.

        `ends` are the greatest source offsets of changes in files, and `positions` the ends of the batch, by
        offsets partition.
        """
        retention = self.progress.retention
        now = max(self._clock(), begun.batch_time)  # else tasks may have written rows that matter
        is_undecided = undecided(changes, watched_since(retention, now))
        if not is_undecided.any():
            return without_evidence(changes)
        removed = changes.filter(pa.array(is_undecided))
        groups, topics = (pc.unique(removed[name]).to_pylist() for name in ("group", "topic"))
        before = self._tables.read(groups if len(groups) <= MAX_NAMED_GROUPS else None)
        evidence = Evidence(
            offsets=before.offsets,
            groups=before.groups,
            topic_ids=self._topic_ids(topics),
            retention=retention,
            stalled=_stalled(self.progress),
            now=now,
            ends=ends,
            cut={number for number, end in positions.items() if end < _known_end(self.progress, number)},
        )
        return with_causes(changes, evidence)


def _refuse_longer_batch(batch_id: int, positions: Mapping[int, int], progress: Progress, root: str) -> None:
    """Reject a batch that is already in the tables but ended earlier then: its rest would be lost."""
    for partition, position in positions.items():
        reached = progress.partitions.get(partition, PartitionProgress()).position
        if position > reached:
            raise MisuseError(
                f"replaying batch {batch_id}: expected offsets partition {partition} to end at "
                f"{reached}, as the tables under {root} have it, found {position}. The "
                "checkpoint is older than the tables (a restored backup?). Use the pair that belongs "
                "together, or run `offsetlake rebuild`."
            )


def _refuse_other_changes(batch_id: int, results: ShardResults, progress: Progress) -> None:
    """Reject shards that were filled from fewer records than the tables."""
    appended = progress.fingerprint
    if appended is None or progress.batch_id != batch_id:
        return
    if str(results.fingerprint) != appended:
        raise RebuildNeededError(
            f"batch {batch_id}, which is in the tables, was read again after a crash with a different "
            "result: the topic has been compacted meanwhile"
        )


def _stalled(progress: Progress) -> frozenset[int]:
    """Return the partitions whose last stable offset is held back by an open transaction."""
    return frozenset(
        number
        for number, partition in progress.partitions.items()
        if partition.open_transaction_since is not None
    )


def _known_end(progress: Progress, number: int) -> int:
    """Return the last stable offset of an offsets partition as of the last heartbeat; 0: unknown."""
    return progress.partitions.get(number, PartitionProgress()).last_stable_offset or 0


def _moved(before: Progress, after: Progress) -> int:
    starts = {partition: progress.position for partition, progress in before.partitions.items()}
    return sum(
        progress.position - starts.get(partition, 0) for partition, progress in after.partitions.items()
    )
