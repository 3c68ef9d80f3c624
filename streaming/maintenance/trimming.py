"""Deletes rows older than the settings keep, and records the trimmed days of `changes`.

Days are by the writer's clock, which may have been wrong: see `streaming.maintenance.trusted_time`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Final, Self

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction

from streaming.common.times import DAY_MS, day_of, start_of
from streaming.maintenance.rewriting import delete_rows
from streaming.maintenance.trusted_time import Times, sequence_before
from streaming.model.schemas import UNKNOWN_RECORD_VERSION
from streaming.settings.model import Settings
from streaming.tables.files import commit_files
from streaming.tables.progress_rows import HISTORY_TRANSACTION, history_start
from streaming.tables.select import between, select
from streaming.tables.tables import Tables

_SORTED_BY: Final = {"changes": "group", "quarantine": "source_offset"}
_KEPT_AFTER_HISTORY: Final = "\"kind\" = 'offset' AND \"op\" = 'remove'"

Proceed = Callable[[], bool]
"""Called before each step: renews the lease; False: leave the rest to the next round."""


@dataclass(frozen=True, kw_only=True)
class KeepTimes:
    """Retention of the tables (ms). Whole days are deleted, so rows stay up to a day longer.

    A day of `changes` older than `history` keeps only its removed offsets, until it is also older than
    `keep_removed`, which applies to closed alerts too. Replaced files stay for `keep_unused_files`, for their
    readers (delta-rs counts whole hours: rounded up).
    """

    history_ms: int
    keep_removed_ms: int
    keep_quarantine_ms: int
    keep_unused_files_ms: int
    keep_log_ends_ms: int

    @classmethod
    def of(cls, settings: Settings) -> Self:
        tables, log_ends = settings.tables, settings.log_ends
        return cls(
            history_ms=tables.history_ms,
            keep_removed_ms=tables.keep_removed_ms,
            keep_quarantine_ms=tables.keep_quarantine_ms,
            keep_unused_files_ms=tables.keep_unused_files_ms,
            keep_log_ends_ms=tables.history_ms if log_ends.keep_ms is None else log_ends.keep_ms,
        )


def delete_old_rows(tables: Tables, name: str, keep: KeepTimes, times: Times, proceed: Proceed) -> int:
    """Delete the days of a table, or the closed alerts, whose retention has ended; return the number of
    rows."""
    now = times.trusted
    if name == "quarantine":
        return _delete_days(tables, name, day_of(now - keep.keep_quarantine_ms), times)
    if name == "alerts":
        return delete_rows(tables.delta(name), _is_closed_before(now - keep.keep_removed_ms), by="rule")
    if name == "log_ends":
        return _delete_whole_days(tables.delta(name), day_of(now - keep.keep_log_ends_ms))
    if name != "changes":
        return 0
    trimmed = trim_history(tables, day_of(now - keep.history_ms), times, proceed)
    kept_since = min(day_of(now - keep.keep_removed_ms), history_start(tables.delta(name)))
    return trimmed + _delete_days(tables, name, kept_since, times)


def trim_history(tables: Tables, first_whole_day: date, times: Times, proceed: Proceed) -> int:
    """Keep only removed offsets in the days of `changes` before `first_whole_day`, one commit for each day.

    The commit records the day, so that each day is rewritten once. A batch that began before midnight may
    have been committed after rows of the next day, which is not known to be old then: so the last recorded
    day is looked at again. Days with unfolded changes, and those after them, wait. A recorded day that is
    implausibly late is taken back: no day is known to be complete then.
    """
    dropped = 0
    changes = tables.delta("changes")
    if history_start(changes) > (tomorrow := day_of(times.latest + DAY_MS)):
        note_day(changes, HISTORY_TRANSACTION, tomorrow)
        changes = tables.delta("changes")
    if history_start(changes) >= first_whole_day:
        return 0
    is_old = _is_old(changes, first_whole_day, times)
    for day in days_of(changes):
        if history_start(changes) <= day + timedelta(days=1) <= first_whole_day:
            if not proceed() or _has_unfolded_rows(tables, changes, day):
                return dropped
            note = CommitProperties(app_transactions=[_note(HISTORY_TRANSACTION, day + timedelta(days=1))])
            leaves = f"\"day\" = '{day}' AND NOT ({_KEPT_AFTER_HISTORY}) AND {is_old}"
            dropped += delete_rows(changes, leaves, note, by="group", day=day)
            changes = tables.delta("changes")
    if history_start(changes) < first_whole_day:  # there is no such day, or nothing in it to delete
        note_day(changes, HISTORY_TRANSACTION, first_whole_day)
    return dropped


def _delete_days(tables: Tables, name: str, first_kept: date, times: Times) -> int:
    """Delete the days of a table before a day, except rows that are younger, or not folded yet."""
    days = [day for day in days_of(tables.delta(name)) if day < first_kept]
    if not days:
        return 0
    is_old = _is_old(tables.delta("changes"), first_kept, times)
    if name == "changes":
        is_old += f' AND "sequence" <= {tables.folded_up_to()}'
    by = _SORTED_BY[name]
    return sum(
        delete_rows(tables.delta(name), f"\"day\" = '{day}' AND {is_old}", by=by, day=day) for day in days
    )


def _delete_whole_days(table: DeltaTable, first_kept: date) -> int:
    """Delete the days of a table before a day; return the number of rows. No file is rewritten."""
    old = [file["num_records"] for file in files_of(table) if file["partition.day"] < first_kept]
    if old:
        table.delete(f"\"day\" < '{first_kept}'")
    return sum(old)


def _is_old(changes: DeltaTable, first_kept: date, times: Times) -> str:
    """Return the SQL condition that a row of an earlier day is really that old, and the clock was not behind:
    it was written before the rows of later days, and its record, if any, is older than those days."""
    last = sequence_before(changes, first_kept, day_of(times.trusted))
    is_in_order = "true" if last is None else f'"sequence" <= {last}'
    start = start_of(first_kept)
    is_record_younger = between("source_timestamp", start, times.clock)
    return f"{is_in_order} AND NOT coalesce({is_record_younger}, false)"


def note_day(table: DeltaTable, transaction: str, day: date) -> None:
    """Commit a day (days since 1970) under an application id of a table."""
    commit = CommitProperties(app_transactions=[_note(transaction, day)])
    commit_files(table, [], [], commit)


def _note(transaction: str, day: date) -> Transaction:
    return Transaction(transaction, start_of(day) // DAY_MS)


def _has_unfolded_rows(tables: Tables, changes: DeltaTable, day: date) -> bool:
    asked = (
        f"""SELECT 1 FROM changes WHERE "day" = '{day}' AND "sequence" > {tables.folded_up_to()} LIMIT 1"""
    )
    return len(select(asked, changes=changes)) > 0


def _is_closed_before(moment: int) -> str:
    # closed alerts of this rule hold the number of reported records; if they were closed by a clock that was
    # behind, opened_at is later than closed_at
    is_past = " AND ".join(f'CAST("{at}" AS BIGINT) < {moment * 1_000}' for at in ("opened_at", "closed_at"))
    return f"""{is_past} AND "rule" <> '{UNKNOWN_RECORD_VERSION}'"""


def days_of(table: DeltaTable) -> list[date]:
    """Return the days of which a table has rows, in order."""
    return sorted({file["partition.day"] for file in files_of(table)})


def files_of(table: DeltaTable) -> list[dict[str, Any]]:
    """Return the files of a table as listed by delta-rs."""
    files: list[dict[str, Any]] = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return files
