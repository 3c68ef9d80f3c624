"""Tells when the broker will drop each committed offset: a pure function of offsets, groups and retention.

The broker looks at every offset once per check interval and drops those that are due (Kafka 4.3:
`OffsetMetadataManager.cleanupExpiredOffsets`, `OffsetExpirationConditionImpl`,
`ClassicGroup.offsetExpirationCondition`; KIP-211, KIP-496). So an offset goes between its `expires_at` and
one check interval later. The present time is no part of the rule: what is left of it is for the caller.
"""

from collections.abc import Collection, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import Index, Mask
from streaming.common.keys import numbered
from streaming.common.times import FIRST_MS, LAST_MS
from streaming.model.schemas import TIMESTAMP

EXPLICIT: Final = "explicit"
SIMPLE: Final = "simple"
EMPTY: Final = "classic empty"
EMPTY_UNTIMED: Final = "classic empty (since unknown)"
CLASSIC_UNSUBSCRIBED: Final = "classic not subscribed"
CLASSIC_SUBSCRIBED: Final = "classic subscribed"
CLASSIC_OPAQUE: Final = "classic subscription unreadable"
CLASSIC_OTHER_PROTOCOL: Final = "classic other protocol"
CLASSIC_REBALANCING: Final = "classic rebalancing"
CONSUMER_UNSUBSCRIBED: Final = "consumer not subscribed"
CONSUMER_SUBSCRIBED: Final = "consumer subscribed"
STREAMS_UNSUBSCRIBED: Final = "streams not subscribed"
STREAMS_SUBSCRIBED: Final = "streams subscribed"
SHARE: Final = "share"
NO_GROUP: Final = "no group"
UNKNOWN_UNREADABLE: Final = "unknown (unreadable)"
UNKNOWN_STALLED: Final = "unknown (stalled)"
UNKNOWN_GROUP: Final = "unknown (group)"

CLOCKS: Final[Mapping[str, str | None]] = {
    EXPLICIT: None,
    SIMPLE: "commit_timestamp",
    EMPTY: "state_timestamp",
    EMPTY_UNTIMED: "commit_timestamp",
    CLASSIC_UNSUBSCRIBED: "commit_timestamp",
    CLASSIC_SUBSCRIBED: None,
    CLASSIC_OPAQUE: None,
    CLASSIC_OTHER_PROTOCOL: None,
    CLASSIC_REBALANCING: None,
    CONSUMER_UNSUBSCRIBED: "commit_timestamp",
    CONSUMER_SUBSCRIBED: None,
    STREAMS_UNSUBSCRIBED: "commit_timestamp",
    STREAMS_SUBSCRIBED: None,
    SHARE: None,
    NO_GROUP: None,
    UNKNOWN_UNREADABLE: None,
    UNKNOWN_STALLED: None,
    UNKNOWN_GROUP: None,
}
"""Every rule, and the column from which its retention counts (None: it has no such clock)."""

UNKNOWN_RULES: Final = frozenset({UNKNOWN_UNREADABLE, UNKNOWN_STALLED, UNKNOWN_GROUP})
"""Rules that say: nothing can be said. Their null `expires_at` does not mean that the offset is safe."""

Codes = npt.NDArray[np.int8]
Micros = Index

_RULES: Final = list(CLOCKS)
_CODES: Final = {rule: code for code, rule in enumerate(_RULES)}
_HAS_CLOCK: Final = np.array([clock is not None for clock in CLOCKS.values()])
_SUBSCRIBED: Final = {
    CLASSIC_UNSUBSCRIBED: CLASSIC_SUBSCRIBED,
    CONSUMER_UNSUBSCRIBED: CONSUMER_SUBSCRIBED,
    STREAMS_UNSUBSCRIBED: STREAMS_SUBSCRIBED,
}
_WHERE_SUBSCRIBED: Final = np.array([_CODES[_SUBSCRIBED.get(rule, rule)] for rule in _RULES])
_NONE: Final = np.iinfo(np.int64).min  # stands for null among microseconds


def expiry(
    offsets: pa.Table, groups: pa.Table, retention_ms: int, *, stalled: Collection[int] = ()
) -> pa.Table:
    """Return the n offset rows with `rule`, `clock_starts_at` and `expires_at` appended.

    Takes rows of the tables (schemas `OFFSETS` and `GROUPS`, of all groups that have offsets here) and
    `offsets.retention.minutes` in milliseconds. `stalled` are the offsets partitions behind an open
    transaction: what it holds back cannot be seen.

    `rule` is one of `CLOCKS`. `clock_starts_at` is from when the retention counts, null where it does not.
    `expires_at` is when the offset is due; null: not as long as the group stays as it is, or, under one of
    `UNKNOWN_RULES`, not known. Times past the year 9999 are that year's last millisecond.
    """
    group_rows = _group_rows(offsets, groups)
    rules = _rules(offsets, groups, group_rows, stalled)
    committed = _micros(offsets["commit_timestamp"])
    changed_state = np.append(_micros(groups["state_timestamp"]), _NONE)[group_rows]
    starts = np.select(
        [_is_timed_by("commit_timestamp")[rules], _is_timed_by("state_timestamp")[rules]],
        [committed, changed_state],
        _NONE,
    )
    ends = np.where(starts == _NONE, _NONE, np.minimum(starts + _span(retention_ms), LAST_MS * 1_000))
    ends = np.where(rules == _CODES[EXPLICIT], _micros(offsets["expire_timestamp"]), ends)
    names = pa.DictionaryArray.from_arrays(pa.array(rules), pa.array(_RULES)).cast(pa.string())
    return (
        offsets.append_column("rule", names)
        .append_column("clock_starts_at", _timestamps(starts))
        .append_column("expires_at", _timestamps(ends))
    )


def _group_rows(offsets: pa.Table, groups: pa.Table) -> Index:
    """Return for each offset the row of its group; one past the last where there is none."""
    found = pc.index_in(offsets["group"], value_set=groups["group"].combine_chunks())
    rows: Index = found.fill_null(len(groups)).to_numpy().astype(np.int64)
    return rows


def _rules(offsets: pa.Table, groups: pa.Table, group_rows: Index, stalled: Collection[int]) -> Codes:
    """Return the rule of each offset, as a position in `_RULES`."""
    unsubscribed = np.append(_rules_of_groups(groups), _CODES[NO_GROUP])[group_rows]
    subscribed = _WHERE_SUBSCRIBED[unsubscribed]
    is_exempt = subscribed != unsubscribed
    is_exempt[is_exempt] = _is_subscribed(offsets, groups, group_rows, is_exempt)
    rules = np.where(is_exempt, subscribed, unsubscribed)
    is_explicit = offsets["expire_timestamp"].is_valid().to_numpy() & _HAS_CLOCK[rules]
    partitions = pa.array(sorted(stalled), pa.int32())
    return np.select(
        [
            offsets["unreadable_since"].is_valid().to_numpy(),
            pc.is_in(offsets["source_partition"], value_set=partitions).to_numpy(),
            is_explicit,
        ],
        [_CODES[UNKNOWN_UNREADABLE], _CODES[UNKNOWN_STALLED], _CODES[EXPLICIT]],
        rules,
    ).astype(np.int8)


def _rules_of_groups(groups: pa.Table) -> Codes:
    """Return the rule of each group for the topics that it does not subscribe to.

    The order of the cases is that of `ClassicGroup.offsetExpirationCondition`.
    """
    is_classic, is_consumer, is_streams, is_share = (
        _equals(groups["type"], text) for text in ("classic", "consumer", "streams", "share")
    )
    is_empty, is_stable = (_equals(groups["state"], text) for text in ("Empty", "Stable"))
    is_simple, speaks_consumer = (_equals(groups["protocol_type"], text) for text in ("", "consumer"))
    has_topics = groups["subscribed_topics"].is_valid().to_numpy()
    has_state_time = groups["state_timestamp"].is_valid().to_numpy()
    cases = [
        (is_share, SHARE),
        (is_consumer & has_topics, CONSUMER_UNSUBSCRIBED),
        (is_streams & has_topics, STREAMS_UNSUBSCRIBED),
        (~is_classic, UNKNOWN_GROUP),
        (is_simple, SIMPLE),
        (is_empty & has_state_time, EMPTY),
        (is_empty, EMPTY_UNTIMED),
        (~is_stable, CLASSIC_REBALANCING),
        (~speaks_consumer, CLASSIC_OTHER_PROTOCOL),
        (has_topics, CLASSIC_UNSUBSCRIBED),
    ]
    return np.select(
        [case for case, _ in cases], [_CODES[rule] for _, rule in cases], _CODES[CLASSIC_OPAQUE]
    ).astype(np.int8)


def _is_subscribed(offsets: pa.Table, groups: pa.Table, group_rows: Index, asked: Mask) -> Mask:
    """Tell for each offset that is `asked` about whether its group subscribes to its topic."""
    subscribed = groups["subscribed_topics"].combine_chunks()
    names = pa.chunked_array([subscribed.flatten(), *offsets["topic"].chunks], pa.string())
    codes, _ = numbered(names)
    parents = pc.list_parent_indices(subscribed).to_numpy().astype(np.int64)
    topics_subscribed, topics_of_offsets = codes[: len(parents)], codes[len(parents) :]
    pairs = group_rows[asked] << 32 | topics_of_offsets[asked]
    found: Mask = np.isin(pairs, parents << 32 | topics_subscribed)
    return found


def _equals(column: pa.ChunkedArray, text: str) -> Mask:
    mask: Mask = pc.equal(column, text).fill_null(False).to_numpy()
    return mask


def _is_timed_by(column: str) -> Mask:
    """Tell for each rule whether its retention counts from this column."""
    return np.array([clock == column for clock in CLOCKS.values()])


def _span(retention_ms: int) -> int:
    """Return the retention as microseconds, at most what lies between the first and the last timestamp."""
    return min(retention_ms, LAST_MS - FIRST_MS) * 1_000


def _micros(column: pa.ChunkedArray) -> Micros:
    values: Micros = column.cast(TIMESTAMP).cast(pa.int64()).fill_null(_NONE).to_numpy()
    return values


def _timestamps(micros: Micros) -> pa.Array:
    return pa.array(micros, pa.int64(), mask=micros == _NONE).cast(TIMESTAMP)
