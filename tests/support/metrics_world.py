"""Tables in which everything is the matter that metrics tell of, and that go on while they are served.

`MetricsWorld` has a group for each trouble, an offsets partition that a transaction holds back, one whose
leader is silent and one that is not loaded, and `go_on` writes what a job would within a second.
`write_dead_world` leaves the tables of a job that has died during a rebuild.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import pyarrow as pa
from log_end_rows import Sample, of_topic, rows_of
from new_tables import new_tables
from table_batches import QUERY, Batch, Key, Row, change, group, offset

from streaming.alerts.evaluation import Evaluator
from streaming.alerts.table import AlertTable
from streaming.common.times import DAY_MS, HOUR_MS, MINUTE_MS, now_ms
from streaming.expiry.causes import EXPIRED
from streaming.model.progress import PartitionProgress, Progress, Reached, Rebuild, Retention
from streaming.model.schemas import CHANGES, CHANGES_IN_BATCH
from streaming.model.totals import Totals
from streaming.settings.reading import read_settings
from streaming.tables.rows import change_rows
from streaming.tables.tables import Tables

MINUTES: Final = 25
"""For so long groups have been at work."""

RETENTION_MS: Final = 7 * DAY_MS
HELD_BACK, SILENT, NEW = 1, 2, 3
"""Offsets partitions that are not well: the last was never read to its end; all groups are in partition 0."""

STUCK_MS: Final = 10 * MINUTE_MS
TO_GO: Final = 200
"""So many offsets of `gone` the broker can drop, one in each second."""

CROWD: Final = 1_000
"""So many offsets `crowd` has."""

_SECOND_TOPIC: Final = "AAAAAAAAAAEAAAAAAAAAAg"


class MetricsWorld:
    """A record a second in each log. `billing` is well, `dead` has stopped, `stuck` commits one offset,
    `returned` went back, `slow` is two hours behind, `late` has lost records, `former` has offsets of a
    deleted topic, `garbled` one that cannot be read, `leaving` expires within an hour, `gone` is dropped
    bit by bit, `left` no longer subscribes to a topic, `marker` is one below the start of a log, and `ahead`
    beyond the end of one. `crowd` came last, has no member, and more offsets than all others together."""

    def __init__(self, root: Path, now: int) -> None:
        self.tables = new_tables(root)
        self._begins = now - 4 * HOUR_MS
        self._live: Batch = {}
        self._progress = _progress(now - MINUTES * MINUTE_MS)
        self._steps = 0
        for minute in range(MINUTES + 1):
            at = now - (MINUTES - minute) * MINUTE_MS
            self._write(at, self._at_first(now) if minute == 0 else self._commits(at, minute))
        self._sample(range(now - 3 * HOUR_MS, now + 1, MINUTE_MS))
        self.evaluate(now)

    def evaluate(self, now: int) -> None:
        """Evaluate the rules of alerts."""
        Evaluator(
            self.tables,
            AlertTable(self.tables),
            read_settings().alerts,
            receivers=["webhook"],
            ask_log_ranges=None,
            clock=lambda: now,
        ).evaluate()

    def go_on(self) -> None:
        """Write what a job would have read in the last second: commits, drops, and odd records; and rewinds,
        of which it is known by now that they last."""
        now = now_ms()
        self._steps += 1
        ever_further_back = self._end(self._begins + HOUR_MS) - self._steps
        batch: Batch = {
            ("billing", "orders", 0): _commit(self._end(now) - 1, now),
            ("billing", "payments", 0): _commit(self._end(now) - 1, now),
            ("gone", "payments", self._steps): None,
        }
        odd = Totals(malformed=1, wrong_partition=1, clamped=1, unknown_others=1)
        self._progress = replace(self._progress, totals=self._progress.totals + odd)
        then = now - 2 * MINUTE_MS
        self._write(then, {("returned", "orders", 1): _commit(ever_further_back, then)}, now=now)
        self._write(now, batch)
        self._sample([now])

    def _at_first(self, now: int) -> Batch:
        at = now - MINUTES * MINUTE_MS
        since = now - RETENTION_MS + HOUR_MS // 2
        named = (
            "billing",
            "dead",
            "stuck",
            "returned",
            "slow",
            "late",
            "former",
            "garbled",
            "left",
            "marker",
            "ahead",
        )
        groups: Batch = {
            name: group(members=[_member(name)], subscribed_topics=["orders", "clicks", "views"])
            for name in named
        }
        empty: Batch = {name: group(state="Empty", state_timestamp=since) for name in ("leaving", "gone")}
        old: Batch = {
            ("late", "clicks", 0): _commit(7, at),
            ("former", "views", 0): _commit(7, at, topic_id="first"),
            ("garbled", "orders", 0): _commit(None, at, unreadable_source_offset=3),
            ("leaving", "orders", 0): _commit(7, since),
            ("left", "payments", 0): _commit(7, since),
            ("marker", "clicks", 0): _commit(499, at),
            ("ahead", "orders", 1): _commit(2**40, at),
        }
        dropped: Batch = {("gone", "payments", number): _commit(7, since) for number in range(TO_GO)}
        crowd: Batch = {("crowd", "payments", number): _commit(7, now) for number in range(CROWD)}
        return {**groups, **empty, **old, **dropped, **crowd}

    def _commits(self, at: int, minute: int) -> Batch:
        """Return what groups commit in a minute."""
        end = self._end(at)
        possible_rewinds = minute > MINUTES - 4
        batch: Batch = {
            ("billing", "orders", 0): _commit(end, at),
            ("billing", "payments", 0): _commit(end, at),
            ("stuck", "orders", 0): _commit(self._end(self._begins + HOUR_MS), at),
            ("returned", "orders", 0): _commit(end - (1_200 if possible_rewinds else 1), at),
            ("returned", "orders", 1): _commit(end, at),
            ("slow", "orders", 0): _commit(self._end(at - 2 * HOUR_MS - minute * 10_000), at),
        }
        return batch | {("dead", "orders", 0): _commit(end - 10, at)} if minute <= 5 else batch

    def _end(self, at: int) -> int:
        """Return where every log ends."""
        return (at - self._begins) // 1_000

    def _write(self, at: int, batch: Batch, *, now: int | None = None) -> None:
        """Write a batch of a moment, with progress of this moment or of `now`."""
        now = at if now is None else now
        sequence = self._progress.sequence + 1
        totals = Totals(decoded=len(batch), tombstones=list(batch.values()).count(None))
        self._progress = replace(
            self._progress,
            batch_id=self._progress.batch_id + 1,
            sequence=sequence,
            batch_time=at,
            heartbeat=now,
            totals=self._progress.totals + totals,
            partitions=_partitions(now, sequence),
        )
        changes = [_change(key, value, self._live.get(key), at) for key, value in batch.items()]
        rows, _ = change_rows(
            pa.Table.from_pylist(changes, CHANGES_IN_BATCH), sequence=sequence, batch_time=at
        )
        self.tables.append_changes(rows, self._progress, is_batch=True)
        self._live |= batch

    def _sample(self, moments: Iterable[int]) -> None:
        logs = [("orders", 0), ("orders", 1), ("payments", 0), ("clicks", 0), ("views", 0)]
        samples = [
            Sample(
                at,
                topic,
                partition,
                self._end(at),
                _SECOND_TOPIC if topic == "views" else f"id-{topic}",
                start=500 if topic == "clicks" else 0,
            )
            for at in moments
            for topic, partition in logs
        ]
        topics = {(sample.topic, sample.topic_id, sample.at) for sample in samples}
        named = [of_topic(at, topic, topic_id or "") for topic, topic_id, at in sorted(topics)]
        self.tables.append_log_ends(rows_of([*samples, *named]))


def write_dead_world(root: Path, now: int) -> Tables:
    """Write tables whose job has been dead for two hours, since a rebuild."""
    world = MetricsWorld(root, now - 2 * HOUR_MS)
    progress = world.tables.progress()
    rebuild = Rebuild(since=now - 2 * HOUR_MS, reason="the topic was recreated")
    world.tables.append_changes(
        CHANGES.empty_table(), replace(progress, rebuild=rebuild, retention=None), is_batch=False
    )
    return world.tables


def _progress(began: int) -> Progress:
    retention = Retention(
        retention_ms=RETENTION_MS,
        check_interval_ms=10 * MINUTE_MS,
        source="broker",
        read_at=began,
        known_since=began,
    )
    return Progress(
        query_id=QUERY,
        topic="__consumer_offsets",
        cluster_id="shop",
        retention=retention,
        batch_ms=800,
        alerts_evaluated_at=began,
    )


def _partitions(at: int, position: int) -> Mapping[int, PartitionProgress]:
    whole = PartitionProgress(
        position=position,
        last_stable_offset=position,
        high_watermark=position,
        load_target=0,
        loaded=True,
        stable=Reached(as_of=at),
        whole=Reached(as_of=at),
    )
    since = at - STUCK_MS
    held_back = replace(
        whole,
        last_stable_offset=position + 1,
        high_watermark=position + 9,
        open_transaction_since=since,
        stable=Reached(as_of=since, target=position + 1, target_at=at),
        whole=Reached(as_of=since, target=position + 9, target_at=at),
    )
    return {
        0: whole,
        HELD_BACK: held_back,
        SILENT: replace(whole, unanswered_since=since),
        NEW: PartitionProgress(),
    }


def _change(key: Key | str, value: Row | None, before: Row | None, at: int) -> Row:
    place = {"source_partition": 0, "source_offset": 1, "source_timestamp": at}
    cause = {} if value is not None else {"cause": EXPIRED}
    commits = {} if isinstance(key, str) else {"commits": 0 if value is None else 1}
    return change(key, value, before) | place | cause | commits


def _commit(committed: int | None, at: int, **changed: object) -> Row:
    row = offset(committed_offset=committed, commit_timestamp=at, source_timestamp=at, source_partition=0)
    return row | changed


def _member(name: str) -> Row:
    return {
        "member_id": f"{name}-1",
        "client_id": name,
        "client_host": "/10.0.3.10",
        "subscribed_topics": ["orders"],
    }
