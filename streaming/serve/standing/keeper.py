"""Keeps the newest standing, while somebody asks: on a thread of its own, for a small part of a core."""

from collections.abc import Callable
from dataclasses import replace
from time import monotonic
from typing import Final

import pyarrow as pa

from streaming.common.patience import Complaints, OnDemand
from streaming.common.retries import raise_if_ending
from streaming.common.times import MINUTE_MS, now_ms
from streaming.lag.positions import habits_by
from streaming.lag.rules import HealthRules
from streaming.serve.picture.picture import Picture
from streaming.serve.standing.standing import Standing, standing_of
from streaming.settings.model import ExpirySettings
from streaming.tables.select import in_one_line
from streaming.tables.tables import Tables

EVERY_S: Final = 15.0
"""How old a standing may be while somebody asks for it, but for what `_SHARE` says."""

_SHARE: Final = 20
"""After a standing was made, nothing is done for so many times as long as that took: 5 % of a core."""

_LONGEST_PAUSE_S: Final = 120.0
"""The longest pause for all that: standings are not given out once they are as old as `_OLD_MS` says."""

IDLE_S: Final = 300.0
"""After so long without a question no more standings are made."""

_LONGEST_WAIT_S: Final = 20.0
"""Who asks for a standing gets the one before if a new one takes longer."""

_WAIT_S: Final = 60.0
_OLD_MS: Final = 5 * MINUTE_MS
"""A standing that is older than this says nothing any more."""


class Keeper(OnDemand):
    """Makes standings within a `with` block, of what `picture` gives; `say` gets what goes wrong."""

    def __init__(
        self,
        tables: Tables,
        picture: Callable[[], Picture],
        say: Callable[[str], None],
        *,
        health: HealthRules,
        expiry: ExpirySettings,
        every_s: float = EVERY_S,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        super().__init__("offsetlake-standing")
        self._tables, self._picture = tables, picture
        self._health, self._expiry = health, expiry
        self._habits = habits_by(health)
        self._every_s, self._clock = every_s, clock
        self._complaints = Complaints(say)
        self._standing = Standing.none()
        self._asked_at = -IDLE_S
        self._made_at = -IDLE_S
        self._pause_s = every_s

    def current(self) -> Standing:
        """Return the newest standing, unless it says nothing any more; if nobody has asked for long, one is
        made first."""
        with self.changed:
            self._asked_at = monotonic()
            self.changed.notify_all()
            limit = self._asked_at + _LONGEST_WAIT_S
            while not self.done and self._is_too_old() and monotonic() < limit:
                self.changed.wait(limit - monotonic())
            return self._given_out(self._standing)

    def make(self) -> Standing:
        """Make a standing of the newest picture; for the thread, or without one.

        What cannot be read leaves the one before, as long as it says anything; then nothing is known.
        """
        began, picture, moment = monotonic(), self._picture(), self._clock()
        try:
            made = self._tables.ask(
                lambda at: standing_of(
                    picture,
                    at,
                    moment=moment,
                    health=self._health,
                    settings=self._expiry,
                    habits=self._habits,
                ),
                now=moment,
            )
        except BaseException as error:  # a panic of delta-rs, too
            raise_if_ending(error)
            self._complaints.make("standing", f"lag and status cannot be refreshed: {in_one_line(error)}")
            made, self._pause_s = self._standing, self._every_s
        else:
            self._complaints.settle("standing", "lag and status are refreshed again")
            made = replace(made, took_s=monotonic() - began)
            self._pause_s = max(self._every_s, min(_SHARE * made.took_s, _LONGEST_PAUSE_S))
        pa.default_memory_pool().release_unused()
        with self.changed:
            self._standing = made = self._given_out(made)
            self._made_at = monotonic()
            self.changed.notify_all()
        return made

    def work(self) -> None:
        """Make a standing."""
        self.make()

    def _given_out(self, standing: Standing) -> Standing:
        return standing if self._clock() - standing.moment < _OLD_MS else Standing.none()

    def _is_too_old(self) -> bool:
        return monotonic() - self._made_at >= max(IDLE_S, 3 * self._pause_s)

    def wait_s(self) -> float:
        """Return how long to wait for the next one; as long as nobody asks, until somebody does."""
        now = monotonic()
        if now - self._asked_at >= IDLE_S:
            return _WAIT_S
        return self._made_at + self._pause_s - now
