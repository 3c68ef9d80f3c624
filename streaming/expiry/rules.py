"""When the broker will drop each committed offset: a pure function of offsets, groups and retention.

The broker checks every offset once per check interval and drops those that are due (Kafka 4.3:
`OffsetMetadataManager.cleanupExpiredOffsets`, `OffsetExpirationConditionImpl`,
`ClassicGroup.offsetExpirationCondition`; KIP-211, KIP-496). So an offset disappears between its `expires_at`
and one check interval later. The current time is not part of the rule: callers compute the time left.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import Index, Mask, where
from streaming.common.keys import numbered
from streaming.common.times import FIRST_MS, LAST_MS
from streaming.common.timestamps import to_milliseconds, to_timestamps

Clock = Literal["commit_timestamp", "state_timestamp"]


@dataclass(frozen=True, kw_only=True)
class ExpiryRule:
    """One clause of Kafka's rule; `name` is its value in the column `rule`.

    `clock` is the column from which the retention counts (None: the rule has no such clock).
    `when_subscribed` is the rule that holds instead for topics that the group subscribes to. `is_unknown`:
    the rule is not known, so a null `expires_at` does not mean that the offset is safe.
    """

    name: str
    clock: Clock | None = None
    when_subscribed: "ExpiryRule | None" = None
    is_unknown: bool = False


RULES: Final = (
    EXPLICIT := ExpiryRule(name="explicit"),
    SIMPLE := ExpiryRule(name="simple", clock="commit_timestamp"),
    EMPTY := ExpiryRule(name="classic empty", clock="state_timestamp"),
    EMPTY_UNTIMED := ExpiryRule(name="classic empty (since unknown)", clock="commit_timestamp"),
    CLASSIC_SUBSCRIBED := ExpiryRule(name="classic subscribed"),
    CLASSIC_UNSUBSCRIBED := ExpiryRule(
        name="classic not subscribed", clock="commit_timestamp", when_subscribed=CLASSIC_SUBSCRIBED
    ),
    CLASSIC_OPAQUE := ExpiryRule(name="classic subscription unreadable"),
    CLASSIC_OTHER_PROTOCOL := ExpiryRule(name="classic other protocol"),
    CLASSIC_REBALANCING := ExpiryRule(name="classic rebalancing"),
    CONSUMER_SUBSCRIBED := ExpiryRule(name="consumer subscribed"),
    CONSUMER_EMPTY := ExpiryRule(
        name="consumer empty", clock="commit_timestamp", when_subscribed=CONSUMER_SUBSCRIBED
    ),
    CONSUMER_UNSUBSCRIBED := ExpiryRule(
        name="consumer not subscribed", clock="commit_timestamp", when_subscribed=CONSUMER_SUBSCRIBED
    ),
    STREAMS_SUBSCRIBED := ExpiryRule(name="streams subscribed"),
    STREAMS_EMPTY := ExpiryRule(
        name="streams empty", clock="commit_timestamp", when_subscribed=STREAMS_SUBSCRIBED
    ),
    STREAMS_UNSUBSCRIBED := ExpiryRule(
        name="streams not subscribed", clock="commit_timestamp", when_subscribed=STREAMS_SUBSCRIBED
    ),
    SHARE := ExpiryRule(name="share"),
    NO_GROUP := ExpiryRule(name="no group"),
    UNREADABLE := ExpiryRule(name="unknown (unreadable)", is_unknown=True),
    STALLED := ExpiryRule(name="unknown (stalled)", is_unknown=True),
    OTHER_GROUP := ExpiryRule(name="unknown (group)", is_unknown=True),
)

UNKNOWN_RULES: Final = frozenset(rule.name for rule in RULES if rule.is_unknown)
"""The names of the rules under which nothing is known about expiry."""

UNSUBSCRIBED_RULES: Final = frozenset(
    rule.name for rule in (CLASSIC_UNSUBSCRIBED, CONSUMER_UNSUBSCRIBED, STREAMS_UNSUBSCRIBED)
)
"""The names of the rules for topics that a group with members does not subscribe to."""

Codes = npt.NDArray[np.int8]

_CODES: Final = {rule: code for code, rule in enumerate(RULES)}
_HAS_CLOCK: Final = np.array([rule.clock is not None for rule in RULES])
_WHERE_SUBSCRIBED: Final = np.array([_CODES[rule.when_subscribed or rule] for rule in RULES])
_NONE: Final = np.iinfo(np.int64).min  # in place of null


def expiry(
    offsets: pa.Table, groups: pa.Table, retention_ms: int, *, stalled: Collection[int] = ()
) -> pa.Table:
    """Return the n offset rows with `rule`, `clock_starts_at` and `expires_at` appended.

    `offsets` and `groups` have the schemas `OFFSETS` and `GROUPS`; groups missing here count as absent.
    `retention_ms` is `offsets.retention.minutes` in milliseconds. `stalled` are the offsets partitions behind
    an open transaction, where later commits cannot be seen.

    `rule` is the name of one of `RULES`. `clock_starts_at` is the moment from which the retention counts,
    null where it does not. `expires_at` is the moment at which the offset is due; null: never as long as the
    group stays as it is, or, under one of `UNKNOWN_RULES`, not known. Times past the year 9999 are that
    year's last millisecond.
    """
    group_rows = rows_of_groups(offsets, groups)
    rules = _rules(offsets, groups, group_rows, stalled)
    committed = _milliseconds(offsets["commit_timestamp"])
    changed_state = np.append(_milliseconds(groups["state_timestamp"]), _NONE)[group_rows]
    starts = np.select(
        [_is_timed_by("commit_timestamp")[rules], _is_timed_by("state_timestamp")[rules]],
        [committed, changed_state],
        _NONE,
    )
    span = min(retention_ms, LAST_MS - FIRST_MS)
    ends = np.where(starts == _NONE, _NONE, np.minimum(starts + span, LAST_MS))
    ends = np.where(rules == _CODES[EXPLICIT], _milliseconds(offsets["expire_timestamp"]), ends)
    names = pa.DictionaryArray.from_arrays(pa.array(rules), pa.array([rule.name for rule in RULES])).cast(
        pa.string()
    )
    return (
        offsets.append_column("rule", names)
        .append_column("clock_starts_at", _timestamps(starts))
        .append_column("expires_at", _timestamps(ends))
    )


def rows_of_groups(offsets: pa.Table, groups: pa.Table) -> Index:
    """Return the row of the group of each offset; `len(groups)` where there is none."""
    found = pc.index_in(offsets["group"], value_set=groups["group"].combine_chunks())
    rows: Index = found.fill_null(len(groups)).to_numpy().astype(np.int64)
    return rows


def _rules(offsets: pa.Table, groups: pa.Table, group_rows: Index, stalled: Collection[int]) -> Codes:
    """Return the rule of each offset, as an index into `RULES`."""
    unsubscribed = np.append(_rules_of_groups(groups), _CODES[NO_GROUP])[group_rows]
    subscribed = _WHERE_SUBSCRIBED[unsubscribed]
    is_exempt = subscribed != unsubscribed
    is_exempt[is_exempt] = _is_subscribed(offsets, groups, group_rows, is_exempt)
    rules = np.where(is_exempt, subscribed, unsubscribed)
    is_explicit = offsets["expire_timestamp"].is_valid().to_numpy() & _HAS_CLOCK[rules]
    partitions = pa.array(sorted(stalled), pa.int32())
    return np.select(
        [
            offsets["unreadable_source_offset"].is_valid().to_numpy(),
            pc.is_in(offsets["source_partition"], value_set=partitions).to_numpy(),
            is_explicit,
        ],
        [_CODES[UNREADABLE], _CODES[STALLED], _CODES[EXPLICIT]],
        rules,
    ).astype(np.int8)


def _rules_of_groups(groups: pa.Table) -> Codes:
    """Return the rule of each group for topics that it does not subscribe to. The cases are in the order
    of `ClassicGroup.offsetExpirationCondition`."""
    is_classic, is_consumer, is_streams, is_share = (
        _equals(groups["type"], text) for text in ("classic", "consumer", "streams", "share")
    )
    is_empty, is_stable = (_equals(groups["state"], text) for text in ("Empty", "Stable"))
    is_simple, speaks_consumer = (_equals(groups["protocol_type"], text) for text in ("", "consumer"))
    has_topics = groups["subscribed_topics"].is_valid().to_numpy()
    has_state_time = groups["state_timestamp"].is_valid().to_numpy()
    cases = [
        (is_share, SHARE),
        (is_consumer & has_topics & is_empty, CONSUMER_EMPTY),
        (is_consumer & has_topics, CONSUMER_UNSUBSCRIBED),
        (is_streams & has_topics & is_empty, STREAMS_EMPTY),
        (is_streams & has_topics, STREAMS_UNSUBSCRIBED),
        (~is_classic, OTHER_GROUP),
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
    """Return for each offset in `asked` whether its group subscribes to its topic, by the topics that
    `streaming.state.groups` collects for each type of group."""
    subscribed = groups["subscribed_topics"].combine_chunks()
    topics = where(offsets.select(["topic"]), asked)["topic"]
    codes, _ = numbered(pa.chunked_array([subscribed.flatten(), *topics.chunks], pa.string()))
    parents = pc.list_parent_indices(subscribed).to_numpy().astype(np.int64)
    topics_subscribed, topics_of_offsets = codes[: len(parents)], codes[len(parents) :]
    pairs = group_rows[asked] << 32 | topics_of_offsets
    found: Mask = np.isin(pairs, parents << 32 | topics_subscribed)
    return found


def _equals(column: pa.ChunkedArray, text: str) -> Mask:
    mask: Mask = pc.equal(column, text).fill_null(False).to_numpy()
    return mask


def _is_timed_by(clock: Clock) -> Mask:
    return np.array([rule.clock == clock for rule in RULES])


def _milliseconds(column: pa.ChunkedArray) -> Index:
    values: Index = to_milliseconds(column).fill_null(_NONE).to_numpy()
    return values


def _timestamps(milliseconds: Index) -> pa.Array:
    return to_timestamps(pa.array(milliseconds, pa.int64(), mask=milliseconds == _NONE))
