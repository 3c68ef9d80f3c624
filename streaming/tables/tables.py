"""The Delta tables under one root: created, appended to and folded by one job, read by anyone.

Every micro-batch is one atomic append to `changes`, the source of truth, whose commit also contains the
progress. A fold brings `offsets` and `groups` up to a sequence of `changes`; readers add the changes above
their mark, so reads are as fresh as the last batch. `quarantine` holds records that could not be decoded,
`alerts` the alerts, `log_ends` samples of the log ends of topic partitions.

`folding` explains the folded tables, `progress_rows` past moments, `commits` concurrent commits.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final, TypeVar

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler

from streaming.common.conf_dir import is_closed, whole_path
from streaming.common.retries import retried
from streaming.common.times import now_ms
from streaming.model.batch_to_write import BatchToWrite
from streaming.model.completeness import COMPLETE_WITHIN_MS
from streaming.model.errors import OffsetlakeError
from streaming.model.progress import Progress
from streaming.model.schemas import ALERTS, CHANGES, LOG_ENDS, QUARANTINE, TABLES_FORMAT
from streaming.tables.change_files import BOUNDED_IN_CHANGES
from streaming.tables.commits import (
    PROGRESS_KEY,
    WORK_TRANSACTION,
    committed,
    has_all,
    has_transaction,
    progress_of,
    restate_progress,
    sign_work,
)
from streaming.tables.feed import rows_in_order
from streaming.tables.fences import WRITER, OtherWriterError, name_in, put_name, refuse_others
from streaming.tables.files import BOUNDED_COLUMNS, NewFiles, write_files, writing_to
from streaming.tables.folding import (
    BUCKET,
    ROWS,
    FoldElsewhere,
    count_rows,
    count_unfolded,
    fold_mark,
    fold_table,
)
from streaming.tables.formats import FORMAT_PROPERTY, refuse_other_format
from streaming.tables.handles import TableHandles
from streaming.tables.progress_rows import observation_row
from streaming.tables.rows import without_groups
from streaming.tables.select import FilesGoneError, in_one_line
from streaming.tables.snapshot import LiveRows, Opener, OpenTables, PresentSnapshot, Snapshot, refuse_future
from streaming.tables.storage_errors import TablesUnreachableError, advice_about

SCHEMAS: Final[Mapping[str, pa.Schema]] = {
    "changes": CHANGES,
    **{name: rows.append(BUCKET) for name, rows in ROWS.items()},
    "quarantine": QUARANTINE,
    "alerts": ALERTS,
    "log_ends": LOG_ENDS,
}
"""The columns of each table under a root."""

_PARTITIONED_BY: Final = ("day", BUCKET.name)
_BOUNDED: Final[Mapping[str, str]] = {
    "changes": ",".join(BOUNDED_IN_CHANGES),
    "log_ends": "sampled_at,topic,partition",
}
"""The columns with bounds in the log, for data skipping; more of them would only lengthen the log."""

_LOG: Final[Mapping[str, str]] = {
    "delta.logRetentionDuration": "interval 1 hours",
    "delta.deletedFileRetentionDuration": "interval 1 hours",
    # Opening a table reads its last checkpoint and all commits since: up to 40 ms for 100 commits.
    "delta.checkpointInterval": "20",
    # Only maintenance cleans the log, once the newest commit contains the job's progress.
    "delta.enableExpiredLogCleanup": "false",
}

_APPEND_ATTEMPTS: Final = 15  # as many as delta-rs would make; each is one check and one commit

T = TypeVar("T")


class TablesMissingError(OffsetlakeError):
    """There are no tables under the given root."""


_DENIED: Final = "(os error 13)"
"""The text in errors of the storage library about a local file that this user may not read."""


_CHECK_OPTIONS: Final = "Check --table-root and the storage options ([tables.storage_options], environment)"

_QUICK: Final = {"timeout": "5s", "retry_timeout": "8s", "max_retries": "5"}
"""Limits of requests to an object store for a first look; by default delta-rs retries for 3 minutes."""


@dataclass(frozen=True)
class Tables:
    """The tables under one root: a folder or a URL. A moment counts as complete up to `complete_within_ms`
    ago (`streaming.model.completeness`).

    A process that may only write as long as no other one has taken over has `names`: its name by fence
    (`streaming.tables.fences`). `live` are the tables beside which a rebuild fills these. With `handles`,
    tables stay open between commits.
    """

    root: str
    storage_options: Mapping[str, str] = field(default_factory=dict)
    complete_within_ms: int = COMPLETE_WITHIN_MS
    names: Mapping[str, str] = field(default_factory=dict)
    live: "Tables | None" = None
    handles: TableHandles | None = field(default=None, compare=False, repr=False)

    # --- the root --------------------------------------------------------------------------------------

    def create(self) -> None:
        """Create the tables that do not exist yet, and put the name of the writer into all of them.

        Raises `OtherFormatError` where another release wrote existing ones, and as `become_writer` does.
        """
        for name, schema in SCHEMAS.items():
            with self._writing(name):
                table = DeltaTable.create(
                    self._uri(name),
                    schema,
                    mode="ignore",
                    name=name,
                    partition_by=[column for column in _PARTITIONED_BY if column in schema.names],
                    configuration=_configuration(name),
                    storage_options=dict(self.storage_options),
                    raise_if_key_not_exists=False,  # the property `offsetlake.format` is unknown to delta-rs
                )
            refuse_other_format(table, self._uri(name))
        if WRITER in self.names:
            for name in SCHEMAS:
                self._become_writer_of(name)

    def at_first(self) -> "Tables":
        """Return the same tables, to find out within seconds whether their object store answers."""
        if "://" not in self.root:
            return self
        return replace(self, storage_options={**_QUICK, **self.storage_options})

    def become_writer(self, *, after: str = "") -> None:
        """Put the name of this process as the writer into all existing tables: others commit nothing to them
        from now on. `after` is the name that was found in `changes` before.

        Raises `OtherWriterError` if another process has become the writer since.
        """
        for name in self.existing():
            self._become_writer_of(name, after)

    def sign_work(self, now: int) -> None:
        """Commit to `changes` that a job was at work at `now` (ms), with the progress as it was."""

        def sign() -> None:
            with self._newest("changes") as changes:
                sign_work(changes, self.storage(changes), now)

        with self._writing("changes"):
            committed(sign)

    def signs_of_work(self) -> tuple[int, int, int]:
        """Return the times (ms) of a job's last heartbeat, batch and sign of work; 0: none."""
        with self._newest("changes") as changes:
            progress, signed_at = self._progress_of(changes), changes.transaction_version(WORK_TRANSACTION)
        return progress.heartbeat, progress.batch_time or 0, signed_at or 0

    def end_writing(self) -> None:
        """Remove the name of the writer from `changes`: it has ended."""

        def end() -> None:
            put_name(self.delta("changes"), WRITER, "")

        committed(end)

    def take_over(self, name: str, fence: str, may: Callable[[str], object]) -> None:
        """Put the name of this process into a fence of a table, unless it is there.

        `may` is called with the name found there, and raises if this process may not take over. The table was
        opened before: if another process takes over meanwhile, the commit fails, and `may` is called again.
        """
        others = {other: own for other, own in self.names.items() if other != fence}

        def put() -> None:
            table = self._open(name)
            refuse_others(table, others, self.root)
            if (found := name_in(table, fence)) != self.names[fence]:
                may(found)
                put_name(table, fence, self.names[fence])

        with self._writing(name):
            committed(put)

    def with_name(self, fence: str, name: str) -> "Tables":
        """Return these tables for the process of this name, which is in a fence of theirs."""
        return replace(self, names={**self.names, fence: name})

    def aside(self) -> "Tables":
        """Return the tables that a rebuild fills beside these."""
        # Without handles: it is deleted and created again.
        return replace(self, root=self._uri("rebuild"), live=self, handles=None)

    def delete(self) -> None:
        """Delete everything under the root, including the remains of an interrupted deletion."""
        with suppress(TableNotFoundError):  # no such folder
            DeltaStorageHandler(self.root, options=dict(self.storage_options)).delete_dir("")

    def existing(self) -> list[str]:
        """Return the names of the existing tables."""
        options = dict(self.storage_options)
        with self._reading("changes"):
            return [name for name in SCHEMAS if DeltaTable.is_deltatable(self._uri(name), options)]

    def delta(self, name: str) -> DeltaTable:
        """Open the current version of a table.

        Raises `TablesMissingError`, `TablesUnreachableError` or `OtherFormatError`, and `OtherWriterError` or
        `MaintenanceBusyError` where another process than that of `names` has taken over.
        """
        return self._checked(name, self._open(name))

    def delta_if_any(self, name: str) -> DeltaTable | None:
        """Open a table as `delta` does; None: not created yet."""
        return _if_any(self.delta, name)

    def created_at(self) -> int:
        """Return when the tables were created (ms)."""
        return self.delta("changes").metadata().created_time

    def storage(self, table: DeltaTable) -> DeltaStorageHandler:
        """Return the folder of a table, with its files and its log."""
        return DeltaStorageHandler(table.table_uri, options=dict(self.storage_options))

    # --- writes of the job -----------------------------------------------------------------------------

    def progress(self) -> Progress:
        """Return the progress in the newest commit to `changes`; a fresh `Progress` if there is none yet."""
        with self._newest("changes") as changes:
            return self._progress_of(changes)

    def progress_if_any(self) -> Progress:
        """Return the progress; a fresh `Progress` also if there are no tables yet."""
        try:
            return self.progress()
        except TablesMissingError:
            return Progress()

    def is_appended(self, query_id: str, batch_id: int) -> bool:
        """Whether this batch of this query is already in `changes`."""
        return self._has_transaction("changes", query_id, batch_id)

    @property
    def place_of_changes(self) -> str:
        """The place of `changes`: an absolute path or a URL."""
        return whole_path(self._uri("changes"))

    def new_changes(self) -> NewFiles:
        """Return a collector for new files of `changes`, which `append_changes` commits."""
        return self._new_files("changes")

    def delete_files_of(self, batch: BatchToWrite) -> None:
        """Try to delete the files of a batch whose tasks failed: their names were not returned."""
        with suppress(DeltaError, OSError), self.at_first().new_changes() as new:
            new.find(batch.folder, batch.name)

    def append_changes(
        self,
        rows: pa.Table,
        progress: Progress,
        *,
        is_batch: bool,
        is_observation: bool = True,
        after: Collection[Progress] | None = None,
        new: NewFiles | None = None,
    ) -> None:
        """Append rows (schema `CHANGES`, maybe none) and the progress in one commit, together with the files
        in `new` (see `new_changes`).

        `is_batch` records the batch of the progress as applied, so that a replay of it is recognized.
        `is_observation` adds the progress as a row, which lasts longer than metadata. `after` (None:
        anything) is the progress that the tables may have before; any other raises `OtherWriterError`. The
        commit goes on top of the version that was checked. Where the tables already have the new progress, an
        attempt that seemed to fail has arrived.
        """
        if is_observation:
            rows = pa.concat_tables([rows, observation_row(progress)])
        transactions = (
            [Transaction(progress.query_id, progress.batch_id)] if is_batch and progress.query_id else []
        )
        commit = CommitProperties(
            custom_metadata={PROGRESS_KEY: progress.to_json()},
            app_transactions=transactions,
            max_commit_retries=0,
        )
        is_done = None if after is None else partial(self._says, progress, after)
        self._append("changes", without_groups(rows), commit, is_done, new)

    def append_quarantine(self, rows: pa.Table, progress: Progress) -> None:
        """Append undecoded records (schema `QUARANTINE`), unless the batch of the progress has already done
        so."""
        query_id, batch_id = str(progress.query_id), progress.batch_id
        if len(rows) and not self._has_transaction("quarantine", query_id, batch_id):
            done = Transaction(query_id, batch_id)
            commit = CommitProperties(app_transactions=[done], max_commit_retries=0)
            self._append("quarantine", rows, commit)

    def append_log_ends(self, rows: pa.Table) -> None:
        """Append samples (schema `LOG_ENDS`) in one commit."""
        self._append("log_ends", rows, CommitProperties(max_commit_retries=0))

    def restate_progress(self) -> None:
        """Ensure that the newest commit to `changes` contains the progress, so that older commits can be
        deleted.

        Safe beside a running job: a repeated progress is committed directly on top of the version it was read
        from, or not at all.
        """
        committed(self._restate_progress)

    # --- folds -----------------------------------------------------------------------------------------

    def fold(self, elsewhere: FoldElsewhere | None = None) -> int:
        """Fold `offsets` and `groups` up to the newest change, in this process or (`elsewhere`) in others;
        return the number of changed keys.

        Each table's mark is part of the same commit, so a repeated fold changes nothing.
        """
        with self._newest("changes") as changes:
            sequence = self._progress_of(changes).sequence
            folded = 0
            for name in ROWS:
                with self._writing(name):
                    folded += committed(partial(self._fold_table, name, changes, sequence, elsewhere))
        return folded

    def folded_up_to(self) -> int:
        """Return the sequence up to which all folded tables contain the changes."""
        return min(map(self._fold_mark, ROWS))

    def folded_rows(self, name: str) -> int:
        """Count the rows of a folded table."""
        return count_rows(self.delta(name))

    def unfolded_rows(self) -> int:
        """Count the changes above the lowest mark of the folded tables."""
        return count_unfolded(self.delta("changes"), self.folded_up_to())

    # --- reads -----------------------------------------------------------------------------------------

    def read(self, groups: Sequence[str] | None = None, *, as_of: int | None = None) -> LiveRows:
        """Read the live offsets and groups of groups (None: all) as of the last batch.

        `as_of` (ms): as of the last batch at a past moment; may raise `HistoryGoneError`.
        """
        return self.ask(lambda at: LiveRows(at.offsets(groups), at.groups(groups), at.progress), as_of=as_of)

    def ask(
        self, question: Callable[[Snapshot], T], *, as_of: int | None = None, now: int | None = None
    ) -> T:
        """Call `question` with one snapshot, as of the last batch or of a past moment (ms), and return its
        result.

        One answer is one call. It is called again when maintenance has meanwhile removed files that it
        needed. `now` (ms) is the moment of a present snapshot (None: the current time). Raises
        `HistoryGoneError` for a moment before the kept history, and `MisuseError` for one in the future.
        """

        def answer() -> T:
            with ExitStack() as answered:
                changes = answered.enter_context(self._newest("changes"))
                opened = self._opened(changes, now=now, root=_Lending(self, answered))
                return question(refuse_future(Snapshot(opened, as_of)))

        return retried(FilesGoneError, answer)

    def ask_now(self, question: Callable[[PresentSnapshot], T]) -> T:
        """As `ask`, with a snapshot of the last batch that exposes the tables themselves."""

        def answer() -> T:
            bases = {name: self.delta(name) for name in ROWS}  # before `changes`, which must be the newer
            return question(PresentSnapshot(self._opened(self.delta("changes"), bases)))

        return retried(FilesGoneError, answer)

    def read_quarantine(self) -> pa.Table:
        """Read the records that could not be decoded (schema `QUARANTINE`), in the order of the log."""
        return rows_in_order(self.delta("quarantine"), QUARANTINE)

    def read_changes(self) -> pa.Table:
        """Read all changes (schema `CHANGES`) of offsets and groups, ordered by batch."""
        return rows_in_order(self.delta("changes"), CHANGES, """"kind" <> 'progress'""")

    def _new_files(self, name: str) -> NewFiles:
        return NewFiles.of(self._uri(name), self.storage_options)

    def _uri(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}"

    def _open(self, name: str) -> DeltaTable:
        with self._reading(name):
            return DeltaTable(self._uri(name), storage_options=dict(self.storage_options))

    def _checked(self, name: str, table: DeltaTable) -> DeltaTable:
        refuse_other_format(table, self._uri(name))
        refuse_others(table, self.names, self.root)
        return table

    @contextmanager
    def _newest(self, name: str) -> Iterator[DeltaTable]:
        """As `delta`, for the `with` block alone: a later one may bring the same object up to date."""
        uri = self._uri(name)
        kept = None if self.handles is None else self.handles.taken(uri)
        table = self.delta(name) if kept is None else self._checked(name, kept)
        yield table
        if self.handles is not None:
            self.handles.put_back(uri, table)

    def _progress_of(self, changes: DeltaTable) -> Progress:
        with self._reading("changes"):
            return progress_of(changes, self.storage(changes))

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        try:
            yield
        except (DeltaError, OSError) as error:
            raise self._not_opened(name, error) from error

    def _not_opened(self, name: str, error: Exception) -> OffsetlakeError:
        root, place = whole_path(self.root), whole_path(self._uri(name))
        if is_closed(self.root) or _DENIED in str(error):
            found = "one" if is_closed(self.root) else "files in it"
            return TablesUnreachableError(
                f"reading tables: expected a folder that this user may read at {root}, found {found} that "
                "only others may. Be its owner; or its group, where the job has [job] readable_by_group on."
            )
        if Path(self.root).is_file():
            return TablesUnreachableError(
                f"reading tables: expected a folder at {root}, found a file. Check --table-root."
            )
        if isinstance(error, TableNotFoundError):
            return TablesMissingError(
                f"reading tables: expected a Delta table at {place}, found none. "
                "Check --table-root, or start `offsetlake run` first."
            )
        said = in_one_line(error)
        return TablesUnreachableError(
            f"reading {place}: expected a Delta table, found: {said}. {advice_about(said) or _CHECK_OPTIONS}."
        )

    def _writing(self, name: str) -> AbstractContextManager[None]:
        return writing_to(self._uri(name))

    def _opened(
        self,
        changes: DeltaTable,
        bases: Mapping[str, DeltaTable] | None = None,
        now: int | None = None,
        root: Opener | None = None,
    ) -> OpenTables:
        newest = self._progress_of(changes)
        return OpenTables(root or self, changes, newest, now_ms() if now is None else now, bases or {})

    # Each of these opens its table itself, since it may be repeated (see `committed`).

    def _append(
        self,
        name: str,
        rows: pa.Table,
        commit: CommitProperties,
        is_done: Callable[[DeltaTable], bool] | None = None,
        new: NewFiles | None = None,
    ) -> None:
        """Append rows and new files in one commit, on top of a version for which `is_done` is false.

        By default a commit is done if the table has all of its transactions.
        """
        with (
            self._writing(name),
            self._new_files(name) if new is None else new as files,
            self._newest(name) as table,
        ):
            write_files(table, files, rows)
            newest = chain([table], iter(lambda: self.delta(name), None))

            def append() -> None:
                table = next(newest)
                if not (has_all(table, commit) if is_done is None else is_done(table)):
                    files.commit(table, [], commit)

            committed(append, _APPEND_ATTEMPTS)

    def _says(self, progress: Progress, after: Collection[Progress], changes: DeltaTable) -> bool:
        """Whether the progress in `changes` is this one; raises `OtherWriterError` if it is none of `after`
        either."""
        found = progress_of(changes, self.storage(changes))
        if found != progress and found not in after:
            raise OtherWriterError(self.root)
        return found == progress

    def _fold_table(
        self, name: str, changes: DeltaTable, sequence: int, elsewhere: FoldElsewhere | None
    ) -> int:
        with self._newest(name) as table:
            return fold_table(name, table, self.storage(table), changes, sequence, elsewhere)

    def _fold_mark(self, name: str) -> int:
        with self._newest(name) as table:
            return fold_mark(table)

    def _has_transaction(self, name: str, application: str, version: int) -> bool:
        with self._newest(name) as table:
            return has_transaction(table, application, version)

    def _restate_progress(self) -> None:
        changes = self.delta("changes")
        restate_progress(changes, self.storage(changes))

    def _become_writer_of(self, name: str, after: str = "") -> None:
        """The writer is who is named in `changes` of the live tables."""
        live = self.live or self

        def may(found: str) -> None:
            if live is not self or name != "changes":
                live.delta("changes")
            elif found not in ("", after):
                raise OtherWriterError(self.root)

        self.take_over(name, WRITER, may)


@dataclass(frozen=True)
class _Lending:
    """Opens tables until an answer is complete; then they are put back (`Tables.handles`)."""

    tables: Tables
    answered: ExitStack

    @property
    def complete_within_ms(self) -> int:
        return self.tables.complete_within_ms

    def delta(self, name: str) -> DeltaTable:
        return self.answered.enter_context(self.tables._newest(name))

    def delta_if_any(self, name: str) -> DeltaTable | None:
        return _if_any(self.delta, name)


def _if_any(opened: Callable[[str], DeltaTable], name: str) -> DeltaTable | None:
    try:
        return opened(name)
    except TablesMissingError:
        return None


def _configuration(name: str) -> dict[str, str | None]:
    bounded = {BOUNDED_COLUMNS: _BOUNDED[name]} if name in _BOUNDED else {}
    return {**_LOG, **bounded, FORMAT_PROPERTY: str(TABLES_FORMAT)}
