"""Keeps the newest assessment while somebody requests it, on its own thread and with a small share of a
core."""

import logging
from collections.abc import Callable
from dataclasses import replace
from time import monotonic
from typing import Final

from streaming.common.freed_memory import return_freed_memory
from streaming.common.rate_limits import OnDemand, OngoingProblems
from streaming.common.retries import raise_if_ending
from streaming.common.times import MINUTE_MS, now_ms
from streaming.lag.health_rules import HealthRules
from streaming.lag.positions import habits_by
from streaming.serve.assessment.assessment import Assessment, assessment_of
from streaming.serve.memory.snapshot import MemorySnapshot
from streaming.settings.model import ExpirySettings
from streaming.tables.select import in_one_line
from streaming.tables.tables import Tables

_log = logging.getLogger(__name__)

EVERY_S: Final = 15.0
"""The greatest age of an assessment while it is requested, apart from `_SHARE`."""

_SHARE: Final = 20
"""The pause after an assessment, as a multiple of its duration: 5 % of a core."""

_LONGEST_PAUSE_S: Final = 120.0
"""The limit of that pause: an assessment expires at the age of `_OLD_MS`."""

IDLE_S: Final = 300.0
"""After this time without a request no more assessments are made."""

LONGEST_WAIT_S: Final = 20.0
"""A request gets the assessment before if a new one takes longer."""

_WAIT_S: Final = 60.0
_OLD_MS: Final = 5 * MINUTE_MS
"""The age at which an assessment expires."""


class Refresher(OnDemand):
    """Makes assessments of the newest snapshot (`snapshot`) within a `with` block.

    Messages about errors begin with `where`.
    """

    def __init__(
        self,
        tables: Tables,
        snapshot: Callable[[], MemorySnapshot],
        *,
        health: HealthRules,
        expiry: ExpirySettings,
        every_s: float = EVERY_S,
        clock: Callable[[], int] = now_ms,
        where: str = "",
    ) -> None:
        super().__init__("offsetlake-assessment")
        self._tables, self._snapshot = tables, snapshot
        self._health, self._expiry = health, expiry
        self._habits = habits_by(health)
        self._every_s, self._clock = every_s, clock
        self._problems = OngoingProblems(_log, where)
        self._assessment = Assessment.none()
        self._asked_at = -IDLE_S
        self._made_at = -IDLE_S
        self._pause_s = every_s
        self._was_awaited = False
        """Whether a request waited in vain since the last assessment: the next ones do not wait."""

    def ask(self) -> None:
        """Request an assessment, without waiting for it."""
        with self.changed:
            self._asked_at = monotonic()
            self.changed.notify_all()

    @property
    def newest(self) -> Assessment:
        """The newest assessment, without waiting; also after it has expired."""
        return self._assessment

    def current(self, *, until: float | None = None) -> Assessment:
        """Return the newest assessment, empty once it has expired. After a long time without requests, wait
        for a new one, once and at most 20 s, or `until` a moment (monotonic)."""
        self.ask()
        limit = monotonic() + LONGEST_WAIT_S if until is None else until
        with self.changed:
            while not self.done and self._is_awaited() and monotonic() < limit:
                self.changed.wait(limit - monotonic())
            self._was_awaited = self._is_too_old()
            return self._given_out(self._assessment)

    def make(self) -> Assessment:
        """Assess the newest snapshot, on the thread or without it.

        If the tables cannot be read, the assessment before remains until it expires.
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
        except BaseException as error:  # also a panic of delta-rs
            raise_if_ending(error)
            self._problems.make("assessment", f"lag and status cannot be refreshed: {in_one_line(error)}")
            made, self._pause_s = self._assessment, self._every_s
        else:
            self._problems.settle("assessment", "lag and status are refreshed again")
            made = replace(made, took_s=monotonic() - began)
            self._pause_s = max(self._every_s, min(_SHARE * made.took_s, _LONGEST_PAUSE_S))
        return_freed_memory()
        with self.changed:
            self._assessment = made = self._given_out(made)
            self._made_at, self._was_awaited = monotonic(), False
            self.changed.notify_all()
        return made

    def work(self) -> None:
        self.make()

    def _given_out(self, assessment: Assessment) -> Assessment:
        return assessment if self._clock() - assessment.moment < _OLD_MS else Assessment.none()

    def _is_awaited(self) -> bool:
        return self._is_too_old() and not self._was_awaited

    def _is_too_old(self) -> bool:
        return monotonic() - self._made_at >= max(IDLE_S, 3 * self._pause_s)

    def wait_s(self) -> float:
        """Return the seconds until the next assessment is due; without recent requests, a long time, which a
        request ends."""
        now = monotonic()
        if now - self._asked_at >= IDLE_S:
            return _WAIT_S
        return self._made_at + self._pause_s - now
