"""Topics, their ids and partitions, and log ends; offsets refer to them by place.

Holds every topic that an offset or a sample of log ends has named. Places are in the order of topic and
partition, so offsets sorted by place are sorted by these.
"""

from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Self

import numpy as np
import pyarrow as pa

from streaming.common.arrays import Index, Mask, from_numbers
from streaming.common.timestamps import to_timestamps
from streaming.model.schemas import IDS_AT_ONCE
from streaming.serve.memory.names import NONE, Coded, NameIndex, fixed
from streaming.serve.memory.newest_ends import LogEnds
from streaming.tables.log_ends import TOPICS_OVER_TIME

_FIRST_PARTITION: Final = -(2**31)  # the log may hold any int32


class Moved(NamedTuple):
    """The new places of topics, topic partitions and ids, by the old ones."""

    topics: Index
    places: Index
    ids: Index


@dataclass(frozen=True, eq=False, kw_only=True)
class Topics:
    """The topics (`names`), their partitions (m places) and the topic ids (`ids`, as Kafka prints them).

    The partitions of the topic at place t are the places from `starts[t]` to `starts[t + 1]`; `topic` and
    `partition` are the columns of these places. `topic_of_id` is the topic last seen with each id.
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
        """Return the places of n topic partitions, all of them known; `topics` are places."""
        return np.searchsorted(_keys(self.topic, self.partition), _keys(topics, partitions))

    def found(self, topics: Index, partitions: Index) -> Index:
        """Return the places of n topic partitions; `NONE` where it or its topic is unknown. `topics` are
        places (`NONE`: unknown)."""
        held, asked = _keys(self.topic, self.partition), _keys(topics, partitions)
        places = np.searchsorted(held, asked)
        return np.where(np.append(held, NONE)[places] == asked, places, NONE)

    def id_of(self, topic: int) -> str | None:
        """Return the id of the topic at a place by samples of log ends; None: unknown, or the topic is
        deleted."""
        place = int(self.ends.topic_id[topic])
        return None if place == NONE else self.ids.name(place)

    def name_of(self, topic_id: str) -> str | None:
        """Return the name of the topic that has or had an id; None: unknown."""
        place = self.ids.place(topic_id)
        return None if place is None else self.names.name(int(self.topic_of_id[place]))

    def place_of_id(self, topic_id: str) -> int | None:
        """Return the place of the topic that has an id by the newest samples; None: there is none."""
        name = self.name_of(topic_id)
        place = None if name is None else self.names.place(name)
        return None if place is None or self.id_of(place) != topic_id else place

    def sampled_at(self, topics: pa.Array) -> Index:
        """Return when (ms) samples last showed which id each of n topics has, or reported it deleted; `NONE`:
        never."""
        ends, is_each_requested = self.ends, len(self) <= IDS_AT_ONCE
        at = ends.id_sampled_at if is_each_requested else ends.id_requested_at(self.topic_of_id)
        return np.append(at, NONE)[self.names.places_of(topics)]

    def ids_over_time(self, topics: pa.Array) -> pa.Table:
        """Return the ids of some topics over time (schema `TOPICS_OVER_TIME`), as far as samples were
        read."""
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
        """Return the topics with those that n rows name, and how places have moved.

        The topics of rows are not null; a row without an id has a null id, and of several topics with one id
        the last remains. `is_whole` marks rows about a topic without a partition (None: there are none).
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
        return replace(self, ends=ends)

    def without_ends(self) -> "Topics":
        return replace(self, ends=LogEnds.unknown(self.topic, len(self), len(self.ids)))

    def _topics_of_ids(self, moved: Moved, count: int, topics: Index, ids: Index) -> Index:
        found = np.full(count, NONE, np.int64)
        found[moved.ids] = moved.topics[self.topic_of_id]
        is_named = ids != NONE
        found[ids[is_named]] = topics[is_named]  # numpy keeps the last of duplicates
        return fixed(found)


def _keys(topics: Index, partitions: Index) -> Index:
    """Encode n topic partitions as integers of the same order."""
    keys: Index = (topics.astype(np.int64) << 32) | (partitions.astype(np.int64) - _FIRST_PARTITION)
    return keys
