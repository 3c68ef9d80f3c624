"""Topic partitions assigned to the members of groups, now or by the target assignment, committed or not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import Index, from_numbers, from_texts, numbers_or
from streaming.serve.memory.names import NONE, TEXTS, Coded, joined
from streaming.serve.memory.topics import Moved, Topics

_ASSIGNMENTS: Final = ("assignment", "target_assignment")
_NUMBERS: Final = pa.list_(pa.int32())
_SPARE: Final = 1_000
_FIRST_PARTITION: Final = -(2**31)  # the log may hold any int32


class AssignedPartitions(NamedTuple):
    """n distinct topic partitions: the topics by name or, where the log has no name, by id."""

    topics: Coded
    ids: Coded
    partitions: Index

    def named_in(self, topics: Topics) -> tuple[Coded, Index]:
        """Return the names and partitions of those that have a name or an id.

        Where the log has no name, `topics` gives the name of the id; while it does not know the id, the id is
        the name.
        """
        of_ids = self.ids.places_in(topics.ids)
        is_found = (self.topics.codes == NONE) & (of_ids != NONE)
        places, codes_found = np.unique(topics.topic_of_id[of_ids[is_found]], return_inverse=True)
        found = Coded(np.full(len(of_ids), NONE), topics.names.texts.take(from_numbers(places)))
        found.codes[is_found] = codes_found
        named = joined([self.topics, found, self.ids])
        codes = named.codes.reshape(3, -1)
        chosen = np.where(codes[0] != NONE, codes[0], np.where(codes[1] != NONE, codes[1], codes[2]))
        is_named = chosen != NONE
        return Coded(chosen[is_named], named.texts), self.partitions[is_named]

    def unnamed_in(self, topics: Topics) -> frozenset[int]:
        """Return the places of topics that have an id for a name (see `named_in`)."""
        is_unnamed = (self.topics.codes == NONE) & (self.ids.places_in(topics.ids) == NONE)
        codes = np.unique(self.ids.codes[is_unnamed & (self.ids.codes != NONE)])
        places = topics.names.places_of(self.ids.texts.take(from_numbers(codes)))
        return frozenset(places[places != NONE].tolist())

    def entered(self, topics: Topics) -> tuple[Topics, Moved | None]:
        """Return `topics` with these partitions added, and how places have moved; None: all were there
        already."""
        names, partitions = self.named_in(topics)
        if (topics.found(names.places_in(topics.names), partitions) != NONE).all():
            return topics, None
        no_ids = Coded(np.full(len(partitions), NONE), pa.nulls(0, TEXTS))
        return topics.with_named(names, partitions, no_ids)

    def places_in(self, topics: Topics) -> Index:
        """Return the places of the partitions that `topics` knows."""
        names, partitions = self.named_in(topics)
        places = topics.found(names.places_in(topics.names), partitions)
        known: Index = places[places != NONE]
        return known


Pair = tuple[str | None, str | None]


@dataclass(frozen=True, eq=False)
class Assignments:
    """The n assigned topic partitions of members, each once per group.

    `groups` are the places of the groups. `keys` encode the topic partitions: the number in `pairs` of the
    topic's name and id in the upper 32 bits, the partition in the lower 32 bits. A change of a group reads
    the members of that group only. `in_use` is the number of pairs when unused ones were last dropped.
    """

    groups: Index
    keys: Index
    pairs: Mapping[Pair, int]
    in_use: int = 0

    @classmethod
    def none(cls) -> Self:
        return cls(np.empty(0, np.int64), np.empty(0, np.int64), {})

    @classmethod
    def of(cls, members: pa.ChunkedArray, groups: Index) -> Self:
        """Read the assignments from n lists of members (column of the table `groups`), given the n places of
        the groups."""
        each, of_members = pc.list_flatten(members), np.repeat(groups, _lengths(members))
        parts = [pc.struct_field(each, name) for name in _ASSIGNMENTS]
        of_lists = np.concatenate([np.repeat(of_members, _lengths(part)) for part in parts])
        topics, ids, lists = (
            pa.chunked_array([chunk for part in parts for chunk in _field(part, name)], kind)
            for name, kind in (("topic", pa.string()), ("topic_id", pa.string()), ("partitions", _NUMBERS))
        )
        named, known = Coded.of(topics.combine_chunks()), Coded.of(ids.combine_chunks())
        numbers = (named.codes + 1) * (len(known.texts) + 1) + known.codes + 1
        _, first, codes = np.unique(numbers, return_index=True, return_inverse=True)
        pairs = zip(_texts(named, first), _texts(known, first), strict=True)
        rows = np.repeat(np.arange(len(of_lists)), _lengths(lists))
        partitions = numbers_or(pc.list_flatten(lists), NONE)
        keys, own = np.unique(codes[rows] << 32 | (partitions - _FIRST_PARTITION), return_inverse=True)
        held = np.unique(own << 32 | of_lists[rows])
        return cls(held & 0xFFFF_FFFF, keys[held >> 32], {pair: number for number, pair in enumerate(pairs)})

    @cached_property
    def distinct(self) -> AssignedPartitions:
        keys = np.unique(self.keys)
        topics, ids = ([pair[part] for pair in self.pairs] for part in (0, 1))
        return AssignedPartitions(
            _coded(topics, keys >> 32), _coded(ids, keys >> 32), (keys & 0xFFFF_FFFF) + _FIRST_PARTITION
        )

    def with_moved(self, moved: Index) -> "Assignments":
        """Return the assignments after groups have moved; `moved` maps old places to new ones. Groups that
        are gone have no assignments."""
        return replace(self, groups=moved[self.groups]) if len(self.groups) else self

    def with_changes(self, changed: Index, newer: "Assignments") -> "Assignments":
        """Return the assignments with those of the `changed` groups (places) replaced by `newer`."""
        is_kept = ~np.isin(self.groups, changed)
        if is_kept.all() and not len(newer.groups):
            return self
        pairs = dict(self.pairs)
        codes = np.array([pairs.setdefault(pair, len(pairs)) for pair in newer.pairs], np.int64)
        keys = codes[newer.keys >> 32] << 32 | newer.keys & 0xFFFF_FFFF
        groups = np.append(self.groups[is_kept], newer.groups)
        changed_ones = replace(self, groups=groups, keys=np.append(self.keys[is_kept], keys), pairs=pairs)
        return changed_ones._without_spare() if len(pairs) > 2 * self.in_use + _SPARE else changed_ones

    def _without_spare(self) -> "Assignments":
        """Drop the pairs that no key refers to."""
        used, codes = np.unique(self.keys >> 32, return_inverse=True)
        pairs = list(self.pairs)
        kept = {pairs[number]: place for place, number in enumerate(used.tolist())}
        return Assignments(self.groups, codes << 32 | self.keys & 0xFFFF_FFFF, kept, len(kept))


def _lengths(lists: pa.ChunkedArray) -> Index:
    return numbers_or(pc.list_value_length(lists), 0)


def _field(lists: pa.ChunkedArray, name: str) -> list[pa.Array]:
    chunks: list[pa.Array] = pc.struct_field(pc.list_flatten(lists), name).chunks
    return chunks


def _texts(texts: Coded, rows: Index) -> list[str | None]:
    held = [*texts.texts.to_pylist(), None]
    return [held[code] for code in texts.codes[rows].tolist()]


def _coded(texts: Sequence[str | None], rows: Index) -> Coded:
    """Encode n texts, each of which may be None."""
    held = Coded.of(from_texts([text or "" for text in texts]))
    codes = np.where(np.array([text is None for text in texts], np.bool_), NONE, held.codes)
    return Coded(codes[rows], held.texts)
