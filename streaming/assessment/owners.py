"""The owners of partitions: the members they are assigned to, also without a committed offset."""

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
"""The member that has the partition; null: none, or not known."""

_OWNED: Final = pa.schema([*KEY, *OWNER])
_OF_OTHERS: Final = ("share",)
"""Types of groups whose offsets are in another topic than `__consumer_offsets`."""
_OF_MEMBER: Final = ("member_id", "client_host", "client_id")


class TopicReader(Protocol):
    def topics_over_time(self, topics: Collection[str] | None, *, as_of: int) -> pa.Table:
        """Read when topics existed and with which ids (schema `TOPICS_OVER_TIME`), from samples up to
        `as_of` (ms)."""


def owned_partitions(groups: pa.Table, at: TopicReader, moment: int) -> pa.Table:
    """Return the assigned partitions of groups (schema `GROUPS`): columns `KEY_NAMES` and `OWNER`.

    Topics that the log has only by id get the names that the ids had in samples up to `moment` (ms); those
    without such a name are left out.
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
    """Versions of groups over a time: each version is valid from a moment until the next one of its group."""

    versions: pa.Table
    """The versions (v rows, schema `GROUPS`), with the number of the version in the column group, so that
    functions of groups work on versions. The version of a removed group has nulls."""
    owned: pa.Table
    """All partitions (columns `KEY_NAMES`, with the names of groups, and source_partition) that members
    ever had, with duplicates. Partitions of share groups are left out."""
    _groups: Numbering
    _codes: Index
    _ranked: Index
    _low: int
    _span: int
    _owned: Numbering
    _changed_at: Index

    @classmethod
    def of(cls, groups: pa.Table, since: Index, at: TopicReader, moment: int) -> Self:
        """Take v versions (schema `GROUPS`), each valid since a moment (v ms). Topic ids get the names
        known at `moment` (ms)."""
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
        """Return n rows with the number of the version that their group had at each moment (n ms; `NONE`:
        no version) in the column group."""
        return rows.set_column(
            rows.column_names.index("group"), "group", _in_words(self._numbers(rows, moments))
        )

    def had_since(self, rows: pa.Table, moments: Index) -> Index:
        """Return since when (ms) groups have had n partitions (columns `KEY_NAMES`) at n moments (ms), as
        far as the last record of the group shows by then; `NONE`: the group does not have the partition."""
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
    """Append to committed offsets (schema `OFFSETS`, or some of its columns) the partitions that members
    of the groups (schema `GROUPS`) have and that have no committed offset, as `kafka-consumer-groups`
    shows them. All their columns but the key and source_partition are null. Share groups add none: their
    offsets are in another topic."""
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
    """Append the columns `OWNER` to n partitions of groups; `owned` comes from `owned_partitions`."""
    codes = key_codes(pa.concat_tables([owned.select(KEY_NAMES), offsets.select(KEY_NAMES)]).columns)
    owner = np.full(codes.max(initial=-1) + 1, -1, np.int64)
    owner[codes[: len(owned)]] = np.arange(len(owned))
    found = take(owned.select(OWNER.names), owner[codes[len(owned) :]])
    for field in OWNER:
        offsets = offsets.append_column(field, found[field.name])
    return offsets


def _that_commit(groups: pa.Table) -> pa.Table:
    """Return the groups whose offsets are in `__consumer_offsets`."""
    return groups.filter(pc.invert(pc.is_in(groups["type"], value_set=from_texts(_OF_OTHERS))))


def _owned_by(groups: pa.Table, owned: pa.Table) -> pa.Table:
    return groups.add_column(1, "topic", owned["topic"]).add_column(2, "partition", owned["partition"])


def _in_words(numbers: Index) -> pa.Array:
    return from_numbers(numbers).cast(pa.string())


def _flat(lists: pa.ChunkedArray | pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the concatenated elements of n lists, and the number of the list of each element."""
    whole = lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists
    return pc.list_parent_indices(whole), pc.list_flatten(whole)


def _child(structs: pa.Array, name: str) -> pa.Array:
    return pc.struct_field(structs, name)


def _names_of(ids: pa.Array, at: TopicReader, moment: int) -> pa.Array:
    """Return the names of topics by id, null where samples up to `moment` (ms) have none."""
    seen = at.topics_over_time(None, as_of=moment)
    known = pc.SetLookupOptions(seen["topic_id"].combine_chunks(), skip_nulls=True)
    found = pc.index_in(ids, options=known)
    return seen["topic"].combine_chunks().take(found)
