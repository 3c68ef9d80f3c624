"""The folded tables `offsets` and `groups`: their layout, how they are folded, and read at a sequence.

A folded table holds the live rows as of one sequence of `changes`, its mark. The rows as of any other
sequence follow from it: changes above the mark are applied, changes below it undone. A read costs
as much as the changes between the two sequences, not the whole history.

Both tables are partitioned by `bucket`, a hash of the group: the rows of one group are in one small file, and
a fold rewrites only the files of groups that changed.

A fold splits the changes by bucket while it reads them, then merges a few buckets at a time. So it holds
little memory besides the changes, and its hash tables fit into the cache of a core.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, pairwise
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.fs import DeltaStorageHandler

from streaming.common.arrays import from_numbers, from_texts, no_rows, to_numbers, where
from streaming.common.container_limits import usable_cores
from streaming.common.keys import KEY_NAMES, Numbering, key_codes, leading, ranks
from streaming.common.partitions import offsets_partitions
from streaming.common.pieces import PIECE_BYTES, joined, pieces, take
from streaming.common.topics import TopicPartitions, of_topics
from streaming.model.schemas import GROUPS, OFFSETS
from streaming.tables.files import (
    ROW_GROUP_ROWS,
    NewFiles,
    removal,
    storage_of,
    whole_file,
    write_files,
)
from streaming.tables.select import Queryable, cast, explained, is_of_topics, is_one_of, names, select, stream

FOLD_TRANSACTION: Final = "offsetlake.fold"
"""The application id under which a folded table keeps its mark."""

BUCKETS: Final = 16
"""Number of files of a folded table. Fixed for the life of a table root."""

_HELD_BYTES: Final = 256 * 1024 * 1024
"""Bytes of changes that a fold holds at a time; the changes of one bucket are always held together."""

_SPLIT_BYTES: Final = 8 * 1024 * 1024
"""Changes are split by bucket each time this many bytes have been read."""

_FEW_BYTES: Final = 2 * 1024 * 1024
"""Below this size, one copy is faster than one for each bucket."""

_PORTION_BYTES: Final = 32 * 1024 * 1024
"""Largest size of buckets that one core folds together: small enough for its cache."""

_FILE_BYTES: Final = PIECE_BYTES
"""Bytes of rows in one file at most; a file has at least one row."""

_ROWS_AT_ONCE: Final = 1_000_000
"""More rows are read bucket by bucket: the result of a query is in memory twice until it is converted."""

_ROWS_OF_A_PART: Final = 250_000
"""Parts of more rows take more memory, and no less time."""

_MOST_BYTES_OF_REPEATED: Final = 4
"""Texts that take at most so many bytes each in a file repeat so often that dictionaries save time."""

_BATCH_ROWS: Final = 32 * 1024  # with 32 KB of metadata each below 2 GiB, the limit of a text array

_AT_ONCE: Final = 4
"""Portions folded in parallel at most; each takes memory of its own."""

BUCKET: Final = pa.field("bucket", pa.int32())

_IS_ABSENT: Final = pa.field("is_absent", pa.bool_())

ROWS: Final[Mapping[str, pa.Schema]] = {"offsets": OFFSETS, "groups": GROUPS}
"""The columns of each folded table for readers; the table has `bucket` after them."""

Value = Literal["before", "after"]
"""Whether a column of `changes` is as before or as after a change."""

Files = list[dict[str, Any]]
"""Files of a folded table as listed by delta-rs."""

KEYS: Final[Mapping[str, list[str]]] = {"offsets": KEY_NAMES, "groups": ["group"]}

KINDS: Final[Mapping[str, str]] = {"offsets": "offset", "groups": "group"}
"""The `kind` of the changes that belong to each folded table."""


def fold_mark(table: DeltaTable) -> int:
    """Return the sequence up to which a table is folded; 0 before the first fold."""
    return table.transaction_version(FOLD_TRANSACTION) or 0


def count_rows(table: DeltaTable) -> int:
    """Count the rows of a table by its log."""
    return sum(file["num_records"] or 0 for files in _files_of(table).values() for file in files)


def count_unfolded(changes: DeltaTable, mark: int) -> int:
    """Count the changes above a mark, without rows of kind `progress`."""
    counted = select(
        f"""SELECT count(*) AS "rows" FROM changes WHERE "sequence" > {mark} AND "kind" <> 'progress'""",
        changes=changes,
    )
    return int(counted["rows"][0].as_py())


@dataclass(frozen=True, kw_only=True)
class BucketsToFold:
    """Some buckets of a table, from `first` to before `stop`, for a process that folds them.

    The places are paths or URLs. The versions are those that the committing process has opened. Changes
    above the sequence `mark` are folded, up to `sequence`.
    """

    name: str
    place: str
    version: int
    place_of_changes: str
    version_of_changes: int
    mark: int
    sequence: int
    first: int = 0
    stop: int = BUCKETS

    def divided(self, count: int) -> list["BucketsToFold"]:
        """Return these buckets in `count` parts. Each part costs one reading of all the changes."""
        bounds = np.linspace(self.first, self.stop, count + 1).astype(int).tolist()
        return [replace(self, first=first, stop=stop) for first, stop in pairwise(bounds)]

    def folded(self, storage_options: Mapping[str, str]) -> "FoldedBuckets":
        """Fold the buckets on one core; the files belong to the caller from then on."""
        table = DeltaTable(self.place, self.version, dict(storage_options))
        changes = DeltaTable(self.place_of_changes, self.version_of_changes, dict(storage_options))
        with NewFiles.of(self.place, storage_options) as new:
            folded = _Fold(self, table, changes, new, _files_of(table), cores=1).folded()
            return replace(folded, files=new.handed_over())


@dataclass(frozen=True)
class FoldedBuckets:
    """The number of changed keys, the buckets with changes, and the new files if another process has written
    them (`NewFiles.handed_over`)."""

    keys: int
    buckets: Sequence[int]
    files: Sequence[Mapping[str, Any]] = ()


FoldElsewhere = Callable[[BucketsToFold], Sequence[FoldedBuckets]]
"""Folds the buckets in other processes."""


def fold_table(
    name: str,
    table: DeltaTable,
    storage: DeltaStorageHandler,
    changes: DeltaTable,
    sequence: int,
    elsewhere: FoldElsewhere | None = None,
) -> int:
    """Fold a table up to `sequence`, which becomes its mark in the same commit; return the number of changed
    keys.

    Only buckets with changes are rewritten, by this process or (`elsewhere`) by others. Raises
    `CommitFailedError` when another commit came first.
    """
    mark = fold_mark(table)
    if mark >= sequence:
        return 0
    wanted = BucketsToFold(
        name=name,
        place=table.table_uri,
        version=table.version(),
        place_of_changes=changes.table_uri,
        version_of_changes=changes.version(),
        mark=mark,
        sequence=sequence,
    )
    transaction = Transaction(FOLD_TRANSACTION, sequence)
    # Directly on top of the version read: delta-rs would not notice that a compaction has replaced these
    # files.
    commit = CommitProperties(app_transactions=[transaction], max_commit_retries=0)
    with NewFiles(storage) as new:
        files = _files_of(table)
        if elsewhere is None:
            own = _Fold(wanted, table, changes, new, files, usable_cores()).folded()
            parts: Sequence[FoldedBuckets] = [own]
        else:
            parts = elsewhere(wanted)
            new.take_over(file for part in parts for file in part.files)
        removed = [
            removal(file, {BUCKET.name: str(bucket)})
            for part in parts
            for bucket in part.buckets
            for file in files.get(bucket, [])
        ]
        new.commit(table, removed, commit)
    return sum(part.keys for part in parts)


def rows_at(
    name: str,
    base: DeltaTable,
    changes: Queryable,
    sequence: int,
    groups: Sequence[str] | None,
    columns: pa.Schema | None = None,
    topics: Sequence[TopicPartitions] = (),
    held: pa.Table | None = None,
) -> pa.Table:
    """Return the live rows of groups (None: all) as of a sequence: the columns `ROWS`, or some of them, with
    at least the keys and source_partition. `topics` (none: all) limit offsets. `held` are the rows of
    `read_folded` (None: they are read).

    Undoing is exact as long as a group keeps to one offsets partition, as it does in Kafka's own topic.
    """
    columns = columns or ROWS[name]
    if held is None:
        held = _held(base, groups, columns, topics)
    else:
        held = of_topics(held.select(columns.names), topics)
    return _with_changes(name, held, _changed_at(name, base, changes, sequence, groups, columns, topics))


def read_folded(name: str, base: DeltaTable, groups: Sequence[str]) -> pa.Table:
    """Return the rows of groups in a folded table (columns `ROWS`)."""
    return _held(base, groups, ROWS[name], ())


def live_parts(
    bases: Mapping[str, tuple[DeltaTable, Queryable]],
    sequence: int,
    columns: Mapping[str, pa.Schema] = ROWS,
) -> list[Callable[[], dict[str, pa.Table]]]:
    """Return functions, each of which reads a part of the live rows of folded tables as of a sequence, by
    name. A part has all rows of its groups, in all tables, and if it has several buckets at most
    `_ROWS_OF_A_PART` rows.

    `bases` are the tables, each with its changes; for `columns` see `rows_at`. The changes are read at once.
    """
    changed = {
        name: _changed_at(name, base, changes, sequence, None, columns[name])
        for name, (base, changes) in bases.items()
    }
    bucket_of = {name: offsets_partitions(rows["group"], BUCKETS) for name, rows in changed.items()}
    sizes = np.zeros(BUCKETS, np.int64)
    for name, (base, _) in bases.items():
        sizes += np.bincount(bucket_of[name], minlength=BUCKETS)
        for bucket, files in _files_of(base).items():
            sizes[bucket] += sum(file["num_records"] or 0 for file in files)

    def read(buckets: Sequence[int]) -> dict[str, pa.Table]:
        wanted = [is_one_of(BUCKET.name, [bucket]) for bucket in buckets] if len(portions) > 1 else ["true"]
        return {
            name: _with_changes(
                name,
                _selected(base, columns[name], wanted),
                where(changed[name], np.isin(bucket_of[name], buckets)),
            )
            for name, (base, _) in bases.items()
        }

    portions = _portions(dict(enumerate(sizes.tolist())), _ROWS_OF_A_PART)
    return [partial(read, buckets) for buckets in portions]


def keys_at(
    name: str, base: DeltaTable, changes: Queryable, sequence: int, groups: Sequence[str] | None
) -> pa.Table:
    """As `rows_at`, only the columns `KEYS`."""
    columns = pa.schema([ROWS[name].field(column) for column in (*KEYS[name], "source_partition")])
    return rows_at(name, base, changes, sequence, groups, columns).select(KEYS[name])


def _with_changes(name: str, held: pa.Table, changed: pa.Table) -> pa.Table:
    """Return the rows of a folded table after changes (`_changed`)."""
    if not len(changed):
        return held
    return pa.concat_tables([_without(held, changed, KEYS[name]), _present(changed)])


def value_column(name: str, value: Value) -> str:
    """Return the column of `changes` with the rows of a folded table before or after a change."""
    return value if name == "offsets" else f"group_{value}"


def value_columns(name: str, value: Value, columns: Sequence[str] | None = None) -> str:
    """Return the SQL for the columns `ROWS` of a folded table, or some of them, from `changes`, as they were
    before or after a change."""
    own = {*KEYS[name], "source_partition"}
    return ", ".join(
        f'"{column}"' if column in own else f'"{value_column(name, value)}"[\'{column}\'] AS "{column}"'
        for column in columns or ROWS[name].names
    )


# --- a fold ----------------------------------------------------------------------------------------------


class _Held:
    """The changes of the buckets from `first` to before `stop`. If not all fit, `stop` becomes lower: the
    other buckets need a further pass."""

    def __init__(self, first: int, stop: int) -> None:
        self.first, self.stop = first, stop
        self.sizes = dict[int, int]()  # bytes of each bucket with changes
        self.row_count = 0
        self._rows = dict[int, list[pa.Table]]()

    def add(self, rows: pa.Table) -> None:
        for bucket, own in _by_bucket(rows, self.first, self.stop):
            self._rows.setdefault(bucket, []).append(own)
            self.sizes[bucket] = self.sizes.get(bucket, 0) + own.nbytes
            self.row_count += len(own)
        while len(self.sizes) > 1 and sum(self.sizes.values()) > _HELD_BYTES:
            self.stop = max(self.sizes)
            self.row_count -= len(self.taken([self.stop]))
            del self.sizes[self.stop]

    def taken(self, buckets: Sequence[int]) -> pa.Table:
        """Return the changes of buckets and release them."""
        return pa.concat_tables([rows for bucket in buckets for rows in self._rows.pop(bucket)])


def _by_bucket(rows: pa.Table, first: int, stop: int) -> Iterator[tuple[int, pa.Table]]:
    """Split rows by bucket, for the buckets from `first` to before `stop`.

    Each result has memory of its own, so that it can be freed, unless all rows together are few.

    Adds the column `bucket`: the offsets partition of the group if there were `BUCKETS` partitions.
    """
    if not len(rows):
        return
    buckets = offsets_partitions(rows["group"], BUCKETS)
    rows = rows.append_column(BUCKET, from_numbers(buckets)).combine_chunks()  # once
    order = np.argsort(buckets.astype(np.int8), kind="stable")
    ends = np.cumsum(np.bincount(buckets, minlength=BUCKETS)).tolist()
    in_order = take(rows, order) if rows.nbytes < _FEW_BYTES else None
    for bucket, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        if first <= bucket < stop and start < end:
            yield (
                bucket,
                take(rows, order[start:end]) if in_order is None else in_order.slice(start, end - start),
            )


@dataclass(frozen=True)
class _Fold:
    """Folds changes into buckets of a table, both as they were opened; `files` of the table by bucket."""

    wanted: BucketsToFold
    table: DeltaTable
    changes: DeltaTable
    new: NewFiles
    files: Mapping[int, Files]
    cores: int

    def folded(self) -> FoldedBuckets:
        portions = [portion for held in self._passes() for portion in self._folded_portions(held)]
        return FoldedBuckets(
            sum(portion.keys for portion in portions),
            [bucket for portion in portions for bucket in portion.buckets],
        )

    def _passes(self) -> Iterator[_Held]:
        """Yield the changes (columns as in `_change_schema`, and `bucket`).

        They are read once, or again for the buckets that did not fit into memory.
        """
        wanted, columns = self.wanted, ROWS[self.wanted.name]
        schema = _change_schema(columns)
        sql = _changes_sql(wanted.name, "after", columns, wanted.mark, wanted.sequence, "true")
        first = wanted.first
        while first < wanted.stop:
            held = _Held(first, wanted.stop)
            read = (rows.cast(schema) for rows in stream(sql, changes=self.changes))
            for rows in joined(read, _SPLIT_BYTES):
                held.add(rows)
            first = held.stop
            yield held

    def _folded_portions(self, held: _Held) -> list[FoldedBuckets]:
        row_bytes = sum(held.sizes.values()) // max(1, held.row_count)
        sizes = {b: own + self._rows_of(b) * row_bytes for b, own in held.sizes.items()}
        portions = _portions(sizes, _PORTION_BYTES)
        if len(portions) < 2 or self.cores < 2:
            return [self._folded(held, self.cores, buckets) for buckets in portions]
        with ThreadPoolExecutor(min(self.cores, _AT_ONCE), "offsetlake-fold") as cores:
            return list(cores.map(partial(self._folded, held, 1), portions))

    def _folded(self, held: _Held, cores: int, buckets: Sequence[int]) -> FoldedBuckets:
        newest = _last_of_each_key(held.taken(buckets), KEYS[self.wanted.name], is_undone=False)
        for rows in self._merged(newest.drop_columns("sequence"), buckets):
            write_files(self.table, self.new, rows, cores=cores)
        return FoldedBuckets(len(newest), buckets)

    def _merged(self, newest: pa.Table, buckets: Sequence[int]) -> Iterator[pa.Table]:
        """Yield the live rows of these buckets after their newest changes (the columns `ROWS`, and `bucket`),
        in one table or in several of at most `_FILE_BYTES`, each sorted by group if its files have many
        rows."""
        schema = ROWS[self.wanted.name].append(BUCKET)
        base = _rows_of_files(self.table, self.files, buckets, schema)
        first = next(base, no_rows(schema))
        held = joined(chain([first], base), _FILE_BYTES)
        left = (_without(rows, newest, KEYS[self.wanted.name]) for rows in held)
        added = pieces(_present(newest).select(schema.names))
        live = chain(left, (_encoded(rows, first.schema) for rows in added))
        return map(_by_group, joined(live, _FILE_BYTES))

    def _files_in(self, bucket: int) -> Files:
        return self.files.get(bucket, [])

    def _rows_of(self, bucket: int) -> int:
        return sum(file["num_records"] or 0 for file in self._files_in(bucket))


def _by_group(rows: pa.Table) -> pa.Table:
    """Sort rows by group if those of a bucket fill several row groups of a file, so that a query for one
    group reads few of them."""
    if np.bincount(to_numbers(rows[BUCKET.name]), minlength=1).max() <= ROW_GROUP_ROWS:
        return rows
    rows = rows.unify_dictionaries()
    ranked = ranks(rows["group"])
    return take(rows, np.argsort(ranked.astype(np.min_scalar_type(int(ranked.max()))), kind="stable"))


def _encoded(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with dictionaries in the columns that have them in a schema."""
    for place, kind in enumerate(schema.types):
        if pa.types.is_dictionary(kind):
            rows = rows.set_column(place, schema.field(place), rows.column(place).dictionary_encode())
    return rows


def _rows_of_files(
    base: DeltaTable, files: Mapping[int, Files], buckets: Sequence[int], columns: pa.Schema
) -> Iterator[pa.Table]:
    """Yield the rows of buckets of a folded table, in tables of some thousands; texts that repeat in the
    first file are dictionaries in all. `columns` may include the bucket. Each file is one request to the
    storage."""
    own = [(bucket, file["path"]) for bucket in buckets for file in files.get(bucket, [])]
    storage, repeated = storage_of(base), list[str]()
    for number, (bucket, path) in enumerate(own):
        with explained():
            whole = whole_file(storage, path)
            if not number:
                repeated = _repeated(pq.read_metadata(whole), columns)
            opened = pq.ParquetFile(whole, read_dictionary=repeated)
            for batch in opened.iter_batches(_BATCH_ROWS, columns=columns.names, use_threads=False):
                of_bucket = from_numbers(np.full(len(batch), bucket, np.int32))
                rows = pa.Table.from_batches([batch]).append_column(BUCKET, of_bucket)
                yield cast(rows.select(columns.names), columns)


def _repeated(about: pq.FileMetaData, columns: pa.Schema) -> list[str]:
    """Return the columns of texts that take few bytes in a file."""
    places = {about.schema.column(place).path: place for place in range(about.num_columns)}
    parts = [about.row_group(number) for number in range(about.num_row_groups)]
    return [
        field.name
        for field in columns
        if field.type == pa.string()
        and sum(part.column(places[field.name]).total_uncompressed_size for part in parts)
        <= _MOST_BYTES_OF_REPEATED * about.num_rows
    ]


def _files_of(table: DeltaTable) -> dict[int, Files]:
    files, bucket = dict[int, Files](), f"partition.{BUCKET.name}"
    listed = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()
    for file in listed.select(["path", "size_bytes", "num_records", bucket]).to_pylist():
        files.setdefault(file[bucket], []).append(file)
    return files


def _portions(sizes: Mapping[int, int], most: int) -> list[list[int]]:
    """Group buckets into portions of at most this size, or of one bucket, given the size of each bucket."""
    portions, size = list[list[int]](), 0
    for bucket, own in sorted(sizes.items()):
        if not portions or size + own > most:
            portions.append([])
            size = 0
        portions[-1].append(bucket)
        size += own
    return portions


# --- changes ---------------------------------------------------------------------------------------------


def _held(
    base: DeltaTable, groups: Sequence[str] | None, columns: pa.Schema, topics: Sequence[TopicPartitions]
) -> pa.Table:
    if groups is None and count_rows(base) > _ROWS_AT_ONCE:
        wanted = [is_one_of(BUCKET.name, [bucket]) for bucket in range(BUCKETS)]
    else:
        wanted = [_in_buckets(base, groups)]
    return _selected(base, columns, [f"{is_of_topics(topics)} AND {one}" for one in wanted])


def _selected(base: DeltaTable, columns: pa.Schema, wanted: Sequence[str]) -> pa.Table:
    """Return the rows that match one of some conditions, of which no two match the same row; each is a
    query."""
    sql = f"SELECT {names(columns.names)} FROM base WHERE"
    parts = (select(f"{sql} {one}", base=base).cast(columns) for one in wanted)
    return next(parts) if len(wanted) == 1 else pa.concat_tables(part.combine_chunks() for part in parts)


def _in_buckets(base: DeltaTable, groups: Sequence[str] | None) -> str:
    if groups is None:
        return "true"
    buckets = sorted(set(offsets_partitions(from_texts(groups), BUCKETS).tolist()))
    return f"{is_one_of('bucket', buckets)} AND {is_one_of('group', groups)}"


def _changed_at(
    name: str,
    base: DeltaTable,
    changes: Queryable,
    sequence: int,
    groups: Sequence[str] | None,
    columns: pa.Schema,
    topics: Sequence[TopicPartitions] = (),
) -> pa.Table:
    """Return the keys that changed between the mark of a folded table and a sequence (`_changed`)."""
    mark = fold_mark(base)
    if sequence == mark:
        return no_rows(columns.append(_IS_ABSENT))
    low, high = sorted((mark, sequence))
    return _changed(
        name,
        changes,
        above=low,
        up_to=high,
        is_undone=sequence < mark,
        groups=groups,
        columns=columns,
        topics=topics,
    )


def _changed(
    name: str,
    changes: Queryable,
    *,
    above: int,
    up_to: int,
    is_undone: bool,
    groups: Sequence[str] | None = None,
    columns: pa.Schema | None = None,
    topics: Sequence[TopicPartitions] = (),
) -> pa.Table:
    """Return the keys that changed between two sequences: `columns` of `ROWS` (None: all), and `is_absent`.

    Each has the value after its last change, or (`is_undone`) before its first. A batch holds one change of a
    key for each offsets partition. There is one such partition, except in a copy of the topic that spread a
    group over several: then the highest wins.
    """
    columns = ROWS[name] if columns is None else columns
    value: Value = "before" if is_undone else "after"
    of_groups = "true" if groups is None else is_one_of("group", groups)
    wanted = f"{of_groups} AND {is_of_topics(topics)}"
    sql = _changes_sql(name, value, columns, above, up_to, wanted)
    # at once: the cast takes as much memory again
    rows = cast(select(sql, changes=changes), schema := _change_schema(columns))
    return _last_of_each_key(rows, KEYS[name], is_undone).cast(schema).drop_columns("sequence")


def _changes_sql(name: str, value: Value, columns: pa.Schema, above: int, up_to: int, wanted: str) -> str:
    """Return the query for the changes between two sequences (columns as in `_change_schema`)."""
    return f"""
        SELECT {value_columns(name, value, columns.names)},
               "{value_column(name, value)}" IS NULL AS "is_absent", "sequence"
        FROM changes
        WHERE "kind" = '{KINDS[name]}' AND "sequence" > {above} AND "sequence" <= {up_to} AND {wanted}
        """


def _change_schema(columns: pa.Schema) -> pa.Schema:
    """Return the schema of changes: some of `ROWS`, `is_absent` and `sequence`."""
    return columns.append(_IS_ABSENT).append(pa.field("sequence", pa.int64()))


def _present(changed: pa.Table) -> pa.Table:
    """Return the changed rows that exist (`_changed`), without `is_absent`."""
    is_absent = changed["is_absent"]
    rows = changed.filter(pc.invert(is_absent)) if pc.any(is_absent).as_py() else changed
    return rows.drop_columns("is_absent")


def _last_of_each_key(rows: pa.Table, keys: list[str], is_undone: bool) -> pa.Table:
    """Keep the row of each key with the highest (`is_undone`: lowest) sequence; the order of rows stays."""
    if not len(rows):
        return rows
    codes = key_codes(rows.select(keys).columns)
    sequences = to_numbers(rows["sequence"]) * (1 if is_undone else -1)
    partitions = -to_numbers(rows["source_partition"]).astype(np.int64)
    is_last = np.zeros(len(rows), np.bool_)
    is_last[leading(codes, sequences, partitions)] = True
    return where(rows, is_last)


def _without(rows: pa.Table, changed: pa.Table, keys: list[str]) -> pa.Table:
    """Remove the rows whose key is among the changed."""
    numbering, _ = Numbering.of(changed, keys)
    return where(rows, numbering.codes_of(rows) < 0)
