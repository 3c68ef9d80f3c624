"""A lease on the maintenance of one table root: one maintainer at a time, on whichever machine.

delta-rs (1.6) lets two compactions that rewrite the same files both commit, and every row is there twice.
So whoever compacts takes the lease first. It is an application transaction of `quarantine`, to which hardly
anybody else commits: its version is the time (ms) until which the lease is held. Locks of folders and of
object stores differ; Delta's commits work the same everywhere.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

from deltalake import CommitProperties, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from streaming.errors import OffsetlakeError
from streaming.schemas import QUARANTINE
from streaming.tables import Tables

LEASE_TRANSACTION: Final = "offsetlake.maintenance"
"""The application id under which `quarantine` notes until when the lease is held."""

LEASE_MS: Final = 3_600_000
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
    """Note that the lease runs `duration_ms` from now, unless somebody else than we (`held_until`) has it."""
    for _ in range(_ATTEMPTS):
        table = tables.delta(_TABLE)
        found = table.transaction_version(LEASE_TRANSACTION) or 0
        if found not in (held_until, 0) and found > now:
            raise MaintenanceBusyError(
                f"maintaining the tables under {tables.root}: expected to be the only one, found that "
                "another process is at it, or was killed while it was. Try again later; it counts as dead at "
                f"{_clock_time(found)}."
            )
        until = now + duration_ms
        commit = CommitProperties(
            app_transactions=[Transaction(LEASE_TRANSACTION, until)],
            max_commit_retries=0,  # only on top of what was just read
        )
        try:
            write_deltalake(table, QUARANTINE.empty_table(), mode="append", commit_properties=commit)
        except CommitFailedError:
            continue
        return until
    raise MaintenanceBusyError(
        f"maintaining the tables under {tables.root}: expected to note it on {_TABLE}, found that others "
        f"commit to it all the time. Try again later."
    )


def _clock_time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1_000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
