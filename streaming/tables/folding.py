"""The folded tables `offsets` and `groups`: their layout, how they are folded, and read at a sequence.

A folded table holds what is live at one sequence of `changes`, its mark. What was live at any other sequence
follows from it: changes above the mark are applied, changes below it undone, so a question costs what lies
between the two and not what has ever happened.

Both tables are partitioned by `bucket`, a hash of the group: the rows of one group stand in one small file,
and a fold rewrites only the files of groups that changed.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import RemoveAction

from streaming.common.arrays import from_numbers, from_texts, to_numbers
from streaming.common.keys import KEY_NAMES, key_codes
from streaming.common.partitions import offsets_partitions
from streaming.common.pieces import joined, pieces, take
from streaming.model.schemas import GROUPS, OFFSETS
from streaming.tables.files import commit_files, removal, write_files
from streaming.tables.formats import columns_of, fields_of, is_of_groups
from streaming.tables.select import is_one_of, select, stream

FOLD_TRANSACTION: Final = "offsetlake.fold"
"""The application id under which a folded table notes up to which sequence it was folded."""

BUCKETS: Final = 16
"""Number of files that a folded table is spread over. Fixed: a table root keeps it for life."""

_PORTION_ROWS: Final = 1_000_000  # so many are held at a time while they are folded,
_PORTION_BYTES: Final = 1024 * 1024 * 1024  # and no more than so many bytes of them

BUCKET: Final = pa.field("bucket", pa.int32())

ROWS: Final[Mapping[str, pa.Schema]] = {"offsets": OFFSETS, "groups": GROUPS}
"""The columns of each folded table that readers see; in the table `bucket` follows."""

Value = Literal["before", "after"]
"""One of the two values of a change."""

Files = list[dict[str, Any]]
"""Files of a folded table, as delta-rs lists them."""

KEYS: Final[Mapping[str, list[str]]] = {"offsets": KEY_NAMES, "groups": ["group"]}
"""The columns that identify a row of each folded table."""

KINDS: Final[Mapping[str, str]] = {"offsets": "offset", "groups": "group"}
"""The kind that the changes of each folded table have."""


def fold_mark(table: DeltaTable) -> int:
    """Return the sequence up to which a table is folded; 0 before the first fold."""
    return table.transaction_version(FOLD_TRANSACTION) or 0


def count_unfolded(changes: DeltaTable, mark: int) -> int:
    """Count the changes above a mark; progress is none."""
    counted = select(
        f"""SELECT count(*) AS "rows" FROM changes WHERE "sequence" > {mark} AND "kind" <> 'progress'""",
        changes=changes,
    )
    return int(counted["rows"][0].as_py())


def fold_table(
    name: str, table: DeltaTable, storage: DeltaStorageHandler, changes: DeltaTable, sequence: int
) -> int:
    """Bring a folded table up to `sequence`, noted in the same commit; return how many keys had changed.

    Buckets with changes are rewritten. Raises `CommitFailedError` where another commit came first.
    """
    mark = fold_mark(table)
    if mark >= sequence:
        return 0
    newest = with_buckets(_changed(name, changes, above=mark, up_to=sequence, is_undone=False))
    transaction = Transaction(FOLD_TRANSACTION, sequence)
    # Directly on top of what was read: delta-rs would not notice that a compaction has replaced these files.
    commit = CommitProperties(app_transactions=[transaction], max_commit_retries=0)
    replaced = _files_in(table, pc.unique(newest[BUCKET.name]).to_pylist())
    added = [
        file
        for buckets in _portions(replaced, newest.nbytes // max(1, len(newest)))
        for rows in _folded(name, table, newest, buckets)
        for file in write_files(table, storage, rows)
    ]
    commit_files(table, added, _removals(replaced), commit)
    return len(newest)


def rows_at(
    name: str, base: DeltaTable, changes: DeltaTable, sequence: int, groups: Sequence[str] | None
) -> pa.Table:
    """Return what was live at a sequence, of the named groups or of all (the columns `ROWS`).

    Undoing is exact as long as a group keeps to one offsets partition, as it does in Kafka's own topic.
    """
    return _live(name, base, changes, sequence, groups, ROWS[name])


def keys_at(
    name: str, base: DeltaTable, changes: DeltaTable, sequence: int, groups: Sequence[str] | None
) -> pa.Table:
    """Return the keys alone (the columns `KEYS`) of what `rows_at` returns."""
    columns = pa.schema([ROWS[name].field(column) for column in (*KEYS[name], "source_partition")])
    return _live(name, base, changes, sequence, groups, columns).select(KEYS[name])


def _live(
    name: str,
    base: DeltaTable,
    changes: DeltaTable,
    sequence: int,
    groups: Sequence[str] | None,
    columns: pa.Schema,
) -> pa.Table:
    mark = fold_mark(base)
    held = _held(base, groups, columns)
    if sequence == mark:
        return held
    low, high = sorted((mark, sequence))
    changed = _changed(
        name, changes, above=low, up_to=high, is_undone=sequence < mark, groups=groups, columns=columns
    )
    return pa.concat_tables([_without(held, changed, KEYS[name]), _present(changed)])


def value_columns(name: str, value: Value, changes: DeltaTable, columns: Sequence[str] | None = None) -> str:
    """Write the columns `ROWS` of a folded table, or some of them, as rows of `changes` have them before or
    after a change; null are those that these lack, being of an older format."""
    own = {*KEYS[name], "source_partition"}
    wanted = [ROWS[name].field(column) for column in columns or ROWS[name].names]
    fields = [field for field in wanted if field.name not in own]
    written = dict(zip([field.name for field in fields], fields_of(changes, value, fields), strict=True))
    return ", ".join(written.get(field.name, f'"{field.name}"') for field in wanted)


def with_buckets(rows: pa.Table) -> pa.Table:
    """Add the column `bucket`: the offsets partition that the group would have if there were `BUCKETS`."""
    return rows.append_column(BUCKET, from_numbers(offsets_partitions(rows["group"], BUCKETS)))


def _files_in(table: DeltaTable, buckets: Sequence[int]) -> dict[int, Files]:
    """Return the files of each of these buckets; a bucket may have none."""
    files: dict[int, Files] = {bucket: [] for bucket in buckets}
    for file in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        if (bucket := file[f"partition.{BUCKET.name}"]) in files:
            files[bucket].append(file)
    return files


def _portions(files: Mapping[int, Files], row_bytes: int) -> Iterator[list[int]]:
    """Divide buckets into portions, each with as many rows as are well held at a time.

    Taken together they are as large as rows of so many bytes would be: a guess, from those that changed.
    """
    portion, rows = list[int](), 0
    for bucket, own in files.items():
        if rows >= _PORTION_ROWS or rows * row_bytes >= _PORTION_BYTES:
            yield portion
            portion, rows = [], 0
        portion.append(bucket)
        rows += sum(file["num_records"] or 0 for file in own)
    if portion:
        yield portion


def _folded(name: str, table: DeltaTable, newest: pa.Table, buckets: Sequence[int]) -> Iterator[pa.Table]:
    """Yield what is live in these buckets after the newest changes (the columns `ROWS`, and `bucket`).

    That is one table, but where it would be larger than is well held at a time.
    """
    is_here = pc.is_in(newest[BUCKET.name], value_set=pa.array(buckets, BUCKET.type))
    changed = newest if pc.all(is_here).as_py() else newest.filter(is_here)
    schema = ROWS[name].append(BUCKET)
    sql = f"SELECT {columns_of(table, schema)} FROM base WHERE {is_one_of(BUCKET.name, buckets)}"
    held = joined((rows.cast(schema) for rows in stream(sql, base=table)), _PORTION_BYTES)
    left = (_without(rows, changed, KEYS[name]) for rows in held)
    present = pieces(_present(changed).select(schema.names))
    return joined(chain(left, present), _PORTION_BYTES)


def _removals(files: Mapping[int, Files]) -> list[RemoveAction]:
    return [removal(file, {BUCKET.name: str(bucket)}) for bucket, own in files.items() for file in own]


def _held(base: DeltaTable, groups: Sequence[str] | None, columns: pa.Schema) -> pa.Table:
    rows = select(
        f"SELECT {columns_of(base, columns)} FROM base WHERE {_in_buckets(base, groups)}", base=base
    )
    return rows.cast(columns)


def _in_buckets(base: DeltaTable, groups: Sequence[str] | None) -> str:
    if groups is None:
        return "true"
    buckets = sorted(set(offsets_partitions(from_texts(groups), BUCKETS).tolist()))
    return f"{is_one_of('bucket', buckets)} AND {is_of_groups(base, groups)}"


def _changed(
    name: str,
    changes: DeltaTable,
    *,
    above: int,
    up_to: int,
    is_undone: bool,
    groups: Sequence[str] | None = None,
    columns: pa.Schema | None = None,
) -> pa.Table:
    """Return the keys that changed between two sequences: `columns` of `ROWS` (None: all), and `is_absent`.

    Each with its value after the last of its changes, or (`is_undone`) before the first. A batch holds one
    change of a key for each offsets partition. There is one such partition, but for a copy of the topic that
    spread a group over several: of those the highest is taken.
    """
    columns = ROWS[name] if columns is None else columns
    value: Value = "before" if is_undone else "after"
    wanted = "true" if groups is None else is_of_groups(changes, groups)
    schema = columns.append(pa.field("is_absent", pa.bool_())).append(pa.field("sequence", pa.int64()))
    values = value_columns(name, value, changes, columns.names)
    rows = select(
        f"""
        SELECT {values}, "{value}" IS NULL AS "is_absent", "sequence"
        FROM changes
        WHERE "kind" = '{KINDS[name]}' AND "sequence" > {above} AND "sequence" <= {up_to} AND {wanted}
        """,
        changes=changes,
    ).cast(schema)  # at once: what was read takes as much again
    return _last_of_each_key(rows, KEYS[name], is_undone).drop_columns("sequence")


def _present(changed: pa.Table) -> pa.Table:
    """Return the rows of changed keys that are there (`_changed`), without `is_absent`."""
    is_absent = changed["is_absent"]
    rows = changed.filter(pc.invert(is_absent)) if pc.any(is_absent).as_py() else changed
    return rows.drop_columns("is_absent")


def _last_of_each_key(rows: pa.Table, keys: list[str], is_undone: bool) -> pa.Table:
    """Keep the row of each key with the highest (`is_undone`: lowest) sequence."""
    if not len(rows):
        return rows
    codes = key_codes(rows.select(keys).columns)
    sequences = to_numbers(rows["sequence"]) * (-1 if is_undone else 1)
    order = np.lexsort((to_numbers(rows["source_partition"]), sequences))
    last = np.empty(codes.max() + 1, np.int64)
    last[codes[order]] = order  # of repeated indices numpy keeps the last
    return take(rows, last)


def _without(rows: pa.Table, changed: pa.Table, keys: list[str]) -> pa.Table:
    """Leave out the rows whose key is among the changed. Only groups that both have are looked at closely."""
    groups = pc.unique(changed["group"])
    numbers = to_numbers(pc.indices_nonzero(pc.is_in(rows["group"], value_set=groups)).cast(pa.int64()))
    if not len(numbers):
        return rows
    concerned = take(rows.select(keys), numbers)
    is_concerned = pc.is_in(changed["group"], value_set=pc.unique(concerned["group"]))
    codes = key_codes(pa.concat_tables([concerned, changed.select(keys).filter(is_concerned)]).columns)
    is_changed = np.zeros(codes.max() + 1, np.bool_)
    is_changed[codes[len(concerned) :]] = True
    is_kept = np.ones(len(rows), np.bool_)
    is_kept[numbers[is_changed[codes[: len(concerned)]]]] = False
    return take(rows, np.flatnonzero(is_kept))
