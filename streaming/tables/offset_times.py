"""Computes when log ends passed positions, from the samples in `log_ends`.

A position is passed between the last sample whose log end is not above it and the next sample. Files are read
from the newest on, and only for positions that are still open: most positions are near the end.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import Index, Mask, begins_run, from_numbers, to_numbers
from streaming.common.keys import numbered
from streaming.common.timestamps import to_timestamps
from streaming.model.schemas import TIMESTAMP
from streaming.tables.log_ends import SampleFile, SampleFiles, gone_at, milliseconds

CROSSINGS: Final = pa.schema(
    [
        ("below_at", TIMESTAMP),  # of the last sample whose log end is not above the position
        ("below_end", pa.int64()),  # null, as below_at: already the first sample is above the position
        ("above_at", TIMESTAMP),  # of the first sample after that one, or of the first of all
        ("above_end", pa.int64()),  # null, as above_at: the end has not passed the position
    ]
)

_COLUMNS: Final = ("sampled_at", "topic", "topic_id", "partition", "log_end")
_LOW_BITS: Final = 0xFFFF_FFFF
_MOST: Final = 2**62
_ROWS_AT_A_TIME: Final = 500_000


class _Rows(NamedTuple):
    """Samples by partition (numbers in `code`) and time (ms); `topic_id` is a number, -1: none."""

    code: Index
    at: Index
    end: Index
    topic_id: Index

    def where(self, chosen: Mask | Index) -> "_Rows":
        return _Rows(*(column[chosen] for column in self))


def offset_times(samples: SampleFiles, positions: pa.Table, *, as_of: int) -> pa.Table:
    """Return when log ends passed n positions (n rows in the same order, schema `CROSSINGS`).

    Positions have `topic`, `partition` and `committed_offset`; a null in any gives a row of nulls. Only
    samples up to `as_of` (ms) count, and only those of the same log as the newest sample of the partition:
    none before a sample with another topic id. Where brokers have no topic ids, none from before the topic
    was gone or before the log end fell: that may be another log.
    """
    is_whole = _is_whole(positions)
    asked = positions.filter(is_whole)
    if len(asked) == 0:
        return nothing_crossed(len(positions))
    search = _Search(asked)
    files = [file for file in samples.between(None, as_of, search.topics) if file.has_samples]
    for some in _growing(_portions(files)):
        if not len(search.open):
            break
        search.go_back_through(samples, some, as_of)
    found = search.result()
    if len(asked) == len(positions):
        return found
    places = np.cumsum(pc.cast(is_whole, pa.int64()).to_numpy()) - 1
    return found.take(
        pc.if_else(is_whole, from_numbers(places.astype(np.int64)), pa.scalar(None, pa.int64()))
    )


def nothing_crossed(count: int) -> pa.Table:
    """Return a row of nulls for each of `count` positions."""
    return pa.table([pa.nulls(count, field.type) for field in CROSSINGS], schema=CROSSINGS)


def _is_whole(positions: pa.Table) -> pa.Array:
    columns = [pc.is_valid(positions[name]) for name in ("topic", "partition", "committed_offset")]
    whole = pc.and_(pc.and_(columns[0], columns[1]), columns[2])
    return whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole


# --- the search ------------------------------------------------------------------------------------------


class _Search:
    """Walks back through samples and records for each position when it was passed.

    m positions are in k partitions, which are numbered by topic and partition, the order of files. `topics`
    are their topics (sorted), `open` the numbers of the positions still to be found.
    """

    def __init__(self, positions: pa.Table) -> None:
        codes, names = numbered(positions["topic"])
        topics = names.to_pylist()
        self.topics: Final[list[str]] = sorted(topics)
        self._place = {topic: place for place, topic in enumerate(self.topics)}
        places = np.array([self._place[topic] for topic in topics], np.int64)
        keys = places[codes] << 32 | to_numbers(positions["partition"]).astype(np.int64) & _LOW_BITS
        self._keys, self._code = _sorted_codes(keys)
        self._offset = to_numbers(positions["committed_offset"])
        m, k = len(self._code), len(self._keys)
        self.open: Index = np.arange(m)
        self._below, self._above = _Found(m), _Found(m)
        self._oldest = _Found(k)  # sample so far of each partition
        self._topic_id = np.full(k, -1, np.int64)
        self._ids: dict[str, int] = {}
        self._gone_at: Index | None = None  # of each topic; read only when ids are missing
        self._is_whole: Mask = np.zeros(k, np.bool_)  # an older sample is of another log

    def go_back_through(self, samples: SampleFiles, files: Sequence[SampleFile], as_of: int) -> None:
        """Search open positions in files that are older than all before, or of other partitions."""
        is_wanted = np.zeros(len(self._keys), np.bool_)
        is_wanted[self._code[self.open]] = True
        rows = self._read(samples, files, is_wanted, as_of)
        if self._gone_at is None and (rows.topic_id < 0).any():
            gone = gone_at(samples, self.topics, as_of)
            self._gone_at = np.array([gone.get(topic, -_MOST) for topic in self.topics], np.int64)
        rows = self._of_one_log(rows)
        if len(rows.code):
            starts = _starts(rows.code)
            self._find(rows, starts)
            codes = rows.code[starts]
            self._oldest.note(codes, rows.at[starts], rows.end[starts])
        if self._is_whole.any():
            self.open = self.open[~self._is_whole[self._code[self.open]]]

    def result(self) -> pa.Table:
        """Return m rows (schema `CROSSINGS`); positions still open are below the first sample."""
        never = np.flatnonzero(~self._below.is_found & self._oldest.is_found[self._code])
        first = self._code[never]
        self._above.note(never, self._oldest.at[first], self._oldest.end[first])
        return pa.table([*self._below.columns(), *self._above.columns()], schema=CROSSINGS)

    def _read(self, samples: SampleFiles, files: Sequence[SampleFile], is_wanted: Mask, as_of: int) -> _Rows:
        """Read the samples of the wanted partitions, sorted by partition and time."""
        places = np.unique(self._keys[is_wanted] >> 32).tolist()
        topics = [self.topics[place] for place in places]
        own = [file for file in files if file.may_be_of(topics)]
        read = [self._rows(batch, is_wanted, as_of) for batch in samples.joined(own, _COLUMNS, topics=topics)]
        nothing = np.empty(0, np.int64)
        columns = zip(_Rows(nothing, nothing, nothing, nothing), *read, strict=True)
        rows = _Rows(*map(np.concatenate, columns))
        return rows if _is_sorted(rows) else rows.where(np.lexsort((rows.at, rows.code)))

    def _rows(self, batch: pa.RecordBatch, is_wanted: Mask, as_of: int) -> _Rows:
        """Return the samples of wanted partitions up to `as_of` (ms) in a batch. Rows of files are in order,
        so partitions are looked up once for each run of rows."""
        if batch["partition"].null_count or batch["log_end"].null_count:
            batch = batch.filter(pc.and_(pc.is_valid(batch["partition"]), pc.is_valid(batch["log_end"])))
        topics, partitions = _indices(batch["topic"]), to_numbers(batch["partition"])
        starts = np.flatnonzero(begins_run(topics, partitions))
        places = [self._place.get(name, -1) for name in batch["topic"].dictionary.to_pylist()]
        place = np.array([*places, -1], np.int64)[topics[starts]]
        keys = place << 32 | partitions[starts].astype(np.int64) & _LOW_BITS
        code = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        is_asked = (self._keys[code] == keys) & is_wanted[code]
        counts = np.diff(starts, append=len(batch))
        at = milliseconds(batch["sampled_at"])
        chosen = np.repeat(is_asked, counts) & (at <= as_of)
        topic_id = batch["topic_id"]
        numbers = [self._ids.setdefault(name, len(self._ids)) for name in topic_id.dictionary.to_pylist()]
        ids = np.array([*numbers, -1], np.int64)[_indices(topic_id)[chosen]]
        return _Rows(np.repeat(code, counts)[chosen], at[chosen], to_numbers(batch["log_end"])[chosen], ids)

    def _of_one_log(self, rows: _Rows) -> _Rows:
        """Remove samples up to the last one of another log; their partitions need no older samples."""
        if not len(rows.code):
            return rows
        starts, numbers = _starts(rows.code), np.arange(len(rows.code))
        codes = rows.code[starts]
        newest = np.maximum.reduceat(np.where(rows.topic_id >= 0, numbers, -1), starts)
        is_new = (self._topic_id[codes] < 0) & (newest >= 0)
        self._topic_id[codes[is_new]] = rows.topic_id[newest[is_new]]
        is_other = (rows.topic_id >= 0) & (rows.topic_id != self._topic_id[rows.code])
        is_other |= self._may_be_stale(rows, starts)
        if not is_other.any():
            return rows
        last = np.maximum.reduceat(np.where(is_other, numbers, -1), starts)
        self._is_whole[codes[last >= 0]] = True
        return rows.where(numbers > np.repeat(last, np.diff(starts, append=len(numbers))))

    def _may_be_stale(self, rows: _Rows, starts: Index) -> Mask:
        """Return which samples without a topic id may be of an earlier log: the topic was gone after them, or
        the next log end is lower. (An unclean leader election may also lower it a little; samples do not show
        the difference.)"""
        if self._gone_at is None:
            return np.zeros(len(rows.code), np.bool_)
        lasts = np.append(starts[1:], len(rows.code)) - 1
        codes = rows.code[lasts]
        next_end = np.append(rows.end[1:], 0)
        next_end[lasts] = np.where(self._oldest.is_found[codes], self._oldest.end[codes], rows.end[lasts])
        is_before = (next_end < rows.end) | (rows.at < self._gone_at[self._keys[rows.code] >> 32])
        is_stale: Mask = is_before & (rows.topic_id < 0)
        return is_stale

    def _find(self, rows: _Rows, starts: Index) -> None:
        """Find the open positions whose last sample not above them is among these.

        The minimum of the log ends from a sample on shows whether any later sample is not above a position.
        It never falls, so one search over all partitions finds the last such sample.
        """
        stops = np.append(starts[1:], len(rows.code))
        segment_of = np.full(len(self._keys), -1, np.int64)
        segment_of[rows.code[starts]] = np.arange(len(starts))
        segment = segment_of[self._code[self.open]]
        is_here = segment >= 0
        asked, segment = (values[is_here] for values in (self.open, segment))
        ends, offsets, most = _comparable(rows.end, self._offset[asked], len(starts))
        values = np.repeat(np.arange(len(starts)), stops - starts) * most + ends
        least = np.minimum.accumulate(values[::-1])[::-1]
        place = np.searchsorted(least, segment * most + offsets, side="right") - 1
        is_found = place >= starts[segment]
        left = np.append(self.open[~is_here], asked[~is_found])
        found, place, segment = asked[is_found], place[is_found], segment[is_found]
        self._below.note(found, rows.at[place], rows.end[place])
        is_next_here = place + 1 < stops[segment]
        here, after = found[is_next_here], place[is_next_here] + 1
        self._above.note(here, rows.at[after], rows.end[after])
        there = found[~is_next_here]
        there = there[self._oldest.is_found[self._code[there]]]
        newer = self._code[there]
        self._above.note(there, self._oldest.at[newer], self._oldest.end[newer])
        self.open = left


class _Found:
    """A sample for each of n items, once it is found: its time (ms) and its log end."""

    def __init__(self, count: int) -> None:
        self.is_found: Mask = np.zeros(count, np.bool_)
        self.at: Index = np.zeros(count, np.int64)
        self.end: Index = np.zeros(count, np.int64)

    def note(self, places: Index, at: Index, end: Index) -> None:
        self.is_found[places], self.at[places], self.end[places] = True, at, end

    def columns(self) -> list[pa.Array]:
        """Return times and log ends, null where nothing was found."""
        at, end = (from_numbers(values, self.is_found) for values in (self.at, self.end))
        return [to_timestamps(at), end]


def _comparable(ends: Index, offsets: Index, segments: int) -> tuple[Index, Index, int]:
    """Return log ends and offsets as numbers below a bound (the third value) with the same order, small
    enough to be combined with the number of a segment. An offset below all ends is 0; no end is 0."""
    least, most = int(ends.min()), int(ends.max())
    if (most - least + 2) * segments < _MOST:
        within = np.clip(offsets, least, most) - least + 1
        return ends - least + 1, np.where(offsets < least, 0, within), most - least + 2
    distinct = np.unique(ends)
    return np.searchsorted(distinct, ends) + 1, np.searchsorted(distinct, offsets, "right"), len(distinct) + 1


def _sorted_codes(keys: Index) -> tuple[Index, Index]:
    """Return the distinct values of n numbers, sorted, and the place of each number among them.

    Only distinct values are sorted: they are few.
    """
    codes, values = numbered(from_numbers(keys))
    distinct = to_numbers(values)
    order = np.argsort(distinct)
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return distinct[order], places[codes]


def _starts(codes: Index) -> Index:
    return np.append(0, np.flatnonzero(np.diff(codes)) + 1)


def _is_sorted(rows: _Rows) -> bool:
    steps = np.diff(rows.code)
    return bool(np.all((steps > 0) | ((steps == 0) & (np.diff(rows.at) >= 0))))


def _indices(column: pa.DictionaryArray) -> Index:
    """Return the dictionary indices of n values; -1: null."""
    indices = column.indices
    return to_numbers(pc.fill_null(indices, -1) if indices.null_count else indices).astype(np.int64)


# --- portions of files -----------------------------------------------------------------------------------


def _growing(portions: Iterable[list[SampleFile]]) -> Iterator[list[SampleFile]]:
    """Join portions: the first stays alone, since most positions are near the end; then each read takes twice
    as many files as the one before, as long as their rows fit."""
    held, rows, most = list[SampleFile](), 0, 1
    for files in portions:
        held += files
        rows += sum(file.rows for file in files)
        if len(held) >= most or rows >= _ROWS_AT_A_TIME:
            yield held
            held, rows, most = [], 0, 2 * most
    if held:
        yield held


def _portions(files: Iterable[SampleFile]) -> Iterator[list[SampleFile]]:
    """Group files, the newest first, into portions to be read together: they overlap in time and topics."""
    layer, first_at = list[SampleFile](), 0
    for file in files:
        if layer and file.last_at < first_at:
            yield from _with_shared_topics(layer)
            layer = []
        first_at = min(first_at, file.first_at) if layer else file.first_at
        layer.append(file)
    yield from _with_shared_topics(layer)


def _with_shared_topics(files: list[SampleFile]) -> Iterator[list[SampleFile]]:
    """Split files of the same time by the ranges of their topics."""
    if any(file.first_topic is None or file.last_topic is None for file in files):
        yield files
        return
    held, last = list[SampleFile](), ""
    for file in sorted(files, key=lambda file: str(file.first_topic)):
        if held and str(file.first_topic) > last:
            yield held
            held, last = [], ""
        held.append(file)
        last = max(last, str(file.last_topic))
    if held:
        yield held
