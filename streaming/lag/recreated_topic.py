"""Committed offsets of a recreated topic: a topic that was deleted, and created again under the same name.

Such an offset points into a log that no longer exists, and Kafka does not report it. But topics have ids: an
offset of value version 4 contains the id of its topic, and samples record the id that each name had at a
time.
"""

from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import Index, Mask, from_mask, from_texts, numbers_or, to_mask
from streaming.common.keys import key_codes, numbered
from streaming.common.pieces import take
from streaming.common.timestamps import to_milliseconds
from streaming.lag.samples import NONE

OF_RECREATED_TOPIC: Final = pa.field("of_recreated_topic", pa.bool_())  # null: not known
SEEN_TOPIC_ID: Final = pa.field("seen_topic_id", pa.string())

_FIRST, _LAST = -(2**63), 2**63 - 1


def of_recreated_topic(offsets: pa.Table, over_time: pa.Table) -> pa.Array:
    """Return for n offsets whether they belong to a former topic of their name (n booleans; null: not known).

    `offsets` have topic, topic_id (null: not known), commit_timestamp and source_timestamp; `over_time` are
    the ids that each name was seen with (topic, topic_id, first_at, last_at). The offset's own topic id
    decides, if it has one. Else the time of the commit decides: before the last sample with the former id, or
    after the first with the present id. Between these, and before the first id ever seen, it is not known.
    """
    seen = _Seen(over_time)
    topics, ids = seen.codes_of(offsets)
    earliest, latest = _committed_between(offsets)
    present, first_at, last_at, former_until = (values[topics] for values in seen.by_topic)
    is_sampled = topics != NONE

    has_id = to_mask(offsets["topic_id"].is_valid())
    is_new_maybe = (ids == NONE) & (latest >= last_at)  # perhaps a new id, not sampled yet
    by_id = has_id & is_sampled & ~is_new_maybe
    by_time = ~has_id & is_sampled & ((latest <= former_until) | (earliest >= first_at))
    former = np.where(has_id, ids != present, latest <= former_until)
    return from_mask(former, by_id | by_time)


def is_of_other_log(moves: pa.Table, over_time: pa.Table) -> Mask:
    """Return for n commits whether they point into another log than the commits before them: whether the
    topic was, or may have been, recreated in between.

    `moves` have topic, topic_id and topic_id_before (null: not known), before_at and committed_at. The two
    ids decide where both are known; else whether the topic was seen with two ids in that time (`over_time` as
    for `of_recreated_topic`).
    """
    differs = pc.not_equal(moves["topic_id_before"], moves["topic_id"])
    return np.where(are_ids_known(moves), to_mask(differs), _may_be_other(moves, over_time))


def are_ids_known(moves: pa.Table) -> Mask:
    """Return for n commits whether the topic ids of both, the commit and the one before it, are known:
    then `is_of_other_log` needs no `over_time`."""
    return to_mask(pc.is_valid(pc.not_equal(moves["topic_id_before"], moves["topic_id"])))


def _may_be_other(moves: pa.Table, over_time: pa.Table) -> Mask:
    """Return for n commits whether the id of their topic may have changed since the commits before them."""
    seen: dict[str, list[tuple[int, int]]] = {}
    rows = over_time.filter(over_time["topic_id"].is_valid())
    first, last = (numbers_or(to_milliseconds(rows[name]), 0) for name in ("first_at", "last_at"))
    for topic, *times in zip(rows["topic"].to_pylist(), first.tolist(), last.tolist(), strict=True):
        seen.setdefault(topic, []).append((times[0], times[1]))
    changed = {
        topic: [(one[1], other[0]) for one, other in pairwise(sorted(spans))] for topic, spans in seen.items()
    }
    since = numbers_or(to_milliseconds(moves["before_at"]), 0).tolist()
    until = numbers_or(to_milliseconds(moves["committed_at"]), 0).tolist()
    return np.array(
        [
            any(start <= new_at and end >= old_at for old_at, new_at in changed.get(topic, ()))
            for topic, start, end in zip(moves["topic"].to_pylist(), since, until, strict=True)
        ],
        np.bool_,
    )


def contradictions(offsets: pa.Table, over_time: pa.Table) -> pa.Table:
    """Return the offsets whose own topic id differs from the id that their topic was seen with when they
    were committed, with the latter as the column seen_topic_id."""
    seen = _Seen(over_time)
    topics, ids = seen.codes_of(offsets)
    earliest, latest = _committed_between(offsets)
    numbers = seen.seen_at(topics, earliest, latest)
    differs = to_mask(offsets["topic_id"].is_valid()) & (numbers != NONE) & (ids != numbers)
    rows = np.flatnonzero(differs)
    found = take(seen.rows.select(["topic_id"]), numbers[rows])["topic_id"]
    return take(offsets, rows).append_column(SEEN_TOPIC_ID, found)


class _Seen:
    """The topic ids of `over_time`, sorted by topic and time."""

    def __init__(self, over_time: pa.Table) -> None:
        rows = over_time.filter(pc.is_valid(over_time["topic_id"]))
        codes, self._topics = numbered(rows["topic"])
        first, last = (numbers_or(to_milliseconds(rows[name]), 0) for name in ("first_at", "last_at"))
        order = np.lexsort((first, last, codes))
        self.rows = take(rows, order)
        self._codes, self._first, self._last = codes[order], first[order], last[order]

    @property
    def by_topic(self) -> tuple[Index, Index, Index, Index]:
        """For each topic: the row of its present id, when this was first and last seen, and when (ms)
        another id was last seen. Each array has one more value, for the topic `NONE`."""
        stops = np.searchsorted(self._codes, np.arange(len(self._topics)), side="right")
        present = stops - 1
        has_former = np.append(self._codes, NONE)[present - 1] == np.arange(len(stops))
        has_former &= present > 0
        former_until = np.where(has_former, np.append(self._last, 0)[present - 1], _FIRST)
        return (
            np.append(present, NONE),
            np.append(self._first[present], _LAST),
            np.append(self._last[present], _LAST),
            np.append(former_until, _FIRST),
        )

    def codes_of(self, offsets: pa.Table) -> tuple[Index, Index]:
        """Return for each offset the number of its topic, and the row of its own id of that topic; `NONE`
        where there is none."""
        topics = numbers_or(pc.index_in(offsets["topic"], value_set=self._topics), NONE)
        both = [
            pa.chunked_array([*self.rows[name].chunks, *offsets[name].chunks], pa.string())
            for name in ("topic", "topic_id")
        ]
        # `fill_null` would import pandas
        codes = key_codes([both[0], pc.coalesce(both[1], from_texts([""])[0])])
        rows = np.full((codes.max() if len(codes) else -1) + 1, NONE, np.int64)
        rows[codes[: len(self.rows)]] = np.arange(len(self.rows))
        own: Index = rows[codes[len(self.rows) :]]
        return topics, own

    def seen_at(self, topics: Index, earliest: Index, latest: Index) -> Index:
        """Return the row of the id that each topic had throughout the time from `earliest` to `latest`
        (ms), or `NONE`."""
        found = np.full(len(topics), NONE, np.int64)
        for row, (code, first, last) in enumerate(zip(self._codes, self._first, self._last, strict=True)):
            is_then: Mask = (topics == code) & (earliest >= first) & (latest <= last)
            found[is_then] = row
        return found


def _committed_between(offsets: pa.Table) -> tuple[Index, Index]:
    """Return the earliest and the latest moment (ms) at which each offset can have been committed, from
    the two clocks that recorded it."""
    columns = [to_milliseconds(offsets[name]) for name in ("commit_timestamp", "source_timestamp")]
    earliest = np.minimum.reduce([numbers_or(column, _LAST) for column in columns])
    latest = np.maximum.reduce([numbers_or(column, _FIRST) for column in columns])
    is_known = earliest <= latest
    return np.where(is_known, earliest, _FIRST), np.where(is_known, latest, _LAST)
