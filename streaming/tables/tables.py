"""The Delta tables: what each batch changed, what follows from it, and what could not be decoded.

Written by one job, read by anybody. Every micro-batch is one atomic append to `changes`, the truth, whose
commit also carries the progress. A fold brings `offsets` and `groups` up to a sequence of `changes`; readers
take these and add the changes above their mark, so they are as fresh as the last batch. `quarantine` keeps
records that could not be decoded.

How the folded tables work is in `folded`, how past moments are found in `observations`.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler

from streaming.model.errors import MisuseError, OffsetlakeError
from streaming.model.progress import Progress
from streaming.model.schemas import ALERTS, CHANGES, QUARANTINE, TABLES_FORMAT
from streaming.tables.drops import drops_between, removals_of
from streaming.tables.feed import read_steps, whole_since
from streaming.tables.files import append_rows
from streaming.tables.folding import BUCKET, ROWS, fold_mark, fold_table, rows_at
from streaming.tables.formats import FORMAT_PROPERTY, format_of, upgrade
from streaming.tables.progress_rows import Gap, Observation, observation_row, observed_at
from streaming.tables.select import FilesGoneError, in_one_line, names, select

PROGRESS_KEY: Final = "offsetlake.progress"

_SCHEMAS: Final[Mapping[str, pa.Schema]] = {
    "changes": CHANGES,
    **{name: rows.append(BUCKET) for name, rows in ROWS.items()},
    "quarantine": QUARANTINE,
    "alerts": ALERTS,
}
_PARTITIONED_BY: Final = ("day", BUCKET.name)
_STATISTICS: Final[Mapping[str, str]] = {"changes": "sequence,batch_time,kind,group"}
"""Columns by which files are passed over. Others only make the log longer, in which statistics are kept."""

_LOG: Final[Mapping[str, str]] = {
    "delta.logRetentionDuration": "interval 1 hours",
    "delta.deletedFileRetentionDuration": "interval 1 hours",
    "delta.checkpointInterval": "100",
    # Only maintenance cleans the log, once the newest commit says how far the job has come.
    "delta.enableExpiredLogCleanup": "false",
}

_ATTEMPTS: Final = 5

T = TypeVar("T")


class TablesMissingError(OffsetlakeError):
    """There are no tables under the given root."""


class TablesUnreachableError(OffsetlakeError):
    """The storage under the given root refused, or could not be reached."""


class TablesTooNewError(MisuseError):
    """A newer release wrote the tables, in a format that this one does not know."""


class ProgressMissingError(OffsetlakeError):
    """Other programs have committed to `changes` so often that the job's last word is gone."""


@dataclass(frozen=True)
class Snapshot:
    """The live offsets and groups (schemas `OFFSETS`, `GROUPS`) at one moment, and its progress."""

    offsets: pa.Table
    groups: pa.Table
    progress: Progress


@dataclass(frozen=True)
class Moment:
    """The tables as of one moment: whatever is read from it belongs together.

    `gap` is the time without sign of life that the moment lies in, if any.
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
        """Read how the groups' positions moved up to the moment (schema `HISTORY`), since `since` (ms)."""
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


@dataclass(frozen=True)
class Tables:
    """The tables under one root: a folder or a URL."""

    root: str
    storage_options: Mapping[str, str] = field(default_factory=dict)

    def create(self) -> None:
        """Create the tables that do not exist yet, and bring those of an older format to the present one.

        Raises `TablesTooNewError` where a newer release wrote them.
        """
        for name, schema in _SCHEMAS.items():
            with self._writing(name):
                DeltaTable.create(
                    self._uri(name),
                    schema,
                    mode="ignore",
                    name=name,
                    partition_by=[column for column in _PARTITIONED_BY if column in schema.names],
                    configuration=_configuration(name),
                    storage_options=dict(self.storage_options),
                    raise_if_key_not_exists=False,  # for our own
                )
                _despite_others(partial(self._upgrade, name, schema))

    def aside(self) -> "Tables":
        """Return the tables that are filled beside these while they are rebuilt."""
        return Tables(self._uri("rebuild"), self.storage_options)

    def delete(self) -> None:
        """Delete everything under the root, also what an interrupted deletion has left."""
        with suppress(TableNotFoundError):  # no such folder
            DeltaStorageHandler(self.root, options=dict(self.storage_options)).delete_dir("")

    def existing(self) -> list[str]:
        """Return the names of the tables that exist."""
        options = dict(self.storage_options)
        return [name for name in _SCHEMAS if DeltaTable.is_deltatable(self._uri(name), options)]

    def delta(self, name: str) -> DeltaTable:
        """Open one table as it stands now."""
        return self._open(name)

    def progress(self) -> Progress:
        """Return what the newest commit to `changes` says; a fresh `Progress` when there is none yet."""
        return self._progress(self._open("changes"))

    def progress_if_any(self) -> Progress:
        """Return the progress, a fresh one also where there are no tables yet."""
        try:
            return self.progress()
        except TablesMissingError:
            return Progress()

    def is_appended(self, query_id: str, batch_id: int) -> bool:
        """Tell whether this batch of this query is in `changes` already.

        delta-rs records application transactions but does not enforce them, so the writer asks first.
        """
        return _has_transaction(self._open("changes"), query_id, batch_id)

    def append_changes(
        self, rows: pa.Table, progress: Progress, *, is_batch: bool, is_observation: bool = True
    ) -> None:
        """Append rows (schema `CHANGES`, maybe none) and the progress in one commit.

        `is_batch` notes the progress's batch as applied, so that a replay of it is recognized.
        `is_observation` keeps the progress as a row too, which lasts longer than metadata.
        """
        if is_observation:
            rows = pa.concat_tables([rows, observation_row(progress)])
        transactions = (
            [Transaction(progress.query_id, progress.batch_id)] if is_batch and progress.query_id else []
        )
        self._append("changes", rows, {PROGRESS_KEY: progress.to_json()}, transactions)

    def append_quarantine(self, rows: pa.Table, progress: Progress) -> None:
        """Append what could not be decoded, unless the progress's batch has done so before."""
        query_id, batch_id = str(progress.query_id), progress.batch_id
        if len(rows) and not _has_transaction(self._open("quarantine"), query_id, batch_id):
            self._append("quarantine", rows, {}, [Transaction(query_id, batch_id)])

    def restate_progress(self) -> None:
        """See to it that the newest commit to `changes` says the progress, so that older ones may go.

        Safe beside a running job: what is repeated is committed directly on top of what was read, or not.
        """
        _despite_others(self._restate_progress_once)

    def fold(self) -> int:
        """Bring `offsets` and `groups` up to the newest change; return how many rows were folded.

        Each table notes the sequence that it contains in the same commit, so a fold that is repeated
        changes nothing.
        """
        changes = self._open("changes")
        sequence = self._progress(changes).sequence
        folded = 0
        for name in ROWS:
            with self._writing(name):
                folded += _despite_others(partial(self._fold_table, name, changes, sequence))
        return folded

    def unfolded_rows(self) -> int:
        """Count the changes that at least one of the folded tables does not contain yet."""
        mark = min(fold_mark(self._open(name)) for name in ROWS)
        condition = f""""sequence" > {mark} AND "kind" <> 'progress'"""
        counted = select(
            f'SELECT count(*) AS "rows" FROM changes WHERE {condition}', changes=self._open("changes")
        )
        return int(counted["rows"][0].as_py())

    def read(self, groups: Sequence[str] | None = None, *, as_of: int | None = None) -> Snapshot:
        """Read the live offsets and groups, of all groups or of the named ones, as of the last batch.

        `as_of` (ms) asks for the last batch at a past moment instead; may raise `HistoryGoneError`.
        """
        return self.ask(lambda at: Snapshot(at.offsets(groups), at.groups(groups), at.progress), as_of=as_of)

    def ask(
        self,
        question: Callable[[Moment], T],
        *,
        as_of: int | None = None,
        bases: Sequence[str] = tuple(ROWS),
    ) -> T:
        """Answer a question from the tables as of the last batch, or as of a past moment (ms).

        `bases` names the folded tables that it is about: opening the others would take time for nothing.
        A question is asked again when maintenance has meanwhile removed files that it needed.
        """
        for _ in range(_ATTEMPTS - 1):
            with suppress(FilesGoneError):
                return question(self._moment(as_of, bases))
        return question(self._moment(as_of, bases))

    def read_quarantine(self) -> pa.Table:
        """Read the records that could not be decoded (schema `QUARANTINE`), in the order of the log."""
        return self._read_log("quarantine")

    def read_changes(self) -> pa.Table:
        """Read all changes (schema `CHANGES`) of offsets and groups, batch by batch in their order."""
        return self._read_log("changes", """ WHERE "kind" <> 'progress'""")

    def _uri(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}"

    def _upgrade(self, name: str, schema: pa.Schema) -> None:
        table = self._open(name)
        upgrade(table, self.storage(table), schema)

    def _open(self, name: str) -> DeltaTable:
        table = self._open_any(name)
        found = format_of(table)
        if found > TABLES_FORMAT:
            raise TablesTooNewError(
                f"opening {self._uri(name)}: expected a table of format {TABLES_FORMAT} or older, found "
                f"format {found}. A newer offsetlake wrote it; use that release or a newer one."
            )
        return table

    def _open_any(self, name: str) -> DeltaTable:
        try:
            return DeltaTable(self._uri(name), storage_options=dict(self.storage_options))
        except TableNotFoundError as error:
            raise TablesMissingError(
                f"reading tables under {self.root}: expected a Delta table at {self._uri(name)}, found none. "
                "Check --table-root, or start `offsetlake run` first."
            ) from error
        except (DeltaError, OSError) as error:
            raise TablesUnreachableError(
                f"reading {self._uri(name)}: expected a Delta table, found: {in_one_line(error)}. "
                "Check --table-root and the storage options ([tables.storage_options], environment)."
            ) from error

    @contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        try:
            yield
        except (DeltaError, OSError) as error:
            raise TablesUnreachableError(
                f"writing to {self._uri(name)}: expected storage that takes it, found: {in_one_line(error)}. "
                "Is there room, and may this process write there? Nothing is lost: once it can, the job goes "
                "on where the tables are."
            ) from error

    def _progress(self, changes: DeltaTable) -> Progress:
        """Return what the newest commit up to this version says (`history` would tell of later ones too).

        Every commit of ours says it; commits of other programs, an ALTER for instance, are passed over.
        """
        log = self.storage(changes)
        for version in range(changes.version(), -1, -1):
            document = _commit_info(log, version).get(PROGRESS_KEY)
            if document is not None:
                return Progress.from_json(document)
        return Progress()

    def storage(self, table: DeltaTable) -> DeltaStorageHandler:
        """Return where a table is."""
        return DeltaStorageHandler(table.table_uri, options=dict(self.storage_options))

    def _moment(self, as_of: int | None, names: Sequence[str]) -> Moment:
        bases = {name: self._open(name) for name in names}  # before `changes`: it then has all they lack
        changes = self._open("changes")
        newest = self._progress(changes)
        at = Observation(newest) if as_of is None else observed_at(changes, newest, as_of)
        return Moment(at.progress, at.gap, bases, changes)

    def _read_log(self, name: str, condition: str = "") -> pa.Table:
        """Read the rows of a table that is only appended to."""
        table, schema = self._open(name), _SCHEMAS[name]
        held = {column.name for column in table.schema().fields}
        order = '"sequence", "source_partition", "source_offset"'
        rows = select(
            f"SELECT {names([column for column in schema.names if column in held])} FROM log{condition} "
            f"ORDER BY {order}",
            log=table,
        )
        lacking = {column.name: pa.nulls(len(rows), column.type) for column in schema}  # in older formats
        columns = [rows[name] if name in held else lacking[name] for name in schema.names]
        return pa.table(columns, schema.names).cast(schema)

    def _append(
        self, name: str, rows: pa.Table, metadata: Mapping[str, str], transactions: list[Transaction]
    ) -> None:
        commit = CommitProperties(custom_metadata=dict(metadata), app_transactions=transactions)
        with self._writing(name):
            _despite_others(partial(self._append_once, name, rows, commit))

    def _append_once(self, name: str, rows: pa.Table, commit: CommitProperties) -> None:
        table, transactions = self._open(name), commit.app_transactions or []
        is_done = [_has_transaction(table, done.app_id, done.version) for done in transactions]
        if not (transactions and all(is_done)):
            append_rows(table, self.storage(table), rows, commit)

    def _fold_table(self, name: str, changes: DeltaTable, sequence: int) -> int:
        table = self._open(name)
        return fold_table(name, table, self.storage(table), changes, sequence)

    def _restate_progress_once(self) -> None:
        changes = self._open("changes")
        progress = self._progress(changes)
        if progress == Progress() or PROGRESS_KEY in _commit_info(self.storage(changes), changes.version()):
            return
        commit = CommitProperties(custom_metadata={PROGRESS_KEY: progress.to_json()}, max_commit_retries=0)
        write_deltalake(changes, CHANGES.empty_table(), mode="append", commit_properties=commit)


def _despite_others(commit: Callable[[], T]) -> T:
    """Commit, and again when a commit of maintenance came in between and took away what this one builds on.

    Delta lets only one of the two stand. `commit` opens its table anew and repeats nothing that is done.
    """
    for _ in range(_ATTEMPTS - 1):
        with suppress(CommitFailedError):
            return commit()
    return commit()


def _configuration(name: str) -> dict[str, str | None]:
    statistics = {"delta.dataSkippingStatsColumns": _STATISTICS[name]} if name in _STATISTICS else {}
    return {**_LOG, **statistics, FORMAT_PROPERTY: str(TABLES_FORMAT)}


def _commit_info(log: DeltaStorageHandler, version: int) -> dict[str, Any]:
    """Read what a commit says about itself."""
    try:
        with log.open_input_file(f"_delta_log/{version:020}.json") as commit:
            actions = [json.loads(line) for line in commit.read().splitlines()]
    except FileNotFoundError as error:
        raise ProgressMissingError(
            f"reading the job's progress: expected it in one of the newest commits to `changes`, found none "
            f"back to version {version}, where the log has been cleaned up. "
            "Restore the table to a version that a job wrote."
        ) from error
    return next((action["commitInfo"] for action in actions if "commitInfo" in action), {})


def _has_transaction(table: DeltaTable, query_id: str, batch_id: int) -> bool:
    newest = table.transaction_version(query_id)
    return newest is not None and newest >= batch_id
