"""Where the logs of topic partitions begin and end, and which ids topics have: from samples, the newest ones.

What samples say is what `streaming.tables.log_ends.newest_ends` finds in all of them, but one file after the
other: a new one is added to what is known. Times are of the clock of the job that samples.
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
    """n rows of samples: the place of the topic, and of the partition (`NONE`: the row is about the topic),
    when (ms), the id (`NONE`: not known), start and end of the log (-1: not known), and whether the topic is
    said to be gone."""

    topics: Index
    places: Index
    at: Index
    ids: Index
    starts: Index
    ends: Index
    is_gone: Mask

    def chosen(self, rows: Index) -> "Sampled":
        """Return some of the rows, by their numbers."""
        topics, places, at, ids, starts, ends, is_gone = self
        return Sampled(
            topics[rows], places[rows], at[rows], ids[rows], starts[rows], ends[rows], is_gone[rows]
        )


class _Samples(NamedTuple):
    """The newest sample of each of m topic partitions; `at` is `_NEVER` where there was none."""

    at: Index
    start: Index
    end: Index
    id: Index


class _Told(NamedTuple):
    """What was last said of each of n topics: its id, and that it is gone; `_NEVER`: nothing was."""

    at: Index
    id: Index
    gone_at: Index


class _Seen(NamedTuple):
    """When each of k ids was first and last seen as that of its topic; `_ALWAYS` and `_NEVER`: it was not."""

    first_at: Index
    last_at: Index


@dataclass(frozen=True, eq=False, kw_only=True)
class LogEnds:
    """The newest sample of each of m topic partitions, and the newest id of each of n topics.

    `sampled_at` (ms), `log_start`, `log_end` and `sample_id` (place of the topic id) are -1 where there is
    none: also where the topic is gone or was recreated since, or where the newest sample is older than the
    newest of all (`newest_at`) by more than `NEWEST_WITHIN_MS`. `topic_id` is the place of the newest id of
    each topic, -1: not known, or the topic is gone. `ids_seen` tells when each of k ids was seen.
    """

    sampled_at: Index
    log_start: Index
    log_end: Index
    sample_id: Index
    topic_id: Index
    newest_at: int
    samples: _Samples
    told: _Told
    ids_seen: _Seen

    @classmethod
    def unknown(cls, of_places: Index, count: int, ids_count: int = 0) -> Self:
        """Return what is known of so many topics and ids before any sample is; `of_places` are the topics of
        the partitions."""
        never, nones = _full(len(of_places), _NEVER), _full(len(of_places), NONE)
        samples = _Samples(at=never, start=nones, end=nones, id=nones)
        told = _Told(at=_full(count, _NEVER), id=_full(count, NONE), gone_at=_full(count, _NEVER))
        seen = _Seen(first_at=_full(ids_count, _ALWAYS), last_at=_full(ids_count, _NEVER))
        return cls._of(samples, told, seen, of_places, _NEVER)

    @classmethod
    def _of(cls, samples: _Samples, told: _Told, seen: _Seen, topics: Index, newest_at: int) -> Self:
        """Leave out what does not count any more; `topics` are those of the partitions."""
        own = _Told(*(column[topics] for column in told))
        is_former = (own.at > samples.at) & (own.id != NONE) & (samples.id != NONE) & (own.id != samples.id)
        is_old = samples.at < max(newest_at - NEWEST_WITHIN_MS, _NEVER + 1)
        is_known = ~(is_old | is_former | (own.gone_at > samples.at))
        shown = [fixed(np.where(is_known, column, NONE)) for column in samples]
        return cls(
            sampled_at=shown[0],
            log_start=shown[1],
            log_end=shown[2],
            sample_id=shown[3],
            topic_id=fixed(np.where(told.gone_at > told.at, NONE, told.id)),
            newest_at=newest_at,
            samples=samples,
            told=told,
            ids_seen=seen,
        )

    @property
    def told_at(self) -> Index:
        """When (ms) samples last said which id each of n topics has, or that it is gone; `NONE`: never."""
        at = np.maximum(self.told.at, self.told.gone_at)
        return np.where(at == _NEVER, NONE, at)

    def with_moved(
        self, topics: Index, places: Index, ids: Index, *, of_places: Index, count: int, ids_count: int
    ) -> Self:
        """Return it after places have moved (by the old ones, the new); `of_places` are the topics of the
        partitions that there are now, `count` is how many topics, and `ids_count` how many ids."""
        seen = _Seen(
            first_at=_relaid(self.ids_seen.first_at, ids, ids_count, _ALWAYS),
            last_at=_relaid(self.ids_seen.last_at, ids, ids_count, _NEVER),
        )
        ids, held, told = np.append(ids, NONE), self.samples, self.told
        samples = _Samples(
            at=_relaid(held.at, places, len(of_places), _NEVER),
            start=_relaid(held.start, places, len(of_places), NONE),
            end=_relaid(held.end, places, len(of_places), NONE),
            id=_relaid(ids[held.id], places, len(of_places), NONE),
        )
        told = _Told(
            at=_relaid(told.at, topics, count, _NEVER),
            id=_relaid(ids[told.id], topics, count, NONE),
            gone_at=_relaid(told.gone_at, topics, count, _NEVER),
        )
        return self._of(samples, told, seen, of_places, self.newest_at)

    def with_rows(self, rows: Sampled, of_places: Index, *, until: int) -> Self:
        """Return it with more samples; `of_places` are the topics of the partitions.

        What was sampled after `until` (ms) is left out, as well as what is held of it: a clock was wrong.
        """
        samples = self.samples._replace(at=_until(self.samples.at, until))
        told = self.told._replace(at=_until(self.told.at, until), gone_at=_until(self.told.gone_at, until))
        order = np.argsort(rows.at, kind="stable")
        rows = rows.chosen(order[rows.at[order] <= until])
        is_sample = (rows.places != NONE) & (rows.ends != NONE)
        is_told = (rows.ids != NONE) & (is_sample | (rows.places == NONE))
        samples = _Samples(
            *_newer(samples, rows.places, (rows.at, rows.starts, rows.ends, rows.ids), is_sample)
        )
        at, ids = _newer((told.at, told.id), rows.topics, (rows.at, rows.ids), is_told)
        [gone_at] = _newer((told.gone_at,), rows.topics, (rows.at,), rows.is_gone)
        times = (rows.at, samples.at, told.at, told.gone_at)
        newest_at = max(int(column.max(initial=_NEVER)) for column in times)
        seen = _with_seen(self.ids_seen, rows.ids[is_told], rows.at[is_told], until)
        return self._of(samples, _Told(at, ids, gone_at), seen, of_places, newest_at)


def _newer(held: Sequence[Index], places: Index, values: Sequence[Index], is_one: Mask) -> Iterator[Index]:
    """Put the last of n values, which are in the order of their times, in the places of older ones; the
    first column of both are the times."""
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
    """Return when ids were seen, with some more of them at n times; none was after `until`."""
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
