"""The series of the metrics in `catalogue.per_group`, as columns of an assessment."""

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import Index, Mask, from_texts, numbers_or
from streaming.lag.samples import MAX_SAMPLE_AGE_MS
from streaming.serve.assessment.assessment import EXPIRY_RULES, NO_LAG
from streaming.serve.assessment.sums import Summed, status_of_groups, subscribed
from streaming.serve.memory.names import NONE
from streaming.serve.metrics.catalogue import BY_NAME
from streaming.serve.metrics.catalogue.per_group import CAUSES_FROM_0, PER_TOPIC
from streaming.serve.metrics.labels import TEXTS, label_values
from streaming.serve.metrics.series import Label, Series, Values, seconds
from streaming.serve.metrics.source import MetricsSource

_NO_LABELS: Final[Mapping[str, Label]] = {}
_WORDS: Final = ("type", "state", "protocol_type", "protocol")
"""Columns of groups with few distinct values."""


@dataclass(frozen=True, eq=False)
class Subjects:
    """The label values of n series: the places of groups, topics (None: no such label) and partitions."""

    names: "LabelValues"
    groups: Index | None
    topics: Index | None = None
    partitions: Index | None = None

    def series(
        self, name: str, values: Values, known: Mask | None = None, *, more: Mapping[str, Label] = _NO_LABELS
    ) -> Series:
        """Return the series of a metric; `known` masks those that exist (None: all)."""
        labels = {
            "group": None if self.groups is None else Label(self.names.groups, self.groups),
            "topic": None if self.topics is None else Label(self.names.topics, self.topics),
            "partition": None if self.partitions is None else _numbered(self.partitions),
        }
        held = {label: column for label, column in labels.items() if column is not None}
        series = Series(BY_NAME[name], {**held, **more}, values, self.groups)
        return series if known is None else series.where(known)

    def moments(self, name: str, times: Index, *, more: Mapping[str, Label] = _NO_LABELS) -> Series:
        """Return the series of a metric of times (ms; `NONE`: no series)."""
        return self.series(name, seconds(times), times != NONE, more=more)

    def marks(self, name: str, is_marked: Mask) -> Series:
        """Return the series of a metric that is always 1, where `is_marked`."""
        return self.series(name, is_marked.astype(np.int64), is_marked)


class LabelValues:
    """The names of groups and topics of a snapshot as label values."""

    def __init__(self, groups: pa.Array, topics: pa.Array) -> None:
        self.groups, self.topics = label_values(groups), label_values(topics)

    def with_groups(self, more: list[str]) -> "LabelValues":
        """Return the names with more groups appended."""
        if not more:
            return self
        names = copy(self)
        names.groups = pa.concat_arrays([self.groups, label_values(from_texts(more))])
        return names


def series_per_group(source: MetricsSource, finest: int) -> Iterator[Series]:
    """Yield all series down to a level (an index into `LEVELS`), before any filter."""
    snapshot = source.assessment.snapshot
    names = LabelValues(snapshot.groups.names.texts, snapshot.topics.names.texts)
    if finest >= 1:
        yield from _of_groups(source, names)
        yield from _counted(source, names)
    if finest >= 2:
        yield from _of_topics(source, names)
    if finest >= 3:
        yield from _of_partitions(source, names)


def log_series(source: MetricsSource) -> Iterator[Series]:
    """Yield the start and end offsets of logs with recent samples; they belong to no group."""
    topics = source.snapshot.topics
    names = LabelValues(pa.nulls(0, TEXTS), topics.names.texts)
    of_logs = Subjects(names, None, topics.topic, topics.partition)
    is_new = source.now - topics.ends.sampled_at <= MAX_SAMPLE_AGE_MS
    starts, ends = (
        np.where(is_new, offsets, NONE) for offsets in (topics.ends.log_start, topics.ends.log_end)
    )
    yield of_logs.series("topic_partition_log_start_offset", starts, starts != NONE)
    yield of_logs.series("topic_partition_log_end_offset", ends, ends != NONE)


def _of_groups(source: MetricsSource, names: LabelValues) -> Iterator[Series]:
    snapshot, sums = source.assessment.snapshot, source.by_group
    places = np.flatnonzero(snapshot.groups.is_described)
    described, members = Subjects(names, places), snapshot.groups.member_counts[places]
    words = {label: _words(snapshot.groups.rows[label], places) for label in _WORDS}
    words["member_count"] = _numbered(members)
    yield described.series("group_info", np.ones(len(places), np.int64), more=words)
    yield described.series("group_members", members)
    own = Subjects(names, sums.groups)
    assessed, status = status_of_groups(source.current)
    yield Subjects(names, assessed).series("group_status", status)
    yield from _lag(own, sums, "group", sums.has_uncommitted)
    yield own.series("group_lag_max", sums.lag.largest, sums.lag.is_known)
    yield own.series("group_offsets_beyond_log_end", sums.lag.beyond_end, sums.lag.beyond_end > 0)
    yield own.moments("group_last_commit_timestamp_seconds", sums.last_commit)
    yield own.series("group_unreadable_offsets", sums.unreadable, sums.unreadable > 0)
    groups, rules, moments = sums.soonest_expiry()
    rule = Label(_as_labels(EXPIRY_RULES), rules)
    yield Subjects(names, groups).moments("group_expiry_timestamp_seconds", moments, more={"rule": rule})


def _counted(source: MetricsSource, names: LabelValues) -> Iterator[Series]:
    """Yield the counters of groups; those of groups that are gone have the places after the others."""
    if source.counters is None:
        return
    listed = [*source.assessment.snapshot.groups.names.places, *source.gone]
    own = Subjects(names.with_groups(source.gone), np.arange(len(listed)))
    commits, rewinds = source.counters.of(listed)
    yield own.series("group_commits_total", commits)
    yield own.series("group_rewinds_total", rewinds)
    yield from _removed(source.counters.removed, listed, own)


def _removed(removed: Mapping[tuple[str, str], int], groups: list[str], own: Subjects) -> Iterator[Series]:
    for cause in dict.fromkeys([*CAUSES_FROM_0, *(cause for _, cause in removed)]):
        counts = np.array([removed.get((group, cause), 0) for group in groups], np.int64)
        label = Label(label_values(from_texts([cause])), np.zeros(len(groups), np.int64))
        known = None if cause in CAUSES_FROM_0 else counts > 0
        yield own.series("group_removed_offsets_total", counts, known, more={"cause": label})


def _of_topics(source: MetricsSource, names: LabelValues) -> Iterator[Series]:
    sums = source.by_topic
    assert sums.topics is not None
    own = Subjects(names, sums.groups, sums.topics)
    yield from _lag(own, sums, "group_topic")
    position, is_known = sums.position
    yield own.series("group_topic_position", position, is_known)
    yield own.moments("group_topic_oldest_commit_timestamp_seconds", sums.oldest_commit)
    is_subscribed, is_known = subscribed(source.assessment.snapshot, sums.groups, sums.topics)
    yield own.series("group_topic_subscribed", is_subscribed.astype(np.int64), is_known)
    below, furthest = sums.below_log_start
    yield own.series("group_topic_offsets_below_log_start", below, below > 0)
    yield own.series("group_topic_below_log_start_max", furthest, below > 0)
    for metric in PER_TOPIC:
        if metric.counts:
            counts = sums.count(metric.counts)
            yield own.series(metric.name, counts, counts > 0)


def _of_partitions(source: MetricsSource, names: LabelValues) -> Iterator[Series]:
    snapshot, positions = source.assessment.snapshot, source.current.positions
    columns, topics = snapshot.offsets.columns, snapshot.topics
    own = Subjects(
        names, snapshot.offsets.groups(), topics.topic[columns.place], topics.partition[columns.place]
    )
    offsets = columns.committed_offset
    yield own.series("group_topic_partition_committed_offset", offsets, columns.was_readable)
    lags, seconds_behind = positions["lag"], positions["lag_seconds"]
    is_known, is_timed = lags != NO_LAG, ~np.isnan(seconds_behind)
    yield own.series("group_topic_partition_lag", lags, is_known)
    yield own.series("group_topic_partition_lag_seconds", seconds_behind, is_timed)
    is_least = is_known & (positions["lag_is_at_least"] | ~is_timed)
    yield own.marks("group_topic_partition_lag_at_least", is_least)
    yield own.moments("group_topic_partition_commit_timestamp_seconds", columns.commit_timestamp)


def _lag(own: Subjects, sums: Summed, name: str, has_more: Mask | bool = False) -> Iterator[Series]:
    """Yield the lag of groups, or of their topics; `has_more` marks those with further, unknown lag."""
    yield own.series(f"{name}_lag", sums.lag.lag, sums.lag.is_known)
    yield own.series(f"{name}_lag_seconds", sums.lag.seconds, ~np.isnan(sums.lag.seconds))
    yield own.marks(f"{name}_lag_at_least", sums.lag.is_at_least | (sums.lag.is_known & has_more))


def _words(column: pa.ChunkedArray, rows: Index) -> Label:
    """Return one of few texts for each of some rows; empty for null."""
    texts = column.unify_dictionaries().combine_chunks() if column.num_chunks else pa.nulls(0, pa.string())
    coded = pc.coalesce(texts, from_texts([""])[0]).dictionary_encode()
    return Label(label_values(coded.dictionary), numbers_or(coded.indices, 0)[rows])


def _as_labels(words: tuple[str, ...]) -> pa.Array:
    return label_values(from_texts(words))


def _numbered(partitions: Index) -> Label:
    distinct, places = np.unique(partitions, return_inverse=True)
    return Label(from_texts([str(number) for number in distinct.tolist()]).cast(TEXTS), places)
