"""The Delta tables: `changes` is the truth, `offsets` and `groups` are folded from it, `quarantine` keeps
what failed.

Written by one job, read by anybody. Every micro-batch is one atomic append to `changes` whose commit also
carries the progress; a fold brings `offsets` and `groups` up to a sequence of `changes`; readers take base
tables and add the changes above their mark, so they are as fresh as the last batch (design: changes are the
truth).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, Transaction, WriterProperties, write_deltalake
from deltalake.exceptions import TableNotFoundError

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
_WRITER: Final = WriterProperties(compression="ZSTD")


class TablesMissingError(OffsetlakeError):
    """There are no tables under the given root."""


@dataclass(frozen=True)
class Snapshot:
    """The live offsets and groups (schemas `OFFSETS`, `GROUPS`) at one moment, and the progress of that
    moment."""

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
        return _progress(self._open("changes"))

    def is_appended(self, query_id: str, batch_id: int) -> bool:
        """Tell whether this batch of this query is in `changes` already.

        delta-rs records application transactions but does not enforce them, so the writer asks first.
        """
        return _has_transaction(self._open("changes"), query_id, batch_id)

    def append_changes(self, rows: pa.Table, progress: Progress, *, is_batch: bool) -> None:
        """Append one batch (rows of schema `CHANGES`) and its progress in one commit; without rows, the
        progress.

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
        sequence = _progress(changes).sequence
        return sum(self._fold_table(name, changes, sequence) for name in _KEYS)

    def unfolded_rows(self) -> int:
        """Count the changes that at least one of the folded tables does not contain yet."""
        mark = min(_fold_mark(self._open(name)) for name in _KEYS)
        changes = self._open("changes").to_pyarrow_dataset()
        return int(changes.count_rows(filter=ds.field("sequence") > mark))

    def read(self, groups: Sequence[str] | None = None) -> Snapshot:
        """Read the live offsets and groups, of all groups or of the named ones, as of the last batch."""
        bases = {name: self._open(name) for name in _KEYS}  # before `changes`, which then holds all they lack
        changes = self._open("changes")
        wanted = None if groups is None else ds.field("group").isin(list(groups))
        live = {name: _with_changes(name, base, changes, wanted) for name, base in bases.items()}
        return Snapshot(live["offsets"], live["groups"], _progress(changes))

    def read_quarantine(self) -> pa.Table:
        """Read the records that could not be decoded (schema `QUARANTINE`)."""
        return self._open("quarantine").to_pyarrow_table()

    def read_changes(self) -> pa.Table:
        """Read all changes (schema `CHANGES`), in the order in which they happened batch by batch."""
        return self._open("changes").to_pyarrow_table().sort_by("sequence")

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
        newest = _newest_changes(name, changes, mark, None)
        commit = CommitProperties(app_transactions=[Transaction(FOLD_TRANSACTION, sequence)])
        if mark == 0:
            rows = _values_after(name, newest)
            write_deltalake(table, rows, mode="append", writer_properties=_WRITER, commit_properties=commit)
        else:
            _merge(name, table, newest, commit)
        if _fold_mark(self._open(name)) < sequence:  # a merge that changes no row makes no commit
            write_deltalake(table, _SCHEMAS[name].empty_table(), mode="append", commit_properties=commit)
        return len(newest)


def _progress(changes: DeltaTable) -> Progress:
    newest: dict[str, Any] = changes.history(1)[0]
    document = newest.get(PROGRESS_KEY)
    if document is None:
        return Progress()
    return Progress.from_json(document if isinstance(document, str) else json.dumps(document))


def _has_transaction(table: DeltaTable, query_id: str, batch_id: int) -> bool:
    newest = table.transaction_version(query_id)
    return newest is not None and newest >= batch_id


def _fold_mark(table: DeltaTable) -> int:
    return table.transaction_version(FOLD_TRANSACTION) or 0


def _newest_changes(name: str, changes: DeltaTable, mark: int, wanted: ds.Expression | None) -> pa.Table:
    """Read the changes above `mark` that concern a folded table, the newest of each key only."""
    condition = (ds.field("sequence") > mark) & (ds.field("kind") == _KINDS[name])
    columns = [*_KEYS[name], "op", "after", "source_partition", "sequence"]
    rows = changes.to_pyarrow_dataset().to_table(
        columns=columns, filter=condition if wanted is None else condition & wanted
    )
    rows = rows.append_column("row", pa.array(np.arange(len(rows)))).sort_by("sequence")
    newest = rows.group_by(_KEYS[name], use_threads=False).aggregate([("row", "last")])
    return rows.filter(pc.is_in(rows["row"], value_set=newest["row_last"].combine_chunks()))


def _values_after(name: str, newest: pa.Table) -> pa.Table:
    """Return rows of a folded table from the changes that set a value."""
    is_set = newest.filter(pc.equal(newest["op"], "set"))
    after = is_set["after"].combine_chunks()
    schema = _SCHEMAS[name]
    columns = [
        is_set[field.name] if field.name in is_set.column_names else pc.struct_field(after, field.name)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _with_changes(name: str, base: DeltaTable, changes: DeltaTable, wanted: ds.Expression | None) -> pa.Table:
    """Return the rows of a folded table with the changes above its mark applied."""
    rows = base.to_pyarrow_dataset().to_table(filter=wanted).cast(_SCHEMAS[name])
    newest = _newest_changes(name, changes, _fold_mark(base), wanted)
    if not len(newest):
        return rows
    return pa.concat_tables([_without_keys(rows, newest, _KEYS[name]), _values_after(name, newest)])


def _without_keys(rows: pa.Table, others: pa.Table, keys: list[str]) -> pa.Table:
    """Return the rows whose key is not among `others` (Arrow joins keys only: not every column can be
    joined)."""
    numbered = rows.select(keys).append_column("row", pa.array(np.arange(len(rows))))
    kept = numbered.join(others.select(keys), keys=keys, join_type="left anti")["row"]
    return rows.take(kept.combine_chunks().sort())


def _merge(name: str, table: DeltaTable, newest: pa.Table, commit: CommitProperties) -> None:
    """Write the newest changes into a folded table: rows that are removed go, others are replaced or come."""
    removed = newest.filter(pc.equal(newest["op"], "remove"))
    absent = pa.table(
        [
            removed[f.name] if f.name in _KEYS[name] else pa.nulls(len(removed), f.type)
            for f in _SCHEMAS[name]
        ],
        schema=_SCHEMAS[name],
    )
    source = pa.concat_tables([_values_after(name, newest), absent])
    source = source.append_column(
        "is_removed", pa.array([False] * (len(source) - len(removed)) + [True] * len(removed))
    )
    columns = {f'"{column}"': f's."{column}"' for column in _SCHEMAS[name].names}
    (
        table.merge(
            source,
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
