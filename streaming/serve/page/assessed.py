"""All groups, topics and expiring offsets of an assessment as tables: its sums as rows."""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streaming.assessment.explained import LAG_SECONDS_REASON
from streaming.common.arrays import Index, Mask, from_mask, from_numbers, from_texts
from streaming.common.pieces import take
from streaming.common.timestamps import to_timestamps
from streaming.expiry.rules import UNKNOWN_RULES
from streaming.lag.health import PARTITION_HEALTH
from streaming.lag.health_rules import STATUSES
from streaming.lag.log_ranges import LAG
from streaming.lag.samples import MAX_SAMPLE_AGE_MS, may_be_same_id
from streaming.lag.summary import clipped_sums
from streaming.model.schemas import KEY, TIMESTAMP
from streaming.serve.assessment.assessment import EXPIRY_RULES, NO_LAG, WORDS, Assessment
from streaming.serve.assessment.complete import source_partitions
from streaming.serve.assessment.sums import LagSums, Summed, status_of_groups, subscribed
from streaming.serve.memory.names import NONE, NameIndex
from streaming.serve.memory.snapshot import MemorySnapshot

_LARGEST: Final = 2**63 - 1

_LAG: Final = [
    ("lag", pa.int64()),  # sum of the known lags, negative ones as 0; null: none is known
    ("lag_seconds", pa.float64()),  # the longest known one; null: none is known
    ("lag_is_at_least", pa.bool_()),  # lag or time of some partition is "at least", or not known
]

GROUP_ROWS: Final = pa.schema(
    [
        ("group", pa.string()),
        ("type", pa.string()),  # null, as the next: only offsets of the group are known
        ("state", pa.string()),
        ("members", pa.int64()),
        ("status", pa.string()),  # one of `STATUSES`; null: no offset, and no assigned partition
        *_LAG,
        ("partitions", pa.int64()),  # with a committed offset
        ("last_commit", TIMESTAMP),  # null: unknown
        ("first_expiry", TIMESTAMP),  # null: none of its offsets expires as the group is now, or unknown
        ("source_partition", pa.int32()),
    ]
)
"""The groups of an assessment, by name."""

TOPIC_ROWS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("groups", pa.int64()),  # with a committed offset
        ("groups_with_members", pa.int64()),
        ("partitions", pa.int64()),  # known by a commit, an assignment or a sample of log ends
        *_LAG,
        ("last_commit", TIMESTAMP),
        ("offsets_of_recreated_topic", pa.int64()),  # committed before the topic was recreated
        ("recreated_at", TIMESTAMP),  # when its present id was first seen; null: not recreated, or not known
        ("gone_at", TIMESTAMP),  # when it was last seen not to exist; null: it is there, or not known
    ]
)
"""The topics of an assessment, by name; lag is over all groups."""

EXPIRING_ROWS: Final = pa.schema(
    [
        *KEY,
        ("committed_offset", pa.int64()),
        ("rule", pa.string()),
        ("expires_at", TIMESTAMP),
        ("of_recreated_topic", pa.bool_()),
    ]
)
"""Offsets that expire, soonest first, as in the command `expiring` (without those whose expiry is not
known)."""


POSITION_ROWS: Final = pa.schema(
    [
        *KEY,
        ("committed_offset", pa.int64()),
        *LAG,
        LAG_SECONDS_REASON,
        *(PARTITION_HEALTH.field(name) for name in ("status", "reason", "since")),
        ("of_recreated_topic", pa.bool_()),
        ("rule", pa.string()),
        ("expires_at", TIMESTAMP),
        ("commit_timestamp", TIMESTAMP),
        ("log_start_offset", pa.int64()),  # null: not known
    ]
)
"""The committed offsets of one group, and assigned partitions without one."""


def group_rows(assessment: Assessment) -> pa.Table:
    """Return all groups of loaded offsets partitions (schema `GROUP_ROWS`)."""
    snapshot, groups = assessment.snapshot, assessment.snapshot.groups
    summed, n = Summed.by_group(assessment), len(assessment.snapshot.groups)
    lag, own = summed.lag, summed.groups
    assessed, statuses = status_of_groups(assessment)
    status = np.full(n, NONE, np.int64)
    status[assessed] = statuses
    at_least = np.zeros(n, np.bool_)
    at_least[own] = _is_at_least(summed)
    at_least[assessment.uncommitted.groups] = True
    expiring, _, moments = summed.soonest_expiry()
    first = np.full(n, np.iinfo(np.int64).max, np.int64)
    np.minimum.at(first, expiring, moments)
    partitions = source_partitions(snapshot)
    is_known = groups.is_described
    columns = {
        "group": groups.names.texts.cast(pa.string()),
        "type": _text(groups.rows["type"]),
        "state": _text(groups.rows["state"]),
        "members": from_numbers(groups.member_counts, is_known),
        "status": words_of(STATUSES, status),
        **_lag_columns(lag, own, n, is_at_least=at_least),
        "partitions": from_numbers(snapshot.offsets.counts),
        "last_commit": times_of(_spread(summed.last_commit, own, n, NONE)),
        "first_expiry": times_of(np.where(first == np.iinfo(np.int64).max, NONE, first)),
        "source_partition": from_numbers(partitions).cast(pa.int32()),
    }
    rows = pa.table([columns[field.name] for field in GROUP_ROWS], schema=GROUP_ROWS)
    return rows.filter(from_mask(loaded_groups(snapshot)))


def topic_rows(assessment: Assessment) -> pa.Table:
    """Return the topics that groups of loaded offsets partitions have committed or been assigned (schema
    `TOPIC_ROWS`)."""
    snapshot, topics, n = assessment.snapshot, assessment.snapshot.topics, len(assessment.snapshot.topics)
    summed, is_loaded = Summed.by_topic(assessment), loaded_groups(assessment.snapshot)
    assert summed.topics is not None
    kept = np.flatnonzero(is_loaded[summed.groups])
    own, groups, lag = summed.topics[kept], summed.groups[kept], summed.lag
    sums, is_known = lag.lag[kept], lag.is_known[kept]
    bare = assessment.uncommitted
    some = (bare.places != NONE) & is_loaded[bare.groups]
    assigned = topics.topic[bare.places[some]]
    has_lag = np.zeros(n, np.bool_)
    has_lag[own[is_known]] = True
    seconds = np.full(n, np.nan)
    np.fmax.at(seconds, own, lag.seconds[kept])
    last = np.full(n, NONE, np.int64)
    np.maximum.at(last, own, summed.last_commit[kept])
    recreated = np.zeros(n, np.int64)
    np.add.at(recreated, own, summed.count("of_recreated_topic")[kept])
    readers = _readers(snapshot, groups, own, bare.groups[some], assigned)
    columns = {
        "topic": topics.names.texts.cast(pa.string()),
        "groups": from_numbers(np.bincount(own, minlength=n).astype(np.int64)),
        "groups_with_members": from_numbers(np.bincount(readers, minlength=n).astype(np.int64)),
        "partitions": from_numbers(np.diff(topics.starts)),
        "lag": from_numbers(clipped_sums(own[is_known], sums[is_known], n), has_lag),
        "lag_seconds": _seconds(seconds),
        "lag_is_at_least": from_mask(
            np.isin(np.arange(n), own[_is_at_least(summed)[kept]]) | np.isin(np.arange(n), assigned)
        ),
        "last_commit": times_of(last),
        "offsets_of_recreated_topic": from_numbers(recreated),
        "recreated_at": times_of(np.where(recreated > 0, topics.ends.id_first_at, NONE)),
        "gone_at": times_of(topics.ends.gone_at),
    }
    rows = pa.table([columns[field.name] for field in TOPIC_ROWS], schema=TOPIC_ROWS)
    is_there = np.bincount(own, minlength=n) > 0
    is_there[assigned] = True
    return rows.filter(from_mask(is_there))


def _readers(
    snapshot: MemorySnapshot, groups: Index, topics: Index, assigned_groups: Index, assigned: Index
) -> Index:
    """Return the topics of distinct pairs of a group with members and a topic that it reads: it subscribes to
    it, or may, as far as is known, or it is assigned a partition of it."""
    is_subscribed, is_known = subscribed(snapshot, groups, topics)
    reads = (snapshot.groups.member_counts[groups] > 0) & (is_subscribed | ~is_known)
    pairs = np.concatenate([groups[reads] << 32 | topics[reads], assigned_groups << 32 | assigned])
    found: Index = np.unique(pairs) & 0xFFFFFFFF
    return found


def group_topic_rows(assessment: Assessment, topic: int) -> tuple[Index, pa.Table]:
    """Return the places of the groups of loaded offsets partitions that have committed offsets of the topic
    at a place, or are assigned partitions of it, and their lag there: a table of m rows with columns
    partitions, `_LAG` and last_commit."""
    summed, is_loaded = Summed.by_topic(assessment), loaded_groups(assessment.snapshot)
    assert summed.topics is not None
    chosen = np.flatnonzero((summed.topics == topic) & is_loaded[summed.groups])
    lag, counts = summed.lag, np.diff(summed.runs.starts, append=summed.runs.rows)
    bare = assessment.uncommitted
    of_topic = (bare.places != NONE) & is_loaded[bare.groups]
    of_topic[of_topic] = assessment.snapshot.topics.topic[bare.places[of_topic]] == topic
    assigned = np.unique(bare.groups[of_topic])
    groups = np.union1d(summed.groups[chosen], assigned)
    own, m = np.searchsorted(groups, summed.groups[chosen]), len(groups)
    is_known, at_least = np.zeros(m, np.bool_), np.isin(groups, assigned)
    is_known[own] = lag.is_known[chosen]
    at_least[own] |= _is_at_least(summed)[chosen]
    seconds = np.full(m, np.nan)
    seconds[own] = lag.seconds[chosen]
    columns = {
        "partitions": from_numbers(_spread(counts[chosen], own, m, 0)),
        "lag": from_numbers(_spread(lag.lag[chosen], own, m, 0), is_known),
        "lag_seconds": _seconds(seconds),
        "lag_is_at_least": from_mask(at_least),
        "last_commit": times_of(_spread(summed.last_commit[chosen], own, m, NONE)),
    }
    return groups, pa.table(columns)


def loaded_groups(snapshot: MemorySnapshot) -> Mask:
    """Return whether the offsets partition of each group (n) was read to its end."""
    return snapshot.are_loaded(source_partitions(snapshot))


def loaded_offsets(snapshot: MemorySnapshot) -> int:
    """Return the number of committed offsets of loaded offsets partitions."""
    return int(snapshot.offsets.counts[loaded_groups(snapshot)].sum())


def _is_at_least(summed: Summed) -> Mask:
    """Return for m runs whether the actual lag may be larger: of some offset it is, or it is not known."""
    positions = summed.assessment.positions
    is_unknown = (positions["lag"] == NO_LAG) | np.isnan(positions["lag_seconds"])
    return summed.runs.any(positions["lag_is_at_least"] | is_unknown)


def position_rows(assessment: Assessment, group: int) -> pa.Table:
    """Return the committed offsets of the group at a place, and the partitions that are assigned to its
    members without one, by topic and partition: n rows, schema `POSITION_ROWS`."""
    snapshot, name = assessment.snapshot, assessment.snapshot.groups.names.name(group)
    start, stop = (int(snapshot.offsets.starts[number]) for number in (group, group + 1))
    columns = snapshot.offsets.of(group)
    bare = np.flatnonzero((assessment.uncommitted.groups == group) & (assessment.uncommitted.places != NONE))
    places = np.concatenate([columns.place.astype(np.int64), assessment.uncommitted.places[bare]])
    held = {
        column: np.concatenate([values[start:stop], assessment.uncommitted.positions[column][bare]])
        for column, values in assessment.positions.items()
    }
    n, topics = len(places), snapshot.topics
    offsets = np.append(columns.committed_offset, np.full(len(bare), NONE))
    commits = np.append(columns.commit_timestamp, np.full(len(bare), NONE))
    is_readable = np.append(columns.was_readable, np.zeros(len(bare), np.bool_))
    lags, of_ends = held["lag"], held["offset_as_of_ends"]
    ids = np.append(columns.topic_id.astype(np.int64), np.full(len(bare), NONE))
    sampled = topics.ends.sample_id[places]
    is_own_log = may_be_same_id(ids, sampled)
    is_sampled = is_own_log & (assessment.moment - topics.ends.sampled_at[places] <= MAX_SAMPLE_AGE_MS)
    is_exact = (lags != NO_LAG) & (lags != _LARGEST) & (of_ends != NO_LAG)  # the largest lag is a clipped one
    ends = np.where(is_exact, lags + of_ends, topics.ends.log_end[places])
    starts = topics.ends.log_start[places]
    found = {
        "group": from_texts([name]).take(from_numbers(np.zeros(n, np.int64))),
        "topic": _names(topics.names, topics.topic[places]),
        "partition": from_numbers(topics.partition[places]).cast(pa.int32()),
        "committed_offset": from_numbers(offsets, is_readable),
        "offset_as_of_ends": from_numbers(of_ends, of_ends != NO_LAG),
        "log_end_offset": from_numbers(ends, (ends != NONE) & is_sampled),
        "log_start_offset": from_numbers(starts, (starts != NONE) & is_sampled),
        "lag": from_numbers(lags, lags != NO_LAG),
        "lag_seconds": _seconds(held["lag_seconds"]),
        "lag_is_at_least": from_mask(held["lag_is_at_least"], lags != NO_LAG),
        "ends_as_of": times_of(held["ends_as_of"]),
        **{word: words_of(WORDS[word], held[word]) for word in WORDS},
        "since": times_of(held["since"]),
        "of_recreated_topic": from_mask(held["of_recreated_topic"]),
        "expires_at": times_of(held["expires_at"]),
        "commit_timestamp": times_of(commits),
    }
    rows = pa.table([found[field.name] for field in POSITION_ROWS], schema=POSITION_ROWS)
    return take(rows, np.argsort(places, kind="stable"))


def expiring_rows(assessment: Assessment) -> pa.Table:
    """Return the offsets that expire (schema `EXPIRING_ROWS`), of loaded offsets partitions."""
    snapshot, positions = assessment.snapshot, assessment.positions
    columns, topics = snapshot.offsets.columns, snapshot.topics
    expires = positions["expires_at"]
    rows = np.flatnonzero((expires != NONE) & snapshot.are_loaded(columns.source_partition))
    rows = rows[np.argsort(expires[rows], kind="stable")]  # offsets are in the order of their keys
    place = columns.place[rows].astype(np.int64)
    held = {
        "group": _names(snapshot.groups.names, snapshot.offsets.groups()[rows]),
        "topic": _names(topics.names, topics.topic[place]),
        "partition": from_numbers(topics.partition[place]).cast(pa.int32()),
        "committed_offset": from_numbers(columns.committed_offset[rows], columns.was_readable[rows]),
        "rule": words_of(EXPIRY_RULES, positions["rule"][rows]),
        "expires_at": times_of(expires[rows]),
        "of_recreated_topic": from_mask(positions["of_recreated_topic"][rows]),
    }
    return pa.table([held[field.name] for field in EXPIRING_ROWS], schema=EXPIRING_ROWS)


def unknown_expiries(assessment: Assessment) -> int:
    """Return the number of offsets of loaded offsets partitions whose expiry is not known, as their rule
    says."""
    numbers = [EXPIRY_RULES.index(rule) for rule in UNKNOWN_RULES]
    is_loaded = assessment.snapshot.are_loaded(assessment.snapshot.offsets.columns.source_partition)
    return int((np.isin(assessment.positions["rule"], numbers) & is_loaded).sum())


# ---------------------------------------------------------------------------------------------------------


def _lag_columns(lag: LagSums, own: Index, n: int, *, is_at_least: Mask) -> dict[str, pa.Array]:
    is_known = np.zeros(n, np.bool_)
    is_known[own] = lag.is_known
    seconds = np.full(n, np.nan)
    seconds[own] = lag.seconds
    return {
        "lag": from_numbers(_spread(lag.lag, own, n, 0), is_known),
        "lag_seconds": _seconds(seconds),
        "lag_is_at_least": from_mask(is_at_least),
    }


def _spread(values: Index, places: Index, n: int, missing: int) -> Index:
    spread = np.full(n, missing, np.int64)
    spread[places] = values
    return spread


def _names(names: NameIndex, places: Index) -> pa.Array:
    return names.texts.cast(pa.string()).take(from_numbers(places))


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string())


def words_of(words: tuple[str, ...], numbers: Index) -> pa.Array:
    """Return one of some words for each of n numbers; null for `NONE`."""
    return from_texts(words).take(from_numbers(numbers.astype(np.int64), numbers != NONE))


def times_of(moments: Index) -> pa.Array:
    return to_timestamps(from_numbers(moments, moments != NONE))


def _seconds(seconds: npt.NDArray[np.float64]) -> pa.Array:
    return from_numbers(seconds, ~np.isnan(seconds))
