"""A small company's consumer groups over two days, as real tables that a job has written up to a moment.

For docs/ask.md and its tests. Every hour the groups that are at work commit; what else happens is said at
the constants below, by how long before `now` it does. All hours are read by the job one second later, and it
heartbeats on until `now`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import group_records
import pyarrow as pa
from sampled_logs import timed
from table_batches import QUERY, Batch, Key, Row, change, group, offset

from decoders import decode_columns
from streaming.alerts.evaluation import Evaluator
from streaming.alerts.table import AlertTable
from streaming.brokers.facts import LogRange
from streaming.common.partitions import offsets_partitions
from streaming.common.times import DAY_MS, HOUR_MS, MINUTE_MS, day_of
from streaming.expiry.causes import DELETED, EXPIRED
from streaming.model.progress import PartitionEnds, Progress, Retention
from streaming.model.schemas import CHANGES, CHANGES_IN_BATCH, LOG_ENDS, QUARANTINE_IN_BATCH
from streaming.model.totals import Totals
from streaming.settings.reading import read_settings
from streaming.tables.progress_rows import observation_row
from streaming.tables.rows import change_rows, quarantine_rows
from streaming.tables.tables import Tables

TOPICS: Final = {"orders": 4, "payments": 3, "clicks": 2}  # name -> partitions
OFFSETS_PARTITIONS: Final = 4  # of __consumer_offsets
RETENTION_MS: Final = 7 * DAY_MS

BEGINS: Final = 48 * HOUR_MS  # the job starts: earlier moments are not in the tables
DELETES: Final = 30 * HOUR_MS + 20 * MINUTE_MS  # an admin deletes the offset `GIVEN_UP`
BREAKS: Final = 9 * HOUR_MS + 40 * MINUTE_MS  # a record of shipping cannot be decoded
EXPIRES: Final = 5 * HOUR_MS + 30 * MINUTE_MS  # the brokers drop the offsets of newsletter
REWINDS: Final = 2 * HOUR_MS  # billing is reset on orders:0 and orders:1, to where it was a day ago
IDLE: Final = RETENTION_MS - 20 * HOUR_MS  # shipping is empty since: it expires in 20 h
WARNS: Final = 4 * HOUR_MS  # the offsets of shipping expire within 24 h from then on
COPIES: Final = 26 * HOUR_MS  # the tool commits once, without being a member of its group

LONG: Final = "customer-recommendation-nightly-training"  # 40 characters
TOOL: Final = "mirror-checkpoint-tool"
GIVEN_UP: Final = ("audit", "payments", 2)
"""What is given up: no member has it, and an admin deletes its offset."""
GROUPS: Final = ("audit", "billing", LONG, "fraud-scores", TOOL, "newsletter", "parcel-labels", "shipping")
"""All groups in the order of their names; `newsletter` is gone at the end."""

_AT_WORK: Final[dict[str, tuple[str, ...]]] = {
    "audit": ("orders", "payments"),
    "billing": ("orders",),
    LONG: ("clicks",),
    "fraud-scores": ("clicks", "payments"),
}
_MEMBERS: Final = {"audit": 1, "billing": 2, LONG: 1, "fraud-scores": 3, "parcel-labels": 2}
_HOURLY: Final = {"orders": 1_200, "payments": 450, "clicks": 36_000}  # records an hour in each partition
_KEPT: Final = 7 * DAY_MS  # records: no group has an offset below the log start
_OBSERVED_EVERY: Final = 2 * MINUTE_MS


@dataclass(frozen=True, kw_only=True)
class AskWorld:
    """The tables, and when in them something happened (ms)."""

    tables: Tables
    now: int

    def before(self, span: int) -> int:
        """The moment so long before now, such as `world.before(REWINDS)`."""
        return self.now - span


def write_ask_world(root: Path, now: int) -> AskWorld:
    """Write the tables under a root that is empty, with a last heartbeat at `now` (ms)."""
    job = _Job(Tables(str(root)), now - BEGINS)
    for before in sorted({*_TICKS, *_BETWEEN, *_EVALUATED}, reverse=True):
        at = now - before
        if before in _EVALUATED:
            job.heartbeat_until(at)
            job.evaluate_alerts(before)
            continue
        job.read(at, _batch(before, now), cause=_CAUSES.get(before))
        if before == BREAKS:
            job.quarantine(at)
    job.heartbeat_until(now)
    job.tables.append_log_ends(_samples(now))
    job.tables.fold()
    return AskWorld(tables=job.tables, now=now)


def committed_offset(name: str, topic: str, partition: int, before: int) -> int:
    """What a group that is at work had committed so long before now (ms)."""
    ticks = (BEGINS + _LAST_TICK - before) // HOUR_MS
    if name == "billing" and partition < 2 and before <= REWINDS:
        ticks -= 24
    return 100_000 + 7_000 * partition + ticks * (_HOURLY[topic] + 10 * partition)


def log_end(topic: str, partition: int, before: int) -> int:
    """Where a log ended so long before now (ms): those at work read to its end whenever they commit."""
    ticks = (BEGINS + _LAST_TICK - before) / HOUR_MS
    return 100_000 + 7_000 * partition + int(ticks * (_HOURLY[topic] + 10 * partition))


def log_start(topic: str, partition: int, before: int) -> int:
    return max(0, log_end(topic, partition, before + _KEPT))


# --- what happens ----------------------------------------------------------------------------------------

_LAST_TICK: Final = 4 * MINUTE_MS
_TICKS: Final = range(_LAST_TICK, BEGINS, HOUR_MS)
_BETWEEN: Final = (BEGINS, DELETES, COPIES, BREAKS, EXPIRES, REWINDS)
_CAUSES: Final = {DELETES: DELETED, EXPIRES: EXPIRED}
_EVALUATED: Final = (EXPIRES - 25_000, WARNS - 20_000, REWINDS - MINUTE_MS - 25_000)
"""Of the evaluations every 30 s those that open an alert: a rewind counts after a minute."""


def _samples(now: int) -> pa.Table:
    """Return samples of log ends: one a minute since the job began, and one of each topic an hour."""

    def row(topic: str, before: int, **ends: int | None) -> Row:
        seen = {"sampled_at": now - before, "topic": topic, "topic_id": f"{topic.ljust(21, '0')}Q"}
        return {**seen, "partition": None, "log_start": None, "log_end": None, **ends} | {
            "error": None,
            "day": day_of(now - before),
        }

    samples = [
        row(
            topic,
            before,
            partition=partition,
            log_start=log_start(topic, partition, before),
            log_end=log_end(topic, partition, before),
        )
        for before in range(BEGINS, 0, -MINUTE_MS)
        for topic, partitions in TOPICS.items()
        for partition in range(partitions)
    ]
    topics = [row(topic, before) for before in range(BEGINS, 0, -HOUR_MS) for topic in TOPICS]
    return timed([*samples, *topics], LOG_ENDS)


def _batch(before: int, now: int) -> Batch:
    """Return what the job reads so long before now (ms)."""
    match before:
        case _ if before == BEGINS:
            return {**_at_first(now), **_commits(before, now)}
        case _ if before == DELETES:
            return {GIVEN_UP: None}
        case _ if before == COPIES:
            commits: Batch = {(TOOL, "orders", number): _commit(1_000, now - before) for number in range(4)}
            return {TOOL: group(protocol_type="", state="Empty"), **commits}
        case _ if before == EXPIRES:
            return {"newsletter": None, ("newsletter", "clicks", 0): None, ("newsletter", "clicks", 1): None}
        case _ if before == REWINDS:
            keys = [("billing", "orders", number) for number in (0, 1)]
            return {key: _commit(committed_offset(*key, before), now - before) for key in keys}
        case _ if before == BREAKS:
            return {}
        case _:
            return _commits(before, now)


def _at_first(now: int) -> Batch:
    """Return the groups as they are when the job starts, and the offsets of those that are not at work."""
    groups: Batch = {
        name: group(
            type="consumer" if name == "fraud-scores" else "classic",
            protocol="uniform" if name == "fraud-scores" else "range",
            generation_or_epoch=7,
            state_timestamp=None if name == "fraud-scores" else now - BEGINS - DAY_MS,
            members=_members(name, *topics),
            subscribed_topics=list(topics),
        )
        for name, topics in _AT_WORK.items()
    }
    groups["parcel-labels"] = group(
        type="share",
        protocol_type="share",
        generation_or_epoch=3,
        members=_members("parcel-labels"),
        subscribed_topics=["orders"],
    )
    left = {"shipping": ("payments", now - IDLE), "newsletter": ("clicks", now - EXPIRES - RETENTION_MS)}
    for name, (topic, since) in left.items():
        groups[name] = group(state="Empty", generation_or_epoch=12, state_timestamp=since)
        for number in range(TOPICS[topic]):
            groups[name, topic, number] = _commit(88_000 + number, since - 3 * MINUTE_MS)
    return groups


def _commits(before: int, now: int) -> Batch:
    """Return what the groups that are at work commit, on all of their partitions."""
    keys = [
        (name, topic, number)
        for name, topics in _AT_WORK.items()
        for topic in topics
        for number in range(TOPICS[topic])
        if (name, topic, number) != GIVEN_UP or before > DELETES
    ]
    return {
        key: _commit(committed_offset(*key, before), now - before, "checked" if key[0] == "audit" else "")
        for key in keys
    }


def _commit(committed: int, at: int, metadata: str = "") -> Row:
    return offset(committed_offset=committed, leader_epoch=5, metadata=metadata, commit_timestamp=at)


def _members(name: str, *topics: str) -> list[Row]:
    """Return the members of a group, to whom the partitions of topics are assigned in turn."""
    count = _MEMBERS[name]
    return [
        {
            "member_id": f"{name}-{number}-6f1d{number}c3e-90ab-4c5e-8d2b-0123456789a{number}",
            "group_instance_id": None,
            "client_id": f"{name}-{number}",
            "client_host": f"/10.0.3.{10 + number}",
            "assignment": [
                {
                    "topic": topic,
                    "partitions": [
                        partition
                        for partition in range(number, TOPICS[topic], count)
                        if (name, topic, partition) != GIVEN_UP
                    ],
                }
                for topic in topics
            ],
        }
        for number in range(count)
    ]


# --- the job ---------------------------------------------------------------------------------------------


class _Job:
    """Writes what a job would have written, and heartbeats in between."""

    def __init__(self, tables: Tables, begins: int) -> None:
        self.tables = tables
        tables.create()
        self._live: Batch = {}
        self._ends = dict.fromkeys(range(OFFSETS_PARTITIONS), 0)
        retention = Retention(
            retention_ms=RETENTION_MS,
            check_interval_ms=10 * MINUTE_MS,
            source="broker",
            read_at=begins,
            known_since=begins,
        )
        self._progress = Progress(
            query_id=QUERY,
            topic="__consumer_offsets",
            cluster_id="shop",
            retention=retention,
            heartbeat=begins,
        )

    def read(self, at: int, batch: Batch, cause: str | None) -> None:
        """Write a batch of records that were written at `at`, one second later."""
        now = at + 1_000
        observed = self._observations(now)
        changes = [self._change(key, value, at, cause) for key, value in batch.items()]
        schema = CHANGES_IN_BATCH
        before = self._progress
        self._progress = replace(
            before.with_positions(self._ends, now).with_ends(self._partition_ends(), now),
            batch_id=before.batch_id + 1,
            sequence=before.sequence + 1,
            batch_time=now,
            heartbeat=now,
            totals=before.totals + Totals(decoded=len(batch), tombstones=list(batch.values()).count(None)),
        )
        rows, _ = change_rows(
            pa.Table.from_pylist(changes, schema), sequence=self._progress.sequence, batch_time=now
        )
        self.tables.append_changes(pa.concat_tables([*observed, rows]), self._progress, is_batch=True)
        self._live |= batch

    def quarantine(self, at: int) -> None:
        """Put a record aside whose key ends too early, as part of the last batch."""
        key, value = group_records.commit(7, group="shipping", topic="orders")
        failed = decode_columns(pa.array([key[:-3]]), pa.array([value])).to_pylist()[0]
        row = {
            **failed,
            "key": key[:-3],
            "value": value,
            "key_length": len(key) - 3,
            "value_length": len(value or b""),
            "source_partition": 1,
            "source_offset": self._ends[1],
            "source_timestamp": at,
        }
        self._ends[1] += 1
        schema = QUARANTINE_IN_BATCH
        table = pa.Table.from_pylist([{name: row[name] for name in schema.names}], schema)
        rows, _ = quarantine_rows(table, sequence=self._progress.sequence, batch_time=at + 1_000)
        self.tables.append_quarantine(rows, self._progress)
        self._progress = replace(self._progress, totals=self._progress.totals + Totals(malformed=1))

    def evaluate_alerts(self, before: int) -> None:
        """Evaluate the rules at the moment of the last heartbeat."""
        evaluator = Evaluator(
            self.tables,
            AlertTable(self.tables),
            read_settings().alerts,
            receivers=[],
            ask_log_ranges=lambda places: {
                place: LogRange(log_start(*place, before), log_end(*place, before)) for place in places
            },
            clock=lambda: self._progress.heartbeat,
        )
        evaluator.evaluate()

    def heartbeat_until(self, now: int) -> None:
        """Write that nothing has happened since, up to now."""
        observed = pa.concat_tables([CHANGES.empty_table(), *self._observations(now)])
        self._progress = replace(self._at(now), heartbeat=now, alerts_evaluated_at=now)
        self.tables.append_changes(observed, self._progress, is_batch=False)

    def _observations(self, until: int) -> Iterable[pa.Table]:
        moments = range(self._progress.heartbeat + _OBSERVED_EVERY, until, _OBSERVED_EVERY)
        return [observation_row(replace(self._at(moment), heartbeat=moment)) for moment in moments]

    def _at(self, now: int) -> Progress:
        return self._progress.with_positions(self._ends, now).with_ends(self._partition_ends(), now)

    def _partition_ends(self) -> dict[int, PartitionEnds]:
        return {number: PartitionEnds(end, end) for number, end in self._ends.items()}

    def _change(self, key: Key | str, value: Row | None, at: int, cause: str | None) -> dict[str, Any]:
        name = key if isinstance(key, str) else key[0]
        [number] = offsets_partitions(pa.array([name]), OFFSETS_PARTITIONS).tolist()
        source = {
            "source_partition": number,
            "source_offset": self._ends[number],
            "source_timestamp": at,
        }
        self._ends[number] += 1
        if value is not None:
            value |= source
        commits = None if isinstance(key, str) else 0 if value is None else 1
        row = change(key, value, self._live.get(key)) | source | {"commits": commits}
        return row if value is not None else row | {"cause": cause}
