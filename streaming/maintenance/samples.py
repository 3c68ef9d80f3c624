"""Joins, thins and sorts the files of `log_ends`; every round of samples adds one file.

Rows are sorted by topic, partition and time, in files of slightly more than half a million rows, which hold
whole partitions of the joined files; rows about whole topics are in a file of their own. A sorted sample
takes a third of the bytes, and the rows of a few topics are in few files. Of each minute, only the last
sample of a partition is kept: sampling is more frequent only to keep the newest sample young.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties
from deltalake.exceptions import CommitFailedError

from streaming.common.arrays import from_mask, from_numbers, from_texts, to_mask, to_numbers
from streaming.common.keys import firsts, key_codes, numbered
from streaming.common.times import MINUTE_MS
from streaming.model.errors import OffsetlakeError
from streaming.model.schemas import LOG_ENDS
from streaming.tables.files import NewFiles, removal, write_files
from streaming.tables.log_ends import SampleFile, SampleFiles, as_table, is_about, milliseconds
from streaming.tables.tables import Tables

SMALL_ROWS: Final = 500_000
"""Files with fewer rows are small. This many rows are in memory at a time, however many a topic has, or the
rows of one partition: at most 864,000 a day (`[log_ends] every` is at least 100 ms)."""

_ROW_GROUP_ROWS: Final = 16 * 1024  # a day of some ten partitions: most reads need few
_TABLE: Final = "log_ends"
Partition = tuple[str, int]
_COLUMNS: Final = [field.name for field in LOG_ENDS if field.name != "day"]


class SamplesLostError(OffsetlakeError):
    """Joined files do not hold all rows of the original files."""


def join_samples(tables: Tables, day: date, files: Sequence[Mapping[str, Any]]) -> None:
    """Replace files of a day, as listed by delta-rs, by sorted ones, in one commit.

    Raises `CommitFailedError` when another commit comes first, or has replaced one of the files.
    """
    table = tables.delta(_TABLE)
    samples = SampleFiles(table)
    held = _held(samples, files)
    expected, count = sum(file["num_records"] for file in files), 0
    with NewFiles(tables.storage(table)) as new:
        for rows in _portions(samples, held):
            write_files(table, new, _with_day(_thinned(rows), day), row_group_rows=_ROW_GROUP_ROWS)
            count += len(rows)
        if count != expected:
            raise SamplesLostError(
                f"joining samples of log ends of {day}: expected {expected} rows, found {count}. The files "
                "stay as they are."
            )
        removed = [removal(file, {"day": str(day)}) for file in files]
        newest = tables.delta(_TABLE)  # the job has appended meanwhile
        _held(SampleFiles(newest), files)
        new.commit(newest, removed, CommitProperties(max_commit_retries=0))


def is_small(file: Mapping[str, Any]) -> bool:
    """Whether a file, as listed by delta-rs, is to be joined with others."""
    return bool(file["num_records"] < SMALL_ROWS)


def _held(samples: SampleFiles, files: Sequence[Mapping[str, Any]]) -> list[SampleFile]:
    """Return files listed by delta-rs as `SampleFile`s of this version of the table."""
    paths = {file["path"] for file in files}
    held = [file for file in samples.files if file.path in paths]
    if len(held) < len(paths):
        raise CommitFailedError(
            f"joining samples of log ends: expected {len(paths)} files in the table, found {len(held)}: "
            "another process has replaced the others. The next round joins what there is then."
        )
    return held


def _portions(samples: SampleFiles, files: Sequence[SampleFile]) -> Iterator[pa.Table]:
    """Yield the sorted rows of files: first those about whole topics, then those of some partitions at a
    time."""
    of_topics = [
        batch.filter(pc.is_null(batch["partition"]))
        for file in files
        for batch in samples.batches(file, _COLUMNS, topics=None, of_topics=True)
    ]
    if len(rows := _sorted(as_table(of_topics, _COLUMNS))):
        yield rows
    for keys in _ranges(_counts(samples, files)):
        yield _sorted(_of(samples, files, keys))


def _counts(samples: SampleFiles, files: Sequence[SampleFile]) -> Counter[Partition]:
    counts = Counter[Partition]()
    for file in files:
        for batch in samples.batches(file, ["topic", "partition"], topics=None):
            held = batch.filter(pc.is_valid(batch["partition"]))
            topics = held["topic"].dictionary.to_pylist()
            places = to_numbers(held["topic"].indices).astype(np.int64) << 32 | to_numbers(held["partition"])
            keys, rows = np.unique(places, return_counts=True)
            for key, count in zip(keys.tolist(), rows.tolist(), strict=True):
                counts[topics[key >> 32], key & 0xFFFF_FFFF] += count
    return counts


def _ranges(counts: Mapping[Partition, int]) -> Iterator[list[Partition]]:
    """Split partitions, in order, into ranges of `SMALL_ROWS` rows or slightly more; the last has fewer."""
    held, size = list[Partition](), 0
    for key in sorted(counts):
        held.append(key)
        size += counts[key]
        if size >= SMALL_ROWS:
            yield held
            held, size = [], 0
    if held:
        yield held


def _of(samples: SampleFiles, files: Sequence[SampleFile], keys: Sequence[Partition]) -> pa.Table:
    """Read the rows about partitions from the first to the last of `keys` (sorted)."""
    topics = sorted({topic for topic, _ in keys})
    wanted = from_texts(topics)
    rows = [
        batch.filter(pc.and_(is_about(batch, wanted), _is_between(batch, keys[0], keys[-1])))
        for file in files
        for batch in samples.batches(file, _COLUMNS, topics=topics)
    ]
    return as_table(rows, _COLUMNS)


def _is_between(batch: pa.RecordBatch, first: Partition, last: Partition) -> pa.Array:
    """Return for n rows about topics from the first to the last whether their partition lies between the two,
    inclusive; false for rows about whole topics."""
    is_early = pc.and_(is_about(batch, from_texts([first[0]])), pc.less(batch["partition"], first[1]))
    is_late = pc.and_(is_about(batch, from_texts([last[0]])), pc.greater(batch["partition"], last[1]))
    is_out = pc.fill_null(pc.or_(is_early, is_late), fill_value=False)
    return pc.and_(pc.is_valid(batch["partition"]), pc.invert(is_out))


def _sorted(rows: pa.Table) -> pa.Table:
    codes, names = numbered(rows["topic"])
    topics = names.to_pylist()
    rank = np.empty(len(topics), np.int64)
    rank[sorted(range(len(topics)), key=topics.__getitem__)] = np.arange(len(topics))
    partition = to_numbers(pc.fill_null(rows["partition"], -1))
    order = np.lexsort((milliseconds(rows["sampled_at"]), partition, rank[codes]))
    return rows.take(from_numbers(order))


def _thinned(rows: pa.Table) -> pa.Table:
    """Return of sorted rows about partitions the last one of each minute, separately for ends and errors and
    for each topic id; rows about whole topics stay."""
    minutes = from_numbers(milliseconds(rows["sampled_at"]) // MINUTE_MS)
    partitions = pc.fill_null(rows["partition"], -1)
    ids = pc.fill_null(rows["topic_id"].cast(pa.string()), "")
    is_end = pc.is_valid(rows["log_end"]).cast(pa.int8())
    codes = key_codes([rows["topic"], partitions, ids, minutes, is_end])
    is_kept = to_mask(pc.is_null(rows["partition"]))
    is_kept[len(rows) - 1 - firsts(codes[::-1])] = True
    return rows if is_kept.all() else rows.filter(from_mask(is_kept))


def _with_day(rows: pa.Table, day: date) -> pa.Table:
    days = pa.repeat(pa.scalar(day, pa.date32()), len(rows))
    return rows.append_column(LOG_ENDS.field("day"), days).select(LOG_ENDS.names)
