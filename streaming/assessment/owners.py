"""Which member has which partition: also those that nothing is committed for."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import (
    Index,
    from_mask,
    from_numbers,
    from_texts,
    no_rows,
    numbers_or,
    to_numbers,
)
from streaming.common.keys import KEY_NAMES, Numbering, key_codes
from streaming.common.pieces import take
from streaming.common.timestamps import to_milliseconds
from streaming.lag.samples import NONE
from streaming.model.schemas import KEY

OWNER: Final = pa.schema([("consumer_id", pa.string()), ("host", pa.string()), ("client_id", pa.string())])
"""Which member has a partition; null: none has, or it is not known which."""

_OWNED: Final = pa.schema([*KEY, *OWNER])
_OF_OTHERS: Final = ("share",)
"""Types of groups that commit to another topic than the one of committed offsets."""
_OF_MEMBER: Final = ("member_id", "client_host", "client_id")


class TopicReader(Protocol):
    """What was seen of topics."""

    def topics_over_time(self, topics: Collection[str] | None, *, as_of: int) -> pa.Table:
        """Read which topics there were when (schema `TOPICS_OVER_TIME`), as was seen up to a moment (ms)."""


def owned_partitions(groups: pa.Table, at: TopicReader, moment: int) -> pa.Table:
    """Return which partitions (columns `KEY_NAMES`) of groups (schema `GROUPS`) are whose (columns `OWNER`).

    Topics that the log has only the ids of have the names that `with_topic_names` gives; those without are
    left out.
    """
    if not len(groups):  # of nothing `combine_chunks` would import pandas
        return no_rows(_OWNED)
    of_group, members = _flat(groups["members"])
    of_member, topics = _flat(_child(members, "assignment"))
    of_topic, partitions = _flat(_child(topics, "partitions"))
    names = _child(topics, "topic")
    if names.null_count:
        names = pc.coalesce(names, _names_of(_child(topics, "topic_id"), at, moment))
    member = of_member.take(of_topic)
    owned = pa.table(
        [
            groups["group"].combine_chunks().take(of_group.take(member)),
            names.take(of_topic),
            partitions,
            *(_child(members, name).take(member) for name in _OF_MEMBER),
        ],
        schema=_OWNED,
    )
    return owned.filter(owned["topic"].is_valid())


@dataclass(frozen=True)
class GroupsOverTime:
    """Groups as they were over a time: versions, each from a moment on until the next one of its group."""

    versions: pa.Table
    """The groups (v rows, schema `GROUPS`) under names of their versions: what is told of groups is told of
    versions, too. One of a group that was removed is null."""
    owned: pa.Table
    """The partitions (columns `KEY_NAMES`, under the own names of groups, and source_partition) that members
    ever had, but for those of share groups; a key may come more than once."""
    _groups: Numbering
    _codes: Index
    _ranked: Index
    _low: int
    _span: int
    _owned: Numbering
    _changed_at: Index

    @classmethod
    def of(cls, groups: pa.Table, since: Index, at: TopicReader, moment: int) -> Self:
        """Take them from v rows (schema `GROUPS`), each so since a moment (ms); the names of topics are those
        that are known at a `moment`."""
        names, codes = Numbering.of(groups, ["group"])
        order = np.lexsort((since, codes))
        groups, codes, since = take(groups, order), codes[order], since[order]
        low, span = (int(since.min()) - 1, int(np.ptp(since)) + 3) if len(since) else (0, 1)
        versions = groups.set_column(0, "group", _in_words(np.arange(len(groups))))
        owned = owned_partitions(_that_commit(versions), at, moment).select(KEY_NAMES)
        number = to_numbers(owned["group"].cast(pa.int64()))
        return cls(
            versions,
            _owned_by(take(groups.select(["group", "source_partition"]), number), owned),
            names,
            codes,
            codes * span + (since - low),
            low,
            span,
            Numbering.of(owned, KEY_NAMES)[0],
            numbers_or(to_milliseconds(groups["source_timestamp"]), NONE),
        )

    def under_versions(self, rows: pa.Table, moments: Index) -> pa.Table:
        """Return n rows (with group) under the names of the versions that their groups had at n moments
        (ms), or of none."""
        return rows.set_column(
            rows.column_names.index("group"), "group", _in_words(self._numbers(rows, moments))
        )

    def had_since(self, rows: pa.Table, moments: Index) -> Index:
        """Return since when (ms) groups had n partitions (columns `KEY_NAMES`) at n moments (ms), as far as
        the last record about the group then tells; `NONE`: they had not."""
        numbers = self._numbers(rows, moments)
        named = rows.select(KEY_NAMES).set_column(0, "group", _in_words(numbers))
        is_owned = self._owned.codes_of(named) != NONE
        since: Index = np.where(
            is_owned, np.minimum(np.append(self._changed_at, NONE)[numbers], moments), NONE
        )
        return since

    def _numbers(self, rows: pa.Table, moments: Index) -> Index:
        codes = self._groups.codes_of(rows)
        places = codes * self._span + np.clip(moments - self._low, 0, self._span - 1)
        found = np.searchsorted(self._ranked, places, side="right") - 1
        is_own = (found != NONE) & (codes != NONE) & (np.append(self._codes, NONE)[found] == codes)
        numbers: Index = np.where(is_own, found, NONE)
        return numbers


def with_assigned(offsets: pa.Table, groups: pa.Table, at: TopicReader, moment: int) -> pa.Table:
    """Append to committed offsets (schema `OFFSETS`, or some of its columns) the partitions that members of
    their groups (schema `GROUPS`) have and nothing is committed for, as `kafka-consumer-groups` shows them:
    all but the key and source_partition is null. Partitions of share groups are none: their offsets are not
    in the topic.
    """
    owned = owned_partitions(_that_commit(groups), at, moment)
    if not len(owned):
        return offsets
    of_these = pc.is_in(offsets["group"], value_set=owned["group"].combine_chunks())
    committed = offsets.select(KEY_NAMES).filter(of_these)
    codes = key_codes(pa.concat_tables([committed, owned.select(KEY_NAMES)]).columns)
    is_first = np.zeros(len(codes), np.bool_)
    is_first[np.unique(codes, return_index=True)[1]] = True
    missing = owned.filter(from_mask(is_first[len(committed) :]))
    if not len(missing):
        return offsets
    place = pc.index_in(missing["group"], value_set=groups["group"].combine_chunks())
    known = {name: missing[name] for name in KEY_NAMES}
    known |= {"source_partition": groups["source_partition"].take(place)}
    columns = [
        known[field.name] if field.name in known else pa.nulls(len(missing), field.type)
        for field in offsets.schema
    ]
    return pa.concat_tables([offsets, pa.table(columns, schema=offsets.schema)])


def with_owners(offsets: pa.Table, owned: pa.Table) -> pa.Table:
    """Append to n partitions of groups whose they are (columns `OWNER`), as `owned_partitions` tells it."""
    codes = key_codes(pa.concat_tables([owned.select(KEY_NAMES), offsets.select(KEY_NAMES)]).columns)
    owner = np.full(codes.max(initial=-1) + 1, -1, np.int64)
    owner[codes[: len(owned)]] = np.arange(len(owned))
    found = take(owned.select(OWNER.names), owner[codes[len(owned) :]])
    for field in OWNER:
        offsets = offsets.append_column(field, found[field.name])
    return offsets


def _that_commit(groups: pa.Table) -> pa.Table:
    """Return the groups whose offsets are in the topic."""
    return groups.filter(pc.invert(pc.is_in(groups["type"], value_set=from_texts(_OF_OTHERS))))


def _owned_by(groups: pa.Table, owned: pa.Table) -> pa.Table:
    return groups.add_column(1, "topic", owned["topic"]).add_column(2, "partition", owned["partition"])


def _in_words(numbers: Index) -> pa.Array:
    return from_numbers(numbers).cast(pa.string())


def _flat(lists: pa.ChunkedArray | pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the elements of n lists one after another, and of each the number of its list."""
    whole = lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists
    return pc.list_parent_indices(whole), pc.list_flatten(whole)


def _child(structs: pa.Array, name: str) -> pa.Array:
    return pc.struct_field(structs, name)


def _names_of(ids: pa.Array, at: TopicReader, moment: int) -> pa.Array:
    """Return the names of topics by their ids, null where samples up to a moment (ms) know none."""
    seen = at.topics_over_time(None, as_of=moment)
    known = pc.SetLookupOptions(seen["topic_id"].combine_chunks(), skip_nulls=True)
    found = pc.index_in(ids, options=known)
    return seen["topic"].combine_chunks().take(found)
