"""Tables of groups of every kind, drawn at random, that a job has written for 25 minutes until now."""

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from new_tables import new_tables
from sampled_logs import Log, timed
from table_batches import Batch, append, group, heartbeat, offset

from streaming.common.times import DAY_MS, HOUR_MS, MINUTE_MS, day_of
from streaming.model.progress import PartitionProgress, Reached, Retention
from streaming.model.schemas import LOG_ENDS
from streaming.settings.model import OFFSETS_TOPIC
from streaming.tables.tables import Tables

MINUTES = 25
GROUPS = [
    "",
    "live",
    "it's",
    'say "hi"',
    "two\nlines",
    "back\\slash",
    "nul\0",
    "g" * 300,
    "g" * 299 + "h",
    "grüße",
]
HABITS = ("reads", "stopped", "stalls", "rewinds", "falls behind", "once", "unreadable", "beyond")
ASSIGNED = [{"topic": "orders", "topic_id": None, "partitions": [0, 1]}]
MEMBERS = [{"member_id": "m", "client_id": "c", "client_host": "/10.0.0.1", "assignment": ASSIGNED}]
STATES: list[dict[str, Any]] = [
    {"type": "classic", "state": "Empty", "protocol_type": "consumer", "subscribed_topics": []},
    {
        "type": "classic",
        "state": "Stable",
        "protocol_type": "consumer",
        "subscribed_topics": ["orders"],
        "members": MEMBERS,
    },
    {"type": "classic", "state": "Empty", "protocol_type": ""},
    {
        "type": "consumer",
        "state": "Stable",
        "protocol_type": "consumer",
        "subscribed_topics": ["anew", "x"],
        "members": MEMBERS,
    },
    {"type": "share", "state": "Stable", "protocol_type": "share"},
]


@dataclass
class AssessedWorld:
    """`batches` are what was appended, in order."""

    root: Path
    now: int
    seed: int
    tables: Tables = field(init=False)
    batches: list[Batch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tables = new_tables(self.root)
        self._random = random.Random(self.seed)
        self._start = self.now - MINUTES * MINUTE_MS
        seconds = range(self.now - 3 * HOUR_MS, self.now + 1, 1_000)
        self._logs = [
            Log(seconds, topic=topic, partition=partition, topic_id=f"{topic}-1")
            for topic in ("orders", "anew")
            for partition in (0, 1)
        ]
        self._live: Batch = {}
        names = [*GROUPS, *(f"group-{number}" for number in range(10))]
        keys = [(name, log) for name in names for log in self._logs if self._random.random() < 0.6]
        self._habits = {(name, log.topic, log.partition): self._random.choice(HABITS) for name, log in keys}
        self._log_of = {(name, log.topic, log.partition): log for name, log in keys}
        for name in ("once", "beyond"):  # of these every world has a group
            self._habits[name, "orders", 0] = name
            self._log_of[name, "orders", 0] = self._logs[0]
        for minute in range(MINUTES + 1):
            self._commit(minute)
            self._sample(minute)
        self.live(self.now)

    def live(self, at: int, **changed: Any) -> None:
        """Let the job say that it has read everything up to a moment."""
        retention = Retention(
            retention_ms=7 * DAY_MS,
            check_interval_ms=10 * MINUTE_MS,
            source="broker",
            read_at=at,
            known_since=at,
        )
        facts = {
            "topic": OFFSETS_TOPIC,
            "cluster_id": "cluster-1",
            "retention": retention,
            "batch_ms": 1_500,
            "alerts_evaluated_at": at - 5_000,
        }
        partitions = {number: self.partition(at) for number in (3, 4)}
        heartbeat(self.tables, at, **{**facts, "partitions": partitions, **changed})

    def partition(self, at: int, **changed: Any) -> PartitionProgress:
        facts = {
            "position": 9,
            "loaded": True,
            "last_stable_offset": 9,
            "high_watermark": 9,
            "load_target": 9,
        }
        reached = Reached(as_of=at)
        return PartitionProgress(**{**facts, "stable": reached, "whole": reached, **changed})

    def append(self, batch: Batch, at: int) -> None:
        """Append a batch."""
        append(self.tables, batch, live=self._live, now=at)
        self._live |= batch
        self.batches.append(batch)

    def _commit(self, minute: int) -> None:
        at, draw = self._start + minute * MINUTE_MS, self._random
        batch: Batch = {}
        for key, habit in self._habits.items():
            committed = self._position(habit, self._log_of[key], minute, at)
            if committed is not None:
                value = offset(committed_offset=committed, commit_timestamp=at, source_timestamp=at)
                value["source_partition"] = self._source(key[0])
                value["topic_id"] = draw.choice([None, f"{key[1]}-1"]) if key[1] == "anew" else None
                value["expire_timestamp"] = at + DAY_MS if draw.random() < 0.05 else None
                value["unreadable_source_offset"] = 7 if habit == "unreadable" and minute > 20 else None
                batch[key] = value
        if minute == 0:
            for name in dict.fromkeys(key[0] for key in self._habits):
                if draw.random() < 0.9:
                    times = {"state_timestamp": at - HOUR_MS, "source_partition": self._source(name)}
                    batch[name] = group(**draw.choice(STATES), **times)
            batch["first poll"] = group(**STATES[1], source_partition=self._source("first poll"))
        self.append(batch, at)

    def _source(self, name: str) -> int:
        return 3 + len(name) % 2

    def _position(self, habit: str, log: Log, minute: int, at: int) -> int | None:
        end = log.end_at(at)
        match habit:
            case "stopped":
                return end - 50 if minute < 5 else None
            case "stalls":
                return log.end_at(self._start) - 100
            case "rewinds":
                return end - 1_000 - (3_000 if minute >= 15 else 0)
            case "falls behind":
                return log.end_at(self._start) + minute
            case "beyond":
                return end + 100_000 if minute == 3 else None
            case "once":
                return end - 4_000 if minute == 0 else None
        return end - self._random.choice([0, 1, 30])

    def _sample(self, minute: int) -> None:
        at = self._start + minute * MINUTE_MS
        rows = [row for log in self._logs for row in log.samples([at])]
        if minute % 5 == 0:
            rows += [self._told(topic, at, f"{topic}-1") for topic in ("orders", "anew")]
        if minute >= 22:  # it was deleted, and recreated
            rows = [row for row in rows if row["topic"] != "anew"]
            rows += [{**log.samples([at])[0], "topic_id": "anew-2"} for log in self._logs[2:]]
            rows += [self._told("anew", at, "anew-2")]
        self.tables.append_log_ends(
            timed([{**row, "error": None, "day": day_of(row["sampled_at"])} for row in rows], LOG_ENDS)
        )

    def _told(self, topic: str, at: int, topic_id: str) -> dict[str, Any]:
        log = Log((), topic=topic, topic_id=topic_id)
        return {**log.samples([at])[0], "partition": None, "log_start": None, "log_end": None}
