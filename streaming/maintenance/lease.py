"""A lease on the maintenance of one table root: one maintainer at a time, on whichever machine.

delta-rs (1.6) lets two compactions that rewrite the same files both commit, and every row is there twice.
So whoever compacts takes the lease first. It is an application transaction of `quarantine`, to which little
else is committed: its version is the time (ms) until which the lease is held, 0 once it is given back.
Locks of folders and of object stores differ; Delta's commits work the same everywhere.

Clocks may differ. A lease that ends later than any lease taken now would was taken by another clock: nothing
says whose is right, nor whether its holder is alive. A holder that is alive renews it. So whoever meets such
a lease notes the time, and it counts as dead once it has stood unchanged for as long as a lease is good for.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from streaming.common.times import HOUR_MS, iso
from streaming.model.errors import OffsetlakeError
from streaming.model.schemas import QUARANTINE
from streaming.tables.tables import Tables

LEASE_TRANSACTION: Final = "offsetlake.maintenance"
"""The application id under which `quarantine` notes until when the lease is held."""

DOUBT_TRANSACTION: Final = "offsetlake.maintenance.doubt"
"""The application id under which `quarantine` notes when a lease too long to be true was met (0: not since it
was taken)."""

LEASE_MS: Final = HOUR_MS
"""How long a lease is good for: longer than any one step of maintenance takes; renewed between steps."""

_RENEW_BELOW_MS: Final = LEASE_MS * 9 // 10  # each renewal is a commit: not for steps of milliseconds
_TABLE: Final = "quarantine"
_ATTEMPTS: Final = 20


class MaintenanceBusyError(OffsetlakeError):
    """Another process maintains the tables, or was killed while it did."""


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
        _take(tables, held_until, clock(), 0)


def _take(tables: Tables, held_until: int, now: int, duration_ms: int) -> int:
    """Note that the lease runs `duration_ms` from now (0: that it is free), unless another process
    than this one (`held_until`) has it."""
    until = now + duration_ms if duration_ms else 0
    for _ in range(_ATTEMPTS):
        table = tables.delta(_TABLE)
        found = table.transaction_version(LEASE_TRANSACTION) or 0
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
    """Return when (ms) a lease counts as dead by our clock; None: note that it was met now."""
    if found <= now + LEASE_MS:
        return found
    met = table.transaction_version(DOUBT_TRANSACTION) or 0
    return met + LEASE_MS if 0 < met <= now else None


def _commit(table: DeltaTable, *notes: tuple[str, int]) -> bool:
    """Commit versions of application ids on top of just what was read; False: another commit was first."""
    commit = CommitProperties(app_transactions=[Transaction(*note) for note in notes], max_commit_retries=0)
    try:
        write_deltalake(table, QUARANTINE.empty_table(), mode="append", commit_properties=commit)
    except CommitFailedError:
        return False
    return True
