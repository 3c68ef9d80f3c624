"""The newest sample of the log start and end of each topic partition, and the ids of topics over time.

The result equals `streaming.tables.log_ends.newest_ends` over all samples, but is computed file by file: each
new file is added to the state. Times are of the clock of the job that samples.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import numpy as np

from streaming.common.arrays import Index, Mask
from streaming.serve.memory.names import NONE, fixed
from streaming.tables.log_ends import NEWEST_WITHIN_MS

_NEVER: Final = -(2**62)
_ALWAYS: Final = 2**62


class Sampled(NamedTuple):
    """n rows of samples.

    `topics` and `places` are the places of the topic and the topic partition (`NONE`: the row is about the
    topic), `at` is the time of the sample (ms), `ids` the place of the topic id (`NONE`: unknown), `starts`
    and `ends` are the log start and end offsets (-1: unknown), and `is_gone` marks rows that report a deleted
    topic.
    """

    topics: Index
    places: Index
    at: Index
    ids: Index
    starts: Index
    ends: Index
    is_gone: Mask

    def chosen(self, rows: Index) -> "Sampled":
        """Return rows by index."""
        topics, places, at, ids, starts, ends, is_gone = self
        return Sampled(
            topics[rows], places[rows], at[rows], ids[rows], starts[rows], ends[rows], is_gone[rows]
        )


class _Samples(NamedTuple):
    """The newest sample of each of m topic partitions; `at` is `_NEVER` where there is none."""

    at: Index
    start: Index
    end: Index
    id: Index


class _NewestIds(NamedTuple):
    """The newest id of each of n topics and when it was sampled, and when the topic was last reported
    deleted; `_NEVER`: not at all."""

    at: Index
    id: Index
    gone_at: Index


class _Seen(NamedTuple):
    """When rows about whole topics first and last had each of k ids; never: `_ALWAYS` and `_NEVER`. (The ids
    in other samples may be former ones: see `IDS_AT_ONCE`.)"""

    first_at: Index
    last_at: Index


@dataclass(frozen=True, eq=False, kw_only=True)
class LogEnds:
    """The newest sample of each of m topic partitions, and the newest id of each of n topics.

    `sampled_at` (ms), `log_start`, `log_end` and `sample_id` (place of the topic id) are -1 where no sample
    counts: there is none, the topic was deleted or recreated since, or the sample is older than the newest of
    all (`newest_at`) by more than `NEWEST_WITHIN_MS`. `topic_id` is the place of each topic's newest id; -1:
    unknown, or the topic is deleted. `ids_seen` holds when each of k ids was seen.
    """

    sampled_at: Index
    log_start: Index
    log_end: Index
    sample_id: Index
    topic_id: Index
    newest_at: int
    samples: _Samples
    newest_ids: _NewestIds
    ids_seen: _Seen

    @classmethod
    def unknown(cls, of_places: Index, count: int, ids_count: int = 0) -> Self:
        """Return the state before any sample, for `count` topics and `ids_count` ids; `of_places` is the
        topic of each partition."""
        never, nones = _full(len(of_places), _NEVER), _full(len(of_places), NONE)
        samples = _Samples(at=never, start=nones, end=nones, id=nones)
        newest_ids = _NewestIds(at=_full(count, _NEVER), id=_full(count, NONE), gone_at=_full(count, _NEVER))
        seen = _Seen(first_at=_full(ids_count, _ALWAYS), last_at=_full(ids_count, _NEVER))
        return cls._of(samples, newest_ids, seen, of_places, _NEVER)

    @classmethod
    def _of(
        cls, samples: _Samples, newest_ids: _NewestIds, seen: _Seen, topics: Index, newest_at: int
    ) -> Self:
        """Blank samples that do not count; `topics` is the topic of each partition."""
        own = _NewestIds(*(column[topics] for column in newest_ids))
        is_stale = (own.at > samples.at) & (own.id != NONE) & (samples.id != NONE) & (own.id != samples.id)
        is_old = samples.at < max(newest_at - NEWEST_WITHIN_MS, _NEVER + 1)
        is_known = ~(is_old | is_stale | (own.gone_at > samples.at))
        shown = [fixed(np.where(is_known, column, NONE)) for column in samples]
        return cls(
            sampled_at=shown[0],
            log_start=shown[1],
            log_end=shown[2],
            sample_id=shown[3],
            topic_id=fixed(np.where(newest_ids.gone_at > newest_ids.at, NONE, newest_ids.id)),
            newest_at=newest_at,
            samples=samples,
            newest_ids=newest_ids,
            ids_seen=seen,
        )

    @property
    def id_sampled_at(self) -> Index:
        """When (ms) samples last gave the id of each of n topics or reported it deleted; `NONE`: never."""
        at = np.maximum(self.newest_ids.at, self.newest_ids.gone_at)
        return np.where(at == _NEVER, NONE, at)

    def id_requested_at(self, topic_of_id: Index) -> Index:
        """Return when (ms) rows about whole topics last gave the id of each of n topics, or reported it
        deleted; `NONE`: never. `topic_of_id` are the topics of the k ids."""
        at = np.append(self.newest_ids.gone_at, _NEVER)  # the last value is for `NONE`
        np.maximum.at(at, topic_of_id, self.ids_seen.last_at)
        return np.where(at == _NEVER, NONE, at)[:-1]

    @property
    def gone_at(self) -> Index:
        """When (ms) each of n topics was last reported deleted, if it has not been sampled since; `NONE`:
        otherwise."""
        return np.where(self.newest_ids.gone_at > self.newest_ids.at, self.newest_ids.gone_at, NONE)

    @property
    def id_first_at(self) -> Index:
        """When (ms) the present id of each of n topics was first sampled; `NONE`: unknown, or deleted."""
        first = np.append(self.ids_seen.first_at, _ALWAYS)[self.topic_id]
        return np.where(first == _ALWAYS, NONE, first)

    def with_moved(
        self, topics: Index, places: Index, ids: Index, *, of_places: Index, count: int, ids_count: int
    ) -> Self:
        """Return the state after places have moved: `topics`, `places` and `ids` map old places to new ones,
        `of_places` is the topic of each present partition, and `count` and `ids_count` are the numbers of
        topics and ids."""
        seen = _Seen(
            first_at=_relaid(self.ids_seen.first_at, ids, ids_count, _ALWAYS),
            last_at=_relaid(self.ids_seen.last_at, ids, ids_count, _NEVER),
        )
        ids, held, newest_ids = np.append(ids, NONE), self.samples, self.newest_ids
        samples = _Samples(
            at=_relaid(held.at, places, len(of_places), _NEVER),
            start=_relaid(held.start, places, len(of_places), NONE),
            end=_relaid(held.end, places, len(of_places), NONE),
            id=_relaid(ids[held.id], places, len(of_places), NONE),
        )
        newest_ids = _NewestIds(
            at=_relaid(newest_ids.at, topics, count, _NEVER),
            id=_relaid(ids[newest_ids.id], topics, count, NONE),
            gone_at=_relaid(newest_ids.gone_at, topics, count, _NEVER),
        )
        return self._of(samples, newest_ids, seen, of_places, self.newest_at)

    def with_rows(self, rows: Sampled, of_places: Index, *, until: int) -> Self:
        """Return the state with more samples; `of_places` is the topic of each partition.

        Samples taken after `until` (ms) are ignored, and those already held are dropped: a clock was wrong.
        """
        samples = self.samples._replace(at=_until(self.samples.at, until))
        newest_ids = self.newest_ids._replace(
            at=_until(self.newest_ids.at, until), gone_at=_until(self.newest_ids.gone_at, until)
        )
        order = np.argsort(rows.at, kind="stable")
        rows = rows.chosen(order[rows.at[order] <= until])
        is_sample = (rows.places != NONE) & (rows.ends != NONE)
        is_of_topic = (rows.ids != NONE) & (rows.places == NONE)
        has_id = is_of_topic | ((rows.ids != NONE) & is_sample)
        samples = _Samples(
            *_newer(samples, rows.places, (rows.at, rows.starts, rows.ends, rows.ids), is_sample)
        )
        at, ids = _newer((newest_ids.at, newest_ids.id), rows.topics, (rows.at, rows.ids), has_id)
        [gone_at] = _newer((newest_ids.gone_at,), rows.topics, (rows.at,), rows.is_gone)
        times = (rows.at, samples.at, newest_ids.at, newest_ids.gone_at)
        newest_at = max(int(column.max(initial=_NEVER)) for column in times)
        seen = _with_seen(self.ids_seen, rows.ids[is_of_topic], rows.at[is_of_topic], until)
        return self._of(samples, _NewestIds(at, ids, gone_at), seen, of_places, newest_at)


def _newer(held: Sequence[Index], places: Index, values: Sequence[Index], is_one: Mask) -> Iterator[Index]:
    """Replace older values by the last of n values, which are ordered by time, at each of their places. The
    first column of `held` and `values` is the time."""
    last = _full(len(held[0]), NONE)
    rows = np.flatnonzero(is_one)
    last[places[rows]] = rows
    touched = np.flatnonzero(last != NONE)
    touched = touched[values[0][last[touched]] >= held[0][touched]]
    for column, own in zip(held, values, strict=True):
        changed = column.copy()
        changed[touched] = own[last[touched]]
        yield changed


def _with_seen(held: _Seen, ids: Index, at: Index, until: int) -> _Seen:
    """Extend `held` by n ids sampled at n times; times after `until` in `held` are dropped."""
    is_wrong = held.last_at > until
    first_at, last_at = np.where(is_wrong, _ALWAYS, held.first_at), np.where(is_wrong, _NEVER, held.last_at)
    np.minimum.at(first_at, ids, at)
    np.maximum.at(last_at, ids, at)
    return _Seen(first_at, last_at)


def _until(times: Index, until: int) -> Index:
    return np.where(times <= until, times, _NEVER)


def _relaid(column: Index, places: Index, count: int, missing: int) -> Index:
    relaid = _full(count, missing)
    relaid[places] = column
    return relaid


def _full(count: int, value: int) -> Index:
    return np.full(count, value, np.int64)
