"""The Delta tables: what each batch changed, what follows from it, and what could not be decoded.

Written by one job, read by anybody. Every micro-batch is one atomic append to `changes`, the truth, whose
commit also carries the progress. A fold brings `offsets` and `groups` up to a sequence of `changes`; readers
take these and add the changes above their mark, so they are as fresh as the last batch. `quarantine` keeps
records that could not be decoded.

Rows are chosen by delta-rs's own SQL engine: it opens only the files and pages that a question needs.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import (
    CommitProperties,
    DeltaTable,
    QueryBuilder,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler

from streaming.errors import OffsetlakeError
from streaming.progress import Progress
from streaming.schemas import CHANGES, GROUPS, KEY, OFFSETS, QUARANTINE

PROGRESS_KEY: Final = "offsetlake.progress"
FOLD_TRANSACTION: Final = "offsetlake.fold"
"""The application id under which a folded table notes up to which sequence it was folded."""

_SCHEMAS: Final[Mapping[str, pa.Schema]] = {
    "changes": CHANGES,
    "offsets": OFFSETS,
    "groups": GROUPS,
    "quarantine": QUARANTINE,
}
_KEYS: Final[Mapping[str, list[str]]] = {"offsets": [column.name for column in KEY], "groups": ["group"]}
_KINDS: Final[Mapping[str, str]] = {"offsets": "offset", "groups": "group"}
_MAX_PARTITIONS: Final = 2**20
_WRITER: Final = WriterProperties(compression="ZSTD")


class TablesMissingError(OffsetlakeError):
    """There are no tables under the given root."""


class TablesUnreachableError(OffsetlakeError):
    """The storage under the given root refused, or could not be reached."""


class ProgressMissingError(OffsetlakeError):
    """Other programs have committed to `changes` so often that the job's last word is gone."""


@dataclass(frozen=True)
class Snapshot:
    """The live offsets and groups (schemas `OFFSETS`, `GROUPS`) at one moment, and its progress."""

    offsets: pa.Table
    groups: pa.Table
    progress: Progress


@dataclass(frozen=True)
class Tables:
    """The tables under one root: a folder or a URL."""

    root: str
    storage_options: Mapping[str, str] = field(default_factory=dict)

    def create(self) -> None:
        """Create the tables that do not exist yet."""
        for name, schema in _SCHEMAS.items():
            DeltaTable.create(
                self._uri(name),
                schema,
                mode="ignore",
                name=name,
                partition_by=["day"] if "day" in schema.names else None,
                configuration={"delta.logRetentionDuration": "interval 6 hours"},
                storage_options=dict(self.storage_options),
            )

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

    def append_changes(self, rows: pa.Table, progress: Progress, *, is_batch: bool) -> None:
        """Append rows (schema `CHANGES`, maybe none) and the progress in one commit.

        `is_batch` notes the progress's batch as applied, so that a replay of it is recognized.
        """
        transactions = (
            [Transaction(progress.query_id, progress.batch_id)] if is_batch and progress.query_id else []
        )
        self._append("changes", rows, {PROGRESS_KEY: progress.to_json()}, transactions)

    def append_quarantine(self, rows: pa.Table, progress: Progress) -> None:
        """Append what could not be decoded, unless the progress's batch has done so before."""
        query_id, batch_id = str(progress.query_id), progress.batch_id
        if len(rows) and not _has_transaction(self._open("quarantine"), query_id, batch_id):
            self._append("quarantine", rows, {}, [Transaction(query_id, batch_id)])

    def fold(self) -> int:
        """Bring `offsets` and `groups` up to the newest change; return how many rows were folded.

        Each table notes the sequence that it contains in the same commit, so a fold that is repeated
        changes nothing.
        """
        changes = self._open("changes")
        sequence = self._progress(changes).sequence
        return sum(self._fold_table(name, changes, sequence) for name in _KEYS)

    def unfolded_rows(self) -> int:
        """Count the changes that at least one of the folded tables does not contain yet."""
        mark = min(_fold_mark(self._open(name)) for name in _KEYS)
        changes = self._open("changes")
        counted = _select(
            f'SELECT count(*) AS "rows" FROM changes WHERE "sequence" > {mark}', changes=changes
        )
        return int(counted["rows"][0].as_py())

    def read(self, groups: Sequence[str] | None = None) -> Snapshot:
        """Read the live offsets and groups, of all groups or of the named ones, as of the last batch."""
        bases = {name: self._open(name) for name in _KEYS}  # before `changes`, which then holds all they lack
        changes = self._open("changes")
        wanted = "true" if groups is None else _is_one_of("group", groups)
        live = {name: _with_changes(name, base, changes, wanted) for name, base in bases.items()}
        return Snapshot(live["offsets"], live["groups"], self._progress(changes))

    def read_quarantine(self) -> pa.Table:
        """Read the records that could not be decoded (schema `QUARANTINE`), in the order of the log."""
        return self._read_log("quarantine")

    def read_changes(self) -> pa.Table:
        """Read all changes (schema `CHANGES`), batch by batch in the order in which they happened."""
        return self._read_log("changes")

    def _uri(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}"

    def _open(self, name: str) -> DeltaTable:
        try:
            return DeltaTable(self._uri(name), storage_options=dict(self.storage_options))
        except TableNotFoundError as error:
            raise TablesMissingError(
                f"reading tables under {self.root}: expected a Delta table at {self._uri(name)}, found none. "
                "Check --table-root, or start `offsetlake run` first."
            ) from error
        except (DeltaError, OSError) as error:
            raise TablesUnreachableError(
                f"reading {self._uri(name)}: expected a Delta table, found: {_in_one_line(error)}. "
                "Check --table-root and the storage options ([tables.storage_options], environment)."
            ) from error

    def _progress(self, changes: DeltaTable) -> Progress:
        """Return what the newest commit up to this version says (`history` would tell of later ones too).

        Every commit of ours says it; commits of other programs, an ALTER for instance, are passed over.
        """
        log = DeltaStorageHandler(changes.table_uri, options=dict(self.storage_options))
        for version in range(changes.version(), -1, -1):
            document = _commit_info(log, version).get(PROGRESS_KEY)
            if document is not None:
                return Progress.from_json(document)
        return Progress()

    def _read_log(self, name: str) -> pa.Table:
        """Read all rows of a table that is only appended to."""
        schema = _SCHEMAS[name]
        order = '"sequence", "source_partition", "source_offset"'
        rows = _select(f"SELECT {_names(schema.names)} FROM log ORDER BY {order}", log=self._open(name))
        return rows.cast(schema)

    def _append(
        self, name: str, rows: pa.Table, metadata: Mapping[str, str], transactions: list[Transaction]
    ) -> None:
        write_deltalake(
            self._open(name),
            rows,
            mode="append",
            writer_properties=_WRITER,
            commit_properties=CommitProperties(custom_metadata=dict(metadata), app_transactions=transactions),
        )

    def _fold_table(self, name: str, changes: DeltaTable, sequence: int) -> int:
        table = self._open(name)
        mark = _fold_mark(table)
        if mark >= sequence:
            return 0
        newest = _newest_changes(name, changes, mark)
        commit = CommitProperties(app_transactions=[Transaction(FOLD_TRANSACTION, sequence)])
        if mark == 0:
            rows = newest.filter(pc.invert(newest["is_removed"])).drop_columns("is_removed")
            write_deltalake(table, rows, mode="append", writer_properties=_WRITER, commit_properties=commit)
        else:
            _merge(name, table, newest, commit)
        if _fold_mark(table) < sequence:  # a merge that changes no row makes no commit
            write_deltalake(table, _SCHEMAS[name].empty_table(), mode="append", commit_properties=commit)
        return len(newest)


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


def _fold_mark(table: DeltaTable) -> int:
    return table.transaction_version(FOLD_TRANSACTION) or 0


def _newest_changes(name: str, changes: DeltaTable, mark: int) -> pa.Table:
    """Read the newest change of each key above `mark`: rows of a folded table, and `is_removed`."""
    rows = _select(
        f"""
        WITH {_newest_of_each_key(name, mark)}
        SELECT {_values_after(name)}, "op" = 'remove' AS "is_removed" FROM newest
        """,
        changes=changes,
    )
    return rows.cast(_SCHEMAS[name].append(pa.field("is_removed", pa.bool_())))


def _with_changes(name: str, base: DeltaTable, changes: DeltaTable, wanted: str) -> pa.Table:
    """Return the rows of a folded table that are `wanted`, with the changes above its mark applied."""
    rows = _select(
        f"""
        WITH {_newest_of_each_key(name, _fold_mark(base), wanted)}
        SELECT {_names(_SCHEMAS[name].names)} FROM base LEFT ANTI JOIN last USING ({_names(_KEYS[name])})
        WHERE {wanted}
        UNION ALL SELECT {_values_after(name)} FROM newest WHERE "op" = 'set'
        """,
        base=base,
        changes=changes,
    )
    return rows.cast(_SCHEMAS[name])


def _newest_of_each_key(name: str, mark: int, wanted: str = "true") -> str:
    """Write the SQL of `last`, the place of the last change above `mark` of each key, and of `newest`.

    A batch holds one change of a key for each offsets partition. There is one such partition, but for a copy
    of the topic that spread a group over several: of those the highest is taken. (Ranking the rows of each
    key with a window function says the same, four times slower.)
    """
    keys = _names(_KEYS[name])
    above = f'"kind" = \'{_KINDS[name]}\' AND "sequence" > {mark} AND {wanted}'
    place = f'"sequence" * {_MAX_PARTITIONS} + coalesce("source_partition", 0)'
    return f"""
        last AS (SELECT {keys}, max({place}) AS "place" FROM changes WHERE {above} GROUP BY {keys}),
        placed AS (SELECT *, {place} AS "place" FROM changes WHERE {above}),
        newest AS (SELECT * FROM placed LEFT SEMI JOIN last USING ({keys}, "place"))
    """


def _values_after(name: str) -> str:
    """Write the SQL columns of a folded table, taken from a change that set a value."""
    own = {*_KEYS[name], "source_partition"}
    return ", ".join(
        f'"{column}"' if column in own else f'"after"[\'{column}\'] AS "{column}"'
        for column in _SCHEMAS[name].names
    )


def _names(columns: Sequence[str]) -> str:
    """Write column names, quoted: `group` and `partition` are words of SQL."""
    return ", ".join(f'"{column}"' for column in columns)


def _is_one_of(column: str, texts: Sequence[str]) -> str:
    quoted = ["'" + text.replace("'", "''") + "'" for text in texts]
    return f'"{column}" IN ({", ".join(quoted)})' if quoted else "false"


def _select(sql: str, **tables: DeltaTable) -> pa.Table:
    """Run a query on tables as they stood when they were opened."""
    builder = QueryBuilder()
    for name, table in tables.items():
        builder.register(name, table)
    return pa.table(builder.execute(sql).read_all())


def _in_one_line(error: Exception) -> str:
    """Give the text of an error of delta-rs, which may span lines and hold terminal colours."""
    return " ".join(re.sub(r"\x1b\[[\d;]*m", "", str(error)).split()).rstrip(".")


def _merge(name: str, table: DeltaTable, newest: pa.Table, commit: CommitProperties) -> None:
    """Write the newest changes into a folded table: rows that are removed go, others are replaced or come."""
    columns = {f'"{column}"': f's."{column}"' for column in _SCHEMAS[name].names}
    (
        table.merge(
            newest,
            " AND ".join(f't."{key}" = s."{key}"' for key in _KEYS[name]),
            source_alias="s",
            target_alias="t",
            writer_properties=_WRITER,
            commit_properties=commit,
        )
        .when_matched_delete("s.is_removed")
        .when_matched_update(columns)
        .when_not_matched_insert(columns, "NOT s.is_removed")
        .execute()
    )
