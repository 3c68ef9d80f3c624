"""Samples of log ends for tests: rows of the table, and what its reading functions must find in them."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa

from streaming.common.times import day_of, from_ms
from streaming.model.schemas import LOG_ENDS, TOPIC_GONE
from streaming.tables.log_ends import NEWEST_WITHIN_MS

Position = tuple[str | None, int | None, int | None]


class Sample(NamedTuple):
    """One row of `log_ends`; `at` in ms, partition None: about the topic."""

    at: int
    topic: str
    partition: int | None
    end: int | None
    topic_id: str | None = "id-1"
    start: int | None = 0
    error: str | None = None


def gone(at: int, topic: str) -> Sample:
    return Sample(at, topic, None, None, None, None, TOPIC_GONE)


def of_topic(at: int, topic: str, topic_id: str) -> Sample:
    return Sample(at, topic, None, None, topic_id, None)


def rows_of(samples: Iterable[Sample]) -> pa.Table:
    """Make rows of the table (schema `LOG_ENDS`)."""
    return pa.Table.from_pylist(
        [
            {
                "sampled_at": from_ms(one.at),
                "topic": one.topic,
                "topic_id": one.topic_id,
                "partition": one.partition,
                "log_start": one.start,
                "log_end": one.end,
                "error": one.error,
                "day": day_of(one.at),
            }
            for one in samples
        ],
        LOG_ENDS,
    )


def positions_of(positions: Sequence[Position]) -> pa.Table:
    """Make a table of positions to ask for."""
    schema = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("committed_offset", pa.int64())])
    rows = [dict(zip(schema.names, position, strict=True)) for position in positions]
    return pa.Table.from_pylist(rows, schema)


# --- what must be found ----------------------------------------------------------------------------------


def expected_crossing(samples: Sequence[Sample], position: Position, as_of: int) -> dict[str, Any]:
    """Find by looking at one sample after the other what `offset_times` must say of a position."""
    topic, partition, offset = position
    none = dict.fromkeys(("below_at", "below_end", "above_at", "above_end"))
    if topic is None or partition is None or offset is None:
        return none
    gone_at = [s.at for s in samples if s.topic == topic and s.error == TOPIC_GONE and s.at <= as_of]
    log = _log([s for s in samples if (s.topic, s.partition) == (topic, partition)], as_of, gone_at)
    below = [place for place, sample in enumerate(log) if (sample.end or 0) <= offset]
    after = log[below[-1] + 1 :] if below else log
    found: dict[str, Any] = dict(none)
    if below:
        found |= {"below_at": from_ms(log[below[-1]].at), "below_end": log[below[-1]].end}
    if after:
        found |= {"above_at": from_ms(after[0].at), "above_end": after[0].end}
    return found


def _log(samples: Sequence[Sample], as_of: int, gone_at: Sequence[int]) -> list[Sample]:
    """Return the samples with an end up to a moment, in order, of the log that the newest is of: without an
    id none from before its topic was gone, or before the end fell."""
    known = sorted(s for s in samples if s.end is not None and s.at <= as_of)
    ids = [s.topic_id for s in known if s.topic_id is not None]
    others = [n for n, s in enumerate(known) if s.topic_id is not None and s.topic_id != ids[-1]]
    others += [n for n, s in enumerate(known) if s.topic_id is None and s.at < max(gone_at, default=s.at)]
    falls = [n for n, (s, after) in enumerate(pairwise(known)) if (s.end or 0) > (after.end or 0)]
    others = sorted(others + [n for n in falls if known[n].topic_id is None])
    return known[others[-1] + 1 :] if others else known


def expected_newest(
    samples: Sequence[Sample], topics: Sequence[str] | None, as_of: int
) -> list[dict[str, Any]]:
    """Find what `newest_ends` must say, in the order of topic and partition."""
    past = [s for s in samples if s.at <= as_of]
    if not past:
        return []
    wanted = [s for s in past if topics is None or s.topic in topics]
    latest = max(s.at for s in past)
    near = [s for s in wanted if as_of - NEWEST_WITHIN_MS <= s.at]
    near = [s for s in near if s.end is not None or (s.partition is None and s.error == TOPIC_GONE)]
    since = (as_of if near else latest) - NEWEST_WITHIN_MS
    near = near or [s for s in wanted if since <= s.at]
    told = [s for s in sorted(wanted, key=lambda s: s.at) if since <= s.at and s.topic_id is not None]
    last = {s.topic: s for s in told}
    newest = {(s.topic, s.partition): s for s in sorted(near, key=lambda s: s.at) if s.end is not None}
    gone_at = {s.topic: s.at for s in sorted(near, key=lambda s: s.at) if s.error == TOPIC_GONE}
    return [
        {
            "topic": s.topic,
            "topic_id": s.topic_id,
            "partition": s.partition,
            "sampled_at": from_ms(s.at),
            "log_start": s.start,
            "log_end": s.end,
        }
        for _, s in sorted(newest.items())
        if gone_at.get(s.topic, -1) <= s.at
        and (s.topic_id is None or last[s.topic].at <= s.at or last[s.topic].topic_id == s.topic_id)
    ]
