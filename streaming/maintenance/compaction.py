"""Compaction: joins small files, and sorts each past day once."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date, timedelta
from typing import Any, Final

from deltalake.exceptions import CommitFailedError

from streaming.common.times import DAY_MS, HOUR_MS, day_of
from streaming.maintenance.rewriting import TARGET_BYTES, sort_files, writing
from streaming.maintenance.samples import is_small, join_samples
from streaming.maintenance.trimming import Proceed, files_of, note_day
from streaming.maintenance.trusted_time import Times
from streaming.tables.progress_rows import noted_day
from streaming.tables.tables import Tables

SORTED_TRANSACTION: Final = "offsetlake.sorted"
"""The application id under which a table keeps the first day (days since 1970) that is not sorted."""

SMALL_BYTES: Final = TARGET_BYTES // 4
"""Smaller files are compacted. Files from catching up (200,000 changes) and from sorting are larger."""

ENOUGH_FILES: Final = 8
"""Small files in a partition that justify a rewrite."""

SORT_LIMIT_BYTES: Final = 2**30
"""Largest days of `changes` that are sorted: sorting takes about five times as much in temporary files."""

_EPOCH: Final = date(1970, 1, 1)

Partition = tuple[tuple[str, str], ...]
"""The partition columns of a table, with their values as texts."""


def compact(tables: Tables, name: str, proceed: Proceed) -> int:
    """Join the small files of each partition with enough of them; return the number of partitions."""
    compacted = 0
    for partition in _fragmented_partitions(tables, name):
        if not proceed():
            break
        with suppress(CommitFailedError):  # the job folded meanwhile: left to the next round
            _compact_partition(tables, name, partition)
            compacted += 1
    return compacted


def _compact_partition(tables: Tables, name: str, partition: Partition) -> None:
    table = tables.delta(name)
    if name == "log_ends":
        [(_, day)] = partition
        small = [file for file in files_of(table) if str(file["partition.day"]) == day and is_small(file)]
        join_samples(tables, date.fromisoformat(day), small)
        return
    table.optimize.compact(
        [(column, "=", value) for column, value in partition],
        target_size=TARGET_BYTES,
        max_concurrent_tasks=1,
        writer_properties=writing(table),
    )


def sort_closed_days(tables: Tables, name: str, times: Times, proceed: Proceed) -> int:
    """Sort each past day once: `changes` by group, `log_ends` by topic, partition and time; return the number
    of days.

    The changes of one group on a day are then in one file, found by its statistics. A recorded day that is
    implausibly late is ignored. Other tables are not sorted.
    """
    if name not in _SORTED:
        return 0
    count = 0
    table = tables.delta(name)
    days: dict[date, list[dict[str, Any]]] = defaultdict(list)
    for file in files_of(table):
        days[file["partition.day"]].append(file)
    for day, files in sorted(days.items()):
        sorted_until = noted_day(table, SORTED_TRANSACTION)
        if sorted_until > day_of(times.latest + DAY_MS):
            sorted_until = _EPOCH
        if sorted_until <= day < day_of(times.trusted - HOUR_MS):
            if not proceed():
                break
            count += _SORTED[name](tables, day, files)
            note_day(tables.delta(name), SORTED_TRANSACTION, day + timedelta(days=1))
            table = tables.delta(name)
    return count


def _sort_changes(tables: Tables, day: date, files: Sequence[Mapping[str, Any]]) -> bool:
    if sum(file["size_bytes"] for file in files) > SORT_LIMIT_BYTES:
        return False
    sort_files(tables.delta("changes"), "group", day)
    return True


def _sort_samples(tables: Tables, day: date, files: Sequence[Mapping[str, Any]]) -> bool:
    join_samples(tables, day, files)
    return True


_SORTED: Final[Mapping[str, Callable[[Tables, date, Sequence[Mapping[str, Any]]], bool]]] = {
    "changes": _sort_changes,
    "log_ends": _sort_samples,
}


def _fragmented_partitions(tables: Tables, name: str) -> list[Partition]:
    table = tables.delta(name)
    columns = table.metadata().partition_columns
    small = Counter(
        tuple((column, str(file[f"partition.{column}"])) for column in columns)
        for file in files_of(table)
        if (is_small(file) if name == "log_ends" else file["size_bytes"] < SMALL_BYTES)
    )
    return [partition for partition, count in sorted(small.items()) if count >= ENOUGH_FILES]
