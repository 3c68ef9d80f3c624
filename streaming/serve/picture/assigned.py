"""Which topic partitions the members of groups have, or are to have, committed or not."""

from typing import Final, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import Index, from_numbers, numbers_or
from streaming.serve.picture.names import NONE, TEXTS, Coded
from streaming.serve.picture.topics import Moved, Topics

_ASSIGNMENTS: Final = ("assignment", "target_assignment")
_NUMBERS: Final = pa.list_(pa.int32())
_FIRST_PARTITION: Final = -(2**31)  # the log may hold any int32


class Assigned(NamedTuple):
    """n topic partitions, each once: the topics by their names or, where the log has none, by their ids."""

    topics: Coded
    ids: Coded
    partitions: Index

    @classmethod
    def of(cls, members: pa.ChunkedArray) -> Self:
        """Find them in lists of members, as the table `groups` has them."""
        each = pc.list_flatten(members)
        parts = [pc.list_flatten(pc.struct_field(each, name)) for name in _ASSIGNMENTS]
        topics, ids, lists = (
            pa.chunked_array([chunk for part in parts for chunk in pc.struct_field(part, name).chunks], kind)
            for name, kind in (("topic", pa.string()), ("topic_id", pa.string()), ("partitions", _NUMBERS))
        )
        named, known = Coded.of(topics.combine_chunks()), Coded.of(ids.combine_chunks())
        held = lists.combine_chunks()
        numbers, of_lists = numbers_or(held.flatten(), NONE), numbers_or(pc.list_parent_indices(held), NONE)
        pairs = (named.codes + 1) * (len(known.texts) + 1) + known.codes + 1
        _, first, codes = np.unique(pairs, return_index=True, return_inverse=True)
        keys = np.unique(codes[of_lists] << 32 | (numbers - _FIRST_PARTITION))
        rows = first[keys >> 32]
        return cls(
            Coded(named.codes[rows], named.texts),
            Coded(known.codes[rows], known.texts),
            (keys & 0xFFFF_FFFF) + _FIRST_PARTITION,
        )

    def named_in(self, topics: Topics) -> tuple[Coded, Index]:
        """Return the names and partitions of those n whose names are known, also by their ids."""
        of_ids = self.ids.places_in(topics.ids)
        by_id = np.flatnonzero((self.topics.codes == NONE) & (of_ids != NONE))
        places, codes_by_id = np.unique(topics.topic_of_id[of_ids[by_id]], return_inverse=True)
        codes = self.topics.codes.copy()
        codes[by_id] = len(self.topics.texts) + codes_by_id
        texts = pa.concat_arrays([self.topics.texts, topics.names.texts.take(from_numbers(places))])
        is_named = codes != NONE
        return Coded(codes[is_named], texts), self.partitions[is_named]

    def entered(self, topics: Topics) -> tuple[Topics, Moved | None]:
        """Return topics with these among them, and where places have moved; None: they all were there."""
        names, partitions = self.named_in(topics)
        if (topics.found(names.places_in(topics.names), partitions) != NONE).all():
            return topics, None
        no_ids = Coded(np.full(len(partitions), NONE), pa.nulls(0, TEXTS))
        return topics.with_named(names, partitions, no_ids)

    def places_in(self, topics: Topics) -> Index:
        """Return the places of those that are known."""
        names, partitions = self.named_in(topics)
        places = topics.found(names.places_in(topics.names), partitions)
        known: Index = places[places != NONE]
        return known
