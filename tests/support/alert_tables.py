"""Real tables as a job leaves them, written step by step, for tests of alerts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from new_tables import new_tables
from sampled_logs import timed

from streaming.alerts.episodes import Episode
from streaming.alerts.evaluation import Evaluator
from streaming.alerts.log_starts import AskLogRanges
from streaming.alerts.table import AlertTable
from streaming.common.times import day_of
from streaming.model.progress import PartitionEnds, Progress, Rebuild, Retention
from streaming.model.schemas import CHANGES_IN_BATCH, LOG_ENDS
from streaming.model.totals import Totals
from streaming.settings.model import AlertSettings, HealthSettings
from streaming.settings.reading import read_settings
from streaming.tables.handles import TableHandles
from streaming.tables.rows import change_rows

HOUR = 3_600_000
DAY = 24 * HOUR
RETENTION = 7 * DAY
START = 1_700_000_000_000
EMPTY: dict[str, Any] = {"type": "classic", "protocol_type": "consumer", "state": "Empty", "members": []}
SIMPLE: dict[str, Any] = EMPTY | {"protocol_type": ""}


LAG_RULES_ON = {
    "group_stopped": "on",
    "group_stalled": "on",
    "offset_beyond_log_end": "on",
    "offset_of_recreated_topic": "on",
    "lag_seconds": "5m",
}
"""Settings with which all rules about lag and progress are on."""


def alert_settings(**options: object) -> AlertSettings:
    """The default settings of alerts with some of them changed; two underscores stand for a dot."""
    named = {f"alerts.{name.replace('__', '.')}": value for name, value in options.items()}
    return read_settings(options=named).alerts


class Lake:
    """A table root with a clock, to which a job writes commits of groups; one offsets partition or more."""

    def __init__(
        self,
        root: Path,
        partitions: int = 1,
        first_ends: Mapping[int, PartitionEnds] | None = None,
        start: int = START,
    ) -> None:
        self.tables = new_tables(root)
        self._of_job = replace(self.tables, handles=TableHandles())
        self.now = start
        self.ends = dict.fromkeys(range(partitions), 0)
        self.held_back: set[int] = set()  # partitions with an open transaction
        self.rebuild: Rebuild | None = None
        self.evaluated_at: int | None = None  # as the job says with heartbeats
        self._next_offset = 0
        self._live: dict[tuple[str, str | None, int | None], Any] = {}
        self.retention: Retention | None = Retention(
            retention_ms=RETENTION,
            check_interval_ms=600_000,
            source="broker",
            read_at=start,
            known_since=start,
        )
        self.heartbeat(first_ends)

    def evaluator(
        self,
        settings: AlertSettings | None = None,
        *,
        receivers: Sequence[str] = ("log",),
        ask_log_ranges: AskLogRanges | None = None,
        health: HealthSettings | None = None,
    ) -> Evaluator:
        """A new evaluator, as each start of the job makes one."""
        return Evaluator(
            self.tables,
            AlertTable(self.tables),
            settings or alert_settings(),
            receivers=receivers,
            ask_log_ranges=ask_log_ranges,
            health=health,
            clock=lambda: self.now,
        )

    def evaluate(self, settings: AlertSettings | None = None, **options: Any) -> list[Episode]:
        """Evaluate once with a new evaluator."""
        return self.evaluator(settings, **options).evaluate()

    def episodes(self, rule: str | None = None) -> list[Episode]:
        """All episodes in the table, in the order of their opening."""
        told = AlertTable(self.tables).read().episodes()
        episodes = sorted((one.episode for one in told), key=lambda e: (e.opened_at, e.id))
        return [episode for episode in episodes if rule in (None, episode.rule)]

    def commit(
        self,
        group: str,
        *keys: tuple[str, int],
        at: int | None = None,
        offset: int = 100,
        source_partition: int = 0,
        group_value: Mapping[str, Any] | None = SIMPLE,
        **value: Any,
    ) -> None:
        """Write commits of a group, at `at` (now), and the group as it is after them (None: as before)."""
        moment = self.now if at is None else at
        after = {"committed_offset": offset, "metadata": "", "commit_timestamp": moment, **value}
        rows = [self._change("offset", group, key, after, moment) for key in keys or [("orders", 0)]]
        if group_value is not None:
            rows.append(self._change("group", group, (None, None), dict(group_value), moment))
        self._append(rows, source_partition)

    def set_group(self, group: str, source_partition: int = 0, **value: Any) -> None:
        """Write a record of a group."""
        self._append([self._change("group", group, (None, None), EMPTY | value, self.now)], source_partition)

    def drop(
        self, group: str, *keys: tuple[str, int], cause: str, source_partition: int = 0, **place: Any
    ) -> None:
        """Write that offsets of a group were removed."""
        rows = [self._change("offset", group, key, None, self.now) for key in keys or [("orders", 0)]]
        before = {"committed_offset": 100, "metadata": "", "commit_timestamp": 0}
        self._append([row | {"cause": cause, "before": before, **place} for row in rows], source_partition)

    def sample(
        self,
        ends: Mapping[tuple[str, int], int | Callable[[int], int]],
        *,
        at: Sequence[int] | None = None,
        topic_id: str = "id",
    ) -> None:
        """Write samples of log ends, at moments (now), and of topics as a whole."""
        rows = [
            {
                "sampled_at": moment,
                "topic": topic,
                "topic_id": topic_id,
                "partition": partition,
                "log_start": 0,
                "log_end": end(moment) if callable(end) else end,
                "error": None,
                "day": day_of(moment),
            }
            for moment in at or [self.now]
            for (topic, number), end in ends.items()
            for partition in (number, None)
        ]
        rows = [row | ({"log_end": None} if row["partition"] is None else {}) for row in rows]
        self._of_job.append_log_ends(timed(rows, LOG_ENDS))

    def heartbeat(self, ends: Mapping[int, PartitionEnds] | None = None) -> None:
        """Write a heartbeat with the ends of the partitions: at the position, unless others are given."""
        self._write([], self._beaten(self._of_job.progress(), ends), 0)

    def _beaten(self, progress: Progress, ends: Mapping[int, PartitionEnds] | None = None) -> Progress:
        """Return the progress with what a heartbeat says now."""
        known = {
            number: PartitionEnds(end, end + (number in self.held_back)) for number, end in self.ends.items()
        }
        return replace(
            progress.with_ends({**known, **(ends or {})}, self.now),
            heartbeat=self.now,
            topic="__consumer_offsets",
            cluster_id="c",
            retention=self.retention,
            rebuild=self.rebuild,
            alerts_evaluated_at=self.evaluated_at,
        )

    def pass_time(self, milliseconds: int) -> None:
        """Let time pass while the job heartbeats, up to now."""
        self.now += milliseconds
        self.heartbeat()

    def reach(self, position: int, source_partition: int = 0) -> None:
        """Write that a partition was read up to here, without changes."""
        self.ends[source_partition] = position
        self._write([], self._of_job.progress().with_positions({source_partition: position}), 0)

    def add_totals(self, totals: Totals) -> None:
        """Write that more records were counted."""
        progress = self._of_job.progress()
        self._write([], replace(progress, totals=progress.totals + totals), 0)

    def count_anew(self) -> None:
        """Write that the topic has been read anew: nothing is counted yet."""
        progress = self._of_job.progress()
        self._write([], replace(progress, totals=Totals(), generation=progress.generation + 1), 0)

    def forget_partition(self, number: int) -> None:
        """Write that the topic has been recreated, without this partition."""
        del self.ends[number]
        progress = self._of_job.progress()
        others = {known: one for known, one in progress.partitions.items() if known != number}
        self._write([], replace(progress, partitions=others), 0)
        self.heartbeat()

    def _change(
        self, kind: str, group: str, key: tuple[str | None, int | None], after: Any, moment: int
    ) -> dict[str, Any]:
        self._next_offset += 1
        source = {"source_offset": self._next_offset, "source_timestamp": moment}
        before = self._live.get((group, *key))
        self._live[group, *key] = after = None if after is None else after | source
        return {
            "kind": kind,
            "op": "remove" if after is None else "set",
            "group": group,
            "topic": key[0],
            "partition": key[1],
            "group_before" if kind == "group" else "before": before,
            "group_after" if kind == "group" else "after": after,
            **source,
        }

    def _append(self, rows: list[dict[str, Any]], source_partition: int) -> None:
        self.ends[source_partition] = max(self._next_offset + 1, self.ends[source_partition])
        progress = self._of_job.progress()
        progress = replace(progress, sequence=progress.sequence + 1).with_positions(self.ends)
        self._write(rows, self._beaten(progress), source_partition)

    def _write(self, rows: list[dict[str, Any]], progress: Progress, source_partition: int) -> None:
        filled = [row | {"source_partition": source_partition} for row in rows]
        changes = pa.Table.from_pylist(filled, CHANGES_IN_BATCH)
        written, _ = change_rows(changes, sequence=progress.sequence, batch_time=self.now)
        self._of_job.append_changes(written, progress, is_batch=False)
