"""Snapshots of past moments: read on request by one thread, and a few of them held.

A snapshot takes as much memory as the newest one, and reading it takes seconds. So at most `PastLimits.held`
are held, and one is read at a time. Everyone may ask for any moment, also thousands of them: each client has
one place in the queue, whatever it asks for, and askers take turns, however many clients each has. The
snapshot that goes is the one that was not asked for the longest. One that is in use stays, but not for ever
while others wait.
"""

import logging
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from time import monotonic
from typing import Final, NamedTuple

from streaming.common.rate_limits import OnDemand, RateLimitedLog
from streaming.common.retries import raise_if_ending
from streaming.common.times import iso, now_ms
from streaming.model.errors import OffsetlakeError
from streaming.serve.memory.reading import read_as_of
from streaming.serve.memory.snapshot import MemorySnapshot
from streaming.tables.progress_rows import HistoryGoneError
from streaming.tables.select import in_one_line
from streaming.tables.snapshot import Snapshot
from streaming.tables.tables import Tables

_log = logging.getLogger(__name__)

_SETTLES_S: Final = 1.0
_NEVER: Final = 3_600.0


class NotObservedError(OffsetlakeError):
    """The job was not at work at the requested moment, or had read nothing yet."""


@dataclass(frozen=True, kw_only=True)
class PastLimits:
    """At most `held` snapshots are held, including the one being read. Times are in seconds.

    One that was asked for within `in_use_s` stays, unless it is older than `turn_s` and others wait. Clients
    that have not asked for `gone_s` lose their place in the queue, which has `places`. An error is repeated
    for `failed_s`, before the tables are read again.
    """

    held: int = 3
    in_use_s: float = 2.0
    turn_s: float = 10.0
    gone_s: float = 10.0
    places: int = 1_000
    failed_s: float = 30.0
    failures: int = 1_000


@dataclass(frozen=True)
class Unavailable:
    """Why there is no snapshot of a moment. `is_refused`: the tables lack the moment (else: they could not be
    read)."""

    why: str
    is_refused: bool


class PastCounts(NamedTuple):
    """The snapshots that are held now, and the number of those that were read so far."""

    held: int
    built: int


class _Client(NamedTuple):
    number: int
    asker: Hashable


class _Key(NamedTuple):
    root: str
    moment: int


@dataclass
class _Held:
    snapshot: MemorySnapshot
    since: float
    asked_at: float


@dataclass
class _Wanted:
    key: _Key
    tables: Tables
    asked_at: float
    is_known: bool = False  # the tables have the moment, and the job has passed it
    not_before: float = 0.0


class PastSnapshots(OnDemand):
    """Holds snapshots of past moments of any tables within a `with` block; threads may share it."""

    def __init__(self, limits: PastLimits | None = None, *, clock: Callable[[], int] = now_ms) -> None:
        super().__init__("offsetlake-past")
        self._limits = limits or PastLimits()
        self._clock = clock
        self._limited_log = RateLimitedLog(_log)
        self._held: dict[_Key, _Held] = {}
        self._wanted: dict[_Client, _Wanted] = {}  # in the order of their turns
        self._served_at: dict[Hashable, float] = {}  # askers that wait again
        self._failed: dict[_Key, tuple[Unavailable, float]] = {}
        self._built: Counter[str] = Counter()

    def get(
        self, tables: Tables, moment: int, client: int, asker: Hashable = None
    ) -> MemorySnapshot | Unavailable | None:
        """Return the snapshot of a moment (ms), or why there is none; None: not read yet, ask again.

        `client` (any number) has one place in the queue: with another moment it goes to the end. Of the
        askers in the queue (each a principal or an address), the one whose last snapshot is the longest ago
        is next.
        """
        key, now = _Key(tables.root, moment), monotonic()
        with self.changed:
            if (held := self._held.get(key)) is not None:
                held.asked_at = now
                return held.snapshot
            failed, until = self._failed.get(key, (None, 0.0))
            if failed is not None and now < until:
                return failed
            self._want(key, tables, _Client(client, asker), now)
        return None

    def counts(self, root: str) -> PastCounts:
        """Return the counts of the tables at a root."""
        with self.changed:
            return PastCounts(sum(key.root == root for key in self._held), self._built[root])

    # --- the queue, with `changed` held ------------------------------------------------------------------

    def _want(self, key: _Key, tables: Tables, client: _Client, now: float) -> None:
        wanted = self._wanted.get(client)
        if wanted is None or wanted.key != key:
            if wanted is None and len(self._wanted) >= self._limits.places:
                self._forget_gone(now)
                if len(self._wanted) >= self._limits.places:
                    return
            self._wanted.pop(client, None)
            same = (one for one in self._wanted.values() if one.key == key)
            wanted = self._wanted[client] = next(same, None) or _Wanted(key, tables, now)
            self.changed.notify_all()
        wanted.asked_at = now

    def _forget_gone(self, now: float) -> None:
        since = now - self._limits.gone_s
        self._wanted = {client: one for client, one in self._wanted.items() if one.asked_at >= since}

    def _settle(self, key: _Key) -> None:
        self._wanted = {client: one for client, one in self._wanted.items() if one.key != key}

    def wait_s(self) -> float:
        now = monotonic()
        self._forget_gone(now)
        room_s = self._room_s(now)
        return min((self._due_s(one, room_s, now) for one in self._wanted.values()), default=_NEVER)

    def _due_s(self, wanted: _Wanted, room_s: float, now: float) -> float:
        return max(wanted.not_before - now, room_s if wanted.is_known else 0.0)

    def _room_s(self, now: float) -> float:
        """Return how long it takes at most until another snapshot may be held; 0: at once."""
        if len(self._held) < self._limits.held:
            return 0.0
        return max(0.0, min(self._goes_at(one) for one in self._held.values()) - now)

    def _goes_at(self, held: _Held) -> float:
        return min(held.asked_at + self._limits.in_use_s, held.since + self._limits.turn_s)

    def _next(self) -> _Wanted | None:
        now = monotonic()
        room_s = self._room_s(now)
        due = [client for client, one in self._wanted.items() if self._due_s(one, room_s, now) <= 0]
        if not due:
            return None
        client = min(due, key=lambda one: self._served_at.get(one.asker, 0.0))
        wanted = self._wanted[client]
        if wanted.is_known:
            waiting = {one.asker for one in self._wanted}
            self._served_at = {one: at for one, at in self._served_at.items() if one in waiting}
            self._served_at[client.asker] = now
        return wanted

    def _make_room(self) -> None:
        now = monotonic()
        while len(self._held) >= self._limits.held:
            may_go = [key for key, one in self._held.items() if self._goes_at(one) <= now]
            del self._held[min(may_go, key=lambda key: self._held[key].asked_at)]

    # --- reading, on the thread --------------------------------------------------------------------------

    def work(self) -> None:
        """Look whether the tables have the next moment, or read its snapshot."""
        with self.changed:
            wanted = self._next()
            if wanted is not None and wanted.is_known:
                self._make_room()
        if wanted is None:
            return
        try:
            if wanted.is_known:
                self._keep(wanted, read_as_of(wanted.tables, wanted.key.moment))
            else:
                self._look(wanted)
        except (HistoryGoneError, NotObservedError) as error:
            self._fail(wanted, Unavailable(str(error), is_refused=True))
        except BaseException as error:  # also a panic of delta-rs
            raise_if_ending(error)
            why = f"as of {iso(wanted.key.moment)}: the tables could not be read: {in_one_line(error)}"
            self._fail(wanted, Unavailable(why, is_refused=False))

    def _look(self, wanted: _Wanted) -> None:
        is_past = wanted.tables.ask(_is_passed, as_of=wanted.key.moment)
        age_ms = self._clock() - wanted.key.moment
        with self.changed:
            wanted.is_known = is_past or age_ms > wanted.tables.complete_within_ms
            wanted.not_before = 0.0 if wanted.is_known else monotonic() + _SETTLES_S

    def _keep(self, wanted: _Wanted, snapshot: MemorySnapshot) -> None:
        now = monotonic()
        with self.changed:
            self._held[wanted.key] = _Held(snapshot, now, now)
            self._built[wanted.key.root] += 1
            self._settle(wanted.key)

    def _fail(self, wanted: _Wanted, failure: Unavailable) -> None:
        with self.changed:
            self._failed.pop(wanted.key, None)
            self._failed[wanted.key] = failure, monotonic() + self._limits.failed_s
            if len(self._failed) > self._limits.failures:
                del self._failed[next(iter(self._failed))]
            self._settle(wanted.key)
        about = "refused" if failure.is_refused else "failed"
        self._limited_log.warning(about, f"a client asks for the past: {failure.why}")


def _is_passed(at: Snapshot) -> bool:
    """Return whether the job has written everything up to the moment of a past snapshot; raises
    `NotObservedError`."""
    if at.gap is not None:
        raise NotObservedError(f"as of {iso(at.moment)}: {at.gap}. Ask for a time when the job was at work.")
    if not at.progress.partitions:
        raise NotObservedError(f"as of {iso(at.moment)}: nothing had been read yet. Ask for a later time.")
    return at.newest().progress.heartbeat >= at.moment
