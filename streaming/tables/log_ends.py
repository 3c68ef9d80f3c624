"""Samples of log ends: their files, the newest sample of each partition, the topics over time.

The table `log_ends` is read file by file, the newest first: most questions are about recent times.
Maintenance joins files and sorts their rows by topic, partition and time; rows about whole topics have files
of their own. `streaming.tables.offset_times` computes when log ends passed positions.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from streaming.common.arrays import (
    Index,
    Mask,
    begins_run,
    from_mask,
    from_numbers,
    from_texts,
    no_rows,
    numbers_or,
    to_mask,
    to_numbers,
)
from streaming.common.keys import firsts, key_codes, numbered
from streaming.common.pieces import take
from streaming.common.times import DAY_MS, MINUTE_MS, start_of
from streaming.common.timestamps import timestamp, to_milliseconds
from streaming.model.schemas import LOG_ENDS, TIMESTAMP, TOPIC_GONE
from streaming.tables.files import RecentFiles, storage_of, whole_file
from streaming.tables.select import FilesGoneError

NEWEST_ENDS: Final = pa.schema(
    [LOG_ENDS.field(n) for n in ("topic", "topic_id", "partition", "sampled_at", "log_start", "log_end")]
)
"""The newest sample of a partition. Only `topic_id` and `log_start` may be null: unknown."""

TOPICS_OVER_TIME: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("first_at", TIMESTAMP),  # of the kept samples
        ("last_at", TIMESTAMP),  # of the newest id up to an hour too early; else its last sample
    ]
)
"""The times at which topic names were seen with an id."""

_WITH_DICTIONARIES: Final = pa.schema(
    [
        pa.field(field.name, pa.dictionary(pa.int32(), field.type)) if field.type == pa.string() else field
        for field in NEWEST_ENDS
    ]
)

NEWEST_WITHIN_MS: Final = 15 * MINUTE_MS
"""A partition has no newest end when its newest sample is older than the newest of all samples by more than
this, unless the caller asks for older ones."""

Topics = Sequence[str] | None  # sorted; None: all
Batches = list[pa.RecordBatch]
Condition = Callable[[pa.RecordBatch], pa.Array | None]  # None: true of all rows
_DICTIONARIES: Final = ["topic", "topic_id"]

_COLUMNS: Final = [*NEWEST_ENDS.names, "error"]
_WHOLE_BYTES: Final = 1024 * 1024  # up to this size a file is read at once: a round of 100,000 partitions
_HELD_BYTES: Final = 128 * 1024  # up to this size its rows are cached: a round of 20,000 partitions
_RECENT: Final = RecentFiles(16 * 1024 * 1024)
_ROWS_TOGETHER: Final = 500_000  # of small files
_HELD_ROWS: Final = 2_000_000  # for one answer: 80 MB
_FEW_ROWS: Final = 1_000


@dataclass(frozen=True, kw_only=True)
class SampleFile:
    """One file of `log_ends` as described by the Delta log. Times in ms; topics None: unknown."""

    path: str
    size: int  # bytes
    first_at: int
    last_at: int
    first_topic: str | None
    last_topic: str | None
    rows: int
    topic_rows: int  # rows about whole topics

    @property
    def has_samples(self) -> bool:
        return self.rows > self.topic_rows

    def may_be_of(self, topics: Sequence[str]) -> bool:
        """Whether it may have rows of any of these topics (sorted)."""
        first, last = self.first_topic, self.last_topic
        return first is None or last is None or _has_between(topics, first, last)


class _OfTopics:
    """The rows of some topics (sorted) in files that were read; few other rows may be among them."""

    def __init__(self, topics: Sequence[str]) -> None:
        self.topics: Final = topics
        self.names: Final = from_texts(topics)
        self._known: Final = set(topics)
        self._rows: Final = dict[str, Batches]()  # by the path of the file
        self._left = _HELD_ROWS

    def include(self, topics: Sequence[str]) -> bool:
        return self._known.issuperset(topics)

    def find(self, path: str) -> Batches | None:
        return self._rows.get(path)

    def hold(self, path: str, rows: Batches, paths: Collection[str]) -> None:
        """Hold the rows of a file, if there is room for them; `paths` are the files of the table now."""
        for former in [other for other in list(self._rows) if other not in paths]:
            self._left += sum(map(len, self._rows.pop(former, ())))
        if (count := sum(map(len, rows))) <= self._left:
            self._left -= count
            self._rows[path] = rows


class HeldSamples:
    """The samples of the topics that were asked about last, for further questions about them, or about some
    of them. They cannot be stale: a file of a Delta table never changes. Threads may share it."""

    def __init__(self) -> None:
        self._held = _OfTopics([])

    def of(self, topics: Sequence[str]) -> _OfTopics:
        """Return the held rows that include these topics (sorted); of others, the rows are released."""
        held = self._held
        if not held.include(topics):
            self._held = held = _OfTopics(topics)
        return held


class SampleFiles:
    """The files of one version of `log_ends`, and their rows.

    The rows of the topics that were asked about last are held: one answer needs them several times.
    """

    def __init__(self, table: DeltaTable, held: HeldSamples | None = None) -> None:
        self._storage = storage_of(table)
        self._root = table.table_uri
        self.files: Final = _files_of(table)
        self._paths: Final = {file.path for file in self.files}
        self._held: Final = held or HeldSamples()

    def between(self, since: int | None, until: int, topics: Sequence[str] | None = None) -> list[SampleFile]:
        """Return the files that may have rows sampled between two moments (ms, inclusive), of topics (sorted;
        None: all)."""
        own = [file for file in self.files if topics is None or file.may_be_of(topics)]
        return [file for file in own if (since is None or file.last_at >= since) and file.first_at <= until]

    def joined(
        self, files: Iterable[SampleFile], columns: Sequence[str], *, topics: Topics, of_topics: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Read several files as `batches` does one; rows of small files come in one batch.

        A round of samples is a file of few rows, and the work for each batch costs more than its reading.
        """
        held, rows = list[pa.RecordBatch](), 0
        for file in files:
            if file.size > _WHOLE_BYTES and (topics is None or of_topics):
                yield from self.batches(file, columns, topics=topics, of_topics=of_topics)
                continue
            for batch in self._whole(file) if topics is None else self._of_topics(file, topics):
                held.append(batch.select(columns))
                rows += len(batch)
                if rows >= _ROWS_TOGETHER:
                    yield from _in_one(held)
                    held, rows = [], 0
        yield from _in_one(held)

    def _of_topics(self, file: SampleFile, topics: Sequence[str]) -> Batches:
        """Read the rows of topics (sorted) in a file. A few other rows may be among them."""
        held, is_large = self._held.of(topics), file.size > _WHOLE_BYTES
        is_same = topics == held.topics
        wanted = held.names if is_same else from_texts(topics)
        if (rows := held.find(file.path)) is not None:
            return rows if is_same else [_chosen(batch, wanted) for batch in rows]
        batches = self.batches(file, _COLUMNS, topics=topics) if is_large else self._whole(file)
        rows = [_with_used_topics(batch) for batch in _in_one([_chosen(batch, wanted) for batch in batches])]
        if is_same:
            held.hold(file.path, rows, self._paths)
        return rows

    def batches(
        self, file: SampleFile, columns: Sequence[str], *, topics: Topics, of_topics: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Read columns of the row groups that may have rows of some topics (sorted; None: all), or with
        `of_topics` rows about whole topics. Other rows may be among them.

        Names are dictionaries. Raises `FilesGoneError`.
        """
        try:
            with self._open(file) as source:
                opened = pq.ParquetFile(source, read_dictionary=_DICTIONARIES)
                about = opened.metadata
                places = [about.schema.names.index(name) for name in ("topic", "partition")]
                parts = [
                    number
                    for number in range(about.num_row_groups)
                    if _may_have(about.row_group(number), places, topics, of_topics=of_topics)
                ]
                if parts:
                    is_large = file.size > _WHOLE_BYTES
                    yield from opened.read_row_groups(parts, list(columns), use_threads=is_large).to_batches()
        except FileNotFoundError as error:
            raise FilesGoneError(f"reading log ends: expected the file {file.path}, found none.") from error

    def _whole(self, file: SampleFile) -> Iterable[pa.RecordBatch]:
        """Read all of a small file, from the cache if possible."""
        read = partial(self.batches, file, _COLUMNS, topics=None)
        return _RECENT.rows(f"{self._root}/{file.path}", read) if file.size <= _HELD_BYTES else read()

    def _open(self, file: SampleFile) -> pa.NativeFile:
        """Open a file; small files are read at once instead of in pieces."""
        is_large = file.size > _WHOLE_BYTES
        return self._storage.open_input_file(file.path) if is_large else whole_file(self._storage, file.path)


def newest_ends(
    samples: SampleFiles, topics: Collection[str] | None, *, as_of: int, within_ms: int = 0
) -> pa.Table:
    """Return the newest sample (schema `NEWEST_ENDS`) of each partition of topics (None: all), in no order.

    The samples are at most `within_ms` (at least `NEWEST_WITHIN_MS`) older than `as_of` (ms); if there are
    none, than the newest sample up to `as_of`. Samples without a log end are left out, and samples of topics
    that were gone or recreated afterwards.
    """
    wanted, within_ms = None if topics is None else sorted(set(topics)), max(within_ms, NEWEST_WITHIN_MS)
    rows = _where(samples, wanted, as_of - within_ms, as_of, _is_relevant)
    return _newest_of(rows, samples, wanted, as_of, within_ms)


def ends_between(
    samples: SampleFiles, topics: Collection[str] | None, *, since: int, until: int, within_ms: int = 0
) -> pa.Table:
    """Return the samples (schema `NEWEST_ENDS`, with names in dictionaries) of topics (None: all) after
    `since` and up to `until` (ms), and the newest samples up to `since`, as `newest_ends` does; in no order.

    Rows about whole topics are among them (`partition` and `log_end` null): `topic_id` is the topic's id;
    null: the topic is gone.
    """
    return _ends(samples, topics, since, until, within_ms, lambda batch: None)


def ends_at(
    samples: SampleFiles, topics: Collection[str] | None, moments: Index, *, within_ms: int = 0
) -> pa.Table:
    """Return what `ends_between` does from the first to the last of m moments (ms, rising), without samples
    after which the same partition of the same topic has another one before the next moment."""
    first, last = int(moments[0]), int(moments[-1])
    return _ends(samples, topics, first, last, within_ms, partial(_is_last, moments=moments))


def _ends(
    samples: SampleFiles,
    topics: Collection[str] | None,
    since: int,
    until: int,
    within_ms: int,
    matches: Condition,
) -> pa.Table:
    """Return what `ends_between` does; of the samples after `since` only those that match `matches`."""
    wanted, within_ms = None if topics is None else sorted(set(topics)), max(within_ms, NEWEST_WITHIN_MS)
    files = samples.between(since - within_ms, until, wanted)
    names = None if wanted is None else from_texts(wanted)
    oldest, first, last = map(timestamp, (since - within_ms, since, until))
    before, later = Batches(), Batches()
    for batch in samples.joined(files, _COLUMNS, topics=wanted):
        is_relevant = _is_relevant(batch)
        rows = batch if is_relevant is None else batch.filter(is_relevant)
        at, is_own = rows["sampled_at"], None if names is None else is_about(rows, names)
        is_before = pc.and_(pc.greater_equal(at, oldest), pc.less_equal(at, first))
        before.append(rows.filter(_all(is_own, is_before)))
        is_later = pc.and_(pc.greater(at, first), pc.less_equal(at, last))
        later.append(rows.select(NEWEST_ENDS.names).filter(_all(is_own, is_later, matches(rows))))
    newest = _newest_of(before, samples, wanted, since, within_ms).cast(_WITH_DICTIONARIES)
    return pa.concat_tables([newest, pa.Table.from_batches(later, _WITH_DICTIONARIES)])


def _is_last(batch: pa.RecordBatch, moments: Index) -> pa.Array:
    """Return for n rows whether the next row is not a later one of the same partition, topic and topic id up
    to the same of m moments (ms, rising)."""
    at, partitions = milliseconds(batch["sampled_at"]), batch["partition"]
    topics, ids = (batch[name].indices for name in _DICTIONARIES)
    same = (
        numbers_or(column, -1) if column.null_count else to_numbers(column)  # int32: half as many bytes
        for column in (topics, ids, partitions)
    )
    is_last = begins_run(np.searchsorted(moments, at), *same)
    is_last[1:] |= at[1:] < at[:-1]
    if partitions.null_count:
        is_sample = to_mask(partitions.is_valid())
        is_last[1:] |= ~is_sample[1:] | ~is_sample[:-1]
    return from_mask(np.append(is_last[1:], True)[: len(batch)])


def topics_over_time(samples: SampleFiles, topics: Collection[str] | None, *, as_of: int) -> pa.Table:
    """Return the ids of topics (None: all) over time (schema `TOPICS_OVER_TIME`), as seen up to `as_of` (ms),
    ordered by first_at."""
    wanted = None if topics is None else sorted(set(topics))
    seen = as_table(_where(samples, wanted, None, as_of, _has_id), _COLUMNS)
    seen = take(seen, np.argsort(milliseconds(seen["sampled_at"]), kind="stable"))
    codes = key_codes([seen["topic"], seen["topic_id"]])  # groups of Acero would import pandas
    lasts = len(codes) - 1 - firsts(codes[::-1])
    first, last_at = take(seen, firsts(codes)), take(seen, lasts)["sampled_at"]
    spans = [*(first[name] for name in ("topic", "topic_id", "sampled_at")), last_at]
    return pa.Table.from_arrays(spans, schema=TOPICS_OVER_TIME)


def gone_at(samples: SampleFiles, topics: Sequence[str], as_of: int) -> dict[str, int]:
    """Return when (ms) topics (sorted) were last seen gone, up to a moment (ms); without topics that never
    were."""
    last = _last_of_each(as_table(_where(samples, topics, None, as_of, _is_gone), _COLUMNS), ["topic"])
    return dict(zip(last["topic"].to_pylist(), milliseconds(last["sampled_at"]).tolist(), strict=True))


# --- the newest samples ----------------------------------------------------------------------------------


def _latest(samples: SampleFiles, as_of: int) -> int | None:
    latest: int | None = None  # ms
    for file in sorted(samples.between(None, as_of), key=lambda file: min(file.last_at, as_of), reverse=True):
        if latest is not None and latest >= min(file.last_at, as_of):
            break
        found = file.last_at if file.last_at <= as_of else _latest_in(samples, file, as_of)
        latest = found if latest is None else max(latest, found)
    return latest


def _latest_in(samples: SampleFiles, file: SampleFile, as_of: int) -> int:
    """Return the time (ms) of the newest row of a file up to a moment, of which there is at least one."""
    batches = samples.joined([file], ["sampled_at"], topics=None)
    times = np.concatenate([milliseconds(batch["sampled_at"]) for batch in batches])
    return int(times[times <= as_of].max())


def _where(
    samples: SampleFiles, topics: Topics, since: int | None, until: int, matches: Condition
) -> Batches:
    """Read the rows between two moments (ms) that match `matches`; since None: only rows about whole topics,
    from the beginning."""
    files = [file for file in samples.between(since, until, topics) if since is not None or file.topic_rows]
    last, first = timestamp(until), None if since is None else timestamp(since)
    names = None if topics is None else from_texts(topics)

    def chosen(batch: pa.RecordBatch) -> pa.RecordBatch:
        mask = _all(
            None if names is None else is_about(batch, names),
            None if first is None else pc.greater_equal(batch["sampled_at"], first),
            pc.less_equal(batch["sampled_at"], last),
            matches(batch),
        )
        return batch if mask.true_count == len(batch) else batch.filter(mask)  # most batches are whole

    return [
        chosen(batch) for batch in samples.joined(files, _COLUMNS, topics=topics, of_topics=since is None)
    ]


def _is_relevant(rows: pa.RecordBatch) -> pa.Array | None:
    if not rows["log_end"].null_count:
        return None
    return pc.or_(pc.or_(pc.is_valid(rows["log_end"]), _is_gone(rows)), _has_id(rows))


def _has_id(rows: pa.RecordBatch | pa.Table) -> pa.Array | pa.ChunkedArray:
    return pc.and_(pc.is_null(rows["partition"]), pc.is_valid(rows["topic_id"]))


def _is_gone(rows: pa.RecordBatch | pa.Table) -> pa.Array | pa.ChunkedArray:
    is_gone = pc.is_in(rows["error"], value_set=from_texts([TOPIC_GONE]))
    return pc.and_(pc.is_null(rows["partition"]), is_gone)


def _newest_of(rows: Batches, samples: SampleFiles, topics: Topics, as_of: int, within_ms: int) -> pa.Table:
    """Return what `newest_ends` does, given the `rows` of the topics (sorted; None: all) within `within_ms`
    before `as_of` (ms)."""
    if not all(pc.all(_has_id(batch), min_count=0).as_py() for batch in rows):
        return _newest(rows)
    if (latest := _latest(samples, as_of)) is None:
        return no_rows(NEWEST_ENDS)
    return _newest(_where(samples, topics, latest - within_ms, latest, _is_relevant))


def _newest(batches: Batches) -> pa.Table:
    """Return the newest sample of each partition, except of topics that were gone or recreated after it."""
    rows = _with_names_once(batches) if batches else as_table(batches, _COLUMNS)
    samples = rows.filter(pc.is_valid(rows["log_end"]))
    if len(samples) == 0:
        return no_rows(NEWEST_ENDS)
    newest = _last_of_each(samples, ["topic", "partition"])
    ended = _last_of_each(rows.filter(_is_gone(rows)), ["topic"])
    identified = _last_of_each(rows.filter(pc.is_valid(rows["topic_id"])), ["topic"])  # the current id
    newest, ended, identified = (
        one.select(NEWEST_ENDS.names).cast(NEWEST_ENDS) for one in (newest, ended, identified)
    )
    own = _of_topics(identified, newest)
    is_stale = _is_later(own, newest) & to_mask(pc.not_equal(own["topic_id"], newest["topic_id"]))
    is_over = _is_later(_of_topics(ended, newest), newest) | is_stale
    return newest.filter(from_mask(~is_over))


def _last_of_each(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    if len(rows) == 0:
        return rows
    at, codes = milliseconds(rows["sampled_at"]), key_codes([rows[name] for name in key])
    ends = np.flatnonzero(
        np.append((codes[1:] != codes[:-1]) | (at[1:] < at[:-1]), True)
    )  # files are in order
    order = ends[np.argsort(at[ends], kind="stable")]
    last = np.full(int(codes.max()) + 1, -1, np.int64)  # names in a dictionary may have no rows
    last[codes[order]] = order  # assignment keeps the last of equal codes
    return take(rows, last[last >= 0])


def _of_topics(rows: pa.Table, newest: pa.Table) -> pa.Table:
    """Return for each row of `newest` the row of its topic in `rows` (one for each topic), or nulls."""
    place = pc.index_in(newest["topic"], value_set=rows["topic"])
    return rows.select(["sampled_at", "topic_id"]).take(place)


def _is_later(rows: pa.Table, others: pa.Table) -> Mask:
    return to_mask(pc.greater(rows["sampled_at"], others["sampled_at"]))


# --- rows ------------------------------------------------------------------------------------------------


def _in_one(batches: Batches) -> Batches:
    """Return batches with dictionaries as one batch; none if they have no rows."""
    filled = [batch for batch in batches if len(batch)]
    if len(filled) > 1:
        filled = _with_names_once(filled).combine_chunks().to_batches()
    return filled


def _with_names_once(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches).unify_dictionaries()


def milliseconds(times: pa.Array | pa.ChunkedArray) -> Index:
    """Return n timestamps without nulls as n milliseconds since 1970."""
    return to_numbers(to_milliseconds(times)).astype(np.int64, copy=False)


def _all(*masks: pa.Array | None) -> pa.Array:
    """Return the conjunction of n-row masks; None is true everywhere."""
    first, *others = [mask for mask in masks if mask is not None]
    for mask in others:
        first = pc.and_(first, mask)
    return first


def is_about(batch: pa.RecordBatch, topics: pa.Array) -> pa.Array:
    """Return for n rows of `SampleFiles.batches` whether each is of one of the topics."""
    is_own = pc.is_in(batch["topic"].dictionary, value_set=topics)
    if is_own.true_count == len(is_own):
        return from_mask(np.ones(len(batch), np.bool_))
    return is_own.take(batch["topic"].indices)


def _with_used_topics(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Leave out names of topics without a row: where all are wanted, no row needs to be looked at."""
    codes, names = numbered(batch["topic"])
    topics = pa.DictionaryArray.from_arrays(from_numbers(codes.astype(np.int32)), names)
    return batch.set_column(batch.schema.get_field_index("topic"), "topic", topics)


def _chosen(batch: pa.RecordBatch, topics: pa.Array) -> pa.RecordBatch:
    """Leave out the rows of other topics, unless the batch is small."""
    if len(batch) < _FEW_ROWS:
        return batch
    is_own = is_about(batch, topics)
    return batch if is_own.true_count == len(batch) else batch.filter(is_own)


def as_table(batches: Sequence[pa.RecordBatch], columns: Sequence[str]) -> pa.Table:
    """Return batches with dictionaries as one table: columns of `log_ends`, with plain texts."""
    schema = pa.schema([LOG_ENDS.field(name) for name in columns])
    tables = [pa.Table.from_batches([batch]).select(columns).cast(schema) for batch in batches if len(batch)]
    return pa.concat_tables([no_rows(schema), *tables])


# --- files -----------------------------------------------------------------------------------------------


def _files_of(table: DeltaTable) -> list[SampleFile]:
    """Return the files, the newest first. A file without bounds in the log gets those of its day."""
    # `pa.table` would check for pandas objects, and import pandas
    actions = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()
    names = ("path", "size_bytes", "partition.day", "num_records", "null_count.partition")
    bounds = [f"{bound}.{column}" for column in ("sampled_at", "topic") for bound in ("min", "max")]
    held = [name for name in (*names, *bounds) if name in actions.column_names]
    columns = {
        # converting a timestamp to a Python object imports pandas
        name: to_milliseconds(actions[name]) if name.endswith(".sampled_at") else actions[name]
        for name in held
    }
    rows = zip(*(column.to_pylist() for column in columns.values()), strict=True)
    files = [_file(dict(zip(columns, row, strict=True))) for row in rows]
    return sorted(files, key=lambda file: (file.last_at, file.first_at), reverse=True)


def _file(row: Mapping[str, Any]) -> SampleFile:
    day = start_of(row["partition.day"])
    first, last = (row.get(f"{bound}.sampled_at") for bound in ("min", "max"))
    rows, topic_rows = row.get("num_records"), row.get("null_count.partition")
    return SampleFile(
        path=row["path"],
        size=row["size_bytes"],
        first_at=day if first is None else first,
        last_at=day + DAY_MS - 1 if last is None else last,
        first_topic=row.get("min.topic"),
        last_topic=row.get("max.topic"),
        rows=2 if rows is None else rows,  # unknown: rows of both kinds
        topic_rows=1 if topic_rows is None else topic_rows,
    )


def _may_have(part: Any, places: Sequence[int], topics: Sequence[str] | None, *, of_topics: bool) -> bool:
    """Whether a row group may have rows of any of the topics (sorted); with `of_topics`, rows about whole
    topics. `places` are the positions of the columns topic and partition."""
    topic, partition = (part.column(place).statistics for place in places)
    if of_topics and partition is not None and partition.has_null_count and partition.null_count == 0:
        return False
    if topics is None or topic is None or not topic.has_min_max:
        return True
    return _has_between(topics, topic.min, topic.max)


def _has_between(topics: Sequence[str], first: str, last: str) -> bool:
    """Whether any of the topics (sorted) lies between `first` and `last`, inclusive."""
    place = bisect_left(topics, first)
    return place < len(topics) and topics[place] <= last
