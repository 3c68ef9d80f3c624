"""Tables for the benchmark of pages: two hours of a cluster in which something of everything happens.

Key k is a committed offset. Ninety-nine in a hundred belong to groups of about fifty offsets each, the others
to one large group, the last. Of the groups, one in a hundred has stopped 5,000 records before the end, one in
four is Empty and expires within a week, and one in a hundred commits with every batch. Partition 0 of the
first topic, and of the topics of the large group, grows by a record a second; the others rest, so that nobody
else is behind.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streaming.alerts.evaluation import Evaluator
from streaming.alerts.table import AlertTable
from streaming.common.times import DAY_MS, HOUR_MS, MINUTE_MS, day_of, now_ms
from streaming.common.timestamps import to_timestamps
from streaming.expiry.cause_names import EXPIRED
from streaming.maintenance.maintenance import maintain
from streaming.maintenance.trimming import KeepTimes
from streaming.model.progress import PartitionEnds, Progress, Retention
from streaming.model.schemas import GROUP, LOG_ENDS
from streaming.settings.model import OFFSETS_TOPIC
from streaming.settings.reading import read_settings
from streaming.tables.rows import change_rows
from streaming.tables.tables import Tables
from tests.benchmarks.bench_queries import PARTITIONS, changes_of, struct_of

HOURS: Final = 2
EVERY_S: Final = 5.0
BATCH: Final = 5_000
_QUIET_END: Final = 1_000_000
_BEHIND: Final = 5_000
_UNJOINED: Final = 5  # minutes since the last round of maintenance
_LARGE_EVERY: Final = 10  # minutes between two commits of the large group
_MEMBERS: Final = 10  # of the large group
_WEEK: Final = 7 * DAY_MS

Numbers = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The groups and offsets at any moment since `started` (ms)."""

    offsets: int
    groups: int
    started: int

    @property
    def small(self) -> int:
        """The first key of the large group."""
        return self.offsets - self.offsets // 100

    @cached_property
    def group_of(self) -> Numbers:
        keys = np.arange(self.offsets)
        return np.where(keys < self.small, keys % self.groups, self.groups - 1)

    @property
    def first_of_large(self) -> int:
        """The first topic of the large group, after those of all others."""
        return 51 + (self.small // self.groups) // 10

    @cached_property
    def _within(self) -> Numbers:
        keys = np.arange(self.offsets)
        return np.where(keys < self.small, keys // self.groups, keys - self.small)

    @cached_property
    def topic_of(self) -> Numbers:
        own = np.where(np.arange(self.offsets) < self.small, self.group_of % 50, self.first_of_large)
        numbers: Numbers = own + self._within // 10
        return numbers

    @cached_property
    def partition_of(self) -> Numbers:
        numbers: Numbers = self._within % 10
        return numbers

    @cached_property
    def names(self) -> pa.Array:
        return pa.array([group_name(number) for number in range(self.groups)])

    @cached_property
    def topics(self) -> pa.Array:
        return pa.array([topic_name(number) for number in range(int(self.topic_of.max()) + 1)])

    @property
    def active(self) -> Numbers:
        """The keys of the groups that commit with every batch."""
        return np.flatnonzero((self.group_of % 100 == 50) & (np.arange(self.offsets) < self.small))

    @property
    def at_times(self) -> Numbers:
        """The keys of which a batch has some."""
        group = self.group_of
        is_one = (group % 4 != 0) & (group % 100 != 7) & (group % 100 != 50)
        return np.flatnonzero(is_one & (np.arange(self.offsets) < self.small))

    @property
    def large(self) -> Numbers:
        return np.arange(self.small, self.offsets)

    def end_of(self, keys: Numbers, at: int) -> Numbers:
        """The log end offsets of the partitions of n keys at a moment."""
        return self.end(self.topic_of[keys], self.partition_of[keys], at)

    def end(self, topics: Numbers, partitions: Numbers, at: int) -> Numbers:
        """The log end offsets of n topic partitions at a moment."""
        grows = (partitions == 0) & ((topics == 0) | (topics >= self.first_of_large))
        ends: Numbers = _QUIET_END + np.where(grows, (at - self.started) // 1_000, 0)
        return ends


def group_name(number: int) -> str:
    return f"consumer-group-{number:06}"


def topic_name(number: int) -> str:
    return f"orders-events-{number:04}"


def middle_group(groups: int, nth: int = 0) -> int:
    """A group of usual size that commits with every batch: the middle one, or the nth after it."""
    return (groups // 200 * 100 + 50 + 100 * nth) % groups


def fill(tables: Tables, offsets: int, groups: int) -> Cluster:
    """Write the two hours before now, as the job and its maintenance do; the batches of the last minutes, one
    every five seconds, are files that maintenance has not joined yet. Before, a batch is that of a minute."""
    tables.create()
    cluster = Cluster(offsets=offsets, groups=groups, started=now_ms() - HOURS * HOUR_MS)
    first = np.arange(offsets)
    behind = np.where(cluster.group_of % 100 == 7, _BEHIND, 0)
    committed = cluster.end_of(first, cluster.started) - behind
    changes = [_offsets(cluster, first, committed, cluster.started), _groups(cluster)]
    append(tables, pa.concat_tables(changes), cluster.started)
    moments = [cluster.started + minute * MINUTE_MS for minute in range(1, 60 * HOURS - _UNJOINED + 1)]
    for minute, at in enumerate(moments, start=1):
        keys = batch_keys(cluster, minute)
        if minute % _LARGE_EVERY == 0:
            keys = np.append(keys, cluster.large)
        append(tables, commits(cluster, keys, at, rewound=120 if minute == 60 else 0), at)
        if minute == 90:
            append(tables, _removals(cluster, at), at + 1)
    sample(tables, cluster, [cluster.started, *moments])
    tables.fold()
    maintain(tables, KeepTimes.of(read_settings()), clock=now_ms)
    for number in range(1, 12 * _UNJOINED):
        at = moments[-1] + 5_000 * number
        append(tables, commits(cluster, batch_keys(cluster, 500 + number), at), at)
        if number % 12 == 0:
            sample(tables, cluster, [at])
    step(tables, cluster, 1)
    settings = read_settings().alerts
    Evaluator(tables, AlertTable(tables), settings, receivers=[], ask_log_ranges=None).evaluate()
    tables.fold()
    step(tables, cluster, 0)
    return cluster


def step(tables: Tables, cluster: Cluster, number: int) -> None:
    """Append a batch as of now, and with the first of each minute a sample."""
    at = now_ms()
    append(tables, commits(cluster, batch_keys(cluster, 1_000 + number), at), at)
    if number % 12 == 0:
        sample(tables, cluster, [at])


def keep_changing(root: str, offsets: int, groups: int, started: int) -> None:
    """Append batches until this process is ended."""
    tables, cluster = Tables(root), Cluster(offsets=offsets, groups=groups, started=started)
    number = 0
    while True:
        due = time.monotonic() + EVERY_S
        step(tables, cluster, number)
        number += 1
        time.sleep(max(0.0, due - time.monotonic()))


def batch_keys(cluster: Cluster, number: int) -> Numbers:
    some = cluster.at_times
    drawn = np.random.default_rng(number).choice(some, min(BATCH, len(some)), replace=False)
    return np.append(cluster.active, drawn)


def commits(cluster: Cluster, keys: Numbers, at: int, *, rewound: int = 0) -> pa.Table:
    """Commits of n keys at the ends of their logs; of the active groups so many records before."""
    ends = cluster.end_of(keys, at)
    back = np.where(np.isin(keys, cluster.active) & (cluster.partition_of[keys] == 0), rewound, 0)
    return _offsets(cluster, keys, ends - back, at, before=np.maximum(ends - 60, _QUIET_END))


def _removals(cluster: Cluster, at: int) -> pa.Table:
    """Tombstones of all offsets of one group in a thousand."""
    keys = np.flatnonzero(cluster.group_of % 1_000 == 4)
    return _offsets(cluster, keys, None, at, before=cluster.end_of(keys, cluster.started))


def _offsets(
    cluster: Cluster, keys: Numbers, committed: Numbers | None, at: int, *, before: Numbers | None = None
) -> pa.Table:
    count, times = len(keys), pa.array(np.full(len(keys), at))

    def value(of: Numbers) -> pa.Array:
        held = {"committed_offset": pa.array(of), "metadata": pa.repeat("", count)}
        return struct_of(held | {"commit_timestamp": times, "source_timestamp": times}, count)

    columns = {
        "kind": pa.repeat("offset", count),
        "op": pa.repeat("remove" if committed is None else "set", count),
        "group": cluster.names.take(pa.array(cluster.group_of[keys])),
        "topic": cluster.topics.take(pa.array(cluster.topic_of[keys])),
        "partition": pa.array(cluster.partition_of[keys], pa.int32()),
        **({"cause": pa.repeat(EXPIRED, count)} if committed is None else {"after": value(committed)}),
        **({} if before is None else {"before": value(before)}),
        "commits": pa.repeat(pa.scalar(0 if committed is None else 12, pa.int32()), count),
        "source_offset": pa.array(keys),
        "source_timestamp": times,
    }
    return changes_of(columns, count)


def _groups(cluster: Cluster) -> pa.Table:
    order = np.argsort(cluster.group_of, kind="stable")
    starts = np.searchsorted(cluster.group_of[order], np.arange(cluster.groups + 1))
    values = [
        _group(cluster, number, order[starts[number] : starts[number + 1]])
        for number in range(cluster.groups)
    ]
    columns = {
        "kind": pa.repeat("group", cluster.groups),
        "op": pa.repeat("set", cluster.groups),
        "group": cluster.names,
        "group_after": pa.array(values, GROUP),
    }
    return changes_of(columns, cluster.groups)


def _group(cluster: Cluster, number: int, keys: Numbers) -> Mapping[str, Any]:
    own = {"type": "classic", "protocol_type": "consumer", "state_timestamp": cluster.started}
    if number % 4 == 0:
        since = cluster.started - _WEEK * (cluster.groups - number) // cluster.groups + HOURS * HOUR_MS
        return {**own, "state": "Empty", "state_timestamp": since, "members": []}
    parts = np.array_split(keys, _MEMBERS) if number == cluster.groups - 1 else [keys]
    members = [_member(cluster, nth, part) for nth, part in enumerate(parts)]
    topics = sorted({topic for member in members for topic in member["subscribed_topics"]})
    return {**own, "state": "Stable", "protocol": "range", "members": members, "subscribed_topics": topics}


def _member(cluster: Cluster, nth: int, keys: Numbers) -> dict[str, Any]:
    assigned: dict[str, list[int]] = {}
    for topic, partition in zip(cluster.topic_of[keys], cluster.partition_of[keys], strict=True):
        assigned.setdefault(topic_name(topic), []).append(int(partition))
    return {
        "member_id": f"worker-{nth}-5f1c8d2e-0b7a-4f0e-9d3c-2a6b1e7c4d90",
        "client_id": f"worker-{nth}",
        "client_host": f"/10.0.0.{nth}",
        "subscribed_topics": sorted(assigned),
        "assignment": [{"topic": topic, "partitions": parts} for topic, parts in assigned.items()],
    }


def append(tables: Tables, changes: pa.Table, at: int) -> None:
    """Append one batch as the job does, with a heartbeat."""
    progress = tables.progress()
    sequence = progress.sequence + 1
    ends = {number: PartitionEnds(sequence, sequence) for number in range(PARTITIONS)}
    made, _ = change_rows(changes, sequence=sequence, batch_time=at)
    tables.append_changes(made, _after(progress, sequence, at).with_ends(ends, at), is_batch=True)


def _after(progress: Progress, sequence: int, at: int) -> Progress:
    retention = Retention(
        retention_ms=_WEEK, check_interval_ms=10 * MINUTE_MS, source="broker", read_at=at, known_since=at
    )
    moved = replace(
        progress,
        topic=OFFSETS_TOPIC,
        batch_id=sequence,
        sequence=sequence,
        batch_time=at,
        heartbeat=at,
        batch_ms=1_000,
    )
    positions = dict.fromkeys(range(PARTITIONS), sequence)
    return moved.with_positions(positions, at).with_retention(retention)


def sample(tables: Tables, cluster: Cluster, moments: Sequence[int]) -> None:
    """Append samples of all topic partitions at these moments: sorted, as maintenance joins them."""
    codes = np.unique(cluster.topic_of * 10 + cluster.partition_of)
    ends = np.stack([cluster.end(codes // 10, codes % 10, at) for at in moments], axis=1)
    count, every = ends.size, len(moments)
    columns = {
        "sampled_at": to_timestamps(pa.array(np.tile(np.array(moments), len(codes)))),
        "topic": cluster.topics.take(pa.array(np.repeat(codes // 10, every))),
        "topic_id": pa.repeat("dG9waWMgaWQAAAAAAAAAAA", count),
        "partition": pa.array(np.repeat(codes % 10, every), pa.int32()),
        "log_start": pa.repeat(0, count),
        "log_end": pa.array(ends.ravel()),
        "day": pa.array([day_of(at) for at in moments]).take(pa.array(np.tile(np.arange(every), len(codes)))),
    }
    filled = [columns.get(field.name, pa.nulls(count, field.type)) for field in LOG_ENDS]
    tables.append_log_ends(pa.table(filled, LOG_ENDS.names).cast(LOG_ENDS))
