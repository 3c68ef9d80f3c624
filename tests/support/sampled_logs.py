"""Logs whose records come at known times, samples of their ends, and what the tables would say of them:
plain loops, to compare with."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streaming.model.schemas import TIMESTAMP

SAMPLES = pa.schema(
    [
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("sampled_at", TIMESTAMP),
        ("log_start", pa.int64()),
        ("log_end", pa.int64()),
    ]
)
CROSSED = pa.schema(
    [("below_at", TIMESTAMP), ("below_end", pa.int64()), ("above_at", TIMESTAMP), ("above_end", pa.int64())]
)


@dataclass(frozen=True)
class Log:
    """One partition, whose record n came at `produced[n]` (ms, sorted)."""

    produced: Sequence[int]
    topic: str = "t"
    partition: int = 0
    topic_id: str | None = "id"

    def end_at(self, moment: int) -> int:
        return bisect_right(self.produced, moment)

    def age(self, offset: int, moment: int) -> int:
        """Return for how long (ms) the record at an offset has been there; 0 if it is not."""
        return max(0, moment - self.produced[offset]) if offset < len(self.produced) else 0

    def samples(self, moments: Iterable[int]) -> list[dict[str, Any]]:
        return [sample(moment, self.end_at(moment), self) for moment in moments]


LOG = Log(())
"""An empty one."""


def sample(moment: int, end: int | None, log: Log = LOG) -> dict[str, Any]:
    return {
        "topic": log.topic,
        "topic_id": log.topic_id,
        "partition": log.partition,
        "sampled_at": moment,
        "log_start": 0,
        "log_end": end,
    }


def sample_table(samples: Iterable[dict[str, Any]]) -> pa.Table:
    return timed(list(samples), SAMPLES)


def timed(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """Make a table of rows whose times are milliseconds."""
    columns = [
        pa.array([row[field.name] for row in rows], pa.int64())
        .cast(pa.timestamp("ms", tz="UTC"))
        .cast(TIMESTAMP)
        if field.type == TIMESTAMP
        else pa.array([row[field.name] for row in rows], field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def newest_of(samples: Sequence[dict[str, Any]], as_of: int | None = None) -> list[dict[str, Any]]:
    """Return the newest sample of each topic partition, at or before a moment."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for row in sorted(samples, key=lambda one: one["sampled_at"]):
        if as_of is None or row["sampled_at"] <= as_of:
            found[row["topic"], row["partition"]] = row
    return list(found.values())


def offset_times_of(
    samples: Sequence[dict[str, Any]],
    positions: Sequence[tuple[str, int, int | None]],
    as_of: int | None = None,
) -> pa.Table:
    """Return for each position the last sample at or below it and the first one after that which is above
    (among those of the newest topic id)."""
    newest = {(row["topic"], row["partition"]): row for row in newest_of(samples, as_of)}
    found = []
    for topic, partition, committed in positions:
        last = newest.get((topic, partition))
        own = [
            row
            for row in sorted(samples, key=lambda one: one["sampled_at"])
            if last is not None
            and (row["topic"], row["partition"]) == (topic, partition)
            and row["sampled_at"] <= last["sampled_at"]
            and (row["topic_id"] == last["topic_id"] or None in (row["topic_id"], last["topic_id"]))
        ]
        row: dict[str, int | None] = dict.fromkeys(CROSSED.names)
        if committed is not None:
            below = [one for one in own if one["log_end"] <= committed]
            if below:
                row |= {"below_at": below[-1]["sampled_at"], "below_end": below[-1]["log_end"]}
            rest = [one for one in own if not below or one["sampled_at"] > below[-1]["sampled_at"]]
            above = [one for one in rest if one["log_end"] > committed]
            if above:
                row |= {"above_at": above[0]["sampled_at"], "above_end": above[0]["log_end"]}
        found.append(row)
    return timed(found, CROSSED)
