"""Rounds of maintenance on a fixed day."""

from datetime import UTC, date, datetime

from streaming.common.times import DAY_MS
from streaming.maintenance.maintenance import TableReport, maintain
from streaming.maintenance.trimming import KeepTimes
from streaming.tables.tables import Tables

TODAY = date(2026, 11, 21)
NOW = int(datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp() * 1_000)
KEPT = KeepTimes(
    history_ms=7 * DAY_MS,
    keep_removed_ms=90 * DAY_MS,
    keep_quarantine_ms=30 * DAY_MS,
    keep_unused_files_ms=0,
    keep_log_ends_ms=7 * DAY_MS,
)


def round_at(tables: Tables, clock: int, keep: KeepTimes = KEPT) -> dict[str, TableReport]:
    """Do a round; return what it did, by table."""
    return {report.table: report for report in maintain(tables, keep, clock=lambda: clock)}
