"""The current time as far as it can be trusted: the machine's clock, checked against the tables.

A clock that is far ahead must not delete young data. Three things are independent of it: timestamps of
records come from brokers; sequences are in the order of writing; the job's heartbeats show whether the clock
ran or jumped.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable

from streaming.common.times import DAY_MS, FIRST_MS, MINUTE_MS, start_of
from streaming.common.timestamps import to_milliseconds
from streaming.tables.progress_rows import history_start
from streaming.tables.select import between, select, written_after, written_until
from streaming.tables.tables import Tables

_RECENT_BATCHES: Final = 1_000
"""The newest record is looked up in this many batches, which have few files."""

_WITH_RECORDS: Final = ("changes", "quarantine")


@dataclass(frozen=True, kw_only=True)
class Times:
    """The current time (ms since 1970) by the clock, and as far as it can be trusted.

    `trusted` is for deletions: the time of the newest record, plus the time for which the job ran since; a
    clock that is ahead adds at most a day. `latest` is an upper bound: nothing in the tables is later.
    """

    clock: int
    trusted: int
    latest: int


def times_of(tables: Tables, clock: int, history_ms: int) -> Times:
    """Check the clock (ms) against the newest records and the heartbeats, which are kept for `history_ms`."""
    progress = tables.progress()
    recent = f'"sequence" > {progress.sequence - _RECENT_BATCHES}'
    believable = between("source_timestamp", FIRST_MS, clock)  # ignore records from the future
    newest = max(_newest_records(tables, f"{recent} AND {believable}"), default=0)
    changes = tables.delta("changes")
    dropped_at = start_of(history_start(changes)) + history_ms  # or later
    return Times(
        clock=clock,
        trusted=_observed_until(changes, max(newest, dropped_at), clock),
        latest=max(clock, progress.heartbeat, *_newest_records(tables, recent)),
    )


def _newest_records(tables: Tables, condition: str) -> list[int]:
    """Return the timestamp (ms) of the newest record in each table that has any."""
    found = [_max_time(tables.delta(name), "source_timestamp", condition) for name in _WITH_RECORDS]
    return [moment for moment in found if moment is not None]


def _observed_until(changes: DeltaTable, start: int, clock: int) -> int:
    """Return the time (ms), at most `clock`: `start` plus the time covered by heartbeats. A gap between
    heartbeats counts for at most a day: the clock may have jumped."""
    if start >= clock:
        return clock
    heartbeats = select(
        f"""
        SELECT DISTINCT date_trunc('hour', "batch_time") AS "t" FROM changes
        WHERE "kind" = 'progress' AND {between("batch_time", start + 1, clock)} ORDER BY "t"
        """,
        changes=changes,
    )
    moments = [start, *(max(start, moment) for moment in _in_ms(heartbeats["t"])), clock]
    return start + sum(min(later - earlier, DAY_MS) for earlier, later in pairwise(moments))


def _max_time(table: DeltaTable, column: str, condition: str) -> int | None:
    newest = select(f'SELECT max("{column}") AS "t" FROM t WHERE {condition}', t=table)["t"]
    moment: int | None = to_milliseconds(newest)[0].as_py()
    return moment


# --- order of writing -----------------------------------------------------------------------------------


def sequence_before(changes: DeltaTable, first: date, last: date) -> int | None:
    """Return the sequence up to which rows were written before those of some days; None: these have none.

    Rows put under an earlier day by a clock that was behind have a higher sequence.
    """
    found = select(
        f"""
        SELECT min(CASE WHEN "kind" = 'progress' THEN "sequence" ELSE "sequence" - 1 END) AS "s"
        FROM changes WHERE "day" >= '{first}' AND "day" <= '{last}'
        """,
        changes=changes,
    )
    sequence: int | None = found["s"][0].as_py()
    return sequence


# --- jumps of the clock ---------------------------------------------------------------------------------


def trusted_time_ago(changes: DeltaTable, clock: int, duration: int) -> int | None:
    """Return a moment (ms) since which a duration (ms) has passed by the job's heartbeats; None: unknown.

    With continuous heartbeats it is `clock - duration`. See `moment_before`.
    """
    if not duration:
        return clock
    for since in (clock - 2 * duration, None):
        found = moment_before(_heartbeats(changes, clock, duration, since), clock, duration)
        if found is not None:
            return found
    return None


def moment_before(heartbeats: Iterable[int], clock: int, duration: int) -> int | None:
    """Go back from the clock over heartbeats (ms, newest first) until the time between them reaches a
    duration.

    A gap counts for at most half of the duration: the clock may have jumped. None: not enough heartbeats.
    """
    later, left = clock, duration
    for heartbeat in heartbeats:
        counted = min(later - heartbeat, duration // 2)
        if counted >= left:
            return later - left
        left -= counted
        later = heartbeat
    return None


def _heartbeats(changes: DeltaTable, clock: int, duration: int, since: int | None) -> list[int]:
    """Return the minutes (ms) with progress rows up to the clock, newest first, as many as may be needed."""
    condition = "true" if since is None else written_after(since)
    found = select(
        f"""
        SELECT DISTINCT date_trunc('minute', "batch_time") AS "t" FROM changes
        WHERE "kind" = 'progress' AND {condition} AND {written_until(clock)}
        ORDER BY "t" DESC LIMIT {duration // MINUTE_MS + 3}
        """,
        changes=changes,
    )
    return _in_ms(found["t"])


def _in_ms(moments: pa.ChunkedArray) -> list[int]:
    milliseconds: list[int] = to_milliseconds(moments).to_pylist()
    return milliseconds
