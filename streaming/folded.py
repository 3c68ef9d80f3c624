"""The folded tables `offsets` and `groups`: their layout, how they are folded, and read at a sequence.

A folded table holds what is live at one sequence of `changes`, its mark. What was live at any other sequence
follows from it: changes above the mark are applied, changes below it undone, so a question costs what lies
between the two and not what has ever happened.

Both tables are partitioned by `bucket`, a hash of the group: the rows of one group stand in one small file,
and a fold rewrites only the files of groups that changed.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import RemoveAction

from streaming.arrow_numpy import from_numbers, from_texts, to_numbers
from streaming.data_files import commit_files, write_files
from streaming.delta_sql import is_one_of, names, select
from streaming.partitioner import offsets_partitions
from streaming.progress import now_ms
from streaming.schemas import GROUPS, KEY, OFFSETS

FOLD_TRANSACTION: Final = "offsetlake.fold"
"""The application id under which a folded table notes up to which sequence it was folded."""

BUCKETS: Final = 16
"""Number of files that a folded table is spread over. Fixed: a table root keeps it for life."""

_PORTION_ROWS: Final = 1_000_000  # so many are held at a time while they are folded

BUCKET: Final = pa.field("bucket", pa.int32())

ROWS: Final[Mapping[str, pa.Schema]] = {"offsets": OFFSETS, "groups": GROUPS}
"""The columns of each folded table that readers see; in the table `bucket` follows."""

Files = list[dict[str, Any]]
"""Files of a folded table, as delta-rs lists them."""

KEYS: Final[Mapping[str, list[str]]] = {"offsets": [column.name for column in KEY], "groups": ["group"]}
KINDS: Final[Mapping[str, str]] = {"offsets": "offset", "groups": "group"}


def fold_mark(table: DeltaTable) -> int:
    """Return the sequence up to which a table is folded; 0 before the first fold."""
    return table.transaction_version(FOLD_TRANSACTION) or 0


def fold_table(
    name: str, table: DeltaTable, storage: DeltaStorageHandler, changes: DeltaTable, sequence: int
) -> int:
    """Bring a folded table up to `sequence`, noted in the same commit; return how many keys had changed.

    Buckets with changes are written anew. Raises `CommitFailedError` where anybody has committed meanwhile.
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
        for buckets in _portions(replaced)
        for file in write_files(table, storage, _folded(name, table, newest, buckets))
    ]
    commit_files(table, added, _removals(replaced), commit)
    return len(newest)


def rows_at(
    name: str, base: DeltaTable, changes: DeltaTable, sequence: int, groups: Sequence[str] | None
) -> pa.Table:
    """Return what was live at a sequence, of the named groups or of all (the columns `ROWS`).

    Undoing is exact as long as a group keeps to one offsets partition, as it does in Kafka's own topic.
    """
    mark = fold_mark(base)
    held = _held(name, base, groups)
    if sequence == mark:
        return held
    low, high = sorted((mark, sequence))
    changed = _changed(name, changes, above=low, up_to=high, is_undone=sequence < mark, groups=groups)
    return pa.concat_tables([_without(held, changed, KEYS[name]), _present(changed)])


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


def _portions(files: Mapping[int, Files]) -> Iterator[list[int]]:
    """Divide buckets into portions, each with as many rows as are well held at a time."""
    portion, rows = list[int](), 0
    for bucket, own in files.items():
        if rows >= _PORTION_ROWS:
            yield portion
            portion, rows = [], 0
        portion.append(bucket)
        rows += sum(file["num_records"] or 0 for file in own)
    if portion:
        yield portion


def _folded(name: str, table: DeltaTable, newest: pa.Table, buckets: Sequence[int]) -> pa.Table:
    """Return what is live in these buckets after the newest changes (the columns `ROWS`, and `bucket`)."""
    is_here = pc.is_in(newest[BUCKET.name], value_set=pa.array(buckets, BUCKET.type))
    changed = newest if pc.all(is_here).as_py() else newest.filter(is_here)
    schema = ROWS[name].append(BUCKET)
    held = select(
        f"SELECT {names(schema.names)} FROM base WHERE {is_one_of(BUCKET.name, buckets)}", base=table
    )
    present = _present(changed).select(schema.names)
    return pa.concat_tables([_without(held.cast(schema), changed, KEYS[name]), present])


def _removals(files: Mapping[int, Files]) -> list[RemoveAction]:
    return [
        RemoveAction(
            path=file["path"],
            data_change=True,
            deletion_timestamp=now_ms(),
            size=file["size_bytes"],
            partition_values={BUCKET.name: str(bucket)},
        )
        for bucket, own in files.items()
        for file in own
    ]


def _held(name: str, base: DeltaTable, groups: Sequence[str] | None) -> pa.Table:
    rows = select(f"SELECT {names(ROWS[name].names)} FROM base WHERE {_in_buckets(groups)}", base=base)
    return rows.cast(ROWS[name])


def _in_buckets(groups: Sequence[str] | None) -> str:
    if groups is None:
        return "true"
    buckets = sorted(set(offsets_partitions(from_texts(groups), BUCKETS).tolist()))
    return f"{is_one_of('bucket', buckets)} AND {is_one_of('group', groups)}"


def _changed(
    name: str,
    changes: DeltaTable,
    *,
    above: int,
    up_to: int,
    is_undone: bool,
    groups: Sequence[str] | None = None,
) -> pa.Table:
    """Return the keys that changed between two sequences: the columns `ROWS`, and `is_absent`.

    Each with its value after the last of its changes, or (`is_undone`) before the first. A batch holds one
    change of a key for each offsets partition. There is one such partition, but for a copy of the topic that
    spread a group over several: of those the highest is taken.
    """
    value = "before" if is_undone else "after"
    wanted = "true" if groups is None else is_one_of("group", groups)
    own = {*KEYS[name], "source_partition"}
    columns = ", ".join(
        f'"{column}"' if column in own else f'"{value}"[\'{column}\'] AS "{column}"'
        for column in ROWS[name].names
    )
    rows = select(
        f"""
        SELECT {columns}, "{value}" IS NULL AS "is_absent", "sequence" FROM changes
        WHERE "kind" = '{KINDS[name]}' AND "sequence" > {above} AND "sequence" <= {up_to} AND {wanted}
        """,
        changes=changes,
    )
    schema = ROWS[name].append(pa.field("is_absent", pa.bool_())).append(pa.field("sequence", pa.int64()))
    return _last_of_each_key(rows.cast(schema), KEYS[name], is_undone).drop_columns("sequence")


def _present(changed: pa.Table) -> pa.Table:
    """Return the rows of changed keys that are there (`_changed`), without `is_absent`."""
    is_absent = changed["is_absent"]
    rows = changed.filter(pc.invert(is_absent)) if pc.any(is_absent).as_py() else changed
    return rows.drop_columns("is_absent")


def _last_of_each_key(rows: pa.Table, keys: list[str], is_undone: bool) -> pa.Table:
    """Keep the row of each key with the highest (`is_undone`: lowest) sequence."""
    if not len(rows):
        return rows
    codes = _codes(rows.select(keys))
    sequences = to_numbers(rows["sequence"]) * (-1 if is_undone else 1)
    order = np.lexsort((to_numbers(rows["source_partition"]), sequences))
    last = np.empty(codes.max() + 1, np.int64)
    last[codes[order]] = order  # of repeated indices numpy keeps the last
    return rows.take(from_numbers(last))


def _without(rows: pa.Table, changed: pa.Table, keys: list[str]) -> pa.Table:
    """Leave out the rows whose key is among the changed. Only groups that both have are looked at closely."""
    groups = pc.unique(changed["group"])
    numbers = to_numbers(pc.indices_nonzero(pc.is_in(rows["group"], value_set=groups)).cast(pa.int64()))
    if not len(numbers):
        return rows
    concerned = rows.select(keys).take(from_numbers(numbers))
    is_concerned = pc.is_in(changed["group"], value_set=pc.unique(concerned["group"]))
    codes = _codes(pa.concat_tables([concerned, changed.select(keys).filter(is_concerned)]))
    is_changed = np.zeros(codes.max() + 1, np.bool_)
    is_changed[codes[len(concerned) :]] = True
    is_kept = np.ones(len(rows), np.bool_)
    is_kept[numbers[is_changed[codes[: len(concerned)]]]] = False
    return rows.take(from_numbers(np.flatnonzero(is_kept)))


def _codes(keys: pa.Table) -> npt.NDArray[np.int64]:
    """Number the keys (columns of texts or numbers) from 0: equal keys have equal numbers (n int64)."""
    codes = np.zeros(len(keys), np.int64)
    for column in keys.columns:
        coded = column.combine_chunks().dictionary_encode()
        both = codes * len(coded.dictionary) + to_numbers(coded.indices)
        codes = to_numbers(from_numbers(both).dictionary_encode().indices).astype(np.int64)
    return codes
