"""Keeps the newest assessment, while somebody asks: on a thread of its own, for a small part of a core."""

import logging
from collections.abc import Callable
from dataclasses import replace
from time import monotonic
from typing import Final

import pyarrow as pa

from streaming.common.rate_limits import OnDemand, OngoingProblems
from streaming.common.retries import raise_if_ending
from streaming.common.times import MINUTE_MS, now_ms
from streaming.lag.positions import habits_by
from streaming.lag.rules import HealthRules
from streaming.serve.assessment.assessment import Assessment, assessment_of
from streaming.serve.memory.snapshot import MemorySnapshot
from streaming.settings.model import ExpirySettings
from streaming.tables.select import in_one_line
from streaming.tables.tables import Tables

_log = logging.getLogger(__name__)

EVERY_S: Final = 15.0
"""How old an assessment may be while somebody asks for it, but for what `_SHARE` says."""

_SHARE: Final = 20
"""After an assessment was made, nothing is done for so many times as long as that took: 5 % of a core."""

_LONGEST_PAUSE_S: Final = 120.0
"""The longest pause for all that: assessments are not given out once they are as old as `_OLD_MS` says."""

IDLE_S: Final = 300.0
"""After so long without a question no more assessments are made."""

_LONGEST_WAIT_S: Final = 20.0
"""Who asks for an assessment gets the one before if a new one takes longer."""

_WAIT_S: Final = 60.0
_OLD_MS: Final = 5 * MINUTE_MS
"""An assessment that is older than this says nothing any more."""


class Refresher(OnDemand):
    """Makes assessments within a `with` block, of what `snapshot` gives."""

    def __init__(
        self,
        tables: Tables,
        snapshot: Callable[[], MemorySnapshot],
        *,
        health: HealthRules,
        expiry: ExpirySettings,
        every_s: float = EVERY_S,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        super().__init__("offsetlake-assessment")
        self._tables, self._snapshot = tables, snapshot
        self._health, self._expiry = health, expiry
        self._habits = habits_by(health)
        self._every_s, self._clock = every_s, clock
        self._problems = OngoingProblems(_log)
        self._assessment = Assessment.none()
        self._asked_at = -IDLE_S
        self._made_at = -IDLE_S
        self._pause_s = every_s

    def current(self) -> Assessment:
        """Return the newest assessment, unless it says nothing any more; if nobody has asked for long, one is
        made first."""
        with self.changed:
            self._asked_at = monotonic()
            self.changed.notify_all()
            limit = self._asked_at + _LONGEST_WAIT_S
            while not self.done and self._is_too_old() and monotonic() < limit:
                self.changed.wait(limit - monotonic())
            return self._given_out(self._assessment)

    def make(self) -> Assessment:
        """Make an assessment of the newest snapshot; for the thread, or without one.

        What cannot be read leaves the one before, as long as it says anything; then nothing is known.
        """
        began, snapshot, moment = monotonic(), self._snapshot(), self._clock()
        try:
            made = self._tables.ask(
                lambda at: assessment_of(
                    snapshot,
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
            self._problems.make("assessment", f"lag and status cannot be refreshed: {in_one_line(error)}")
            made, self._pause_s = self._assessment, self._every_s
        else:
            self._problems.settle("assessment", "lag and status are refreshed again")
            made = replace(made, took_s=monotonic() - began)
            self._pause_s = max(self._every_s, min(_SHARE * made.took_s, _LONGEST_PAUSE_S))
        pa.default_memory_pool().release_unused()
        with self.changed:
            self._assessment = made = self._given_out(made)
            self._made_at = monotonic()
            self.changed.notify_all()
        return made

    def work(self) -> None:
        """Make an assessment."""
        self.make()

    def _given_out(self, assessment: Assessment) -> Assessment:
        return assessment if self._clock() - assessment.moment < _OLD_MS else Assessment.none()

    def _is_too_old(self) -> bool:
        return monotonic() - self._made_at >= max(IDLE_S, 3 * self._pause_s)

    def wait_s(self) -> float:
        """Return how long to wait for the next one; as long as nobody asks, until somebody does."""
        now = monotonic()
        if now - self._asked_at >= IDLE_S:
            return _WAIT_S
        return self._made_at + self._pause_s - now
