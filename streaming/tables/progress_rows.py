"""When the job was running and how far it had read, at past moments: rows of `changes` of kind `progress`.

The newest progress is in the metadata of the newest commit, but Delta keeps metadata only as long as its log.
So every batch adds a row with its progress, and so does a heartbeat once a minute. Maintenance drops rows
older than the kept history, day by day, and records the first complete day.
"""

from dataclasses import dataclass
from datetime import date
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from streaming.common.arrays import Mask, from_mask, no_rows, to_numbers
from streaming.common.times import DAY_MS, HOUR_MS, MINUTE_MS, day_of, from_ms, iso, start_of, to_ms
from streaming.common.timestamps import to_milliseconds
from streaming.model.completeness import read_until
from streaming.model.errors import OffsetlakeError
from streaming.model.progress import PartitionProgress, Progress, Reached
from streaming.model.schemas import CHANGES
from streaming.tables.select import between, names, select, written_until

HISTORY_TRANSACTION: Final = "offsetlake.history"
"""The application id under which `changes` keeps the first complete day (days since 1970)."""

OBSERVED_EVERY_MS: Final = MINUTE_MS
"""How often heartbeats add a row. Each is a file until maintenance joins them, so not at every heartbeat."""

GAP_MS: Final = 3 * OBSERVED_EVERY_MS
"""Rows further apart than this have a gap between them: time not observed."""

_NEAR_MS: Final = 5 * MINUTE_MS
_WINDOWS_MS: Final = (HOUR_MS, DAY_MS)
"""Rows are searched near a moment first, then within these times around it, to open few files, then
everywhere."""

_ROW: Final = pa.schema([CHANGES.field(name) for name in ("sequence", "batch_time", "progress")])


class HistoryGoneError(OffsetlakeError):
    """The requested time is before the kept history: older rows were deleted, or the tables are younger."""


@dataclass(frozen=True)
class Gap:
    """A time (ms) during which the job was not running; `end` None: until now."""

    start: int
    end: int | None

    def __str__(self) -> str:
        return f"not observed from {iso(self.start)} to {'now' if self.end is None else iso(self.end)}"


@dataclass(frozen=True)
class Observation:
    """The job's progress at a moment; `gap` None: it was running then."""

    progress: Progress
    gap: Gap | None = None


def observation_row(progress: Progress) -> pa.Table:
    """Return the row of `changes` (schema `CHANGES`) with a progress, at the time of its heartbeat."""
    partitions = [
        {
            "partition": number,
            "position": one.position,
            "last_stable_offset": one.as_shown.last_stable_offset,
            "high_watermark": one.as_shown.high_watermark,
            "loaded": one.loaded,
            "open_transaction_since": from_ms(one.open_transaction_since),
            "read_until": from_ms(read_until(one, progress)) if one.loaded else None,
        }
        for number, one in sorted(progress.partitions.items())
    ]
    row = {
        "sequence": progress.sequence,
        "batch_time": from_ms(progress.heartbeat),
        "kind": "progress",
        "progress": {
            "batch_id": progress.batch_id,
            "batch_time": from_ms(progress.batch_time),
            "partitions": partitions,
        },
        "day": day_of(progress.heartbeat),
    }
    return pa.Table.from_pylist([row], CHANGES)


def is_observation_due(progress: Progress, observed: Progress | None) -> bool:
    """Whether a heartbeat should add a row, given the progress in the last row (None: there is none)."""
    if observed is None or _loaded(progress) != _loaded(observed):
        return True
    return not 0 <= progress.heartbeat - observed.heartbeat < OBSERVED_EVERY_MS


def observed_at(changes: DeltaTable, newest: Progress, moment: int) -> Observation:
    """Return the job's progress at a moment (ms), given the newest progress.

    It is the row with the highest sequence among those written at or before the moment. The row of a batch
    has the time of its commit: so an answer about a moment stays the same. (Where the clock was set back, a
    later batch has an earlier time: it counts as before the moment.) Raises `HistoryGoneError`.
    """
    return _observed_at(changes, newest, moment)[0]


def written_by(changes: DeltaTable, newest: Progress, moment: int) -> int:
    """Return the sequence of the last batch whose rows were written at or before a moment (ms), given the
    newest progress; raises `HistoryGoneError`.

    Unlike `observed_at` it includes a batch that was not committed yet at the moment: so its rows, and the
    rows written after the moment, are all rows.
    """
    observed, near = _observed_at(changes, newest, moment)
    sequence = observed.progress.sequence
    is_next = f'"sequence" = {sequence + 1}'
    following = _newest_of(near, sequence + 1) or _newest_row(changes, is_next)
    written_at = None if following is None else to_ms(following["progress"]["batch_time"])
    return sequence if written_at is None or written_at > moment else sequence + 1


def _observed_at(changes: DeltaTable, newest: Progress, moment: int) -> tuple[Observation, pa.Table]:
    """Return what `observed_at` does, and rows (columns `_ROW`) near the moment."""
    if newest.heartbeat <= moment:
        return Observation(newest, _gap(newest.heartbeat, None, moment)), no_rows(_ROW)
    near = _rows(changes, between("batch_time", moment - _NEAR_MS, moment + _NEAR_MS))
    sequence, following = _around(changes, near, moment)
    if sequence is None:
        raise _history_gone(changes, newest, moment)
    row = _newest_of(near.filter(from_mask(~_is_after(near, moment))), sequence)
    # if the clock was set back, the row with the highest sequence may be far from the moment
    least = sequence if row is None else sequence + 1
    row = _newest_row(changes, f'{written_until(moment)} AND "sequence" >= {least}') or row
    assert row is not None
    following = newest.heartbeat if following is None else min(following, newest.heartbeat)
    progress = _progress(row, newest)
    return Observation(progress, _gap(progress.heartbeat, following, moment)), near


def _gap(start: int, end: int | None, moment: int) -> Gap | None:
    """Return the time without observation around a moment; None if it is not longer than `GAP_MS`."""
    length = (moment if end is None else end) - start
    return Gap(start, end) if length > GAP_MS else None


def _around(changes: DeltaTable, near: pa.Table, moment: int) -> tuple[int | None, int | None]:
    """Return the highest sequence among rows shortly before a moment (ms), and the time (ms) of the first row
    after it; None: there is no row. They are among the rows `near` the moment, or further away."""
    rows, windows = (
        near,
        iter((*(between("batch_time", moment - ms, moment + ms) for ms in _WINDOWS_MS), "true")),
    )
    while not 0 < np.count_nonzero(_is_after(rows, moment)) < len(rows):
        if (condition := next(windows, None)) is None:
            break
        sql = f"""SELECT "sequence", "batch_time" FROM changes WHERE "kind" = 'progress' AND {condition}"""
        rows = select(sql, changes=changes)
    is_after = _is_after(rows, moment)
    before = to_numbers(rows["sequence"])[~is_after]
    after = to_numbers(to_milliseconds(rows["batch_time"]))[is_after]
    return int(before.max()) if len(before) else None, int(after.min()) if len(after) else None


def _is_after(rows: pa.Table, moment: int) -> Mask:
    """Return whether each of n rows was written after a moment (ms)."""
    is_after: Mask = to_numbers(to_milliseconds(rows["batch_time"])) > moment
    return is_after


def _newest_of(rows: pa.Table, sequence: int) -> dict[str, Any] | None:
    """Return the newest of some rows with a sequence; None: there is none."""
    own = rows.filter(pc.equal(rows["sequence"], sequence))
    times = to_numbers(to_milliseconds(own["batch_time"]))
    return own.slice(int(times.argmax()), 1).to_pylist()[0] if len(own) else None


def _newest_row(changes: DeltaTable, condition: str) -> dict[str, Any] | None:
    rows = _rows(changes, f'{condition} ORDER BY "sequence" DESC, "batch_time" DESC LIMIT 1')
    return next(iter(rows.to_pylist()), None)


def _rows(changes: DeltaTable, condition: str) -> pa.Table:
    """Read the rows (columns `_ROW`) that match a condition."""
    sql = f"""SELECT {names(_ROW.names)} FROM changes WHERE "kind" = 'progress' AND {condition}"""
    return select(sql, changes=changes).cast(_ROW)


def _history_gone(changes: DeltaTable, newest: Progress, moment: int) -> HistoryGoneError:
    sql = """SELECT min("sequence") AS "s", min("batch_time") AS "t" FROM changes WHERE "kind" = 'progress'"""
    oldest = select(sql, changes=changes)
    sequence, time = oldest["s"][0].as_py() or 0, to_milliseconds(oldest["t"])[0].as_py()
    start = newest.heartbeat if time is None else time
    is_trimmed = sequence > 1 or whole_since(changes) is not None
    reason = "what is older was deleted ([tables] history)" if is_trimmed else "the tables are not older"
    return HistoryGoneError(
        f"as of {iso(moment)}: history starts at {iso(start)}, because {reason}. Ask for a later time."
    )


def _progress(row: dict[str, Any], newest: Progress) -> Progress:
    kept = row["progress"]
    return Progress(
        query_id=newest.query_id,
        batch_id=kept["batch_id"],
        sequence=row["sequence"],
        batch_time=to_ms(kept["batch_time"]),
        heartbeat=to_ms(row["batch_time"]) or 0,
        topic=newest.topic,
        cluster_id=newest.cluster_id,
        retention=newest.retention,
        partitions={one.pop("partition"): _partition(one) for one in kept["partitions"]},
    )


def _partition(kept: dict[str, Any]) -> PartitionProgress:
    reached = Reached(as_of=to_ms(kept.pop("read_until")))
    return PartitionProgress(
        **{**kept, "open_transaction_since": to_ms(kept["open_transaction_since"]), "whole": reached}
    )


def _loaded(progress: Progress) -> list[int]:
    return [number for number, one in progress.partitions.items() if one.loaded]


# --- the start of complete history -----------------------------------------------------------------------


def history_start(changes: DeltaTable) -> date:
    """Return the first day with all its changes; 1970-01-01: none was ever dropped."""
    return noted_day(changes, HISTORY_TRANSACTION)


def noted_day(changes: DeltaTable, transaction: str) -> date:
    """Return the day that maintenance recorded under an application id; 1970-01-01 if none."""
    return day_of((changes.transaction_version(transaction) or 0) * DAY_MS)


def whole_since(changes: DeltaTable) -> int | None:
    """Return the moment (ms) before which changes were dropped; None: none were, or the tables are
    younger."""
    start = start_of(history_start(changes))
    return start if (changes.metadata().created_time or 0) < start else None


def starts_after(changes: DeltaTable, moment: int) -> int | None:
    """Return when (ms) the first change was written if that was after a moment (ms), else None.

    Reads nothing unless the table was created after the moment, and rows only if bounds are missing.
    """
    if (changes.metadata().created_time or 0) <= moment:
        return None
    start = _first_bound(changes)
    if start is None:
        first = select('SELECT min("batch_time") AS "first" FROM changes', changes=changes)["first"]
        start = to_milliseconds(first)[0].as_py()
    return start if start is not None and start > moment else None


def _first_bound(changes: DeltaTable) -> int | None:
    """Return the least time (ms) of a change by the bounds in the log; None: some file has none."""
    files = pa.RecordBatchReader.from_stream(changes.get_add_actions(flatten=True)).read_all()
    if "min.batch_time" not in files.column_names or files["min.batch_time"].null_count:
        return None
    first: int | None = pc.min(to_milliseconds(files["min.batch_time"])).as_py()
    return first
