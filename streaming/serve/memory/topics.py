"""Topics, their ids and partitions, and where the logs of partitions end: what offsets refer to by places.

All that offsets or samples of log ends have named is here; places are in the order of topic and partition, so
offsets that are sorted by them are sorted by these.
"""

from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Self

import numpy as np
import pyarrow as pa

from streaming.common.arrays import Index, Mask, from_numbers
from streaming.common.timestamps import to_timestamps
from streaming.serve.memory.names import NONE, Coded, NameIndex, fixed
from streaming.serve.memory.newest_ends import LogEnds
from streaming.tables.log_ends import TOPICS_OVER_TIME

_FIRST_PARTITION: Final = -(2**31)  # the log may hold any int32


class Moved(NamedTuple):
    """Where places are now, by the old ones: of topics, of topic partitions, of ids."""

    topics: Index
    places: Index
    ids: Index


@dataclass(frozen=True, eq=False, kw_only=True)
class Topics:
    """The topics (`names`), their partitions (m places) and the topic ids (`ids`, as Kafka prints them).

    The partitions of the topic at place t are the places from `starts[t]` to `starts[t + 1]`; `topic` and
    `partition` say of each which it is. `topic_of_id` is the topic that was last seen with each id.
    """

    names: NameIndex
    ids: NameIndex
    topic_of_id: Index
    starts: Index
    topic: Index
    partition: Index
    ends: LogEnds

    @classmethod
    def none(cls) -> Self:
        """Return no topics."""
        nothing = fixed(np.empty(0, np.int64))
        return cls(
            names=NameIndex.none(),
            ids=NameIndex.none(),
            topic_of_id=nothing,
            starts=fixed(np.zeros(1, np.int64)),
            topic=nothing,
            partition=nothing,
            ends=LogEnds.unknown(nothing, 0),
        )

    def __len__(self) -> int:
        return len(self.names)

    def place(self, topic: str, partition: int) -> int | None:
        """Return the place of a topic partition; None: nothing has named it."""
        place = self.names.place(topic)
        if place is None:
            return None
        own = self.partition[self.starts[place] : self.starts[place + 1]]
        row = int(np.searchsorted(own, partition))
        return int(self.starts[place]) + row if row < len(own) and own[row] == partition else None

    def places_of(self, topics: Index, partitions: Index) -> Index:
        """Return the places of n topic partitions, the topics by their places; all of them are known."""
        return np.searchsorted(_keys(self.topic, self.partition), _keys(topics, partitions))

    def found(self, topics: Index, partitions: Index) -> Index:
        """Return the places of n topic partitions, the topics by their places; `NONE` where one, or its topic
        (`NONE`), is not known."""
        held, asked = _keys(self.topic, self.partition), _keys(topics, partitions)
        places = np.searchsorted(held, asked)
        return np.where(np.append(held, NONE)[places] == asked, places, NONE)

    def id_of(self, topic: int) -> str | None:
        """Return the id that a topic has, as far as log ends say; None: not known, or the topic is gone."""
        place = int(self.ends.topic_id[topic])
        return None if place == NONE else self.ids.name(place)

    def name_of(self, topic_id: str) -> str | None:
        """Return the name of the topic that an id belongs to, or belonged to; None: not known."""
        place = self.ids.place(topic_id)
        return None if place is None else self.names.name(int(self.topic_of_id[place]))

    def sampled_at(self, topics: pa.Array) -> Index:
        """Return when (ms) samples last said which id each of n topics has, or that it is gone; `NONE`: they
        never did."""
        return np.append(self.ends.told_at, NONE)[self.names.places_of(topics)]

    def ids_over_time(self, topics: pa.Array) -> pa.Table:
        """Return which ids some topics had when (schema `TOPICS_OVER_TIME`), as far as samples say that are
        read by now."""
        wanted, seen = self.names.places_of(topics), self.ends.ids_seen
        is_wanted = np.isin(self.topic_of_id, wanted[wanted != NONE]) & (seen.first_at <= seen.last_at)
        ids = np.flatnonzero(is_wanted)
        columns = [
            self.names.texts.take(from_numbers(self.topic_of_id[ids])).cast(pa.string()),
            self.ids.texts.take(from_numbers(ids)).cast(pa.string()),
            *(to_timestamps(from_numbers(times[ids])) for times in seen),
        ]
        return pa.Table.from_arrays(columns, schema=TOPICS_OVER_TIME)

    def with_named(
        self, topics: Coded, partitions: Index, ids: Coded, *, is_whole: Mask | None = None
    ) -> tuple["Topics", Moved]:
        """Return the topics with those that n rows name, and where places have moved.

        The topics of rows are not null; `is_whole`: a row is about a topic as a whole (None: none is). Where
        ids are null a row names none; of several topics of an id the last is kept.
        """
        names, topics_moved = self.names.changed(topics.texts)
        known_ids, ids_moved = self.ids.changed(ids.texts)
        of_rows = topics.places_in(names)
        held = _keys(topics_moved[self.topic], self.partition)
        named = _keys(of_rows, partitions)
        new = np.setdiff1d(named if is_whole is None else named[~is_whole], held)
        keys = np.insert(held, np.searchsorted(held, new), new)
        places_moved = np.searchsorted(keys, held)
        topic = keys >> 32
        moved = Moved(topics_moved, places_moved, ids_moved)
        return (
            Topics(
                names=names,
                ids=known_ids,
                topic_of_id=self._topics_of_ids(moved, len(known_ids), of_rows, ids.places_in(known_ids)),
                starts=fixed(np.searchsorted(topic, np.arange(len(names) + 1))),
                topic=fixed(topic),
                partition=fixed((keys & 0xFFFF_FFFF) + _FIRST_PARTITION),
                ends=self.ends.with_moved(
                    *moved, of_places=topic, count=len(names), ids_count=len(known_ids)
                ),
            ),
            moved,
        )

    def with_ends(self, ends: LogEnds) -> "Topics":
        """Return the topics with other log ends."""
        return replace(self, ends=ends)

    def without_ends(self) -> "Topics":
        """Return the topics as before any sample was read."""
        return replace(self, ends=LogEnds.unknown(self.topic, len(self), len(self.ids)))

    def _topics_of_ids(self, moved: Moved, count: int, topics: Index, ids: Index) -> Index:
        found = np.full(count, NONE, np.int64)
        found[moved.ids] = moved.topics[self.topic_of_id]
        is_named = ids != NONE
        found[ids[is_named]] = topics[is_named]  # of repeated ones numpy keeps the last
        return fixed(found)


def _keys(topics: Index, partitions: Index) -> Index:
    """Write n topic partitions as numbers in their order."""
    keys: Index = (topics.astype(np.int64) << 32) | (partitions.astype(np.int64) - _FIRST_PARTITION)
    return keys
