"""Samples of log ends on their way into a snapshot: first those near the newest, then those of each
commit."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import Index, Mask, from_texts, numbers_or, to_mask
from streaming.common.keys import without_unused
from streaming.common.timestamps import timestamp, to_milliseconds
from streaming.model.schemas import LOG_ENDS, TOPIC_GONE
from streaming.serve.memory.names import NONE, Coded, joined
from streaming.serve.memory.newest_ends import Sampled
from streaming.serve.memory.topics import Moved, Topics
from streaming.tables.log_ends import NEWEST_WITHIN_MS, SampleFile, SampleFiles

SAMPLE_COLUMNS: Final = [field.name for field in LOG_ENDS if field.name != "day"]
NAMES_OF_SAMPLES: Final = ("topic", "topic_id")


class SampleRows:
    def __init__(self) -> None:
        self._topics: list[Coded] = []
        self._ids: list[Coded] = []
        self._numbers: list[Sequence[Index]] = []
        self._gone: list[Mask] = []

    def __len__(self) -> int:
        return sum(map(len, self._gone))

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows (the columns `SAMPLE_COLUMNS`)."""
        self._topics.append(Coded.of(rows["topic"]))
        self._ids.append(Coded.of(rows["topic_id"]))
        self._numbers.append(
            [
                numbers_or(to_milliseconds(rows["sampled_at"]), NONE),
                *(numbers_or(rows[name], NONE) for name in ("partition", "log_start", "log_end")),
                to_mask(pc.is_null(rows["partition"])).astype(np.int64),
            ]
        )
        self._gone.append(to_mask(pc.is_in(rows["error"], value_set=from_texts([TOPIC_GONE]))))

    def taken_by(self, topics: Topics, *, until: int) -> tuple[Topics, Moved]:
        """Return `topics` with these samples, and how places have moved; samples taken after `until` (ms) are
        ignored, because a clock was wrong."""
        of_rows, ids = joined(self._topics), joined(self._ids)
        at, partitions, starts, ends, is_whole = (
            np.concatenate([np.empty(0, np.int64), *(one[n] for one in self._numbers)]) for n in range(5)
        )
        is_of_topic = is_whole > 0
        named, moved = topics.with_named(of_rows, partitions, ids, is_whole=is_of_topic)
        places = of_rows.places_in(named.names)
        own = named.places_of(places, partitions)
        rows = Sampled(
            topics=places,
            places=np.where(is_of_topic, NONE, own),
            at=at,
            ids=ids.places_in(named.ids),
            starts=starts,
            ends=ends,
            is_gone=np.concatenate([np.empty(0, np.bool_), *self._gone]) & is_of_topic,
        )
        return named.with_ends(named.ends.with_rows(rows, named.topic, until=until)), moved


def newest_rows(samples: SampleFiles, *, until: int) -> Iterator[pa.RecordBatch]:
    """Read the samples (`SAMPLE_COLUMNS`) that can be the newest at `until` (ms), and all rows about topics
    as a whole; the newest file comes last.

    Of a file with later samples, as of a past moment, those of the last `NEWEST_WITHIN_MS` are read: it may
    hold a whole day.
    """
    files = samples.between(None, until)[::-1]
    latest = max((min(file.last_at, until) for file in files), default=until)
    for file in files:
        is_near = file.last_at >= latest - NEWEST_WITHIN_MS
        if is_near or file.topic_rows:
            rows = _rows(samples, file, of_topics=not is_near)
            yield from rows if file.last_at <= until else (_near(batch, until) for batch in rows)


def _rows(samples: SampleFiles, file: SampleFile, *, of_topics: bool) -> Iterator[pa.RecordBatch]:
    for batch in samples.batches(file, SAMPLE_COLUMNS, topics=None, of_topics=of_topics):
        yield _only(batch, pc.is_null(batch["partition"])) if of_topics else batch


def _near(rows: pa.RecordBatch, until: int) -> pa.RecordBatch:
    """Return the rows up to a moment (ms): of partitions only those shortly before it."""
    at, since = rows["sampled_at"], timestamp(until - NEWEST_WITHIN_MS)
    is_near = pc.or_(pc.is_null(rows["partition"]), pc.greater_equal(at, since))
    return _only(rows, pc.and_(is_near, pc.less_equal(at, timestamp(until))))


def _only(rows: pa.RecordBatch, chosen: pa.Array) -> pa.RecordBatch:
    """Return the chosen rows, without the texts of dictionaries that none of them has: they would become
    topics, and ids of no topic."""
    found = rows.filter(chosen)
    columns = [
        without_unused(column) if pa.types.is_dictionary(column.type) else column for column in found.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=found.schema.names)
