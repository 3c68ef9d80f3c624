"""A lease on the maintenance of a table root: one maintainer at a time, on any machine.

delta-rs (1.6) accepts two compactions of the same files, which duplicates every row. So compaction
requires the lease. It is an application transaction of `quarantine`, which has few other commits: its version
is the time (ms) at which the lease ends, 0 once it is released. Locks of folders and of object stores differ;
commits to Delta work the same everywhere.

A process that was suspended may continue in the middle of a step, when another one has the lease. So the
holder puts its name into each table (`streaming.tables.fences`): then the other one commits nothing more.

Clocks may differ. A lease that ends later than a new lease would was taken by another clock; it is unknown
which clock is right, and whether the holder is alive. A live holder renews its lease. So the time at which
such a lease is first seen is committed, and the lease counts as expired once it has not changed for the
length of a lease.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from streaming.common.times import HOUR_MS, iso
from streaming.model.schemas import QUARANTINE
from streaming.tables.fences import MaintenanceBusyError
from streaming.tables.tables import Tables

LEASE_TRANSACTION: Final = "offsetlake.maintenance"
"""The application id under which `quarantine` keeps the end of the lease."""

DOUBT_TRANSACTION: Final = "offsetlake.maintenance.doubt"
"""The application id under which `quarantine` keeps when an implausibly long lease was first seen (0: not
since it was taken)."""

LEASE_MS: Final = HOUR_MS
"""Length of a lease: longer than any step of maintenance; renewed between steps."""

_RENEW_BELOW_MS: Final = LEASE_MS * 9 // 10  # each renewal is a commit: not after steps of milliseconds
_TABLE: Final = "quarantine"
_ATTEMPTS: Final = 20


@contextmanager
def maintenance_lease(tables: Tables, clock: Callable[[], int]) -> Iterator[Callable[[], None]]:
    """Hold the lease; yields a function that renews it, to be called before each step.

    Raises `MaintenanceBusyError` when another process holds it.
    """
    held_until = 0

    def renew() -> None:
        nonlocal held_until
        now = clock()
        if held_until - now < _RENEW_BELOW_MS:
            held_until = _take(tables, held_until, now, LEASE_MS)

    renew()
    try:
        yield renew
    finally:
        with suppress(MaintenanceBusyError):  # another process has it by now
            _take(tables, held_until, clock(), 0)


def _take(tables: Tables, held_until: int, now: int, duration_ms: int) -> int:
    """Commit a lease of `duration_ms` from now (0: release it), unless another process has it, or has had it
    since this one held it until `held_until` (0: it did not)."""
    until = now + duration_ms if duration_ms else 0
    for _ in range(_ATTEMPTS):
        table = tables.delta(_TABLE)
        found = table.transaction_version(LEASE_TRANSACTION) or 0
        if held_until and found != held_until:
            raise MaintenanceBusyError.taken_over(tables.root)
        dead_at = now if found == held_until else _dead_at(table, found, now)
        if dead_at is None:
            _commit(table, (DOUBT_TRANSACTION, now))
        elif dead_at > now:
            raise MaintenanceBusyError(
                f"maintaining the tables under {tables.root}: another process is maintaining them, or was "
                f"killed while it was. Its lease expires at {iso(dead_at, 'seconds')}; try again later."
            )
        elif _commit(table, (LEASE_TRANSACTION, until), (DOUBT_TRANSACTION, 0)):
            return until
    raise MaintenanceBusyError(
        f"maintaining the tables under {tables.root}: expected to take the lease on {_TABLE}, found "
        f"other commits at {_ATTEMPTS} attempts. Try again later."
    )


def _dead_at(table: DeltaTable, found: int, now: int) -> int | None:
    """Return when (ms) a lease expires by our clock; None: record that it was seen now."""
    if found <= now + LEASE_MS:
        return found
    met = table.transaction_version(DOUBT_TRANSACTION) or 0
    return met + LEASE_MS if 0 < met <= now else None


def _commit(table: DeltaTable, *notes: tuple[str, int]) -> bool:
    """Commit versions of application ids directly on top of the version read; False: another commit came
    first."""
    commit = CommitProperties(app_transactions=[Transaction(*note) for note in notes], max_commit_retries=0)
    try:
        write_deltalake(table, QUARANTINE.empty_table(), mode="append", commit_properties=commit)
    except CommitFailedError:
        return False
    return True
